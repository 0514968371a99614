//! Time to live: the expiry entries of items, and the search for expired items.
//!
//! An expired item is deleted by a conditional command (see `write`), so an item whose expiry time
//! was extended in the meantime is not deleted. Rules: AWS, "Using time to live (TTL)". The expiry
//! time is a top-level Number of epoch seconds. An item is expired when the current time is greater
//! than its expiry time. An expiry time more than five years in the past is ignored.

use std::ops::ControlFlow;

use model::encoded_item::{StoredKeyValue, StoredValue};
use model::limits::TTL_PAST_SECONDS_MAX;
use model::{EncodedItem, EpochMillis, KeyAttributeType, Number, PrimaryKey};

use crate::command::Command;
use crate::image::{Image, damaged};
use crate::keys::{Family, expiry, item, removal};
use crate::machine::step::{Allowance, remove_under, visit_items};
use crate::storage::overlay::Overlay;
use crate::storage::{ReadError, View};
use crate::table::Table;
use crate::table::identifiers::TableId;
use crate::table::time_to_live::TimeToLive;

/// The maximum number of expiry entries that one step adds or removes, so that no batch becomes too
/// large.
const STEP_ENTRIES_MAX: usize = 1000;
/// The maximum number of items that one indexing step reads; fewer if the items are large.
const STEP_ITEMS_MAX: usize = 4000;

/// Returns an item's expiry time in epoch seconds; `None` if the attribute is missing, not a
/// number, or negative. Decodes only this attribute, because an item may have tens of thousands of
/// attributes.
pub(crate) fn expires_at(item: &EncodedItem, attribute: &str) -> Result<Option<u64>, ReadError> {
    match item.stored_value(attribute).map_err(damaged)? {
        StoredValue::Key(StoredKeyValue { attribute_type: KeyAttributeType::N, ordered }) => {
            let not_a_number = || ReadError("the TTL attribute of an item is damaged".to_owned());
            let (number, _) = Number::decode_ordered(ordered).ok_or_else(not_a_number)?;
            Ok(seconds_of(&number))
        }
        _ => Ok(None),
    }
}

fn seconds_of(number: &Number) -> Option<u64> {
    if number.is_negative() {
        return None;
    }
    // Fractions of a second are ignored. A number that does not fit into 64 bits never expires.
    let text = number.to_string();
    text.split('.').next().and_then(|whole| whole.parse().ok())
}

/// Returns whether an item with the given expiry time is expired at `now`.
pub(crate) fn is_expired(expires_at: u64, now: EpochMillis) -> bool {
    expires_at < now.seconds() && expires_at >= oldest_accepted(now)
}

fn oldest_accepted(now: EpochMillis) -> u64 {
    now.seconds().saturating_sub(TTL_PAST_SECONDS_MAX)
}

/// Updates the expiry entries for a write.
pub(crate) fn update_index(
    overlay: &mut Overlay<'_>,
    table: &Table,
    primary: &PrimaryKey,
    old: Option<&Image>,
    new: Option<&Image>,
) -> Result<(), ReadError> {
    let Some(attribute) = table.time_to_live.indexed_attribute() else {
        return Ok(());
    };
    let time_of = |image: Option<&Image>| match image {
        Some(image) => expires_at(image.encoded(), attribute),
        None => Ok(None),
    };
    let (before, after) = (time_of(old)?, time_of(new)?);
    if before != after {
        if let Some(time) = before {
            overlay.delete(expiry::encode(table.id, time, primary));
        }
        if let Some(time) = after {
            overlay.put(expiry::encode(table.id, time, primary), Vec::new());
        }
    }
    Ok(())
}

/// Runs one step of enabling or disabling TTL. Returns whether more steps are needed.
pub(crate) fn step(overlay: &mut Overlay<'_>, table: &mut Table) -> Result<bool, ReadError> {
    match table.time_to_live.clone() {
        TimeToLive::Enabling { attribute, cursor } => {
            let next = index_items(overlay, table, &attribute, cursor)?;
            let more = next.is_some();
            table.time_to_live = match next {
                Some(key) => TimeToLive::Enabling { attribute, cursor: Some(key) },
                None => TimeToLive::Enabled { attribute },
            };
            Ok(more)
        }
        TimeToLive::Disabling { .. } => {
            let mut left = Allowance::of_entries(STEP_ENTRIES_MAX);
            let prefix = Family::Expiry.of_table(table.id);
            let place = removal::place(table.id, &prefix);
            remove_under(overlay, &place, &prefix, &mut left)?;
            let more = left.is_used_up();
            if !more {
                overlay.delete(place);
                table.time_to_live = TimeToLive::Disabled;
            }
            Ok(more)
        }
        TimeToLive::Disabled | TimeToLive::Enabled { .. } => Ok(false),
    }
}

/// Adds the expiry entries of the next items. Returns the key of the last item, or `None` at the
/// end of the table.
fn index_items(
    overlay: &mut Overlay<'_>,
    table: &Table,
    attribute: &str,
    cursor: Option<Vec<u8>>,
) -> Result<Option<Vec<u8>>, ReadError> {
    let mut entries = Vec::new();
    let mut left = Allowance::of_entries(STEP_ITEMS_MAX);
    let stopped_at = visit_items(overlay, table.id, cursor, &mut |key, value| {
        entries.extend(expiry_entry(table, attribute, key, value)?);
        let next = left.take(key, value);
        Ok(if entries.len() == STEP_ENTRIES_MAX { ControlFlow::Break(()) } else { next })
    })?;
    entries.into_iter().for_each(|key| overlay.put(key, Vec::new()));
    Ok(stopped_at)
}

