//! Iterates over the selected rows of one part, with the newest row of each key first.
//!
//! Parts are read newest first. The order matters for an item with more attributes than a condition
//! can compare: such an item cannot be replaced after the put, so the newest row must be put first.

use std::collections::BTreeMap;

use model::{Item, json};

use super::super::cell::{Row, rows_of};
use super::super::source::{Content, Part};
use super::form::{Conversion, Form};
use super::selection::Selection;
use client::failure::Result;

/// A selected row and its item.
pub(super) type Selected = (Row, Item);

/// Returns the selected rows of a part, in batches.
///
/// # Errors
/// When the part cannot be read.
pub(super) fn selected<'a>(
    part: &'a Part,
    content: &Content,
    selection: &'a Selection<'_>,
) -> Result<impl Iterator<Item = Result<Vec<Selected>>>> {
    let batches = content.rows(None).map_err(|error| part.failed(error))?;
    Ok(batches.map(move |batch| {
        let batch = batch.map_err(|error| part.failed(error))?;
        let mut rows = Vec::new();
        for row in rows_of(&batch).map_err(|reason| part.failed(reason))? {
            if let Some(item) = selection.item_of(&row).map_err(|reason| part.failed(reason))? {
                rows.push((row, item));
            }
        }
        Ok(rows)
    }))
}

/// Returns the position of a row in time, as a string that sorts by time. The order is correct even
/// across streams, because a stream's label is a time.
pub(super) fn stamp_of(row: &Row) -> String {
    let label = row.text("_stream_arn").rsplit('/').next().unwrap_or_default();
    format!("{label}#{}", row.text("_sequence_number"))
}

/// The position in time of the newest row of each key in one part.
#[derive(Debug, Default)]
pub(super) struct Newest {
    stamps: BTreeMap<String, String>,
    has_older: bool,
}

impl Newest {
    /// Reads the rows of a part.
    ///
    /// # Errors
    /// When the part cannot be read.
    pub(super) fn of(
        part: &Part,
        content: &Content,
        selection: &Selection<'_>,
        form: &Form,
    ) -> Result<Self> {
        let mut newest = Self::default();
        for rows in selected(part, content, selection)? {
            for (row, item) in rows? {
                let Some(key) = key_of(form, &item) else { continue };
                let stamp = stamp_of(&row);
                let known = newest.stamps.entry(key).or_default();
                newest.has_older |= !known.is_empty();
                if *known < stamp {
                    *known = stamp;
                }
            }
        }
        Ok(newest)
    }

    /// Returns true if this row is the newest of its key in the part, or has no valid key.
    pub(super) fn has(&self, row: &Row, item: &Item, form: &Form) -> bool {
        let key = key_of(form, item);
        key.and_then(|key| self.stamps.get(&key)).is_none_or(|stamp| *stamp == stamp_of(row))
    }

    /// Returns true if a key has several rows in the part.
    pub(super) fn has_older(&self) -> bool {
        self.has_older
    }
}

/// Returns the key of the item that is put for an archived item, as a string.
fn key_of(form: &Form, item: &Item) -> Option<String> {
    let Conversion::Item(mut key) = form.of(item) else { return None };
    key.retain(|name, _| form.is_key(name));
    Some(json::item_to_string(&key))
}
