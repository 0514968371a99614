//! `status` and `watch`: the status of a migration.
//!
//! This module has one side effect: it changes the phase from `copying` to `tailing` once every
//! segment is read.

use std::collections::BTreeMap;
use std::time::Duration;

use control::{JournalLine, Problem, Route, State, Verified};
use rules::migration::Phase;
use rules::migration::plan::{Direction, Kind, Plan};
use serde_json::{Value, json};

use crate::migrate::context::{Context, TOLD_EVERY};
use crate::migrate::drain::stream_lag;
use crate::migrate::drain::stream_lag::{Streams, Watcher};
use crate::migrate::failure::Result;
use crate::migrate::plan::compile::compile;
use crate::migrate::report::backfill::{advance, look};
use crate::migrate::report::documents;
use crate::migrate::report::failure_tolerance::{FailureTolerance, UNSEEN_MAX};
use crate::migrate::report::next_steps::MigrationFacts;
use crate::migrate::report::pointer::at;
use crate::migrate::report::problems::ProblemNotes;
use crate::migrate::report::progress::Progress;
use crate::migrate::report::status_line::line;
use crate::migrate::report::throttling::throttled;
use crate::migrate::start::workers;
use crate::migrate::switch::{comparison, inverse_check};
use client::exit::Exit;
use client::output::{self, Output, show};

/// Phases in which nothing changes until the operator runs a command.
const QUIET: [&str; 6] = ["tailing", "ready", "cut-over", "reverted", "completed", "aborted"];
/// Seconds after the last journal line during which the command that starts a migration counts as
/// running. The command's longest step is a wait of at most 30 s for a fence.
const BEGINNING_SECONDS: i64 = 60;

/// The facts about a migration at one point in time.
struct Known {
    state: State,
    plan: Option<Plan>,
    backfill: Progress,
    /// The number of items of each source when the backfill began; `None` if the backfill is over
    /// or the number is unknown.
    counted: Option<BTreeMap<String, u64>>,
    route: Option<Route>,
    problems: ProblemNotes,
    streams: Streams,
    documents: Documents,
    /// The progress of running comparisons.
    compared: Option<Progress>,
    /// True if the command that ends the migration began the last comparison. If the operator runs
    /// this command again, it resumes the comparison.
    is_left: bool,
    throttled: Option<String>,
    /// The failing segments, as JSON; null if there are none.
    failing: Value,
    /// Seconds since the last journal line, if only a command can end the phase; otherwise `None`.
    in_phase: Option<i64>,
    now: i64,
}

/// The result of a read of a migration's streams and documents, and the phase at the time of the
/// read.
#[derive(Clone, Debug)]
pub struct Observation {
    phase: Phase,
    streams: Streams,
    documents: Documents,
}

