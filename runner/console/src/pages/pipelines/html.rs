//! The HTML of the page of pipelines. This module performs no I/O.

use maud::{Markup, html};

use super::figures::{figure_texts, name};
use super::map::map;
use super::state::{Level, State};
use super::view::{Mapping, View};
use crate::parts::{message, table, time};
use crate::query::href;

/// The maximum number of mappings on a page, which keeps it below 60 KB.
const MAPPINGS_MAX: usize = 16;

/// Returns the HTML of the page Pipelines, without its frame.
pub(crate) fn html(view: &View) -> Markup {
    html! {
        h1 { "Pipelines" }
        @if let Some(why) = &view.hindered { (message::warning(why)) }
        @if view.runs { (running(view)) } @else { (elsewhere(view)) }
    }
}

/// Returns the HTML of the mappings of a running `weir up`.
fn running(view: &View) -> Markup {
    let mut sorted: Vec<Mapping> = view.mappings.clone();
    sorted.sort_by_key(|it| severity(it.state.level()));
    let before = view.page.saturating_sub(1).saturating_mul(MAPPINGS_MAX);
    let more = sorted.len() > before.saturating_add(MAPPINGS_MAX);
    let sorted: Vec<Mapping> = sorted.into_iter().skip(before).take(MAPPINGS_MAX).collect();
    let page = |number: usize| href(&["pipelines"], &[("page", &number.to_string())]);
    let earlier = (before > 0).then(|| page(view.page.saturating_sub(1)));
    let later = more.then(|| page(view.page.saturating_add(1)));
    html! {
        @if view.mappings.is_empty() {
            (message::empty("No mapping is known yet.", &html! {
                "Give a function of the template an event of type " code { "DynamoDB" }
                ", and start " (message::command("weir up")) " again."
            }))
        } @else {
            h2 id="why" { "Why did my function run, or not?" }
            ul.states aria-labelledby="why" {
                @for mapping in &sorted { (sentence(mapping)) }
            }
            (table::pager(earlier.as_deref(), later.as_deref()))
            h2 { "Map" }
            (map(&sorted))
            h2 { "Counts since " code { "weir up" } " began" }
            (counts(&sorted))
        }
        @if !view.functions_not_run.is_empty() {
            h2 { "Functions that do not run on this machine" }
            @let rows: Vec<Vec<Markup>> = view.functions_not_run.iter()
                .map(|it| vec![html! { (it.function) }, html! { (it.reason) }]).collect();
            (table::table("Functions that do not run on this machine", &["function", "reason"], &rows))
        }
    }
}

fn severity(level: Level) -> u8 {
    match level {
        Level::Bad => 0,
        Level::Wait => 1,
        Level::Good => 2,
        Level::Off => 3,
    }
}

/// Returns the state of a mapping in one sentence, and the next step.
fn sentence(mapping: &Mapping) -> Markup {
    let table = mapping.table.as_deref().unwrap_or_default();
    html! {
        li class=(mapping.state.level().class()) {
            span.word { (mapping.state.word()) } " "
            strong { (mapping.function) } " "
            span.absent { "(" (mapping.mapping) ", stream of " (mapping.table.as_deref().unwrap_or("an unknown table")) ")" }
            p {
                span data-figure=(name(mapping, "sentence")) { (mapping.sentence) }
                @if let Some(since) = mapping.blocked_since_ms { ", since " (time::millis(since)) " UTC" }
                "."
            }
            p.next { (next(mapping, table)) }
        }
    }
}

/// Returns the links to the next step for the state of a mapping.
fn next(mapping: &Mapping, table: &str) -> Markup {
    let stream = href(&["stream"], &[("table", table)]);
    html! {
        @match mapping.state {
            State::AllFiltered => {
                a href=(href(&["stream", "filter"], &[("table", table), ("mapping", &mapping.mapping)])) { "Test its filter" }
                " on the last records, or see " a href=(stream) { "the clause that dropped each record" } "."
            },
            State::Blocked => {
                @if let Some(record) = &mapping.blocked_at {
                    a href=(href(&["stream", record], &[])) { "The attempts of the blocked record" } ", or "
                }
                a href=(stream) { "the waiting records" } "."
            },
            State::Discarded => { a href=(stream) { "The discarded records, each with a button to redrive its batch" } "." },
            State::Ended | State::Disabled | State::NotRun | State::Starting => {},
            State::NoRecords | State::Waiting | State::CaughtUp if !table.is_empty() => { a href=(stream) { "Its records" } "." },
            State::NoRecords | State::Waiting | State::CaughtUp => {},
        }
    }
}

