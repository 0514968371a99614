//! A stored history: the head, version `v0`, and the versions after it.
//!
//! This module converts heads and versions from and to items. The module `plan` decides which
//! versions must exist.

use std::collections::BTreeMap;

use model::{AttributeValue, EventName, Item, Number, json};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_128;

use crate::marks::migration::unmarked;
use crate::stamp::Stamp;

/// The partition key attribute of a table of histories: the item's key as JSON.
pub const ITEM_ATTRIBUTE: &str = "item";
/// The sort key attribute: `v0` for the head, `v` and ten digits for a version.
pub const VERSION_ATTRIBUTE: &str = "version";
/// The sort key of a head. It sorts before every version.
pub const HEAD_VERSION: &str = "v0";
/// The attribute of the head that counts writes. Every write of a history is conditional on it and
/// increments it.
pub const REVISION_ATTRIBUTE: &str = "revision";
/// The highest version number: ten digits.
pub const VERSION_NUMBER_MAX: u64 = 9_999_999_999;

const LATEST: &str = "latest";
const FIRST: &str = "first";
const STAMP: &str = "stamp";
const EXPIRING: &str = "expiring";
const EXPIRING_AT: &str = "expiring_at";
const EVENT: &str = "event";
const IMAGE: &str = "image";
const AT: &str = "at";
const BY: &str = "by";
const EVENT_ID: &str = "event_id";
const EXPIRES_AT: &str = "expires_at";
const FOLLOWS: &str = "follows";
const TTL: &str = "ttl";

/// The kind of change that created a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionEvent {
    /// The base: the item before the first known change, or as a backfill of the table read it.
    Base,
    /// The item was created.
    Insert,
    /// The item was changed.
    Modify,
    /// The item was deleted.
    Remove,
}

impl VersionEvent {
    /// Returns the kind of a stream record's change.
    #[must_use]
    pub fn of_record(event: EventName) -> Self {
        match event {
            EventName::Insert => Self::Insert,
            EventName::Modify => Self::Modify,
            EventName::Remove => Self::Remove,
        }
    }

    /// Returns the name of the event in a version item.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Base => "BASE",
            Self::Insert => "INSERT",
            Self::Modify => "MODIFY",
            Self::Remove => "REMOVE",
        }
    }

    fn from_text(text: &str) -> Option<Self> {
        [Self::Base, Self::Insert, Self::Modify, Self::Remove]
            .into_iter()
            .find(|event| event.as_str() == text)
    }
}

/// One version of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The number, from 1.
    pub number: u64,
    /// The stamp of the change. For a base it is [`Stamp::lowest`], because a base is before every
    /// change.
    pub stamp: Stamp,
    /// The kind of change.
    pub event: VersionEvent,
    /// The item; `None` if it was deleted.
    pub image: Option<Item>,
    /// The time of the change in seconds since 1970; `None` if the record does not contain it. For
    /// a base: the time when a backfill read the item, which may have had this content earlier;
    /// `None` if the base is known only from the first change.
    pub at_seconds: Option<u64>,
    /// Whether TTL deleted the item.
    pub by_ttl: bool,
    /// The id of the stream record; empty for a base.
    pub event_id: String,
    /// The time until which the version is kept, in seconds since 1970. TTL deletes it after this
    /// time.
    pub expires_at: Option<u64>,
    /// The [`fingerprint`] of the item before the change. `None` for a created item, for a base,
    /// and for a version that an earlier release of Weir wrote.
    pub previous_fingerprint: Option<u128>,
}

/// The head of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The number of the current version, from 1.
    pub latest: u64,
    /// The number of the first version that was not pruned.
    pub first: u64,
    /// The stamp of the current version.
    pub stamp: Stamp,
    /// The number of writes of the history, from 1. The next write is conditional on it.
    pub revision: u64,
    /// The number of the last version with an expiry; 0 if no version has an expiry. All earlier
    /// versions have an expiry too.
    pub expiring: u64,
    /// The expiry of the last version with an expiry, in seconds since 1970. Expiries never
    /// decrease from version to version, so TTL always removes the beginning of the history.
    pub expiring_at: u64,
}

