//! `weir migrate revert`: checks before readers and writers are switched back to the sources.
//!
//! `executor` performs the switch. `in_place` reverts in-place changes.

use clap::Args;
use control::verbs::{Verb, VerbDecision, decide_verb};
use control::{Expect, State, Switch};
use rules::migration::Phase;
use rules::migration::plan::{Direction, Plan};

use crate::migrate::context::Context;
use crate::migrate::failure::{Failure, Result, refused};
use crate::migrate::report::application;
use crate::migrate::switch::arguments::SwitchArguments;
use crate::migrate::switch::complete::clean;
use crate::migrate::switch::executor::{Executor, SwitchRequest};
use crate::migrate::switch::verb_hooks;
use crate::migrate::switch::{in_place, inverse_check};
use client::exit::Exit;
use client::output::{no_effect, say};

/// Arguments of `weir migrate revert`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir migrate revert shop --dry-run\n  weir migrate revert shop\n\nWaits until 65 s after the switch (`function_seconds` plus 5), then removes tombstones and marks, which takes minutes for large tables. In place, it ends once all items are changed back. Clients may write meanwhile\n\nExit codes: 0 done, 1 failed, 3 some items cannot be changed back, 4 refused, 5 timed out: rolled back, unless the message says that the rollback failed, or that the revert is committed but incomplete; then run it again"
)]
pub(crate) struct RevertArguments {
    #[command(flatten)]
    pub(crate) switch: SwitchArguments,
    /// Switch although the last comparison found differences: the sources keep their own values for
    /// these items
    #[arg(long)]
    with_differences: bool,
}

/// Describes the effects of `revert`.
pub(crate) fn consequence(plan: &Plan) -> String {
    if plan.kind.is_in_place() {
        return format!(
            "writers would be blocked for {} s, then use the old attributes, while `inverse` changes all items of {} back",
            plan.gate_seconds,
            plan.source_tables(Direction::Reverse).join(", ")
        );
    }
    "writers would be blocked until all streams are drained, then use the sources".to_owned()
}

/// Switches readers and writers back to the sources.
pub(crate) async fn revert(
    context: &Context,
    RevertArguments { switch: arguments, with_differences }: &RevertArguments,
) -> Result<Exit> {
    let name = arguments.name.as_str();
    let state = context.state(name).await?;
    let phase = state.phase;
    let (plan, fingerprint) = context.plan(name).await?;
    if phase == Phase::Reverted && !arguments.dry_run {
        // An older version of this command may have been killed before it made the migration
        // inactive.
        context.control.set_active(name, Expect::phases(&[phase]), None).await?;
    }
    match decide_verb(name, plan.kind, Verb::Revert, phase) {
        VerbDecision::CarryOut | VerbDecision::TakeOver => {}
        VerbDecision::AlreadyDone if state.needs_cleaning && !arguments.dry_run => {
            // An earlier `revert` has switched readers and writers, but may not have removed all
            // marks.
            return clean(context, &plan, &fingerprint, arguments.limit()).await;
        }
        VerbDecision::AlreadyDone => {
            say(&format!("`{name}` is already reverted"));
            return Ok(Exit::Done);
        }
        VerbDecision::Refused(why) => return Err(Failure::Refused(why)),
    }
    if plan.inverse.is_empty() {
        return Err(refused!(
            "the plan of `{name}` has no `inverse`: writes since the cut-over would be lost; `weir migrate complete {name}` finishes the migration permanently"
        ));
    }
    if let Some(why) = in_vain(&plan, &state).filter(|_| *with_differences) {
        no_effect("--with-differences", why);
    }
    let stale = inverse_check::forgotten(context, name, &plan, &state).await;
    if phase == Phase::CutOver {
        if let Some(why) = &stale {
            return Err(Failure::Refused(why.clone()));
        }
        if let Some(why) = inverse_check::differences(&state).filter(|_| !with_differences) {
            return Err(Failure::Refused(why));
        }
    }
    if arguments.dry_run {
        say(&format!("{}; nothing was written", consequence(&plan)));
        return Ok(Exit::Done);
    }
    verb_hooks::before(context, "revert", name).await?;
    if plan.kind.is_in_place() {
        return in_place::revert(context, name, &plan, &fingerprint, arguments).await;
    }
    application::remind(plan.kind);
    let asked = SwitchRequest {
        stale,
        asks_followers: false,
        may_differ: *with_differences,
        limit: arguments.limit(),
    };
    Executor::new(context, Switch::REVERT, (&plan, &fingerprint), &state, asked).run().await
}

/// Returns why `--with-differences` has no effect; `None` if it has an effect.
fn in_vain(plan: &Plan, state: &State) -> Option<&'static str> {
    if plan.kind.is_in_place() {
        return Some("items that cannot be changed back are never skipped");
    }
    // The option also permits a revert after an unfinished comparison, whose result is unknown.
    let may_differ = state.back_differences.is_some_and(|found| found > 0);
    let is_known = state.comparing.is_none() && !may_differ;
    is_known.then_some("no comparison after the cut-over has found a difference")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrate::switch::switching_tests::{NAME, plan_in_place, plan_with_way_back};
    use control::Comparing;

    #[test]
    fn differences_are_accepted_only_if_there_may_be_some() {
        let comparing = Some(Comparing { run: 1, since: None });
        for (back_differences, comparing, is_in_vain) in [
            (None, None, true),
            (Some(0), None, true),
            (Some(2), None, false),
            (Some(0), comparing, false),
        ] {
            let state = State { back_differences, comparing, ..State::new(NAME) };
            assert_eq!(in_vain(&plan_with_way_back(), &state).is_some(), is_in_vain);
            assert!(in_vain(&plan_in_place(NAME), &state).is_some());
        }
    }
}
