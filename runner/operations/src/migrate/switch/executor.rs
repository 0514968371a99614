//! Performs the steps of a switch; `control::Switch` decides their order.

use std::time::{Duration, Instant};

use control::{
    Cause, End, Expect, Followed, Move, Next, Outcome, Side, State, Step, Switch, SwitchFacts,
};
use rules::migration::plan::{Direction, Plan};
use rules::migration::{Migration, Phase};

use crate::migrate::context::Context;
use crate::migrate::control_table::Guard;
use crate::migrate::drain::catch_up::{LAST_LOOK, caught_up, drained, within};
use crate::migrate::drain::followers;
use crate::migrate::drain::open::{InverseUse, drain, settle_time};
use crate::migrate::drain::proof::{Drain, RecordSelection};
use crate::migrate::failure::{Failure, Result, fatal, refused};
use crate::migrate::plan::compile::compile;
use crate::migrate::report::documents;
use crate::migrate::report::next_steps::MigrationFacts;
use crate::migrate::start::fence::{Fence, FenceUse, activate};
use crate::migrate::start::record_time;
use crate::migrate::switch::claim::{Claim, RollbackResult, held_up, is_open, or_interrupted};
use crate::migrate::switch::complete::clean;
use crate::migrate::switch::{comparison, inverse_check, sweep};
use client::exit::Exit;
use client::interruption;
use client::output::{say, show};

/// Maximum time for which a step retries requests without a response, once the switch is committed.
/// `--timeout` does not apply to these steps, because writers are blocked until the last step is
/// complete.
const OPEN_LIMIT: Duration = Duration::from_secs(60);

/// The operator's request for a switch, and the results of the checks before it.
pub(crate) struct SwitchRequest {
    /// The reason why the last comparison or proof is too old for a new switch; `None` if the
    /// comparison or proof is recent enough.
    pub(crate) stale: Option<String>,
    /// True if the switch must check that functions read the targets' streams.
    pub(crate) asks_followers: bool,
    /// True if the operator accepts differences.
    pub(crate) may_differ: bool,
    /// Maximum time for which writers may be blocked.
    pub(crate) limit: Duration,
}

/// A switch in progress.
pub(crate) struct Executor<'c> {
    context: &'c Context,
    name: &'c str,
    plan: &'c Plan,
    fingerprint: &'c str,
    state: &'c State,
    switch: Switch,
    request: SwitchRequest,
    /// The compiled reverse direction, for a revert.
    back: Option<Migration>,
    drain: Option<Drain>,
    claim: Option<Claim<'c>>,
    /// Time after which a stream has delivered the record of every earlier write.
    settle: Duration,
    /// Additional time that a fence may take while writers are blocked, because record times are
    /// coarse.
    fence: Duration,
    /// The time limit from the claim to the commit. `deadline` is the moment at which this time
    /// ends.
    most: Duration,
    deadline: Instant,
    /// The moment at which writers were blocked.
    blocked: Option<Instant>,
    shards: Option<usize>,
    back_since: Option<i64>,
    epoch: u64,
    was_open: bool,
    /// The combined failure of all steps that failed.
    failure: Option<Failure>,
}

impl<'c> Executor<'c> {
    /// Returns a switch of a migration that was in `state` when the command began.
    pub(crate) fn new(
        context: &'c Context,
        switch: Switch,
        (plan, fingerprint): (&'c Plan, &'c str),
        state: &'c State,
        request: SwitchRequest,
    ) -> Self {
        Self {
            context,
            name: &plan.migration,
            plan,
            fingerprint,
            state,
            switch,
            request,
            back: None,
            drain: None,
            claim: None,
            settle: Duration::ZERO,
            fence: Duration::ZERO,
            most: Duration::ZERO,
            deadline: Instant::now(),
            blocked: None,
            shards: None,
            back_since: None,
            epoch: 0,
            was_open: false,
            failure: None,
        }
    }

