//! Counters: sums the slots of a sharded counter, `C1#0 … C1#19`, into one total per counter.
//!
//! A slot's item holds the slot's absolute value, so a stream record contains the value of the slot
//! and not the increment. The total stores the last value of each slot with its stamp. A
//! redelivered, late or out-of-order record therefore never replaces a newer value. [`reconcile`]
//! compares the total with a direct read of the slots.

pub mod ballot;
pub mod reconcile;
mod total;

pub use total::{
    Cell, Cells, DamagedTotal, LoadedTotal, REVISION_ATTRIBUTE, TOTAL_ATTRIBUTES, Total,
};

use std::collections::BTreeSet;

use model::limits::PARTITION_KEY_BYTES_MAX;
use model::stream_record::LambdaRecord;
use model::{AttributeValue, EventName, Item, Number};
use thiserror::Error;

use crate::effect::Effect;
use crate::rule::{Found, Needs, Refusal, Rule, stream_of};
use crate::stamp::Stamp;

/// The maximum number of slots of one counter, inclusive. A slot takes about 100 bytes of the
/// total's item, so 1,000 of them stay well below DynamoDB's 400 KB.
pub const SLOT_COUNT_MAX: u32 = 1000;
/// The maximum number of decimal places of a slot's value.
const VALUE_PLACES: u32 = 6;
/// The bound of a slot's value times 10^6, exclusive. The sum of [`SLOT_COUNT_MAX`] such values is
/// below 10^37 and therefore always exact in DynamoDB's 38 digits.
const VALUE_SCALED_MAX: u128 = 10u128.pow(34);
/// The greatest value of a slot. Its negative is the least value.
const VALUE_MAX: &str = "9999999999999999999999999999.999999";
/// The range of valid slot values, for messages to operators.
pub const SUMMABLE: &str = "magnitude below 10^28 and at most 6 decimal places";

/// The counters rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// The number of slots of each counter, 1 to [`SLOT_COUNT_MAX`]. Slots are numbered from 0.
    pub slot_count: u32,
    /// The partition key attribute of the slots table. Its value is the string `<counter>#<slot>`.
    pub slot_key: String,
    /// The attribute that holds a slot's value.
    pub slot_value: String,
}

/// The reason why a key does not name a slot.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SlotKeyError {
    /// The key does not have the form `<counter>#<slot>`.
    #[error(
        "slot key=`{0}` is not of the form COUNTER#SLOT with a slot number without leading zeros; filter such items out in the event source mapping"
    )]
    Form(String),
    /// The slot number is not below the configured number of slots.
    #[error(
        "slot key=`{key}` has a slot number that is not below SLOT_COUNT=`{slot_count}`; raise SLOT_COUNT"
    )]
    TooHigh {
        /// The key.
        key: String,
        /// The configured number of slots.
        slot_count: u32,
    },
}

