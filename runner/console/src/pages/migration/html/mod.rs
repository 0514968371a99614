//! The HTML of the page of a migration. This module performs no I/O.

use maud::{Markup, html};
use operations::migrate::api::{PhasePlace, Safety};
use serde_json::Value;

use super::view::{Action, Backfill, Made, Sample, Stream, View};
use crate::context::Writes;
use crate::parts::{cell, form, message, table, time};
use crate::query::href;

/// The height of the speed chart in SVG units.
const SPEED_HEIGHT: u64 = 40;
/// The width of one point of the speed chart in SVG units.
const SPEED_STEP: usize = 8;

/// The maximum size in bytes of the HTML of the samples. A page has at most 60 KB, and an item may
/// have a thousand attributes.
const SAMPLES_BYTES_MAX: usize = 20 * 1024;

/// Returns the HTML of the page of a migration, without its frame.
pub(crate) fn html(view: &View, writes: Writes<'_>) -> Markup {
    html! {
        h1 { "Migration " (view.name) }
        p {
            @if let Some(kind) = view.kind { (kind) ": " }
            (view.sources.join(", ")) " → " (view.targets.join(", "))
        }
        (phases(view))
        (safety(view))
        (actions(view, writes))
        h2 { "Progress" }
        (progress(view))
        (speed(&view.backfill))
        @if !view.problems.is_empty() {
            h2 { "Rejected and conflicting items" }
            ul { @for problem in &view.problems { li { (cell::cut(problem, None)) } } }
        }
        h2 { "Samples: before and after" }
        (samples(view))
        h2 { "Journal" }
        (journal(view))
        p { a href=(twin(&view.name)) { "This page as JSON" } ", with the complete status." }
    }
}

/// Returns the address of the JSON version.
fn twin(name: &str) -> String {
    format!("{}.json", href(&["migrations", name], &[]))
}

fn phases(view: &View) -> Markup {
    html! {
        ol.phases aria-label="Phases" {
            @for step in &view.phases {
                @match step.place {
                    PhasePlace::Passed => li.passed { span aria-hidden="true" { "✓ " } (step.phase) span.only-read { " (passed)" } },
                    PhasePlace::Current => li.current aria-current="step" {
                        span aria-hidden="true" { "● " } (step.phase)
                        @if view.paused { " (paused)" }
                    },
                    PhasePlace::Ahead => li { span aria-hidden="true" { "○ " } (step.phase) },
                }
            }
        }
    }
}

/// Returns the answer to the question whether a cut-over is safe, with the reasons against it.
fn safety(view: &View) -> Markup {
    html! {
        h2 { "Is it safe to cut over now?" }
        @match &view.cutover {
            Some(cutover) => {
                @let class = match cutover.answer {
                    Safety::Yes | Safety::Done => "good",
                    Safety::No => "bad",
                    Safety::Unknown | Safety::Begun => "wait",
                };
                p.answer { strong class=(class) { (cutover.sentence) "." } }
                @if let Some(blocked) = &cutover.writers_blocked {
                    p {
                        "Writers are blocked for at most about " (blocked.seconds_max) " s with the default "
                        code { "--timeout" } " of " (blocked.timeout_seconds) " s, then for up to "
                        (blocked.rollback_seconds_max) " s more if the cut-over is rolled back. "
                        "A store with coarse record times can add 75 s."
                    }
                }
                @if cutover.reasons.len() > 1 {
                    p { "Reasons against a cut-over:" }
                    ul { @for reason in &cutover.reasons { li { (reason) } } }
                }
            },
            None => (message::warning("the command that started the migration ended before it stored the plan: run `weir migrate start` with the plan again")),
        }
        @if let Some(since) = view.writers_blocked_since {
            (message::warning("writers are blocked"))
            p { "Writers have been blocked since " (time::seconds(since)) " UTC, by the store's clock." }
        }
    }
}

fn actions(view: &View, writes: Writes<'_>) -> Markup {
    let rows: Vec<Vec<Markup>> = view
        .actions
        .iter()
        .map(|action| {
            vec![
                html! { (action.verb) },
                html! { (action.consequence) },
                control(view, action, writes),
            ]
        })
        .collect();
    html! {
        h2 { "What is safe now" }
        @if rows.is_empty() {
            (message::note("the migration has ended: no command can change it"))
        } @else {
            (table::table("Subcommands that are safe in this state", &["subcommand", "consequence", "how"], &rows))
            p.note { "A subcommand without a button can run longer than an HTTP request: run it in a terminal, which shows its progress." }
        }
    }
}

