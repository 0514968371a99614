//! The declaration of copy rules in YAML, parsed with the position of every error.
//!
//! `check` finds errors between rules. Only plain YAML is accepted: no aliases, no tags.

use std::collections::BTreeMap;
use std::fmt;

use model::limits::{TABLE_NAME_LENGTH_MAX, TABLE_NAME_LENGTH_MIN};
use saphyr_parser::{Event, Parser, Span};

use super::check::check;
use super::copy_rule::{CopyRule, OnDelete};
use crate::marks::is_reserved;

/// The maximum size of a declaration in bytes. On Lambda, all environment variables together have 4
/// KB.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// The maximum nesting of lists and mappings. Rules use three levels.
const DEPTH_MAX: usize = 8;
/// The fields of a rule.
const FIELDS: [&str; 7] = ["name", "from", "to", "index", "key", "attributes", "on-delete"];

/// An error in a declaration, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclarationError {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The text of the line.
    pub source_line: String,
    /// The error, and what to write instead.
    pub message: String,
}

impl std::error::Error for DeclarationError {}

impl fmt::Display for DeclarationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, source_line, message } = self;
        write!(f, "line {line}, column {column}: {message} (in `{}`)", source_line.trim())
    }
}

/// A node of the YAML document with its position.
#[derive(Clone, Debug)]
struct Node {
    at: (usize, usize),
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

type Failed = ((usize, usize), String);

/// Parses a list of rules.
///
/// # Errors
/// The first error.
pub fn parse_rules(text: &str) -> Result<Vec<CopyRule>, DeclarationError> {
    read(text).map_err(|((line, column), message)| DeclarationError {
        line,
        column,
        source_line: text.lines().nth(line.saturating_sub(1)).unwrap_or_default().to_owned(),
        message,
    })
}

fn read(text: &str) -> Result<Vec<CopyRule>, Failed> {
    let root = tree(text)?;
    let Kind::List(nodes) = &root.kind else {
        return Err((root.at, "expected a list of rules; begin each rule with `- `".to_owned()));
    };
    let mut rules = nodes.iter().map(rule).collect::<Result<Vec<_>, _>>()?;
    let others = |rule| (writers_of(rule, &rules), siblings_of(rule, &rules));
    let others: Vec<_> = rules.iter().map(others).collect();
    for (rule, (writers, siblings)) in rules.iter_mut().zip(others) {
        (rule.writers, rule.siblings) = (writers, siblings);
    }
    if rules.is_empty() {
        return Err((root.at, "expected at least one rule".to_owned()));
    }
    Ok(rules)
}

/// Parses rules and checks them together. A function does this when it starts.
///
/// # Errors
/// The first error.
pub fn parse_and_check(text: &str) -> Result<Vec<CopyRule>, DeclarationError> {
    let rules = parse_rules(text)?;
    let Some(problem) = check(&rules).into_iter().next() else { return Ok(rules) };
    let at = match tree(text).map(|root| root.kind) {
        Ok(Kind::List(nodes)) => nodes.get(problem.rule).map(|node| node.at),
        _ => None,
    };
    let (line, column) = at.unwrap_or((1, 1));
    let source_line = text.lines().nth(line.saturating_sub(1)).unwrap_or_default().to_owned();
    Err(DeclarationError { line, column, source_line, message: problem.text })
}

/// A list or mapping that is not complete yet.
enum Open {
    List((usize, usize), Vec<Node>),
    Map((usize, usize), Vec<(Node, Node)>, Option<Node>),
}

fn place(span: Span) -> (usize, usize) {
    (span.start.line(), span.start.col() + 1)
}

fn tree(text: &str) -> Result<Node, Failed> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(((1, 1), format!("the rules have more than {TEXT_BYTES_MAX} bytes")));
    }
    let mut open: Vec<Open> = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let at = error.marker();
            ((at.line(), at.col() + 1), format!("invalid YAML: {}", error.info()))
        })?;
        let at = place(span);
        let node = match event {
            Event::SequenceStart(_, None) => {
                open.push(Open::List(at, Vec::new()));
                None
            }
            Event::MappingStart(_, None) => {
                open.push(Open::Map(at, Vec::new(), None));
                None
            }
            Event::SequenceEnd | Event::MappingEnd => open.pop().map(|open| match open {
                Open::List(at, nodes) => Node { at, kind: Kind::List(nodes) },
                Open::Map(at, entries, _) => Node { at, kind: Kind::Map(entries) },
            }),
            Event::Scalar(text, _, _, None) => {
                Some(Node { at, kind: Kind::Text(text.into_owned()) })
            }
            Event::SequenceStart(..)
            | Event::MappingStart(..)
            | Event::Scalar(..)
            | Event::Alias(_) => {
                return Err((
                    at,
                    "YAML aliases and tags are not supported; write the value out".to_owned(),
                ));
            }
            _ => None,
        };
        if open.len() > DEPTH_MAX {
            return Err((at, "too many nested levels; a rule has at most three".to_owned()));
        }
        let Some(node) = node else { continue };
        match open.last_mut() {
            None => return Ok(node),
            Some(Open::List(_, nodes)) => nodes.push(node),
            Some(Open::Map(_, entries, key)) => match key.take() {
                None => *key = Some(node),
                Some(key) => entries.push((key, node)),
            },
        }
    }
    Err(((1, 1), "expected at least one rule".to_owned()))
}

