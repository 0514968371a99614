//! `pause`, `resume`, `throttle` and `abort`: subcommands that change a running migration, but do
//! not switch readers and writers.

use control::verbs::{Verb, VerbDecision, decide_verb, left_by_abort};
use control::{Expect, Move, Side, State};
use rules::migration::Phase;
use rules::migration::plan::{Backfill, Kind, Plan};

use crate::migrate::context::Context;
use crate::migrate::control_table::Guard;
use crate::migrate::failure::{Failure, Result};
use crate::migrate::report::backfill;
use crate::migrate::start::workers;
use crate::migrate::switch::verb_hooks;
use client::exit::Exit;
use client::interruption;
use client::output::{self, counted, say};

/// Returns the plan, and the decision whether the migration's phase allows a subcommand.
async fn allowed(
    context: &Context,
    name: &str,
    verb: Verb,
    state: &State,
) -> Result<(Plan, VerbDecision)> {
    let (plan, _) = context.plan(name).await?;
    match decide_verb(name, plan.kind, verb, state.phase) {
        VerbDecision::Refused(why) => Err(Failure::Refused(why)),
        answer => Ok((plan, answer)),
    }
}

/// Pauses the backfill, and prints the result.
pub(crate) async fn pause(context: &Context, name: &str) -> Result<Exit> {
    let Adjusted { text, is_changed } = pause_backfill(context, name).await?;
    say(&text);
    if is_changed {
        output::next(&[(&format!("weir migrate resume {name}"), "resume the backfill")]);
    }
    Ok(Exit::Done)
}

/// Resumes the backfill, and prints the result.
pub(crate) async fn resume(context: &Context, name: &str) -> Result<Exit> {
    say(&resume_backfill(context, name).await?.text);
    Ok(Exit::Done)
}

/// Sets the rate of the backfill, and prints the result.
pub(crate) async fn throttle(context: &Context, name: &str, rate: u64) -> Result<Exit> {
    say(&limit_backfill(context, name, rate).await?.text);
    Ok(Exit::Done)
}

/// The result of `pause`, `resume` or `throttle`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adjusted {
    /// The message for the operator.
    pub text: String,
    /// True if the migration's state was changed.
    pub is_changed: bool,
}

/// Pauses the backfill.
///
/// # Errors
/// When the phase does not allow the change, or the control table cannot be written.
pub async fn pause_backfill(context: &Context, name: &str) -> Result<Adjusted> {
    let state = context.state(name).await?;
    let (plan, _) = allowed(context, name, Verb::Pause, &state).await?;
    if state.paused {
        let text = format!("`{name}` is already paused");
        return Ok(Adjusted { text, is_changed: false });
    }
    context.make(name, Guard::default(), &Move::Pause(plan.kind)).await?;
    let text = format!("`{name}` is paused: workers stop the backfill but still apply changes");
    Ok(Adjusted { text, is_changed: true })
}

/// Resumes the backfill, and notifies workers of the segments that are not yet read.
///
/// # Errors
/// When the phase does not allow the change, or the control table cannot be written.
pub async fn resume_backfill(context: &Context, name: &str) -> Result<Adjusted> {
    let state = context.state(name).await?;
    let (plan, _) = allowed(context, name, Verb::Resume, &state).await?;
    if !state.paused {
        workers::wake(context, name).await?;
        let text = format!("`{name}` is not paused; notified workers again of its open segments");
        return Ok(Adjusted { text, is_changed: false });
    }
    context.make(name, Guard::default(), &Move::Resume(plan.kind)).await?;
    workers::wake(context, name).await?;
    Ok(Adjusted { text: format!("`{name}` is resumed"), is_changed: true })
}

/// Sets the items per second that the backfill reads; 0 for no limit.
///
/// # Errors
/// When the phase does not allow the change, or the control table cannot be written.
pub async fn limit_backfill(context: &Context, name: &str, rate: u64) -> Result<Adjusted> {
    let state = context.state(name).await?;
    allowed(context, name, Verb::Throttle, &state).await?;
    let is_changed = state.rate != rate;
    let set = |state: &mut State| std::mem::replace(&mut state.rate, rate) != rate;
    context.control.change(State::new(name), set).await?;
    let text = match rate {
        0 => format!("the backfill of `{name}` has no rate limit"),
        rate => format!(
            "the backfill of `{name}` reads at most {} per second, over all workers",
            counted(rate, "item", "items")
        ),
    };
    Ok(Adjusted { text, is_changed })
}

/// Describes the effects of `abort`.
pub(crate) fn consequence_of_abort(name: &str, kind: Kind) -> String {
    format!("`{name}` would stop copying items and applying changes; {}", left_by_abort(kind))
}

/// Aborts a migration, and prints the result.
pub(crate) async fn abort(context: &Context, name: &str, dry_run: bool) -> Result<Exit> {
    let state = context.state(name).await?;
    // A migration without a plan can be aborted too: `start` may have been interrupted before it
    // wrote the plan.
    let plan = context.plan(name).await.ok().map(|(plan, _)| plan);
    let kind = plan.as_ref().map_or(Kind::Restructure, |plan| plan.kind);
    let is_already = match decide_verb(name, kind, Verb::Abort, state.phase) {
        VerbDecision::Refused(why) => return Err(Failure::Refused(why)),
        answer => answer == VerbDecision::AlreadyDone,
    };
    if is_already {
        say(&format!("`{name}` is already aborted"));
    }
    if dry_run {
        if !is_already {
            say(&consequence_of_abort(name, kind));
        }
        return Ok(Exit::Done);
    }
    let touches = plan.is_some_and(|plan| plan.backfill == Backfill::Touch);
    if !is_already {
        verb_hooks::before(context, "abort", name).await?;
        context.make(name, Guard::default(), &Move::Abort { kind, touches }).await?;
        interruption::reached(format!("`{name}` is aborted; its route may not be released yet"));
    }
    // An earlier `abort` may have been killed after its phase change, or an aborted cut-over may
    // have blocked writers.
    let expect = Expect::phases(&[Phase::Aborted]);
    context.control.set_active(name, expect, None).await?;
    context.control.set_route(name, expect, (Side::Source, Side::Source)).await?;
    let opened = |state: &mut State| state.held_at.take().is_some();
    context.control.change_state(name, expect, opened).await?;
    if touches {
        // The migration's marks may remain in source items, so workers read each segment once more
        // to remove the marks.
        backfill::advance(context, name).await?;
    }
    if is_already {
        return Ok(Exit::Done);
    }
    if touches {
        say(&format!(
            "marks remain in the items, and workers remove them; if no worker is running, run `weir migrate work {name}`"
        ));
    }
    say(&format!("`{name}` is aborted; {}", left_by_abort(kind)));
    Ok(Exit::Done)
}
