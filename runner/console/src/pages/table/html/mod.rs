//! The HTML of the page of a table: facts, form, result and code. The module `rows` renders the
//! items.

use client::output::counted;
use maud::{Markup, html};
use model::AttributeType;

use super::form::{Form, LIMIT_DEFAULT};
use super::request::{FILTER_OPERATORS, Problem, SORT_OPERATORS};
use super::rows::rows;
use super::view::{Asked, Items, View};
use crate::parts::form::{choice, field};
use crate::parts::{keys, message, preview};
use crate::query::href;
use crate::table_shape::{Keys, TableShape};

/// The maximum size of the content in bytes. With the frame, the page stays below 60 KB.
const BYTES_MAX: usize = 54 * 1024;
/// The number of times that the frame contains the address of the page: once in each of its forms.
const FRAME_ADDRESSES: usize = 3;
/// The maximum total size of the four programs in bytes. Larger programs are only in the JSON
/// version.
const CODE_BYTES_MAX: usize = 14 * 1024;
/// The maximum number of characters of a name.
const NAME_CHARACTERS_MAX: usize = 60;

/// Returns the HTML of the page of a table, without its frame.
pub(crate) fn html(view: &View) -> Markup {
    let head = html! {
        h1 { "Table " (view.table.name) }
        (facts(view))
        (form(&view.form, &view.table))
        @if let Some(problem) = &view.problem { (wrong(problem)) }
    };
    let code = html! { @if let Some(asked) = &view.asked { (code(asked)) } };
    let address = view.form.href(&["tables", &view.table.name]);
    let left = BYTES_MAX.saturating_sub(FRAME_ADDRESSES * address.len());
    let left = left.saturating_sub(head.0.len() + code.0.len());
    html! {
        (head)
        @if let Some(items) = &view.result { (result(view, items, left)) }
        (code)
    }
}

fn short(name: &str) -> String {
    preview::short(name, NAME_CHARACTERS_MAX)
}

fn key_names(keys: &Keys) -> String {
    keys::names(keys, NAME_CHARACTERS_MAX)
}

fn facts(view: &View) -> Markup {
    let table = &view.table;
    html! {
        p {
            (table.status) " · key " (key_names(&table.keys))
            " · about " (table.about_items) " items, " (table.about_bytes) " bytes · "
            @match &table.stream { Some(kind) => { "stream " (kind) }, None => "no stream" }
            " · "
            @match &table.ttl { Some(name) => { "TTL " (short(name)) }, None => "no TTL" }
            " · "
            @match table.provisioned {
                Some((read, write)) => { "provisioned " (read) " RCU, " (write) " WCU" },
                None => "on demand",
            }
        }
        p {
            a href=(href(&["partitions", &table.name], &[])) { "Partitions" }
            @if view.allow_writes {
                " · " a href=(href(&["tables", &table.name, "item"], &[])) { "New item" }
            }
        }
    }
}

fn wrong(problem: &Problem) -> Markup {
    html! {
        p.error role="alert" {
            (problem.place) ": " (problem.what) "; write instead: " (problem.instead)
        }
    }
}

fn form(form: &Form, table: &TableShape) -> Markup {
    let chosen = table.index(&form.index).map_or(&table.keys, |index| &index.keys);
    let indexes: Vec<(&str, String)> = std::iter::once(("", &table.keys))
        .chain(table.indexes.iter().map(|index| (index.name.as_str(), &index.keys)))
        .map(|(name, keys)| {
            let shown = if name.is_empty() { "Table".to_owned() } else { short(name) };
            (name, format!("{shown} ({})", key_names(keys)))
        })
        .collect();
    let indexes: Vec<(&str, &str)> =
        indexes.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let partition = ["pk", "pk2", "pk3", "pk4"].into_iter();
    let partition = partition.zip([&form.pk, &form.pk2, &form.pk3, &form.pk4]);
    let limit = if form.limit.is_empty() { LIMIT_DEFAULT } else { &form.limit };
    html! {
        form method="get" action=(href(&["tables", &table.name], &[])) {
            fieldset {
                legend { "Read" }
                (choice("index", "index", "Table or index", &form.index, &indexes))
                @for ((name, value), key) in partition.zip(&chosen.partition) {
                    @let kind = key.attribute_type.descriptor();
                    (field(name, name, &format!("Partition key {} ({kind})", short(&key.name)), value, "leave empty for a Scan"))
                }
                @if let Some(key) = chosen.sort.first() {
                    @let kind = key.attribute_type.descriptor();
                    (choice("sk_op", "sk_op", "Sort key", &form.sk_op, &SORT_OPERATORS.map(same)))
                    (field("sk", "sk", &format!("{} ({kind})", short(&key.name)), &form.sk, "any"))
                    (field("sk_to", "sk_to", "and (between)", &form.sk_to, ""))
                }
                (choice("order", "order", "Order", &form.order, &[("", "forward"), ("desc", "backward")]))
                (choice("consistent", "consistent", "Consistency", &form.consistent, &[("", "eventual"), ("1", "strong")]))
                (field("limit", "limit", "Limit (items read)", limit, LIMIT_DEFAULT))
            }
            fieldset {
                legend { "Filter and projection" }
                (field("filter", "filter", "Attribute", &form.filter, "info.rating"))
                (choice("filter_op", "filter_op", "Operator", &form.filter_op, &FILTER_OPERATORS.map(same)))
                (choice("filter_type", "filter_type", "Type", &form.filter_type, &AttributeType::ALL.map(|kind| same(kind.descriptor()))))
                (field("filter_value", "filter_value", "Value", &form.filter_value, ""))
                (field("filter_to", "filter_to", "and (between)", &form.filter_to, ""))
                (field("project", "project", "Projection", &form.project, "all attributes"))
            }
            button type="submit" { "Run" }
            a href=(href(&["tables", &table.name], &[])) { "Clear" }
        }
    }
}