fn text_of(node: &Node, what: &str) -> Result<String, Failed> {
    match &node.kind {
        Kind::Text(text) if !text.is_empty() => Ok(text.clone()),
        _ => Err((node.at, format!("{what} must be a string"))),
    }
}

fn rule(node: &Node) -> Result<CopyRule, Failed> {
    let Kind::Map(entries) = &node.kind else {
        return Err((node.at, format!("a rule must be a mapping with {}", FIELDS.join(", "))));
    };
    let mut fields: BTreeMap<String, &Node> = BTreeMap::new();
    for (key, value) in entries {
        let name = text_of(key, "a name")?;
        if !FIELDS.contains(&name.as_str()) {
            return Err((
                key.at,
                format!("unknown field `{name}`; a rule has {}", FIELDS.join(", ")),
            ));
        }
        if fields.insert(name.clone(), value).is_some() {
            return Err((key.at, format!("`{name}` is given twice")));
        }
    }
    let field = |name: &str| {
        fields
            .get(name)
            .copied()
            .ok_or_else(|| (node.at, format!("the rule lacks the field `{name}`")))
    };
    let name = text_of(field("name")?, "`name`")?;
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.len() > 32 || !name.bytes().all(is_name) {
        return Err((
            field("name")?.at,
            format!("`{name}` is not a name: write 1 to 32 of a-z, 0-9 and `-`"),
        ));
    }
    let (index_key, origin_key) = one_pair(field("key")?)?;
    let on_delete = field("on-delete")?;
    let on_delete = match text_of(on_delete, "`on-delete`")?.as_str() {
        "cascade" => OnDelete::Cascade,
        "clear" => OnDelete::Clear,
        "keep" => OnDelete::Keep,
        other => {
            return Err((
                on_delete.at,
                format!("unknown action `{other}`; write cascade, clear or keep"),
            ));
        }
    };
    Ok(CopyRule {
        name,
        origin: table(field("from")?)?,
        origin_key,
        target: table(field("to")?)?,
        index: text_of(field("index")?, "`index`")?,
        index_key,
        index_sort: Vec::new(),
        attributes: attributes(field("attributes")?)?,
        on_delete,
        writers: BTreeMap::new(),
        siblings: BTreeMap::new(),
    })
}

/// Returns [`CopyRule::writers`] of a rule.
fn writers_of(rule: &CopyRule, rules: &[CopyRule]) -> BTreeMap<String, bool> {
    let feeds =
        |other: &CopyRule| rule.attributes.values().any(|from| other.attributes.contains_key(from));
    let writers = rules.iter().filter(|other| other.target == rule.origin);
    writers.map(|other| (other.name.clone(), feeds(other))).collect()
}

/// Returns [`CopyRule::siblings`] of a rule.
fn siblings_of(rule: &CopyRule, rules: &[CopyRule]) -> BTreeMap<String, bool> {
    let siblings = rules.iter().filter(|other| other.target == rule.target);
    let moves = |other: &CopyRule| other.attributes.contains_key(&rule.index_key);
    siblings.map(|other| (other.name.clone(), moves(other))).collect()
}

