//! `pause`, `resume`, `throttle` and `abort`: verbs that change a running migration, but do not
//! switch readers and writers.

use control::verbs::{Answer, Verb, answer, left_by_abort};
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

/// Returns the plan, and what a verb does in the current phase.
async fn allowed(
    context: &Context,
    name: &str,
    verb: Verb,
    state: &State,
) -> Result<(Plan, Answer)> {
    let (plan, _) = context.plan(name).await?;
    match answer(name, plan.kind, verb, state.phase) {
        Answer::Refused(why) => Err(Failure::Refused(why)),
        answer => Ok((plan, answer)),
    }
}

pub(crate) async fn pause(context: &Context, name: &str) -> Result<Exit> {
    let state = context.state(name).await?;
    let (plan, _) = allowed(context, name, Verb::Pause, &state).await?;
    if state.paused {
        say(&format!("`{name}` is already paused"));
        return Ok(Exit::Done);
    }
    context.make(name, Guard::default(), &Move::Pause(plan.kind)).await?;
    say(&format!("`{name}` is paused: the backfill has stopped, changes are still applied"));
    output::next(&[(&format!("weir migrate resume {name}"), "resume the backfill")]);
    Ok(Exit::Done)
}

pub(crate) async fn resume(context: &Context, name: &str) -> Result<Exit> {
    let state = context.state(name).await?;
    let (plan, _) = allowed(context, name, Verb::Resume, &state).await?;
    if !state.paused {
        workers::wake(context, name).await?;
        say(&format!("`{name}` is not paused; workers were notified again of its open segments"));
        return Ok(Exit::Done);
    }
    context.make(name, Guard::default(), &Move::Resume(plan.kind)).await?;
    workers::wake(context, name).await?;
    say(&format!("`{name}` is resumed"));
    Ok(Exit::Done)
}

pub(crate) async fn throttle(context: &Context, name: &str, rate: u64) -> Result<Exit> {
    let state = context.state(name).await?;
    allowed(context, name, Verb::Throttle, &state).await?;
    let set = |state: &mut State| std::mem::replace(&mut state.rate, rate) != rate;
    context.control.change(State::new(name), set).await?;
    say(&match rate {
        0 => format!("the backfill of `{name}` has no rate limit"),
        rate => format!(
            "the backfill of `{name}` reads at most {} per second, over all workers",
            counted(rate, "item", "items")
        ),
    });
    Ok(Exit::Done)
}

pub(crate) async fn abort(context: &Context, name: &str, dry_run: bool) -> Result<Exit> {
    let state = context.state(name).await?;
    // Without a plan, the migration can still be aborted: its start may have been interrupted
    // before the plan was written.
    let plan = context.plan(name).await.ok().map(|(plan, _)| plan);
    let kind = plan.as_ref().map_or(Kind::Restructure, |plan| plan.kind);
    let is_already = match answer(name, kind, Verb::Abort, state.phase) {
        Answer::Refused(why) => return Err(Failure::Refused(why)),
        answer => answer == Answer::Already,
    };
    if is_already {
        say(&format!("`{name}` is already aborted"));
    }
    if dry_run {
        if !is_already {
            let left = left_by_abort(kind);
            say(&format!("`{name}` would stop applying changes and copying; {left}"));
        }
        return Ok(Exit::Done);
    }
    let touches = plan.is_some_and(|plan| plan.backfill == Backfill::Touch);
    if !is_already {
        verb_hooks::before(context, "abort", name).await?;
        context.make(name, Guard::default(), &Move::Abort { kind, touches }).await?;
        interruption::reached(format!("`{name}` is aborted; its route may not be released yet"));
    }
    // An earlier abort may have died after its phase change, or a cut-over may still block writers.
    let expect = Expect::phases(&[Phase::Aborted]);
    context.control.set_active(name, expect, None).await?;
    context.control.set_route(name, expect, (Side::Source, Side::Source)).await?;
    let opened = |state: &mut State| state.held_at.take().is_some();
    context.control.change_state(name, expect, opened).await?;
    if touches {
        // Marks may remain in the sources, so workers read each segment once more to remove them.
        backfill::advance(context, name).await?;
    }
    if is_already {
        return Ok(Exit::Done);
    }
    if touches {
        say(&format!(
            "workers remove the remaining marks; if no worker is running, run `weir migrate work {name}`"
        ));
    }
    say(&format!("`{name}` is aborted; {}", left_by_abort(kind)));
    Ok(Exit::Done)
}
