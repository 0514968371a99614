//! One lane of a shard: forms a batch, invokes the function, and handles the outcome until every
//! record is done or discarded.
//!
//! A lane has at most one attempt in flight. `shard` reads and filters the records.
//!
//! Lambda's documentation does not specify these cases. Weir's behaviour:
//!
//! - **The retry count restarts when the lane has made progress.** Recorded on AWS with
//!   `MaximumRetryAttempts` 3: in a batch of three records the last record failed. AWS then invoked
//!   the function four more times with only this record, and reported `approximateInvokeCount` 4.
//! - An invalid response counts as a function error, so it also bisects the batch. If a response
//!   reports the first record as failed, the entire batch is retried without a split.
//! - A split does not increase the retry count, and both parts start with the count of the batch.
//! - A failed batch waits before its next attempt: 100 ms, doubled at each attempt, at most 30 s,
//!   in this runner's default pace. The parts of a split batch wait as long as after a first
//!   failure.
//! - The batching window opens when the previous invocation ends. If no record arrives in this
//!   window, the next record opens a new window.

mod discard;

use std::collections::VecDeque;
use std::sync::Arc;

use self::discard::FailureDelivery;
use crate::back_off;
use crate::checkpoint::CheckpointPosition;
use crate::command::{Command, Event, InvokeOutcome};
use crate::context::Context;
use crate::id::{BatchId, ShardId};
use crate::progress::Progress;
use crate::queue::{BatchLimits, Pending, Queue};
use crate::record::{Delivery, EVENT_BYTES_MAX};
use crate::response::{self, Answer};
use crate::tumbling::{OpenWindow, Window, WindowInvocation};

/// The records of one attempt: an entire batch, or a part of a split batch.
#[derive(Debug, Clone, Default)]
struct Segment {
    /// The records; empty only if the segment closes its window.
    records: Vec<Pending>,
    /// True if this is the last invocation of the window.
    closes_window: bool,
    /// The number of failed attempts that reached the function since the lane last made progress.
    failures: u32,
    /// Number of consecutive attempts that did not reach the function.
    not_invoked: u32,
    /// True if the segment was already delivered again as an injected fault.
    duplicated: bool,
    /// The `X-Amz-Function-Error` of the last attempt; `None` if the function returned no error.
    function_error: Option<String>,
}

/// The state of the first segment.
#[derive(Debug, Clone)]
enum Stage {
    /// The lane has no segment.
    Idle,
    Ready,
    InFlight(BatchId),
    RetryAt(u64),
    /// The segment was discarded, and its delivery to the destination is in flight.
    Delivering(FailureDelivery),
    /// The segment was discarded, and its delivery will be retried at this tick.
    DeliverAt(u64, FailureDelivery),
}

/// A lane's view of the shard's read progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    /// True if the shard has ended, so no further record follows.
    pub(super) ended: bool,
    /// All records created before this time were read, in seconds since 1970.
    pub(super) reached_s: i64,
}

/// The inputs and outputs of a lane during one step.
pub(super) struct LaneContext<'a, 'step> {
    pub(super) shard: &'a ShardId,
    pub(super) progress: &'a mut Progress,
    pub(super) step: &'a mut Context<'step>,
}

/// The queue, the current batch and the open window of one lane.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    number: u64,
    pub(super) queue: Queue,
    /// The parts of the current batch in ascending order. Attempts always use the first part.
    segments: VecDeque<Segment>,
    stage: Stage,
    window_opened: u64,
    /// The open tumbling window, with the state that the function returned.
    pub(super) window: Option<OpenWindow>,
}

impl Lane {
    /// Returns a lane without records. `number` is the lane's number; it affects only the jitter of
    /// the back-off.
    pub(super) fn new(number: u64, window: Option<OpenWindow>) -> Self {
        Self {
            number,
            queue: Queue::default(),
            segments: VecDeque::new(),
            stage: Stage::Idle,
            window_opened: 0,
            window,
        }
    }

    /// Returns true if every accepted record is done or discarded, and no window is open.
    pub(super) fn is_done(&self) -> bool {
        self.has_no_records() && self.segments.is_empty() && self.window.is_none()
    }

    fn has_no_records(&self) -> bool {
        self.queue.is_empty() && self.segments.iter().all(|part| part.records.is_empty())
    }

    /// Returns true if an invocation or a delivery is in flight.
    pub(super) fn is_in_flight(&self) -> bool {
        matches!(self.stage, Stage::InFlight(_) | Stage::Delivering(_))
    }

    /// Returns the number of records in flight.
    pub(super) fn in_flight(&self) -> usize {
        let first = self.segments.front().filter(|_| matches!(self.stage, Stage::InFlight(_)));
        first.map_or(0, |segment| segment.records.len())
    }

