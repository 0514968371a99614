//! The history of one record, for each mapping, collected from the journal.
//!
//! The module has no side effects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::batch::{Batch, is_part, names};
use super::entry::{Entry, Line, Messages, RecordName};
use mapping::SequenceNumber;

/// The history of one record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The record, if any line names it.
    pub record: Option<RecordName>,
    /// The shard, if any line names it.
    pub shard: Option<String>,
    /// Every mapping in the journal, by name.
    pub mappings: BTreeMap<String, MappingHistory>,
    /// The time of the oldest line. Nothing is known about earlier events.
    pub since_ms: Option<i64>,
    /// The shards in which records were trimmed before they were read, without duplicates.
    pub gaps: Vec<ShardLoss>,
}

/// A shard in which a mapping has lost records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardLoss {
    /// The mapping's name.
    pub mapping: String,
    /// The shard's id.
    pub shard: String,
    /// The store's time when the loss was first detected.
    pub at_ms: i64,
}

/// The history of the record in one mapping.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MappingHistory {
    /// The settings of the mapping in its last run.
    pub facts: MappingFacts,
    /// Whether the mapping was part of the last run.
    pub is_current: bool,
    /// The last run in which the mapping appears in the journal.
    run: u64,
    /// The reason why the filter rejected the record; `None` if the filter did not reject it.
    pub filter_rejection: Option<FilterRejection>,
    /// All attempts with the record or with other records of its first batch, in order.
    pub attempts: Vec<Attempt>,
    /// The discarded batch with the record; `None` if the record was not discarded.
    pub discarded: Option<DiscardedBatch>,
    /// The reason why discarded records of the record's shard could not be stored, after the last attempt.
    pub undelivered: Option<String>,
    /// The first and the last record of the first attempt.
    first_range: Option<(SequenceNumber, SequenceNumber)>,
    /// The first and last records of the batches whose range includes the record although they do
    /// not contain the record.
    others: BTreeSet<(String, String)>,
    /// The number of the mapping's reports that the journal lacks.
    pub missed: u64,
}

/// The settings of a mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MappingFacts {
    /// The function's name.
    pub function: String,
    /// The table's name.
    pub table: String,
    /// The stream's ARN.
    pub stream: String,
    /// The patterns of the mapping's filter.
    pub filters: Vec<String>,
    /// The bucket for discarded batches.
    pub bucket: Option<String>,
    /// The queue or topic for discarded batches.
    pub messages: Option<Messages>,
    /// Whether the function's response names the records to retry.
    pub report_batch_item_failures: bool,
    /// `StartingPosition`, as in templates.
    pub starting_position: Option<String>,
}

/// The reason why the filter rejected the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterRejection {
    /// For each pattern, one sentence that explains the rejection.
    Reasons(Vec<String>),
    /// The record is in a range of rejected records that the journal does not name individually.
    InRange {
        /// The shard of these records.
        shard: String,
        /// The number of these records.
        count: usize,
    },
}

/// An attempt to deliver a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The number of the run of `weir up`.
    pub run: u64,
    /// The number of the attempt, unique within the run.
    pub batch: u64,
    /// The number of attempts for these records so far, including this one.
    pub attempt: u32,
    /// The store's time of the attempt.
    pub at_ms: i64,
    tick_ms: u64,
    /// The sequence numbers of the attempt's records, which the histories of these records share.
    pub records: Arc<[String]>,
    /// The position of the requested record, if it is in this attempt.
    pub place: Option<usize>,
    /// The result; `None` while the attempt is running, or if the last run was killed during it.
    pub end: Option<End>,
    /// The request id in the function's log, if the journal has it.
    pub request: Option<String>,
}

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All records succeeded.
    Succeeded {
        /// The duration of the attempt in milliseconds.
        took_ms: u64,
    },
    /// Some records failed.
    Failed {
        /// The duration of the attempt in milliseconds.
        took_ms: u64,
        /// The number of records at the start of the batch that succeeded.
        done: usize,
        /// The reason why the attempt failed.
        reason: String,
    },
    /// The attempt has ended, but the journal has no result: `weir up` was killed, its poller
    /// crashed, or the journal lacks the report.
    Missed,
}

