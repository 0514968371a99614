//! What the journal knows about one record, put together for each mapping.
//!
//! Pure: lines in, a history out.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::{Entry, Line, Messages, RecordName};
use mapping::SequenceNumber;

/// The history of one record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The record, if any line names it.
    pub record: Option<RecordName>,
    /// The shard, if any line names it.
    pub shard: Option<String>,
    /// Every mapping that the journal knows, by name.
    pub mappings: BTreeMap<String, MappingHistory>,
    /// The time of the oldest line; what was before is not known here.
    pub since_ms: Option<i64>,
    /// Where records were trimmed before they were read, whichever they were: no two of one shard.
    pub gaps: Vec<LostIn>,
}

/// A shard of which a mapping has lost records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostIn {
    /// The mapping.
    pub mapping: String,
    /// The shard.
    pub shard: String,
    /// When it was seen first, in the store's time.
    pub at_ms: i64,
}

/// What one mapping did with the record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MappingHistory {
    /// What the mapping is, as of its last run.
    pub facts: MappingFacts,
    /// Whether the mapping ran in the last run.
    pub is_current: bool,
    /// The last run that the journal knows the mapping from.
    run: u64,
    /// The filter refused the record.
    pub passed_over: Option<PassedOver>,
    /// Every attempt with the record, and those with the other records of its first batch, in
    /// order.
    pub attempts: Vec<Attempt>,
    /// It was given up.
    pub given_up: Option<GivenUp>,
    /// Why what was given up in the record's shard could not be stored, after the last attempt.
    pub undelivered: Option<String>,
    /// The first and last records of batches that reach over the record and do not have it.
    others: BTreeSet<(String, String)>,
    /// Reports of the mapping that are missing in the journal.
    pub missed: u64,
}

/// What a mapping is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MappingFacts {
    /// The function's name.
    pub function: String,
    /// The table's name.
    pub table: String,
    /// The stream's ARN.
    pub stream: String,
    /// The patterns of its filter.
    pub filters: Vec<String>,
    /// The bucket for what is given up.
    pub bucket: Option<String>,
    /// The queue or topic for it.
    pub messages: Option<Messages>,
    /// Whether the function's answer names the records to retry.
    pub report_batch_item_failures: bool,
    /// `StartingPosition`, as templates write it.
    pub starting_position: Option<String>,
}

/// Why the filter refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PassedOver {
    /// One sentence for each pattern.
    Why(Vec<String>),
    /// It is among records of one page that were not named one by one.
    Among {
        /// The shard that they are in.
        shard: String,
        /// How many.
        count: usize,
    },
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The run.
    pub run: u64,
    /// Its number.
    pub batch: u64,
    /// Which attempt it was for its records, from 1.
    pub attempt: u32,
    /// When, in the store's time.
    pub at_ms: i64,
    tick_ms: u64,
    /// The sequence numbers of its records.
    pub records: Vec<String>,
    /// The place of the record that is asked for, if it is in this attempt.
    pub place: Option<usize>,
    /// How it ended; `None` while it runs, or if its run, the last one, was cut off.
    pub end: Option<End>,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All records are done.
    Succeeded {
        /// After this time.
        took_ms: u64,
    },
    /// Some records are not done.
    Failed {
        /// After this time.
        took_ms: u64,
        /// Records at its start that are done.
        done: usize,
        /// Why.
        reason: String,
    },
    /// Its run is over, and no line says how it ended: `weir up` was killed, or the journal misses the
    /// report.
    Missed,
}

/// How records were given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// `RetryAttemptsExhausted` or `RecordAgeExceeded`.
    pub condition: String,
    /// The key of the failure object.
    pub key: Option<String>,
    /// How many records with it.
    pub count: usize,
    /// The shard that they are in.
    pub shard: String,
}

impl Attempt {
    /// Whether the record that is asked for is done by this attempt.
    #[must_use]
    pub fn has_done_it(&self) -> bool {
        match (&self.end, self.place) {
            (Some(End::Succeeded { .. }), Some(_)) => true,
            (Some(End::Failed { done, .. }), Some(place)) => place < *done,
            _ => false,
        }
    }
}

/// Gathers what is known of a record, which is named by its sequence number or event id.
#[must_use]
pub fn history_of(lines: impl Iterator<Item = Line>, wanted: &str) -> History {
    let mut history = History::default();
    let mut last_run = 0;
    for line in lines {
        last_run = line.run;
        history.take_in(line, wanted);
    }
    for mapping in history.mappings.values_mut() {
        mapping.is_current = mapping.run == last_run;
        for attempt in mapping.attempts.iter_mut().filter(|attempt| attempt.run < last_run) {
            attempt.end.get_or_insert(End::Missed);
        }
    }
    history
}

