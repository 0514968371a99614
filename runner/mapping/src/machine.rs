//! The state machine of a mapping. It takes one input at a time and returns commands.
//!
//! It uses no clock, no random numbers and no I/O: the same inputs give the same commands.

use super::back_off::{self, BackOff};
use super::checkpoint::Checkpoints;
use super::command::{Command, Event, Input, Now};
use super::context::{Context, Totals};
use super::filter::UnknownName;
use super::lineage::{self, Lineage};
use super::settings::Settings;
use super::shard::Shard;
use super::status::{ShardStatus, Status};

/// The limit in bytes for the JSON of waiting records in all shards together. Above this limit,
/// only shards without waiting records are read. A mapping with many shards can therefore need
/// several times this memory, in addition to the records of attempts in flight.
pub const BUFFER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The first delay in milliseconds before a listing that looks for a missing child shard. It is
/// also the minimum delay before a listing that confirms that a shard is gone. `DescribeStream`
/// allows 10 calls per second and account.
const CHILD_POLL_MS: u64 = 200;

/// An event source mapping.
#[derive(Debug, Clone)]
pub struct Mapping {
    settings: Settings,
    lineage: Lineage,
    totals: Totals,
    /// The attribute name of a pattern that the first filtered record did not have.
    unknown_name: Option<UnknownName>,
    ids: u64,
    stopping: bool,
    describing: bool,
    /// Number of requested listings.
    listings: u64,
    next_describe: u64,
    /// The tick at which the last listing was requested.
    described_at: u64,
    /// The tick at which the store first reported the stream as missing; `None` while the stream
    /// exists.
    missing_since: Option<u64>,
    gone: Option<String>,
    /// The number of listings requested before all known shards were done; `None` while a shard is
    /// not done.
    done_at: Option<u64>,
    /// The number of listings requested when the last listing arrived.
    listed_at: u64,
    /// The number of consecutive listings that failed or did not contain an expected child shard.
    describe_tries: u32,
    lacked_child: bool,
    unavailable: Option<String>,
    is_over: bool,
}

impl Mapping {
    /// Returns a mapping that resumes from its checkpoints; without checkpoints it is new. The
    /// mapping does nothing before the first [`step`](Self::step). The first input may be a
    /// [`Tick`](Input::Tick).
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

    /// Resumes from checkpoints, as after a crash of the poller. The counts and the numbers of
    /// batches and deliveries continue, because observers see the same mapping before and after the
    /// restart.
    pub fn restart(&mut self, checkpoints: Option<Checkpoints>) {
        *self = Self {
            totals: self.totals,
            unknown_name: self.unknown_name.take(),
            ids: self.ids,
            ..Self::new(self.settings.clone(), checkpoints)
        };
    }

    /// Returns the mapping's settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Handles one input and performs all steps that have become possible. The caller must execute
    /// the commands in order. A [`Wake`](Command::Wake) is always the last command.
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
            // At most one shard owns this attempt or delivery. An outdated attempt or delivery
            // belongs to no shard.
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

    /// Schedules the next listing: after the usual interval, or earlier if a child is missing.
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
        // The children of a finished shard start in the next iteration, and may be done
        // immediately. Each iteration starts at least one shard, so the number of iterations is at
        // most the number of shards.
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

    /// Requests a listing if it is due. Returns the tick at which the next listing is due; `None`
    /// while a listing is running or no further listing is needed.
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
        // After a failed listing, the back-off determines the time of the next listing.
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

    /// Returns the state that must survive a restart; `None` before the first listing of the
    /// stream.
    #[must_use]
    pub fn checkpoints(&self) -> Option<Checkpoints> {
        self.lineage.checkpoints()
    }

    /// Returns true if neither an invocation nor a failure record is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.lineage.shards.values().any(|shard| shard.work.is_in_flight())
    }

    /// Returns true if an [`Arrived`](Input::Arrived) input would make the mapping read earlier.
    #[must_use]
    pub fn is_resting(&self) -> bool {
        self.lineage.shards.values().any(Shard::is_resting)
    }

    /// Returns true if the stream is disabled and all its records are done or discarded.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns true if the mapping must receive [`Saved`](Input::Saved) before it can read.
    #[must_use]
    pub fn waits_for_save(&self) -> bool {
        self.lineage.unsaved
    }

    /// Returns the store's message about the missing stream if the stream counts as gone.
    #[must_use]
    pub fn gone(&self) -> Option<&str> {
        self.gone.as_deref()
    }

    /// Returns the mapping's status. `time_ms` is the store's time in milliseconds since 1970.
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
