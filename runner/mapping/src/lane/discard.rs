//! Discards records that exceed the retry count or the maximum age, and delivers failure records to
//! the failure destination.
//!
//! The lane forms and retries batches.
//!
//! Lambda's documentation does not specify these cases. Weir's behaviour:
//!
//! - A stream keeps a record for 24 hours. Without a maximum age, a record is discarded when it is
//!   older than 24 hours and was attempted at least once.
//! - The checkpoint advances only when the destination has stored the failure record, or when the
//!   records are older than 24 hours.

use std::sync::Arc;

use super::{Lane, LaneContext, Stage};
use crate::command::{Command, Event};
use crate::failure::{Condition, DiscardedRecords, FailureObject};
use crate::id::DeliveryId;
use crate::queue::Pending;
use crate::record::RETENTION_MS;

/// A failure record that is being delivered to the destination.
#[derive(Debug, Clone)]
pub(super) struct FailureDelivery {
    delivery: DeliveryId,
    condition: Condition,
    object: Arc<FailureObject>,
    failures: u32,
}

impl Lane {
    /// Splits the first segment after its leading records that are all above the maximum age, or
    /// all below it. If these records are above the maximum age, discards them and returns true.
    pub(super) fn give_up_aged(&mut self, context: &mut LaneContext<'_, '_>) -> bool {
        let Some(first) = self.segments.front_mut() else { return false };
        let tried = first.failures > 0 || first.not_invoked > 0;
        let age_max = match context.step.settings.record_age_ms {
            Some(age) => age.min(RETENTION_MS),
            None if tried => RETENTION_MS,
            None => return false,
        };
        let time_ms = context.step.now.time_ms;
        if first.closes_window {
            let end_s = self.window.as_ref().map_or(i64::MAX, |open| open.window.end_s);
            let age_ms = time_ms.saturating_sub(end_s.saturating_mul(1000));
            return tried && age_ms > age_max && self.give_up_window(context);
        }
        let is_aged =
            |pending: &Pending| pending.record.age_ms(time_ms).is_some_and(|age| age > age_max);
        let aged = first.records.first().is_some_and(is_aged);
        let run = first.records.iter().take_while(|pending| is_aged(pending) == aged).count();
        self.cut_first(run);
        if aged {
            self.give_up(Condition::RecordAgeExceeded, context);
        }
        aged
    }

    /// Counts a failed attempt. The records are retried until the retry count is exhausted, and
    /// then discarded.
    pub(super) fn count_failure(&mut self, context: &mut LaneContext<'_, '_>) {
        let Some(first) = self.segments.front_mut() else { return };
        first.failures = first.failures.saturating_add(1);
        let (failures, closes_window) = (first.failures, first.closes_window);
        match context.step.settings.retry_attempts {
            Some(retries) if failures > retries && closes_window => {
                self.give_up_window(context);
            }
            Some(retries) if failures > retries => {
                self.give_up(Condition::RetryAttemptsExhausted, context);
            }
            _ => self.retry(failures, context),
        }
    }

    /// Discards the window's state. There is no failure record, because the last invocation has no
    /// records.
    fn give_up_window(&mut self, context: &mut LaneContext<'_, '_>) -> bool {
        let Some(window) = self.end_window(context) else { return false };
        context.step.report(Event::WindowDiscarded { shard: context.shard.clone(), window });
        true
    }

    fn give_up(&mut self, condition: Condition, context: &mut LaneContext<'_, '_>) {
        if !context.step.settings.has_failure_destination {
            self.finish_discarded(condition, None, context);
            return;
        }
        let Some(first) = self.segments.front() else { return };
        let records: Vec<_> =
            first.records.iter().map(|pending| Arc::clone(&pending.record)).collect();
        let settings = context.step.settings;
        let members = self
            .window
            .as_ref()
            .map(|open| first.window_invocation(open).members(context.shard, &settings.stream_arn));
        let given_up = DiscardedRecords {
            shard: context.shard,
            records: &records,
            condition,
            invocations: first.failures,
            function_error: first.function_error.as_deref(),
            time_ms: context.step.now.time_ms,
            members: members.as_deref().unwrap_or_default(),
        };
        let object = Arc::new(given_up.object(settings));
        let delivery = context.step.next_delivery_id();
        self.deliver(FailureDelivery { delivery, condition, object, failures: 0 }, context);
    }

    pub(super) fn deliver(
        &mut self,
        delivering: FailureDelivery,
        context: &mut LaneContext<'_, '_>,
    ) {
        context.step.commands.push(Command::DeliverFailure {
            shard: context.shard.clone(),
            delivery: delivering.delivery,
            object: Arc::clone(&delivering.object),
        });
        self.stage = Stage::Delivering(delivering);
    }

    /// Handles the result of a delivery. `refused` is `None` if the destination has stored the
    /// failure record, otherwise the reason for the failure. Returns true if the delivery belongs
    /// to this lane.
    pub(crate) fn delivered(
        &mut self,
        delivery: DeliveryId,
        refused: Option<&str>,
        context: &mut LaneContext<'_, '_>,
    ) -> bool {
        let mut delivering = match &self.stage {
            Stage::Delivering(delivering) if delivering.delivery == delivery => delivering.clone(),
            _ => return false,
        };
        let Some(reason) = refused else {
            let key = Some(delivering.object.key.clone());
            self.finish_discarded(delivering.condition, key, context);
            return true;
        };
        let (shard, reason) = (context.shard.clone(), reason.to_owned());
        context.step.report(Event::DestinationUnavailable { shard, reason });
        if self.is_first_expired(context.step.now.time_ms) {
            // The stream has already trimmed these records, so further delivery attempts are
            // pointless.
            self.finish_discarded(delivering.condition, None, context);
            return true;
        }
        delivering.failures = delivering.failures.saturating_add(1);
        let seed = self.seed(context);
        let delay_ms = context.step.settings.pace.unreachable.delay_ms(delivering.failures, seed);
        let tick_ms = context.step.now.tick_ms.saturating_add(delay_ms);
        self.stage = Stage::DeliverAt(tick_ms, delivering);
        true
    }

    fn is_first_expired(&self, time_ms: i64) -> bool {
        let newest = self.segments.front().and_then(|part| part.records.last());
        let age = newest.and_then(|pending| pending.record.age_ms(time_ms));
        age.is_some_and(|age| age > RETENTION_MS)
    }

    fn finish_discarded(
        &mut self,
        condition: Condition,
        key: Option<String>,
        context: &mut LaneContext<'_, '_>,
    ) {
        let records = self.segments.front().map(|part| part.records.as_slice());
        let Some(([first, ..], [.., last])) = records.map(|records| (records, records)) else {
            return;
        };
        let (first, last) = (first.record.sequence.clone(), last.record.sequence.clone());
        let count = records.map_or(0, <[_]>::len);
        context.step.totals.discarded += count as u64;
        let shard = context.shard.clone();
        context.step.report(Event::Discarded { shard, first, last, count, condition, key });
        self.finish(count, context);
    }
}
