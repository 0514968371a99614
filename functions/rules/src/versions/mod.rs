//! Versions: every change of an item becomes one numbered version below the item's key.
//!
//! A record contains the item after the change. Version *n* is the *n*-th change of the item in stream
//! order. A history therefore depends only on the set of known changes, and not on the order or number
//! of deliveries. [`plan`] assigns the numbers, based on the history's head. The processor reads and
//! writes the items.

mod change;
pub mod edition;
mod history;
mod plan;

pub use change::{Change, Changes};
use history::image_bytes;
pub use history::{
    DamagedHistory, HEAD_VERSION, Head, ITEM_ATTRIBUTE, REVISION_ATTRIBUTE, UnknownVersion,
    VERSION_ATTRIBUTE, VERSION_NUMBER_MAX, Version, VersionEvent, as_of, fingerprint,
    has_known_begin, number_of_version, version_text,
};
pub use plan::{
    CHANGES_MAX, IMAGE_BYTES_MAX, Plan, RENUMBERED_MAX, Retention, TooLate, Write, missing, plan,
    unbroken,
};

use model::limits::{ITEM_BYTES_MAX, NESTING_LEVELS_MAX, PARTITION_KEY_BYTES_MAX};
use model::stream_record::LambdaRecord;
use model::{AttributeValue, EventName, Item, json};

use crate::effect::Effect;
use crate::marks::migration::{TOUCH, unmarked};
use crate::rule::{Found, LookAhead, Needs, Refusal, Rule, stream_of};
use crate::stamp::Stamp;

/// The size of a version item in bytes without its key and image: attribute names, stamp, event and
/// times.
const VERSION_OVERHEAD_BYTES: usize = 400;

/// The versions rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The table whose changes become versions. Records of any other table are refused, because their
    /// keys could be equal to keys of this table.
    pub table: String,
}

/// Returns the key of an item's history: the item's key as DynamoDB JSON, with the names in order.
#[must_use]
pub fn history_key(key: &Item) -> String {
    json::item_to_string(key)
}

impl Versions {
    /// Returns the stamp of the record, if the record's change can become a version.
    fn stamp_of(&self, record: &LambdaRecord) -> Result<Stamp, Refusal> {
        let stream = stream_of(&record.event_source_arn)?;
        let change = &record.record;
        if stream.table.table != self.table {
            return Err(Refusal(format!(
                "the record is from table `{}`, but this function keeps versions of `{}`; deploy the function once for each table",
                stream.table.table, self.table
            )));
        }
        if !(change.view_type.has_new_image() && change.view_type.has_old_image()) {
            return Err(Refusal(format!(
                "the stream's view type is {}, but versions need NEW_AND_OLD_IMAGES",
                change.view_type.as_str()
            )));
        }
        Ok(Stamp::of_record(&stream.label, &change.sequence_number))
    }
}

/// Returns the change of a record. `key` is the key of the item's history.
fn change_of(key: &str, record: &LambdaRecord) -> Result<Change, Refusal> {
    let change = &record.record;
    let image = match change.event_name {
        EventName::Remove => None,
        _ => Some(change.new_image.as_ref().ok_or_else(|| {
            Refusal("the record has no new image although the item exists".to_owned())
        })?),
    };
    fits_into_a_version(key, image)?;
    let before = change.old_image.as_ref().filter(|_| change.event_name != EventName::Insert);
    let previous_fingerprint = before.map(fingerprint);
    // The item before the change may be too large for a base. The history then begins with the change
    // and does not cover the time before. A base that is too large would cause the loss of the change
    // itself.
    let before = before.filter(|before| fits_into_a_version(key, Some(before)).is_ok());
    Ok(Change {
        event: VersionEvent::of_record(change.event_name),
        image: image.cloned(),
        before: before.cloned(),
        previous_fingerprint,
        // Some senders write 0 for an absent time.
        at_seconds: change.approximate_creation_seconds.filter(|seconds| *seconds > 0),
        by_ttl: change.is_time_to_live(),
        event_id: change.event_id.clone(),
    })
}

/// Checks that a version can store this image under this key, together with the version's other
/// attributes.
///
/// # Errors
/// Returns the reason why the version cannot store the image.
pub fn fits_into_a_version(key: &str, image: Option<&Item>) -> Result<(), Refusal> {
    if key.len() > PARTITION_KEY_BYTES_MAX {
        return Err(Refusal(format!(
            "the item's key takes {} bytes as a string; a history's key has at most {PARTITION_KEY_BYTES_MAX}",
            key.len()
        )));
    }
    let Some(image) = image else { return Ok(()) };
    let size = key.len() + image_bytes(image) + VERSION_OVERHEAD_BYTES;
    if size > ITEM_BYTES_MAX {
        return Err(Refusal(format!(
            "the item takes {} bytes; with its key and stamp a version of it would take {size}, more than {ITEM_BYTES_MAX}",
            image.size()
        )));
    }
    // In the version the image is a map, one level deeper than the item.
    let levels = image.values().map(AttributeValue::nesting_levels).max().unwrap_or(0);
    if levels >= NESTING_LEVELS_MAX {
        return Err(Refusal(format!(
            "the item is nested {levels} levels deep; a version of it would be deeper than {NESTING_LEVELS_MAX}"
        )));
    }
    Ok(())
}