/// A batch of records that were discarded together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscardedBatch {
    /// `RetryAttemptsExhausted` or `RecordAgeExceeded`.
    pub condition: String,
    /// The key of the failure object.
    pub key: Option<String>,
    /// The number of records that were discarded together.
    pub count: usize,
    /// The shard of these records.
    pub shard: String,
}

impl Attempt {
    /// Returns whether the requested record succeeded in this attempt.
    #[must_use]
    pub fn has_done_it(&self) -> bool {
        match (&self.end, self.place) {
            (Some(End::Succeeded { .. }), Some(_)) => true,
            (Some(End::Failed { done, .. }), Some(place)) => place < *done,
            _ => false,
        }
    }
}

/// Collects the history of a record. `wanted` is its sequence number or event id.
#[must_use]
pub fn history_of(lines: impl Iterator<Item = Line>, wanted: &str) -> History {
    let mut history = History::default();
    let mut last_run = 0;
    for line in lines {
        last_run = line.run;
        history.take_in(&line, Batch::of(&line.entry).as_ref(), wanted);
    }
    history.finish(last_run);
    history
}

/// Collects the histories of several records, given their sequence numbers, in one pass over the
/// lines. Each history equals the result of [`history_of`].
#[must_use]
pub fn histories_of(lines: impl Iterator<Item = Line>, wanted: &[SequenceNumber]) -> Vec<History> {
    let mut histories = vec![History::default(); wanted.len()];
    let mut last_run = 0;
    for line in lines {
        last_run = line.run;
        let ends = ends(&line.entry);
        // A batch may have 10,000 records, so all histories share their sequence numbers.
        let mut batch = None;
        for (history, wanted) in histories.iter_mut().zip(wanted) {
            if history.is_about(&line, ends.as_ref(), wanted) {
                let batch = batch.get_or_insert_with(|| Batch::of(&line.entry));
                history.take_in(&line, batch.as_ref(), wanted.as_str());
            }
        }
    }
    histories.iter_mut().for_each(|history| history.finish(last_run));
    histories
}

/// Returns the first and the last record of a journal line about a range of records.
fn ends(entry: &Entry) -> Option<(SequenceNumber, SequenceNumber)> {
    let (first, last) = match entry {
        Entry::Invoked { records, .. } => (records.first()?.sequence(), records.last()?.sequence()),
        Entry::PassedOverMore { first, last, .. } => (first.as_str(), last.as_str()),
        Entry::PassedOver { record, .. } => (record.sequence(), record.sequence()),
        _ => return None,
    };
    SequenceNumber::parse(first).ok().zip(SequenceNumber::parse(last).ok())
}

impl History {
    /// Ends the collection: marks attempts of earlier runs without a result as missed.
    fn finish(&mut self, last_run: u64) {
        for mapping in self.mappings.values_mut() {
            mapping.is_current = mapping.run == last_run;
            for attempt in mapping.attempts.iter_mut().filter(|attempt| attempt.run < last_run) {
                attempt.end.get_or_insert(End::Missed);
            }
        }
    }

    /// Returns whether a line may change this history. `ends` are the first and the last record of the line.
    fn is_about(
        &self,
        line: &Line,
        ends: Option<&(SequenceNumber, SequenceNumber)>,
        wanted: &SequenceNumber,
    ) -> bool {
        let attempts = |mapping: &str| {
            self.mappings.get(mapping).map(|own| own.attempts.as_slice()).unwrap_or_default()
        };
        let includes = ends.is_some_and(|(first, last)| first <= wanted && wanted <= last);
        match &line.entry {
            Entry::PassedOver { .. } | Entry::PassedOverMore { .. } => includes,
            // A later attempt may contain a different part of the record's first batch.
            Entry::Invoked { mapping, .. } => {
                let own = self.mappings.get(mapping).and_then(|own| own.first_range.as_ref());
                includes
                    || own
                        .zip(ends)
                        .is_some_and(|((from, to), (first, _))| from <= first && first <= to)
            }
            Entry::Succeeded { mapping, batch, .. } | Entry::Failed { mapping, batch, .. } => {
                attempts(mapping).iter().any(|own| (own.run, own.batch) == (line.run, *batch))
            }
            _ => true,
        }
    }

