//! What a migration says about itself: status, watch, wait, list, journal.
//!
//! Nothing is moved here but from copying to tailing, when every segment was read.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indicatif::HumanDuration;
use rules::migration::Phase;
use rules::migration::plan::{Direction, LAG_FRESH_SECONDS, LAG_SECONDS_MAX, Plan};
use serde_json::{Value, json};

use super::control::{Entry, Progress, flag, number, phase_of, text};
use super::following::Watcher;
use super::held::HELD_AT;
use super::patience::{Patience, UNSEEN_MAX};
use super::status_line::line;
use super::steps::{Standing, is_paused};
use super::{Context, LOOK_EVERY, comparing, tables, way_back, workers};
use crate::exit::Exit;
use crate::output::{self, Output, say, show};
use crate::server_date;

/// Phases in which nothing more happens by itself.
const QUIET: [&str; 6] = ["tailing", "ready", "cut-over", "reverted", "completed", "aborted"];

/// How often a verb that waits says how far the migration is.
const TOLD_EVERY: Duration = Duration::from_secs(2);
/// Without any progress for so long, a verb that waits says so: a page of the backfill takes well
/// below a second where nothing holds it up.
const UNMOVED: Duration = Duration::from_secs(30);

/// Problems of which a status says what they are.
const PROBLEMS_SHOWN: usize = 5;

/// The status of a migration as JSON, `weir.migration.status/v1`.
///
/// With a watcher it says also how far the streams are.
pub(super) async fn describe(
    context: &Context,
    name: &str,
    watcher: Option<&mut Watcher>,
) -> Result<Value, String> {
    let (state, backfill) = context.advance(name).await?;
    let problems = context.control.entries(name, "PROBLEM#").await?;
    let route = context.control.get(name, "ROUTE").await?.unwrap_or_default();
    let phase = text(&state, "phase").unwrap_or("none").to_owned();
    let plan = context.plan(name).await.ok().map(|(plan, _)| plan);
    let items = match &plan {
        // Without them, the rest is as true.
        Some(plan) if phase == "copying" => source_items(context, plan).await.unwrap_or_default(),
        _ => None,
    };
    let copied = percent(&backfill, items.unwrap_or(0));
    let now = context.now().await;
    let mut stream = match (watcher, &plan) {
        (Some(watcher), Some(plan)) => watcher.look(context, &state, plan, now).await?,
        _ => Value::Null,
    };
    // After a cut-over a look may have noted what it proved.
    let state = if phase == "cut-over" { context.state(name).await? } else { state };
    let seconds = seconds_of_copying(&state, u64::try_from(now).unwrap_or(0));
    let is_paused = is_paused(&state);
    let is_going_on = !is_paused && copied > 0 && copied < 100;
    let left = is_going_on.then(|| seconds * (100 - copied) / copied);
    let mut standing = Standing::of(name, &state, plan.as_ref(), now);
    standing.is_held_up = text(&route, "write") == Some("none");
    note_control(context, name, &state, &mut standing).await?;
    note_stream(&mut standing, &mut stream, problems.is_empty());
    let throttled = match &plan {
        Some(plan) => throttled(context, &state, plan, now).await?,
        None => None,
    };
    Ok(json!({
        "schema": "weir.migration.status/v1",
        "migration": name,
        "phase": phase,
        "paused": is_paused,
        "unswept": flag(&state, "unswept"),
        "still_followed": standing.is_still_followed,
        "copied_percent": copied,
        "source_items": items,
        "backfill": backfill.json(),
        "items_per_second": backfill.count("read").checked_div(seconds.max(1)),
        "copying_seconds_left": left,
        "throttled": throttled,
        "failing": workers::failing(context, name, &state).await?,
        "problems": by_kind(&problems),
        "problem_samples": samples_of(&problems),
        "verified": verified(&state),
        "stale": standing.is_stale(),
        "stale_seconds": standing.stale_seconds,
        "compared_now": standing.is_compared,
        "writers_held_up": standing.is_held_up,
        "writers_held_up_since": held_since(&state, standing.is_held_up),
        "route": {
            "epoch": number(&route, "revision"),
            "read": text(&route, "read"),
            "write": text(&route, "write"),
        },
        "stream_horizon_seconds": at(&stream, "/horizon_seconds"),
        "stream": stream,
        "way_back": way_back::describe(&state, plan.as_ref(), now),
        "has_way_back": plan.as_ref().map(|plan| !plan.inverse.is_empty()),
        "next_steps": steps(&standing),
    }))
}

