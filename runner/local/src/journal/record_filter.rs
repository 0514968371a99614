//! Selects the journal lines that may be about some records, without parsing the other lines.
//!
//! The selection contains all lines that a history of one of the records uses.

use std::collections::{BTreeMap, BTreeSet};

use super::line_text::{ends_of, mapping_of, number_after};
use mapping::SequenceNumber;

/// The selection of lines by the sequence numbers of their records.
pub(super) struct RecordFilter {
    /// The sequence numbers of the records, in ascending order.
    wanted: Vec<SequenceNumber>,
    /// For each mapping, the first and the last record of its selected batches. Later attempts may
    /// have a part of such a batch.
    batches: BTreeMap<String, Vec<(SequenceNumber, SequenceNumber)>>,
    /// The selected attempts, by run, mapping and batch, whose results are selected too.
    attempts: BTreeSet<(i64, String, i64)>,
}

impl RecordFilter {
    /// Creates the selection of lines about the records with these sequence numbers.
    pub(super) fn new(mut wanted: Vec<SequenceNumber>) -> Self {
        wanted
            .iter_mut()
            .for_each(|wanted| *wanted = without_zeros(wanted.as_str()).unwrap_or(wanted.clone()));
        wanted.sort();
        Self { wanted, batches: BTreeMap::new(), attempts: BTreeSet::new() }
    }

    /// Returns whether a line of this kind is selected. A line whose members cannot be found is
    /// selected, so that the parser decides.
    pub(super) fn selects(&mut self, line: &str, kind: &str) -> bool {
        match kind {
            "invoked" => self.selects_attempt(line).unwrap_or(true),
            "passed-over" | "passed-over-more" | "gave-up" => {
                parsed_ends(line, kind).is_none_or(|(first, last)| self.has_between(&first, &last))
            }
            "succeeded" | "failed" => {
                attempt_of(line).is_none_or(|attempt| self.attempts.contains(&attempt))
            }
            _ => true,
        }
    }

    fn selects_attempt(&mut self, line: &str) -> Option<bool> {
        let (first, last) = parsed_ends(line, "invoked")?;
        let attempt = attempt_of(line)?;
        let batches = self.batches.get(&attempt.1).map(Vec::as_slice).unwrap_or_default();
        if self.has_between(&first, &last) {
            let is_known =
                batches.last().is_some_and(|batch| *batch == (first.clone(), last.clone()));
            if !is_known {
                self.batches.entry(attempt.1.clone()).or_default().push((first, last));
            }
        } else if !batches.iter().any(|(from, to)| *from <= first && first <= *to) {
            return Some(false);
        }
        self.attempts.insert(attempt);
        Some(true)
    }

    /// Returns whether one of the records is between `first` and `last`, both inclusive.
    fn has_between(&self, first: &SequenceNumber, last: &SequenceNumber) -> bool {
        let at = self.wanted.partition_point(|wanted| wanted < first);
        self.wanted.get(at).is_some_and(|wanted| wanted <= last)
    }
}

fn parsed_ends(line: &str, kind: &str) -> Option<(SequenceNumber, SequenceNumber)> {
    let (first, last) = ends_of(line, kind)?;
    without_zeros(first).zip(without_zeros(last))
}

/// Parses a sequence number, without leading zeros: they do not distinguish records.
fn without_zeros(text: &str) -> Option<SequenceNumber> {
    let significant = text.trim_start_matches('0');
    SequenceNumber::parse(if significant.is_empty() { text } else { significant }).ok()
}

/// Returns the run, the mapping and the number of an attempt.
fn attempt_of(line: &str) -> Option<(i64, String, i64)> {
    let (run, batch) = (number_after(line, "\"run\":")?, number_after(line, "\"batch\":")?);
    Some((run, mapping_of(line)?.to_owned(), batch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_zeros_do_not_hide_a_record() {
        let line = r#"{"run":1,"invoked":{"mapping":"M","shard":"s","at_ms":0,"tick_ms":0,"batch":1,"attempt":1,"records":[["00042","id","k"]]}}"#;
        for (wanted, expected) in [("42", true), ("0042", true), ("00042", true), ("43", false)] {
            let mut filter = RecordFilter::new(vec![SequenceNumber::parse(wanted).unwrap()]);
            assert!(parsed_ends(line, "invoked").is_some());
            assert_eq!(filter.selects(line, "invoked"), expected, "{wanted}");
        }
    }
}
