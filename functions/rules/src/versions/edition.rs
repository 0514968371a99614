//! Editions: versions of many items together, of which one is current.
//!
//! An edition is prepared under its own keys while another one is current, and then published by
//! one conditional write of the head. So a reader who reads the head once, and then items of the
//! edition that it names, sees one whole edition. Here is what may become of an edition, and the
//! items that say so. Nothing is read or written here.

use std::collections::BTreeMap;

use model::limits::{ITEM_BYTES_MAX, NESTING_LEVELS_MAX, SORT_KEY_BYTES_MAX};
use model::{AttributeValue, Item, KeyValue, Number, Token, json};
use thiserror::Error;

use super::history::version_text;
use crate::rule::Refusal;

/// The partition key attribute of a table of editions.
pub const EDITION_PARTITION: &str = "edition";
/// Its sort key attribute.
pub const EDITION_ITEM: &str = "item";
/// The sort key of a head; edition records beside it have [`version_text`].
pub const EDITION_HEAD: &str = "v0";
/// The attribute with how often a head was written, which guards the number that is given away.
pub const EDITION_REVISION: &str = "revision";
/// The attribute with an edition's state.
pub const EDITION_STATE: &str = "state";
/// The attribute with the time at which readers last left an edition for another one.
pub const EDITION_LEFT_AT: &str = "left_at";
/// The attribute with the item itself.
pub const EDITION_IMAGE: &str = "image";
/// Parts that an edition's items are spread over, so that no single partition takes them all.
pub const EDITION_PARTS: u64 = 16;

/// The head's attribute with the edition that readers see.
pub const EDITION_CURRENT: &str = "current";
/// The head's attribute with the edition that they saw before.
pub const EDITION_PREVIOUS: &str = "previous";
/// The head's attribute with the highest number that was given away.
pub const EDITION_LATEST: &str = "latest";

const ITEMS: &str = "items";
const DIGEST: &str = "digest";
const AT: &str = "at";
const KEYS: &str = "keys";
const BASE: &str = "base";

/// The state of an edition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditionState {
    /// Its items are being written; whoever wrote them may have died.
    Preparing,
    /// All its items are there.
    Ready,
    /// Its items are being removed; nobody may publish it any more.
    Pruned,
}

impl EditionState {
    /// The word in the item.
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

/// What is known of one edition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edition {
    /// Its number, from 1.
    pub number: u64,
    /// How far it is.
    pub state: EditionState,
    /// Its items; 0 until it is ready.
    pub items: u64,
    /// Their digest, see [`Digest`]; 0 until it is ready.
    pub digest: u64,
    /// When it was begun, in epoch seconds.
    pub at_seconds: u64,
    /// The key attributes of its items.
    pub keys: Vec<String>,
    /// The edition that was current when this one was begun, which readers would go over from; 0:
    /// none was. `None`: it was prepared by a program that did not write this down.
    pub base: Option<u64>,
    /// When it ceased to be current, the last time, in epoch seconds. `None`: it never was, or a
    /// program turned the head that did not write this down.
    pub left_at: Option<u64>,
}

/// Which edition is current.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EditionHead {
    /// The edition that readers see; 0: none yet.
    pub current: u64,
    /// The edition that they saw before; 0: none.
    pub previous: u64,
    /// The highest number that was given away.
    pub latest: u64,
    /// How often the head was written; 0 when there is none.
    pub revision: u64,
}

/// An item of a table of editions that was not written by this program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("damaged edition: {0}")]
pub struct DamagedEdition(String);

/// Why an edition cannot become current.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PublishRefusal {
    /// It is current already.
    #[error("edition {0} is current already")]
    IsCurrent(u64),
    /// It is not whole.
    #[error("edition {0} is {1}; only one that is ready can be published")]
    NotReady(u64, &'static str),
    /// Another one was published since this one was prepared.
    #[error(
        "edition {0} was prepared before edition {1} was published; prepare it anew, or roll back to it with `rollback --to {0}`"
    )]
    Overtaken(u64, u64),
    /// Another one is current than when this one was prepared: its changes are not in this one.
    #[error(
        "edition {number} was prepared while {} was current, and now {} is: prepare it anew, or make it current all the same with `rollback --to {number}`",
        named(*.base),
        named(*.current)
    )]
    OtherBase {
        /// The edition.
        number: u64,
        /// The one that it was prepared over.
        base: u64,
        /// The one that is current.
        current: u64,
    },
    /// The current one was gone back to already.
    #[error(
        "edition {0} is current since edition {1} was rolled back; name another one with --to, also to go forward again"
    )]
    IsRolledBack(u64, u64),
    /// There is nothing to go back to.
    #[error("no edition was current before this one; name one with --to")]
    NoPrevious,
}