    /// Adds a line. `batch` are the records of the line, if it is an invocation.
    fn take_in(&mut self, line: &Line, batch: Option<&Batch>, wanted: &str) {
        let run = line.run;
        match &line.entry {
            Entry::Run { at_ms, .. } => {
                self.since_ms.get_or_insert(*at_ms);
            }
            Entry::Mapping { .. } => self.introduced(run, &line.entry),
            Entry::PassedOver { mapping, shard, record, why, .. } => {
                if names(record, wanted) {
                    let own = self.of(mapping);
                    own.filter_rejection = Some(FilterRejection::Reasons(why.clone()));
                    self.record = Some(record.clone());
                    self.shard = Some(shard.clone());
                }
            }
            Entry::PassedOverMore { mapping, shard, first, last, count, .. } => {
                if self.may_be_in(shard) && is_between(self.sequence(wanted), first, last) {
                    let (shard, count) = (shard.clone(), *count);
                    let range = FilterRejection::InRange { shard, count };
                    self.of(mapping).filter_rejection.get_or_insert(range);
                }
            }
            Entry::Invoked { .. } => self.invoked(line, batch, wanted),
            Entry::Succeeded { mapping, tick_ms, batch } => {
                self.ended(mapping, run, *batch, |began| End::Succeeded {
                    took_ms: tick_ms.saturating_sub(began),
                });
            }
            Entry::Failed { mapping, tick_ms, batch, done, reason } => {
                self.ended(mapping, run, *batch, |began| {
                    let took_ms = tick_ms.saturating_sub(began);
                    End::Failed { took_ms, done: *done, reason: reason.clone() }
                });
            }
            Entry::GaveUp { mapping, shard, first, last, count, condition, key, .. } => {
                let is_here =
                    self.may_be_in(shard) && is_between(self.sequence(wanted), first, last);
                let own = self.of(mapping);
                if is_here && own.was_discarded(run, first, last) {
                    let (condition, key) = (condition.clone(), key.clone());
                    let (count, shard) = (*count, shard.clone());
                    own.discarded = Some(DiscardedBatch { condition, key, count, shard });
                }
            }
            Entry::DestinationUnavailable { mapping, shard, reason, .. } => {
                if self.shard.as_ref() == Some(shard) {
                    self.of(mapping).undelivered = Some(reason.clone());
                }
            }
            Entry::Gap { mapping, shard, at_ms, .. } => {
                if !self.gaps.iter().any(|gap| gap.mapping == *mapping && gap.shard == *shard) {
                    let (mapping, shard) = (mapping.clone(), shard.clone());
                    self.gaps.push(ShardLoss { mapping, shard, at_ms: *at_ms });
                }
            }
            Entry::Missed { mapping, count, .. } => self.of(mapping).missed += count,
        }
    }

    /// Returns the history in a mapping.
    fn of(&mut self, mapping: &str) -> &mut MappingHistory {
        self.mappings.entry(mapping.to_owned()).or_default()
    }