    /// Performs the switch.
    ///
    /// # Errors
    /// When the switch failed. The message gives the reason, and the side that readers and writers
    /// use now.
    pub(crate) async fn run(mut self) -> Result<Exit> {
        let known =
            SwitchFacts { phase: self.state.phase, asks_followers: self.request.asks_followers };
        let (mut step, mut cause) = (self.switch.first(known), Cause::default());
        loop {
            let outcome = match self.ended(step).await {
                Ok(outcome) => outcome,
                Err(failure) => {
                    let is_refused = matches!(failure, Failure::Refused(_));
                    self.note(failure);
                    if is_refused { Outcome::Refused } else { Outcome::Failed }
                }
            };
            match self.switch.next(known, step, outcome, &mut cause) {
                Next::Do(next) => step = next,
                Next::End(end) => return self.result(end),
            }
        }
    }

    /// Performs a step. Before the commit, the step is cancelled at the time limit.
    async fn ended(&mut self, step: Step) -> Result<Outcome> {
        if step == Step::Clean {
            return or_interrupted(self.perform(step)).await;
        }
        if step <= Step::Claim || step > Step::Commit {
            return self.perform(step).await;
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        let most = self.most.as_secs();
        tokio::select! {
            ended = tokio::time::timeout(left, self.perform(step)) => ended.unwrap_or_else(|_| {
                say(&format!("the switch was not committed within {most} s"));
                Ok(Outcome::TimedOut)
            }),
            _ = interruption::requested() => Err(fatal!("interrupted")),
        }
    }

    async fn perform(&mut self, step: Step) -> Result<Outcome> {
        let (context, name) = (self.context, self.name);
        match step {
            Step::FindFollowers => {
                let (plan, state, limit) = (self.plan, self.state, self.request.limit);
                let are_seen = followers::are_seen(context, plan, state, limit).await?;
                Ok(if are_seen { Outcome::Done } else { Outcome::TimedOut })
            }
            Step::CheckDocuments | Step::CheckDocumentsAgain => self.check_documents().await,
            Step::CheckComparison => {
                self.make_drain().await?;
                let (phase, may_differ) = (self.switch.before(), self.request.may_differ);
                comparison::check(context, name, phase, may_differ).await.map(|()| Outcome::Done)
            }
            Step::CatchUp => {
                let limit = self.request.limit;
                caught_up(context, name, self.make_drain().await?, limit).await
            }
            Step::CheckRecordTimes => {
                self.make_drain().await?;
                record_time::check(context).await?;
                self.fence = fence_time(context, self.plan).await?;
                Ok(Outcome::Done)
            }
            Step::Claim => self.claim().await,
            Step::Follow => self.current_claim()?.follow().await.map(|()| Outcome::Done),
            Step::CheckAgain => self.check_again().await,
            Step::BlockWriters => {
                self.blocked = Some(Instant::now());
                let gate = self.plan.gate_seconds;
                self.current_claim()?.block_writers(gate).await.map(|()| Outcome::Done)
            }
            Step::Drain => self.prove().await,
            Step::FollowReverse => self.follow_reverse().await,
            Step::Commit => self.commit().await,
            Step::RollBack => self.roll_back().await,
            Step::OpenRoute => self.open_route().await,
            Step::Finish => self.finish().await,
            Step::Clean => {
                let (plan, fingerprint, limit) = (self.plan, self.fingerprint, self.request.limit);
                Ok(match clean(context, plan, fingerprint, limit).await? {
                    Exit::Done => Outcome::Done,
                    _ => Outcome::TimedOut,
                })
            }
        }
    }

    /// Creates the drain proof of the streams for the switch.
    async fn make_drain(&mut self) -> Result<&mut Drain> {
        let direction = self.switch.direction();
        let known = match self.drain.take() {
            Some(known) => known,
            None => {
                let (compared, way_back) = match direction {
                    Direction::Forward => (self.state.verified_at(), InverseUse::Required),
                    Direction::Reverse => (self.state.reverse_known_until(), InverseUse::Unused),
                };
                let counted = RecordSelection::new(self.state.since_of(direction), compared);
                drain(self.context, self.plan, direction, counted, way_back).await?
            }
        };
        Ok(self.drain.insert(known))
    }

    /// Checks that every document of a split can be assembled into one item. Reports the documents
    /// that cannot be assembled.
    async fn check_documents(&mut self) -> Result<Outcome> {
        let migration = match self.back.take() {
            Some(known) => known,
            None => compile(self.context, self.plan, Direction::Reverse).await?,
        };
        let migration = self.back.insert(migration);
        let kept = documents::refused(self.context, self.name, migration, usize::MAX).await?;
        if kept.is_empty() {
            return Ok(Outcome::Done);
        }
        let lines = kept.join("\n");
        Err(refused!(
            "these documents cannot be reassembled for a revert; nothing was changed:\n{lines}"
        ))
    }

    async fn claim(&mut self) -> Result<Outcome> {
        self.make_drain().await?;
        self.settle = settle_time(self.context, self.plan).await;
        let direction = self.switch.direction();
        let followed = Followed {
            direction,
            fingerprint: self.fingerprint.to_owned(),
            since: self.state.since_of(direction),
        };
        self.claim = Some(Claim::acquire(self.context, self.name, self.switch, followed).await?);
        let gate = Duration::from_secs(self.plan.gate_seconds.into());
        let parts = [self.request.limit, self.settle, self.fence, gate, LAST_LOOK];
        self.most = parts.into_iter().fold(Duration::ZERO, Duration::saturating_add);
        let now = Instant::now();
        self.deadline = now.checked_add(self.most).unwrap_or(now);
        Ok(Outcome::Done)
    }

    fn current_claim(&self) -> Result<&Claim<'c>> {
        self.claim.as_ref().ok_or_else(|| fatal!("`{}` is not claimed", self.name))
    }

