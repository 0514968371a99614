//! The mapping as one state machine: an input goes in, commands come out.
//!
//! No clock, random numbers or I/O: the same inputs give the same commands.

use super::back_off::{self, BackOff};
use super::checkpoint::Checkpoints;
use super::command::{Command, Event, Input, Now};
use super::context::{Context, Totals};
use super::filter::UnknownName;
use super::lineage::{self, Lineage};
use super::settings::Settings;
use super::shard::Shard;
use super::status::{ShardStatus, Status};

/// The limit on waiting JSON bytes in all shards together. Above it, only shards without waiting
/// records are read. A mapping of many shards therefore needs a few times this memory, including
/// its attempts in flight.
pub const BUFFER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The first pause before a listing that looks for a missing child. It is also the shortest pause
/// before a listing that confirms that a shard is gone. In milliseconds; `DescribeStream` allows 10
/// calls a second for an account.
const CHILD_POLL_MS: u64 = 200;

/// One event source mapping.
#[derive(Debug, Clone)]
pub struct Mapping {
    settings: Settings,
    lineage: Lineage,
    totals: Totals,
    /// The name that the first filtered record lacks.
    unknown_name: Option<UnknownName>,
    ids: u64,
    stopping: bool,
    describing: bool,
    /// Number of requested listings.
    listings: u64,
    next_describe: u64,
    /// When the last listing was requested.
    described_at: u64,
    /// The tick since which the store reports that the stream does not exist.
    missing_since: Option<u64>,
    gone: Option<String>,
    /// The number of listings that had been requested when all known shards became done.
    done_at: Option<u64>,
    /// The number of listings that had been requested when the last reply to a listing arrived.
    listed_at: u64,
    /// Number of consecutive listings that failed or lacked a child.
    describe_tries: u32,
    lacked_child: bool,
    unavailable: Option<String>,
    is_over: bool,
}

impl Mapping {
    /// Returns a mapping that resumes from its checkpoints; without checkpoints it is new. The mapping does
    /// nothing before the first [`step`](Self::step), which may be a [`Tick`](Input::Tick).
    #[must_use]
    pub fn new(settings: Settings, checkpoints: Option<Checkpoints>) -> Self {
        Self {
            settings,
            lineage: Lineage::restore(checkpoints),
            totals: Totals::default(),
            unknown_name: None,
            ids: 0,
            stopping: false,
            describing: false,
            listings: 0,
            next_describe: 0,
            described_at: 0,
            missing_since: None,
            gone: None,
            done_at: None,
            listed_at: 0,
            describe_tries: 0,
            lacked_child: false,
            unavailable: None,
            is_over: false,
        }
    }

    /// Resumes from checkpoints, as after a crash of the poller. The counts go on, and so do the numbers
    /// of batches and deliveries, because the observer sees the same mapping before and after it.
    pub fn restart(&mut self, checkpoints: Option<Checkpoints>) {
        *self = Self {
            totals: self.totals,
            unknown_name: self.unknown_name.take(),
            ids: self.ids,
            ..Self::new(self.settings.clone(), checkpoints)
        };
    }

    /// Returns its settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Handles one input and performs all steps that have become possible. The caller must carry out the
    /// commands in order. A [`Wake`](Command::Wake) is always the last one.
    pub fn step(&mut self, now: Now, input: Input) -> Vec<Command> {
        let mut commands = Vec::new();
        self.take_in(now, input, &mut commands);
        self.advance(now, &mut commands);
        commands
    }