impl Counters {
    /// Parses `<counter>#<slot>`. The name of a counter may contain `#`.
    ///
    /// # Errors
    /// The key has a different form, or the slot number is not below the slot count.
    pub fn parse_slot_key<'k>(&self, key: &'k str) -> Result<(&'k str, u32), SlotKeyError> {
        let form = || SlotKeyError::Form(key.to_owned());
        let (counter, slot) = key.rsplit_once('#').ok_or_else(form)?;
        let number: u32 = slot.parse().map_err(|_| form())?;
        // `C#07` and `C#7` are two items, but would be the same slot.
        if counter.is_empty() || number.to_string() != slot {
            return Err(form());
        }
        if number >= self.slot_count {
            return Err(SlotKeyError::TooHigh { key: key.to_owned(), slot_count: self.slot_count });
        }
        Ok((counter, number))
    }

    /// Returns the key of a slot's item.
    #[must_use]
    pub fn slot_key_text(counter: &str, slot: u32) -> String {
        format!("{counter}#{slot}")
    }

    /// Returns whether a slot's item can exist. If a counter has a very long name, `<counter>#7`
    /// may fit a key when `<counter>#10` does not. DynamoDB rejects the entire request if a key in
    /// it is too long.
    #[must_use]
    pub fn can_have_slot(counter: &str, slot: u32) -> bool {
        Self::slot_key_text(counter, slot).len() <= PARTITION_KEY_BYTES_MAX
    }

    /// Returns the slot that receives the value of `slot` when the counter is folded to `slots`
    /// slots. A remaining slot keeps its value.
    #[must_use]
    pub fn folded_slot(slot: u32, slots: u32) -> u32 {
        slot % slots.max(1)
    }

    /// Returns the value in a slot's item.
    ///
    /// # Errors
    /// The value is missing, is not a number, or is outside the range that totals can store
    /// exactly.
    pub fn value_of_slot(&self, item: &Item) -> Result<Number, Refusal> {
        let name = &self.slot_value;
        let value = match item.get(name) {
            Some(AttributeValue::N(number)) => *number,
            Some(other) => {
                let found = other.attribute_type().descriptor();
                return Err(Refusal(format!("slot value `{name}` is of type {found}, not N")));
            }
            None => return Err(Refusal(format!("slot value `{name}` is missing"))),
        };
        if is_summable(&value) {
            Ok(value)
        } else {
            Err(Refusal(format!(
                "slot value `{name}`=`{value}` is outside the range that totals can store exactly: {SUMMABLE}"
            )))
        }
    }

    fn slot_of<'r>(&self, record: &'r LambdaRecord) -> Result<(&'r str, u32), Refusal> {
        match record.record.keys.get(&self.slot_key) {
            Some(AttributeValue::S(key)) => {
                self.parse_slot_key(key).map_err(|error| Refusal(error.to_string()))
            }
            _ => Err(Refusal(format!(
                "the record's keys have no string attribute `{}`",
                self.slot_key
            ))),
        }
    }
}

/// Returns whether totals can store the value of a slot exactly, together with the values of all
/// other slots. See [`SUMMABLE`].
#[must_use]
pub fn is_summable(value: &Number) -> bool {
    value.to_scaled_i128(VALUE_PLACES).is_some_and(|v| v.unsigned_abs() < VALUE_SCALED_MAX)
}

/// Returns the range of values that a slot may have so that its value is [`is_summable`] before and
/// after `points` are added. Returns `None` if no slot can have these points.
#[must_use]
pub fn room_for(points: Number) -> Option<(Number, Number)> {
    room_for_change(points).filter(|_| is_summable(&points))
}

/// Returns the same range as [`room_for`], for any `points`: the difference of two votes can be up
/// to twice a vote. Returns `None` only if the bounds have too many digits for a number.
#[must_use]
pub fn room_for_change(points: Number) -> Option<(Number, Number)> {
    let most: Number = VALUE_MAX.parse().ok()?;
    let low = most.negated().checked_sub(points).ok()?;
    Some((low, most.checked_sub(points).ok()?))
}

impl Rule for Counters {
    type Input = LoadedTotal;
    type Effect = Effect<String, Cells>;

    fn slots_of_need(&self) -> usize {
        usize::try_from(self.slot_count).unwrap_or(usize::MAX)
    }

    fn slots_of(&self, total: &LoadedTotal) -> usize {
        total.as_ref().map_or(0, |total| total.cells.len())
    }

    fn needs(&self, records: &[&LambdaRecord]) -> Needs {
        let counters: BTreeSet<&str> =
            records.iter().filter_map(|record| Some(self.slot_of(record).ok()?.0)).collect();
        counters.into_iter().map(str::to_owned).collect()
    }