fn named(number: u64) -> String {
    if number == 0 { "none".to_owned() } else { format!("edition {number}") }
}

/// A digest of items that does not depend on their order: the sum of their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// Items.
    pub items: u64,
    /// The sum of the hashes of their texts, modulo 2^64.
    pub sum: u64,
}

impl Digest {
    /// Adds an item.
    pub fn add(&mut self, item: &Item) {
        self.items += 1;
        self.sum = self.sum.wrapping_add(hash_of(&json::item_to_string(item)));
    }
}

/// The hash of an item's text or of its key.
#[must_use]
pub fn hash_of(text: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(text.as_bytes())
}

/// The partition key of the head and the records of the editions of a set.
#[must_use]
pub fn records_key(set: &str) -> String {
    format!("{set}#")
}

/// The partition key of one of the [`EDITION_PARTS`] parts of an edition.
#[must_use]
pub fn part_key(set: &str, number: u64, part: u64) -> String {
    format!("{set}#{}#{part:02}", version_text(number))
}

/// Whether an edition can hold an item, by its key as text; of a key alone, whether it can hold one
/// under it.
///
/// # Errors
/// Why it cannot, and what to do about it.
pub fn fits_into_an_edition(set: &str, key: &str, image: Option<&Item>) -> Result<(), Refusal> {
    if key.len() > SORT_KEY_BYTES_MAX {
        return Err(Refusal(format!(
            "its key takes {} bytes as text, and in an edition it is a sort key of at most {SORT_KEY_BYTES_MAX}; shorten it, or leave the item out with --through",
            key.len()
        )));
    }
    let Some(image) = image else { return Ok(()) };
    // Every number of an edition takes as many bytes.
    let size = item_of_edition(set, 1, key, image).size();
    if size > ITEM_BYTES_MAX {
        return Err(Refusal(format!(
            "with its key it takes {size} bytes in an edition, more than {ITEM_BYTES_MAX}; make it smaller, or leave it out with --through"
        )));
    }
    // The image is a map in the edition, one level deeper than the item was.
    let levels = image.values().map(AttributeValue::nesting_levels).max().unwrap_or(0);
    if levels >= NESTING_LEVELS_MAX {
        return Err(Refusal(format!(
            "it is nested {levels} levels deep, and in an edition it would be deeper than {NESTING_LEVELS_MAX}; make it flatter, or leave it out with --through"
        )));
    }
    Ok(())
}

/// The part that an item is in, by its key as text.
#[must_use]
pub fn part_of(key: &str) -> u64 {
    Token::of(&KeyValue::S(key.to_owned())).0 % EDITION_PARTS
}

fn number(item: &Item, name: &str) -> Result<u64, DamagedEdition> {
    let number = item.get(name).and_then(AttributeValue::as_number).and_then(|n| n.to_u64());
    number.ok_or_else(|| DamagedEdition(format!("`{name}` is not a number")))
}

impl EditionHead {
    /// The head's item.
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

    /// Reads what [`EditionHead::to_item`] wrote.
    ///
    /// # Errors
    /// When it was not written there.
    pub fn from_item(item: &Item) -> Result<Self, DamagedEdition> {
        Ok(Self {
            current: number(item, EDITION_CURRENT)?,
            previous: number(item, EDITION_PREVIOUS)?,
            latest: number(item, EDITION_LATEST)?,
            revision: number(item, EDITION_REVISION)?,
        })
    }

    /// The head that gives the next number away.
    #[must_use]
    pub fn with_next(self) -> Self {
        Self { latest: self.latest + 1, revision: self.revision + 1, ..self }
    }

