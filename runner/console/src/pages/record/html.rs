//! The HTML of the page of a record. This module performs no I/O.

use maud::{Markup, html};
use serde_json::Value;

use super::view::{Attempt, Mapping, View};
use crate::context::Writes;
use crate::pages::stream::{class, key, redrive};
use crate::parts::{cell, message, table, time};
use crate::query::href;

/// The maximum number of attempts that the page shows for a mapping: the last attempts. The JSON
/// version has all attempts.
const ATTEMPTS_MAX: usize = 20;

/// The maximum number of bytes of the record that the page shows. The JSON version has the complete
/// record.
const RECORD_BYTES_MAX: usize = 12 * 1024;

/// The maximum number of bytes of log lines on the page. For a log that does not fit, the page
/// shows the command that prints it.
const LOG_BYTES_MAX: usize = 16 * 1024;

/// Returns the HTML of the page of a record, without its frame.
pub(crate) fn html(view: &View, writes: Writes<'_>) -> Markup {
    let table = view.table.as_deref().unwrap_or_default();
    let shard = view.explanation.get("shard").and_then(Value::as_str).unwrap_or_default();
    let back = href(&["stream", &view.sequence], &[("table", table), ("shard", shard)]);
    let mut left = LOG_BYTES_MAX;
    html! {
        h1 { "Record " (view.sequence) }
        (summary(view, table))
        @if let Some(why) = &view.hindered { (message::warning(why)) }
        @if view.mappings.is_empty() {
            (message::note("No mapping in the journal reads this table's stream."))
        }
        @for mapping in &view.mappings { (verdict(mapping, writes, &back, &mut left)) }
        @if let Some(record) = &view.record { (event(record)) }
        details id="terminal" {
            summary { "As " code { "weir streams explain" } " shows it" }
            pre { (view.text) }
        }
    }
}

fn summary(view: &View, table: &str) -> Markup {
    let event = view.explanation.get("event_name").and_then(Value::as_str).unwrap_or_default();
    let shard = view.explanation.get("shard").and_then(Value::as_str).unwrap_or_default();
    let keys = view.record.as_ref().and_then(|record| record.pointer("/dynamodb/Keys"));
    html! {
        p {
            strong { (event) } " "
            @if !table.is_empty() {
                "of table " a href=(href(&["stream"], &[("table", table)])) { (table) } " "
            }
            @if let Some(keys) = keys { (key(keys)) }
            @if !shard.is_empty() { " in shard " code { (shard) } }
        }
        @if let Some(why) = &view.absence { (message::note(&format!("From the journal only: {why}."))) }
    }
}

fn verdict(mapping: &Mapping, writes: Writes<'_>, back: &str, left: &mut usize) -> Markup {
    let skipped = mapping.attempts.len().saturating_sub(ATTEMPTS_MAX);
    let shown = mapping.attempts.get(skipped..).unwrap_or_default();
    let rows: Vec<Vec<Markup>> = shown.iter().map(row).collect();
    html! {
        section aria-label=(mapping.mapping) {
            h2 { (mapping.function) " " span class=(class(mapping.state)) { (mapping.state) } }
            p.absent { "mapping " (mapping.mapping) }
            @if !mapping.detail.is_empty() { p { (cell::marked(&mapping.detail)) } }
            @if mapping.filter.len() > 1 { ul { @for line in &mapping.filter { li { (cell::marked(line)) } } } }
            (patterns(&mapping.patterns))
            @if let Some(object) = &mapping.redrive {
                (redrive(writes, back, object, &mapping.function, mapping.redrive_records))
            }
            @if !rows.is_empty() {
                @if skipped > 0 { (message::note(&format!("{skipped} earlier attempts are in the JSON of this page"))) }
                (table::table(
                    &format!("Attempts of {}", mapping.mapping),
                    &["batch", "attempt", "begun (UTC)", "records", "result"],
                    &rows,
                ))
                @for attempt in shown { (log(mapping, attempt, left)) }
            }
            @if mapping.missed_reports > 0 {
                (message::note(&format!("the journal lacks {} reports of this mapping", mapping.missed_reports)))
            }
        }
    }
}

