//! The HTML of the page of an item: its attributes, and the form to change the item.

use maud::{Markup, html};
use model::{AttributeValue, Item, json};

use super::view::{Found, View};
use crate::context::{READ_ONLY, Writes};
use crate::parts::preview::Preview;
use crate::parts::{form, message};
use crate::query::href;

/// The maximum size in bytes of the list of attributes.
const ATTRIBUTES_BYTES_MAX: usize = 26 * 1024;
/// The maximum size in bytes of the JSON in the form. With the list of attributes and the frame,
/// the page stays below 60 KB.
const EDITOR_BYTES_MAX: usize = 22 * 1024;
/// The number of times that the page and its frame contain the key of the item.
const KEYS: usize = 8;
/// The maximum number of characters of a value, and of a name.
const VALUE_CHARACTERS_MAX: usize = 1_000;
const NAME_CHARACTERS_MAX: usize = 200;

/// Returns the HTML of the page of an item, without its frame.
pub(crate) fn html(view: &View, writes: Writes<'_>) -> Markup {
    let table = href(&["tables", &view.table], &[]);
    match &view.found {
        None => html! {
            h1 { "New item" }
            p { "Table " a href=(table) { (view.table) } }
            (new(view, writes))
        },
        Some(found) => html! {
            h1 { "Item" }
            p {
                "Table " a href=(table) { (view.table) } " · "
                code { (Preview::of_text(&found.key.text(), VALUE_CHARACTERS_MAX).text) } " · "
                (found.bytes) " of 409600 bytes · "
                a href=(json_address(view, found)) { "JSON" }
            }
            (attributes(view, found))
            (edit(view, found, writes))
        },
    }
}

fn json_address(view: &View, found: &Found) -> String {
    let path = href(&["tables", &view.table, "item"], &[]);
    let query = href(&[], &[("key", &found.key.text())]);
    format!("{path}.json{query}")
}

fn attributes(view: &View, found: &Found) -> Markup {
    let item = &found.item.0;
    let first = view.first.min(item.len().saturating_sub(1));
    // The page and its frame contain the key [`KEYS`] times.
    let keys = KEYS * href(&[], &[("key", &found.key.text())]).len();
    let mut left = ATTRIBUTES_BYTES_MAX.saturating_sub(keys);
    let built = item.iter().skip(first).map(|(name, value)| attribute(name, value));
    let fitting = built.enumerate().map_while(|(position, row)| {
        // At least one attribute is always shown.
        left = match left.checked_sub(row.0.len()) {
            Some(left) => left,
            None if position == 0 => 0,
            None => return None,
        };
        Some(row)
    });
    let rows: Vec<Markup> = fitting.collect();
    let next = first + rows.len();
    let address = |first: usize| {
        let first = if first == 0 { String::new() } else { first.to_string() };
        href(&["tables", &view.table, "item"], &[("key", &found.key.text()), ("first", &first)])
    };
    html! {
        @if rows.len() < item.len() {
            nav.pager aria-label="Attributes" {
                span { "Attributes " (first + 1) " to " (next) " of " (item.len()) }
                @if first > 0 { a href=(address(0)) { "First attributes" } }
                @if next < item.len() { a href=(address(next)) rel="next" { "More attributes" } }
            }
        }
        div.scroll tabindex="0" role="region" aria-label="Attributes" {
            table {
                thead {
                    tr {
                        th scope="col" { "Attribute" } th scope="col" { "Type" }
                        th scope="col" { "Bytes" } th scope="col" { "Value" }
                    }
                }
                tbody { @for row in &rows { (row) } }
            }
        }
    }
}

fn attribute(name: &str, value: &AttributeValue) -> Markup {
    let shown_name = Preview::of_text(name, NAME_CHARACTERS_MAX);
    let shown = Preview::of(value, VALUE_CHARACTERS_MAX);
    html! {
        tr {
            th scope="row" { (shown_name.text) @if shown_name.is_cut { "…" } }
            td { (value.attribute_type().descriptor()) }
            td { (name.len() + value.size()) }
            td.text { (shown.text) @if shown.is_cut { "… " span.note { "(truncated; the JSON has the complete value)" } } }
        }
    }
}

/// Returns an item as DynamoDB JSON with an attribute on each line.
pub(super) fn text(item: &Item) -> String {
    let mut out = String::from("{");
    for (position, (name, value)) in item.iter().enumerate() {
        out.push_str(if position == 0 { "\n  " } else { ",\n  " });
        json::write_string(&mut out, name);
        out.push_str(": ");
        json::write_attribute_value(&mut out, value);
    }
    out.push_str("\n}\n");
    out
}

fn edit(view: &View, found: &Found, writes: Writes<'_>) -> Markup {
    if matches!(writes, Writes::Refused) {
        return message::note(READ_ONLY);
    }
    let text = text(&found.item.0);
    let key = found.key.text();
    let fields = [("key", key.as_str()), ("read", found.read.as_str())];
    let path = |action| href(&["tables", &view.table, "item", action], &[]);
    let back = href(&["tables", &view.table, "item"], &[("key", &key)]);
    let all = href(&["tables", &view.table], &[]);
    let editor = editor(&text);
    html! {
        h2 { "Edit" }
        @if editor.0.len() <= EDITOR_BYTES_MAX {
            form method="post" action=(path("save")) {
                (form::hidden(writes, &back))
                @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
                (editor)
                button type="submit" { "Save" }
            }
        } @else {
            (message::note("The item is too large for a form on this page. docs/console.md explains how to change it with a request."))
        }
        (message::note("Save and Delete do nothing if the item has changed since this page read it."))
        (form::button(writes, &path("delete"), &all, "Delete this item", &fields))
    }
}

