//! Holding a migration for a switch: its phase says that somebody is switching it, and a name that
//! only the holder knows guards every step. Whoever takes it over gives it another name, so that the
//! steps of the one before, who may only be slow, come to nothing.
//!
//! Until it is decided that the switch goes through, everything is put back as it was when anything
//! goes wrong, also when the person at the command line ends it. What is put back first gets a new
//! holder: a request that was on its way meanwhile is refused.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use rules::migration::Phase;

use super::Context;
use super::control::{Expect, Move, n, number, phase_of, s, text};
use client::exit::Exit;
use client::interruption;
use client::output::say;

/// Where a state says since when writers are held up, in the store's seconds since 1970. It is there
/// until the route is open again, whoever opens it.
pub(super) const HELD_AT: &str = "held_at";

/// For how long it is tried to put everything back as it was: writers are held up meanwhile, and nobody
/// else may know.
const RELEASE_LIMIT: Duration = Duration::from_secs(60);
const RELEASE_PAUSE: Duration = Duration::from_secs(1);
/// For how long it is tried to take a migration while answers do not come: nobody is held up by then.
const CLAIM_LIMIT: Duration = Duration::from_secs(60);

/// Which switch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Switch {
    /// The verb, for people.
    pub(super) verb: &'static str,
    /// The phase that it begins in, and goes back to if it does not go through.
    pub(super) before: Phase,
    /// The phase while writers are held up.
    pub(super) held: Phase,
    /// The phase in which it is decided.
    pub(super) decided: Phase,
    /// The side that readers and writers use before it.
    pub(super) side: &'static str,
    /// Which way the migration runs before it.
    pub(super) direction: &'static str,
}

/// To the targets.
pub(super) const CUTOVER: Switch = Switch {
    verb: "cutover",
    before: Phase::Ready,
    held: Phase::CuttingOver,
    decided: Phase::Turning,
    side: "source",
    direction: "forward",
};

/// Back to the sources.
pub(super) const REVERT: Switch = Switch {
    verb: "revert",
    before: Phase::CutOver,
    held: Phase::Reverting,
    decided: Phase::Returning,
    side: "target",
    direction: "reverse",
};

/// A migration that is held.
pub(super) struct Hold<'h> {
    context: &'h Context,
    name: &'h str,
    switch: Switch,
    holder: String,
    fingerprint: &'h str,
    /// The fence of its direction before the switch.
    since: i64,
}

/// Work that may be left at any point. Once a process has listened for Ctrl-C, nothing else ends it.
pub(super) async fn or_interrupted<T>(
    work: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    tokio::select! {
        ended = work => ended,
        _ = interruption::requested() => {
            Err("interrupted; run the same command again to resume".to_owned())
        }
    }
}