/// What else the control table says of where a migration stands.
async fn note_control(
    context: &Context,
    name: &str,
    state: &Entry,
    standing: &mut Standing<'_>,
) -> Result<(), String> {
    standing.is_compared = match standing.phase {
        Phase::Ready | Phase::CutOver => comparing::to_go(context, name, standing.phase).await? > 0,
        _ => false,
    };
    standing.is_still_followed =
        phase_of(state).has_ended() && context.control.active(name).await?.is_some();
    Ok(())
}

/// What the streams say of where a migration stands, and what may not be said of them.
fn note_stream(standing: &mut Standing<'_>, stream: &mut Value, is_without_problems: bool) {
    // What a function has refused waits as well.
    standing.is_unfollowed = at(stream, "/unfollowed").is_string() && is_without_problems;
    standing.is_hopeless = at(stream, "/hopeless").is_string();
    // What the streams have forgotten is not among what they say.
    if standing.stale_seconds.is_some()
        && let Some(percent) = stream.pointer_mut("/converged_percent")
    {
        *percent = Value::Null;
    }
}

/// The first problems, in words.
fn samples_of(problems: &[Entry]) -> Vec<String> {
    let told = |problem: &Entry| {
        let kind = text(problem, "entry").and_then(|entry| entry.split('#').nth(1))?;
        let (table, key) = (text(problem, "table")?, text(problem, "key")?);
        Some(format!("{kind}: {table} {key}: {}", text(problem, "reason").unwrap_or_default()))
    };
    problems.iter().filter_map(told).take(PROBLEMS_SHOWN).collect()
}

/// How many problems there are, by their kind.
fn by_kind(problems: &[Entry]) -> BTreeMap<String, u64> {
    let mut by_kind: BTreeMap<String, u64> = BTreeMap::new();
    for problem in problems {
        let kind = text(problem, "entry").and_then(|entry| entry.split('#').nth(1));
        *by_kind.entry(kind.unwrap_or("other").to_owned()).or_default() += 1;
    }
    by_kind
}

fn steps(standing: &Standing<'_>) -> Vec<Value> {
    let steps = standing.steps().into_iter();
    steps.map(|(command, why)| json!({ "command": command, "why": why })).collect()
}

/// Seconds since the backfill began, until it ended.
fn seconds_of_copying(state: &Entry, now: u64) -> u64 {
    let until = match number(state, "copied_at") {
        0 => now,
        copied_at => copied_at,
    };
    until.saturating_sub(number(state, "since"))
}

/// What slows a migration down, in words.
async fn throttled(
    context: &Context,
    state: &Entry,
    plan: &Plan,
    now: i64,
) -> Result<Option<String>, String> {
    if is_paused(state) {
        return Ok(Some("paused by a person".to_owned()));
    }
    // Workers note by the clock of the answers that they get, a local store's clock may be another.
    let now = server_date::seconds(&context.control.client).await.unwrap_or(now);
    if text(state, "phase") == Some("copying")
        && let Some(behind) = behind(context, plan, now).await?
    {
        return Ok(Some(behind));
    }
    if let Some(reason) = throttled_by_dynamodb(context, plan, now).await? {
        return Ok(Some(reason));
    }
    let rate = Some(number(state, "rate")).filter(|r| *r > 0 && workers::keep_rate(state));
    Ok(rate.map(|rate| format!("{rate} items per second of each table, by a person")))
}

/// Why DynamoDB throttles requests on tables of a migration, as its workers noted.
async fn throttled_by_dynamodb(
    context: &Context,
    plan: &Plan,
    now: i64,
) -> Result<Option<String>, String> {
    let notes = context.control.entries("*", "THROTTLE#").await?;
    let concerns = |table: &str| {
        table == context.control.table
            || [Direction::Forward, Direction::Reverse].into_iter().any(|direction| {
                let tables = plan.source_tables(direction).into_iter();
                tables.chain(plan.target_tables(direction)).any(|known| known == table)
            })
    };
    let newest = notes
        .iter()
        .filter(|note| {
            let table = text(note, "entry").and_then(|entry| entry.strip_prefix("THROTTLE#"));
            // A batch of requests names no table.
            table.is_some_and(|table| table.is_empty() || concerns(table)) && is_fresh(note, now)
        })
        .max_by_key(|note| number(note, "at"));
    Ok(newest.and_then(|note| text(note, "reason")).map(str::to_owned))
}