    fn decide(
        &self,
        record: &LambdaRecord,
        found: &Found<LoadedTotal>,
    ) -> Result<Vec<Self::Effect>, Refusal> {
        let stream = stream_of(&record.event_source_arn)?;
        let (counter, slot) = self.slot_of(record)?;
        let change = &record.record;
        // Some senders write 0 for an absent time.
        let seconds = change.approximate_creation_seconds.filter(|seconds| *seconds > 0);
        let gone_at = seconds.filter(|_| change.event_name == EventName::Remove);
        let value = match (change.event_name, &change.new_image) {
            (EventName::Remove, _) => Number::ZERO,
            (_, Some(image)) => self.value_of_slot(image)?,
            (_, None) => {
                return Err(Refusal(format!(
                    "the record has no new image: the stream's view type is {}, but counters need NEW_IMAGE or NEW_AND_OLD_IMAGES",
                    change.view_type.as_str()
                )));
            }
        };
        if let Some(Err(damaged)) = found.inputs.get(counter) {
            return Err(Refusal(damaged.to_string()));
        }
        let stamp = Stamp::of_record(&stream.label, &change.sequence_number);
        let cells = Cells::from([(slot, Cell { stamp, value, gone_at })]);
        Ok(vec![Effect { target: counter.to_owned(), statement: cells }])
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use model::json::item_from_str;

    use super::*;
    use crate::rule::testing::check_decisions;

    fn describe(effect: &Effect<String, Cells>) -> String {
        let mut text = format!("total {}:", effect.target);
        for (slot, cell) in effect.statement.iter() {
            let _ = write!(text, " {slot}={} as of {}", cell.value, cell.stamp);
            if let Some(seconds) = cell.gone_at {
                let _ = write!(text, " gone at {seconds}");
            }
        }
        text
    }

    #[test]
    fn decisions() {
        let rule = Counters {
            slot_count: 20,
            slot_key: "slot".to_owned(),
            slot_value: "votes".to_owned(),
        };
        let damaged = item_from_str(r#"{"counter":{"S":"bad"},"total":{"N":"1"}}"#).unwrap();
        let inputs = [("bad".to_owned(), Total::from_item(&damaged))].into();
        let found = Found { inputs, ..Found::default() };
        check_decisions(&rule, &found, describe, include_str!("../../testdata/counters.txt"));
    }

    #[test]
    fn there_is_room_up_to_the_greatest_value() {
        let number = |text: &str| -> Number { text.parse().unwrap() };
        let step = number("0.000001");
        for points in ["1", "-1", "0.000001", "0", VALUE_MAX, "-123456789.5"] {
            let points = number(points);
            let (low, high) = room_for(points).unwrap();
            let after = |slot: Number| slot.checked_add(points).unwrap();
            assert!(is_summable(&after(low)) && is_summable(&after(high)), "{points}");
            assert!(!is_summable(&after(low).checked_sub(step).unwrap()), "{points}");
            assert!(!is_summable(&after(high).checked_add(step).unwrap()), "{points}");
        }
        for points in ["1e28", "-1e30", "0.0000001", "1e125"] {
            assert_eq!(room_for(number(points)), None, "{points}");
        }
        // This is the change from the greatest vote to the least vote. After this change, only a
        // slot that had the greatest value is still in the range of valid values.
        let most = number(VALUE_MAX);
        let (low, high) = room_for_change(number("-18e27")).unwrap();
        assert_eq!(high, most.checked_add(number("18e27")).unwrap());
        assert_eq!(low, most.negated().checked_add(number("18e27")).unwrap());
        assert_eq!(room_for_change(number("1e125")), None);
    }

    #[test]
    fn a_slot_with_too_long_a_key_cannot_exist() {
        let counter = "c".repeat(PARTITION_KEY_BYTES_MAX - 2);
        for (counter, slot, expected) in [
            ("C", 999, true),
            (counter.as_str(), 0, true),
            (counter.as_str(), 9, true),
            (counter.as_str(), 10, false),
        ] {
            assert_eq!(Counters::can_have_slot(counter, slot), expected, "slot {slot}");
        }
    }
}
