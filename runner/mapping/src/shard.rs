//! One shard of the stream: reads the shard completely, filters its records, and passes the
//! matching records to the shard's lanes.
//!
//! `lineage` decides which shards may start. `work` handles batches and attempts.

use super::back_off;
use super::checkpoint::{CheckpointPosition, ShardCheckpoint};
use super::command::{Command, Event, ReadFailure, ReadFrom};
use super::context::Context;
use super::id::ShardId;
use super::lane::Reading;
use super::record::Record;
use super::sequence::SequenceNumber;
use super::settings::StartingPosition;
use super::work::Work;

/// The number of records in a full page of `GetRecords` (DynamoDB API reference).
const PAGE_RECORDS_MAX: usize = 1_000;
/// The minimum size of a full page, in bytes of JSON. DynamoDB ends a page at 1 MB of its own size
/// measure, which is close to the size of the JSON text.
const PAGE_BYTES_FULL: usize = 750_000;

/// The time for which a stream certainly keeps each record, in milliseconds. It is the retention of
/// 24 hours minus one hour for differences between clocks. Source: DynamoDB developer guide,
/// "Change data capture for DynamoDB Streams".
const KEPT_MS: i64 = 23 * 3600 * 1000;

/// The state of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The parent shard is not done yet.
    Waiting,
    /// The shard is being read and processed.
    Reading,
    /// Every record is done or discarded. The shard remains as a tombstone.
    Done {
        /// The store's time when the shard was done, in milliseconds since 1970.
        at_ms: i64,
    },
    /// Records are lost. The shard is blocked until the operator accepts the gap.
    Gap,
}

/// One shard of the stream, with its read position, and its lanes as `Work`.
#[derive(Debug, Clone)]
pub(super) struct Shard {
    pub(super) id: ShardId,
    pub(super) parent: Option<ShardId>,
    pub(super) phase: Phase,
    pub(super) work: Work,
    /// The starting position in the checkpoint while no record is done.
    origin: StartingPosition,
    /// The position of the first read. After the first record, the position of the last record is
    /// used.
    start: StartingPosition,
    /// Records created before this second, in seconds since 1970, are skipped, because the mapping
    /// starts at `LATEST` and was created later.
    not_before_s: Option<i64>,
    /// True if the next read starts at the oldest record and ignores the checkpoint.
    restart: bool,
    pub(super) last_read: Option<SequenceNumber>,
    /// True if the poller has the iterator that follows the last page.
    has_iterator: bool,
    reading: bool,
    read_issued: u64,
    /// The store's time when the last read was requested.
    read_issued_ms: i64,
    /// The store's time when the last successful read was requested.
    page_issued_ms: Option<i64>,
    /// All records created before this time were read, in seconds since 1970.
    reached_s: i64,
    next_read: u64,
    /// True if records may have arrived since the last read was requested.
    may_have_new_records: bool,
    /// Number of consecutive failed reads.
    failures: u32,
    /// Number of consecutive expired iterators.
    expired: u32,
    missing: Option<Missing>,
    ended: bool,
    /// The tick at which the last read was requested, if that read reached the end of the available
    /// records; otherwise `None`.
    pub(super) tip_requested_at: Option<u64>,
    /// True if the last listing contained the shard.
    pub(super) listed: bool,
    pub(super) has_child: bool,
}

/// A shard that the stream reports as missing.
#[derive(Debug, Clone)]
struct Missing {
    /// The tick at which the shard was first reported as missing. A successful read, or a listing
    /// that contains the shard, ends this state.
    since: u64,
    /// The number of listings that had been requested when a read last reported the shard as
    /// missing.
    listings: u64,
    /// The error message of the stream.
    reason: String,
}

impl Shard {
    /// Returns a shard without a checkpoint.
    pub(super) fn new(id: ShardId, parent: Option<ShardId>, start: StartingPosition) -> Self {
        Self {
            id,
            parent,
            phase: Phase::Waiting,
            work: Work::new(None, None),
            origin: start,
            start,
            not_before_s: None,
            restart: false,
            last_read: None,
            has_iterator: false,
            reading: false,
            read_issued: 0,
            read_issued_ms: 0,
            page_issued_ms: None,
            reached_s: i64::MIN,
            next_read: 0,
            may_have_new_records: false,
            failures: 0,
            expired: 0,
            missing: None,
            ended: false,
            tip_requested_at: None,
            listed: false,
            has_child: false,
        }
    }

