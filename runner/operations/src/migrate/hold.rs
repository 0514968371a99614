//! Holding a migration for a switch: its phase says that somebody is switching it, and a name that
//! only the holder knows guards every step. Whoever takes it over gives it another name, so that the
//! steps of the one before, who may only be slow, are refused.
//!
//! A roll-back first takes the migration by a new name: a request of the old name that is still on its way
//! is refused.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use control::{Expect, Followed, Move, Side, State, Switch};

use super::Context;
use super::control_table::{Guard, checked};
use super::failure::{Failure, Result, fatal};
use client::interruption;
use client::output::say;

/// For how long a roll-back is tried: writers are blocked meanwhile, and nobody else may know.
const RELEASE_LIMIT: Duration = Duration::from_secs(60);
const RELEASE_PAUSE: Duration = Duration::from_secs(1);
/// For how long it is tried to take a migration while answers do not come: nobody is blocked by then.
const CLAIM_LIMIT: Duration = Duration::from_secs(60);

/// A migration that is held.
pub(super) struct Hold<'h> {
    context: &'h Context,
    name: &'h str,
    switch: Switch,
    holder: String,
    /// The phase while it is held.
    phases: [rules::migration::Phase; 1],
    /// How functions follow it before the switch.
    followed: Followed,
}

/// Work that may be left at any point. Once a process has listened for Ctrl-C, nothing else ends it.
pub(super) async fn or_interrupted<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        ended = work => ended,
        _ = interruption::requested() => {
            Err(fatal!("interrupted; run the same command again to resume"))
        }
    }
}

/// A name that nobody else has.
pub(super) fn new_holder() -> String {
    format!("{}-{:016x}", std::process::id(), RandomState::new().hash_one(0_u8))
}

/// How a roll-back ended.
pub(super) enum Released {
    /// Everything is as it was.
    Back,
    /// The switch is committed.
    Committed,
    /// Somebody else has it, who goes on or rolls back.
    Theirs(Failure),
}

impl<'h> Hold<'h> {
    /// Takes a migration, also from somebody who holds it already. Where the answer does not come it is
    /// found out whether it was taken all the same.
    ///
    /// # Errors
    /// When it is in another phase, or the control table cannot be written.
    pub(super) async fn take(
        context: &'h Context,
        name: &'h str,
        switch: Switch,
        followed: Followed,
    ) -> Result<Self> {
        let phases = [switch.held()];
        let hold = Self { context, name, switch, holder: new_holder(), phases, followed };
        let before = context.state(name).await?.holder;
        let (begun, mut is_first) = (Instant::now(), true);
        loop {
            let tried = match is_first {
                true => hold.claim(true, None, &hold.holder).await,
                false => hold.claim_again(before.as_deref()).await,
            };
            let failure = match tried {
                Ok(()) => return Ok(hold),
                Err(Failure::Unknown(text)) => text,
                Err(failure) => return Err(failure),
            };
            if context.absence.is_silent() || begun.elapsed() > CLAIM_LIMIT {
                let (verb, held) = (switch.verb(), switch.held().as_str());
                return Err(Failure::Unknown(format!(
                    "{failure}; it is not known whether `{name}` is {held} now, writers were not held up by this: `weir migrate status {name}`, then `weir migrate {verb} {name}` again"
                )));
            }
            say(&format!("it is looked whether that was written: {failure}"));
            is_first = false;
            tokio::time::sleep(RELEASE_PAUSE).await;
        }
    }