/// Returns the expiry entry of a stored item, if the item expires.
fn expiry_entry(
    table: &Table,
    attribute: &str,
    key: &[u8],
    value: &[u8],
) -> Result<Option<Vec<u8>>, ReadError> {
    let Some(time) = expires_at(&EncodedItem::from_stored(value), attribute)? else {
        return Ok(None);
    };
    let primary = item::decode(&table.key_schema, key)?;
    Ok(Some(expiry::encode(table.id, time, &primary)))
}

/// Returns the tables whose TTL is being enabled or disabled.
#[must_use]
pub fn find_time_to_live_work<'a>(tables: impl Iterator<Item = &'a Table>) -> Vec<TableId> {
    let working = |table: &&Table| {
        matches!(table.time_to_live, TimeToLive::Enabling { .. } | TimeToLive::Disabling { .. })
    };
    tables.filter(working).map(|table| table.id).collect()
}

/// Expired items of a table, the oldest first.
#[derive(Debug, Default)]
pub struct Expired {
    /// A delete command for each item.
    pub commands: Vec<Command>,
    /// The position at which the next call continues; `None` if there are no more expired items.
    pub next_position: Option<Vec<u8>>,
}

/// Returns delete commands for expired items of a table, oldest first. Their number is at most
/// `limit`, and their items have about as many bytes as a step allows; at least one command is
/// returned if an item is expired. The bytes are limited too, because the cost of a delete grows
/// with the size of its item, which is copied into a stream record.
///
/// A delete has no effect while a transaction has locked the item. A caller that continues after
/// `behind` skips locked items; the next search from the beginning finds them again.
///
/// # Errors
/// When the storage cannot be read.
pub fn find_expired(
    view: &dyn View,
    table: &Table,
    now: EpochMillis,
    limit: usize,
    behind: Option<&[u8]>,
) -> Result<Expired, ReadError> {
    let mut expired = Expired::default();
    if !matches!(table.time_to_live, TimeToLive::Enabled { .. }) || limit == 0 {
        return Ok(expired);
    }
    let mut left = Allowance::of_entries(limit);
    for (expires_at, key) in oldest_expired(view, table, now, limit, behind)? {
        let place = expiry::encode(table.id, expires_at, &key);
        let stored = item::encode(table.id, &key);
        let item = view.get(&stored)?;
        expired.commands.push(Command::Expire { table: table.id, key: Box::new(key), expires_at });
        if left.take(&stored, item.as_deref().unwrap_or_default()).is_break() {
            expired.next_position = Some(place);
            break;
        }
    }
    Ok(expired)
}

/// Returns the expiry times and keys of at most `limit` items with the earliest expiry times after
/// a position.
fn oldest_expired(
    view: &dyn View,
    table: &Table,
    now: EpochMillis,
    limit: usize,
    behind: Option<&[u8]>,
) -> Result<Vec<(u64, PrimaryKey)>, ReadError> {
    let oldest = expiry::time_prefix(table.id, oldest_accepted(now));
    // The direct successor of a key is the key with a zero byte appended.
    let from = behind.map_or_else(Vec::new, |place| [place, &[0]].concat()).max(oldest);
    let to = expiry::time_prefix(table.id, now.seconds());
    let mut found = Ok(Vec::new());
    view.scan(&from, &to, false, &mut |key, _| {
        let decoded = expiry::decode(&table.key_schema, key);
        match (&mut found, decoded) {
            (Ok(found), Ok(next)) => {
                found.push(next);
                if found.len() < limit {
                    return ControlFlow::Continue(());
                }
            }
            (_, Err(error)) => found = Err(error),
            (Err(_), Ok(_)) => {}
        }
        ControlFlow::Break(())
    })?;
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_seconds_of_numbers() {
        for (json, expected) in [
            (r#"{"t":{"N":"100"}}"#, Some(100)),
            (r#"{"t":{"N":"100.9"}}"#, Some(100)),
            (r#"{"t":{"N":"0"}}"#, Some(0)),
            (r#"{"t":{"N":"-1"}}"#, None),
            (r#"{"t":{"N":"1e30"}}"#, None),
            (r#"{"t":{"S":"100"}}"#, None),
            (r#"{"u":{"N":"100"}}"#, None),
        ] {
            let item = EncodedItem::from(&model::json::item_from_str(json).unwrap());
            assert_eq!(expires_at(&item, "t"), Ok(expected), "{json}");
        }
    }

    #[test]
    fn expired_is_strictly_past_and_at_most_five_years() {
        let now = EpochMillis(2_000_000_000_500);
        assert!(!is_expired(2_000_000_000, now));
        assert!(is_expired(1_999_999_999, now));
        assert!(is_expired(2_000_000_000 - TTL_PAST_SECONDS_MAX, now));
        assert!(!is_expired(2_000_000_000 - TTL_PAST_SECONDS_MAX - 1, now));
    }
}