/// Returns the button of a subcommand, or the command if it has no button.
fn control(view: &View, action: &Action, writes: Writes<'_>) -> Markup {
    if !action.button {
        return message::command(&action.command);
    }
    let address = href(&["migrations", &view.name, &action.verb], &[]);
    let back = href(&["migrations", &view.name], &[]);
    if action.verb != "throttle" {
        return form::button(writes, &address, &back, &action.verb, &[]);
    }
    let rate = view.backfill.items_per_second_allowed.map(|rate| rate.to_string());
    match writes {
        Writes::Refused => form::button(writes, &address, &back, "throttle", &[]),
        Writes::Allowed(_) => html! {
            form.action method="post" action=(address) {
                (form::hidden(writes, &back))
                label for="rate" { "items per second" }
                input id="rate" name="rate" type="number" min="0" required value=(rate.unwrap_or_default());
                button type="submit" { "throttle" }
            }
        },
    }
}

fn progress(view: &View) -> Markup {
    let backfill = &view.backfill;
    let of_all = match backfill.source_items {
        Some(items) => format!(" of about {items}"),
        None => String::new(),
    };
    let allowed = backfill
        .items_per_second_allowed
        .map_or_else(|| "no limit".to_owned(), |rate| format!("{rate} allowed"));
    let now = backfill.items_per_second.last();
    html! {
        dl.facts {
            dt { "Copied" }
            dd {
                (backfill.copied_percent) " %: " (backfill.read) (of_all) " items read, "
                (backfill.segments_done) " of " (backfill.segments) " segments, "
                (backfill.written) " written"
                @if let Some(seconds) = backfill.seconds_left {
                    ", about " (time::duration(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000))) " left"
                }
            }
            dt { "Items per second" }
            dd {
                @if let Some(now) = now { (now) " now, " }
                (backfill.items_per_second_on_average) " on average; " (allowed)
                @if let Some(reason) = &backfill.throttled { " (throttled: " (reason) ")" }
            }
            dt { "Workers" }
            dd {
                (view.workers.at_work) " running; " (view.workers.open_segments) " segments open"
                @if view.workers.set_aside > 0 {
                    ", " span.bad { (view.workers.set_aside) " set aside until " code { "resume" } }
                }
            }
            dt { "Lag" }
            dd { (lag(view.stream.as_ref(), view.stream_note.as_deref())) }
            dt { "Last period in which writers were blocked" }
            dd {
                @match &view.last_switch {
                    Some(switch) => {
                        (switch.verb) ", "
                        @if switch.is_committed { "done" } @else { "rolled back" }
                        " at " (time::seconds(switch.at)) ": at most " (switch.seconds_at_most) " s"
                    },
                    None => "no cut-over or revert has ended",
                }
            }
            dt { "Differences" }
            dd {
                @match view.verified {
                    Some(verified) => {
                        span class=(if verified.differences > 0 { "bad" } else { "good" }) { (verified.differences) }
                        " of " (verified.compared) " compared items differ"
                        @if verified.refused > 0 { " (" (verified.refused) " cannot be repaired)" }
                        "; compared at " (time::seconds(verified.at))
                    },
                    None => "never compared",
                }
                @if let Some(differences) = view.back_differences {
                    "; source items that differ from the targets after the cut-over: "
                    span class=(if differences > 0 { "bad" } else { "good" }) { (differences) }
                }
            }
            dt { "Refused" }
            dd { span class=(if backfill.refused > 0 { "bad" } else { "good" }) { (backfill.refused) } " items" }
        }
    }
}

fn lag(stream: Option<&Stream>, note: Option<&str>) -> Markup {
    html! {
        @match stream {
            Some(stream) => {
                (stream.lag_seconds) " s behind; " (stream.waiting) " of " (stream.records) " changes wait"
                @if let Some(seconds) = stream.horizon_seconds.filter(|_| stream.waiting > 0) {
                    ", the stream deletes the oldest waiting change in " (time::duration(seconds.saturating_mul(1000)))
                }
                @if let Some(table) = &stream.unfollowed {
                    "; " span.bad { "no function applies the changes of the table " (table) }
                }
                span.note { " (read " (stream.seen_seconds_ago) " s ago)" }
            },
            None => span.note { (note.unwrap_or("not read")) },
        }
    }
}

