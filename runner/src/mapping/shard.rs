//! One shard of the stream: read it to its end, filter what is read, have it worked off.
//!
//! Which shard may start when is the lineage's decision; batches and attempts are the work's.

use super::back_off;
use super::checkpoint::{CheckpointPosition, ShardCheckpoint};
use super::command::{Command, Event, ReadFailure, ReadFrom, ShardId};
use super::context::Context;
use super::lane::Reading;
use super::record::Record;
use super::sequence::SequenceNumber;
use super::settings::StartingPosition;
use super::work::Work;

/// A shard that is listed as open although it has children counts as closed after this many
/// empty reads in a row. One is not enough: empty pages in the middle of a shard are normal. Of one that
/// is listed as closed any number are, and its last page says that it is the last.
const EMPTY_READS_TO_CLOSE: u32 = 5;

/// Where a shard stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Its parent is not done.
    Waiting,
    /// It is read and worked off.
    Reading,
    /// It is done to its end; kept as a tombstone.
    Done {
        /// Since when, in milliseconds of the store's time.
        at_ms: i64,
    },
    /// Records of it are lost; it stands still until that is accepted.
    Gap,
}

/// One shard.
#[derive(Debug, Clone)]
pub(super) struct Shard {
    pub(super) id: ShardId,
    pub(super) parent: Option<ShardId>,
    pub(super) phase: Phase,
    pub(super) work: Work,
    /// What a checkpoint says while no record is done.
    origin: StartingPosition,
    /// Where to read if nothing was read.
    start: StartingPosition,
    /// Records made before this second were there before a `LATEST` mapping was created.
    not_before_s: Option<i64>,
    /// Read from the oldest record there is, whatever the checkpoint says.
    restart: bool,
    pub(super) last_read: Option<SequenceNumber>,
    /// The shell holds the iterator that follows the last page.
    has_iterator: bool,
    reading: bool,
    read_issued: u64,
    /// The store's time when the last read was asked for.
    read_issued_ms: i64,
    /// Every record made before this second was read.
    reached_s: i64,
    next_read: u64,
    /// Reads that failed in a row.
    failures: u32,
    empty_reads: u32,
    ended: bool,
    /// When the read was asked for that found nothing more; `None` if the last read found records.
    pub(super) tip: Option<u64>,
    /// Whether the stream listed it last time, whether with children.
    pub(super) listed: bool,
    pub(super) has_child: bool,
    /// Whether the stream said that it takes no more records: then its pages say where it ends.
    pub(super) is_closed: bool,
}