/// Returns whether DynamoDB's error message means that an item's content is invalid, so that
/// retries cannot succeed. Such an error is possible because DynamoDB may count more bytes than
/// [`fits_into_a_version`].
#[must_use]
pub fn is_refused_for_size(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["item size has exceeded", "item size to update has exceeded", "nesting levels have exceeded"]
        .iter()
        .any(|text| message.contains(text))
}

/// Returns whether a migration only added or removed its mark. Such a change does not become a
/// version.
fn is_only_touched(record: &LambdaRecord) -> bool {
    let marked = |item: &Item| item.contains_key(TOUCH);
    let images = record.record.old_image.as_ref().zip(record.record.new_image.as_ref());
    images.is_some_and(|(before, after)| {
        (marked(before) || marked(after)) && unmarked(before) == unmarked(after)
    })
}

impl Rule for Versions {
    type Input = Item;
    type Effect = Effect<String, Changes>;

    fn look_ahead(&self) -> LookAhead {
        LookAhead::ReadTwice
    }

    fn needs(&self, records: &[&LambdaRecord]) -> Needs {
        let keys = records.iter().map(|record| history_key(&record.record.keys));
        // DynamoDB rejects the entire request if a key in it is too long. No history has a key that
        // is too long, so the result does not contain it.
        keys.filter(|key| fits_into_a_version(key, None).is_ok()).collect()
    }

    fn decide(
        &self,
        record: &LambdaRecord,
        found: &Found<Item>,
    ) -> Result<Vec<Self::Effect>, Refusal> {
        let stamp = self.stamp_of(record)?;
        if is_only_touched(record) {
            return Ok(Vec::new());
        }
        let item = history_key(&record.record.keys);
        let change = change_of(&item, record)?;
        if let Some(head) = found.inputs.get(&item) {
            Head::from_item(head).map_err(|error| Refusal(error.to_string()))?;
        }
        Ok(vec![Effect { target: item, statement: Changes::from([(stamp, change)]) }])
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use model::json::item_from_str;

    use super::*;
    use crate::rule::testing::check_decisions;

    fn describe(effect: &Effect<String, Changes>) -> String {
        let mut text = format!("history {}", effect.target);
        for (stamp, change) in effect.statement.iter() {
            let image = |image: &Option<Item>| {
                image.as_ref().map_or_else(|| "-".to_owned(), json::item_to_string)
            };
            let _ = write!(
                text,
                "\n{} as of {stamp} at {:?}{} {}\nfrom {}\nto {}",
                change.event.as_str(),
                change.at_seconds,
                if change.by_ttl { " by TTL" } else { "" },
                change.event_id,
                image(&change.before),
                image(&change.image),
            );
        }
        text
    }

    #[test]
    fn decisions() {
        let rule = Versions { table: "movies".to_owned() };
        let damaged = item_from_str(r#"{"item":{"S":"bad"},"latest":{"N":"-1"}}"#).unwrap();
        let found = Found {
            inputs: [(r#"{"id":{"S":"bad"}}"#.to_owned(), damaged)].into(),
            ..Found::default()
        };
        check_decisions(&rule, &found, describe, include_str!("../../testdata/versions.txt"));
    }

    #[test]
    fn an_item_too_large_for_a_version_is_refused() {
        let image = |bytes: usize| Item::new().with("x", "a".repeat(bytes));
        assert!(fits_into_a_version("k", Some(&image(409_000))).is_ok());
        assert!(fits_into_a_version("k", Some(&image(409_300))).is_err());
        // Many small attributes take more bytes as members of a map than as attributes.
        let many = |count: usize| (0..count).map(|n| (format!("{n:05}"), "".into())).collect();
        let many = |count: usize| -> Item { many(count) };
        assert!(many(80_000).size() <= 400_000);
        assert!(fits_into_a_version("k", Some(&many(68_000))).is_ok());
        assert!(fits_into_a_version("k", Some(&many(80_000))).is_err());
        assert!(fits_into_a_version(&"k".repeat(2048), None).is_ok());
        assert!(fits_into_a_version(&"k".repeat(2049), None).is_err());
        // A scalar counts as one level.
        let nested = |levels: usize| {
            let mut value = AttributeValue::Null;
            for _ in 0..levels {
                value = AttributeValue::L(vec![value]);
            }
            Item::new().with("x", value)
        };
        assert!(fits_into_a_version("k", Some(&nested(30))).is_ok());
        assert!(fits_into_a_version("k", Some(&nested(31))).is_err());
    }
}
