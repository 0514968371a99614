//! Totals: the known slots of a counter as cells, and the item that stores them.
//!
//! The caller passes the name of the table's key attribute.

use std::collections::BTreeMap;

use model::{AttributeValue, Item, Number};
use thiserror::Error;

use super::is_summable;
use crate::effect::Join;
use crate::stamp::Stamp;

/// The attribute that counts the writes of a total item. Every write is conditional on it and
/// increments it.
pub const REVISION_ATTRIBUTE: &str = "revision";
/// The attributes of a total item without its key.
pub const TOTAL_ATTRIBUTES: [&str; 5] = [TOTAL, SLOTS, REVISION_ATTRIBUTE, AS_OF, EXPIRES_AT];
const TOTAL: &str = "total";
const SLOTS: &str = "slots";
const AS_OF: &str = "as_of";
const VALUE: &str = "value";
const STAMP: &str = "stamp";
const GONE_AT: &str = "gone_at";
const EXPIRES_AT: &str = "expires_at";
/// The time in seconds for which a total is kept after its last slot was deleted. It is longer than the
/// delay of any record: a stream keeps records for a day, and discarded batches are redriven within
/// days.
const KEPT_SECONDS: u64 = 7 * 24 * 3600;

/// The last known value of one slot. When two cells are joined, the later stamp wins. Equal stamps
/// should have equal values. If the values differ, the greater value wins, so that the result is
/// deterministic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// The stamp of the value.
    pub stamp: Stamp,
    /// The slot's absolute value.
    pub value: Number,
    /// The time of the slot's deletion in seconds since 1970; `None` while the slot exists.
    pub gone_at: Option<u64>,
}

/// Cells by slot. The join keeps the later cell of each slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cells(BTreeMap<u32, Cell>);

/// A counter's total as its table stores it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// The known slots.
    pub cells: Cells,
    /// The number of writes of the item, not of votes; 0 if there is no item. The next write is
    /// conditional on this number.
    pub revision: u64,
}

/// A total item that cannot be parsed, because another program wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "damaged total item: {0}; delete it, and the next reconciliation rebuilds it from the slots"
)]
pub struct DamagedTotal(String);

/// A total as it was loaded, or the reason why its item cannot be parsed.
pub type LoadedTotal = Result<Total, DamagedTotal>;

impl<const N: usize> From<[(u32, Cell); N]> for Cells {
    fn from(cells: [(u32, Cell); N]) -> Self {
        Self(cells.into())
    }
}

impl FromIterator<(u32, Cell)> for Cells {
    fn from_iter<I: IntoIterator<Item = (u32, Cell)>>(cells: I) -> Self {
        Self(cells.into_iter().collect())
    }
}

impl Join for Cells {
    fn join(&mut self, other: Self) {
        for (slot, cell) in other.0 {
            let known = self.0.entry(slot).or_insert_with(|| cell.clone());
            if *known < cell {
                *known = cell;
            }
        }
    }
}

impl Cells {
    /// Returns the cell of a slot.
    #[must_use]
    pub fn get(&self, slot: u32) -> Option<&Cell> {
        self.0.get(&slot)
    }

    /// Returns all cells, by slot.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Cell)> {
        self.0.iter().map(|(slot, cell)| (*slot, cell))
    }

    /// Returns the number of cells.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of slots that exist. The cell of a deleted slot is kept, because its stamp
    /// must win against late records.
    #[must_use]
    pub fn slots_there(&self) -> usize {
        self.0.values().filter(|cell| cell.gone_at.is_none()).count()
    }

    /// Returns whether there are no cells.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the sum of the slots.
    #[must_use]
    pub fn sum(&self) -> Number {
        // Every value is `is_summable`, so the sum never exceeds 38 digits.
        self.0.values().fold(Number::ZERO, |sum, cell| sum.checked_add(cell.value).unwrap_or(sum))
    }

    /// Returns the time in seconds since 1970 at which the total may be deleted: seven days
    /// after its last slot was deleted. Returns `None` while a slot exists.
    #[must_use]
    pub fn expires_at(&self) -> Option<u64> {
        let gone: Option<Vec<u64>> = self.0.values().map(|cell| cell.gone_at).collect();
        Some(gone?.into_iter().max()?.saturating_add(KEPT_SECONDS))
    }

    /// Returns the greatest stamp.
    #[must_use]
    pub fn as_of(&self) -> Option<&Stamp> {
        self.0.values().map(|cell| &cell.stamp).max()
    }
}

impl Total {
    /// Returns this total joined with `cells`, with the next revision. Returns `None` if the total
    /// contains the cells already.
    #[must_use]
    pub fn joined(&self, cells: &Cells) -> Option<Self> {
        let mut joined = self.cells.clone();
        joined.join(cells.clone());
        (joined != self.cells).then(|| Self { cells: joined, revision: self.revision + 1 })
    }

    /// Returns this total with the next revision, so that its derived attributes are written again.
    #[must_use]
    pub fn restated(&self) -> Self {
        Self { cells: self.cells.clone(), revision: self.revision + 1 }
    }