/// Whether what a worker noted still counts.
fn is_fresh(note: &Entry, now: i64) -> bool {
    number(note, "at") + LAG_FRESH_SECONDS >= u64::try_from(now).unwrap_or(0)
}

/// Which stream is so far behind that the backfill waits for it, in words.
async fn behind(context: &Context, plan: &Plan, now: i64) -> Result<Option<String>, String> {
    for table in plan.source_tables(Direction::Forward) {
        let Some(lag) = context.control.get("*", &format!("LAG#{table}")).await? else { continue };
        let seconds = number(&lag, "seconds");
        if is_fresh(&lag, now) && seconds > LAG_SECONDS_MAX {
            return Ok(Some(format!("the stream of `{table}` is {seconds} s behind")));
        }
    }
    Ok(None)
}

fn verified(state: &Entry) -> Value {
    match number(state, "verified_run") {
        0 => Value::Null,
        run => json!({
            "run": run,
            "differences": number(state, "verified_differences"),
            "compared": number(state, "verified_compared"),
            "at": number(state, "verified_at"),
        }),
    }
}

/// Items of the sources as `DescribeTable` counts them, which on AWS is some hours old.
async fn source_items(context: &Context, plan: &Plan) -> Result<Option<u64>, String> {
    let found = tables::describe(&context.control.client, plan).await?;
    let sources = plan.source_tables(Direction::Forward).into_iter();
    Ok(sources.map(|table| found.get(table).map(|facts| facts.items)).sum())
}

/// Since when writers are held up, if they are.
fn held_since(state: &Entry, is_held_up: bool) -> Option<u64> {
    let since = number(state, HELD_AT);
    (is_held_up && since > 0).then_some(since)
}

/// Whole percents of the items that are read; 100 only when every segment is.
///
/// The count of the items may be too high or too low, so segments that are read count as well.
fn percent(progress: &Progress, items: u64) -> u64 {
    if progress.tasks > 0 && progress.is_done() {
        return 100;
    }
    let of = |part: u64, whole: u64| part.saturating_mul(100).checked_div(whole).unwrap_or(0);
    let [done, tasks] = [progress.done, progress.tasks].map(|n| u64::try_from(n).unwrap_or(0));
    of(progress.count("read"), items).max(of(done, tasks)).min(99)
}

/// Shows the status once.
pub(super) async fn status(
    context: &Context,
    name: &str,
    exit_code: bool,
    look_seconds: u64,
) -> Result<Exit, String> {
    let mut watcher = Watcher::with_limit(Duration::from_secs(look_seconds));
    let status = describe(context, name, Some(&mut watcher)).await?;
    show_status(context.output, &status);
    Ok(if exit_code { exit_of(&status) } else { Exit::Done })
}