    /// Returns the number of records that are neither done nor discarded.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len() + self.segments.iter().map(|part| part.records.len()).sum::<usize>()
    }

    /// Returns the number of failed attempts for the current records.
    pub(super) fn failed_attempts(&self) -> u32 {
        self.segments.front().map_or(0, |part| part.failures.saturating_add(part.not_invoked))
    }

    /// Returns the lane's oldest record that is neither done nor discarded.
    pub(super) fn oldest(&self) -> Option<&Arc<Delivery>> {
        let tried = self.segments.iter().find_map(|part| part.records.first());
        tried.or_else(|| self.queue.first()).map(|pending| &pending.record)
    }

    /// Adds a record that passed the filter to the lane's queue.
    pub(super) fn accept(&mut self, record: Delivery, place: u64, context: &Context<'_>) {
        if self.has_no_records() {
            let window_ms = context.settings.batching_window_ms;
            if self.window_opened.saturating_add(window_ms) <= context.now.tick_ms {
                self.window_opened = context.now.tick_ms;
            }
        }
        self.queue.push(record, place);
    }

    /// Returns the tick at which the lane can continue without further input; `None` if it needs
    /// input.
    pub(super) fn deadline(&self, context: &Context<'_>) -> Option<u64> {
        match self.stage {
            Stage::RetryAt(tick_ms) | Stage::DeliverAt(tick_ms, _) => Some(tick_ms),
            Stage::Idle if !self.queue.is_empty() => {
                Some(self.window_opened.saturating_add(context.settings.batching_window_ms))
            }
            _ => None,
        }
    }

    /// Performs all steps that are possible now. Each iteration changes the stage, or discards at
    /// least one record or window.
    pub(super) fn advance(&mut self, reading: Reading, context: &mut LaneContext<'_, '_>) {
        while !context.step.stopping {
            match &self.stage {
                Stage::Idle => {
                    self.drop_window_of_no_setting(context);
                    let Some(segment) = self.next_segment(reading, context.step) else { return };
                    self.segments.push_back(segment);
                    self.stage = Stage::Ready;
                }
                Stage::Ready => {
                    self.close_window_that_is_too_large();
                    if !self.give_up_aged(context) {
                        self.invoke(context);
                        return;
                    }
                }
                Stage::InFlight(_) | Stage::Delivering(_) => return,
                Stage::RetryAt(tick_ms) => {
                    if context.step.now.tick_ms < *tick_ms {
                        return;
                    }
                    self.stage = Stage::Ready;
                }
                Stage::DeliverAt(tick_ms, delivering) => {
                    if context.step.now.tick_ms >= *tick_ms {
                        let delivering = delivering.clone();
                        self.deliver(delivering, context);
                    }
                    return;
                }
            }
        }
    }

    /// Discards the open window if the settings no longer have tumbling windows.
    fn drop_window_of_no_setting(&mut self, context: &mut LaneContext<'_, '_>) {
        if context.step.settings.tumbling_window_s.is_none()
            && let Some(OpenWindow { window, .. }) = self.window.take()
        {
            context.step.report(Event::WindowDiscarded { shard: context.shard.clone(), window });
            context.step.commands.push(Command::Save);
        }
    }

    /// Returns the next segment to deliver; `None` if no batch is due.
    fn next_segment(&mut self, reading: Reading, context: &Context<'_>) -> Option<Segment> {
        let Some(length_s) = context.settings.tumbling_window_s else {
            return self.is_batch_due(reading, None, context).then(|| {
                let limits = batch_limits(context, EVENT_BYTES_MAX, None);
                Segment { records: self.queue.take_batch(limits), ..Segment::default() }
            });
        };
        let first = self.queue.first().map(|pending| pending.record.creation_s);
        if let Some(open) = &self.window {
            let end_s = open.window.end_s;
            let is_over = match first {
                Some(made) => made.is_some_and(|made| made >= end_s),
                None => reading.ended || reading.reached_s >= end_s,
            };
            if is_over || open.is_too_large() {
                return Some(Segment { closes_window: true, ..Segment::default() });
            }
        }
        let open = match &self.window {
            Some(open) => open.clone(),
            None => OpenWindow::begin(window_of(first?, length_s, context)),
        };
        let end_s = open.window.end_s;
        if !self.is_batch_due(reading, Some(end_s), context) {
            return None;
        }
        let event_bytes = EVENT_BYTES_MAX.saturating_sub(open.event_bytes(context.settings));
        self.window = Some(open);
        let limits = batch_limits(context, event_bytes, Some(end_s));
        Some(Segment { records: self.queue.take_batch(limits), ..Segment::default() })
    }

    fn is_batch_due(&self, reading: Reading, end_s: Option<i64>, context: &Context<'_>) -> bool {
        let settings = context.settings;
        let window_end = self.window_opened.saturating_add(settings.batching_window_ms);
        !self.queue.is_empty()
            && (reading.ended
                || end_s.is_some_and(|end| reading.reached_s >= end)
                || context.now.tick_ms >= window_end
                || self.queue.holds_full_batch(settings.batch_size))
    }

    /// Ends the window early if its state is too large. The last invocation of the window precedes
    /// the rest of the batch.
    fn close_window_that_is_too_large(&mut self) {
        let closes = self.segments.front().is_some_and(|first| first.closes_window);
        if !closes && self.window.as_ref().is_some_and(OpenWindow::is_too_large) {
            self.segments.push_front(Segment { closes_window: true, ..Segment::default() });
        }
    }

    /// Splits the first segment after `count` records. Both parts keep the retry count.
    fn cut_first(&mut self, count: usize) {
        let Some(first) = self.segments.front_mut() else { return };
        if count == 0 || count >= first.records.len() {
            return;
        }
        let rest = first.records.split_off(count);
        let rest = Segment { records: rest, ..first.without_records() };
        self.segments.insert(1, rest);
    }

    fn invoke(&mut self, context: &mut LaneContext<'_, '_>) {
        let Some(first) = self.segments.front() else { return };
        // If a window ended early because of its state, the rest of the batch begins a new window.
        if let (Some(length_s), None) = (context.step.settings.tumbling_window_s, &self.window) {
            let made = first.records.first().and_then(|pending| pending.record.creation_s);
            let window = window_of(made, length_s, context.step);
            self.window = Some(OpenWindow::begin(window));
        }
        let window = self.window.as_ref().map(|open| Box::new(first.window_invocation(open)));
        let batch = context.step.next_batch_id();
        context.step.totals.invocations += 1;
        context.step.commands.push(Command::Invoke {
            shard: context.shard.clone(),
            batch,
            attempt: first.failures.saturating_add(first.not_invoked).saturating_add(1),
            records: first.records.iter().map(|pending| Arc::clone(&pending.record)).collect(),
            window,
        });
        self.stage = Stage::InFlight(batch);
    }

    /// Handles the outcome of an attempt. Returns true if the attempt belongs to this lane.
    pub(super) fn invoked(
        &mut self,
        batch: BatchId,
        outcome: &InvokeOutcome,
        context: &mut LaneContext<'_, '_>,
    ) -> bool {
        if !matches!(self.stage, Stage::InFlight(in_flight) if in_flight == batch) {
            return false;
        }
        let Some(first) = self.segments.front_mut() else { return false };
        let mut state = None;
        let answer = match outcome {
            InvokeOutcome::Ok(payload) => {
                first.function_error = None;
                state = response::read_state(payload).filter(|_| self.window.is_some());
                if self.window.is_some() && state.is_none() {
                    Answer::Failed(
                        "the function's response has no `state`, which a tumbling window requires"
                            .to_owned(),
                    )
                } else {
                    let sequences: Vec<_> =
                        first.records.iter().map(|pending| &pending.record.sequence).collect();
                    let reporting = context.step.settings.report_batch_item_failures;
                    response::read_answer(payload, reporting, &sequences)
                }
            }
            InvokeOutcome::FunctionError { kind, message, .. } => {
                first.function_error = Some(kind.clone());
                Answer::Failed(format!("{kind} function error: {message}"))
            }
            InvokeOutcome::NotInvoked(reason) => {
                context.step.totals.not_invoked += 1;
                first.not_invoked = first.not_invoked.saturating_add(1);
                let attempt = first.not_invoked;
                context.report_failure(batch, 0, format!("not invoked: {reason}"));
                self.retry(attempt, context);
                return true;
            }
        };
        first.not_invoked = 0;
        match answer {
            Answer::Complete => self.complete(batch, state, context),
            Answer::From(index) => self.complete_until(batch, index, state, context),
            Answer::Failed(reason) => {
                context.report_failure(batch, 0, reason);
                context.step.totals.failures += 1;
                self.bisect_or_retry(context);
            }
        }
        true
    }

    fn complete(
        &mut self,
        batch: BatchId,
        state: Option<String>,
        context: &mut LaneContext<'_, '_>,
    ) {
        let Some(first) = self.segments.front_mut() else { return };
        let count = first.records.len();
        let shard = context.shard.clone();
        context.step.report(Event::Succeeded { shard: shard.clone(), batch, count });
        if context.step.settings.faults.duplicate_delivery && !first.duplicated {
            first.duplicated = true;
            context.step.report(Event::Duplicating { shard, batch });
            self.stage = Stage::Ready;
            return;
        }
        if first.closes_window {
            if let Some(window) = self.end_window(context) {
                context.step.report(Event::WindowEnded { shard, window });
            }
            return;
        }
        context.step.totals.done += count as u64;
        self.keep_state(state);
        self.finish(count, context);
    }

    /// Marks the records before `index` as done. If at least one record was done, the retry count
    /// of the remaining records restarts.
    fn complete_until(
        &mut self,
        batch: BatchId,
        index: usize,
        state: Option<String>,
        context: &mut LaneContext<'_, '_>,
    ) {
        let Some(from) = self.segments.front().and_then(|first| first.records.get(index)) else {
            return;
        };
        let reason = format!("the function reported {} as failed", from.record.sequence);
        context.report_failure(batch, index, reason);
        context.step.totals.failures += 1;
        context.step.totals.done += index as u64;
        if index == 0 {
            self.count_failure(context);
            return;
        }
        self.keep_state(state);
        self.finish(index, context);
        if let Some(rest) = self.segments.front_mut() {
            rest.failures = 0;
        }
        self.retry(1, context);
    }

    fn keep_state(&mut self, state: Option<String>) {
        if let (Some(open), Some(state)) = (&mut self.window, state) {
            open.state = state.into();
        }
    }

    /// Ends the open window after its last invocation, and returns the window.
    fn end_window(&mut self, context: &mut LaneContext<'_, '_>) -> Option<Window> {
        let open = self.window.take()?;
        self.segments.pop_front();
        context.step.commands.push(Command::Save);
        self.go_on(context);
        Some(open.window)
    }

    fn bisect_or_retry(&mut self, context: &mut LaneContext<'_, '_>) {
        let Some(first) = self.segments.front() else { return };
        let half = first.records.len().div_ceil(2);
        let cut = first.records.get(half.saturating_sub(1));
        let bisect = context.step.settings.bisect_on_function_error && first.records.len() > 1;
        let (true, Some(cut)) = (bisect, cut) else {
            self.count_failure(context);
            return;
        };
        let after = cut.record.sequence.clone();
        context.step.report(Event::Split { shard: context.shard.clone(), after });
        self.cut_first(half);
        self.retry(1, context);
    }

    fn retry(&mut self, attempt: u32, context: &mut LaneContext<'_, '_>) {
        let seed = self.seed(context);
        let delay_ms = context.step.settings.pace.retry.delay_ms(attempt, seed);
        let tick_ms = context.step.now.tick_ms.saturating_add(delay_ms);
        self.stage = Stage::RetryAt(tick_ms);
        context.step.report(Event::RetryScheduled { shard: context.shard.clone(), tick_ms });
    }

    /// Returns the seed of this lane's jitter.
    fn seed(&self, context: &LaneContext<'_, '_>) -> u64 {
        back_off::seed_of(context.shard.as_str()).wrapping_add(self.number)
    }

    /// Marks the first `count` records of the first segment as done or discarded.
    fn finish(&mut self, count: usize, context: &mut LaneContext<'_, '_>) {
        let Some(first) = self.segments.front_mut() else { return };
        let finished = first.records.drain(..count.min(first.records.len()));
        let moved = context.progress.finish(finished.map(|pending| pending.place));
        if let Some(checkpoint) = context.progress.checkpoint().filter(|_| moved) {
            let position = CheckpointPosition::After(checkpoint.clone());
            let shard = context.shard.clone();
            context.step.commands.push(Command::Checkpoint { shard, position });
        }
        if first.records.is_empty() {
            self.segments.pop_front();
        }
        self.go_on(context);
    }

    fn go_on(&mut self, context: &LaneContext<'_, '_>) {
        if self.segments.is_empty() {
            self.stage = Stage::Idle;
            self.window_opened = context.step.now.tick_ms;
        } else {
            self.stage = Stage::Ready;
        }
    }
}

impl Segment {
    fn without_records(&self) -> Self {
        Self { records: Vec::new(), function_error: self.function_error.clone(), ..*self }
    }

    fn window_invocation(&self, open: &OpenWindow) -> WindowInvocation {
        WindowInvocation {
            open: open.clone(),
            is_final: self.closes_window,
            is_terminated_early: self.closes_window && open.is_too_large(),
        }
    }
}

impl LaneContext<'_, '_> {
    fn report_failure(&mut self, batch: BatchId, done: usize, reason: String) {
        let shard = self.shard.clone();
        self.step.report(Event::Failed { shard, batch, done, reason });
    }
}

fn batch_limits(context: &Context<'_>, event_bytes: usize, end_s: Option<i64>) -> BatchLimits {
    BatchLimits { records: context.settings.batch_size, event_bytes, end_s }
}

/// Returns the tumbling window of a record, based on its creation time. For a record without a
/// creation time, the current time is used.
fn window_of(made: Option<i64>, length_s: u32, context: &Context<'_>) -> Window {
    Window::containing(made.unwrap_or_else(|| context.now.time_ms.div_euclid(1000)), length_s)
}