impl Shard {
    /// A shard that has no checkpoint.
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
            reached_s: i64::MIN,
            next_read: 0,
            failures: 0,
            empty_reads: 0,
            ended: false,
            tip: None,
            listed: false,
            has_child: false,
            is_closed: false,
        }
    }

    /// A shard as its checkpoint left it. `LATEST` cannot be found again after a restart: the
    /// shard is read from its beginning, without the records made before `created_ms`.
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

    /// A child is listed: from now on empty reads count towards closing an open shard.
    pub(super) fn note_child(&mut self) {
        if !self.has_child {
            self.has_child = true;
            self.empty_reads = 0;
        }
    }

    /// Does whatever can be done now. `has_room`: the mapping's memory allows a read.
    pub(super) fn advance(&mut self, has_room: bool, context: &mut Context<'_>) {
        if !matches!(self.phase, Phase::Reading | Phase::Gap) {
            return;
        }
        if self.is_drained_open_parent() {
            self.ended = true;
            context.report(Event::TreatedAsClosed { shard: self.id.clone() });
        }
        let reading = Reading { ended: self.ended, reached_s: self.reached_s };
        self.work.advance(&self.id, reading, context);
        if self.ended && self.work.is_done() && self.phase == Phase::Reading {
            self.close(context);
        } else if self.wants_read(has_room, context) && context.now.tick_ms >= self.next_read {
            self.read(context);
        }
    }

    fn is_drained_open_parent(&self) -> bool {
        self.has_child && !self.is_closed && !self.ended && self.empty_reads >= EMPTY_READS_TO_CLOSE
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
        self.reading = true;
        self.read_issued = context.now.tick_ms;
        self.read_issued_ms = context.now.time_ms;
        context.commands.push(Command::Read { shard: self.id.clone(), from });
    }

    /// When something is due without further input.
    pub(super) fn deadline(&self, has_room: bool, context: &Context<'_>) -> Option<u64> {
        if !matches!(self.phase, Phase::Reading | Phase::Gap) || context.stopping {
            return None;
        }
        let read = self.wants_read(has_room, context).then_some(self.next_read);
        [read, self.work.deadline(context)].into_iter().flatten().min()
    }

    /// Takes in a page. A record that was read before is passed over silently.
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
        self.failures = 0;
        self.ended = end;
        self.empty_reads = if is_empty { self.empty_reads.saturating_add(1) } else { 0 };
        if is_empty {
            // Records of the second in which the read was asked for may still come.
            self.reached_s = self.reached_s.max(self.read_issued_ms.div_euclid(1000));
        }
        self.tip = (is_empty || end).then_some(self.read_issued);
        let pause_ms = if is_empty { context.settings.pace.idle_poll_ms } else { 0 };
        self.next_read = context.now.tick_ms.saturating_add(pause_ms);
        let mut passed_over: Option<(usize, SequenceNumber, SequenceNumber)> = None;
        let mut moved = false;
        for record in records {
            if self.last_read.as_ref().is_some_and(|last| record.sequence <= *last) {
                continue;
            }
            self.last_read = Some(record.sequence.clone());
            context.totals.read += 1;
            self.reached_s = self.reached_s.max(record.creation_s.unwrap_or(i64::MIN));
            if self.wants(&record, context) {
                self.work.accept(record.into(), context);
            } else {
                context.totals.filtered += 1;
                let (count, first) = passed_over
                    .map_or((0, record.sequence.clone()), |(count, first, _)| (count, first));
                passed_over = Some((count + 1, first, record.sequence.clone()));
                moved |= self.work.pass_over(record.sequence);
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

    fn wants(&self, record: &Record, context: &Context<'_>) -> bool {
        let is_old = match (self.not_before_s, record.creation_s) {
            (Some(earliest), Some(made)) => made < earliest,
            _ => false,
        };
        !is_old && context.settings.filter.passes(record)
    }

    /// Deals with a read that brought nothing.
    pub(super) fn accept_read_failure(
        &mut self,
        failure: ReadFailure,
        created_ms: i64,
        context: &mut Context<'_>,
    ) {
        if !self.reading {
            return;
        }
        (self.reading, self.has_iterator, self.tip) = (false, false, None);
        if self.start == StartingPosition::Latest && self.last_read.is_none() {
            // Where the newest record was is lost with the iterator. To ask for it again could
            // skip what was written since, so the shard is read from its beginning instead.
            self.start = StartingPosition::TrimHorizon;
            self.not_before_s = Some(created_ms.div_euclid(1000));
        }
        match failure {
            ReadFailure::IteratorExpired => self.next_read = context.now.tick_ms,
            // The oldest record may be trimmed between an iterator and its read. The shard may be open,
            // so it is read once more.
            ReadFailure::Trimmed { reason } if self.restart => self.read_later(reason, context),
            ReadFailure::Unavailable { reason } => self.read_later(reason, context),
            // The gap was accepted and there is nothing left to read.
            ReadFailure::ShardGone { .. } if self.restart => self.ended = true,
            ReadFailure::Trimmed { reason } | ReadFailure::ShardGone { reason } => {
                self.phase = Phase::Gap;
                context.totals.gaps += 1;
                let after = self.last_read.as_ref().or(self.work.checkpoint()).cloned();
                context.report(Event::Gap { shard: self.id.clone(), after, reason });
            }
        }
    }

    fn read_later(&mut self, reason: String, context: &mut Context<'_>) {
        self.failures = self.failures.saturating_add(1);
        let seed = back_off::seed_of(self.id.as_str());
        let delay_ms = context.settings.pace.reach.delay_ms(self.failures, seed);
        self.next_read = context.now.tick_ms.saturating_add(delay_ms);
        context.report(Event::ShardUnavailable { shard: self.id.clone(), reason });
    }

    /// Goes on after a gap, from the oldest record that there still is.
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