/// The exit code that says how far a migration is.
pub(super) fn exit_of(status: &Value) -> Exit {
    let is = |flag: &str| at(status, flag) == &json!(true);
    match at(status, "/phase").as_str() {
        Some("reverted" | "aborted") if is("/unswept") => Exit::Differences,
        _ if is("/still_followed") => Exit::Differences,
        Some("ready") if is("/stale") => Exit::Differences,
        // The next switch would refuse. A way back that is too old is known as such.
        Some("ready" | "cut-over")
            if at(status, "/stream/hopeless").is_string() && !is("/stale") =>
        {
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
    let samples =
        ["/backfill/samples", "/problem_samples"].map(|place| at(status, place).as_array());
    for sample in samples.into_iter().flatten().flatten() {
        show(&format!("  {}\n", sample.as_str().unwrap_or_default()));
    }
    let next: Vec<(&str, &str)> = at(status, "/next_steps")
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|step| Some((at(step, "/command").as_str()?, at(step, "/why").as_str()?)))
        .collect();
    output::next(&next);
}

/// Shows the status whenever it has changed, until nothing more happens by itself.
pub(super) async fn watch(context: &Context, name: &str) -> Result<Exit, String> {
    let (mut shown, mut watcher) = (Value::Null, Watcher::default());
    let mut patience = Patience::after_first(UNSEEN_MAX);
    loop {
        let looked = describe(context, name, Some(&mut watcher)).await;
        let Some(mut status) = patience.seen(looked)? else {
            tokio::time::sleep(TOLD_EVERY).await;
            continue;
        };
        let phase = at(&status, "/phase").as_str().unwrap_or_default().to_owned();
        // The rate changes all the time; it is no change of the migration.
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

/// Says how far a migration is whenever that has changed, and once when it has not for long.
struct Teller {
    said: String,
    moved: Instant,
    is_warned: bool,
}

impl Teller {
    fn new() -> Self {
        Self { said: String::new(), moved: Instant::now(), is_warned: false }
    }

    fn tell(&mut self, status: &Value) {
        // What is left is estimated anew all the time; that is no change of the migration.
        let progress = at(status, "/backfill").to_string() + &at(status, "/phase").to_string();
        if progress != self.said {
            say(&line(status));
            (self.said, self.moved, self.is_warned) = (progress, Instant::now(), false);
        } else if !self.is_warned
            && self.moved.elapsed() > UNMOVED
            && at(status, "/phase") == "copying"
        {
            let why = at(status, "/throttled")
                .as_str()
                .map_or_else(|| workers::advice_of(status), str::to_owned);
            say(&format!("nothing has moved for {} s: {why}", UNMOVED.as_secs()));
            self.is_warned = true;
        }
    }
}

/// Says how far the backfill is, until the migration is in one of `phases`.
pub(super) async fn until(context: &Context, name: &str, phases: &[&str]) -> Result<(), String> {
    let (mut teller, mut patience) = (Teller::new(), Patience::new(UNSEEN_MAX));
    loop {
        // Workers have better things to do than to prove what they did.
        if let Some(status) = patience.seen(describe(context, name, None).await)? {
            teller.tell(&status);
            // What is still to be swept needs its workers.
            let is_swept = at(&status, "/unswept") != &json!(true);
            let phase = at(&status, "/phase").as_str();
            if is_swept && phase.is_some_and(|phase| phases.contains(&phase)) {
                return Ok(());
            }
        }
        tokio::time::sleep(TOLD_EVERY).await;
    }
}

/// The phases of the way to the targets, and those of the way back, in their order.
const THERE: [&str; 9] = [
    "preparing",
    "copying",
    "tailing",
    "ready",
    "cutting-over",
    "turning",
    "cut-over",
    "completing",
    "completed",
];
const BACK: [&str; 3] = ["reverting", "returning", "reverted"];
/// Phases that no other follows.
const ENDS: [&str; 3] = ["completed", "reverted", "aborted"];

/// Whether who waits for a phase has waited enough: in that phase, or one behind it on the same way.
fn is_reached(wanted: &str, now: &str) -> bool {
    let is_behind = |way: &[&str]| {
        let place = |phase: &str| way.iter().position(|known| *known == phase);
        place(wanted).is_some_and(|wanted| place(now) >= Some(wanted))
    };
    now == wanted || is_behind(&THERE) || is_behind(&BACK)
}

/// Waits for a phase or one behind it.
pub(super) async fn wait(
    context: &Context,
    name: &str,
    phase: &str,
    timeout: u64,
) -> Result<Exit, String> {
    if !THERE.contains(&phase) && !BACK.contains(&phase) && phase != "aborted" {
        return Err(format!(
            "there is no phase `{phase}` to wait for; phases are {}, {}, aborted",
            THERE.join(", "),
            BACK.join(", ")
        ));
    }
    let (started, mut teller, mut now) = (Instant::now(), Teller::new(), String::new());
    let (mut told, mut backfill) = (None::<Instant>, Progress::default());
    let limit = Duration::from_secs(timeout);
    let (mut patience, mut for_status) = (Patience::after_first(limit), Patience::new(limit));
    loop {
        if let Some((state, seen)) = patience.seen(context.advance(name).await)? {
            (now, backfill) = (text(&state, "phase").unwrap_or_default().to_owned(), seen);
        }
        if is_reached(phase, &now) {
            say(&format!("`{name}` is {now} after {}", HumanDuration(started.elapsed())));
            return Ok(Exit::Done);
        }
        if ENDS.contains(&now.as_str()) {
            return Err(format!("`{name}` is {now}"));
        }
        if started.elapsed() > limit {
            let advice = match now.as_str() {
                "copying" => format!("; {}", workers::advice(name, &backfill)),
                _ => String::new(),
            };
            say(&format!("`{name}` is still {now} after {timeout} s{advice}"));
            return Ok(Exit::TimedOut);
        }
        // A look at the phase is one item, the whole status is several: it is taken less often.
        if told.is_none_or(|told| told.elapsed() > TOLD_EVERY) {
            if let Some(status) = for_status.seen(describe(context, name, None).await)? {
                teller.tell(&status);
            }
            told = Some(Instant::now());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Lists migrations.
pub(super) async fn list(context: &Context) -> Result<Exit, String> {
    let states = context.control.states().await?;
    let rows: Vec<Vec<Value>> = states
        .iter()
        .map(|state| {
            vec![
                json!(text(state, "migration")),
                json!(text(state, "phase")),
                json!(is_paused(state)),
                json!(number(state, "since")),
            ]
        })
        .collect();
    output::rows(context.output, &["migration", "phase", "paused", "begun"], &rows);
    if rows.is_empty() {
        say(&format!("no migration was begun: `{}` has none", context.control.table));
    }
    Ok(Exit::Done)
}

/// Shows each change of a migration's phase.
pub(super) async fn journal(context: &Context, name: &str) -> Result<Exit, String> {
    context.state(name).await?;
    let entries = context.control.entries(name, "JOURNAL#").await?;
    let rows: Vec<Vec<Value>> = entries
        .iter()
        .map(|entry| {
            vec![
                json!(number(entry, "at")),
                json!(text(entry, "from")),
                json!(text(entry, "to")),
                json!(text(entry, "why")),
                json!(text(entry, "by")),
            ]
        })
        .collect();
    output::rows(context.output, &["at", "from", "to", "why", "by"], &rows);
    Ok(Exit::Done)
}

/// What stands at a place of a document; null if nothing does.
pub(super) fn at<'v>(value: &'v Value, place: &str) -> &'v Value {
    value.pointer(place).unwrap_or(&Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percents_are_of_items_and_100_only_when_every_segment_is_read() {
        let progress = |done, tasks, read: u64| Progress {
            done,
            tasks,
            counts: [("read".to_owned(), read)].into(),
            ..Progress::default()
        };
        for (done, tasks, read, items, percents) in [
            (0, 0, 0, 0, 0),
            (0, 4, 0, 20_000, 0),
            (0, 4, 13_500, 20_000, 67),
            // The count is old: the table has grown, or shrunk.
            (1, 4, 13_500, 5_000, 99),
            (3, 4, 13_500, 100_000, 75),
            // Nothing is known of the count.
            (1, 4, 5_000, 0, 25),
            (4, 4, 19_000, 20_000, 100),
        ] {
            let found = percent(&progress(done, tasks, read), items);
            assert_eq!(found, percents, "{done} of {tasks}, {read} of {items}");
        }
    }

    #[test]
    fn every_phase_can_be_waited_for_and_is_reached_by_those_behind_it() {
        for phase in Phase::ALL.into_iter().filter(|phase| *phase != Phase::None) {
            let phase = phase.as_str();
            let is_known = [&THERE[..], &BACK, &ENDS].iter().any(|known| known.contains(&phase));
            assert!(is_known && is_reached(phase, phase), "{phase}");
        }
        for (wanted, now, expected) in [
            ("tailing", "copying", false),
            ("tailing", "cut-over", true),
            ("turning", "cut-over", true),
            ("reverting", "cut-over", false),
            ("reverting", "returning", true),
            ("reverting", "reverted", true),
            ("cut-over", "reverting", false),
            ("aborted", "reverted", false),
        ] {
            assert_eq!(is_reached(wanted, now), expected, "{wanted} {now}");
        }
    }
}
