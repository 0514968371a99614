//! SAM's `Globals`, which contain defaults for all resources of a type. This module merges the
//! globals into the properties of a resource.
//!
//! The rules are those of "Globals section of the AWS SAM template": a value of the resource
//! replaces the global value. Mappings are merged key by key. Lists are concatenated, with the
//! global entries first. An intrinsic function counts as a single value. `IgnoreGlobals` next to a
//! resource's type excludes some or all global values.

use std::borrow::Cow;

use crate::{
    diagnostic::{Findings, listed, similar},
    not_emulated::NotEmulated,
    syntax::node::{Entry, Kind, Node},
};

/// Maximum number of values in a section of globals. The limit is needed because each function gets
/// a copy. Real globals have a few dozen values.
const NODES_MAX: usize = 2_000;

/// The resource types for which SAM has globals. Weir uses only the globals of functions and simple
/// tables.
const SECTIONS: &[&str] = &[
    "Api",
    "CapacityProvider",
    "Function",
    "HttpApi",
    "LayerVersion",
    "SimpleTable",
    "StateMachine",
    "WebSocketApi",
];

/// Properties that SAM supports only in the function itself, not in the globals. The
/// list `supported_properties` in `globals.py` of SAM translator 1.115 contains all other
/// properties.
const NOT_GLOBAL: &[&str] = &[
    "AutoPublishCodeSha256",
    "Events",
    "FunctionName",
    "ImageConfig",
    "ImageUri",
    "InlineCode",
    "PackageType",
    "Policies",
    "Role",
    "VersionDescription",
];

/// Returns the globals of a resource type, such as `AWS::Serverless::Function`.
pub(crate) fn section<'n>(globals: Option<&'n Node>, type_name: &str) -> Option<&'n Node> {
    let name = type_name.strip_prefix("AWS::Serverless::")?;
    globals?.get(name).filter(|_| SECTIONS.contains(&name))
}

/// Reports unknown sections, sections without an effect on this machine, and sections that are too
/// large. Returns false if the globals cannot be used.
pub(crate) fn check(globals: Option<&Node>, findings: &Findings<'_>) -> bool {
    let Some(globals) = globals else { return true };
    for entry in globals.entries() {
        let name = entry.key.as_str();
        if !SECTIONS.contains(&name) {
            let help = match similar(name, SECTIONS.iter().copied()) {
                Some(meant) => format!("write `{meant}`"),
                None => format!("write {}", listed(SECTIONS.iter().copied())),
            };
            findings.error(entry.key_at, format!("SAM has no globals for `{name}`"), help);
        } else if !matches!(name, "Function" | "SimpleTable") {
            findings.not_emulated(NotEmulated {
                resource: format!("Globals.{name}"),
                kind: String::new(),
                property: String::new(),
                at: entry.key_at,
                instead: "resources of this type are not created".to_owned(),
            });
        }
    }
    for entry in globals.get("Function").map_or(&[][..], Node::entries) {
        let name = entry.key.as_str();
        if NOT_GLOBAL.contains(&name) {
            findings.error(
                entry.key_at,
                format!("SAM does not support `{name}` in `Globals.Function`"),
                "set the property on each function that needs it",
            );
        }
    }
    let size = nodes_in(globals);
    if size > NODES_MAX {
        findings.error(
            globals.at,
            format!("Globals has {size} values; at most {NODES_MAX} are supported"),
            "move settings of single functions to the functions",
        );
    }
    size <= NODES_MAX
}

/// Returns the globals without the properties that a resource ignores: `*` ignores all properties,
/// a list ignores the listed properties.
pub(crate) fn without_ignored<'n>(
    global: &'n Node,
    resource: &Node,
    findings: &Findings<'_>,
) -> Cow<'n, Node> {
    let Some(ignored) = resource.get("IgnoreGlobals") else { return Cow::Borrowed(global) };
    let names = match &ignored.kind {
        Kind::Text(all) if all == "*" => None,
        Kind::List(items) => Some(items),
        _ => {
            findings.error(
                ignored.at,
                "`IgnoreGlobals` is a list of properties, or `*` for all",
                "write `IgnoreGlobals: '*'`, or `IgnoreGlobals: [Timeout]`",
            );
            return Cow::Borrowed(global);
        }
    };
    let known = || global.entries().iter().map(|entry| entry.key.as_str());
    for item in names.into_iter().flatten() {
        let name = item.as_text().unwrap_or_default();
        if !known().any(|known| known == name) {
            findings.error(
                item.at,
                format!(
                    "`IgnoreGlobals` contains `{name}`, but the globals of this type have no such property"
                ),
                format!("write {}", listed(known())),
            );
        }
    }
    let is_ignored =
        |key: &str| names.is_none_or(|names| names.iter().any(|item| item.as_text() == Some(key)));
    let kept = global.entries().iter().filter(|entry| !is_ignored(&entry.key)).cloned().collect();
    Cow::Owned(Node { at: global.at, kind: Kind::Map(kept) })
}

fn nodes_in(node: &Node) -> usize {
    1 + match &node.kind {
        Kind::List(items) => items.iter().map(nodes_in).sum(),
        Kind::Map(entries) => entries.iter().map(|entry| nodes_in(&entry.value)).sum(),
        Kind::Call(_, argument) => nodes_in(argument),
        Kind::Null | Kind::Text(_) | Kind::Unknown => 0,
    }
}

/// Merges two trees. If both have a value, the local value takes precedence.
pub(crate) fn merge(global: &Node, local: &Node) -> Node {
    match (&global.kind, &local.kind) {
        (Kind::Map(global_entries), Kind::Map(local_entries)) => {
            let mut entries: Vec<Entry> = Vec::new();
            for entry in global_entries {
                match local.get(&entry.key) {
                    Some(value) => {
                        let key_at = key_place(local_entries, &entry.key).unwrap_or(entry.key_at);
                        let value = merge(&entry.value, value);
                        entries.push(Entry { key: entry.key.clone(), key_at, value });
                    }
                    None => entries.push(entry.clone()),
                }
            }
            let only_local = local_entries.iter().filter(|entry| global.get(&entry.key).is_none());
            entries.extend(only_local.cloned());
            Node { at: local.at, kind: Kind::Map(entries) }
        }
        (Kind::List(first), Kind::List(second)) => {
            let items = first.iter().chain(second).cloned().collect();
            Node { at: local.at, kind: Kind::List(items) }
        }
        _ => local.clone(),
    }
}

fn key_place(entries: &[Entry], key: &str) -> Option<crate::diagnostic::Span> {
    entries.iter().find(|entry| entry.key == key).map(|entry| entry.key_at)
}