/// A name that nobody else has.
pub(super) fn new_holder() -> String {
    format!("{}-{:016x}", std::process::id(), RandomState::new().hash_one(0_u8))
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
        fingerprint: &'h str,
        since: u64,
    ) -> Result<Self, String> {
        let since = i64::try_from(since).unwrap_or(i64::MAX);
        let mut hold = Self { context, name, switch, holder: String::new(), fingerprint, since };
        hold.holder = new_holder();
        let before = text(&context.state(name).await?, "holder").map(str::to_owned);
        let (begun, mut is_first) = (Instant::now(), true);
        loop {
            let unanswered = context.absence.unanswered();
            let tried = match is_first {
                true => hold.claim_own().await,
                false => hold.claim_again(before.as_deref()).await,
            };
            let Err(problem) = tried else { return Ok(hold) };
            // What was answered is the same when it is asked again.
            if context.absence.unanswered() == unanswered {
                return Err(problem);
            }
            if context.absence.is_silent() || begun.elapsed() > CLAIM_LIMIT {
                return Err(hold.not_known(&problem));
            }
            say(&format!("it is looked whether that was written: {problem}"));
            is_first = false;
            tokio::time::sleep(RELEASE_PAUSE).await;
        }
    }

    async fn claim_own(&self) -> Result<(), String> {
        self.claim(&[self.switch.before, self.switch.held], None, &self.holder).await
    }

    /// Takes a migration after an attempt without an answer, which may have been written. `before` is
    /// who had it at first.
    ///
    /// # Errors
    /// When somebody else has taken it since then, and as at first.
    async fn claim_again(&self, before: Option<&str>) -> Result<(), String> {
        let state = self.context.state(self.name).await?;
        if text(&state, "holder") == before || phase_of(&state) != self.switch.held {
            return self.claim_own().await;
        }
        self.expect().broken_by(self.name, &state).map_or(Ok(()), Err)
    }

    /// A problem after which it is not known who has the migration, and what to do.
    fn not_known(&self, problem: &str) -> String {
        let (verb, name, held) = (self.switch.verb, self.name, self.switch.held.as_str());
        format!(
            "{problem}; it is not known whether `{name}` is {held} now, writers were not held up by this: `weir migrate status {name}`, then `weir migrate {verb} {name}` again"
        )
    }

    async fn claim(
        &self,
        phases: &[Phase],
        from: Option<&str>,
        holder: &str,
    ) -> Result<(), String> {
        let expect = Expect { holder: from, ..Expect::phases(phases) };
        let why = format!("{} was said by a person", self.switch.verb);
        let (to, now) = (Some(self.switch.held), self.context.now().await);
        let claim = Move { expect, to, why: &why, now };
        let control = &self.context.control;
        control
            .to_phase(self.name, claim, |state| {
                state.insert("holder".to_owned(), s(holder));
            })
            .await
            .map(drop)
    }

    /// What the state must be for a step of this holder.
    pub(super) fn expect(&self) -> Expect<'_> {
        Expect::held(std::slice::from_ref(&self.switch.held), &self.holder)
    }

    /// Records are applied as before the switch.
    async fn follow(&self) -> Result<(), String> {
        let active = (self.switch.direction, self.fingerprint, self.since);
        self.context.control.set_active(self.name, self.expect(), Some(active)).await
    }

    /// Holds writers up, until each of them has seen it. Whoever held them up before and died has noted
    /// since when, and that stays.
    pub(super) async fn close(&self, gate_seconds: u32) -> Result<(), String> {
        let control = &self.context.control;
        let route = control.get(self.name, "ROUTE").await?.unwrap_or_default();
        let is_closed = text(&route, "write") == Some("none");
        let now = u64::try_from(self.context.now().await).unwrap_or(0);
        control
            .change_state(self.name, self.expect(), |state| {
                let is_noted = is_closed && number(state, HELD_AT) > 0;
                if !is_noted {
                    state.insert(HELD_AT.to_owned(), n(now));
                }
                !is_noted
            })
            .await?;
        control.route(self.name, self.expect(), self.switch.side, "none").await?;
        tokio::time::sleep(Duration::from_secs(gate_seconds.into())).await;
        Ok(())
    }

    /// Does what leads to a decision, and if it was not decided in time puts back what it changed.
    /// `work` ends with the write of the decision, or with how the verb ends instead. Gives what `work`
    /// gave; none if it was decided although that was not told, by an answer that did not come.
    ///
    /// # Errors
    /// What went wrong, and what is to be said if it could not be put back.
    pub(super) async fn decide<T>(
        &self,
        most: Duration,
        work: impl Future<Output = Result<Result<T, Exit>, String>>,
    ) -> Result<Result<Option<T>, Exit>, String> {
        let work = async {
            // Who held it before may have died after it turned round, which writers have not seen.
            self.follow().await?;
            work.await
        };
        let ended = tokio::select! {
            ended = tokio::time::timeout(most, work) => ended.unwrap_or_else(|_| {
                say(&format!("it was not decided in {} s", most.as_secs()));
                Ok(Err(Exit::TimedOut))
            }),
            _ = interruption::requested() => Err("interrupted".to_owned()),
        };
        let ended = match ended {
            Ok(Ok(decided)) => return Ok(Ok(Some(decided))),
            Ok(Err(exit)) => Ok(exit),
            Err(problem) => Err(problem),
        };
        let (verb, name, side) = (self.switch.verb, self.name, self.switch.side);
        let why_not = match (self.release().await, ended) {
            (Ok(Released::Decided), _) => return Ok(Ok(None)),
            (Ok(Released::Back), Ok(exit)) => return Ok(Err(exit)),
            (Ok(Released::Back), Err(problem)) => {
                return Err(format!(
                    "{problem}; everything is as it was: readers and writers use the {side}s"
                ));
            }
            (Ok(Released::Theirs(why)) | Err(why), Ok(_)) => why,
            (Ok(Released::Theirs(why)) | Err(why), Err(problem)) => format!("{problem}; {why}"),
        };
        Err(format!(
            "it could not be put back ({why_not}), and writers may be held up: `weir migrate status {name}`, then `weir migrate {verb} {name}` again"
        ))
    }

    /// Puts everything back as it was, and does not give that up soon: while it fails, writers are held
    /// up.
    async fn release(&self) -> Result<Released, String> {
        let (begun, holder, mut is_told) = (Instant::now(), new_holder(), false);
        loop {
            let problem = match self.put_back(&holder).await {
                Ok(released) => return Ok(released),
                Err(problem) => problem,
            };
            if begun.elapsed() > RELEASE_LIMIT {
                return Err(problem);
            }
            if !is_told {
                say(&format!("it is tried again to let writers go on as before: {problem}"));
                is_told = true;
            }
            tokio::time::sleep(RELEASE_PAUSE).await;
        }
    }

    /// One attempt to put everything back, as a new holder, who may have begun it before.
    async fn put_back(&self, holder: &str) -> Result<Released, String> {
        let (control, switch, name) = (&self.context.control, self.switch, self.name);
        let state = self.context.state(name).await?;
        let phase = phase_of(&state);
        if phase == switch.decided {
            return Ok(Released::Decided);
        }
        if phase == switch.before {
            return Ok(Released::Back);
        }
        let hold = Self { holder: holder.to_owned(), switch, ..*self };
        if hold.expect().broken_by(name, &state).is_some() {
            if let Some(why) = self.expect().broken_by(name, &state) {
                return Ok(Released::Theirs(why));
            }
            self.claim(&[switch.held], Some(&self.holder), holder).await?;
        }
        hold.follow().await?;
        control.route(name, hold.expect(), switch.side, switch.side).await?;
        let why = format!("{} did not go through", switch.verb);
        let now = self.context.now().await;
        let back = Move { expect: hold.expect(), to: Some(switch.before), why: &why, now };
        control
            .to_phase(name, back, |state| {
                state.remove("holder");
                state.remove(HELD_AT);
            })
            .await?;
        Ok(Released::Back)
    }
}