    /// Repeats, after the claim, the checks whose results may have changed before the claim. After
    /// the claim, the results cannot change.
    async fn check_again(&mut self) -> Result<Outcome> {
        if let Some(why) = self.request.stale.clone() {
            return Err(Failure::Refused(why));
        }
        // An earlier command blocks writers only after it has passed the checks. So if writers are
        // blocked, a command that resumes the switch skips the checks.
        let is_back = self.switch == Switch::REVERT;
        let may_differ = self.request.may_differ || (is_back && self.state.held_at.is_some());
        if is_back && !may_differ {
            let state = self.context.state(self.name).await?;
            if let Some(why) = inverse_check::differences(&state) {
                return Err(Failure::Refused(why));
            }
        }
        let (context, name, phase) = (self.context, self.name, self.switch.claimed_phase());
        comparison::check(context, name, phase, may_differ).await.map(|()| Outcome::Done)
    }

    async fn prove(&mut self) -> Result<Outcome> {
        let (limit, settle) = (self.request.limit, self.settle);
        let most = limit.saturating_add(settle).saturating_add(LAST_LOOK);
        match within(most, drained(self.make_drain().await?, limit, settle)).await? {
            Ok(shards) => {
                self.shards = Some(shards);
                Ok(Outcome::Done)
            }
            Err(outcome) => Ok(outcome),
        }
    }

    /// Makes functions apply the reverse direction, if the plan has an `inverse`. From this step
    /// on, writes to the targets are copied back.
    async fn follow_reverse(&mut self) -> Result<Outcome> {
        let (context, expect) = (self.context, self.current_claim()?.expect());
        let has_way_back = self.switch == Switch::CUTOVER && !self.plan.inverse.is_empty();
        let back_since = if self.switch == Switch::CUTOVER && self.plan.kind.is_in_place() {
            // An in-place change continues in the forward direction, because late writes with old
            // attributes must be changed until the migration is completed.
            Some(self.state.since)
        } else if has_way_back {
            let (direction, after) = (Direction::Reverse, FenceUse::Writers);
            let fence = Fence { direction, fingerprint: self.fingerprint, expect, after };
            Some(activate(context, self.name, fence).await?)
        } else {
            context.control.set_active(self.name, expect, None).await?;
            match self.switch == Switch::CUTOVER {
                true => Some(context.now().await),
                false => None,
            }
        };
        self.back_since = back_since;
        Ok(Outcome::Done)
    }

    async fn commit(&mut self) -> Result<Outcome> {
        let commit = Move::Commit {
            switch: self.switch,
            shards: self.shards.unwrap_or_default(),
            back_since: self.back_since,
            switched_at: sweep::real_seconds(self.context).await,
        };
        self.current_claim()?.make(&commit).await.map(|_| Outcome::Done)
    }

