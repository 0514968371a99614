//! Changes of a table's set of indexes, and the tokens of an item in its global indexes.

use model::{Item, Token};

use crate::table::Table;
use crate::table::identifiers::IndexNumber;
use crate::table::index::{IndexChange, IndexKind, IndexStatus, SecondaryIndex};
use crate::table::refusal::TableRefusal;

/// Returns the tokens of an item in the global indexes that contain it.
#[must_use]
pub fn global_index_tokens(table: &Table, item: &Item) -> Vec<(IndexNumber, Token)> {
    let global = table.indexes_of(IndexKind::Global).filter(|index| index.is_maintained());
    let token =
        |index: &SecondaryIndex| Some((index.number, index.definition.key_of(item)?.token()));
    global.filter_map(token).collect()
}

/// Applies the index changes of an `UpdateTable`, or returns the reason why they are rejected.
pub(crate) fn change_indexes(
    table: &mut Table,
    changes: &[IndexChange],
) -> Result<(), TableRefusal> {
    for change in changes {
        match change {
            IndexChange::Create(definition) => {
                if table.index(&definition.name).is_some() {
                    return Err(TableRefusal::DuplicateIndex(definition.name.clone()));
                }
                let number = IndexNumber(table.next_index);
                table.next_index += 1;
                let status = IndexStatus::Creating { cursor: None };
                let definition = definition.clone();
                table.indexes.push(SecondaryIndex { number, definition, status });
            }
            IndexChange::Delete(name) => {
                index_mut(table, name)?.status = IndexStatus::Deleting;
                table.options.indexes.remove(name);
            }
            IndexChange::Throughput(name, units) => {
                index_mut(table, name)?.definition.throughput = Some(*units);
            }
        }
    }
    Ok(())
}

fn index_mut<'t>(table: &'t mut Table, name: &str) -> Result<&'t mut SecondaryIndex, TableRefusal> {
    let found = table.indexes.iter_mut().find(|index| index.definition.name == name);
    found.ok_or_else(|| TableRefusal::UnknownIndex(name.to_owned()))
}
