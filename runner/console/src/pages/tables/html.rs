//! The HTML of the page of all tables.

use maud::{Markup, html};

use super::view::View;
use crate::parts::{keys, message, preview, table};
use crate::query::href;
use crate::table_shape::{Keys, TableShape};

/// The maximum number of indexes that the page names for a table. The table's own page names all.
const INDEXES_MAX: usize = 3;
/// The maximum number of characters of a name that are shown. A name can have 255 characters.
const NAME_CHARACTERS_MAX: usize = 48;

const HEADINGS: [&str; 7] =
    ["Table", "Key", "Indexes", "About items", "About bytes", "Stream", "TTL"];

/// Returns the HTML of the page Tables, without its frame.
pub(crate) fn html(view: &View) -> Markup {
    let rows: Vec<Vec<Markup>> = view.tables.iter().map(row).collect();
    let address = |after: &str| href(&["tables"], &[("after", after)]);
    let first = view.after.is_some().then(|| address(""));
    let next = view.next.as_deref().map(address);
    html! {
        h1 { "Tables" }
        @if rows.is_empty() && view.after.is_none() {
            (message::empty("The store has no table.", &html! {
                "A template creates tables when `weir up` starts; an application can create them at the store's endpoint."
            }))
        } @else {
            (table::table("Tables by name", &HEADINGS, &rows))
        }
        (table::pager(first.as_deref(), next.as_deref()))
    }
}

fn row(table: &TableShape) -> Vec<Markup> {
    let more = table.indexes.len().saturating_sub(INDEXES_MAX);
    vec![
        html! {
            a href=(href(&["tables", &table.name], &[])) { (short(&table.name)) }
            @if table.status != "ACTIVE" { " " span.wait { (table.status) } }
        },
        html! { (key_names(&table.keys)) },
        html! {
            @for (position, index) in table.indexes.iter().take(INDEXES_MAX).enumerate() {
                @if position > 0 { br; }
                (short(&index.name)) " (" (key_names(&index.keys)) ")"
                @if index.status != "ACTIVE" { " " span.wait { (index.status) } }
            }
            @if more > 0 { br; "and " (more) " more" }
        },
        html! { (table.about_items) },
        html! { (table.about_bytes) },
        html! { @match &table.stream { Some(kind) => (kind), None => span.absent { "none" } } },
        html! { @match &table.ttl { Some(name) => (short(name)), None => span.absent { "none" } } },
    ]
}

fn key_names(keys: &Keys) -> String {
    keys::names(keys, NAME_CHARACTERS_MAX)
}

fn short(name: &str) -> String {
    preview::short(name, NAME_CHARACTERS_MAX)
}
