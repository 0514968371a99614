//! A request as a command of the AWS CLI, quoted for a POSIX shell.

use model::json;

use crate::pages::table::request::{Operation, Request};

/// Returns the command of a request.
pub(super) fn code(request: &Request) -> String {
    let verb = match request.operation {
        Operation::Query => "query",
        Operation::Scan => "scan",
    };
    let mut out = format!("aws dynamodb {verb} --table-name{}", word(&request.table));
    let mut option = |name: &str, value: &str| {
        out.push_str(&format!(" \\\n    --{name}{}", word(value)));
    };
    let texts = [
        ("index-name", &request.index),
        ("key-condition-expression", &request.key_condition),
        ("filter-expression", &request.filter),
        ("projection-expression", &request.projection),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            option(name, text);
        }
    }
    if !request.placeholders.names.is_empty() {
        option("expression-attribute-names", &request.placeholders.names_json());
    }
    if !request.placeholders.values.is_empty() {
        option("expression-attribute-values", &request.placeholders.values_json());
    }
    // With `--limit` the CLI reads one page; without it, all pages.
    option("limit", &request.limit.to_string());
    if let Some(start) = &request.start {
        option("exclusive-start-key", &json::item_to_string(start));
    }
    option("return-consumed-capacity", "INDEXES");
    if request.backward {
        out.push_str(" \\\n    --no-scan-index-forward");
    }
    if request.consistent {
        out.push_str(" \\\n    --consistent-read");
    }
    let has_binary = |text: &str| text.contains("{\"B\":");
    let values = request.placeholders.values_json();
    let start = request.start.as_ref().map(json::item_to_string).unwrap_or_default();
    if has_binary(&values) || has_binary(&start) {
        // A profile can select another format for binary values. Version 1 of the CLI has only
        // base64, and rejects this option.
        out.push_str(" \\\n    --cli-binary-format base64");
    }
    out.push('\n');
    out
}

/// Returns the value of an option, with the separator before it. The separator is `=` before a
/// value that begins with `-`, and a space before any other value.
fn word(value: &str) -> String {
    format!("{}{}", if value.starts_with('-') { '=' } else { ' ' }, quoted(value))
}

/// Quotes a word for a POSIX shell. Within single quotes only the single quote is special.
fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}
