//! Writes the events and reports of one mapping to the journal.
//!
//! The writer only observes, and does not affect the mapping.

use serde::Deserialize;

use super::entry::{Entry, RecordName};
use super::writer::Journal;
use crate::poller::{Observed, PageWatcher};
use mapping::{Command, Delivery, Event, FilterCriteria, ItemValues, Now, Record, ShardId};

/// The maximum number of rejected records of one page that are named individually. The limit is
/// sufficient for manual writes, and a bulk load does not wait until all its records are explained.
const NAMED_PER_PAGE_MAX: usize = 200;

/// The writer of one mapping's events to the journal.
#[derive(Clone, Debug)]
pub struct MappingJournal {
    journal: Journal,
    mapping: String,
    filter: FilterCriteria,
}

impl MappingJournal {
    /// Creates the writer of a mapping with this filter.
    #[must_use]
    pub fn new(journal: Journal, mapping: &str, filter: FilterCriteria) -> Self {
        Self { journal, mapping: mapping.to_owned(), filter }
    }

    /// Writes an event of the mapping.
    pub fn write(&self, observed: &Observed) {
        let (mapping, now) = (&self.mapping, observed.now);
        let missed = (observed.missed > 0).then(|| Entry::Missed {
            mapping: mapping.clone(),
            at_ms: now.time_ms,
            count: observed.missed,
        });
        let entry = match &observed.command {
            Command::Invoke { shard, batch, attempt, records, .. } => Some(Entry::Invoked {
                mapping: mapping.clone(),
                shard: shard.as_str().to_owned(),
                at_ms: now.time_ms,
                tick_ms: now.tick_ms,
                batch: batch.0,
                attempt: *attempt,
                records: records.iter().map(|record| name_of_delivery(record)).collect(),
                request: observed.request.as_deref().map(str::to_owned),
            }),
            Command::Report(event) => self.entry_of(event, now),
            _ => None,
        };
        if missed.is_some() || entry.is_some() {
            self.journal.write(missed.into_iter().chain(entry));
        }
    }

    fn entry_of(&self, event: &Event, now: Now) -> Option<Entry> {
        let mapping = self.mapping.clone();
        let (at_ms, tick_ms) = (now.time_ms, now.tick_ms);
        match event {
            Event::Succeeded { batch, .. } => {
                Some(Entry::Succeeded { mapping, tick_ms, batch: batch.0 })
            }
            Event::Failed { batch, done, reason, .. } => Some(Entry::Failed {
                mapping,
                tick_ms,
                batch: batch.0,
                done: *done,
                reason: reason.clone(),
            }),
            Event::Discarded { shard, first, last, count, condition, key, .. } => {
                Some(Entry::GaveUp {
                    mapping,
                    shard: shard.as_str().to_owned(),
                    at_ms,
                    first: first.as_str().to_owned(),
                    last: last.as_str().to_owned(),
                    count: *count,
                    condition: condition.as_str().to_owned(),
                    key: key.clone(),
                })
            }
            Event::DestinationUnavailable { shard, reason } => {
                Some(Entry::DestinationUnavailable {
                    mapping,
                    shard: shard.as_str().to_owned(),
                    at_ms,
                    reason: reason.clone(),
                })
            }
            Event::Gap { shard, reason, .. } => Some(Entry::Gap {
                mapping,
                shard: shard.as_str().to_owned(),
                at_ms,
                reason: reason.clone(),
            }),
            _ => None,
        }
    }
}

impl PageWatcher for MappingJournal {
    fn page(&self, shard: &ShardId, records: &[Record], now: Now) {
        let refused: Vec<&Record> =
            records.iter().filter(|record| !self.filter.passes(record)).collect();
        let (named, more) = refused.split_at(refused.len().min(NAMED_PER_PAGE_MAX));
        let named = named.iter().map(|record| Entry::PassedOver {
            mapping: self.mapping.clone(),
            shard: shard.as_str().to_owned(),
            at_ms: now.time_ms,
            record: name_of_record(record),
            why: self.filter.explain(record.event(), ItemValues::Typed),
        });
        let more = more.first().zip(more.last()).map(|(first, last)| Entry::PassedOverMore {
            mapping: self.mapping.clone(),
            shard: shard.as_str().to_owned(),
            at_ms: now.time_ms,
            first: first.sequence.as_str().to_owned(),
            last: last.sequence.as_str().to_owned(),
            count: more.len(),
        });
        if !refused.is_empty() {
            self.journal.write(named.chain(more));
        }
    }
}

fn name_of_record(record: &Record) -> RecordName {
    let text = |name: &str| record.event().get(name).and_then(|value| value.as_str());
    RecordName(
        record.sequence.as_str().to_owned(),
        text("eventID").unwrap_or_default().to_owned(),
        text("eventName").unwrap_or_default().to_owned(),
    )
}

fn name_of_delivery(record: &Delivery) -> RecordName {
    let sequence = record.sequence.as_str().to_owned();
    match names_in_front(&record.json) {
        Some((id, name)) => RecordName(sequence, id.to_owned(), name.to_owned()),
        None => {
            let (id, name) = names_anywhere(&record.json);
            RecordName(sequence, id, name)
        }
    }
}

/// Returns `eventID` and `eventName`. The poller writes these fields first, so the items need not be
/// parsed.
fn names_in_front(json: &str) -> Option<(&str, &str)> {
    let (id, rest) = json.strip_prefix("{\"eventID\":\"")?.split_once('"')?;
    let (name, _) = rest.strip_prefix(",\"eventName\":\"")?.split_once('"')?;
    (!id.contains('\\') && !name.contains('\\')).then_some((id, name))
}

fn names_anywhere(json: &str) -> (String, String) {
    #[derive(Default, Deserialize)]
    struct Names {
        #[serde(rename = "eventID", default)]
        id: String,
        #[serde(rename = "eventName", default)]
        name: String,
    }
    let names: Names = serde_json::from_str(json).unwrap_or_default();
    (names.id, names.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_wherever_they_stand() {
        for (json, expected) in [
            (r#"{"eventID":"7","eventName":"INSERT","dynamodb":{}}"#, Some(("7", "INSERT"))),
            (r#"{"eventID":"","eventName":""}"#, Some(("", ""))),
            (r#"{"eventName":"INSERT","eventID":"7"}"#, None),
            (r#"{"eventID":"\u0037","eventName":"INSERT"}"#, None),
            (r#"{"eventID":"7","eventName":"INSE\u0052T"}"#, None),
            (r#"{"eventID": "7","eventName":"INSERT"}"#, None),
            (r#"{"eventID":"7","dynamodb":{},"eventName":"INSERT"}"#, None),
        ] {
            assert_eq!(names_in_front(json), expected, "{json}");
            let (id, name) = names_anywhere(json);
            if let Some(expected) = expected {
                assert_eq!((&*id, &*name), expected, "{json}");
            } else {
                assert_eq!((&*id, &*name), ("7", "INSERT"), "{json}");
            }
        }
        assert_eq!(names_in_front("{}"), None);
    }
}