/// How it ended to put a switch back.
enum Released {
    Back,
    /// It was decided, so it goes on.
    Decided,
    /// Somebody else has it, who goes on or puts it back.
    Theirs(String),
}

/// For how long writers were held up: from when the route was closed, by whoever closed it, until
/// `now`. What this process has measured itself is more precise, if it has held them up all the time.
pub(super) fn held_up(own: Option<Duration>, held_at: u64, now: i64) -> String {
    let since = i64::try_from(held_at).unwrap_or(i64::MAX);
    let noted = Duration::from_secs(u64::try_from(now.saturating_sub(since)).unwrap_or(0));
    match own {
        // The store's time is told in whole seconds.
        Some(own) if held_at == 0 || own + Duration::from_secs(1) >= noted => {
            format!("; writers were held up {:.1} s", own.as_secs_f64())
        }
        _ if held_at == 0 => String::new(),
        _ => format!("; writers were held up {} s", noted.as_secs()),
    }
}

/// Whether writers may write.
pub(super) async fn is_open(context: &Context, name: &str) -> Result<bool, String> {
    let route = context.control.get(name, "ROUTE").await?.unwrap_or_default();
    Ok(text(&route, "write") != Some("none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_were_held_up_since_the_route_was_closed() {
        let own = |millis| Some(Duration::from_millis(millis));
        for (own, held_at, now, expected) in [
            (own(7_300), 1_000, 1_008, "; writers were held up 7.3 s"),
            // Somebody else closed it and died.
            (own(7_300), 1_000, 1_024, "; writers were held up 24 s"),
            (None, 1_000, 1_024, "; writers were held up 24 s"),
            // It was closed by an older version, which noted nothing.
            (own(500), 0, 1_024, "; writers were held up 0.5 s"),
            (None, 0, 1_024, ""),
            // The clock stands, or was set back.
            (own(500), 1_000, 900, "; writers were held up 0.5 s"),
        ] {
            assert_eq!(held_up(own, held_at, now), expected, "{own:?} {held_at} {now}");
        }
    }
}