/// The source of the facts about the streams in a status.
pub(crate) enum Look<'l> {
    /// The streams are not read, because reading them takes seconds and slows workers down.
    None,
    /// The streams are read for this status.
    Now(&'l mut Watcher),
    /// The streams were read earlier. If the phase has changed since, the streams count as not
    /// read.
    Before(&'l Observation),
}

/// Returns the status of a migration as JSON, `weir.migration.status/v1`. With a watcher, the
/// status includes facts about the streams.
pub(crate) async fn describe(
    context: &Context,
    name: &str,
    watcher: Option<&mut Watcher>,
) -> Result<Value> {
    describe_with(context, name, watcher.map_or(Look::None, Look::Now)).await
}

/// Returns the status of a migration as JSON. `look` supplies the state of its streams.
pub(crate) async fn describe_with(context: &Context, name: &str, look: Look<'_>) -> Result<Value> {
    let (state, backfill) = progress_of(context, name).await?;
    let notes: Vec<Problem> = context.control.list(name, Problem::PREFIX).await?;
    let route = context.control.route(name).await?;
    let phase = state.phase;
    let (plan, fingerprint) = context.plan(name).await.ok().unzip();
    // The status of an aborted migration includes the progress that its backfill had made.
    let is_told = matches!(phase, Phase::Preparing | Phase::Copying | Phase::Aborted);
    let counted = state.counted.clone().filter(|_| is_told);
    let now = context.now().await;
    let Observation { streams, documents, .. } = match (look, &plan) {
        (Look::Now(watcher), Some(plan)) => observe(context, &state, plan, watcher, now).await?,
        (Look::Before(known), Some(_)) if known.phase == phase => known.clone(),
        _ => Observation { phase, streams: Streams::default(), documents: Documents::NotRead },
    };
    // After a cut-over, the read of the streams may have recorded a new proof in the state, so the
    // state is read again.
    let state = if phase == Phase::CutOver { context.state(name).await? } else { state };
    let problems = ProblemNotes::of(
        notes,
        &state,
        plan.as_ref().map(|plan| plan.kind),
        matches!(documents, Documents::AllWhole),
    );
    let throttled = match &plan {
        Some(plan) => throttled(context, &state, plan, now).await?,
        None => None,
    };
    let tasks = context.tasks(name).await?;
    let compared = comparison::at_work(&tasks, &state);
    let left = fingerprint.and_then(|of| comparison::resumable(&state, &tasks, &of, now));
    let failing = workers::failing(&tasks, &state);
    let in_phase = match is_in_hands(phase) {
        true => last_heard(context, name).await?.map(|at| now.saturating_sub(at)),
        false => None,
    };
    let known = Known {
        state,
        plan,
        backfill,
        counted,
        route,
        problems,
        streams,
        documents,
        compared,
        is_left: left.is_some(),
        throttled,
        failing,
        in_phase,
        now,
    };
    let is_still_followed =
        phase.has_ended() && context.control.active().await?.active.contains_key(name);
    Ok(known.json(name, is_still_followed))
}

impl Known {
    fn json(&self, name: &str, is_still_followed: bool) -> Value {
        let Self { state, backfill, route, now, .. } = self;
        let mut standing = MigrationFacts::of(name, state, self.plan.as_ref(), *now);
        standing.is_blocked = route.as_ref().is_some_and(Route::blocks_writers);
        standing.is_compared = self.compared.is_some();
        standing.is_of_end = self.is_left && standing.may_end_in_place();
        standing.is_still_followed = is_still_followed;
        standing.is_beginning = self.in_phase.is_some_and(|for_s| for_s <= BEGINNING_SECONDS);
        standing.is_unfit = self.streams.is_unfit;
        standing.is_untaken = backfill.taken_tasks == 0;
        let stream = self.note_stream(&mut standing);
        let hopeless = at(&stream, "/hopeless").as_str();
        let hopeless = self.documents.refused().or(hopeless);
        standing.is_hopeless = hopeless.is_some();
        let measure = backfill.measure(self.counted.as_ref().unwrap_or(&BTreeMap::new()));
        // Workers start before all tasks are created. To avoid showing 100 % too early, the
        // percentage is limited to 99 while tasks are being created.
        let most = if standing.phase == Phase::Preparing { 99 } else { 100 };
        let copied = measure.percent().min(most);
        let seconds = seconds_of_copying(state, *now);
        let is_paused = state.is_paused();
        let is_given_up = standing.phase == Phase::Aborted;
        let is_going_on = !is_paused && !is_given_up && copied > 0 && copied < 100;
        let left = measure.seconds_left(seconds).filter(|_| is_going_on);
        json!({
            "schema": "weir.migration.status/v1",
            "migration": name,
            "phase": state.phase.as_str(),
            "preparing_seconds": self.in_phase.filter(|_| standing.phase == Phase::Preparing),
            "switching_seconds": self.in_phase.filter(|_| standing.phase != Phase::Preparing),
            "paused": is_paused,
            "unswept": state.needs_cleaning,
            "still_followed": standing.is_still_followed,
            "copied_percent": copied,
            "source_items": self.source_items(),
            "backfill": backfill.json(),
            "items_per_second": backfill.count("read").checked_div(seconds.max(1)),
            "copying_seconds_left": left,
            "throttled": self.throttled,
            "failing": self.failing,
            "problems": self.problems.by_kind(),
            "problems_solved": self.problems.gone_by_kind(),
            "problem_samples": self.problems.samples(),
            "verified": verified(state),
            "back_differences": state.back_differences,
            "stale": standing.is_stale(),
            "stale_seconds": standing.stale_seconds,
            "compared_now": standing.is_compared,
            "comparison_not_recorded": standing.lacks_comparison() && !standing.is_compared,
            "comparison": self.compared.as_ref().map(|work| json!({
                "segments": work.tasks, "done": work.done, "read": work.count("read"),
            })),
            "writers_blocked": standing.is_blocked,
            "writers_blocked_since": state.held_at.filter(|_| standing.is_blocked),
            "route": self.route_json(),
            "stream_horizon_seconds": at(&stream, "/horizon_seconds"),
            "hopeless": hopeless,
            "stream_unread_seconds": self.streams.unread_seconds,
            "documents_unread_seconds": self.documents.unread_seconds(),
            "stream_problem": self.streams.problem,
            "way_back": inverse_check::describe(state, self.plan.as_ref(), *now),
            "has_way_back": self.plan.as_ref().map(|plan| !plan.inverse.is_empty()),
            "next_steps": steps(&standing),
            "stream": stream,
        })
    }

    fn route_json(&self) -> Value {
        let route = self.route.as_ref();
        json!({
            "name": self.plan.as_ref().map(Plan::route),
            "epoch": route.map_or(0, |route| route.revision),
            "read": route.map(|route| route.read.as_str()),
            "write": route.map(|route| route.write.as_str()),
        })
    }

    /// Returns the number of items of all sources when the backfill began, if known.
    fn source_items(&self) -> Option<u64> {
        let items: u64 = self.counted.as_ref()?.values().sum();
        (items > 0).then_some(items)
    }

    /// Returns the facts about the streams, and updates `standing` with their consequences for the
    /// next commands.
    fn note_stream(&self, standing: &mut MigrationFacts<'_>) -> Value {
        let mut stream = self.streams.told.clone();
        // Changes that a function has refused also count as waiting. So if there are problems,
        // waiting changes are no evidence that no function reads the stream.
        standing.is_unfollowed = at(&stream, "/unfollowed").is_string() && self.problems.are_none();
        // The percentage is unknown, because the number of waiting records does not include
        // records that the streams may have trimmed.
        if standing.stale_seconds.is_some()
            && let Some(percent) = stream.pointer_mut("/converged_percent")
        {
            *percent = Value::Null;
        }
        if let (Some(line), Some(hopeless)) =
            (self.documents.refused(), stream.pointer_mut("/hopeless"))
        {
            *hopeless = json!(line);
        }
        stream
    }
}

/// Reads the streams of a migration, and the documents that could not be assembled.
///
/// # Errors
/// When the control table or the documents cannot be read.
pub(crate) async fn observe(
    context: &Context,
    state: &State,
    plan: &Plan,
    watcher: &mut Watcher,
    now: i64,
) -> Result<Observation> {
    let phase = state.phase;
    let streams = watcher.look(context, state, plan, now).await;
    let asked = documents_in_the_way(context, plan, phase);
    // If the check of the documents exceeds the time limit, its result is reported as unknown.
    let unknown = Documents::Unknown { seconds: watcher.limit().as_secs() };
    let documents = tokio::time::timeout(watcher.limit(), asked).await.unwrap_or(Ok(unknown))?;
    Ok(Observation { phase, streams, documents })
}

/// Returns the state and the backfill's progress. If all segments are read, a context that may
/// write moves the migration to the phase `tailing`; a read-only context only returns this phase.
async fn progress_of(context: &Context, name: &str) -> Result<(State, Progress)> {
    match context.is_read_only {
        true => look(context, name).await,
        false => advance(context, name).await,
    }
}

/// The state of the documents of a split that could not be assembled.
#[derive(Clone, Debug)]
enum Documents {
    NotRead,
    AllWhole,
    /// Not all documents could be read within this many seconds.
    Unknown {
        seconds: u64,
    },
    /// A document would make a revert fail. The value is the reason.
    Refused(String),
}

impl Documents {
    /// Returns the reason why a document cannot be reassembled for a revert, if there is one.
    fn refused(&self) -> Option<&str> {
        match self {
            Self::Refused(line) => Some(line),
            Self::NotRead | Self::AllWhole | Self::Unknown { .. } => None,
        }
    }

    fn unread_seconds(&self) -> Option<u64> {
        match self {
            Self::Unknown { seconds } => Some(*seconds),
            Self::NotRead | Self::AllWhole | Self::Refused(_) => None,
        }
    }
}

/// Checks whether a document would make a revert fail, with the same check as `revert`.
async fn documents_in_the_way(context: &Context, plan: &Plan, phase: Phase) -> Result<Documents> {
    if plan.kind != Kind::Split || phase != Phase::CutOver || plan.inverse.is_empty() {
        return Ok(Documents::NotRead);
    }
    // If the plan does not fit its tables, this function ignores the error, because the read of the
    // streams reports it.
    let Ok(migration) = compile(context, plan, Direction::Reverse).await else {
        return Ok(Documents::NotRead);
    };
    let refused = documents::refused(context, &plan.migration, &migration, 1).await?;
    Ok(refused.into_iter().next().map_or(Documents::AllWhole, |line| {
        Documents::Refused(format!(
            "a document cannot be reassembled for a revert: {line}; correct or delete its parts, then run `weir migrate verify` again"
        ))
    }))
}

/// Returns true for a phase that only a command can end. The command that began the phase may have
/// been killed.
fn is_in_hands(phase: Phase) -> bool {
    matches!(
        phase,
        Phase::Preparing
            | Phase::CuttingOver
            | Phase::Turning
            | Phase::Reverting
            | Phase::Returning
            | Phase::Completing
    )
}

/// Returns the time of a migration's last journal line.
async fn last_heard(context: &Context, name: &str) -> Result<Option<i64>> {
    let journal: Vec<JournalLine> = context.control.list(name, JournalLine::PREFIX).await?;
    Ok(journal.last().map(|line| line.at))
}

fn steps(standing: &MigrationFacts<'_>) -> Vec<Value> {
    let steps = standing.steps().into_iter();
    steps.map(|(command, why)| json!({ "command": command, "why": why })).collect()
}

fn verified(state: &State) -> Value {
    state.verified.map_or(Value::Null, |Verified { run, differences, compared, at, .. }| {
        json!({ "run": run, "differences": differences, "compared": compared, "at": at })
    })
}

/// Returns the seconds since the backfill began; 0 after its end.
fn seconds_of_copying(state: &State, now: i64) -> u64 {
    let until = state.copied_at.unwrap_or(now);
    u64::try_from(until.saturating_sub(state.since)).unwrap_or(0)
}

/// Shows the status once.
pub(crate) async fn status(
    context: &Context,
    name: &str,
    exit_code: bool,
    look: Duration,
) -> Result<Exit> {
    let mut watcher = Watcher::with_limit(look);
    let status = describe(context, name, Some(&mut watcher)).await?;
    show_status(context.output, &status);
    Ok(if exit_code { exit_of(&status) } else { Exit::Done })
}

/// Returns the exit code for a status.
pub(crate) fn exit_of(status: &Value) -> Exit {
    let is = |flag: &str| at(status, flag) == &json!(true);
    let is_unread = |what: &str| at(status, what).is_u64();
    match at(status, "/phase").as_str() {
        Some("reverted" | "aborted") if is("/unswept") => Exit::Differences,
        _ if is("/still_followed") => Exit::Differences,
        Some("ready") if is("/stale") => Exit::Differences,
        // Records or documents that could not be read in time may block a cut-over or a revert.
        Some("ready" | "cut-over")
            if !is("/stale")
                && (is_unread("/stream_unread_seconds")
                    || is_unread("/documents_unread_seconds")) =>
        {
            Exit::Differences
        }
        Some("ready" | "cut-over") if is("/comparison_not_recorded") => Exit::Differences,
        // The next switch would be refused. If the proof is too old, this obstacle is not reported,
        // because the next step is a comparison, which checks the items again.
        Some("ready" | "cut-over") if at(status, "/hopeless").is_string() && !is("/stale") => {
            Exit::Differences
        }
        Some("ready" | "cut-over") if at(status, "/stream_problem").is_string() => {
            Exit::Differences
        }
        // Some writes to the targets have not been copied back.
        Some("cut-over") if at(status, "/way_back/differences").as_u64() > Some(0) => {
            Exit::Differences
        }
        Some("ready" | "cut-over" | "completed" | "reverted") => Exit::Done,
        Some("aborted") => Exit::Failed,
        _ => Exit::Differences,
    }
}

fn show_status(output: Output, status: &Value) {
    if output != Output::Table {
        show(&format!("{status}\n"));
        return;
    }
    show(&format!("{}\n", line(status)));
    for sample in samples(status) {
        show(&format!("  {sample}\n"));
    }
    let next: Vec<(&str, &str)> = at(status, "/next_steps")
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|step| Some((at(step, "/command").as_str()?, at(step, "/why").as_str()?)))
        .collect();
    output::next(&next);
}