    /// Restores a shard from its checkpoint. After a restart, `LATEST` would be a later position.
    /// Such a shard is therefore read from its beginning, and the records created before
    /// `created_ms` are skipped.
    pub(super) fn restore(id: ShardId, checkpoint: ShardCheckpoint, created_ms: i64) -> Self {
        let mut shard = Self::new(id, checkpoint.parent, StartingPosition::TrimHorizon);
        match checkpoint.position {
            CheckpointPosition::TrimHorizon => {}
            CheckpointPosition::Latest => {
                shard.origin = StartingPosition::Latest;
                shard.not_before_s = Some(created_ms.div_euclid(1000));
            }
            CheckpointPosition::After(sequence) => {
                shard.work = Work::new(Some(sequence), checkpoint.window);
            }
            CheckpointPosition::Closed { at_ms } => shard.phase = Phase::Done { at_ms },
        }
        shard
    }

    pub(super) fn checkpoint(&self) -> ShardCheckpoint {
        let position = match (self.phase, self.work.checkpoint(), self.origin) {
            (Phase::Done { at_ms }, _, _) => CheckpointPosition::Closed { at_ms },
            (_, Some(sequence), _) => CheckpointPosition::After(sequence.clone()),
            (_, None, StartingPosition::TrimHorizon) => CheckpointPosition::TrimHorizon,
            (_, None, StartingPosition::Latest) => CheckpointPosition::Latest,
        };
        let window = self.work.window().filter(|_| !self.is_done()).cloned();
        ShardCheckpoint { parent: self.parent.clone(), position, window }
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done { .. })
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended
    }

    /// Performs all steps that are possible now. `has_room` is true if the mapping's memory limit
    /// allows a read.
    pub(super) fn advance(&mut self, has_room: bool, context: &mut Context<'_>) {
        if !matches!(self.phase, Phase::Reading | Phase::Gap) {
            return;
        }
        let reading = Reading { ended: self.ended, reached_s: self.reached_s };
        self.work.advance(&self.id, reading, context);
        if self.ended && self.work.is_done() && self.phase == Phase::Reading {
            self.close(context);
        } else if self.wants_read(has_room, context) && context.now.tick_ms >= self.next_read {
            self.read(context);
        }
    }

    pub(super) fn close(&mut self, context: &mut Context<'_>) {
        let at_ms = context.now.time_ms;
        self.phase = Phase::Done { at_ms };
        let position = CheckpointPosition::Closed { at_ms };
        context.commands.push(Command::Checkpoint { shard: self.id.clone(), position });
        context.report(Event::ShardDone { shard: self.id.clone() });
    }

    fn wants_read(&self, has_room: bool, context: &Context<'_>) -> bool {
        let room = self.work.has_room(has_room, context.settings);
        self.phase == Phase::Reading && !self.reading && !self.ended && !context.stopping && room
    }

    fn read(&mut self, context: &mut Context<'_>) {
        let resume = self.last_read.as_ref().or(self.work.checkpoint()).filter(|_| !self.restart);
        let from = match (self.has_iterator, resume, self.start) {
            (true, _, _) => ReadFrom::Iterator,
            (false, Some(sequence), _) => ReadFrom::After(sequence.clone()),
            (false, None, StartingPosition::TrimHorizon) => ReadFrom::TrimHorizon,
            (false, None, StartingPosition::Latest) => ReadFrom::Latest,
        };
        (self.reading, self.may_have_new_records) = (true, false);
        self.read_issued = context.now.tick_ms;
        self.read_issued_ms = context.now.time_ms;
        context.commands.push(Command::Read { shard: self.id.clone(), from });
    }

    /// Returns the tick at which the shard can continue without further input; `None` if it needs
    /// input.
    pub(super) fn deadline(&self, has_room: bool, context: &Context<'_>) -> Option<u64> {
        if !matches!(self.phase, Phase::Reading | Phase::Gap) || context.stopping {
            return None;
        }
        let read = self.wants_read(has_room, context).then_some(self.next_read);
        [read, self.work.deadline(context)].into_iter().flatten().min()
    }

    /// Processes a page. Records that were already read are skipped.
    pub(super) fn accept_page(
        &mut self,
        records: Vec<Record>,
        end: bool,
        context: &mut Context<'_>,
    ) {
        if !self.reading {
            return;
        }
        let is_empty = records.is_empty();
        (self.reading, self.has_iterator, self.restart) = (false, !end, false);
        (self.failures, self.expired, self.missing) = (0, 0, None);
        self.ended = end;
        self.page_issued_ms = Some(self.read_issued_ms);
        if is_empty {
            // Only the seconds before the read are complete, because further records of the current
            // second may have been written after the read.
            self.reached_s = self.reached_s.max(self.read_issued_ms.div_euclid(1000));
        }
        self.tip_requested_at = (is_empty || end).then_some(self.read_issued);
        self.next_read = self.after_page(&records, context);
        let mut passed_over: Option<(usize, SequenceNumber, SequenceNumber)> = None;
        let mut moved = false;
        for record in records {
            if self.last_read.as_ref().is_some_and(|last| record.sequence <= *last) {
                continue;
            }
            self.last_read = Some(record.sequence.clone());
            context.totals.read += 1;
            self.reached_s = self.reached_s.max(record.creation_s.unwrap_or(i64::MIN));
            if self.is_new_record(&record, context) {
                self.work.accept(record.into(), context);
            } else {
                if context.totals.filtered == 0 {
                    *context.unknown_name = context.settings.filter.unknown_name(record.event());
                }
                context.totals.filtered += 1;
                let (count, first) = passed_over
                    .map_or((0, record.sequence.clone()), |(count, first, _)| (count, first));
                passed_over = Some((count + 1, first, record.sequence.clone()));
                moved |= self.work.skip_filtered(record.sequence);
            }
        }
        if let Some((count, first, last)) = passed_over {
            context.report(Event::Filtered { shard: self.id.clone(), count, first, last });
        }
        if let Some(sequence) = self.work.checkpoint().filter(|_| moved) {
            let position = CheckpointPosition::After(sequence.clone());
            context.commands.push(Command::Checkpoint { shard: self.id.clone(), position });
        }
    }

    /// Returns the tick of the next read. After a full page, the next read follows immediately,
    /// because further records are certain. After other pages, the minimum time between reads
    /// applies.
    fn after_page(&self, records: &[Record], context: &Context<'_>) -> u64 {
        let (now, pace) = (context.now.tick_ms, &context.settings.pace);
        if records.is_empty() && !self.may_have_new_records {
            return now.saturating_add(pace.idle_poll_ms);
        }
        let bytes: usize = records.iter().map(|record| record.json().len()).sum();
        if records.len() >= PAGE_RECORDS_MAX || bytes >= PAGE_BYTES_FULL {
            return now;
        }
        now.max(self.read_issued.saturating_add(pace.read_ms))
    }

    /// Returns true if an announcement of records would cause an earlier read, because the last
    /// read found all records.
    pub(super) fn is_resting(&self) -> bool {
        self.phase == Phase::Reading
            && !self.ended
            && !self.may_have_new_records
            && self.tip_requested_at.is_some()
    }

    /// Handles an announcement of records. The next read waits only for the minimum time between
    /// reads. It is needed even if a read is running, because that read may not see the announced
    /// records.
    pub(super) fn wake(&mut self, context: &Context<'_>) {
        if self.is_resting() {
            let earliest = self.read_issued.saturating_add(context.settings.pace.read_ms);
            self.next_read = self.next_read.min(earliest);
        }
        self.may_have_new_records = true;
    }

    fn is_new_record(&self, record: &Record, context: &Context<'_>) -> bool {
        let is_old = match (self.not_before_s, record.creation_s) {
            (Some(earliest), Some(made)) => made < earliest,
            _ => false,
        };
        !is_old && context.settings.filter.passes(record)
    }

    /// Handles a failed read. `known` contains the mapping's creation time and the number of
    /// listings requested until now.
    pub(super) fn accept_read_failure(
        &mut self,
        failure: ReadFailure,
        (created_ms, listings): (i64, u64),
        context: &mut Context<'_>,
    ) {
        if !self.reading {
            return;
        }
        let had_iterator = self.has_iterator;
        (self.reading, self.has_iterator, self.tip_requested_at) = (false, false, None);
        if self.start == StartingPosition::Latest && self.last_read.is_none() {
            // An expired iterator loses the position of the newest record. A new `LATEST` iterator
            // could skip records, so the shard is read from its beginning.
            self.start = StartingPosition::TrimHorizon;
            self.not_before_s = Some(created_ms.div_euclid(1000));
        }
        match failure {
            // The first expired iterator is replaced immediately. Further consecutive expired
            // iterators are replaced after a back-off.
            ReadFailure::IteratorExpired if self.expired == 0 => {
                self.expired = 1;
                self.next_read = context.now.tick_ms;
            }
            ReadFailure::IteratorExpired => {
                self.read_later("every iterator of the shard has expired".to_owned(), context);
            }
            // The stream may have trimmed the oldest record between the creation of the iterator
            // and the read. The shard is read again, because it may have newer records.
            ReadFailure::Trimmed { reason } if self.restart => self.read_later(reason, context),
            ReadFailure::Unavailable { reason } => self.read_later(reason, context),
            // A shard may be listed before it is readable. Only a later listing proves that the
            // shard is gone.
            ReadFailure::ShardGone { reason } => {
                let since = self.missing.as_ref().map_or(context.now.tick_ms, |it| it.since);
                self.missing = Some(Missing { since, listings, reason: reason.clone() });
                self.read_later(reason, context);
            }
            // Some stores reject an old iterator although no records are lost. A new iterator from
            // the same position shows if records are lost.
            ReadFailure::Trimmed { .. } if had_iterator && self.may_prove_loss(context) => {
                self.next_read = context.now.tick_ms;
            }
            ReadFailure::Trimmed { reason } => self.lose(reason, context),
        }
    }

    /// Returns true if a read with a new iterator can prove that records are lost. With a position,
    /// the stream rejects the read if the record after this position is trimmed. Without a
    /// position, no record can be lost within a day of the last page.
    fn may_prove_loss(&self, context: &Context<'_>) -> bool {
        let has_position = self.last_read.is_some() || self.work.checkpoint().is_some();
        let is_recent =
            |at_ms: i64| (0..KEPT_MS).contains(&context.now.time_ms.saturating_sub(at_ms));
        has_position || self.page_issued_ms.is_some_and(is_recent)
    }

    fn lose(&mut self, reason: String, context: &mut Context<'_>) {
        self.phase = Phase::Gap;
        context.totals.gaps += 1;
        let after = self.last_read.as_ref().or(self.work.checkpoint()).cloned();
        context.report(Event::Gap { shard: self.id.clone(), after, reason });
    }

    /// Returns true if a read has reported the shard as missing and no listing was requested after
    /// that read.
    pub(super) fn needs_listing(&self, listings: u64) -> bool {
        self.missing.as_ref().is_some_and(|missing| missing.listings == listings)
    }

    /// Updates the shard after listing number `listing`.
    pub(super) fn note_listing(
        &mut self,
        is_listed: bool,
        listing: u64,
        context: &mut Context<'_>,
    ) {
        self.listed = is_listed;
        if is_listed {
            self.missing = None;
        }
        let Some(missing) = &self.missing else { return };
        let missing_ms = context.now.tick_ms.saturating_sub(missing.since);
        let is_gone = missing.listings < listing && missing_ms >= context.settings.pace.missing_ms;
        if !is_gone || self.phase != Phase::Reading {
            return;
        }
        if self.restart {
            // The operator accepted the gap, and the shard has no further records.
            self.ended = true;
        } else {
            self.lose(missing.reason.clone(), context);
        }
    }

    fn read_later(&mut self, reason: String, context: &mut Context<'_>) {
        self.failures = self.failures.saturating_add(1);
        let seed = back_off::seed_of(self.id.as_str());
        let delay_ms = context.settings.pace.unreachable.delay_ms(self.failures, seed);
        self.next_read = context.now.tick_ms.saturating_add(delay_ms);
        context.report(Event::ShardUnavailable { shard: self.id.clone(), reason });
    }

    /// Continues after a gap, at the oldest record that still exists.
    pub(super) fn accept_gap(&mut self, context: &Context<'_>) {
        if self.phase == Phase::Gap {
            self.phase = Phase::Reading;
            self.restart = true;
            self.start = StartingPosition::TrimHorizon;
            self.next_read = context.now.tick_ms;
        }
    }

    pub(super) fn is_tried_in_vain(&self) -> bool {
        self.failures > 0
    }
}
