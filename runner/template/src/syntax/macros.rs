//! Transforms and loops, which AWS expands before it reads a template. Weir does not expand them. A
//! name that is missing in the template may therefore exist on AWS.

use crate::{
    diagnostic::{Findings, Span},
    syntax::node::{Entry, Kind, Node},
};

/// The transform that enables additional intrinsic functions.
pub(crate) const EXTENSIONS: &str = "AWS::LanguageExtensions";

/// The prefix of the key of a loop.
pub(crate) const LOOP: &str = "Fn::ForEach";

/// The key of a transform in the tree.
pub(crate) const TRANSFORM: &str = "Fn::Transform";

/// Maximum depth of mappings whose keys other resources can reference: sections, resources and
/// their attributes.
pub(crate) const NAMES_DEPTH_MAX: usize = 2;

/// Warns that a transform may add names.
pub(crate) fn note(argument: &Node, at: Span, findings: &Findings<'_>) {
    let name = argument.get("Name").and_then(Node::as_text).unwrap_or(TRANSFORM);
    findings.opens();
    findings.warning(
        at,
        format!("the resources that `{name}` adds are unknown"),
        "write explicitly the resources that should run on this machine",
    );
}

/// Warns about each loop. If the template does not declare the transform for loops, each loop is an
/// error.
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
                format!("the loop `{key}` is not expanded"),
                "write explicitly the resources that should run on this machine",
            );
        } else {
            findings.error(
                *key_at,
                format!("`{key}` needs the transform `{EXTENSIONS}`, which this template does not declare"),
                format!("write `Transform: [{EXTENSIONS}]` at the top"),
            );
        }
    }
}