    /// Returns whether `total`, `as_of` and `expires_at` of the item equal the values derived from its
    /// slots. If they differ, another program has written the item.
    #[must_use]
    pub fn is_stated_by(&self, item: &Item) -> bool {
        self.derived().iter().all(|(name, value)| item.get(*name) == value.as_ref())
    }

    /// Returns the item's `total` as text for operators if it differs from the sum of the slots;
    /// otherwise `None`.
    #[must_use]
    pub fn said_otherwise(&self, item: &Item) -> Option<String> {
        match item.get(TOTAL) {
            Some(AttributeValue::N(said)) if *said == self.cells.sum() => None,
            Some(AttributeValue::N(said)) => Some(format!("`{said}`")),
            Some(other) => Some(format!("a {}", other.attribute_type().descriptor())),
            None => Some("nothing".to_owned()),
        }
    }

    /// Returns the attributes that are derived from the slots, for readers and TTL.
    fn derived(&self) -> [(&'static str, Option<AttributeValue>); 3] {
        let as_of = self.cells.as_of().cloned().unwrap_or_else(Stamp::lowest);
        let expires_at = self.cells.expires_at();
        [
            (TOTAL, Some(AttributeValue::N(self.cells.sum()))),
            (AS_OF, Some(AttributeValue::from(as_of.as_str()))),
            (EXPIRES_AT, expires_at.map(|seconds| AttributeValue::N(Number::from(seconds)))),
        ]
    }

    /// Returns the item: the key, `total` (the sum), `slots` (a map from slot to `value` and `stamp`),
    /// `revision`, `as_of` (the greatest stamp), and `expires_at` once all slots are deleted.
    #[must_use]
    pub fn to_item(&self, key_attribute: &str, counter: &str) -> Item {
        let slots = self.cells.iter().map(|(slot, cell)| {
            let mut members = BTreeMap::from([
                (VALUE.to_owned(), AttributeValue::N(cell.value)),
                (STAMP.to_owned(), AttributeValue::from(cell.stamp.as_str())),
            ]);
            if let Some(seconds) = cell.gone_at {
                members.insert(GONE_AT.to_owned(), AttributeValue::N(Number::from(seconds)));
            }
            (slot.to_string(), AttributeValue::M(members))
        });
        let mut item = Item(BTreeMap::from([
            (key_attribute.to_owned(), AttributeValue::from(counter)),
            (SLOTS.to_owned(), AttributeValue::M(slots.collect())),
            (REVISION_ATTRIBUTE.to_owned(), AttributeValue::N(Number::from(self.revision))),
        ]));
        for (name, value) in self.derived() {
            if let Some(value) = value {
                item.insert(name.to_owned(), value);
            }
        }
        item
    }

    /// Parses the item of [`Total::to_item`].
    ///
    /// # Errors
    /// `slots` or `revision` is missing or malformed.
    pub fn from_item(item: &Item) -> Result<Self, DamagedTotal> {
        let damaged = |what: &str| DamagedTotal(what.to_owned());
        let revision = item
            .get(REVISION_ATTRIBUTE)
            .and_then(AttributeValue::as_number)
            .and_then(|number| number.to_u64())
            .filter(|revision| (1..u64::MAX).contains(revision))
            .ok_or_else(|| damaged("`revision` is not a positive integer"))?;
        let slots = item
            .get(SLOTS)
            .and_then(AttributeValue::as_map)
            .ok_or_else(|| damaged("`slots` is not a map"))?;
        let cells = slots.iter().map(|(slot, cell)| {
            let read = || {
                let number: u32 = slot.parse().ok()?;
                let members = cell.as_map()?;
                let value = members.get(VALUE)?.as_number().filter(is_summable)?;
                let stamp = members.get(STAMP)?.as_str()?.parse().ok()?;
                let gone_at = match members.get(GONE_AT) {
                    Some(seconds) => Some(seconds.as_number()?.to_u64()?),
                    None => None,
                };
                Some((number, Cell { stamp, value, gone_at }))
            };
            read().ok_or_else(|| damaged(&format!("`slots.{slot}` is not a value with a stamp")))
        });
        Ok(Self { cells: cells.collect::<Result<_, _>>()?, revision })
    }
}

#[cfg(test)]
mod tests {
    use model::json::{item_from_str, item_to_string};

    use super::*;

    fn cell(label: &str, sequence: &str, value: &str) -> Cell {
        Cell {
            stamp: Stamp::of_record(label, &sequence.parse().unwrap()),
            value: value.parse().unwrap(),
            gone_at: None,
        }
    }

    fn gone(sequence: &str, seconds: u64) -> Cell {
        Cell { gone_at: Some(seconds), ..cell("l", sequence, "0") }
    }

