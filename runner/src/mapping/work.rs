//! The work of one shard: form a batch, invoke, and deal with the outcome until every record of
//! it is done or given up.
//!
//! It does not read, filter, or know other shards. At most one attempt is under way.
//!
//! Choices where Lambda's documentation is silent:
//!
//! - **The retry count starts again when the checkpoint has moved.** AWS, recorded with
//!   `MaximumRetryAttempts` 3: a batch of three of which the last failed, then that record alone
//!   four more times, reported with `approximateInvokeCount` 4.
//! - An answer that cannot be believed counts as a function error, so it bisects too. An answer
//!   that names the first record does not bisect: the split that it asks for is the whole batch.
//! - Both halves of a bisected batch keep the retry count, which the split did not raise.
//! - A batch that failed waits before its next attempt: 100 ms, doubled at each attempt, at most
//!   30 s, in this runner's default pace. Parts of a batch wait as after a first failure.
//! - The batching window opens when the previous invocation is over; if it passes without a
//!   record, the next record opens another.
//! - Without a maximum age, records that were tried are given up when they are older than the
//!   24 hours that a stream keeps them. A record that was never tried is always tried once.

use std::collections::VecDeque;
use std::sync::Arc;

use super::back_off;
use super::command::{BatchId, Command, DeliveryId, Event, InvokeOutcome, ShardId};
use super::context::Context;
use super::failure::{Condition, FailureObject, GivenUp};
use super::queue::{Pending, Queue};
use super::record::Delivery;
use super::response::{self, Answer};
use super::sequence::SequenceNumber;

/// How long a stream keeps a record (DynamoDB), in milliseconds.
pub const RETENTION_MS: i64 = 24 * 60 * 60 * 1000;

/// Records that are tried together: a batch, or a part of one.
#[derive(Debug, Clone, Default)]
struct Segment {
    /// Never empty.
    records: Vec<Pending>,
    /// Attempts that reached the function and failed, since the checkpoint moved last.
    failures: u32,
    /// Attempts in a row that did not reach the function.
    not_invoked: u32,
    /// It was delivered once more on purpose.
    duplicated: bool,
    /// `X-Amz-Function-Error` of the last attempt.
    function_error: Option<String>,
}

/// What the first segment waits for.
#[derive(Debug, Clone)]
enum Stage {
    /// There is no segment.
    Idle,
    Ready,
    InFlight(BatchId),
    RetryAt(u64),
    /// It was given up, and the destination stores it.
    Delivering(Delivering),
    /// It was given up, and the destination will be tried again.
    DeliverAt(u64, Delivering),
}

#[derive(Debug, Clone)]
struct Delivering {
    delivery: DeliveryId,
    condition: Condition,
    object: Arc<FailureObject>,
    failures: u32,
}

/// The work of one shard.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) queue: Queue,
    /// The parts of the present batch, ascending; the first is being tried.
    segments: VecDeque<Segment>,
    stage: Stage,
    window_opened: u64,
    /// The last record that is done, with everything before it.
    checkpoint: Option<SequenceNumber>,
}

impl Work {
    pub(super) fn new(checkpoint: Option<SequenceNumber>) -> Self {
        Self {
            queue: Queue::default(),
            segments: VecDeque::new(),
            stage: Stage::Idle,
            window_opened: 0,
            checkpoint,
        }
    }

    pub(super) fn checkpoint(&self) -> Option<&SequenceNumber> {
        self.checkpoint.as_ref()
    }

    /// Whether every record that was taken in is done or given up.
    pub(super) fn is_done(&self) -> bool {
        self.queue.is_empty() && self.segments.is_empty()
    }

    /// Whether something is under way outside.
    pub(super) fn is_in_flight(&self) -> bool {
        matches!(self.stage, Stage::InFlight(_) | Stage::Delivering(_))
    }

    /// The records of the attempt that is under way.
    pub(super) fn in_flight(&self) -> usize {
        let first = self.segments.front().filter(|_| matches!(self.stage, Stage::InFlight(_)));
        first.map_or(0, |segment| segment.records.len())
    }

