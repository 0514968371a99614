//! Selects the rows of the archive that are restored.

use model::{AttributeValue, Item, json};

use super::super::cell::{Row, parse_time};
use super::super::condition::{Condition, are_met_by};
use super::RestoreArguments;

/// The conditions that a row must meet.
pub(super) struct Selection<'s> {
    conditions: &'s [Condition],
    key: Option<Item>,
    /// The `--as-of` time in milliseconds since 1970.
    as_of: Option<i64>,
    begins_with: Option<BeginsWith>,
}

impl<'s> Selection<'s> {
    /// Parses the flags.
    ///
    /// # Errors
    /// When a flag is wrong, or nothing is selected.
    pub(super) fn read(
        conditions: &'s [Condition],
        arguments: &RestoreArguments,
    ) -> Result<Self, String> {
        let selects = arguments.key.is_some()
            || !arguments.conditions.is_empty()
            || arguments.begins_with.is_some()
            || arguments.dt.is_some()
            || arguments.as_of.is_some();
        if !selects && !arguments.all {
            return Err("no rows are selected: use --key, --where, --begins-with, --dt or --as-of, or --all to restore everything".to_owned());
        }
        Ok(Self {
            conditions,
            key: arguments.key()?,
            as_of: arguments.as_of.as_deref().map(parse_time).transpose()?,
            begins_with: arguments.begins_with.as_deref().map(parse_begins_with).transpose()?,
        })
    }

    /// Returns the item of a selected row; `None` for any other row.
    ///
    /// # Errors
    /// When an item cannot be read.
    pub(super) fn item_of(&self, row: &Row) -> Result<Option<Item>, String> {
        if self.as_of.is_some_and(|as_of| row.deleted_at() > as_of)
            || !are_met_by(self.conditions, row)?
        {
            return Ok(None);
        }
        let item =
            json::item_from_str(row.text("_item")).map_err(|error| format!("`_item`: {error}"))?;
        let is_key = self
            .key
            .as_ref()
            .is_none_or(|key| key.iter().all(|(name, value)| item.get(name) == Some(value)));
        let begins = self.begins_with.as_ref().is_none_or(|wanted| wanted.is_met_by(&item));
        Ok((is_key && begins).then_some(item))
    }
}

struct BeginsWith {
    attribute: String,
    text: String,
}

impl BeginsWith {
    fn is_met_by(&self, item: &Item) -> bool {
        matches!(item.get(&self.attribute), Some(AttributeValue::S(text)) if text.starts_with(&self.text))
    }
}

fn parse_begins_with(text: &str) -> Result<BeginsWith, String> {
    match text.split_once('=') {
        Some((attribute, text)) if !attribute.is_empty() && !text.is_empty() => {
            Ok(BeginsWith { attribute: attribute.to_owned(), text: text.to_owned() })
        }
        _ => Err(format!(
            "--begins-with `{text}` is not ATTRIBUTE=TEXT; write, for example, pk=TENANT#7#"
        )),
    }
}