/// Draws a chart of the items per second at the last views of the page, with the allowed rate as a
/// dashed line.
fn speed(backfill: &Backfill) -> Markup {
    let speeds = &backfill.items_per_second;
    let most = speeds.iter().copied().max().unwrap_or(0);
    if most == 0 {
        return html! {};
    }
    let most = most.max(backfill.items_per_second_allowed.unwrap_or(0));
    let height = |speed: u64| SPEED_HEIGHT - (speed * SPEED_HEIGHT / most).min(SPEED_HEIGHT);
    let points = speeds.iter().enumerate();
    let points: Vec<String> =
        points.map(|(at, speed)| format!("{},{}", at * SPEED_STEP, height(*speed))).collect();
    let width = speeds.len().saturating_sub(1).max(1) * SPEED_STEP;
    let title = format!("Items per second, from 0 to {most}");
    html! {
        svg.speed viewBox=(format!("0 -2 {width} {}", SPEED_HEIGHT + 4)) role="img" aria-label=(title) preserveAspectRatio="none" {
            @if let Some(allowed) = backfill.items_per_second_allowed {
                line.allowed x1="0" y1=(height(allowed)) x2=(width) y2=(height(allowed)) {}
            }
            polyline points=(points.join(" ")) {}
        }
        p.note { (title) @if backfill.items_per_second_allowed.is_some() { "; the dashed line is the allowed rate" } "." }
    }
}

fn samples(view: &View) -> Markup {
    let mut room = SAMPLES_BYTES_MAX;
    html! {
        @if let Some(problem) = &view.samples_problem {
            (message::note(&format!("no samples: {problem}")))
        } @else if view.samples.is_empty() {
            (message::empty("The source tables are empty.", &html! { "Samples appear with the first item." }))
        }
        @for (at, sample) in view.samples.iter().enumerate() {
            @if room > 0 { (side_by_side(sample, at, &mut room)) }
        }
    }
}

/// Returns the HTML of a source item beside the target items that the plan creates from it.
fn side_by_side(sample: &Sample, at: usize, room: &mut usize) -> Markup {
    html! {
        div.sides {
            section {
                h3 { "Before: " (sample.table) }
                (item(&sample.before, room))
            }
            section {
                @if let Some(reason) = &sample.refused {
                    h3 { "Refused" }
                    p.bad { (reason) }
                }
                @if sample.refused.is_none() && sample.after.is_empty() {
                    h3 { "Dropped" }
                    p.note { "the plan creates no target item from this source item" }
                }
                @for (number, made) in sample.after.iter().enumerate() {
                    @if *room > 0 { (target(made, &format!("found-{at}-{number}"), room)) }
                }
            }
        }
    }
}

fn target(made: &Made, id: &str, room: &mut usize) -> Markup {
    let (class, words) = match made.stands {
        "equal" => ("good", "the table contains this item"),
        "missing" => ("wait", "the table does not contain this item yet"),
        _ => ("bad", "the table contains a different item"),
    };
    html! {
        h3 { "After: " (made.table) " – " span class=(class) { (words) } }
        @match &made.item {
            Some(made) => (item(made, room)),
            None => p { "removed" },
        }
        @if let Some(found) = &made.found {
            details id=(id) { summary { "what the table has" } (item(found, room)) }
        }
    }
}

/// Returns the HTML of an item's attributes with their types, up to `room` bytes.
fn item(item: &Value, room: &mut usize) -> Markup {
    let members = item.as_object().into_iter().flatten();
    let mut shown = Vec::new();
    for (name, value) in members {
        if *room == 0 {
            break;
        }
        let member = html! {
            dt { (cell::cut(name, None)) }
            dd { (cell::typed(value, None)) }
        };
        *room = room.saturating_sub(member.0.len());
        shown.push(member);
    }
    let left = item.as_object().map_or(0, |members| members.len().saturating_sub(shown.len()));
    html! {
        dl.item { @for member in &shown { (member) } }
        @if left > 0 { p.note { (left) " more attributes are in the JSON of this page" } }
    }
}

fn journal(view: &View) -> Markup {
    let rows: Vec<Vec<Markup>> = view
        .journal
        .iter()
        .map(|line| {
            vec![
                time::seconds(line.at),
                html! { (line.from) " → " (line.to) },
                html! { (line.why) },
                html! { (line.by) },
            ]
        })
        .collect();
    table::table("Phase changes, newest first", &["time (UTC)", "phase", "reason", "by"], &rows)
}

#[cfg(test)]
mod tests;
