//! Selects the rows of the archive that are restored.

use model::Item;

use super::super::cell::{Row, parse_time};
use super::super::condition::{Condition, are_met_by};
use super::super::item_match::{BeginsWith, ItemMatch};
use super::RestoreArguments;
use client::failure::{Result, fatal};

/// The conditions that a row must meet.
pub(super) struct Selection<'s> {
    conditions: &'s [Condition],
    /// The `--as-of` time in milliseconds since 1970.
    as_of: Option<i64>,
    items: ItemMatch,
}

impl<'s> Selection<'s> {
    /// Parses the flags.
    ///
    /// # Errors
    /// When a flag is invalid, or nothing is selected.
    pub(super) fn read(conditions: &'s [Condition], arguments: &RestoreArguments) -> Result<Self> {
        let selects = arguments.key.is_some()
            || !arguments.conditions.is_empty()
            || arguments.begins_with.is_some()
            || arguments.dt.is_some()
            || arguments.as_of.is_some();
        if !selects && !arguments.all {
            return Err(fatal!(
                "no rows are selected: use --key, --where, --begins-with, --dt or --as-of, or --all to restore everything"
            ));
        }
        let equals = arguments.key()?.unwrap_or_default();
        let as_of = arguments.as_of.as_deref().map(parse_time).transpose()?;
        let begins_with = arguments.begins_with.as_deref().map(BeginsWith::parse).transpose()?;
        Ok(Self { conditions, as_of, items: ItemMatch { equals, begins_with } })
    }

    /// Returns the item of a selected row; `None` for any other row.
    ///
    /// # Errors
    /// When an item cannot be read.
    pub(super) fn item_of(&self, row: &Row) -> Result<Option<Item>> {
        if self.as_of.is_some_and(|as_of| row.deleted_at() > as_of)
            || !are_met_by(self.conditions, row)?
        {
            return Ok(None);
        }
        let item = row.item()?;
        Ok(self.items.is_met_by(&item).then_some(item))
    }
}