fn editor(text: &str) -> Markup {
    html! {
        div.field.wide {
            label for="item" { "Item as DynamoDB JSON" }
            // A browser removes the first line break of a `textarea`.
            textarea id="item" name="item" rows="16" spellcheck="false" { "\n" (text) }
        }
    }
}

fn new(view: &View, writes: Writes<'_>) -> Markup {
    if matches!(writes, Writes::Refused) {
        return message::note(READ_ONLY);
    }
    let mut example = String::from("{");
    for (position, key) in view.keys.iter().enumerate() {
        write_key_line(&mut example, position, key);
    }
    example.push_str("\n}\n");
    html! {
        form method="post" action=(href(&["tables", &view.table, "item", "create"], &[])) {
            (form::hidden(writes, &href(&["tables", &view.table], &[])))
            (editor(&example))
            button type="submit" { "Create" }
        }
        (message::note("Create does nothing if an item with this key exists."))
    }
}

/// Writes a line for a key attribute, with its type and an empty value.
fn write_key_line(out: &mut String, position: usize, key: &model::KeyAttribute) {
    out.push_str(if position == 0 { "\n  " } else { ",\n  " });
    json::write_string(out, &key.name);
    out.push_str(&format!(": {{\"{}\":\"\"}}", key.attribute_type.descriptor()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item_json::ItemJson;
    use crate::token::Token;

    fn view(text: &str, first: usize) -> View {
        let item = json::item_from_str(text).unwrap();
        let key = Item::new().with("id", item["id"].as_str().unwrap());
        let id = model::KeyAttribute {
            name: "id".to_owned(),
            attribute_type: model::KeyAttributeType::S,
        };
        let found = Found {
            key: ItemJson(key),
            bytes: item.size(),
            item: ItemJson(item),
            read: "f".repeat(64),
        };
        View {
            schema: "s",
            table: "a.json".to_owned(),
            keys: vec![id],
            found: Some(found),
            first,
            allow_writes: true,
        }
    }

    #[test]
    fn an_item_is_shown_and_edited_as_escaped_text() {
        let token = Token::random().unwrap();
        let view = view(r#"{"id":{"S":"</textarea><script>"},"n":{"N":"1"}}"#, 0);
        let page = html(&view, Writes::Allowed(&token)).into_string();
        for part in [
            "href=\"/tables/a%2Ejson/item.json?key=%7B%22id%22",
            "<td class=\"text\">&lt;/textarea&gt;&lt;script&gt;</td>",
            "{\n  &quot;id&quot;: {&quot;S&quot;:&quot;&lt;/textarea&gt;&lt;script&gt;&quot;},\n  &quot;n&quot;: {&quot;N&quot;:&quot;1&quot;}\n}",
            "action=\"/tables/a%2Ejson/item/save\"",
            "action=\"/tables/a%2Ejson/item/delete\"",
            "name=\"read\" value=\"ffff",
            token.as_str(),
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        assert!(!page.contains("<script>") && page.matches("</textarea>").count() == 1, "{page}");
        let page = html(&view, Writes::Refused).into_string();
        assert!(!page.contains("<form") && page.contains(READ_ONLY), "{page}");
    }

    #[test]
    fn a_new_item_begins_with_its_key() {
        let token = Token::random().unwrap();
        let view = View { found: None, ..view(r#"{"id":{"S":"x"}}"#, 0) };
        let page = html(&view, Writes::Allowed(&token)).into_string();
        assert!(page.contains("{\n  &quot;id&quot;: {&quot;S&quot;:&quot;&quot;}\n}"), "{page}");
    }

    #[test]
    fn a_large_item_is_paged() {
        let token = Token::random().unwrap();
        let members: Vec<String> =
            (0..1_000).map(|at| format!(r#""a{at:04}":{{"S":"{}"}}"#, "<".repeat(300))).collect();
        let wide = format!(r#"{{"id":{{"S":"x"}},{}}}"#, members.join(","));
        let big = format!(r#"{{"id":{{"S":"x"}},"t":{{"S":"{}"}}}}"#, "\\\"".repeat(180_000));
        let name = "n".repeat(60_000);
        let named = format!(r#"{{"id":{{"S":"x"}},"{name}":{{"S":"y"}}}}"#);
        for (text, first, parts) in [
            (&wide, 0, ["More attributes", "too large for a form"]),
            (&wide, 990, ["First attributes", "a0999"]),
            (&wide, 5_000, ["First attributes", "Attributes 1001 to 1001 of 1001"]),
            (&big, 0, ["truncated; the JSON has the complete value", "too large for a form"]),
            (&named, 0, ["nnn…", "too large for a form"]),
        ] {
            let page = html(&view(text, first), Writes::Allowed(&token)).into_string();
            assert!(page.len() < 56 * 1024, "{}", page.len());
            for part in parts {
                assert!(page.contains(part), "{part}");
            }
        }
    }
}