fn table(node: &Node) -> Result<String, Failed> {
    let name = text_of(node, "the name of a table")?;
    let is_name = (TABLE_NAME_LENGTH_MIN..=TABLE_NAME_LENGTH_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    if is_name {
        Ok(name)
    } else {
        Err((
            node.at,
            format!(
                "`{name}` is not a table name; write 3 to 255 of a-z, A-Z, 0-9, `_`, `-` and `.`"
            ),
        ))
    }
}

fn pairs(node: &Node, what: &str) -> Result<Vec<(Node, String, String)>, Failed> {
    let Kind::Map(entries) = &node.kind else { return Err((node.at, what.to_owned())) };
    let pair = |(to, from): &(Node, Node)| {
        Ok((to.clone(), text_of(to, "an attribute")?, text_of(from, "an attribute")?))
    };
    entries.iter().map(pair).collect()
}

fn one_pair(node: &Node) -> Result<(String, String), Failed> {
    let what = "`key` must be one pair: the attribute of the copy and the key attribute of the origin, such as `{productID: productID}`";
    match pairs(node, what)?.as_slice() {
        [(_, to, from)] => Ok((to.clone(), from.clone())),
        _ => Err((node.at, what.to_owned())),
    }
}

fn attributes(node: &Node) -> Result<BTreeMap<String, String>, Failed> {
    let what = "`attributes` must be pairs: the attribute of the copy and the attribute of the origin, such as `{productName: productName}`";
    let mut attributes = BTreeMap::new();
    for (at, to, from) in pairs(node, what)? {
        if is_reserved(&to) {
            return Err((
                at.at,
                format!(
                    "`{to}` is reserved for a mark of Weir; choose another name for the copy's attribute"
                ),
            ));
        }
        if is_reserved(&from) {
            // A rule that copies a mark would never stop writing, because every write changes the
            // mark.
            return Err((
                at.at,
                format!("`{from}` is reserved for a mark of Weir and cannot be copied"),
            ));
        }
        if attributes.insert(to.clone(), from).is_some() {
            return Err((at.at, format!("`{to}` is given twice")));
        }
    }
    if attributes.is_empty() { Err((node.at, what.to_owned())) } else { Ok(attributes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: &str = "- name: products\n  from: products\n  to: order-lines\n  index: by-product\n  key: {productID: id}\n  attributes:\n    productName: name\n    unit: quantityPerUnit\n  on-delete: cascade\n";

    #[test]
    fn a_rule_is_read() {
        let rules = parse_and_check(RULE).unwrap();
        let expected = CopyRule {
            name: "products".to_owned(),
            origin: "products".to_owned(),
            origin_key: "id".to_owned(),
            target: "order-lines".to_owned(),
            index: "by-product".to_owned(),
            index_key: "productID".to_owned(),
            index_sort: Vec::new(),
            attributes: [("productName", "name"), ("unit", "quantityPerUnit")]
                .map(|(to, from)| (to.to_owned(), from.to_owned()))
                .into(),
            on_delete: OnDelete::Cascade,
            writers: BTreeMap::new(),
            siblings: [("products".to_owned(), false)].into(),
        };
        assert_eq!(rules, [expected]);
    }

    #[test]
    fn errors_have_their_position() {
        for (from, to, expected) in [
            (
                "cascade",
                "drop",
                "line 9, column 14: unknown action `drop`; write cascade, clear or keep (in `on-delete: drop`)",
            ),
            (
                "to: order-lines\n  ",
                "",
                "line 1, column 3: the rule lacks the field `to` (in `- name: products`)",
            ),
            (
                "index:",
                "indx:",
                "line 4, column 3: unknown field `indx`; a rule has name, from, to, index, key, attributes, on-delete (in `indx: by-product`)",
            ),
            (
                "{productID: id}",
                "{a: b, c: d}",
                "line 5, column 8: `key` must be one pair: the attribute of the copy and the key attribute of the origin, such as `{productID: productID}` (in `key: {a: b, c: d}`)",
            ),
            (
                "unit:",
                "productName:",
                "line 8, column 5: `productName` is given twice (in `productName: quantityPerUnit`)",
            ),
            (
                "unit:",
                "_from_x:",
                "line 8, column 5: `_from_x` is reserved for a mark of Weir; choose another name for the copy's attribute (in `_from_x: quantityPerUnit`)",
            ),
            (
                "quantityPerUnit",
                "_from_x",
                "line 8, column 5: `_from_x` is reserved for a mark of Weir and cannot be copied (in `unit: _from_x`)",
            ),
            (
                "quantityPerUnit",
                "_weir",
                "line 8, column 5: `_weir` is reserved for a mark of Weir and cannot be copied (in `unit: _weir`)",
            ),
            (
                "name: products",
                "name: A B",
                "line 1, column 9: `A B` is not a name: write 1 to 32 of a-z, 0-9 and `-` (in `- name: A B`)",
            ),
            (
                "from: products",
                "from: p",
                "line 2, column 9: `p` is not a table name; write 3 to 255 of a-z, A-Z, 0-9, `_`, `-` and `.` (in `from: p`)",
            ),
            (
                "unit:",
                "productID:",
                "line 1, column 3: `productID` holds the origin's key in each copy, so it cannot also be a copied attribute (in `- name: products`)",
            ),
        ] {
            let text = RULE.replacen(from, to, 1);
            let error = parse_and_check(&text).map(drop).unwrap_err().to_string();
            assert_eq!(error, expected);
        }
        for text in ["", "x", "[]", "- x", "a: [", "- - - - - - - - - - x"] {
            assert!(parse_rules(text).is_err(), "{text}");
        }
    }
}