impl History {
    fn take_in(&mut self, line: Line, wanted: &str) {
        let run = line.run;
        match line.entry {
            Entry::Run { at_ms, .. } => {
                self.since_ms.get_or_insert(at_ms);
            }
            Entry::Mapping { .. } => self.introduced(run, line.entry),
            Entry::PassedOver { mapping, shard, record, why, .. } => {
                if names(&record, wanted) {
                    let own = self.mappings.entry(mapping).or_default();
                    own.passed_over = Some(PassedOver::Why(why));
                    self.record = Some(record);
                    self.shard = Some(shard);
                }
            }
            Entry::PassedOverMore { mapping, shard, first, last, count, .. } => {
                if self.may_be_in(&shard) && is_between(self.sequence(wanted), &first, &last) {
                    let own = self.mappings.entry(mapping).or_default();
                    own.passed_over.get_or_insert(PassedOver::Among { shard, count });
                }
            }
            Entry::Invoked { mapping, shard, at_ms, tick_ms, batch, attempt, records } => {
                let place = records.iter().position(|record| names(record, wanted));
                if let Some(record) = place.and_then(|place| records.get(place)) {
                    self.record = Some(record.clone());
                    self.shard = Some(shard);
                }
                let records = records.into_iter().map(|record| record.0).collect();
                let end = None;
                let attempt = Attempt { run, batch, attempt, at_ms, tick_ms, records, place, end };
                let sequence = self.sequence(wanted).to_owned();
                self.mappings.entry(mapping).or_default().attempted(attempt, &sequence);
            }
            Entry::Succeeded { mapping, tick_ms, batch } => {
                self.ended(&mapping, run, batch, |began| End::Succeeded {
                    took_ms: tick_ms.saturating_sub(began),
                });
            }
            Entry::Failed { mapping, tick_ms, batch, done, reason } => {
                self.ended(&mapping, run, batch, |began| {
                    let took_ms = tick_ms.saturating_sub(began);
                    End::Failed { took_ms, done, reason }
                });
            }
            Entry::GaveUp { mapping, shard, first, last, count, condition, key, .. } => {
                let is_here =
                    self.may_be_in(&shard) && is_between(self.sequence(wanted), &first, &last);
                let own = self.mappings.entry(mapping).or_default();
                if is_here && own.was_given_up(run, &first, &last) {
                    own.given_up = Some(GivenUp { condition, key, count, shard });
                }
            }
            Entry::DestinationUnavailable { mapping, shard, reason, .. } => {
                if self.shard.as_deref() == Some(&shard) {
                    self.mappings.entry(mapping).or_default().undelivered = Some(reason);
                }
            }
            Entry::Gap { mapping, shard, at_ms, .. } => {
                if !self.gaps.iter().any(|gap| gap.mapping == mapping && gap.shard == shard) {
                    self.gaps.push(LostIn { mapping, shard, at_ms });
                }
            }
            Entry::Missed { mapping, count, .. } => {
                self.mappings.entry(mapping).or_default().missed += count;
            }
        }
    }

    fn introduced(&mut self, run: u64, entry: Entry) {
        let Entry::Mapping {
            mapping,
            function,
            table,
            stream,
            filters,
            bucket,
            messages,
            report_batch_item_failures,
            starting_position,
        } = entry
        else {
            return;
        };
        let own = self.mappings.entry(mapping).or_default();
        own.run = run;
        own.facts = MappingFacts {
            function,
            table,
            stream,
            filters,
            bucket,
            messages,
            report_batch_item_failures,
            starting_position,
        };
    }

    /// The sequence number, as far as a record that is named by its event id was met.
    fn sequence<'s>(&'s self, wanted: &'s str) -> &'s str {
        self.record.as_ref().map_or(wanted, |record| record.sequence())
    }

    /// Whether the record is in a shard, as far as its shard is known.
    fn may_be_in(&self, shard: &str) -> bool {
        self.shard.as_deref().is_none_or(|own| own == shard)
    }

    fn ended(&mut self, mapping: &str, run: u64, batch: u64, end: impl FnOnce(u64) -> End) {
        let Some(own) = self.mappings.get_mut(mapping) else { return };
        let attempt = own.attempts.iter_mut().rev().find(|it| (it.run, it.batch) == (run, batch));
        if let Some(attempt) = attempt {
            attempt.end = Some(end(attempt.tick_ms));
        }
    }
}

impl MappingHistory {
    /// Keeps an attempt with the record, and one with a part of the batch that the record was in
    /// first. The last invocation of a tumbling window has no records, and is no part of a batch.
    fn attempted(&mut self, attempt: Attempt, sequence: &str) {
        let is_part = !attempt.records.is_empty()
            && self.attempts.first().is_some_and(|first| {
                attempt.records.iter().all(|record| first.records.contains(record))
            });
        if attempt.place.is_none()
            && let (Some(first), Some(last)) = (attempt.records.first(), attempt.records.last())
            && is_between(sequence, first, last)
        {
            self.others.insert((first.clone(), last.clone()));
        }
        if attempt.place.is_some() || is_part {
            self.undelivered = None;
            self.attempts.push(attempt);
        }
    }

    /// Whether the record is among those from `first` to `last` that were given up: what was tried
    /// with it has both of them. A record that this run of `weir up` gave up before it had tried it, as
    /// it was too old, is known by its place alone, unless the filter refused it or another batch reaches
    /// over it: runs cut other batches.
    fn was_given_up(&self, run: u64, first: &str, last: &str) -> bool {
        if self.attempts.iter().any(Attempt::has_done_it) {
            return false;
        }
        let own = || self.attempts.iter().filter(|attempt| attempt.place.is_some());
        let has = |attempt: &Attempt, wanted: &str| attempt.records.iter().any(|it| it == wanted);
        if own().any(|attempt| has(attempt, first) && has(attempt, last)) {
            return true;
        }
        let is_other = self.others.contains(&(first.to_owned(), last.to_owned()));
        self.passed_over.is_none() && !is_other && own().all(|attempt| attempt.run < run)
    }
}

/// Whether a record is the one that is wanted; the archive writes its number with zeros before it.
fn names(record: &RecordName, wanted: &str) -> bool {
    let number = record.sequence().trim_start_matches('0');
    record.event_id() == wanted || number == wanted.trim_start_matches('0')
}

/// Whether a sequence number is from `first` to `last`, both inclusive.
#[must_use]
pub fn is_between(wanted: &str, first: &str, last: &str) -> bool {
    let parse = |text: &str| SequenceNumber::parse(text).ok();
    match (parse(wanted), parse(first), parse(last)) {
        (Some(wanted), Some(first), Some(last)) => first <= wanted && wanted <= last,
        _ => false,
    }
}
