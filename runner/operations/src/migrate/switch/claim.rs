//! Claims a migration for a switch. The claim sets a phase, which shows that a command is
//! switching, and a unique holder name. Every step checks the holder name, which is a fencing
//! token. A command that resumes the switch sets a new name, so later steps of the earlier command
//! are refused.
//!
//! A rollback first claims the migration under a new name, so that requests in flight with the old
//! name are refused.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use control::{Expect, Followed, Move, Side, State, Switch};

use crate::migrate::context::Context;
use crate::migrate::control_table::{Guard, checked};
use crate::migrate::failure::{Failure, Result, fatal};
use client::interruption;
use client::output::say;

/// Time for which a rollback is retried. The time is long, because writers are blocked until the
/// rollback succeeds, and perhaps no other command unblocks them.
pub(crate) const RELEASE_LIMIT: Duration = Duration::from_secs(60);
const RELEASE_PAUSE: Duration = Duration::from_secs(1);
/// Time for which a claim is retried if it gets no response. Writers are not blocked during these
/// retries.
const CLAIM_LIMIT: Duration = Duration::from_secs(60);

/// A claimed migration.
pub(crate) struct Claim<'h> {
    context: &'h Context,
    name: &'h str,
    switch: Switch,
    holder: String,
    /// The phase that the claim sets and that every later step requires. The field is an array
    /// because [`Expect::claimed_by`] borrows a slice.
    phases: [rules::migration::Phase; 1],
    /// The direction and fence of the active migration before the switch.
    followed: Followed,
}

/// Runs work, and on Ctrl-C cancels it and returns an error. The work must be cancellable at any
/// point. Without this function, Ctrl-C would have no effect on the work, because the process
/// handles the signal.
pub(crate) async fn or_interrupted<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        ended = work => ended,
        _ = interruption::requested() => {
            Err(fatal!("interrupted; run the same command again to resume"))
        }
    }
}

/// Returns a unique holder name.
pub(crate) fn new_holder() -> String {
    format!("{}-{:016x}", std::process::id(), RandomState::new().hash_one(0_u8))
}

/// The result of a rollback.
pub(crate) enum RollbackResult {
    /// The phase and the route are restored to the values before the switch.
    RolledBack,
    /// The switch is committed.
    Committed,
    /// Another command has claimed the migration, and will resume or roll back the switch.
    ClaimedByOther(Failure),
}

impl<'h> Claim<'h> {
    /// Claims a migration, even if another command holds it. If the claim gets no response, checks
    /// whether the claim was written.
    ///
    /// # Errors
    /// When the migration is in a different phase, or the control table cannot be written.
    pub(crate) async fn acquire(
        context: &'h Context,
        name: &'h str,
        switch: Switch,
        followed: Followed,
    ) -> Result<Self> {
        let phases = [switch.claimed_phase()];
        let claim = Self { context, name, switch, holder: new_holder(), phases, followed };
        let before = context.state(name).await?.holder;
        let (begun, mut is_first) = (Instant::now(), true);
        loop {
            let tried = match is_first {
                true => claim.claim(true, None, &claim.holder).await,
                false => claim.claim_again(before.as_deref()).await,
            };
            let failure = match tried {
                Ok(()) => return Ok(claim),
                Err(Failure::Unknown(text) | Failure::Retry(text)) => text,
                Err(failure) => return Err(failure),
            };
            if context.absence.is_silent() || begun.elapsed() > CLAIM_LIMIT {
                let (verb, held) = (switch.verb(), switch.claimed_phase().as_str());
                return Err(Failure::Unknown(format!(
                    "{failure}; it is unknown whether `{name}` is {held} now, but this command has not blocked writers: check `weir migrate status {name}`, then run `weir migrate {verb} {name}` again"
                )));
            }
            say(&format!("checking whether the write succeeded: {failure}"));
            is_first = false;
            tokio::time::sleep(RELEASE_PAUSE).await;
        }
    }

    /// Claims a migration after an attempt that got no response, and that may have succeeded.
    /// `before` is the holder before that attempt.
    ///
    /// # Errors
    /// When another command has claimed the migration after that attempt, or the request fails
    /// again.
    async fn claim_again(&self, before: Option<&str>) -> Result<()> {
        let state = self.context.state(self.name).await?;
        if state.holder.as_deref() == before || state.phase != self.switch.claimed_phase() {
            return self.claim(true, None, &self.holder).await;
        }
        checked(self.expect(), &state)
    }

    async fn claim(&self, is_first: bool, from: Option<&str>, holder: &str) -> Result<()> {
        let (switch, holder) = (self.switch, holder.to_owned());
        let guard = Guard { holder: from, run: None };
        let claim = Move::Claim { switch, holder, is_first };
        self.context.make(self.name, guard, &claim).await.map(drop)
    }

