//! The HTML of the page of the filter tester. This module performs no I/O.

use maud::{Markup, html};

use super::view::{Row, View};
use crate::pages::stream::key;
use crate::parts::{cell, form, message, table};
use crate::query::href;

/// Returns the HTML of the page Filter, without its frame.
pub(crate) fn html(view: &View) -> Markup {
    let table = view.table.as_deref().unwrap_or_default();
    let options: Vec<(&str, &str)> =
        view.tables.iter().map(|table| (table.as_str(), table.as_str())).collect();
    html! {
        h1 { "Test a filter" }
        p { "Runs a filter over the last 100 records of a table. Invokes no function and changes no data." }
        form method="get" action="/stream/filter" {
            (form::choice("table", "table", "Table", table, &options))
            div.field.wide {
                label for="pattern" { "Pattern, or a " code { "FilterCriteria" } " object" }
                textarea id="pattern" name="pattern" rows="5" spellcheck="false" {
                    (view.pattern.as_deref().unwrap_or_default())
                }
            }
            button type="submit" { "Run" }
        }
        @for remark in &view.remarks { (message::warning(remark)) }
        @if view.is_run { (result(view, table)) }
    }
}

fn result(view: &View, table: &str) -> Markup {
    let matching = view.records.iter().filter(|row| row.matches).count();
    let mut rows: Vec<Vec<Markup>> = view.records.iter().map(|it| row(it, table)).collect();
    let more = table::fit(&mut rows);
    html! {
        @if rows.is_empty() {
            (message::empty("The stream has no record of the last 24 hours.", &html! { "Write an item to the table." }))
        } @else {
            p role="status" { strong { (matching) " of " (view.records.len()) " records match." } }
            (table::table("Last records, newest first", &["record", "event", "key", "result", "clause"], &rows))
            @if more > 0 {
                (message::note(&format!("{more} older records do not fit on this page; the JSON of this page has them")))
            }
        }
    }
}

fn row(row: &Row, table: &str) -> Vec<Markup> {
    let (class, word) = if row.matches { ("good", "matches") } else { ("off", "filtered out") };
    let why = row.why.join("; ");
    vec![
        html! { a href=(href(&["stream", &row.sequence], &[("table", table)])) { (row.sequence) } },
        html! { (row.event_name) },
        key(&row.keys),
        html! { span class=(class) { (word) } },
        cell::reason(&why),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_record_has_its_clause() {
        let row = |matches, why: &str| Row {
            sequence: "41".to_owned(),
            event_name: "INSERT".to_owned(),
            keys: json!({"id": {"N": "7"}}),
            matches,
            why: vec![why.to_owned()],
        };
        let clause =
            "pattern 1 of 1 does not match: `eventName` wants \"REMOVE\", found \"INSERT\"";
        let view = View {
            tables: vec!["t".to_owned()],
            table: Some("t".to_owned()),
            pattern: Some("{\"a\": [\"</textarea>\"]}".to_owned()),
            is_run: true,
            records: vec![row(true, "pattern 1 of 1 matches"), row(false, clause)],
            ..View::default()
        };
        let text = html(&view).into_string();
        for part in [
            "1 of 2 records match",
            "wants &quot;REMOVE&quot;",
            "&lt;/textarea&gt;",
            "filtered out",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let mut long = row(false, &clause.repeat(9));
        long.keys = json!({"p": {"S": "&".repeat(2_000)}, "s": {"S": "&".repeat(900)}});
        let many = View { records: vec![long; 100], ..view };
        assert!(html(&many).into_string().len() < 60 * 1024);
    }
}