/// Returns the problems that a status shows, and a line with the number of further problems.
fn samples(status: &Value) -> Vec<String> {
    let list = |place: &str| -> Vec<String> {
        let samples = at(status, place).as_array().into_iter().flatten();
        samples.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut lines = list("/backfill/samples");
    let listed = lines.iter().filter(|line| line.starts_with("refused: ")).count() as u64;
    let refused = at(status, "/backfill/counts/refused").as_u64().unwrap_or(0);
    if refused > listed {
        lines.push(format!("refused: {} more", refused - listed));
    }
    let problems = list("/problem_samples");
    let listed = problems.len() as u64;
    lines.extend(problems);
    let all = at(status, "/problems").as_object().into_iter().flatten();
    let all: u64 = all.filter_map(|(_, number)| number.as_u64()).sum();
    if all > listed {
        lines.push(format!("{} more problems", all - listed));
    }
    lines
}

/// Shows each change of the status, until only a command can change the status.
pub(crate) async fn watch(context: &Context, name: &str) -> Result<Exit> {
    let limit = stream_lag::look_limit(&context.endpoint, None);
    let (mut shown, mut watcher) = (Value::Null, Watcher::with_limit(limit));
    let mut patience = FailureTolerance::after_first(UNSEEN_MAX);
    loop {
        let looked = describe(context, name, Some(&mut watcher)).await;
        let Some(mut status) = patience.seen(looked)? else {
            tokio::time::sleep(TOLD_EVERY).await;
            continue;
        };
        let phase = at(&status, "/phase").as_str().unwrap_or_default().to_owned();
        // The rate of the backfill changes constantly, so a status in which only the rate has
        // changed is not shown.
        let rate = status.get_mut("items_per_second").map(Value::take);
        if status != shown {
            shown = status.clone();
            if let (Some(place), Some(rate)) = (status.get_mut("items_per_second"), rate) {
                *place = rate;
            }
            match context.output {
                Output::Table => show(&format!("{}\n", line(&status))),
                _ => show(&format!("{status}\n")),
            }
        }
        if QUIET.contains(&phase.as_str()) {
            return Ok(Exit::Done);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_counts_further_refused_items() {
        let status = |refused: u64, problems: u64| {
            json!({
                "backfill": {"counts": {"refused": refused}, "samples": ["refused: a", "x: b"]},
                "problems": {"refused": problems}, "problem_samples": ["refused: c"],
            })
        };
        assert_eq!(samples(&status(1, 1)), ["refused: a", "x: b", "refused: c"]);
        assert_eq!(
            samples(&status(7, 4)),
            ["refused: a", "x: b", "refused: 6 more", "refused: c", "3 more problems"]
        );
    }
}
