//! The HTML of the page of a stream. This module performs no I/O.

use maud::{Markup, html};
use serde_json::Value;

use super::view::{Mapping, Row, View};
use crate::context::Writes;
use crate::pages::pipelines::State;
use crate::parts::{cell, form, message, table, time};
use crate::query::href;

/// Returns the HTML of the page Stream, without its frame.
pub(crate) fn html(view: &View, writes: Writes<'_>) -> Markup {
    html! {
        h1 { "Stream" }
        (search(view))
        p { a href=(href(&["stream", "filter"], &[("table", view.table.as_deref().unwrap_or_default())])) { "Test a filter pattern" } " on the last 100 records of a table." }
        @if !view.knows_verdicts {
            (message::note("No `weir up` on this machine reads these streams, so this page cannot show the verdicts of mappings; on AWS, CloudWatch has the logs of the functions."))
        }
        @if view.records.is_empty() { (nothing(view)) } @else { (records(view, writes)) }
    }
}

/// Returns the search form.
fn search(view: &View) -> Markup {
    let mut options = vec![("", "all tables")];
    options.extend(view.tables.iter().map(|table| (table.as_str(), table.as_str())));
    let table = view.table.as_deref().unwrap_or_default();
    let limit = view.limit.to_string();
    html! {
        form method="get" action="/stream" role="search" {
            (form::choice("table", "table", "Table", table, &options))
            (form::field("key", "key", "Key of an item", view.key.as_deref().unwrap_or_default(), r#"{"id":"a"}"#))
            (form::choice("limit", "limit", "Records", &limit, &[("25", "25"), ("50", "50"), ("100", "100")]))
            button type="submit" { "Show" }
        }
    }
}

/// Returns the message of an empty list.
fn nothing(view: &View) -> Markup {
    let read = view.records_read;
    html! {
        @match &view.key {
            Some(key) => (message::empty(
                &format!("None of the {read} records that were read belongs to the item {key}."),
                &html! { "Check the names and types of the key attributes. " (message::command("weir streams explain --table TABLE --key KEY")) " searches all 24 hours." },
            )),
            None => (message::empty("No record was written in the last 24 hours.", &html! {
                "Write an item to a table with a stream."
            })),
        }
    }
}

/// Returns the records, newest first.
fn records(view: &View, writes: Writes<'_>) -> Markup {
    let all = view.records.iter().map(|row| vec![record(row, writes, &view.address)]);
    let mut rows: Vec<Vec<Markup>> = all.collect();
    let more = table::fit(&mut rows);
    html! {
        p.note {
            (view.records.len()) " of " (view.records_read) " records that were read"
            @if let Some(since) = view.since_s { ", all since " (time::seconds(since)) " UTC" }
            ", newest first. "
            a href=(view.address) data-figure="new-records" { "Read again" }
        }
        @if view.is_cut {
            (message::note("The stream has more records than this page reads, so newer records may exist: choose a table, or use `weir streams tail`."))
        }
        ol.records { @for row in &rows { @for cell in row { (cell) } } }
        @if more > 0 {
            (message::note(&format!("{more} older records do not fit on this page; the JSON of this page has them")))
        }
    }
}

fn record(row: &Row, writes: Writes<'_>, back: &str) -> Markup {
    html! {
        li {
            p {
                a.sequence href=(href(&["stream", &row.sequence], &[("table", &row.table), ("shard", &row.shard)])) { (row.sequence) }
                " " strong { (row.event_name) } " "
                @if row.by_ttl { "by TTL " }
                @if let Some(at) = row.at_s { (time::seconds(at)) " " }
                (row.table) " " (key(&row.keys))
            }
            @if row.mappings.is_empty() { p.absent { "No mapping in the journal reads this record." } }
            ul.verdicts { @for mapping in &row.mappings { (verdict(mapping, writes, back)) } }
        }
    }
}

/// Returns the attributes of a key.
pub(crate) fn key(keys: &Value) -> Markup {
    html! {
        span.key {
            @for (name, value) in keys.as_object().into_iter().flatten() {
                span { (name) " = " (cell::typed(value, None)) } " "
            }
        }
    }
}

/// Returns the CSS class for the state of a record. The page always shows the state as a word too.
pub(crate) fn class(state: &str) -> &'static str {
    match state {
        "delivered" | "redriven" => "good",
        "filtered out" => "off",
        "discarded" | "end unknown" => "bad",
        blocked if blocked == State::Blocked.word() => State::Blocked.level().class(),
        _ => "wait",
    }
}

fn verdict(mapping: &Mapping, writes: Writes<'_>, back: &str) -> Markup {
    html! {
        li {
            span class=(format!("outcome {}", class(mapping.state))) { (mapping.state) } " "
            strong { (mapping.function) }
            @if !mapping.detail.is_empty() { ": " (cell::reason(&mapping.detail)) }
            @if mapping.attempts > 0 {
                span.absent {
                    @if mapping.detail.is_empty() { ": " } @else { "; " }
                    (client::output::counted(mapping.attempts, "attempt", "attempts"))
                    @if let Some(last) = &mapping.last_attempt { ", last: " (cell::cut(last, None)) }
                }
            }
            " "
            @if let Some(object) = &mapping.redrive {
                (redrive(writes, back, object, &mapping.function, mapping.redrive_records))
            }
        }
    }
}

/// Returns the button that redrives a failure object, with its consequence.
pub(crate) fn redrive(
    writes: Writes<'_>,
    back: &str,
    object: &str,
    function: &str,
    records: usize,
) -> Markup {
    let records = match records {
        0 => "the records of its discarded batch".to_owned(),
        1 => "this record".to_owned(),
        records => format!("the {records} records of its discarded batch"),
    };
    html! {
        (form::button(writes, "/stream/redrive", back, "Redrive", &[("object", object)]))
        " " span.absent { "invokes " (function) " again with " (records) ", so " (function) " must be idempotent" }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::token::Token;

    fn view(records: Vec<Row>) -> View {
        View {
            schema: "",
            address: "/stream?limit=25".to_owned(),
            tables: vec!["t".to_owned()],
            table: None,
            key: None,
            limit: 25,
            knows_verdicts: true,
            records,
            records_read: 7,
            since_s: Some(0),
            is_cut: false,
        }
    }

    fn row(outcome: &str, redrive: Option<&str>) -> Row {
        Row {
            sequence: "41".to_owned(),
            table: "t".to_owned(),
            shard: "s".to_owned(),
            at_s: Some(0),
            event_name: "REMOVE".to_owned(),
            by_ttl: true,
            keys: json!({"id": {"S": "<a>"}}),
            mappings: vec![Mapping {
                mapping: "m".to_owned(),
                function: "F".to_owned(),
                outcome: outcome.to_owned(),
                state: if outcome == "in progress" { "blocked" } else { "discarded" },
                detail: "pattern 1 of 1 does not match: `eventName` wants \"X\"".to_owned(),
                attempts: 2,
                last_attempt: Some("ok 7 ms".to_owned()),
                redrive: redrive.map(str::to_owned),
                redrive_records: 3,
            }],
        }
    }

    #[test]
    fn a_record_has_its_verdicts_and_a_button_to_redrive() {
        let token = Token::random().unwrap();
        let text = html(&view(vec![row("discarded", Some("aws/x"))]), Writes::Allowed(&token));
        let text = text.into_string();
        for part in [
            "/stream/41?table=t&amp;shard=s",
            "invokes F again with the 3 records of its discarded batch, so F must be idempotent",
            "by TTL",
            "&lt;a&gt;",
            "wants &quot;X&quot;",
            "2 attempts, last: ok 7 ms",
            "name=\"object\" value=\"aws/x\"",
            token.as_str(),
            "1 of 7 records",
            "name=\"back\" value=\"/stream?limit=25\"",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text =
            html(&view(vec![row("discarded", Some("aws/x"))]), Writes::Refused).into_string();
        assert!(text.contains("disabled") && !text.contains("name=\"token\""), "{text}");
        let text = html(&view(vec![row("delivered", None)]), Writes::Allowed(&token)).into_string();
        assert!(!text.contains("Redrive") && !text.contains("idempotent"), "{text}");
    }

    #[test]
    fn a_record_of_a_failing_batch_has_the_word_and_colour_of_pipelines() {
        let text = html(&view(vec![row("in progress", None)]), Writes::Refused).into_string();
        assert!(text.contains("<span class=\"outcome bad\">blocked</span>"), "{text}");
        let classes = ["delivered", "filtered out", "discarded", "in progress"].map(class);
        assert_eq!(classes, ["good", "off", "bad", "wait"]);
    }

    /// Goal: a page with the longest keys and reasons stays below 60 KB.
    #[test]
    fn many_records_stay_below_the_limit() {
        let mut long = row("in progress", Some("aws/x"));
        long.keys = json!({"p": {"S": "&".repeat(2_000)}, "s": {"S": "&".repeat(900)}});
        long.mappings = vec![long.mappings.remove(0); 5];
        let text = html(&view(vec![long; 100]), Writes::Refused).into_string();
        assert!(text.len() < 58 * 1024, "{}", text.len());
        assert!(text.contains("older records do not fit"), "{text}");
    }

    #[test]
    fn an_empty_list_says_how_to_fill_it() {
        let text = html(&view(Vec::new()), Writes::Refused).into_string();
        assert!(text.contains("Write an item"), "{text}");
        let searched = View { key: Some("{\"id\":1}".to_owned()), ..view(Vec::new()) };
        let text = html(&searched, Writes::Refused).into_string();
        assert!(text.contains("None of the 7 records that were read"), "{text}");
    }
}