/// Returns an option with the same value and label.
fn same(text: &'static str) -> (&'static str, &'static str) {
    (text, text)
}

fn result(view: &View, items: &Items, bytes_max: usize) -> Markup {
    let path = |last: &'static str| -> Vec<&str> {
        ["tables", &view.table.name, last].into_iter().filter(|part| !part.is_empty()).collect()
    };
    let form = &view.form;
    let more = items.next.as_ref().map(|key| {
        let next = Form { column: String::new(), ..form.after(key.text()) };
        next.href(&path(""))
    });
    let head = html! {
        h2 id="result" { "Items" }
        p { (summary(items)) }
        nav.pager aria-label="Pages of items" {
            @if !form.after.is_empty() {
                @let first = Form { column: String::new(), ..form.after(String::new()) };
                a href=(first.href(&path(""))) { "First page" }
            }
            @if let Some(address) = &more { a href=(address) rel="next" { "Next page" } }
            @if !items.items.is_empty() {
                a href=(form.href(&path("items.jsonl"))) { "Export as DynamoDB JSON" }
                a href=(form.href(&path("items.csv"))) { "Export as CSV" }
            }
        }
    };
    let left = bytes_max.saturating_sub(head.0.len());
    html! {
        (head)
        @if items.items.is_empty() { (empty(view, more.is_some())) }
        @else { (rows(&view.table, form, items, left)) }
    }
}

fn summary(items: &Items) -> String {
    let capacity = &items.capacity;
    let mut text = format!(
        "{} returned, {} read, {}",
        counted(items.items.len(), "item", "items"),
        items.read,
        counted(capacity.total, "read capacity unit", "read capacity units")
    );
    if !capacity.indexes.is_empty() {
        let parts = std::iter::once(format!("table {}", capacity.table));
        let indexes = capacity.indexes.iter().map(|(name, used)| format!("{} {used}", short(name)));
        text = format!("{text} ({})", parts.chain(indexes).collect::<Vec<_>>().join(", "));
    }
    text
}

fn empty(view: &View, has_more: bool) -> Markup {
    let (what, remedy) = match (has_more, view.form.is_plain()) {
        (true, _) => {
            ("No item that was read passes the filter.", "The next page reads more items.")
        }
        (false, true) => (
            "The table has no items.",
            "Write items with an application, load a file with `weir load`, or create an item.",
        ),
        (false, false) => ("No item matches.", "Change a condition, or clear the form."),
    };
    message::empty(what, &html! { (remedy) })
}

fn code(asked: &Asked) -> Markup {
    let code = &asked.code;
    let programs = [
        ("code-cli", "AWS CLI", &code.cli),
        ("code-python", "Python (boto3)", &code.python),
        ("code-javascript", "JavaScript (SDK v3)", &code.javascript),
        ("code-rust", "Rust", &code.rust),
    ];
    let shown = html! {
        @for (id, name, text) in programs {
            details id=(id) { summary { (name) } pre tabindex="0" { (text) } }
        }
    };
    html! {
        h2 { "The same request as code" }
        @if shown.0.len() <= CODE_BYTES_MAX { (shown) }
        @else { (message::note("The request is too long for this page; the JSON of this page has the code.")) }
        (message::note("The programs read AWS_ENDPOINT_URL_DYNAMODB, AWS_REGION and the credentials from the environment."))
    }
}

#[cfg(test)]
mod tests;