/// The reason why an item of a table of histories cannot be parsed: another program wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "damaged history: {0}; restore the history item from a backup, or delete the whole history"
)]
pub struct DamagedHistory(String);

fn damaged(what: impl Into<String>) -> DamagedHistory {
    DamagedHistory(what.into())
}

/// Returns the sort key of a version.
#[must_use]
pub fn version_text(number: u64) -> String {
    format!("v{number:010}")
}

/// Returns the number in a version's sort key; `None` for the head and for any other string.
#[must_use]
pub fn number_of_version(text: &str) -> Option<u64> {
    let digits = text.strip_prefix('v').filter(|digits| digits.len() == 10)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Returns the size of an image within a version, in bytes. In a version, the image is a map, which
/// takes 3 bytes more, and 1 byte more for each attribute.
pub(super) fn image_bytes(image: &Item) -> usize {
    3 + image.size() + image.len()
}

/// The reason why a history does not show an item as of a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UnknownVersion {
    /// The history begins after the requested time.
    #[error("the history begins after the requested time")]
    BeforeHistory,
    /// The version that was current at the requested time may be among these missing versions, from
    /// the first number to the second.
    #[error(
        "versions {0} to {1} are missing, and one of them may have been current at the requested time"
    )]
    Missing(u64, u64),
}

/// Returns the version that was current at a time, in seconds since 1970. `versions` are ordered by
/// number. A version without a time counts as created at the time of the previous version.
///
/// # Errors
/// The history begins after this time, or the version that was current at this time may be missing.
pub fn as_of(versions: &[Version], seconds: u64) -> Result<&Version, UnknownVersion> {
    let is_until_then = |version: &Version| version.at_seconds.is_none_or(|at| at <= seconds);
    let those = versions.iter().take_while(|version| is_until_then(version)).count();
    let (until_then, later) = versions.split_at(those);
    let Some(last) = until_then.last() else { return Err(UnknownVersion::BeforeHistory) };
    match later.first() {
        Some(next) if next.number > last.number + 1 => {
            Err(UnknownVersion::Missing(last.number + 1, next.number - 1))
        }
        _ => Ok(last),
    }
}

/// Returns whether the time is known at which the item got the content of the version `chosen`. If
/// neither this version nor an earlier version has a time, [`as_of`] returns this version for any
/// time before the next version. The item may have been different at that time.
#[must_use]
pub fn has_known_begin(versions: &[Version], chosen: &Version) -> bool {
    let mut until_then = versions.iter().take_while(|version| version.number <= chosen.number);
    until_then.any(|version| version.at_seconds.is_some())
}

/// Returns a hash of an item that ignores marks of migrations. Tables store the hash, so its
/// algorithm must never change.
#[must_use]
pub fn fingerprint(item: &Item) -> u128 {
    xxh3_128(json::item_to_string(&unmarked(item)).as_bytes())
}

fn number(item: &BTreeMap<String, AttributeValue>, name: &str) -> Result<u64, DamagedHistory> {
    let number = item.get(name).and_then(AttributeValue::as_number);
    let number = number.and_then(|number| number.to_u64());
    number
        .filter(|number| (1..=VERSION_NUMBER_MAX).contains(number))
        .ok_or_else(|| damaged(format!("`{name}` is not a number from 1 to {VERSION_NUMBER_MAX}")))
}

fn stamp(item: &Item) -> Result<Stamp, DamagedHistory> {
    let text = item.get(STAMP).and_then(AttributeValue::as_str);
    let text = text.ok_or_else(|| damaged("`stamp` is missing"))?;
    text.parse().map_err(|error| damaged(format!("`stamp`: {error}")))
}

fn seconds(item: &Item, name: &str) -> Result<Option<u64>, DamagedHistory> {
    let Some(value) = item.get(name) else { return Ok(None) };
    let seconds = value.as_number().and_then(|number| number.to_u64());
    seconds.map(Some).ok_or_else(|| damaged(format!("`{name}` is not a time in seconds")))
}

impl Head {
    /// Returns the head of a history that consists of a base.
    #[must_use]
    pub fn of_base() -> Self {
        Self {
            latest: 1,
            first: 1,
            stamp: Stamp::lowest(),
            revision: 1,
            expiring: 0,
            expiring_at: 0,
        }
    }

