//! Tables. Key: `[2] table-id:u64`. Value: the table. With version byte 2, the value also contains
//! the placement, which a table in a ring of one arc does not need.
//!
//! Key `[7] table-id:u64`: a deleted table whose entries are still being removed. Its value is
//! empty, or the last removed key, as in [`removal`].
//!
//! [`removal`]: super::removal

use std::ops::ControlFlow;

use super::{Family, PLACED_TABLE_VERSION, decode_value, encode_value, take};
use crate::storage::overlay::Overlay;
use crate::storage::{ReadError, View};
use crate::table::Table;
use crate::table::identifiers::TableId;
use crate::table::placement::Placement;

pub(crate) fn write(overlay: &mut Overlay<'_>, table: &Table) -> Result<(), ReadError> {
    let value = if table.placement == Placement::default() {
        encode_value(table)?
    } else {
        postcard::to_extend(&(table, &table.placement), vec![PLACED_TABLE_VERSION])
            .map_err(|error| ReadError(format!("cannot encode a table: {error}")))?
    };
    overlay.put(Family::Table.of_table(table.id), value);
    Ok(())
}

fn decode(value: &[u8]) -> Result<Table, ReadError> {
    match value.split_first() {
        Some((&PLACED_TABLE_VERSION, rest)) => {
            let (table, placement): (Table, Placement) = postcard::from_bytes(rest)
                .map_err(|error| ReadError(format!("damaged table: {error}")))?;
            Ok(Table { placement, ..table })
        }
        _ => decode_value(value),
    }
}

pub(crate) fn delete(overlay: &mut Overlay<'_>, table: TableId) {
    overlay.delete(Family::Table.of_table(table));
    overlay.put(deleted_place(table), Vec::new());
}

/// Returns the key of a deleted table whose entries are being removed.
pub(crate) fn deleted_place(table: TableId) -> Vec<u8> {
    Family::DeletedTable.of_table(table)
}

/// Returns every table, by id.
pub(crate) fn read_all(view: &dyn View) -> Result<Vec<Table>, ReadError> {
    let mut tables = Ok(Vec::new());
    let (from, to) = ([Family::Table as u8], [Family::Table as u8 + 1]);
    view.scan(&from, &to, false, &mut |_, value| match (&mut tables, decode(value)) {
        (Ok(tables), Ok(table)) => {
            tables.push(table);
            ControlFlow::Continue(())
        }
        (_, result) => {
            tables = result.map(|_| Vec::new());
            ControlFlow::Break(())
        }
    })?;
    tables
}

/// Returns the deleted tables that still have entries.
pub(crate) fn read_deleted(view: &dyn View) -> Result<Vec<TableId>, ReadError> {
    let mut tables = Vec::new();
    let (from, to) = ([Family::DeletedTable as u8], [Family::DeletedTable as u8 + 1]);
    view.scan(&from, &to, false, &mut |key, _| {
        let id = key.get(1..).and_then(take::<8>);
        tables.extend(id.map(|(id, _)| TableId(u64::from_be_bytes(id))));
        ControlFlow::Continue(())
    })?;
    Ok(tables)
}