    /// Takes a migration after an attempt without an answer, which may have been written. `before` is
    /// who had it at first.
    ///
    /// # Errors
    /// When somebody else has taken it since then, and as at first.
    async fn claim_again(&self, before: Option<&str>) -> Result<()> {
        let state = self.context.state(self.name).await?;
        if state.holder.as_deref() == before || state.phase != self.switch.held() {
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

    /// What the state must be for a step of this holder.
    pub(super) fn expect(&self) -> Expect<'_> {
        Expect::held(&self.phases, &self.holder)
    }

    /// Makes a move as this holder.
    ///
    /// # Errors
    /// When somebody else has taken the migration over, or the control table cannot be written.
    pub(super) async fn make(&self, it: &Move) -> Result<State> {
        self.context.make(self.name, Guard::held(&self.holder), it).await
    }

    /// Has functions follow as before the switch.
    ///
    /// # Errors
    /// As [`Hold::make`].
    pub(super) async fn follow(&self) -> Result<()> {
        let followed = Some(self.followed.clone());
        self.context.control.set_active(self.name, self.expect(), followed).await
    }

    /// Blocks writers, and waits until each of them has seen it. Whoever blocked them before and died has
    /// noted since when, and that stays.
    ///
    /// # Errors
    /// As [`Hold::make`].
    pub(super) async fn block_writers(&self, gate_seconds: u32) -> Result<()> {
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

    /// Rolls the switch back, and does not give that up soon: while it fails, writers are blocked.
    ///
    /// # Errors
    /// Why it could not be rolled back.
    pub(super) async fn release(&self) -> Result<Released> {
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
                say(&format!("it is tried again to let writers go on as before: {failure}"));
                is_told = true;
            }
            tokio::time::sleep(RELEASE_PAUSE).await;
        }
    }

    /// One attempt to put everything back, by a new name, by which an attempt before may have begun it.
    async fn put_back(&self, holder: &str) -> Result<Released> {
        let (context, switch, name) = (self.context, self.switch, self.name);
        let state = context.state(name).await?;
        if state.phase == switch.committed() {
            return Ok(Released::Committed);
        }
        if state.phase == switch.before() {
            return Ok(Released::Back);
        }
        let holder = holder.to_owned();
        let hold = Self {
            context,
            name,
            switch,
            holder,
            phases: self.phases,
            followed: self.followed.clone(),
        };
        if checked(hold.expect(), &state).is_err() {
            if let Err(theirs) = checked(self.expect(), &state) {
                return Ok(Released::Theirs(theirs));
            }
            self.claim(false, Some(&self.holder), &hold.holder).await?;
        }
        hold.follow().await?;
        let side = switch.from_side();
        context.control.set_route(name, hold.expect(), (side, side)).await?;
        hold.make(&Move::RollBack(switch)).await?;
        Ok(Released::Back)
    }
}

/// For how long writers were blocked: from when the route was closed, by whoever closed it, until `now`.
/// What this process has measured itself is more precise, if it has blocked them all the time.
pub(super) fn held_up(own: Option<Duration>, held_at: Option<i64>, now: i64) -> String {
    let since = |held_at: i64| u64::try_from(now.saturating_sub(held_at)).unwrap_or(0);
    let noted = held_at.map(|held_at| Duration::from_secs(since(held_at)));
    match (own, noted) {
        // The store's time is told in whole seconds.
        (Some(own), noted) if noted.is_none_or(|noted| own + Duration::from_secs(1) >= noted) => {
            format!("; writers were held up {:.1} s", own.as_secs_f64())
        }
        (_, None) => String::new(),
        (_, Some(noted)) => format!("; writers were held up {} s", noted.as_secs()),
    }
}

/// Whether writers may write.
pub(super) async fn is_open(context: &Context, name: &str) -> Result<bool> {
    let route = context.control.route(name).await?;
    Ok(!route.is_some_and(|route| route.blocks_writers()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_were_held_up_since_the_route_was_closed() {
        let own = |millis| Some(Duration::from_millis(millis));
        for (own, held_at, now, expected) in [
            (own(7_300), Some(1_000), 1_008, "; writers were held up 7.3 s"),
            // Somebody else closed it and died.
            (own(7_300), Some(1_000), 1_024, "; writers were held up 24 s"),
            (None, Some(1_000), 1_024, "; writers were held up 24 s"),
            // It was not noted.
            (own(500), None, 1_024, "; writers were held up 0.5 s"),
            (None, None, 1_024, ""),
            // The clock stands, or was set back.
            (own(500), Some(1_000), 900, "; writers were held up 0.5 s"),
        ] {
            assert_eq!(held_up(own, held_at, now), expected, "{own:?} {held_at:?} {now}");
        }
    }
}
