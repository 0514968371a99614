//! Editions: versions of many items that are published together. One edition is current.
//!
//! An edition is prepared under its own keys while another edition is current. One conditional
//! write of the head then publishes it. A reader reads the head once, and then items of the edition
//! that the head names. The reader therefore sees exactly one edition. This module defines the
//! states of an edition and the items that store them. The caller reads and writes the items.

use std::collections::BTreeMap;

use model::limits::{ITEM_BYTES_MAX, NESTING_LEVELS_MAX, SORT_KEY_BYTES_MAX};
use model::{AttributeValue, Item, KeyValue, Number, Token, json};
use thiserror::Error;

use super::history::version_text;
use crate::rule::Refusal;

/// The partition key attribute of a table of editions.
pub const EDITION_PARTITION: &str = "edition";
/// The sort key attribute of a table of editions.
pub const EDITION_ITEM: &str = "item";
/// The sort key of a head. The records of the editions are in the same partition. Their sort keys
/// are results of [`version_text`].
pub const EDITION_HEAD: &str = "v0";
/// The attribute that counts the writes of a head. The write that assigns the number of a new
/// edition is conditional on this attribute.
pub const EDITION_REVISION: &str = "revision";
/// The attribute with the state of an edition.
pub const EDITION_STATE: &str = "state";
/// The attribute with the time at which the edition last stopped being current.
pub const EDITION_LEFT_AT: &str = "left_at";
/// The attribute with the image of the item.
pub const EDITION_IMAGE: &str = "image";
/// The number of partitions over which the items of an edition are spread, to distribute the load.
pub const EDITION_PARTS: u64 = 16;

/// The head's attribute with the current edition.
pub const EDITION_CURRENT: &str = "current";
/// The head's attribute with the edition that was current before the current one.
pub const EDITION_PREVIOUS: &str = "previous";
/// The head's attribute with the highest assigned edition number.
pub const EDITION_LATEST: &str = "latest";

const ITEMS: &str = "items";
const DIGEST: &str = "digest";
const AT: &str = "at";
const KEYS: &str = "keys";
const BASE: &str = "base";

/// The state of an edition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditionState {
    /// The items are being written. If the command dies, the edition stays in this state.
    Preparing,
    /// All items are written.
    Ready,
    /// The items are being removed. The edition can no longer be published.
    Pruned,
}

impl EditionState {
    /// Returns the name of the state in the item.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Ready => "ready",
            Self::Pruned => "pruned",
        }
    }

    fn from_text(text: &str) -> Option<Self> {
        let all = [Self::Preparing, Self::Ready, Self::Pruned];
        all.into_iter().find(|state| state.as_str() == text)
    }
}

/// The record of one edition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edition {
    /// The number, from 1.
    pub number: u64,
    /// The state.
    pub state: EditionState,
    /// The number of items; 0 until the edition is ready.
    pub items: u64,
    /// The digest of the items, see [`Digest`]; 0 until the edition is ready.
    pub digest: u64,
    /// The time when the preparation began, in seconds since 1970.
    pub at_seconds: u64,
    /// The key attributes of the items.
    pub keys: Vec<String>,
    /// The edition that was current when the preparation of this edition began; 0 if there was
    /// none. `None` if an earlier release prepared this edition.
    pub base: Option<u64>,
    /// The time when the edition last stopped being current, in seconds since 1970. `None` if it
    /// was never current, or if an earlier release changed the head.
    pub left_at: Option<u64>,
}

/// The item that names the current edition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EditionHead {
    /// The edition that readers see; 0 if no edition was published yet.
    pub current: u64,
    /// The edition that readers saw before the current edition; 0 if there was none.
    pub previous: u64,
    /// The highest assigned number.
    pub latest: u64,
    /// The number of writes of the head; 0 if there is no head.
    pub revision: u64,
}

/// The reason why an item of a table of editions cannot be parsed: another program wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("damaged edition: {0}")]
pub struct DamagedEdition(String);

