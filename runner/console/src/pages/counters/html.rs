//! The HTML of the page of counters. This module performs no I/O.

use maud::{Markup, html};

use super::view::{Counter, View};
use crate::parts::{cell, form, message, table};
use crate::query::href;

/// Returns the HTML of the page Counters, without its frame.
pub(crate) fn html(view: &View) -> Markup {
    let rows: Vec<Vec<Markup>> = view.counters.iter().map(row).collect();
    let next = view.next.as_deref().map(|after| href(&["counters"], &[("after", after)]));
    let headings = ["counter", "total", "sum of the slots", "difference", "slots"];
    html! {
        h1 { "Counters" }
        form method="get" action="/counters" {
            (form::field("counter", "counter", "Counter", view.counter.as_deref().unwrap_or_default(), "poll-1"))
            button type="submit" { "Show" }
            @if view.counter.is_some() { a href="/counters" { "All counters" } }
        }
        @if let Some(problem) = &view.problem {
            (message::empty(problem, &html! { (message::command("weir init counters DIRECTORY")) " writes a project that counts." }))
        } @else if rows.is_empty() {
            (message::empty(
                "No counter has a total yet.",
                &html! { "Add to a slot such as " code { "poll-1#0" } " of " code { (view.slots_table) } ": " (message::command("weir counters generate --votes 100")) },
            ))
        } @else {
            (table::table("Totals and the sums of their slots", &headings, &rows))
            p.note { "The sum includes every vote that was acknowledged before the read. The function updates the total within seconds. The reconciliation repairs a difference that remains." }
        }
        (table::pager(None, next.as_deref()))
        p.note { "Slots: " code { (view.slots_table) } ", up to " (view.slot_count) " for each counter. Totals: " code { (view.totals_table) } "." }
    }
}

fn row(counter: &Counter) -> Vec<Markup> {
    let name = html! {
        // A long name gets no link: a name may have 2 KB, and a page may have 60 KB.
        @if counter.name.len() <= cell::CHARACTERS_MAX {
            a href=(href(&["counters"], &[("counter", &counter.name)])) { (counter.name) }
        } @else {
            (cell::cut(&counter.name, None))
        }
    };
    if let Some(problem) = &counter.problem {
        let absent = || html! { "–" };
        return vec![name, html! { span.bad { (problem) } }, absent(), absent(), absent()];
    }
    vec![
        name,
        html! {
            @match &counter.total {
                Some(total) => span title=(counter.as_of.as_deref().unwrap_or_default()) { (total) },
                None => span.absent { "no total" },
            }
            @if let Some(otherwise) = &counter.otherwise {
                " " span.bad { "another program set the total to " (otherwise) }
            }
        },
        html! { (counter.sum.as_deref().unwrap_or("–")) },
        html! {
            @match &counter.difference {
                Some(difference) => span.bad { "differs by " (difference) },
                None => span.good { "equal" },
            }
        },
        html! { (counter.slots) },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_marked() {
        let counter = |name: &str, total: Option<&str>, difference: Option<&str>| Counter {
            name: name.to_owned(),
            total: total.map(str::to_owned),
            sum: Some("7".to_owned()),
            difference: difference.map(str::to_owned),
            slots: 2,
            otherwise: difference.map(|_| "`9`".to_owned()),
            ..Counter::default()
        };
        let view = View {
            slots_table: "votes".to_owned(),
            totals_table: "totals".to_owned(),
            slot_count: 20,
            counters: vec![
                counter("a<b>", Some("5"), Some("2")),
                counter("c", Some("7"), None),
                Counter {
                    name: "d".to_owned(),
                    problem: Some("not a counter".to_owned()),
                    ..Counter::default()
                },
            ],
            next: Some("d&e".to_owned()),
            ..View::default()
        };
        let page = html(&view).into_string();
        for part in [
            "<span class=\"bad\">differs by 2</span>",
            "<span class=\"good\">equal</span>",
            "another program set the total to `9`",
            "a&lt;b&gt;",
            "<span class=\"bad\">not a counter</span>",
            "href=\"/counters?after=d%26e\"",
            "up to 20",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        let page = html(&View { counters: Vec::new(), ..view.clone() }).into_string();
        assert!(page.contains("weir counters generate"), "{page}");
        let view = View { problem: Some("no table".to_owned()), ..view };
        assert!(html(&view).into_string().contains("no table"));
    }
}
