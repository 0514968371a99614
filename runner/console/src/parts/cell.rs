//! Table cells for attribute values: a value in DynamoDB JSON, with its type. A long value is
//! truncated.

use maud::{Markup, html};
use serde_json::Value;

/// The maximum number of characters that a cell shows. The page of the item shows the complete
/// value.
pub(crate) const CHARACTERS_MAX: usize = 200;

/// Returns a cell of an attribute value such as `{"S":"a"}`. `whole` is the address of the item's
/// page, to which a truncated value links.
pub(crate) fn typed(value: &Value, whole: Option<&str>) -> Markup {
    let member = value.as_object().and_then(|members| members.iter().next());
    let Some((kind, inner)) = member else { return html! { span.absent { "–" } } };
    let text = match inner {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    html! {
        span.value data-type=(kind) {
            span.type title=(meaning(kind)) { (kind) } " "
            (cut(&text, whole))
        }
    }
}

/// Returns the prefix of a string that a cell shows; `None` if the complete string fits.
fn beginning(text: &str) -> Option<&str> {
    let end = text.char_indices().nth(CHARACTERS_MAX).map(|(at, _)| at);
    end.and_then(|end| text.get(..end))
}

/// Returns a string, truncated to [`CHARACTERS_MAX`] characters with a link to the complete value.
pub(crate) fn cut(text: &str, whole: Option<&str>) -> Markup {
    let Some(shown) = beginning(text) else { return html! { (text) } };
    let all = text.chars().count();
    html! {
        (shown) "… "
        @match whole {
            Some(address) => a href=(address) { "all " (all) " characters" },
            None => span.absent { "(" (all) " characters)" },
        }
    }
}

/// Returns a reason, truncated to [`CHARACTERS_MAX`] characters. Parts between backticks become
/// code.
pub(crate) fn reason(text: &str) -> Markup {
    match beginning(text) {
        None => marked(text),
        Some(shown) => html! {
            (marked(shown)) "… " span.absent { "(" (text.chars().count()) " characters)" }
        },
    }
}

/// Returns a string in which the parts between backticks become code. If the number of backticks is
/// odd, some of them are data, and the string stays unchanged.
pub(crate) fn marked(text: &str) -> Markup {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return html! { (text) };
    }
    html! {
        @for (at, part) in parts.iter().enumerate() {
            @if at.is_multiple_of(2) { (part) } @else { code { (part) } }
        }
    }
}

/// Returns the name of a type.
fn meaning(kind: &str) -> &'static str {
    match kind {
        "S" => "String",
        "N" => "Number",
        "B" => "Binary",
        "BOOL" => "Boolean",
        "NULL" => "Null",
        "M" => "Map",
        "L" => "List",
        "SS" => "String set",
        "NS" => "Number set",
        "BS" => "Binary set",
        _ => "Unknown type",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cell_has_its_type_and_is_cut() {
        for (value, part) in [
            (json!({"S": "<b>"}), "&lt;b&gt;"),
            (json!({"N": "7"}), "title=\"Number\""),
            (json!({"M": {"a": {"N": "1"}}}), "{&quot;a&quot;:{&quot;N&quot;:&quot;1&quot;}}"),
            (json!({}), "–"),
        ] {
            let html = typed(&value, None).into_string();
            assert!(html.contains(part), "{html}");
        }
        let long = "ü".repeat(CHARACTERS_MAX + 1);
        let html = cut(&long, Some("/tables/t/item")).into_string();
        assert!(html.contains("<a href=\"/tables/t/item\">all 201 characters</a>"), "{html}");
        assert_eq!(html.matches('ü').count(), CHARACTERS_MAX);
        assert_eq!(cut(&"ü".repeat(CHARACTERS_MAX), None).into_string().matches('…').count(), 0);
    }

    #[test]
    fn a_reason_marks_code_and_is_cut() {
        for (text, expected) in [
            ("`a.b` requires \"<x>\"", "<code>a.b</code> requires &quot;&lt;x&gt;&quot;"),
            ("no code", "no code"),
            ("found \"`\"", "found &quot;`&quot;"),
        ] {
            assert_eq!(reason(text).into_string(), expected);
        }
        let long = format!("`{}`", "ü".repeat(CHARACTERS_MAX));
        let html = reason(&long).into_string();
        assert!(html.ends_with("… <span class=\"absent\">(202 characters)</span>"), "{html}");
    }
}
