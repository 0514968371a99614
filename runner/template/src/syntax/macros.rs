//! Transforms and loops, which AWS replaces before it reads a template. They are not applied here.
//! A name that is missing in the template may therefore exist in AWS's result.

use crate::{
    diagnostic::{Findings, Span},
    syntax::node::{Entry, Kind, Node},
};

/// The transform that adds intrinsic functions.
pub(crate) const EXTENSIONS: &str = "AWS::LanguageExtensions";

/// The prefix of a loop's key.
pub(crate) const LOOP: &str = "Fn::ForEach";

/// The key of a transform in the tree.
pub(crate) const TRANSFORM: &str = "Fn::Transform";

/// Maximum depth of mappings that can contain names to which other resources refer: sections,
/// resources and their parts.
pub(crate) const NAMES_DEPTH_MAX: usize = 2;

/// Warns of a transform that may add names.
pub(crate) fn note(argument: &Node, at: Span, findings: &Findings<'_>) {
    let name = argument.get("Name").and_then(Node::as_text).unwrap_or(TRANSFORM);
    findings.opens();
    findings.warning(
        at,
        format!("the resources that `{name}` adds are unknown"),
        "write the resources that should run here explicitly",
    );
}

/// Warns of each loop, if the template has the transform for loops. In any other template, loops
/// are errors.
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
                "write the resources that should run here explicitly",
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
