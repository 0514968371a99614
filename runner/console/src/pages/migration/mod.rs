//! One migration: its phase, its speed, whether a cut-over is safe, and the subcommands that are
//! safe.
//!
//! `operations::migrate` determines the phase, the speed and what is safe. The module `watch` reads
//! the streams in the background.

mod html;
mod samples;
mod view;
pub(crate) mod watch;

use std::time::Instant;

use operations::migrate::api::{self, Overview};
use serde_json::Value;

pub(crate) use self::html::html;
use self::view::{Action, Backfill, Line, Stream, Verified, View, Workers};
use crate::context::Context;
use crate::error::PageError;

/// The subcommands that have a button.
const BUTTONS: [&str; 3] = ["pause", "resume", "throttle"];

/// The maximum number of journal lines that the page shows. A migration has about ten.
const LINES_MAX: usize = 50;

/// Collects the data of the page of a migration.
///
/// # Errors
/// The migration does not exist, or the store does not answer.
pub(crate) async fn view(context: &Context, name: &str) -> Result<View, PageError> {
    let migrate = context.migrate();
    let seen = context.watches().seen(name);
    let observation = seen.as_ref().and_then(|seen| seen.found.as_ref().ok());
    let overview = api::overview(&migrate, name, observation.map(AsRef::as_ref)).await;
    let Some(overview) = overview? else {
        return Err(PageError::NotFound { what: format!("the migration `{name}`") });
    };
    context.watches().ask(&migrate, name);
    let (samples, samples_problem) = match &overview.plan {
        Some(plan) => samples::read(&migrate, plan).await,
        None => (Vec::new(), Some("the migration has no stored plan".to_owned())),
    };
    let now = Instant::now();
    let mut view = of(name, overview);
    let age = seen.as_ref().map_or(0, |seen| now.duration_since(seen.at).as_secs());
    if let Some(stream) = &mut view.stream {
        stream.seen_seconds_ago = age;
    }
    let problem = seen.as_ref().and_then(|seen| seen.found.as_ref().err());
    view.stream_note = problem.map(ToString::to_string).or(view.stream_note);
    view.backfill.items_per_second = context.watches().note(name, view.backfill.read, now);
    Ok(View { samples, samples_problem, ..view })
}

/// Converts the overview of a migration to the data of the page, without samples.
fn of(name: &str, overview: Overview) -> View {
    let Overview { state, status, .. } = overview;
    let text = |place: &str| status.pointer(place).and_then(Value::as_str).map(str::to_owned);
    let lines = |place: &str| -> Vec<String> {
        let lines = status.pointer(place).and_then(Value::as_array).into_iter().flatten();
        lines.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let journal = overview.journal.iter().rev().take(LINES_MAX).map(|line| Line {
        at: line.at,
        from: line.from.as_str(),
        to: line.to.as_str(),
        why: line.why.clone(),
        by: line.by.clone(),
    });
    let actions = overview.actions.into_iter().map(|action| Action {
        button: BUTTONS.contains(&action.verb.as_str()),
        verb: action.verb,
        command: action.command,
        consequence: action.consequence,
    });
    let stream = stream(&status);
    let is_blocked = status.pointer("/writers_blocked").and_then(Value::as_bool) == Some(true);
    View {
        schema: "weir.console.migration/v1",
        name: name.to_owned(),
        kind: overview.kind,
        sources: overview.sources,
        targets: overview.targets,
        phase: state.phase.as_str(),
        phases: overview.phases,
        paused: state.is_paused(),
        cutover: overview.cutover,
        backfill: backfill(&status, state.rate),
        workers: Workers {
            at_work: overview.workers.at_work,
            open_segments: overview.workers.open_segments,
            set_aside: overview.workers.set_aside,
        },
        stream_note: text("/stream_problem").or_else(|| {
            let note =
                "unknown: the first read of the streams has not finished, or the migration follows no stream";
            stream.is_none().then(|| note.to_owned())
        }),
        stream,
        writers_blocked_since: state.held_at.filter(|_| is_blocked),
        last_switch: overview.last_switch,
        verified: state.verified.map(|verified| Verified {
            differences: verified.differences,
            refused: verified.refused,
            compared: verified.compared,
            at: verified.at,
        }),
        back_differences: state.back_differences,
        problems: [lines("/backfill/samples"), lines("/problem_samples")].concat(),
        actions: actions.collect(),
        samples: Vec::new(),
        samples_problem: None,
        journal: journal.collect(),
        status,
    }
}

fn backfill(status: &Value, rate: u64) -> Backfill {
    let number = |place: &str| status.pointer(place).and_then(Value::as_u64);
    let count = |name: &str| number(&format!("/backfill/counts/{name}")).unwrap_or(0);
    Backfill {
        copied_percent: number("/copied_percent").unwrap_or(0),
        read: count("read"),
        source_items: number("/source_items"),
        written: count("written"),
        refused: count("refused"),
        segments_done: number("/backfill/done").unwrap_or(0),
        segments: number("/backfill/tasks").unwrap_or(0),
        items_per_second: Vec::new(),
        items_per_second_on_average: number("/items_per_second").unwrap_or(0),
        items_per_second_allowed: Some(rate).filter(|rate| *rate > 0),
        throttled: status.pointer("/throttled").and_then(Value::as_str).map(str::to_owned),
        seconds_left: number("/copying_seconds_left"),
    }
}

fn stream(status: &Value) -> Option<Stream> {
    let stream = status.get("stream").filter(|stream| stream.is_object())?;
    let number = |name: &str| stream.get(name).and_then(Value::as_u64).unwrap_or(0);
    Some(Stream {
        waiting: number("waiting"),
        records: number("records"),
        lag_seconds: number("lag_seconds"),
        horizon_seconds: stream.get("horizon_seconds").and_then(Value::as_i64),
        unfollowed: stream.get("unfollowed").and_then(Value::as_str).map(str::to_owned),
        seen_seconds_ago: 0,
    })
}
