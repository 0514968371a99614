//! The attributes and placeholders that the expressions of a request contain.
//!
//! This module only scans tokens; the store validates the syntax when it runs the request.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use template::diagnostic::similar;

/// The parameters that contain expressions.
const EXPRESSIONS: [&str; 5] = [
    "KeyConditionExpression",
    "FilterExpression",
    "ProjectionExpression",
    "UpdateExpression",
    "ConditionExpression",
];
const NAMES: &str = "ExpressionAttributeNames";
const VALUES: &str = "ExpressionAttributeValues";
/// The keywords of expressions, which are not attribute names.
const KEYWORDS: [&str; 9] = ["AND", "OR", "NOT", "BETWEEN", "IN", "SET", "REMOVE", "ADD", "DELETE"];

/// The top-level attributes that a request names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The attributes that a read returns; `None` for all attributes.
    pub returned: Option<BTreeSet<String>>,
    /// The attributes of the filter.
    pub filtered: BTreeSet<String>,
    /// The attributes to which the filter applies `attribute_not_exists`.
    pub absent: BTreeSet<String>,
}

/// A token of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'t> {
    /// A name, `#name` or a keyword.
    Word(&'t str),
    /// `:value`.
    Value(&'t str),
    /// Any other character.
    Sign(char),
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let behind = rest.get(first.len_utf8()..).unwrap_or_default();
        let length = behind.find(|letter| !is_part(letter)).unwrap_or(behind.len());
        let end = first.len_utf8() + length;
        let (token, end) = match (first, rest.get(..end)) {
            (':', Some(word)) => (Some(Token::Value(word)), end),
            (first, Some(word)) if first == '#' || first == '_' || first.is_alphanumeric() => {
                (Some(Token::Word(word)), end)
            }
            (first, _) if first.is_whitespace() => (None, first.len_utf8()),
            (first, _) => (Some(Token::Sign(first)), first.len_utf8()),
        };
        found.extend(token);
        rest = rest.get(end..).unwrap_or_default();
    }
    found
}

fn text<'p>(parameters: &'p Map<String, Value>, name: &str) -> &'p str {
    parameters.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the attribute name of a word of an expression; resolves a placeholder.
fn attribute<'p>(parameters: &'p Map<String, Value>, word: &'p str) -> &'p str {
    let meant = parameters.get(NAMES).and_then(|names| names.get(word)).and_then(Value::as_str);
    meant.unwrap_or(word)
}

/// Returns the top-level attributes in an expression.
fn top_level(parameters: &Map<String, Value>, expression: &str) -> BTreeSet<String> {
    let tokens = tokens(text(parameters, expression));
    let mut found = BTreeSet::new();
    for (at, token) in tokens.iter().enumerate() {
        let Token::Word(word) = token else { continue };
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        let is_nested = matches!(before, Some(Token::Sign('.' | '[')));
        let is_function = tokens.get(at + 1) == Some(&Token::Sign('('));
        let is_keyword = KEYWORDS.iter().any(|keyword| keyword.eq_ignore_ascii_case(word));
        if !is_nested && !is_function && !is_keyword {
            found.insert(attribute(parameters, word).to_owned());
        }
    }
    found
}

/// Returns the attributes that a read returns, and those that its filter uses.
#[must_use]
pub fn attributes(parameters: &Map<String, Value>) -> Attributes {
    let is_projected = parameters.contains_key("ProjectionExpression");
    let returned = match text(parameters, "Select") {
        "COUNT" => Some(BTreeSet::new()),
        _ => is_projected.then(|| top_level(parameters, "ProjectionExpression")),
    };
    let filtered = top_level(parameters, "FilterExpression");
    Attributes { returned, filtered, absent: absent(parameters) }
}

/// Returns the attributes in the key condition of a query.
#[must_use]
pub fn key_condition(parameters: &Map<String, Value>) -> BTreeSet<String> {
    top_level(parameters, "KeyConditionExpression")
}

/// Returns the attributes to which a filter applies `attribute_not_exists`.
fn absent(parameters: &Map<String, Value>) -> BTreeSet<String> {
    let tokens = tokens(text(parameters, "FilterExpression"));
    let of = |three: &[Token<'_>]| match three {
        [Token::Word("attribute_not_exists"), Token::Sign('('), Token::Word(word)] => {
            Some(attribute(parameters, word).to_owned())
        }
        _ => None,
    };
    tokens.windows(3).filter_map(of).collect()
}