    fn take_in(&mut self, now: Now, input: Input, commands: &mut Vec<Command>) {
        let mut context = Context {
            settings: &self.settings,
            now,
            stopping: self.stopping,
            totals: &mut self.totals,
            unknown_name: &mut self.unknown_name,
            ids: &mut self.ids,
            commands,
        };
        let shards = &mut self.lineage.shards;
        match input {
            Input::Tick => {}
            Input::Stop => self.stopping = true,
            Input::Described { enabled, shards } => {
                self.lineage.describe(self.listings, enabled, shards, &mut context);
                self.plan_describe(now);
            }
            Input::DescribeFailed { reason } => {
                context.report(Event::StreamUnavailable { reason: reason.clone() });
                self.plan_describe_again(now, reason);
            }
            Input::StreamMissing { reason } => {
                context.report(Event::StreamUnavailable { reason: reason.clone() });
                let since = *self.missing_since.get_or_insert(now.tick_ms);
                if now.tick_ms.saturating_sub(since) >= self.settings.pace.missing_ms {
                    self.gone = Some(reason.clone());
                }
                self.plan_describe_again(now, reason);
            }
            Input::Arrived => shards.values_mut().for_each(|shard| shard.wake(&context)),
            Input::Saved => self.lineage.unsaved = false,
            Input::Page { shard, records, end } => {
                if let Some(shard) = shards.get_mut(&shard) {
                    shard.accept_page(records, end, &mut context);
                }
            }
            Input::ReadFailed { shard, failure } => {
                let known = (self.lineage.created_ms(), self.listings);
                if let Some(shard) = self.lineage.shards.get_mut(&shard) {
                    shard.accept_read_failure(failure, known, &mut context);
                }
            }
            // At most one shard owns this attempt or delivery. If the attempt or delivery is outdated, no
            // shard does.
            Input::Invoked { batch, outcome } => {
                shards
                    .values_mut()
                    .any(|shard| shard.work.invoked(&shard.id, batch, &outcome, &mut context));
            }
            Input::FailureDelivered { delivery } => {
                shards
                    .values_mut()
                    .any(|shard| shard.work.delivered(&shard.id, delivery, None, &mut context));
            }
            Input::FailureNotDelivered { delivery, reason } => {
                let refused = Some(reason.as_str());
                shards
                    .values_mut()
                    .any(|shard| shard.work.delivered(&shard.id, delivery, refused, &mut context));
            }
            Input::AcceptGap { shard } => {
                if let Some(shard) = shards.get_mut(&shard) {
                    shard.accept_gap(&context);
                }
            }
        }
    }

    /// Schedules the next listing: after the usual interval, or soon if a child is missing.
    fn plan_describe(&mut self, now: Now) {
        (self.describing, self.listed_at) = (false, self.listings);
        (self.unavailable, self.missing_since) = (None, None);
        let pause_ms = if self.lineage.lacks_child() {
            self.describe_tries = self.describe_tries.saturating_add(1);
            child_poll(&self.settings).delay_ms(self.describe_tries, 0)
        } else {
            self.describe_tries = 0;
            self.settings.pace.describe_ms
        };
        self.next_describe = now.tick_ms.saturating_add(pause_ms);
    }

    fn plan_describe_again(&mut self, now: Now, reason: String) {
        self.describing = false;
        self.unavailable = Some(reason);
        self.describe_tries = self.describe_tries.saturating_add(1);
        let seed = back_off::seed_of(&self.settings.mapping_id);
        let pause_ms = self.settings.pace.unreachable.delay_ms(self.describe_tries, seed);
        self.next_describe = now.tick_ms.saturating_add(pause_ms);
    }

    fn advance(&mut self, now: Now, commands: &mut Vec<Command>) {
        let mut context = Context {
            settings: &self.settings,
            now,
            stopping: self.stopping,
            totals: &mut self.totals,
            unknown_name: &mut self.unknown_name,
            ids: &mut self.ids,
            commands,
        };
        // The children of a finished shard start in the next turn, and may be done at once. Each
        // turn starts at least one shard, so there are at most as many turns as shards.
        let mut first = true;
        while self.lineage.start_children() || first {
            first = false;
            let mut waiting_bytes = waiting_bytes(&self.lineage);
            for shard in self.lineage.shards.values_mut() {
                let before = shard.work.queued_bytes();
                shard.advance(waiting_bytes < BUFFER_BYTES_MAX, &mut context);
                waiting_bytes = waiting_bytes - before + shard.work.queued_bytes();
            }
        }
        let has_room = waiting_bytes(&self.lineage) < BUFFER_BYTES_MAX;
        let shards = self.lineage.shards.values();
        let deadline = shards.filter_map(|shard| shard.deadline(has_room, &context)).min();
        let describe = self.advance_listing(now, commands);
        if let Some(tick_ms) = deadline.into_iter().chain(describe).min() {
            commands.push(Command::Wake { tick_ms });
        }
    }