    async fn roll_back(&mut self) -> Result<Outcome> {
        let why = match self.current_claim()?.release().await {
            Ok(RollbackResult::RolledBack) => return Ok(Outcome::Done),
            Ok(RollbackResult::Committed) => {
                self.failure = None;
                return Ok(Outcome::Committed);
            }
            Ok(RollbackResult::ClaimedByOther(why)) | Err(why) => why,
        };
        Err(why)
    }

    async fn open_route(&mut self) -> Result<Outcome> {
        let (context, name) = (self.context, self.name);
        context.absence.bound(OPEN_LIMIT);
        self.was_open = is_open(context, name).await?;
        let phases = [self.switch.committed()];
        let side: Side = self.switch.to_side();
        let expect = Expect::phases(&phases);
        self.epoch = context.control.set_route(name, expect, (side, side)).await?;
        Ok(Outcome::Done)
    }

    async fn finish(&mut self) -> Result<Outcome> {
        let (context, name, switch) = (self.context, self.name, self.switch);
        let own = self.blocked.map(|blocked| blocked.elapsed());
        let held_at = context.state(name).await?.held_at;
        let finish = Move::Finish { switch, shards: self.shards, epoch: self.epoch };
        let (why, now) = (finish.why(), context.now().await);
        context.make(name, Guard::default(), &finish).await?;
        // If an earlier command opened the route and was killed, the time for which writers were
        // blocked is unknown.
        let held = if self.was_open { String::new() } else { held_up(own, held_at, now) };
        let is = if switch == Switch::CUTOVER { "cut over" } else { "reverted" };
        show(&format!("{name} is {is}: {why}{held}\n"));
        if switch == Switch::CUTOVER {
            MigrationFacts::new(name, Phase::CutOver, Some(self.plan)).show();
        }
        Ok(Outcome::Done)
    }

    /// Adds the failure of a step to the failures of earlier steps.
    fn note(&mut self, failure: Failure) {
        self.failure = Some(match self.failure.take() {
            Some(first) => first.with(|text| format!("{text}; {failure}")),
            None => failure,
        });
    }

    /// Returns the exit code or the error of the switch. Reports a timeout after the claim.
    fn result(self, end: End) -> Result<Exit> {
        let (verb, name) = (self.switch.verb(), self.name);
        let side = self.switch.from_side().as_str();
        let as_before = format!("nothing has changed: readers and writers use the {side}s");
        match (end, self.failure) {
            (End::Switched, _) => Ok(Exit::Done),
            (End::NeedsCleaning, None) => Ok(Exit::TimedOut),
            (End::TimedOut, _) => {
                if self.claim.is_some() {
                    say(&as_before);
                }
                Ok(Exit::TimedOut)
            }
            (End::Refused | End::Failed, Some(failure)) if self.claim.is_some() => {
                Err(failure.with(|text| format!("{text}; {as_before}")))
            }
            (End::Refused | End::Failed | End::NeedsCleaning, Some(failure)) => Err(failure),
            (_, failure) => {
                let text = failure.map_or_else(|| "timed out".to_owned(), String::from);
                Err(Failure::Unknown(match end {
                    End::Unfinished => format!(
                        "{text}; the switch is committed but incomplete: writers may be blocked until you run `weir migrate {verb} {name}` again"
                    ),
                    _ => format!(
                        "the rollback failed ({text}), and writers may be blocked: check `weir migrate status {name}`, then run `weir migrate {verb} {name}` again"
                    ),
                }))
            }
        }
    }
}

/// Returns the additional time for which writers may be blocked by the fence of the reverse
/// direction, because record times are coarse. If there is any, prints a message, because
/// `--timeout` does not limit this time.
async fn fence_time(context: &Context, plan: &Plan) -> Result<Duration> {
    if plan.inverse.is_empty() || plan.kind.is_in_place() {
        return Ok(Duration::ZERO);
    }
    let fence = record_time::coarseness(context).await?;
    if !fence.is_zero() {
        say(
            "the stream records of this store have coarse times: after the drain, writers stay blocked until the records show a later time, for up to a minute more",
        );
    }
    Ok(fence)
}