/// Returns the counts of the mappings as a table.
fn counts(mappings: &[Mapping]) -> Markup {
    let headings: Vec<&str> = ["mapping", "state"]
        .into_iter()
        .chain(figure_texts(&super::view::Figures::default()).map(|(figure, _)| figure))
        .chain(["discarded records go to"])
        .collect();
    let rows: Vec<Vec<Markup>> = mappings.iter().map(row).collect();
    table::table("Records of each mapping", &headings, &rows)
}

fn row(mapping: &Mapping) -> Vec<Markup> {
    let level = mapping.state.level().class();
    let mut row =
        vec![html! { (mapping.mapping) }, html! { span class=(level) { (mapping.state.word()) } }];
    match &mapping.figures {
        Some(figures) => row.extend(figure_texts(figures).into_iter().map(|(figure, text)| {
            html! { span data-figure=(name(mapping, figure)) { (text) } }
        })),
        None => row.extend(std::iter::repeat_n(html! { "–" }, 8)),
    }
    row.push(match &mapping.failures_to {
        Some(target) => html! { (target.kind) " " (target.name) },
        None => html! { span.absent { "nowhere" } },
    });
    row
}

/// Returns the HTML for a store whose mappings no local `weir up` runs.
fn elsewhere(view: &View) -> Markup {
    let rows: Vec<Vec<Markup>> = view
        .streams
        .iter()
        .map(|stream| {
            let records = href(&["stream"], &[("table", &stream.table)]);
            vec![
                html! { (stream.table) },
                html! { a href=(records) { "records" } },
                html! { code { (stream.arn) } },
            ]
        })
        .collect();
    html! {
        (message::note("No `weir up` on this machine reads these streams, so this page cannot show which functions read them, what their filters drop, or where a batch fails."))
        ul {
            li { "To run the functions here: start " (message::command("weir up")) " in the folder of the template, or "
                (message::command("weir up --store aws --region REGION")) " for tables on AWS, then reload this page." }
            li { "For functions on AWS: CloudWatch has " code { "IteratorAge" } " and " code { "FilteredEventCount" }
                " of each mapping, and " (message::command("aws lambda list-event-source-mappings")) " its last result." }
        }
        @if rows.is_empty() {
            (message::empty("No table of this store has a stream.", &html! {
                "Add a " code { "StreamSpecification" } " to a table."
            }))
        } @else {
            (table::table("Streams of this store", &["table", "records", "ARN"], &rows))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::mappings;
    use super::super::status::Status;
    use super::*;

    fn view(status: &serde_json::Value) -> View {
        let status: Status = serde_json::from_value(status.clone()).unwrap();
        let mappings = mappings(&status, &[], &crate::rates::PerSecond::new());
        View { runs: true, page: 1, mappings, ..View::default() }
    }

    /// Goal: the page shows each state, escapes names, and links to the tester of a filter that
    /// drops all records.
    #[test]
    fn the_page_answers_why_a_function_did_not_run() {
        let view = view(&json!({
            "mappings": [
                {"mapping": "A", "function": "F<x>", "table": "t&1", "described": true,
                 "totals": {"read": 5, "filtered": 5}, "failures_to": {"kind": "bucket", "name": "b"}},
                {"mapping": "B", "function": "G", "table": "t", "described": true,
                 "shards": [{"id": "s", "failed_attempts": 3, "waiting": 2}]},
            ],
            "disabled": [{"mapping": "C", "function": "H", "table": "t"}],
            "not_run": [{"mapping": "D", "function": "I", "reason": "only Rust"}],
        }));
        let html = html(&view).into_string();
        for part in [
            "its filter dropped all 5 records that it read",
            "blocked in s after 3 failed attempts; 2 records wait",
            "disabled in the template",
            "does not run here: only Rust",
            "F&lt;x&gt;",
            "/stream/filter?table=t%261&amp;mapping=A",
            "bucket b",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(
            html.find("blocked in s").unwrap() < html.find("its filter").unwrap(),
            "worst first"
        );
        assert!(!html.contains("F<x>") && !html.contains("style="));
    }

    #[test]
    fn many_mappings_stay_below_the_limit() {
        let mapping = |number: usize| {
            json!({"mapping": format!("Mapping{number}{}", "x".repeat(60)), "function": "F".repeat(64),
                   "table": "t".repeat(100), "described": true, "totals": {"read": 99_999_999}})
        };
        let mappings: Vec<_> = (0..200).map(mapping).collect();
        let html = html(&view(&json!({ "mappings": mappings }))).into_string();
        assert!(html.len() < 60 * 1024, "{}", html.len());
        assert!(html.contains("/pipelines?page=2") && !html.contains("rel=\"prev\""));
    }

    #[test]
    fn a_store_without_weir_up_says_how_to_know_more() {
        let html = html(&View::default()).into_string();
        assert!(html.contains("cannot show") && html.contains("weir up --store aws"), "{html}");
    }
}