    /// The records that are neither done nor given up.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len() + self.segments.iter().map(|part| part.records.len()).sum::<usize>()
    }

    /// The attempts that failed for the records that are tried now.
    pub(super) fn failed_attempts(&self) -> u32 {
        self.segments.front().map_or(0, |part| part.failures.saturating_add(part.not_invoked))
    }

    /// The record that is next to be done.
    pub(super) fn oldest(&self) -> Option<&Arc<Delivery>> {
        let tried = self.segments.front().and_then(|part| part.records.first());
        tried.or_else(|| self.queue.first()).map(|pending| &pending.record)
    }

    /// Takes in a record that passed the filter.
    pub(super) fn accept(&mut self, record: Delivery, context: &Context<'_>) {
        if self.is_done() {
            let window_ms = context.settings.batching_window_ms;
            if self.window_opened.saturating_add(window_ms) <= context.now.tick_ms {
                self.window_opened = context.now.tick_ms;
            }
        }
        self.queue.push(record);
    }

    /// Takes note of a record that did not pass the filter: it is done once every record before
    /// it is. Returns whether that is so already.
    pub(super) fn pass_over(&mut self, sequence: SequenceNumber) -> bool {
        let in_segment = self.segments.back_mut().and_then(|part| part.records.last_mut());
        match self.queue.last_mut().or(in_segment) {
            Some(before) => {
                before.finishes = sequence;
                false
            }
            None => {
                self.checkpoint = Some(sequence);
                true
            }
        }
    }

    /// When something is due without further input; `None` if nothing is.
    pub(super) fn deadline(&self, context: &Context<'_>) -> Option<u64> {
        match self.stage {
            Stage::RetryAt(tick_ms) | Stage::DeliverAt(tick_ms, _) => Some(tick_ms),
            Stage::Idle if !self.queue.is_empty() => {
                Some(self.window_opened.saturating_add(context.settings.batching_window_ms))
            }
            _ => None,
        }
    }

    /// Does whatever can be done now. `ended`: no further record will come.
    /// Each turn of the loop invokes and stops, or gives up at least one record.
    pub(super) fn advance(&mut self, shard: &ShardId, ended: bool, context: &mut Context<'_>) {
        while !context.stopping {
            match &self.stage {
                Stage::Idle => {
                    if !self.is_batch_due(ended, context) {
                        return;
                    }
                    let records = self.queue.take_batch(context.settings.batch_size);
                    self.segments.push_back(Segment { records, ..Segment::default() });
                    self.stage = Stage::Ready;
                }
                Stage::Ready => {
                    if !self.give_up_aged(shard, context) {
                        self.invoke(shard, context);
                        return;
                    }
                }
                Stage::InFlight(_) | Stage::Delivering(_) => return,
                Stage::RetryAt(tick_ms) => {
                    if context.now.tick_ms < *tick_ms {
                        return;
                    }
                    self.stage = Stage::Ready;
                }
                Stage::DeliverAt(tick_ms, delivering) => {
                    if context.now.tick_ms >= *tick_ms {
                        let delivering = delivering.clone();
                        self.deliver(shard, delivering, context);
                    }
                    return;
                }
            }
        }
    }

    fn is_batch_due(&self, ended: bool, context: &Context<'_>) -> bool {
        let settings = context.settings;
        let window_end = self.window_opened.saturating_add(settings.batching_window_ms);
        !self.queue.is_empty()
            && (ended
                || context.now.tick_ms >= window_end
                || self.queue.holds_full_batch(settings.batch_size))
    }

    /// Cuts the first segment so that all its records are aged or none is; gives it up in the
    /// first case. Returns whether it did.
    fn give_up_aged(&mut self, shard: &ShardId, context: &mut Context<'_>) -> bool {
        let Some(first) = self.segments.front_mut() else { return false };
        let tried = first.failures > 0 || first.not_invoked > 0;
        let age_max = match context.settings.record_age_ms {
            Some(age) => age.min(RETENTION_MS),
            None if tried => RETENTION_MS,
            None => return false,
        };
        let time_ms = context.now.time_ms;
        let is_aged =
            |pending: &Pending| pending.record.age_ms(time_ms).is_some_and(|age| age > age_max);
        let aged = first.records.first().is_some_and(is_aged);
        let run = first.records.iter().take_while(|pending| is_aged(pending) == aged).count();
        self.cut_first(run);
        if aged {
            self.give_up(shard, Condition::RecordAgeExceeded, context);
        }
        aged
    }

    /// Cuts the first segment after `count` records; both parts keep its history.
    fn cut_first(&mut self, count: usize) {
        let Some(first) = self.segments.front_mut() else { return };
        if count == 0 || count >= first.records.len() {
            return;
        }
        let rest = first.records.split_off(count);
        let rest = Segment { records: rest, ..first.without_records() };
        self.segments.insert(1, rest);
    }

    fn invoke(&mut self, shard: &ShardId, context: &mut Context<'_>) {
        let Some(first) = self.segments.front() else { return };
        let batch = context.next_batch_id();
        context.totals.invocations += 1;
        context.commands.push(Command::Invoke {
            shard: shard.clone(),
            batch,
            attempt: first.failures.saturating_add(first.not_invoked).saturating_add(1),
            records: first.records.iter().map(|pending| Arc::clone(&pending.record)).collect(),
        });
        self.stage = Stage::InFlight(batch);
    }

    /// Deals with the outcome of an attempt. Returns whether it was this shard's.
    pub(super) fn invoked(
        &mut self,
        shard: &ShardId,
        batch: BatchId,
        outcome: &InvokeOutcome,
        context: &mut Context<'_>,
    ) -> bool {
        if !matches!(self.stage, Stage::InFlight(in_flight) if in_flight == batch) {
            return false;
        }
        let Some(first) = self.segments.front_mut() else { return false };
        let answer = match outcome {
            InvokeOutcome::Ok(payload) => {
                first.function_error = None;
                let sequences: Vec<_> =
                    first.records.iter().map(|pending| &pending.record.sequence).collect();
                let reporting = context.settings.report_batch_item_failures;
                response::read_answer(payload, reporting, &sequences)
            }
            InvokeOutcome::FunctionError { kind, message, .. } => {
                first.function_error = Some(kind.clone());
                Answer::Failed(format!("{kind} function error: {message}"))
            }
            InvokeOutcome::NotInvoked(reason) => {
                context.totals.not_invoked += 1;
                first.not_invoked = first.not_invoked.saturating_add(1);
                let attempt = first.not_invoked;
                let reason = format!("not invoked: {reason}");
                report_failure(shard, batch, 0, reason, context);
                self.retry(shard, attempt, context);
                return true;
            }
        };
        first.not_invoked = 0;
        match answer {
            Answer::Complete => self.complete(shard, batch, context),
            Answer::From(index) => self.complete_until(shard, batch, index, context),
            Answer::Failed(reason) => {
                report_failure(shard, batch, 0, reason, context);
                context.totals.failures += 1;
                self.bisect_or_retry(shard, context);
            }
        }
        true
    }

    fn complete(&mut self, shard: &ShardId, batch: BatchId, context: &mut Context<'_>) {
        let Some(first) = self.segments.front_mut() else { return };
        let count = first.records.len();
        context.report(Event::Succeeded { shard: shard.clone(), batch, count });
        if context.settings.faults.duplicate_delivery && !first.duplicated {
            first.duplicated = true;
            context.report(Event::Duplicating { shard: shard.clone(), batch });
            self.stage = Stage::Ready;
            return;
        }
        context.totals.done += count as u64;
        self.finish(shard, count, context);
    }

    /// The records before `index` are done. If there are any, the rest is a new beginning.
    fn complete_until(
        &mut self,
        shard: &ShardId,
        batch: BatchId,
        index: usize,
        context: &mut Context<'_>,
    ) {
        let Some(from) = self.segments.front().and_then(|first| first.records.get(index)) else {
            return;
        };
        let reason = format!("the function reported {} as failed", from.record.sequence);
        report_failure(shard, batch, index, reason, context);
        context.totals.failures += 1;
        context.totals.done += index as u64;
        if index == 0 {
            self.count_failure(shard, context);
            return;
        }
        self.finish(shard, index, context);
        if let Some(rest) = self.segments.front_mut() {
            rest.failures = 0;
        }
        self.retry(shard, 1, context);
    }

    fn bisect_or_retry(&mut self, shard: &ShardId, context: &mut Context<'_>) {
        let Some(first) = self.segments.front() else { return };
        let half = first.records.len().div_ceil(2);
        let cut = first.records.get(half.saturating_sub(1));
        let bisect = context.settings.bisect_on_function_error && first.records.len() > 1;
        let (true, Some(cut)) = (bisect, cut) else {
            self.count_failure(shard, context);
            return;
        };
        let after = cut.record.sequence.clone();
        context.report(Event::Split { shard: shard.clone(), after });
        self.cut_first(half);
        self.retry(shard, 1, context);
    }

    fn count_failure(&mut self, shard: &ShardId, context: &mut Context<'_>) {
        let Some(first) = self.segments.front_mut() else { return };
        first.failures = first.failures.saturating_add(1);
        let failures = first.failures;
        match context.settings.retry_attempts {
            Some(retries) if failures > retries => {
                self.give_up(shard, Condition::RetryAttemptsExhausted, context);
            }
            _ => self.retry(shard, failures, context),
        }
    }

    fn retry(&mut self, shard: &ShardId, attempt: u32, context: &mut Context<'_>) {
        let seed = back_off::seed_of(shard.as_str());
        let delay_ms = context.settings.pace.retry.delay_ms(attempt, seed);
        let tick_ms = context.now.tick_ms.saturating_add(delay_ms);
        self.stage = Stage::RetryAt(tick_ms);
        context.report(Event::RetryScheduled { shard: shard.clone(), tick_ms });
    }

    fn give_up(&mut self, shard: &ShardId, condition: Condition, context: &mut Context<'_>) {
        if !context.settings.has_failure_destination {
            self.finish_given_up(shard, condition, None, context);
            return;
        }
        let Some(first) = self.segments.front() else { return };
        let records: Vec<_> =
            first.records.iter().map(|pending| Arc::clone(&pending.record)).collect();
        let given_up = GivenUp {
            shard,
            records: &records,
            condition,
            invocations: first.failures,
            function_error: first.function_error.as_deref(),
            time_ms: context.now.time_ms,
        };
        let object = Arc::new(given_up.object(context.settings));
        let delivery = context.next_delivery_id();
        let delivering = Delivering { delivery, condition, object, failures: 0 };
        self.deliver(shard, delivering, context);
    }

    fn deliver(&mut self, shard: &ShardId, delivering: Delivering, context: &mut Context<'_>) {
        context.commands.push(Command::DeliverFailure {
            shard: shard.clone(),
            delivery: delivering.delivery,
            object: Arc::clone(&delivering.object),
        });
        self.stage = Stage::Delivering(delivering);
    }

    /// Deals with the outcome of a hand-over; `refused` says why it was not stored.
    /// Returns whether it was this shard's.
    pub(super) fn delivered(
        &mut self,
        shard: &ShardId,
        delivery: DeliveryId,
        refused: Option<&str>,
        context: &mut Context<'_>,
    ) -> bool {
        let mut delivering = match &self.stage {
            Stage::Delivering(delivering) if delivering.delivery == delivery => delivering.clone(),
            _ => return false,
        };
        let Some(reason) = refused else {
            let key = Some(delivering.object.key.clone());
            self.finish_given_up(shard, delivering.condition, key, context);
            return true;
        };
        let reason = reason.to_owned();
        context.report(Event::DestinationUnavailable { shard: shard.clone(), reason });
        if self.is_first_expired(context) {
            // The stream no longer has these records either: nothing is gained by waiting.
            self.finish_given_up(shard, delivering.condition, None, context);
            return true;
        }
        delivering.failures = delivering.failures.saturating_add(1);
        let seed = back_off::seed_of(shard.as_str());
        let delay_ms = context.settings.pace.reach.delay_ms(delivering.failures, seed);
        let tick_ms = context.now.tick_ms.saturating_add(delay_ms);
        self.stage = Stage::DeliverAt(tick_ms, delivering);
        true
    }

    fn is_first_expired(&self, context: &Context<'_>) -> bool {
        let newest = self.segments.front().and_then(|part| part.records.last());
        let age = newest.and_then(|pending| pending.record.age_ms(context.now.time_ms));
        age.is_some_and(|age| age > RETENTION_MS)
    }

    fn finish_given_up(
        &mut self,
        shard: &ShardId,
        condition: Condition,
        key: Option<String>,
        context: &mut Context<'_>,
    ) {
        let records = self.segments.front().map(|part| part.records.as_slice());
        let Some(([first, ..], [.., last])) = records.map(|records| (records, records)) else {
            return;
        };
        let (first, last) = (first.record.sequence.clone(), last.record.sequence.clone());
        let count = records.map_or(0, <[_]>::len);
        context.totals.given_up += count as u64;
        let shard_id = shard.clone();
        context.report(Event::GaveUp { shard: shard_id, first, last, count, condition, key });
        self.finish(shard, count, context);
    }

    /// Moves the checkpoint past the first `count` records of the first segment.
    fn finish(&mut self, shard: &ShardId, count: usize, context: &mut Context<'_>) {
        let Some(first) = self.segments.front_mut() else { return };
        let Some(last) = first.records.drain(..count.min(first.records.len())).next_back() else {
            return;
        };
        self.checkpoint = Some(last.finishes.clone());
        let position = super::CheckpointPosition::After(last.finishes);
        context.commands.push(Command::Checkpoint { shard: shard.clone(), position });
        if first.records.is_empty() {
            self.segments.pop_front();
        }
        if self.segments.is_empty() {
            self.stage = Stage::Idle;
            self.window_opened = context.now.tick_ms;
        } else {
            self.stage = Stage::Ready;
        }
    }
}

impl Segment {
    fn without_records(&self) -> Self {
        Self {
            records: Vec::new(),
            failures: self.failures,
            not_invoked: self.not_invoked,
            duplicated: self.duplicated,
            function_error: self.function_error.clone(),
        }
    }
}

fn report_failure(
    shard: &ShardId,
    batch: BatchId,
    done: usize,
    reason: String,
    context: &mut Context<'_>,
) {
    context.report(Event::Failed { shard: shard.clone(), batch, done, reason });
}
