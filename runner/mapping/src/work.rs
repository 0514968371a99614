//! The work of one shard: its lanes, and their combined progress.
//!
//! A record belongs to the lane of its item (partition and sort key). The records of one item
//! therefore stay in order. Records of different items may be delivered in a different order, even
//! within one partition.

use std::sync::Arc;

use super::command::InvokeOutcome;
use super::context::Context;
use super::id::{BatchId, DeliveryId, ShardId};
use super::lane::{Lane, LaneContext, Reading};
use super::progress::Progress;
use super::record::{Delivery, EVENT_BYTES_MAX};
use super::sequence::SequenceNumber;
use super::settings::Settings;
use super::tumbling::OpenWindow;

/// The read-ahead limit of each lane, in bytes of waiting JSON. The limit is one full event, so
/// that a lane has its next batch when an invocation ends. A page that exceeds the limit is still
/// accepted.
const READ_AHEAD_BYTES: usize = EVENT_BYTES_MAX;
/// The read-ahead limit of each lane, in records: one page of `GetRecords`, or one batch if a batch
/// is larger.
const READ_AHEAD_RECORDS: usize = 1_000;

/// The lanes of one shard, and their combined progress.
#[derive(Debug, Clone)]
pub(super) struct Work {
    /// The lanes, at least one.
    lanes: Vec<Lane>,
    progress: Progress,
}

impl Work {
    pub(super) fn new(checkpoint: Option<SequenceNumber>, window: Option<OpenWindow>) -> Self {
        Self { lanes: vec![Lane::new(0, window)], progress: Progress::new(checkpoint) }
    }

    /// Returns the last record up to which all records are finished.
    pub(super) fn checkpoint(&self) -> Option<&SequenceNumber> {
        self.progress.checkpoint()
    }

    /// Returns the open tumbling window. A mapping with windows has only one lane.
    pub(super) fn window(&self) -> Option<&OpenWindow> {
        self.lanes.iter().find_map(|lane| lane.window.as_ref())
    }

    /// Returns true if every accepted record is done or discarded, and no window is open.
    pub(super) fn is_done(&self) -> bool {
        self.lanes.iter().all(Lane::is_done)
    }

    /// Returns true if an invocation or a delivery is in flight.
    pub(super) fn is_in_flight(&self) -> bool {
        self.lanes.iter().any(Lane::is_in_flight)
    }

    /// Returns the number of records in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.lanes.iter().map(Lane::in_flight).sum()
    }

    /// Returns the number of records that are neither done nor discarded.
    pub(super) fn waiting(&self) -> usize {
        self.lanes.iter().map(Lane::waiting).sum()
    }

    /// Returns the maximum number of failed attempts of the current records, over all lanes.
    pub(super) fn failed_attempts(&self) -> u32 {
        self.lanes.iter().map(Lane::failed_attempts).max().unwrap_or(0)
    }

    /// Returns the oldest record that is neither done nor discarded.
    pub(super) fn oldest(&self) -> Option<&Arc<Delivery>> {
        self.lanes.iter().filter_map(Lane::oldest).min_by_key(|record| &record.sequence)
    }

    /// Returns the size of the waiting records, in bytes of JSON.
    pub(super) fn queued_bytes(&self) -> usize {
        self.lanes.iter().map(|lane| lane.queue.json_bytes()).sum()
    }

    /// Returns true if more records may be read. The argument `has_room` is true if the mapping's
    /// memory limit allows a read.
    pub(super) fn has_room(&self, has_room: bool, settings: &Settings) -> bool {
        let lanes = settings.parallelization_factor;
        let records_max = READ_AHEAD_RECORDS.max(settings.batch_size).saturating_mul(lanes);
        let queued: usize = self.lanes.iter().map(|lane| lane.queue.len()).sum();
        let bytes_max = READ_AHEAD_BYTES.saturating_mul(lanes);
        // While one lane is blocked, the other lanes may finish up to this number of records ahead
        // of it.
        self.progress.len() < records_max.saturating_mul(2)
            && (queued == 0
                || (has_room && queued < records_max && self.queued_bytes() < bytes_max))
    }

    /// Adds a record that passed the filter to the lane of its item.
    pub(super) fn accept(&mut self, mut record: Delivery, context: &Context<'_>) {
        let factor = context.settings.parallelization_factor.max(1);
        for number in self.lanes.len()..factor {
            self.lanes.push(Lane::new(number as u64, None));
        }
        let place = self.progress.accept(record.sequence.clone());
        let number = if factor == 1 { 0 } else { record.item() % factor as u64 };
        let number = usize::try_from(number).unwrap_or(0);
        record.keys = None;
        if let Some(lane) = self.lanes.get_mut(number) {
            lane.accept(record, place, context);
        }
    }

    /// Adds a record that did not pass the filter. Returns true if the checkpoint has advanced.
    pub(super) fn skip_filtered(&mut self, sequence: SequenceNumber) -> bool {
        self.progress.skip_filtered(sequence)
    }

    /// Returns the tick at which a lane can continue without further input; `None` if all lanes
    /// need input.
    pub(super) fn deadline(&self, context: &Context<'_>) -> Option<u64> {
        self.lanes.iter().filter_map(|lane| lane.deadline(context)).min()
    }

    /// Performs all steps that are possible now.
    pub(super) fn advance(&mut self, shard: &ShardId, reading: Reading, step: &mut Context<'_>) {
        let progress = &mut self.progress;
        let mut context = LaneContext { shard, progress, step };
        self.lanes.iter_mut().for_each(|lane| lane.advance(reading, &mut context));
    }

    /// Handles the outcome of an attempt. Returns true if the attempt belongs to this shard.
    pub(super) fn invoked(
        &mut self,
        shard: &ShardId,
        batch: BatchId,
        outcome: &InvokeOutcome,
        step: &mut Context<'_>,
    ) -> bool {
        let progress = &mut self.progress;
        let mut context = LaneContext { shard, progress, step };
        self.lanes.iter_mut().any(|lane| lane.invoked(batch, outcome, &mut context))
    }

    /// Handles the result of a delivery. `refused` is `None` if the destination has stored the
    /// failure record, otherwise the reason for the failure. Returns true if the delivery belongs
    /// to this shard.
    pub(super) fn delivered(
        &mut self,
        shard: &ShardId,
        delivery: DeliveryId,
        refused: Option<&str>,
        step: &mut Context<'_>,
    ) -> bool {
        let progress = &mut self.progress;
        let mut context = LaneContext { shard, progress, step };
        self.lanes.iter_mut().any(|lane| lane.delivered(delivery, refused, &mut context))
    }
}
