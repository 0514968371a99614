//! Parsing of a model file: JSON in the format of `awslabs.dynamodb-mcp-server`, or YAML with the
//! same content.
//!
//! First, `shape` compares the file with the schema of a model file, and reports every mistake with
//! its position. Then `tables`, `items` and `patterns` check that the parts are consistent with
//! each other.

mod items;
mod patterns;
mod shape;
mod surrogates;
mod tables;

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use template::Span;
use template::diagnostic::{Diagnostics, Findings};
use template::document::{Entry, Kind, Node, parse_data};

use crate::data_model::{DataModel, Table};

/// The maximum size of a model file in bytes. It is the limit of the template parser, which also
/// parses model files.
pub const FILE_BYTES_MAX: usize = 1_000_000;

/// Parses a model file. `file` is its name in messages.
///
/// # Errors
/// All mistakes in the file, ordered by line.
pub fn read(file: &str, text: &str) -> Result<DataModel, Diagnostics> {
    // Some editors on Windows write a byte order mark before the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = surrogates::join(text);
    let findings = Findings::new(file, &text);
    let model = read_model(&text, &findings);
    match model {
        Some(model) if !findings.has_errors() => Ok(model),
        _ => Err(findings.into_parts().0),
    }
}

fn read_model(text: &str, findings: &Findings<'_>) -> Option<DataModel> {
    let wrong = match text.len() {
        _ if text.trim().is_empty() => Some((
            "this file is empty".to_owned(),
            "write an object with `tables`, `items` and `access_patterns`",
        )),
        length if length > FILE_BYTES_MAX => Some((
            format!("this file has {length} bytes, but at most {FILE_BYTES_MAX} are allowed"),
            "remove items, or export with fewer `--samples`; a few items of each kind are enough",
        )),
        _ => None,
    };
    if let Some((message, help)) = wrong {
        findings.error(Span { line: 1, column: 1, width: 1 }, message, help);
        return None;
    }
    let root = parse_data(text, findings)?;
    shape::check(&root, &shape::MODEL, findings);
    if findings.has_errors() {
        return None;
    }
    let mut model = DataModel::default();
    let nodes = list(root.get("tables"));
    for node in nodes {
        let Some(table) = typed::<Table>(node, &shape::TABLE) else {
            findings.error(
                node.at,
                "this is not a definition of a table",
                "write a table as in a `CreateTable` request",
            );
            continue;
        };
        tables::read(&mut model, table, node, findings);
    }
    for entry in root.get("items").map_or(&[][..], Node::entries) {
        items::read(&mut model, entry, findings);
    }
    let workload = root.get("workload").and_then(|workload| workload.get("tables"));
    for entry in workload.map_or(&[][..], Node::entries) {
        tables::read_workload(&mut model, entry, findings);
    }
    let nodes = list(root.get("access_patterns"));
    let named = nodes.iter().map(|node| {
        (self::text(node, "pattern"), node.get("pattern").map_or(node.at, |name| name.at))
    });
    report_duplicates(named, "access patterns", findings);
    for node in nodes {
        patterns::read(&mut model, node, findings);
    }
    Some(model)
}

/// Converts a node to a type. `shape` determines the types of its scalars.
fn typed<T: DeserializeOwned>(node: &Node, shape: &shape::Shape) -> Option<T> {
    serde_json::from_value(shape::value(node, shape)).ok()
}

/// Returns the members of a list; an empty slice if the node is not a list.
fn list(node: Option<&Node>) -> &[Node] {
    match node.map(|node| &node.kind) {
        Some(Kind::List(members)) => members,
        _ => &[],
    }
}

/// Returns the string in a member; empty if there is none.
fn text<'n>(node: &'n Node, key: &str) -> &'n str {
    node.get(key).and_then(Node::as_text).unwrap_or_default()
}

/// Reports duplicate names in a list, each at its second occurrence.
fn report_duplicates<'n>(
    names: impl Iterator<Item = (&'n str, Span)>,
    what: &str,
    findings: &Findings<'_>,
) {
    let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
    for (name, at) in names {
        match seen.get(name) {
            Some(first) => findings.error(
                at,
                format!(
                    "there are two {what} with the name `{name}`, the first in line {}",
                    first.line
                ),
                "rename or remove one of them",
            ),
            None => drop(seen.insert(name, at)),
        }
    }
}

/// Returns the entry of a mapping with this key.
fn entry<'n>(node: &'n Node, key: &str) -> Option<&'n Entry> {
    node.entries().iter().find(|entry| entry.key == key)
}
