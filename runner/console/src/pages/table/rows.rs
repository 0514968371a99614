//! The table of a page's items, limited to a number of bytes.
//!
//! If the items do not fit, cells are truncated to fewer characters, then columns and finally items
//! are omitted. The links to the other columns and to each shown item remain.

use maud::{Markup, html};
use model::{AttributeValue, Item};

use super::columns::{COLUMNS_MAX, columns};
use super::form::Form;
use super::view::Items;
use crate::item_json::ItemJson;
use crate::parts::message;
use crate::parts::preview::{Preview, short};
use crate::query::href;
use crate::table_shape::TableShape;

/// The maximum number of characters of a heading.
const NAME_CHARACTERS_MAX: usize = 60;
/// The pairs of a number of columns and a number of characters for each cell, from the largest
/// table to the smallest.
const SIZES: [(usize, usize); 6] =
    [(COLUMNS_MAX, 200), (COLUMNS_MAX, 80), (COLUMNS_MAX, 32), (20, 32), (10, 24), (4, 24)];

/// Returns the table of a page's items, with at most about `bytes_max` bytes.
pub(super) fn rows(table: &TableShape, form: &Form, items: &Items, bytes_max: usize) -> Markup {
    let mut keys = vec![&table.keys];
    keys.extend(table.index(&form.index).map(|index| &index.keys));
    let all = columns(&items.items, &keys);
    let first = form.column.parse::<usize>().unwrap_or(0).min(all.len().saturating_sub(1));
    let mut fitting = None;
    for (count, characters) in SIZES {
        let shown: Vec<&str> = all.iter().skip(first).take(count).copied().collect();
        let head = head(&shown, table);
        let left = bytes_max.saturating_sub(head.0.len());
        let body = body(table, &items.items, &shown, characters, left);
        let is_whole = body.len() == items.items.len();
        fitting = Some((shown.len(), head, body));
        if is_whole {
            break;
        }
    }
    let Some((shown, head, body)) = fitting else { return html! {} };
    html! {
        (pager(table, form, all.len(), first, shown))
        div.scroll tabindex="0" role="region" aria-label="Items" {
            table { (head) tbody { @for row in &body { (row) } } }
        }
        @if body.len() < items.items.len() {
            @let rest = items.items.len() - body.len();
            (message::note(&format!(
                "{rest} more items do not fit on this page. Choose a smaller limit, or export the items."
            )))
        }
    }
}

/// Returns the links to the columns before and after the shown columns.
fn pager(table: &TableShape, form: &Form, all: usize, first: usize, shown: usize) -> Markup {
    if shown == all {
        return html! {};
    }
    let path = ["tables", table.name.as_str()];
    let next = first + shown;
    html! {
        nav.pager aria-label="Columns" {
            span { "Columns " (first + 1) " to " (next) " of " (all) }
            @if first > 0 {
                a href=(form.with_column(first.saturating_sub(shown)).href(&path)) { "Columns before" }
            }
            @if next < all { a href=(form.with_column(next).href(&path)) { "Columns after" } }
        }
    }
}

fn head(shown: &[&str], table: &TableShape) -> Markup {
    let is_key = |name: &str| table.keys.all().any(|key| key.name == name);
    html! {
        thead {
            tr {
                @for name in shown {
                    th scope="col" { (short(name, NAME_CHARACTERS_MAX)) @if is_key(name) { " (key)" } }
                }
            }
        }
    }
}

/// Returns the rows of the first items, as many as fit into `bytes_max` bytes.
fn body(
    table: &TableShape,
    items: &[ItemJson],
    shown: &[&str],
    characters: usize,
    bytes_max: usize,
) -> Vec<Markup> {
    let mut left = bytes_max;
    let built = items.iter().map(|item| row(table, &item.0, shown, characters));
    let fitting = built.map_while(|row| {
        left = left.checked_sub(row.0.len())?;
        Some(row)
    });
    fitting.collect()
}

fn row(table: &TableShape, item: &Item, shown: &[&str], characters: usize) -> Markup {
    let address = table
        .key_of(item)
        .map(|key| href(&["tables", &table.name, "item"], &[("key", &ItemJson(key).text())]));
    let address = address.as_deref();
    html! {
        tr {
            @for (position, name) in shown.iter().enumerate() {
                @match (item.get(*name), position) {
                    (Some(value), 0) => th scope="row" { (cell(value, characters, address, true)) },
                    (Some(value), _) => td { (cell(value, characters, address, false)) },
                    (None, 0) => th scope="row" { @if let Some(address) = address { a href=(address) { "item" } } },
                    (None, _) => td {},
                }
            }
        }
    }
}

/// Returns a cell with the type and the value, which may be truncated. The first cell of a row
/// links to the item.
fn cell(
    value: &AttributeValue,
    characters: usize,
    address: Option<&str>,
    is_first: bool,
) -> Markup {
    let Preview { text, is_cut } = Preview::of(value, characters);
    html! {
        i { (value.attribute_type().descriptor()) } " "
        @match address {
            Some(address) if is_first => a href=(address) { (text) @if is_cut { "…" } @if text.is_empty() { "item" } },
            Some(address) if is_cut => { (text) a href=(address) aria-label="Whole item" { "…" } },
            _ => { (text) @if is_cut { "…" } },
        }
    }
}