/// The reason why an edition cannot become current.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PublishRefusal {
    /// The edition is already current.
    #[error("edition {0} is already current")]
    IsCurrent(u64),
    /// The edition is not complete.
    #[error("edition {0} is {1}; only a ready edition can be published")]
    NotReady(u64, &'static str),
    /// Another edition was published after this edition was prepared.
    #[error(
        "edition {0} was prepared before edition {1} was published; prepare it again, or roll back to it with `rollback --to {0}`"
    )]
    Overtaken(u64, u64),
    /// Another edition became current after this edition was prepared. This edition lacks the other
    /// edition's changes.
    #[error(
        "edition {number} was prepared while {} was current, and now {} is current: prepare edition {number} again, or make it current anyway with `rollback --to {number}`",
        named(*.base),
        named(*.current)
    )]
    OtherBase {
        /// The number of the edition.
        number: u64,
        /// The edition that was current at the preparation.
        base: u64,
        /// The edition that is current at the publication.
        current: u64,
    },
    /// The current edition is the result of a rollback.
    #[error(
        "edition {0} has been current since edition {1} was rolled back; name the edition to switch to with --to"
    )]
    IsRolledBack(u64, u64),
    /// There is no previous edition.
    #[error(
        "no edition was current before the current one; name the edition to switch to with --to"
    )]
    NoPrevious,
}

fn named(number: u64) -> String {
    if number == 0 { "none".to_owned() } else { format!("edition {number}") }
}

/// A digest of items: the sum of their hashes. It does not depend on the order of the items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// The number of items.
    pub items: u64,
    /// The sum of the hashes of the items' JSON, modulo 2^64.
    pub sum: u64,
}

impl Digest {
    /// Adds an item.
    pub fn add(&mut self, item: &Item) {
        self.items += 1;
        self.sum = self.sum.wrapping_add(hash_of(&json::item_to_string(item)));
    }
}

/// Returns the hash of an item or a key, given as JSON.
#[must_use]
pub fn hash_of(text: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(text.as_bytes())
}

/// Returns the partition key of the head and the records of a set of editions.
#[must_use]
pub fn records_key(set: &str) -> String {
    format!("{set}#")
}

/// Returns the partition key of one of the [`EDITION_PARTS`] partitions of an edition.
#[must_use]
pub fn part_key(set: &str, number: u64, part: u64) -> String {
    format!("{set}#{}#{part:02}", version_text(number))
}

/// Checks that an edition can store an item. `key` is the item's key as JSON. Without an image,
/// checks only the key.
///
/// # Errors
/// Returns the reason why the edition cannot store the item, and a remedy.
pub fn fits_into_an_edition(set: &str, key: &str, image: Option<&Item>) -> Result<(), Refusal> {
    if key.len() > SORT_KEY_BYTES_MAX {
        return Err(Refusal(format!(
            "the item's key takes {} bytes as a string, but a sort key in an edition has at most {SORT_KEY_BYTES_MAX}; shorten the key, or leave the item out with --through",
            key.len()
        )));
    }
    let Some(image) = image else { return Ok(()) };
    // The size is the same for every number of an edition, because every number has the same number
    // of bytes.
    let size = item_of_edition(set, 1, key, image).size();
    if size > ITEM_BYTES_MAX {
        return Err(Refusal(format!(
            "the item and its key take {size} bytes in an edition, but an item has at most {ITEM_BYTES_MAX}; make the item smaller, or leave it out with --through"
        )));
    }
    // In the edition the image is a member of a map, one level deeper than in the table.
    let levels = image.values().map(AttributeValue::nesting_levels).max().unwrap_or(0);
    if levels >= NESTING_LEVELS_MAX {
        return Err(Refusal(format!(
            "the item is nested {levels} levels deep; in an edition it would be deeper than {NESTING_LEVELS_MAX}; make the item flatter, or leave it out with --through"
        )));
    }
    Ok(())
}

