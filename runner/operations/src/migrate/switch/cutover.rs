//! `weir migrate cutover`: checks before readers and writers are switched to the targets.
//!
//! `executor` performs the switch.

use clap::Args;
use control::verbs::{Verb, VerbDecision, decide_verb};
use control::{COMPARISON_SECONDS, State, Switch};
use rules::migration::Phase;
use rules::migration::plan::{Direction, Plan};

use crate::migrate::context::Context;
use crate::migrate::drain::catch_up::LAST_LOOK;
use crate::migrate::failure::{Failure, Result, refused};
use crate::migrate::report::application;
use crate::migrate::report::backfill::{advance, look};
use crate::migrate::switch::arguments::{SwitchArguments, TIMEOUT_SECONDS};
use crate::migrate::switch::executor::{Executor, SwitchRequest};
use crate::migrate::switch::inverse_check;
use crate::migrate::switch::verb_hooks;
use client::exit::Exit;
use client::output::{no_effect, say};

/// Arguments of `weir migrate cutover`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir migrate cutover shop --dry-run\n  weir migrate cutover shop --timeout 30\n\nWriters wait for `gate_seconds` and the drain: usually 2 to 4 s on a local store, about 20 s on AWS; at most about --timeout plus 17 s, then up to 60 s for a rollback, while the command runs. Readers never wait\n\nExit codes: 0 done, 1 failed, 3 done, but the hook `after-cutover` failed, 4 refused, 5 timed out: rolled back, unless the message says that the rollback failed or that the cut-over is committed but incomplete; then run it again"
)]
pub(crate) struct CutoverArguments {
    #[command(flatten)]
    pub(crate) switch: SwitchArguments,
    /// Switch although the plan has no `inverse`: later writes to the targets never reach the
    /// sources
    #[arg(long)]
    no_way_back: bool,
    /// Switch although no worker reads the targets' streams: writes to the targets reach the
    /// sources only if a worker starts within 24 hours
    #[arg(long)]
    without_followers: bool,
}

/// Switches readers and writers to the targets.
pub(crate) async fn cutover(
    context: &Context,
    CutoverArguments { switch: arguments, no_way_back, without_followers }: &CutoverArguments,
) -> Result<Exit> {
    let name = arguments.name.as_str();
    let (state, _) = match arguments.dry_run {
        true => look(context, name).await?,
        false => advance(context, name).await?,
    };
    let phase = state.phase;
    let (plan, fingerprint) = context.plan(name).await?;
    match decide_verb(name, plan.kind, Verb::Cutover, phase) {
        VerbDecision::CarryOut | VerbDecision::TakeOver => {}
        VerbDecision::AlreadyDone => {
            say(&format!("`{name}` is already cut over"));
            return Ok(Exit::Done);
        }
        VerbDecision::Refused(why) => return Err(Failure::Refused(why)),
    }
    let is_for_good = plan.inverse.is_empty() && !plan.kind.is_in_place();
    if is_for_good && !no_way_back && phase != Phase::Turning {
        return Err(refused!(
            "the plan of `{name}` has no `inverse`, so `weir migrate revert` could not switch back: add --no-way-back to accept that"
        ));
    }
    for (option, why) in unused_options(&plan, phase, *no_way_back, *without_followers) {
        no_effect(option, why);
    }
    let stale = match phase {
        Phase::Turning => None,
        _ => too_old(context, name, &state).await,
    };
    if phase == Phase::Ready
        && let Some(why) = &stale
    {
        return Err(Failure::Refused(why.clone()));
    }
    let targets = plan.target_tables(Direction::Forward).join(", ");
    if arguments.dry_run && phase == Phase::Turning {
        say(&format!(
            "all streams are drained: the route would be opened to {targets}; nothing was written"
        ));
        return Ok(Exit::Done);
    }
    if arguments.dry_run {
        say(&format!("{}; nothing was written", consequence(&plan)));
        application::remind(plan.kind);
        return Ok(Exit::Done);
    }
    verb_hooks::before(context, "cutover", name).await?;
    application::remind(plan.kind);
    let asked = SwitchRequest {
        stale,
        asks_followers: !without_followers && phase == Phase::Ready,
        may_differ: false,
        limit: arguments.limit(),
    };
    Executor::new(context, Switch::CUTOVER, (&plan, &fingerprint), &state, asked).run().await
}

/// Returns each option that has no effect on the cut-over of a plan in a phase, with the reason.
fn unused_options(
    plan: &Plan,
    phase: Phase,
    no_way_back: bool,
    without_followers: bool,
) -> Vec<(&'static str, &'static str)> {
    let has_way_back = !plan.inverse.is_empty() || plan.kind.is_in_place();
    let no_way_back = match (plan.kind.is_in_place(), has_way_back) {
        _ if !no_way_back => None,
        (true, _) => Some("the cut-over of an in-place change never requires the option"),
        (false, true) => {
            Some("the plan has an `inverse`, so `weir migrate revert` can switch back")
        }
        (false, false) => None,
    };
    let without_followers = match inverse_check::has_one(plan) {
        _ if !without_followers => None,
        false => Some("nothing is copied back, so no worker has to read the targets' streams"),
        true if phase != Phase::Ready => Some("an earlier command has begun the cut-over"),
        true => None,
    };
    let options = [("--no-way-back", no_way_back), ("--without-followers", without_followers)];
    options.into_iter().filter_map(|(option, why)| Some((option, why?))).collect()
}

/// Describes the effects of `cutover`.
pub(crate) fn consequence(plan: &Plan) -> String {
    format!(
        "writers of {} would be blocked for {} s and until all streams are drained, then use {}",
        plan.source_tables(Direction::Forward).join(", "),
        plan.gate_seconds,
        plan.target_tables(Direction::Forward).join(", "),
    )
}

/// Returns the expected maximum number of seconds for which a cut-over with the default `--timeout`
/// blocks writers, before a rollback.
pub(crate) fn blocked_seconds_max(plan: &Plan) -> u64 {
    let of_plan = u64::from(plan.gate_seconds) + u64::from(plan.settle_seconds);
    TIMEOUT_SECONDS + of_plan + LAST_LOOK.as_secs()
}

/// Returns why the last comparison is too old for a cut-over; `None` if the comparison is recent
/// enough. Streams must still have all writes since the comparison.
async fn too_old(context: &Context, name: &str, state: &State) -> Option<String> {
    let age = state.comparison_age(context.now().await);
    (age > COMPARISON_SECONDS).then(|| {
        format!(
            "`{name}` was compared {} hours ago, and a stream keeps records for 24 hours: run `weir migrate verify {name}` again",
            age / 3600
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrate::switch::switching_tests::{plan, plan_in_place, plan_with_way_back};

    #[test]
    fn an_option_without_effect_is_reported() {
        let both = ["--no-way-back", "--without-followers"];
        for (plan, phase, expected) in [
            (plan(), Phase::Ready, &both[1..]),
            (plan_with_way_back(), Phase::Ready, &both[..1]),
            (plan_with_way_back(), Phase::CuttingOver, &both),
            (plan_in_place("move"), Phase::Ready, &both),
        ] {
            let unused = unused_options(&plan, phase, true, true);
            let options: Vec<&str> = unused.into_iter().map(|(option, _)| option).collect();
            assert_eq!(options, expected, "{phase:?} {plan:?}");
            assert!(unused_options(&plan, phase, false, false).is_empty());
        }
    }
}
