//! `weir migrate cutover`: checks before readers and writers are switched to the targets.
//!
//! `executor` performs the switch.

use clap::Args;
use control::verbs::{Verb, VerbDecision, decide_verb};
use control::{COMPARISON_SECONDS, State, Switch};
use rules::migration::Phase;
use rules::migration::plan::{Direction, Plan};

use crate::migrate::context::Context;
use crate::migrate::failure::{Failure, Result, refused};
use crate::migrate::report::application;
use crate::migrate::report::backfill::{advance, look};
use crate::migrate::switch::arguments::SwitchArguments;
use crate::migrate::switch::executor::{Executor, SwitchRequest};
use crate::migrate::switch::verb_hooks;
use client::exit::Exit;
use client::output::say;

/// Arguments of `weir migrate cutover`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir migrate cutover shop --dry-run\n  weir migrate cutover shop --timeout 30\n\nExit codes: 0 done, 4 refused, 5 timed out: rolled back, unless the message says that the rollback failed or that the cut-over is committed but incomplete; then run it again"
)]
pub(crate) struct CutoverArguments {
    #[command(flatten)]
    pub(crate) switch: SwitchArguments,
    /// Switch although the plan has no `inverse`: later writes to the targets never reach the sources
    #[arg(long)]
    no_way_back: bool,
    /// Switch although no worker reads the targets' streams: writes to the targets reach the
    /// sources only if a worker starts within 24 hours
    #[arg(long)]
    without_followers: bool,
}

/// Switches to the targets.
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
            "everything is drained: the route would be opened to {targets}; nothing was written"
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

/// Describes what `cutover` would do.
pub(crate) fn consequence(plan: &Plan) -> String {
    format!(
        "writers of {} would be blocked for {} s and until everything is drained, then use {}",
        plan.source_tables(Direction::Forward).join(", "),
        plan.gate_seconds,
        plan.target_tables(Direction::Forward).join(", "),
    )
}

/// Returns why the last comparison is too old to cover all earlier writes; `None` if it covers
/// them.
async fn too_old(context: &Context, name: &str, state: &State) -> Option<String> {
    let age = state.comparison_age(context.now().await);
    (age > COMPARISON_SECONDS).then(|| {
        format!(
            "`{name}` was compared {} hours ago, and a stream keeps records for 24 hours: run `weir migrate verify {name}` again",
            age / 3600
        )
    })
}