/// Returns the patterns of a filter, with the numbers by which the reasons name them.
fn patterns(patterns: &[String]) -> Markup {
    html! {
        @for (number, pattern) in (1..).zip(patterns) {
            p.absent { "pattern " (number) " of " (patterns.len()) ": " code { (cell::cut(pattern, None)) } }
        }
    }
}

fn row(attempt: &Attempt) -> Vec<Markup> {
    vec![
        html! { (attempt.run) "-" (attempt.batch) },
        html! { (attempt.attempt) },
        time::millis(attempt.at_ms),
        html! { (attempt.records) @if !attempt.has_record { " (another part)" } },
        html! { (attempt.outcome) },
    ]
}

/// Returns the log of an attempt, or the command that shows it.
fn log(mapping: &Mapping, attempt: &Attempt, left: &mut usize) -> Markup {
    let bytes: usize = attempt.log.iter().map(|line| line.len() + 1).sum();
    let fits = bytes <= *left;
    if fits {
        *left -= bytes;
    }
    let name = format!("{}-{}", attempt.run, attempt.batch);
    html! {
        @match &attempt.request {
            Some(_) if !attempt.log.is_empty() && fits => details id=(format!("log-{}-{name}", mapping.mapping)) {
                summary { "Log of attempt " (name) }
                pre { @for line in &attempt.log { (line) "\n" } }
            },
            Some(request) => p.note { "Log of attempt " (name) ": " (message::command(&format!("weir logs {} --request {request}", mapping.function))) },
            None => {},
        }
    }
}

/// Returns the HTML of the record as the function receives it.
fn event(record: &Value) -> Markup {
    let text = serde_json::to_string_pretty(record).unwrap_or_default();
    let end = (0..=RECORD_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    let shown = end.and_then(|end| text.get(..end)).unwrap_or_default();
    html! {
        details id="event" {
            summary { "The record as a function receives it" }
            pre { (shown) @if shown.len() < text.len() { "\n… (" (text.len()) " bytes; the JSON of this page has the complete record)" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_page_stays_below_the_limit_and_escapes() {
        let attempt = |batch: u64| Attempt {
            run: 1,
            batch,
            attempt: 1,
            at_ms: 0,
            records: 2,
            has_record: batch != 2,
            outcome: "error after 7 ms: <boom>".to_owned(),
            request: Some(format!("request-{batch}")),
            log: vec!["<line>".to_owned(), "x".repeat(6_000)],
        };
        let mapping = Mapping {
            mapping: "m".to_owned(),
            function: "F".to_owned(),
            outcome: "discarded".to_owned(),
            state: "discarded",
            detail: "RetryAttemptsExhausted".to_owned(),
            filter: Vec::new(),
            patterns: vec!["<{}>".to_owned(), "x".repeat(4_096)],
            redrive: Some("aws/x".to_owned()),
            redrive_records: 1,
            attempts: (0..100).map(attempt).collect(),
            missed_reports: 3,
        };
        let view = View {
            schema: "",
            sequence: "41".to_owned(),
            table: Some("t".to_owned()),
            explanation: json!({"event_name": "INSERT", "shard": "s"}),
            text: "record 41".to_owned(),
            record: Some(json!({"dynamodb": {"NewImage": {"a": {"S": "ü".repeat(200_000)}}}})),
            absence: None,
            hindered: None,
            mappings: vec![mapping],
        };
        let text = html(&view, Writes::Refused).into_string();
        assert!(text.len() < 60 * 1024, "{}", text.len());
        for part in [
            "80 earlier attempts",
            "pattern 1 of 2: <code>&lt;{}&gt;</code>",
            "invokes F again with this record, so F must be idempotent",
            "&lt;boom&gt;",
            "&lt;line&gt;",
            "weir logs F --request request-99",
            "lacks 3 reports",
            "the JSON of this page has the complete record",
        ] {
            assert!(text.contains(part), "{part}");
        }
    }
}