    /// Requests a listing if one is due. Returns when the next listing is due without further
    /// input.
    fn advance_listing(&mut self, now: Now, commands: &mut Vec<Command>) -> Option<u64> {
        if self.lineage.lacks_child() && !self.lacked_child {
            self.next_describe = now.tick_ms;
            self.describe_tries = 0;
        }
        self.lacked_child = self.lineage.lacks_child();
        // A listing that was requested before a shard was finished may lack the shard's children.
        let is_done = self.lineage.is_done();
        self.done_at = is_done.then(|| self.done_at.unwrap_or(self.listings));
        let is_worked_off = self.lineage.is_worked_off();
        let is_over = is_worked_off && self.done_at.is_some_and(|at| at < self.listed_at);
        if is_over && !self.is_over {
            commands.push(Command::Report(Event::StreamEnded));
        }
        self.is_over = is_over;
        let lacks_last = is_worked_off && self.done_at == Some(self.listings);
        let mut shards = self.lineage.shards.values();
        let lacks_shard = shards.any(|shard| shard.needs_listing(self.listings));
        // If the last listing failed, the next one waits for the back-off instead.
        if (lacks_last || lacks_shard) && self.unavailable.is_none() {
            let earliest = self.described_at.saturating_add(CHILD_POLL_MS).max(now.tick_ms);
            self.next_describe = self.next_describe.min(earliest);
        }
        if self.describing || self.stopping || self.is_over || self.gone.is_some() {
            return None;
        }
        if now.tick_ms < self.next_describe {
            return Some(self.next_describe);
        }
        (self.describing, self.described_at) = (true, now.tick_ms);
        self.listings += 1;
        commands.push(Command::Describe);
        None
    }

    /// Returns everything that must survive a restart; `None` before the stream was seen for the
    /// first time.
    #[must_use]
    pub fn checkpoints(&self) -> Option<Checkpoints> {
        self.lineage.checkpoints()
    }

    /// Returns true if neither an invocation nor a failure record is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.lineage.shards.values().any(|shard| shard.work.is_in_flight())
    }

    /// Returns true if [`Arrived`](Input::Arrived) would make the mapping read sooner.
    #[must_use]
    pub fn is_resting(&self) -> bool {
        self.lineage.shards.values().any(Shard::is_resting)
    }

    /// Returns true if the stream was disabled and all its records are done.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns true if the mapping cannot read before [`Saved`](Input::Saved).
    #[must_use]
    pub fn waits_for_save(&self) -> bool {
        self.lineage.unsaved
    }

    /// Returns the store's message about a missing stream, once the stream counts as gone.
    #[must_use]
    pub fn gone(&self) -> Option<&str> {
        self.gone.as_deref()
    }

    /// Returns the status. `time_ms` is the store's time.
    #[must_use]
    pub fn status(&self, time_ms: i64) -> Status {
        let shards = self.lineage.shards.values().map(|shard| ShardStatus {
            id: shard.id.clone(),
            parent: shard.parent.clone(),
            phase: shard.phase,
            last_read: shard.last_read.clone(),
            checkpoint: shard.work.checkpoint().cloned(),
            at_tip: shard.tip_requested_at.is_some() || shard.is_ended(),
            tip_tick_ms: shard.tip_requested_at,
            in_flight: shard.work.in_flight(),
            waiting: shard.work.waiting(),
            failed_attempts: shard.work.failed_attempts(),
            unreachable: shard.is_tried_in_vain(),
            lag_ms: shard
                .work
                .oldest()
                .and_then(|record| record.age_ms(time_ms))
                .map_or(0, |age| age.max(0)),
            lacks_child: self.lineage.enabled && lineage::is_childless(shard),
        });
        Status {
            mapping_id: self.settings.mapping_id.clone(),
            stream_arn: self.settings.stream_arn.clone(),
            described: self.lineage.described,
            stream_enabled: self.lineage.enabled,
            unsaved: self.lineage.unsaved,
            unavailable: self.unavailable.clone(),
            shards: shards.collect(),
            totals: self.totals,
            unknown_name: self.unknown_name.clone(),
        }
    }
}

fn child_poll(settings: &Settings) -> BackOff {
    BackOff { base_ms: CHILD_POLL_MS, cap_ms: settings.pace.describe_ms, spread_percent: 0 }
}

fn waiting_bytes(lineage: &Lineage) -> usize {
    lineage.shards.values().map(|shard| shard.work.queued_bytes()).sum()
}