/// Returns the top-level attributes that an update changes or removes.
#[must_use]
pub fn updated(parameters: &Map<String, Value>) -> BTreeSet<String> {
    let tokens = tokens(text(parameters, "UpdateExpression"));
    let mut found = BTreeSet::new();
    let (mut depth, mut is_target) = (0_u32, false);
    for token in tokens {
        match token {
            Token::Sign('(') => depth += 1,
            Token::Sign(')') => depth = depth.saturating_sub(1),
            Token::Sign(',') if depth == 0 => is_target = true,
            Token::Word(word)
                if ["SET", "REMOVE", "ADD", "DELETE"]
                    .iter()
                    .any(|clause| clause.eq_ignore_ascii_case(word)) =>
            {
                is_target = true;
            }
            Token::Word(word) if is_target => {
                found.insert(attribute(parameters, word).to_owned());
                is_target = false;
            }
            _ => {}
        }
    }
    found
}

/// Returns the mistakes in the placeholders of a request, or of a member of a transaction:
/// placeholders without a value, and unused values. Each mistake has the placeholder, the message
/// and the correction.
#[must_use]
pub fn placeholder_mistakes(parameters: &Map<String, Value>) -> Vec<(String, String, String)> {
    let mut used: BTreeSet<&str> = BTreeSet::new();
    for token in EXPRESSIONS.iter().flat_map(|name| tokens(text(parameters, name))) {
        match token {
            Token::Value(word) => drop(used.insert(word)),
            Token::Word(word) if word.starts_with('#') => drop(used.insert(word)),
            _ => {}
        }
    }
    let defined = |name: &str| -> Vec<&str> {
        let members = parameters.get(name).and_then(Value::as_object);
        members.into_iter().flat_map(Map::keys).map(String::as_str).collect()
    };
    let (names, values) = (defined(NAMES), defined(VALUES));
    let mut mistakes = Vec::new();
    for word in &used {
        let (known, option, example) = match word.starts_with('#') {
            true => (&names, "expression-attribute-names", "\"attribute\""),
            false => (&values, "expression-attribute-values", "{\"S\": \"…\"}"),
        };
        if !known.contains(word) {
            let help = match similar(word, known.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("add `\"{word}\": {example}` to --{option}"),
            };
            let message = format!("the placeholder `{word}` has no value");
            mistakes.push(((*word).to_owned(), message, help));
        }
    }
    for word in names.iter().chain(&values).filter(|word| !used.contains(*word)) {
        let message = format!("no expression uses the placeholder `{word}`");
        let help = "use it in an expression, or remove it: DynamoDB rejects unused placeholders";
        mistakes.push(((*word).to_owned(), message, help.to_owned()));
    }
    mistakes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn names(set: &BTreeSet<String>) -> String {
        set.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn updates_name_what_they_change() {
        for (expression, expected) in [
            ("SET #s = :a, b.c = if_not_exists(d, :e), f = f + :g", "b f status"),
            ("set a[0] = :x remove b, c ADD n :one DELETE tags :t", "a b c n tags"),
            ("REMOVE #s", "status"),
            ("", ""),
        ] {
            let given = request(&json!({
                "UpdateExpression": expression, NAMES: {"#s": "status"},
            }));
            assert_eq!(names(&updated(&given)), expected, "{expression}");
        }
    }

    #[test]
    fn reads_name_what_they_return() {
        let given = request(&json!({
            "ProjectionExpression": "#s, a.b, tags[0]",
            "FilterExpression": "attribute_exists(c.d) AND size(e) > :n AND NOT f IN (:x) AND attribute_not_exists(#g)",
            "KeyConditionExpression": "#s = :s AND begins_with(h, :h)",
            NAMES: {"#s": "status", "#g": "gone"},
        }));
        let found = attributes(&given);
        assert_eq!(names(&found.returned.unwrap()), "a status tags");
        assert_eq!(names(&found.filtered), "c e f gone");
        assert_eq!(names(&found.absent), "gone");
        assert_eq!(names(&key_condition(&given)), "h status");
        assert_eq!(attributes(&Map::new()).returned, None);
        let counted = attributes(&request(&json!({"Select": "COUNT"})));
        assert_eq!(counted.returned, Some(BTreeSet::new()));
    }

    #[test]
    fn placeholders_have_values() {
        let given = request(&json!({
            "KeyConditionExpression": "#k = :key AND b > :low",
            NAMES: {"#k": "pk", "#unused": "x"},
            VALUES: {":kye": {"S": "a"}},
        }));
        let shown: Vec<String> = placeholder_mistakes(&given)
            .iter()
            .map(|(_, what, help)| format!("{what}; {help}"))
            .collect();
        assert_eq!(
            shown,
            [
                "the placeholder `:key` has no value; did you mean `:kye`?",
                "the placeholder `:low` has no value; add `\":low\": {\"S\": \"…\"}` to --expression-attribute-values",
                "no expression uses the placeholder `#unused`; use it in an expression, or remove it: DynamoDB rejects unused placeholders",
                "no expression uses the placeholder `:kye`; use it in an expression, or remove it: DynamoDB rejects unused placeholders",
            ]
        );
    }
}