    /// Returns the item of the head in the history of `item`.
    #[must_use]
    pub fn to_item(&self, item: &str) -> Item {
        let head = Item::new()
            .with(ITEM_ATTRIBUTE, item)
            .with(VERSION_ATTRIBUTE, HEAD_VERSION)
            .with(LATEST, Number::from(self.latest))
            .with(FIRST, Number::from(self.first))
            .with(STAMP, self.stamp.as_str())
            .with(REVISION_ATTRIBUTE, Number::from(self.revision));
        if self.expiring == 0 {
            return head;
        }
        head.with(EXPIRING, Number::from(self.expiring))
            .with(EXPIRING_AT, Number::from(self.expiring_at))
    }

    /// Parses the item of [`Head::to_item`].
    ///
    /// # Errors
    /// When another program wrote the item.
    pub fn from_item(item: &Item) -> Result<Self, DamagedHistory> {
        Ok(Self {
            latest: number(item, LATEST)?,
            first: number(item, FIRST)?,
            stamp: stamp(item)?,
            revision: number(item, REVISION_ATTRIBUTE)?,
            expiring: item.get(EXPIRING).map_or(Ok(0), |_| number(item, EXPIRING))?,
            expiring_at: seconds(item, EXPIRING_AT)?.unwrap_or(0),
        })
    }
}

impl Version {
    /// Returns a base: the item as it was before any known change.
    #[must_use]
    pub fn base(image: Item) -> Self {
        Self {
            number: 1,
            stamp: Stamp::lowest(),
            event: VersionEvent::Base,
            image: Some(image),
            at_seconds: None,
            by_ttl: false,
            event_id: String::new(),
            expires_at: None,
            previous_fingerprint: None,
        }
    }

    /// Returns whether the version directly follows a version whose image has the fingerprint
    /// `before`, which is `None` for a deletion. If not, a change between the two versions is
    /// missing. A version without a stored fingerprint counts as following directly.
    #[must_use]
    pub fn is_next_to(&self, before: Option<u128>) -> bool {
        match self.event {
            VersionEvent::Base => true,
            VersionEvent::Insert => before.is_none(),
            VersionEvent::Modify | VersionEvent::Remove => {
                self.previous_fingerprint.is_none_or(|follows| before == Some(follows))
            }
        }
    }

    /// Returns whether the item was created in a different stream than the stream of the stamp
    /// `before`. This happens if the table was deleted and recreated, because no record reports the
    /// deletion of its items. It also happens if the table had no stream for some time.
    #[must_use]
    pub fn begins_anew(&self, before: &Stamp) -> bool {
        self.event == VersionEvent::Insert && self.stamp.stream_label() != before.stream_label()
    }

    /// Returns whether this is the first version although the item existed before. No version
    /// contains the earlier item.
    #[must_use]
    pub fn lacks_base(&self) -> bool {
        self.number == 1 && matches!(self.event, VersionEvent::Modify | VersionEvent::Remove)
    }

    /// Returns the item of the version in the history of `item`.
    #[must_use]
    pub fn to_item(&self, item: &str) -> Item {
        let mut written = Item::new()
            .with(ITEM_ATTRIBUTE, item)
            .with(VERSION_ATTRIBUTE, version_text(self.number))
            .with(STAMP, self.stamp.as_str())
            .with(EVENT, self.event.as_str());
        if let Some(image) = &self.image {
            written.insert(IMAGE.to_owned(), AttributeValue::M(image.0.clone()));
        }
        if let Some(at) = self.at_seconds {
            written.insert(AT.to_owned(), AttributeValue::N(Number::from(at)));
        }
        if self.by_ttl {
            written.insert(BY.to_owned(), AttributeValue::from(TTL));
        }
        if !self.event_id.is_empty() {
            written.insert(EVENT_ID.to_owned(), AttributeValue::from(self.event_id.as_str()));
        }
        if let Some(follows) = self.previous_fingerprint {
            let text = AttributeValue::S(format!("{follows:032x}"));
            written.insert(FOLLOWS.to_owned(), text);
        }
        if let Some(at) = self.expires_at {
            written.insert(EXPIRES_AT.to_owned(), AttributeValue::N(Number::from(at)));
        }
        written
    }