    /// Returns the condition on the migration's state that every step of this claim checks.
    pub(crate) fn expect(&self) -> Expect<'_> {
        Expect::claimed_by(&self.phases, &self.holder)
    }

    /// Changes the phase of the migration under the holder name of this claim.
    ///
    /// # Errors
    /// When another command has claimed the migration, or the control table cannot be written.
    pub(crate) async fn make(&self, it: &Move) -> Result<State> {
        self.context.make(self.name, Guard::held(&self.holder), it).await
    }

    /// Restores the direction and fence that the active migration had before the switch.
    ///
    /// # Errors
    /// The errors of [`Claim::make`].
    pub(crate) async fn follow(&self) -> Result<()> {
        let followed = Some(self.followed.clone());
        self.context.control.set_active(self.name, self.expect(), followed).await
    }

    /// Blocks writers, and waits until every writer has read the closed route. If an earlier
    /// command has blocked writers, does not change the recorded time of the block.
    ///
    /// # Errors
    /// The errors of [`Claim::make`].
    pub(crate) async fn block_writers(&self, gate_seconds: u32) -> Result<()> {
        let control = &self.context.control;
        let route = control.route(self.name).await?;
        let is_blocked = route.is_some_and(|route| route.blocks_writers());
        let now = self.context.now().await;
        let note = |state: &mut State| {
            let is_noted = is_blocked && state.held_at.is_some();
            if !is_noted {
                state.held_at = Some(now);
            }
            !is_noted
        };
        control.change_state(self.name, self.expect(), note).await?;
        let sides = (self.switch.from_side(), Side::None);
        control.set_route(self.name, self.expect(), sides).await?;
        tokio::time::sleep(Duration::from_secs(gate_seconds.into())).await;
        Ok(())
    }

    /// Rolls the switch back. Retries for `RELEASE_LIMIT`, because writers are blocked until the
    /// rollback succeeds.
    ///
    /// # Errors
    /// When all retries of the rollback failed.
    pub(crate) async fn release(&self) -> Result<RollbackResult> {
        let (begun, holder, mut is_told) = (Instant::now(), new_holder(), false);
        loop {
            let failure = match self.put_back(&holder).await {
                Ok(released) => return Ok(released),
                Err(failure) => failure,
            };
            if begun.elapsed() > RELEASE_LIMIT {
                return Err(failure);
            }
            if !is_told {
                say(&format!("cannot unblock writers, retrying: {failure}"));
                is_told = true;
            }
            tokio::time::sleep(RELEASE_PAUSE).await;
        }
    }

    /// Tries once to roll back under the new holder name `holder`. An earlier attempt of this
    /// rollback may have written the name already.
    async fn put_back(&self, holder: &str) -> Result<RollbackResult> {
        let (context, switch, name) = (self.context, self.switch, self.name);
        let state = context.state(name).await?;
        if state.phase == switch.committed() {
            return Ok(RollbackResult::Committed);
        }
        if state.phase == switch.before() {
            return Ok(RollbackResult::RolledBack);
        }
        let holder = holder.to_owned();
        let claim = Self {
            context,
            name,
            switch,
            holder,
            phases: self.phases,
            followed: self.followed.clone(),
        };
        if checked(claim.expect(), &state).is_err() {
            if let Err(theirs) = checked(self.expect(), &state) {
                return Ok(RollbackResult::ClaimedByOther(theirs));
            }
            self.claim(false, Some(&self.holder), &claim.holder).await?;
        }
        claim.follow().await?;
        let side = switch.from_side();
        context.control.set_route(name, claim.expect(), (side, side)).await?;
        claim.make(&Move::RollBack(switch)).await?;
        Ok(RollbackResult::RolledBack)
    }
}

/// Returns the part of a message about the time for which writers were blocked, up to `now`. If
/// this process measured the entire time, uses its measurement (`own`), because that is more
/// precise than the recorded time (`held_at`).
pub(crate) fn held_up(own: Option<Duration>, held_at: Option<i64>, now: i64) -> String {
    let since = |held_at: i64| u64::try_from(now.saturating_sub(held_at)).unwrap_or(0);
    let noted = held_at.map(|held_at| Duration::from_secs(since(held_at)));
    match (own, noted) {
        // The recorded time may be one second too long, because the store's times are whole
        // seconds.
        (Some(own), noted) if noted.is_none_or(|noted| own + Duration::from_secs(1) >= noted) => {
            format!("; writers were blocked for {:.1} s", own.as_secs_f64())
        }
        (_, None) => String::new(),
        (_, Some(noted)) => format!("; writers were blocked for {} s", noted.as_secs()),
    }
}

/// Returns true if the route allows writes.
pub(crate) async fn is_open(context: &Context, name: &str) -> Result<bool> {
    let route = context.control.route(name).await?;
    Ok(!route.is_some_and(|route| route.blocks_writers()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_blocked_since_the_route_was_closed() {
        let own = |millis| Some(Duration::from_millis(millis));
        for (own, held_at, now, expected) in [
            (own(7_300), Some(1_000), 1_008, "; writers were blocked for 7.3 s"),
            // Another command closed the route and was killed, so the message uses the recorded
            // time.
            (own(7_300), Some(1_000), 1_024, "; writers were blocked for 24 s"),
            (None, Some(1_000), 1_024, "; writers were blocked for 24 s"),
            // The time of the block was not recorded.
            (own(500), None, 1_024, "; writers were blocked for 0.5 s"),
            (None, None, 1_024, ""),
            // The clock is frozen, or was set back.
            (own(500), Some(1_000), 900, "; writers were blocked for 0.5 s"),
        ] {
            assert_eq!(held_up(own, held_at, now), expected, "{own:?} {held_at:?} {now}");
        }
    }
}