/// Returns the index, below [`EDITION_PARTS`], of the partition that stores an item. `key` is the
/// item's key as JSON.
#[must_use]
pub fn part_of(key: &str) -> u64 {
    Token::of(&KeyValue::S(key.to_owned())).0 % EDITION_PARTS
}

fn number(item: &Item, name: &str) -> Result<u64, DamagedEdition> {
    let number = item.get(name).and_then(AttributeValue::as_number).and_then(|n| n.to_u64());
    number.ok_or_else(|| DamagedEdition(format!("`{name}` is not a number")))
}

impl EditionHead {
    /// Returns the item of the head.
    #[must_use]
    pub fn to_item(&self, set: &str) -> Item {
        Item::new()
            .with(EDITION_PARTITION, records_key(set))
            .with(EDITION_ITEM, EDITION_HEAD)
            .with(EDITION_CURRENT, Number::from(self.current))
            .with(EDITION_PREVIOUS, Number::from(self.previous))
            .with(EDITION_LATEST, Number::from(self.latest))
            .with(EDITION_REVISION, Number::from(self.revision))
    }

    /// Parses the item of [`EditionHead::to_item`].
    ///
    /// # Errors
    /// When another program wrote the item.
    pub fn from_item(item: &Item) -> Result<Self, DamagedEdition> {
        Ok(Self {
            current: number(item, EDITION_CURRENT)?,
            previous: number(item, EDITION_PREVIOUS)?,
            latest: number(item, EDITION_LATEST)?,
            revision: number(item, EDITION_REVISION)?,
        })
    }

    /// Returns the head that assigns the next edition number.
    #[must_use]
    pub fn with_next(self) -> Self {
        Self { latest: self.latest + 1, revision: self.revision + 1, ..self }
    }

    /// Returns the head after the publication of an edition. The publication is refused if another
    /// edition has become current since this edition was prepared, because it would silently undo
    /// that other edition. The write of the head is conditional on the current and the previous
    /// edition that were read, so the check is still valid at the write.
    ///
    /// # Errors
    /// Returns the reason why the edition cannot be published.
    pub fn published(self, edition: &Edition) -> Result<Self, PublishRefusal> {
        let (number, current) = (edition.number, self.current);
        // An incomplete edition is refused in any case, so its base does not matter.
        let base = edition.base.filter(|_| edition.state == EditionState::Ready);
        match base {
            // The command was repeated. The edition is already current, so its base differs from
            // the current edition.
            _ if number == current => {}
            Some(base) if base != current => {
                return Err(PublishRefusal::OtherBase { number, base, current });
            }
            None if number < current && edition.state == EditionState::Ready => {
                return Err(PublishRefusal::Overtaken(number, current));
            }
            _ => {}
        }
        self.turned_to(edition)
    }

    /// Returns the edition that was current before the current edition, for a rollback. If the
    /// previous edition has a higher number than the current edition, the current edition is the
    /// result of a rollback. A second rollback would undo the first rollback, so it is refused.
    ///
    /// # Errors
    /// When there is no edition to roll back to.
    pub fn before(self) -> Result<u64, PublishRefusal> {
        match self.previous {
            0 => Err(PublishRefusal::NoPrevious),
            left if left > self.current => Err(PublishRefusal::IsRolledBack(self.current, left)),
            before => Ok(before),
        }
    }

    /// Returns the head in which `edition` is current, after a rollback or a switch forward.
    ///
    /// # Errors
    /// Returns the reason why the edition cannot become current.
    pub fn turned_to(self, edition: &Edition) -> Result<Self, PublishRefusal> {
        if edition.number == self.current {
            return Err(PublishRefusal::IsCurrent(edition.number));
        }
        if edition.state != EditionState::Ready {
            return Err(PublishRefusal::NotReady(edition.number, edition.state.as_str()));
        }
        let (current, previous) = (edition.number, self.current);
        Ok(Self { current, previous, revision: self.revision + 1, ..self })
    }

