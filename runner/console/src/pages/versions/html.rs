//! The HTML of the page of versions. This module performs no I/O.

use maud::{Markup, html};
use serde_json::Value;

use super::VERSIONS;
use super::view::{Difference, Version, View};
use crate::parts::{cell, form, message, table, time};
use crate::query::href;

/// The maximum number of tables that the form offers. A query may name any table.
const TABLES_MAX: usize = 100;
/// The maximum length in bytes of a key whose rows have links. Each link contains the key.
const LINKED_KEY_MAX: usize = 200;

/// Returns the HTML of the page Versions, without its frame.
pub(crate) fn html(view: &View) -> Markup {
    let names: Vec<(&str, &str)> =
        view.tables.iter().take(TABLES_MAX).map(|name| (name.as_str(), name.as_str())).collect();
    let chosen = view.table.as_deref().unwrap_or_default();
    html! {
        h1 { "Versions" }
        @if names.is_empty() && view.table.is_none() {
            (message::empty(
                "No table of this store has versions.",
                &html! { (message::command("weir init versions DIRECTORY")) " writes a project whose function stores versions." },
            ))
        } @else {
            form method="get" action="/versions" {
                (form::choice("table", "table", "Table", chosen, &names))
                (form::field("key", "key", "Key of the item", view.key.as_deref().unwrap_or_default(), "{\"id\":1}"))
                button type="submit" { "Show the history" }
            }
            @if let Some(problem) = &view.problem { p.error role="alert" { (problem) } }
            (items(view))
            @if let Some(difference) = &view.difference { (changes(difference)) }
            (history(view))
        }
    }
}

/// Returns links to the items that the page offers: up to ten that have a history.
fn items(view: &View) -> Markup {
    let table = view.table.as_deref().unwrap_or_default();
    html! {
        @if view.key.is_none() && !view.items.is_empty() {
            h2 { "Examples of items with a history" }
            ul {
                @for item in &view.items {
                    li { a href=(href(&["versions"], &[("table", table), ("key", item)])) { (cell::cut(item, None)) } }
                }
            }
        } @else if view.key.is_none() && view.table.is_some() && view.problem.is_none() {
            (message::note("no history was found within 0.5 s: enter a key"))
        }
    }
}

/// Returns the address of the item's history, with additional query fields.
fn at(view: &View, fields: &[(&str, &str)]) -> String {
    let item = [
        ("table", view.table.as_deref().unwrap_or_default()),
        ("key", view.key.as_deref().unwrap_or_default()),
    ];
    href(&["versions"], &[&item, fields].concat())
}

fn history(view: &View) -> Markup {
    if view.versions.is_empty() {
        return html! {};
    }
    let rows: Vec<Vec<Markup>> = view.versions.iter().map(|version| row(view, version)).collect();
    let page = |skip: usize| at(view, &[("skip", &skip.to_string())]);
    let before = (view.skipped > 0).then(|| match view.skipped.saturating_sub(VERSIONS) {
        0 => at(view, &[]),
        skip => page(skip),
    });
    let after = (view.left_out > 0).then(|| page(view.skipped + view.versions.len()));
    html! {
        h2 { "History" }
        @for line in &view.missing { (message::warning(line)) }
        (table::table(
            "Versions, newest first",
            &["version", "event", "time (UTC)", "bytes", "item", "difference"],
            &rows,
        ))
        (table::pager(before.as_deref(), after.as_deref()))
        p { a href=(at(view, &[]).replacen("/versions", "/versions.json", 1)) { "This history as JSON" } }
        form method="get" action="/versions" {
            input type="hidden" name="table" value=(view.table.as_deref().unwrap_or_default());
            input type="hidden" name="key" value=(view.key.as_deref().unwrap_or_default());
            (form::field("from", "from", "From version", "", "1"))
            (form::field("to", "to", "To version", "", "the current one"))
            button type="submit" { "Compare" }
        }
    }
}

fn row(view: &View, version: &Version) -> Vec<Markup> {
    let number = version.number.to_string();
    let before = version.number.saturating_sub(1).to_string();
    vec![
        html! { (number) },
        html! { (version.event) @if version.by_ttl { " by TTL" } },
        html! { @match version.at { Some(at) => (time::seconds(at)), None => "unknown" } },
        html! { (version.bytes) },
        html! {
            @match &version.item {
                Some(item) => code { (cell::cut(&item.to_string(), None)) },
                None => span.absent { "deleted" },
            }
        },
        html! {
            @if version.number > 1 && view.key.as_ref().is_some_and(|key| key.len() <= LINKED_KEY_MAX) {
                a href=(at(view, &[("from", &before), ("to", &number)])) { "with " (before) }
            }
        },
    ]
}

fn changes(difference: &Difference) -> Markup {
    let value = |value: &Option<Value>| match value {
        Some(value) => cell::typed(value, None),
        None => html! { span.absent { "–" } },
    };
    let rows: Vec<Vec<Markup>> = difference
        .attributes
        .iter()
        .map(|attribute| {
            vec![
                html! { (attribute.path) },
                html! { (attribute.change) },
                value(&attribute.from),
                value(&attribute.to),
            ]
        })
        .collect();
    let caption = format!("Version {} compared with version {}", difference.from, difference.to);
    let headings = ["attribute", "change", "before", "after"];
    html! {
        h2 { "Difference" }
        @if rows.is_empty() {
            p { (caption) ": no attribute differs." }
        } @else {
            (table::table(&caption, &headings, &rows))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::view::Attribute;
    use super::*;

    #[test]
    fn a_history_and_a_difference_are_shown() {
        let version = |number, item| Version {
            number,
            event: "MODIFY",
            at: Some(0),
            by_ttl: number == 3,
            bytes: 9,
            item,
        };
        let view = View {
            schema: "weir.console.versions/v1",
            tables: vec!["movies".to_owned()],
            table: Some("movies".to_owned()),
            key: Some("{\"id\":\"<\"}".to_owned()),
            versions: vec![version(3, None), version(2, Some(json!({"v": {"S": "<b>"}})))],
            left_out: 1,
            missing: vec!["between versions 1 and 2 a change is missing".to_owned()],
            difference: Some(Difference {
                from: 1,
                to: 2,
                attributes: vec![Attribute {
                    path: "v".to_owned(),
                    change: "added",
                    from: None,
                    to: Some(json!({"S": "<b>"})),
                }],
            }),
            ..View::default()
        };
        let page = html(&view).into_string();
        for part in [
            "value=\"{&quot;id&quot;:&quot;&lt;&quot;}\"",
            "MODIFY by TTL",
            "<span class=\"absent\">deleted</span>",
            "Version 1 compared with version 2",
            "a change is missing",
            "&amp;from=2&amp;to=3",
            "&amp;skip=2\" rel=\"next\"",
            "&lt;b&gt;",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        assert!(!page.contains("<b>"), "{page}");
    }

    #[test]
    fn an_empty_page_says_what_to_do() {
        let page = html(&View::default()).into_string();
        assert!(page.contains("weir init versions"), "{page}");
        let view = View {
            tables: vec!["a".to_owned(), "b".to_owned()],
            table: Some("a".to_owned()),
            items: vec!["{\"id\":{\"N\":\"1\"}}".to_owned()],
            ..View::default()
        };
        let page = html(&view).into_string();
        assert!(page.contains("/versions?table=a&amp;key=%7B%22id"), "{page}");
        let page = html(&View { items: Vec::new(), problem: Some("no table".to_owned()), ..view });
        assert!(page.into_string().contains("role=\"alert\">no table"));
    }
}