    #[test]
    fn a_total_expires_after_its_last_slot_unless_a_new_vote_comes() {
        let mut cells = Cells::from([(0, gone("5", 1000)), (1, cell("l", "6", "3"))]);
        assert_eq!((cells.expires_at(), cells.slots_there(), cells.len()), (None, 1, 2));
        cells.join(Cells::from([(1, gone("7", 4000))]));
        assert_eq!((cells.expires_at(), cells.slots_there()), (Some(4000 + KEPT_SECONDS), 0));
        let total = Total { cells, revision: 2 };
        let item = total.to_item("counter", "C1");
        assert_eq!(item.get(EXPIRES_AT), Some(&AttributeValue::N("608800".parse().unwrap())));
        assert_eq!(Total::from_item(&item), Ok(total.clone()));
        let again = total.joined(&Cells::from([(0, cell("l", "8", "1"))])).unwrap();
        assert_eq!(again.to_item("counter", "C1").get(EXPIRES_AT), None);
        assert_eq!(Cells::default().expires_at(), None);
    }

    #[test]
    fn the_later_stamp_wins_per_slot() {
        let mut cells = Cells::from([(0, cell("a", "2", "5")), (1, cell("a", "1", "-3"))]);
        cells.join(Cells::from([(0, cell("a", "1", "4")), (1, cell("a", "2", "7"))]));
        assert_eq!(cells.sum(), Number::from(12i64));
        assert_eq!(cells.as_of(), Some(&cell("a", "2", "0").stamp));
        let total = Total { cells, revision: 4 };
        assert_eq!(total.joined(&Cells::from([(0, cell("a", "1", "4"))])), None);
        let next = total.joined(&Cells::from([(2, cell("b", "1", "0.5"))])).unwrap();
        assert_eq!((next.revision, next.cells.sum()), (5, "12.5".parse().unwrap()));
    }

    #[test]
    fn items_round_trip() {
        let cells = Cells::from([(0, cell("l", "2", "5")), (17, cell("l", "30", "-1.25"))]);
        let total = Total { cells, revision: 9 };
        let item = total.to_item("counter", "C1");
        assert_eq!(Total::from_item(&item), Ok(total));
        let zeros = "0".repeat(38);
        assert_eq!(
            item_to_string(&item),
            format!(
                r#"{{"as_of":{{"S":"l/{zeros}30"}},"counter":{{"S":"C1"}},"revision":{{"N":"9"}},"slots":{{"M":{{"0":{{"M":{{"stamp":{{"S":"l/{zeros}02"}},"value":{{"N":"5"}}}}}},"17":{{"M":{{"stamp":{{"S":"l/{zeros}30"}},"value":{{"N":"-1.25"}}}}}}}}}},"total":{{"N":"3.75"}}}}"#
            )
        );
    }

    #[test]
    fn derived_attributes_follow_from_the_slots() {
        let cells = Cells::from([(0, cell("l", "2", "5")), (17, cell("l", "30", "-1.25"))]);
        let total = Total { cells, revision: 9 };
        let item = total.to_item("counter", "C1");
        assert!(total.is_stated_by(&item));
        assert_eq!(total.said_otherwise(&item), None);
        for (name, value, said) in [
            (TOTAL, AttributeValue::N(Number::from(12345_u64)), Some("`12345`")),
            (TOTAL, AttributeValue::from("3.75"), Some("a S")),
            (AS_OF, AttributeValue::from("l/1"), None),
            (EXPIRES_AT, AttributeValue::N(Number::from(1_u64)), None),
        ] {
            let other = item.clone().with(name, value);
            assert!(!total.is_stated_by(&other), "{name}");
            assert_eq!(total.said_otherwise(&other).as_deref(), said);
            // The slots are unchanged, and the next write restores the derived attributes.
            assert_eq!(Total::from_item(&other), Ok(total.clone()));
        }
        assert_eq!(total.restated().revision, 10);
        assert!(total.restated().is_stated_by(&total.restated().to_item("counter", "C1")));
    }

    #[test]
    fn foreign_items_are_damaged_totals() {
        for text in [
            r"{}",
            r#"{"total":{"N":"5"}}"#,
            r#"{"revision":{"N":"0"},"slots":{"M":{}}}"#,
            r#"{"revision":{"N":"1.5"},"slots":{"M":{}}}"#,
            r#"{"revision":{"N":"1"},"slots":{"L":[]}}"#,
            r#"{"revision":{"N":"1"},"slots":{"M":{"x":{"M":{}}}}}"#,
            r#"{"revision":{"N":"1"},"slots":{"M":{"0":{"M":{"value":{"N":"1"},"stamp":{"S":"x"}}}}}}"#,
        ] {
            assert!(Total::from_item(&item_from_str(text).unwrap()).is_err(), "{text}");
        }
    }

    #[test]
    fn the_largest_sum_is_exact() {
        let value = "9999999999999999999999999999.999999";
        let cells: Cells =
            (0..super::super::SLOT_COUNT_MAX).map(|slot| (slot, cell("l", "1", value))).collect();
        assert_eq!(cells.sum(), "9999999999999999999999999999999.999".parse().unwrap());
    }
}