    /// Returns the editions that may be pruned. The current edition, the previous edition and the
    /// last `keep` complete editions are kept. Every edition is also kept if it was begun, or last
    /// stopped being current, at or after `before` (in seconds since 1970). An edition in
    /// preparation that was begun earlier may be pruned, because its command has died.
    #[must_use]
    pub fn prunable(self, editions: &[Edition], keep: usize, before: u64) -> Vec<u64> {
        let is_held = |edition: &&Edition| [self.current, self.previous].contains(&edition.number);
        let mut others: Vec<&Edition> = editions.iter().filter(|e| !is_held(e)).collect();
        others.sort_by_key(|edition| std::cmp::Reverse(edition.number));
        let (mut kept, mut prunable) = (0, Vec::new());
        for edition in others {
            let counts = edition.state == EditionState::Ready;
            if counts && kept < keep {
                kept += 1;
            } else if edition.in_use_at() < before || edition.state == EditionState::Pruned {
                prunable.push(edition.number);
            }
        }
        prunable
    }
}

impl Edition {
    /// Returns the last recorded time at which the edition was in use. An old edition may have been
    /// current until a second ago, so readers may still be reading it.
    fn in_use_at(&self) -> u64 {
        self.left_at.map_or(self.at_seconds, |left| left.max(self.at_seconds))
    }

    /// Returns the record of the edition.
    #[must_use]
    pub fn to_item(&self, set: &str) -> Item {
        let mut item = Item::new()
            .with(EDITION_PARTITION, records_key(set))
            .with(EDITION_ITEM, version_text(self.number))
            .with(EDITION_STATE, self.state.as_str())
            .with(ITEMS, Number::from(self.items))
            .with(DIGEST, format!("{:016x}", self.digest))
            .with(AT, Number::from(self.at_seconds))
            .with(KEYS, AttributeValue::L(self.keys.iter().map(|k| k.as_str().into()).collect()));
        if let Some(base) = self.base {
            item.insert(BASE.to_owned(), Number::from(base).into());
        }
        if let Some(left) = self.left_at {
            item.insert(EDITION_LEFT_AT.to_owned(), Number::from(left).into());
        }
        item
    }

    /// Parses the item of [`Edition::to_item`].
    ///
    /// # Errors
    /// When another program wrote the item.
    pub fn from_item(item: &Item) -> Result<Self, DamagedEdition> {
        let text = |name: &str| item.get(name).and_then(AttributeValue::as_str);
        let damaged = |name: &str| DamagedEdition(format!("`{name}` is missing or wrong"));
        let version = text(EDITION_ITEM).and_then(super::history::number_of_version);
        let digest = text(DIGEST).and_then(|digits| u64::from_str_radix(digits, 16).ok());
        Ok(Self {
            number: version.ok_or_else(|| damaged(EDITION_ITEM))?,
            state: text(EDITION_STATE)
                .and_then(EditionState::from_text)
                .ok_or_else(|| damaged(EDITION_STATE))?,
            items: number(item, ITEMS)?,
            digest: digest.ok_or_else(|| damaged(DIGEST))?,
            at_seconds: number(item, AT)?,
            keys: match item.get(KEYS) {
                Some(AttributeValue::L(names)) => {
                    names.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
                }
                _ => return Err(damaged(KEYS)),
            },
            base: item.get(BASE).map(|_| number(item, BASE)).transpose()?,
            left_at: item
                .get(EDITION_LEFT_AT)
                .map(|_| number(item, EDITION_LEFT_AT))
                .transpose()?,
        })
    }
}

/// Returns the key of an item as DynamoDB JSON. `keys` are the key attributes. Returns `None` if
/// the item lacks one of them.
#[must_use]
pub fn key_of(item: &Item, keys: &[String]) -> Option<String> {
    let mut key = Item::new();
    for name in keys {
        key.insert(name.clone(), item.get(name)?.clone());
    }
    Some(json::item_to_string(&key))
}

