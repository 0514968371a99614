//! The records of one invocation, of which there may be 10,000.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::entry::{Entry, RecordName};

/// The records of an invocation, for the histories of several records.
pub(super) struct Batch {
    /// The sequence numbers of the records.
    pub(super) sequences: Arc<[String]>,
    /// Whether the sequence numbers are in ascending order, as they are in a shard.
    is_ascending: bool,
}

impl Batch {
    /// Returns the records of an invocation; `None` for any other entry.
    pub(super) fn of(entry: &Entry) -> Option<Self> {
        let Entry::Invoked { records, .. } = entry else { return None };
        let is_ascending =
            records.is_sorted_by(|one, other| by_number(one.sequence(), other.sequence()).is_le());
        let sequences = records.iter().map(|record| record.sequence().to_owned()).collect();
        Some(Self { sequences, is_ascending })
    }

    /// Returns the position of the record that `wanted` names, by its sequence number or event id.
    /// `records` are those of the invocation.
    pub(super) fn place_of(&self, records: &[RecordName], wanted: &str) -> Option<usize> {
        if self.is_ascending && wanted.bytes().all(|byte| byte.is_ascii_digit()) {
            let found = self.sequences.binary_search_by(|own| by_number(own, wanted));
            if let Ok(place) = found {
                return Some(place);
            }
        }
        records.iter().position(|record| names(record, wanted))
    }
}

/// Compares two sequence numbers as numbers.
fn by_number(one: &str, other: &str) -> Ordering {
    let (one, other) = (one.trim_start_matches('0'), other.trim_start_matches('0'));
    one.len().cmp(&other.len()).then_with(|| one.cmp(other))
}

/// Returns whether `wanted` names this record. Leading zeros are ignored, because the archive writes
/// sequence numbers with leading zeros.
pub(super) fn names(record: &RecordName, wanted: &str) -> bool {
    record.event_id() == wanted || by_number(record.sequence(), wanted).is_eq()
}

/// Returns whether `part` has records, and all of them are in `whole`.
pub(super) fn is_part(part: &[String], whole: &[String]) -> bool {
    let Some(first) = part.first() else { return false };
    let Some(begin) = whole.iter().position(|record| record == first) else { return false };
    // The parts of a bisected batch are contiguous.
    if whole.get(begin..).is_some_and(|rest| rest.starts_with(part)) {
        return true;
    }
    let whole: BTreeSet<&String> = whole.iter().collect();
    part.iter().all(|record| whole.contains(record))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(numbers: &[u32]) -> Vec<String> {
        numbers.iter().map(u32::to_string).collect()
    }

    #[test]
    fn a_part_has_only_records_of_the_whole() {
        let whole = texts(&[8, 9, 10, 11]);
        for (part, expected) in [
            (texts(&[8, 9, 10, 11]), true),
            (texts(&[10, 11]), true),
            (texts(&[8, 11]), true),
            (texts(&[11, 12]), false),
            (texts(&[7, 8]), false),
            (texts(&[]), false),
        ] {
            assert_eq!(is_part(&part, &whole), expected, "{part:?}");
        }
    }

    #[test]
    fn a_record_is_found_by_number_or_event_id_in_any_order() {
        let name = |it: &String| RecordName(it.clone(), format!("id-{it}"), String::new());
        for numbers in [[8, 9, 10], [10, 8, 9]] {
            let records: Vec<RecordName> = texts(&numbers).iter().map(name).collect();
            let entry = Entry::Invoked {
                mapping: String::new(),
                shard: String::new(),
                at_ms: 0,
                tick_ms: 0,
                batch: 1,
                attempt: 1,
                records: records.clone(),
                request: None,
            };
            let batch = Batch::of(&entry).unwrap();
            for wanted in ["9", "009", "id-9"] {
                let place = batch.place_of(&records, wanted);
                assert_eq!(place, numbers.iter().position(|it| *it == 9), "{numbers:?} {wanted}");
            }
            assert_eq!(batch.place_of(&records, "7"), None);
        }
    }
}