    /// Parses the item of [`Version::to_item`].
    ///
    /// # Errors
    /// When another program wrote the item.
    pub fn from_item(item: &Item) -> Result<Self, DamagedHistory> {
        let text = |name: &str| item.get(name).and_then(AttributeValue::as_str);
        let number = text(VERSION_ATTRIBUTE).and_then(number_of_version);
        let number = number.filter(|number| *number > 0);
        let image = match item.get(IMAGE) {
            None => None,
            Some(AttributeValue::M(image)) => Some(Item(image.clone())),
            Some(_) => return Err(damaged("`image` is not a map")),
        };
        let event = text(EVENT).and_then(VersionEvent::from_text);
        let event = event.ok_or_else(|| damaged("`event` is missing or unknown"))?;
        if image.is_some() == (event == VersionEvent::Remove) {
            return Err(damaged("`image` must be present if and only if the item was not deleted"));
        }
        Ok(Self {
            number: number.ok_or_else(|| damaged("`version` is not `v` and ten digits"))?,
            stamp: stamp(item)?,
            event,
            image,
            at_seconds: seconds(item, AT)?,
            by_ttl: text(BY) == Some(TTL),
            event_id: text(EVENT_ID).unwrap_or_default().to_owned(),
            expires_at: seconds(item, EXPIRES_AT)?,
            previous_fingerprint: text(FOLLOWS)
                .map(|text| u128::from_str_radix(text, 16))
                .transpose()
                .map_err(|_| damaged("`follows` is not a number of 32 hexadecimal digits"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use model::json::item_from_str;

    use super::*;

    #[test]
    fn items_round_trip() {
        let head = Head { latest: 12, first: 3, revision: 10, ..Head::of_base() };
        assert_eq!(Head::from_item(&head.to_item("k")), Ok(head.clone()));
        let head = Head { expiring: 7, expiring_at: 1000, ..head };
        assert_eq!(Head::from_item(&head.to_item("k")), Ok(head));
        let mut version = Version::base(Item::new().with("a", Number::from(1u64)));
        assert_eq!(Version::from_item(&version.to_item("k")), Ok(version.clone()));
        version.event = VersionEvent::Remove;
        version.image = None;
        version.by_ttl = true;
        version.at_seconds = Some(7);
        version.expires_at = Some(8);
        version.event_id = "e".to_owned();
        version.previous_fingerprint = Some(7);
        assert_eq!(Version::from_item(&version.to_item("k")), Ok(version.clone()));
        let unreadable = version.to_item("k").with(FOLLOWS, "seven");
        assert!(Version::from_item(&unreadable).is_err());
    }

    /// Goal: a missing previous version is recognised by its fingerprint. The fingerprint is
    /// stable, because tables store it.
    #[test]
    fn a_missing_previous_version_is_recognised() {
        let (one, other) = (Item::new().with("a", "1"), Item::new().with("a", "2"));
        let touched = one.clone().with(crate::marks::migration::TOUCH, "shop");
        assert_eq!(fingerprint(&one), fingerprint(&touched));
        let [one, other] = [one, other].map(|item| fingerprint(&item));
        assert_eq!(format!("{one:032x}"), "4abb6b8e574bf68569657fc9a497d4c6");
        let version = |event, previous_fingerprint| Version {
            event,
            previous_fingerprint,
            ..Version::base(Item::new())
        };
        for (event, follows, before, expected) in [
            (VersionEvent::Modify, Some(one), Some(one), true),
            (VersionEvent::Modify, Some(one), Some(other), false),
            (VersionEvent::Remove, Some(one), None, false),
            // This version was written by an earlier release.
            (VersionEvent::Modify, None, Some(other), true),
            (VersionEvent::Insert, None, None, true),
            (VersionEvent::Insert, None, Some(one), false),
            (VersionEvent::Base, None, None, true),
        ] {
            let version = version(event, follows);
            assert_eq!(version.is_next_to(before), expected, "{version:?} {before:?}");
            let lacks = matches!(event, VersionEvent::Modify | VersionEvent::Remove);
            assert_eq!(version.lacks_base(), lacks, "{version:?}");
            assert!(!Version { number: 2, ..version }.lacks_base());
        }
        // These versions come from the stream of a table that was deleted and recreated.
        let stamp = |label: &str| Stamp::of_record(label, &"7".parse().unwrap());
        for (event, label, expected) in [
            (VersionEvent::Insert, "2", true),
            (VersionEvent::Insert, "1", false),
            (VersionEvent::Modify, "2", false),
        ] {
            let version = Version { stamp: stamp(label), ..version(event, None) };
            assert_eq!(version.begins_anew(&stamp("1")), expected, "{version:?}");
        }
    }

    #[test]
    fn foreign_items_are_damaged_histories() {
        for text in [
            r"{}",
            r#"{"latest":{"N":"1"},"first":{"N":"1"},"revision":{"N":"1"}}"#,
            r#"{"latest":{"N":"0"},"first":{"N":"1"},"revision":{"N":"1"},"stamp":{"S":"/0000000000000000000000000000000000000000"}}"#,
        ] {
            assert!(Head::from_item(&item_from_str(text).unwrap()).is_err(), "{text}");
        }
        let zeros = "0".repeat(40);
        for (version, event, image) in [
            ("v1", "INSERT", true),
            ("v0000000000", "INSERT", true),
            ("v0000000001", "X", true),
            ("v0000000001", "REMOVE", true),
            ("v0000000001", "BASE", false),
        ] {
            let image = if image { r#","image":{"M":{}}"# } else { "" };
            let text = format!(
                r#"{{"version":{{"S":"{version}"}},"event":{{"S":"{event}"}},"stamp":{{"S":"/{zeros}"}}{image}}}"#
            );
            assert!(Version::from_item(&item_from_str(&text).unwrap()).is_err(), "{text}");
        }
    }

    #[test]
    fn version_texts_sort_by_number_after_the_head() {
        let texts = [
            HEAD_VERSION.to_owned(),
            version_text(2),
            version_text(10),
            version_text(VERSION_NUMBER_MAX),
        ];
        assert!(texts.is_sorted());
        assert_eq!(
            texts.map(|text| number_of_version(&text)),
            [None, Some(2), Some(10), Some(VERSION_NUMBER_MAX)]
        );
    }

    #[test]
    fn as_of_is_the_last_version_until_then() {
        let version = |number: u64, at: Option<u64>| Version {
            number,
            at_seconds: at,
            ..Version::base(Item::new())
        };
        let versions =
            [version(1, None), version(2, Some(10)), version(3, Some(10)), version(4, Some(12))];
        for (seconds, expected) in [(9, 1), (10, 3), (11, 3), (12, 4), (99, 4)] {
            assert_eq!(as_of(&versions, seconds).map(|v| v.number), Ok(expected));
        }
        assert_eq!(as_of(&versions[1..], 9), Err(UnknownVersion::BeforeHistory));
        // Nothing is known before version 2. A version without a time counts as created at the time
        // of the previous version.
        let known = |versions: &[Version]| -> Vec<bool> {
            versions.iter().map(|version| has_known_begin(versions, version)).collect()
        };
        assert_eq!(known(&versions), [false, true, true, true]);
        assert_eq!(known(&[version(1, None), version(2, None)]), [false, false]);
        assert_eq!(known(&[version(3, Some(9)), version(4, None)]), [true, true]);
        // The backfill read the item as in version 1. Nothing is known before the time of the
        // backfill.
        let seen = [version(1, Some(8)), version(2, Some(10))];
        assert_eq!(as_of(&seen, 7), Err(UnknownVersion::BeforeHistory));
        assert_eq!(as_of(&seen, 8).map(|v| v.number), Ok(1));
        // Because versions 2 and 3 are missing, the item before version 4 is unknown.
        let broken = [versions[0].clone(), versions[3].clone()];
        assert_eq!(as_of(&broken, 11), Err(UnknownVersion::Missing(2, 3)));
        assert_eq!(as_of(&broken, 12).map(|v| v.number), Ok(4));
    }
}