/// Returns the item of an edition. `key` is the item's key as DynamoDB JSON.
#[must_use]
pub fn item_of_edition(set: &str, edition: u64, key: &str, image: &Item) -> Item {
    let mut item = Item::new()
        .with(EDITION_PARTITION, part_key(set, edition, part_of(key)))
        .with(EDITION_ITEM, key);
    item.insert(EDITION_IMAGE.to_owned(), AttributeValue::M(image.0.clone()));
    item
}

/// Returns the image in an item of an edition.
///
/// # Errors
/// When the item has no image.
pub fn image_of(item: &Item) -> Result<Item, DamagedEdition> {
    let image: Option<&BTreeMap<String, AttributeValue>> =
        item.get(EDITION_IMAGE).and_then(AttributeValue::as_map);
    image.map(|image| Item(image.clone())).ok_or_else(|| DamagedEdition("no `image`".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edition(number: u64, state: EditionState) -> Edition {
        Edition {
            number,
            state,
            items: 0,
            digest: 0,
            at_seconds: number * 100,
            keys: vec!["k".to_owned()],
            base: None,
            left_at: None,
        }
    }

    fn prepared_over(base: u64, number: u64) -> Edition {
        Edition { base: Some(base), ..edition(number, EditionState::Ready) }
    }

    #[test]
    fn only_ready_editions_become_current() {
        use EditionState::{Preparing, Pruned, Ready};
        let head = EditionHead { current: 2, previous: 1, latest: 4, revision: 9 };
        for (turn, expected) in [
            (head.published(&edition(3, Ready)), Ok((3, 2))),
            (head.published(&edition(3, Preparing)), Err(PublishRefusal::NotReady(3, "preparing"))),
            (head.published(&edition(2, Ready)), Err(PublishRefusal::IsCurrent(2))),
            (head.published(&edition(1, Ready)), Err(PublishRefusal::Overtaken(1, 2))),
            (head.published(&edition(1, Preparing)), Err(PublishRefusal::NotReady(1, "preparing"))),
            (head.turned_to(&edition(1, Ready)), Ok((1, 2))),
            (head.turned_to(&edition(1, Pruned)), Err(PublishRefusal::NotReady(1, "pruned"))),
        ] {
            assert_eq!(turn.clone().map(|head| (head.current, head.previous)), expected);
            if let Ok(turned) = turn {
                assert_eq!((turned.latest, turned.revision), (4, 10));
            }
        }
        let begun = EditionHead::default().with_next();
        assert_eq!((begun.current, begun.latest, begun.revision), (0, 1, 1));
    }

    #[test]
    fn an_edition_that_was_published_meanwhile_is_not_undone() {
        let other =
            |number, base, current| Err(PublishRefusal::OtherBase { number, base, current });
        // Edition 1 was current when both editions were prepared.
        let (two, three) = (prepared_over(1, 2), prepared_over(1, 3));
        let first = EditionHead { current: 1, previous: 0, latest: 3, revision: 4 };
        let second = first.published(&two).unwrap();
        assert_eq!(second.published(&three), other(3, 1, 2));
        assert_eq!(second.published(&two), Err(PublishRefusal::IsCurrent(2)));
        assert_eq!(second.turned_to(&three).unwrap().current, 3);
        // An edition that was prepared before the rollback would undo the rollback.
        let four = prepared_over(2, 4);
        let back = second.turned_to(&edition(1, EditionState::Ready)).unwrap();
        assert_eq!(back.published(&four), other(4, 2, 1));
        assert_eq!(back.published(&three).unwrap().current, 3);
        // The first edition of a set, and a second edition that was prepared before the first
        // edition was published.
        let begun = EditionHead { latest: 2, revision: 2, ..EditionHead::default() };
        let first = begun.published(&prepared_over(0, 1)).unwrap();
        let refusal = first.published(&prepared_over(0, 2)).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "edition 2 was prepared while none was current, and now edition 1 is current: prepare edition 2 again, or make it current anyway with `rollback --to 2`"
        );
        // This edition was prepared by an earlier release, so it has no base.
        assert_eq!(first.published(&edition(2, EditionState::Ready)).unwrap().current, 2);
    }

    #[test]
    fn a_second_roll_back_is_refused() {
        use EditionState::Ready;
        assert_eq!(EditionHead::default().before(), Err(PublishRefusal::NoPrevious));
        let head = EditionHead { current: 2, previous: 1, latest: 5, revision: 9 };
        assert_eq!(head.before(), Ok(1));
        let back = head.turned_to(&edition(1, Ready)).unwrap();
        assert_eq!(back.before(), Err(PublishRefusal::IsRolledBack(1, 2)));
        // A switch forward again, or to an edition that was prepared after the rollback. In both
        // cases, a rollback is possible afterwards.
        assert_eq!(back.turned_to(&edition(2, Ready)).unwrap().before(), Ok(1));
        assert_eq!(back.published(&edition(3, Ready)).unwrap().before(), Ok(1));
    }

    #[test]
    fn an_edition_that_readers_may_see_is_not_prunable() {
        use EditionState::{Preparing, Pruned, Ready};
        let head = EditionHead { current: 5, previous: 3, latest: 8, revision: 1 };
        let editions = [
            edition(1, Ready),
            edition(2, Pruned),
            edition(3, Ready),
            edition(4, Ready),
            edition(5, Ready),
            edition(6, Preparing),
            edition(7, Ready),
            edition(8, Preparing),
        ];
        assert_eq!(head.prunable(&editions, 0, 700), [6, 4, 2, 1]);
        assert_eq!(head.prunable(&editions, 1, 900), [8, 6, 4, 2, 1]);
        assert_eq!(head.prunable(&editions, 2, 650), [6, 2, 1]);
        // An edition whose pruning has begun may always be pruned, because it cannot be published.
        assert_eq!(head.prunable(&editions, 9, 0), [2]);
    }

    #[test]
    fn an_edition_that_readers_have_just_left_is_not_prunable() {
        let head = EditionHead { current: 5, previous: 4, latest: 5, revision: 1 };
        let left = |number, left_at| Edition { left_at, ..edition(number, EditionState::Ready) };
        // Edition 1 was current until 680, edition 2 until 700, and edition 3 never.
        let editions = [left(1, Some(680)), left(2, Some(700)), left(3, None)];
        for (before, expected) in [(701, &[3, 2, 1][..]), (700, &[3, 1]), (680, &[3]), (300, &[])] {
            assert_eq!(head.prunable(&editions, 0, before), expected, "{before}");
        }
        // The clock was behind when the edition stopped being current. The time at which the
        // preparation began counts instead.
        assert_eq!(head.prunable(&[left(3, Some(7))], 0, 300), [0; 0]);
    }

    #[test]
    fn items_round_trip() {
        let head = EditionHead { current: 2, previous: 1, latest: 4, revision: 9 };
        assert_eq!(EditionHead::from_item(&head.to_item("s")), Ok(head));
        let mut edition = edition(12, EditionState::Ready);
        edition.digest = u64::MAX;
        assert_eq!(Edition::from_item(&edition.to_item("s")), Ok(edition.clone()));
        (edition.base, edition.left_at) = (Some(0), Some(7));
        assert_eq!(Edition::from_item(&edition.to_item("s")), Ok(edition.clone()));
        assert!(Edition::from_item(&edition.to_item("s").with(BASE, "x")).is_err());
        let image = Item::new().with("a", "b");
        assert_eq!(image_of(&item_of_edition("s", 1, "k", &image)), Ok(image));
        assert!(image_of(&Item::new()).is_err());
    }

    #[test]
    fn a_digest_does_not_depend_on_the_order() {
        let (a, b) = (Item::new().with("a", "1"), Item::new().with("a", "2"));
        let digest = |items: [&Item; 2]| {
            let mut digest = Digest::default();
            items.into_iter().for_each(|item| digest.add(item));
            digest
        };
        assert_eq!(digest([&a, &b]), digest([&b, &a]));
        assert_ne!(digest([&a, &b]), digest([&a, &a]));
    }
}