    /// Adds an invocation.
    fn invoked(&mut self, line: &Line, shared: Option<&Batch>, wanted: &str) {
        let run = line.run;
        let Entry::Invoked { mapping, shard, at_ms, tick_ms, batch, attempt, records, request } =
            &line.entry
        else {
            return;
        };
        let Some(shared) = shared else { return };
        let place = shared.place_of(records, wanted);
        if let Some(record) = place.and_then(|place| records.get(place)) {
            self.record = Some(record.clone());
            self.shard = Some(shard.clone());
        }
        let attempt = Attempt {
            run,
            batch: *batch,
            attempt: *attempt,
            at_ms: *at_ms,
            tick_ms: *tick_ms,
            records: Arc::clone(&shared.sequences),
            place,
            end: None,
            request: request.clone(),
        };
        let sequence = self.sequence(wanted).to_owned();
        self.of(mapping).attempted(attempt, &sequence);
    }

    fn introduced(&mut self, run: u64, entry: &Entry) {
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
        let own = self.of(mapping);
        own.run = run;
        own.facts = MappingFacts {
            function: function.clone(),
            table: table.clone(),
            stream: stream.clone(),
            filters: filters.clone(),
            bucket: bucket.clone(),
            messages: messages.clone(),
            report_batch_item_failures: *report_batch_item_failures,
            starting_position: starting_position.clone(),
        };
    }

    /// Returns the sequence number of the record. If `wanted` is an event id, the sequence number is
    /// known only after the first line with the record.
    fn sequence<'s>(&'s self, wanted: &'s str) -> &'s str {
        self.record.as_ref().map_or(wanted, |record| record.sequence())
    }

    /// Returns whether the record is in a shard. Returns true if its shard is unknown.
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
    /// Adds an attempt if it contains the record or other records of the record's first batch. The
    /// last invocation of a tumbling window has no records, so it is not added.
    fn attempted(&mut self, attempt: Attempt, sequence: &str) {
        let is_part =
            || self.attempts.first().is_some_and(|first| is_part(&attempt.records, &first.records));
        if attempt.place.is_none()
            && let (Some(first), Some(last)) = (attempt.records.first(), attempt.records.last())
            && is_between(sequence, first, last)
        {
            self.others.insert((first.clone(), last.clone()));
        }
        if attempt.place.is_some() || is_part() {
            self.undelivered = None;
            let ends = attempt.records.first().zip(attempt.records.last());
            let parse = |text: &String| SequenceNumber::parse(text).ok();
            if self.attempts.is_empty() {
                self.first_range = ends.and_then(|(first, last)| parse(first).zip(parse(last)));
            }
            // A record's attempts never overlap within a run, so an earlier open attempt was
            // interrupted.
            for earlier in self.attempts.iter_mut().filter(|earlier| earlier.run == attempt.run) {
                earlier.end.get_or_insert(End::Missed);
            }
            self.attempts.push(attempt);
        }
    }

    /// Returns whether the record is one of the records from `first` to `last`, which a batch of
    /// `run` discarded. An attempt with the record, `first` and `last` proves this. A record that
    /// was too old may have been discarded without an attempt in this run. Such a record counts as
    /// discarded because it is between `first` and `last`, unless the filter rejected it or the
    /// batch belongs to others.
    fn was_discarded(&self, run: u64, first: &str, last: &str) -> bool {
        if self.attempts.iter().any(Attempt::has_done_it) {
            return false;
        }
        let own = || self.attempts.iter().filter(|attempt| attempt.place.is_some());
        let has = |attempt: &Attempt, wanted: &str| attempt.records.iter().any(|it| it == wanted);
        if own().any(|attempt| has(attempt, first) && has(attempt, last)) {
            return true;
        }
        let is_other = self.others.contains(&(first.to_owned(), last.to_owned()));
        self.filter_rejection.is_none() && !is_other && own().all(|attempt| attempt.run < run)
    }
}

/// Returns whether a sequence number is between `first` and `last`, both inclusive.
#[must_use]
pub fn is_between(wanted: &str, first: &str, last: &str) -> bool {
    let parse = |text: &str| SequenceNumber::parse(text).ok();
    match (parse(wanted), parse(first), parse(last)) {
        (Some(wanted), Some(first), Some(last)) => first <= wanted && wanted <= last,
        _ => false,
    }
}