    /// The head after an edition was published. One that was prepared while another one was current
    /// is refused: it would undo what is current without anybody saying so. The head is written only
    /// while it names the editions that were read, so this holds until then.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn published(self, edition: &Edition) -> Result<Self, PublishRefusal> {
        let (number, current) = (edition.number, self.current);
        // What it was prepared over does not matter as long as it is not whole.
        let base = edition.base.filter(|_| edition.state == EditionState::Ready);
        match base {
            // Told twice: the one that is current was prepared over another one.
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

    /// The edition that was current before this one. When that has a higher number, this one was gone
    /// back to: to go to the other one would undo that, so whoever says it twice does not.
    ///
    /// # Errors
    /// When there is none to go back to.
    pub fn before(self) -> Result<u64, PublishRefusal> {
        match self.previous {
            0 => Err(PublishRefusal::NoPrevious),
            left if left > self.current => Err(PublishRefusal::IsRolledBack(self.current, left)),
            before => Ok(before),
        }
    }

    /// The head after going back (or forward) to an edition.
    ///
    /// # Errors
    /// Why it cannot be.
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

    /// The editions that may go: not the current one nor the one before it, not the last `keep`
    /// others, and none that was begun, or that readers left, at or after `before` (epoch seconds).
    /// What is being prepared may go too when it is that old: whoever prepared it is dead.
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
    /// The last moment that is written down at which somebody wrote or read it. An edition that was
    /// current for months may have been left a second ago, by readers who are still at it.
    fn in_use_at(&self) -> u64 {
        self.left_at.map_or(self.at_seconds, |left| left.max(self.at_seconds))
    }

    /// The edition's record.
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

    /// Reads what [`Edition::to_item`] wrote.
    ///
    /// # Errors
    /// When it was not written there.
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

/// The key of an item in DynamoDB JSON, of the attributes `keys`; `None` when it lacks one.
#[must_use]
pub fn key_of(item: &Item, keys: &[String]) -> Option<String> {
    let mut key = Item::new();
    for name in keys {
        key.insert(name.clone(), item.get(name)?.clone());
    }
    Some(json::item_to_string(&key))
}

/// An item of an edition; `key` is the item's key in DynamoDB JSON.
#[must_use]
pub fn item_of_edition(set: &str, edition: u64, key: &str, image: &Item) -> Item {
    let mut item = Item::new()
        .with(EDITION_PARTITION, part_key(set, edition, part_of(key)))
        .with(EDITION_ITEM, key);
    item.insert(EDITION_IMAGE.to_owned(), AttributeValue::M(image.0.clone()));
    item
}

/// The image in an item of an edition.
///
/// # Errors
/// When it has none.
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
    fn only_whole_editions_become_current() {
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
    fn what_was_published_meanwhile_is_not_undone() {
        let other =
            |number, base, current| Err(PublishRefusal::OtherBase { number, base, current });
        // Both were made of edition 1.
        let (two, three) = (prepared_over(1, 2), prepared_over(1, 3));
        let first = EditionHead { current: 1, previous: 0, latest: 3, revision: 4 };
        let second = first.published(&two).unwrap();
        assert_eq!(second.published(&three), other(3, 1, 2));
        assert_eq!(second.published(&two), Err(PublishRefusal::IsCurrent(2)));
        assert_eq!(second.turned_to(&three).unwrap().current, 3);
        // One that was made of what was gone back from would undo that.
        let four = prepared_over(2, 4);
        let back = second.turned_to(&edition(1, EditionState::Ready)).unwrap();
        assert_eq!(back.published(&four), other(4, 2, 1));
        assert_eq!(back.published(&three).unwrap().current, 3);
        // The first one of a set, and another one that was prepared before it was published.
        let begun = EditionHead { latest: 2, revision: 2, ..EditionHead::default() };
        let first = begun.published(&prepared_over(0, 1)).unwrap();
        let refusal = first.published(&prepared_over(0, 2)).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "edition 2 was prepared while none was current, and now edition 1 is: prepare it anew, or make it current all the same with `rollback --to 2`"
        );
        // What was prepared before bases were written down.
        assert_eq!(first.published(&edition(2, EditionState::Ready)).unwrap().current, 2);
    }

    #[test]
    fn going_back_twice_is_going_back_once() {
        use EditionState::Ready;
        assert_eq!(EditionHead::default().before(), Err(PublishRefusal::NoPrevious));
        let head = EditionHead { current: 2, previous: 1, latest: 5, revision: 9 };
        assert_eq!(head.before(), Ok(1));
        let back = head.turned_to(&edition(1, Ready)).unwrap();
        assert_eq!(back.before(), Err(PublishRefusal::IsRolledBack(1, 2)));
        // Forward again, or to one that was made since: then there is one to go back to.
        assert_eq!(back.turned_to(&edition(2, Ready)).unwrap().before(), Ok(1));
        assert_eq!(back.published(&edition(3, Ready)).unwrap().before(), Ok(1));
    }

    #[test]
    fn what_readers_may_see_is_not_prunable() {
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
        // What was begun to be pruned is always prunable: nobody can publish it.
        assert_eq!(head.prunable(&editions, 9, 0), [2]);
    }

    #[test]
    fn what_readers_have_just_left_is_not_prunable() {
        let head = EditionHead { current: 5, previous: 4, latest: 5, revision: 1 };
        let left = |number, left_at| Edition { left_at, ..edition(number, EditionState::Ready) };
        // Edition 1 was current until 680, edition 2 until 700; edition 3 never was.
        let editions = [left(1, Some(680)), left(2, Some(700)), left(3, None)];
        for (before, expected) in [(701, &[3, 2, 1][..]), (700, &[3, 1]), (680, &[3]), (300, &[])] {
            assert_eq!(head.prunable(&editions, 0, before), expected, "{before}");
        }
        // A clock that was behind when it was left does not make it older.
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
