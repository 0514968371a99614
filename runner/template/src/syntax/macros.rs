//! What AWS replaces in a template before it reads it: transforms in the tree and loops.
//!
//! None of it is carried out here. What it adds is not known, so a name that is not in the template
//! may be in the result.

use crate::{
    diagnostic::{Findings, Span},
    syntax::node::{Entry, Kind, Node},
};

/// The transform that adds functions to the language of templates.
pub(crate) const EXTENSIONS: &str = "AWS::LanguageExtensions";

/// How the key of a loop begins.
pub(crate) const LOOP: &str = "Fn::ForEach";

/// The key of a transform in the tree.
pub(crate) const TRANSFORM: &str = "Fn::Transform";

/// Mappings this deep hold sections, resources and what a resource consists of. Deeper ones have no
/// names that other resources refer to.
pub(crate) const NAMES_DEPTH_MAX: usize = 2;

/// Warns of a transform that may add names.
pub(crate) fn note(argument: &Node, at: Span, findings: &Findings<'_>) {
    let name = argument.get("Name").and_then(Node::as_text).unwrap_or(TRANSFORM);
    findings.opens();
    findings.warning(
        at,
        format!("what `{name}` adds is not known here"),
        "write out what is to run here",
    );
}

/// Warns of each loop of a template that has loops; in another one they are errors.
pub(crate) fn check_loops(loops: &[Entry], root: Option<&Node>, findings: &Findings<'_>) {
    let transform = root.and_then(|root| root.get("Transform"));
    let has_loops = match transform.map(|node| &node.kind) {
        Some(Kind::List(items)) => items.iter().any(|item| item.as_text() == Some(EXTENSIONS)),
        Some(Kind::Text(name)) => name == EXTENSIONS,
        _ => false,
    };
    for Entry { key, key_at, .. } in loops {
        if has_loops {
            findings.warning(
                *key_at,
                format!("`{key}` is a loop, and loops are not carried out here"),
                "write out one by one what is to run here",
            );
        } else {
            findings.error(
                *key_at,
                format!("`{key}` needs `{EXTENSIONS}`, and this template does not ask for it"),
                format!("write `Transform: [{EXTENSIONS}]` at the top"),
            );
        }
    }
}
