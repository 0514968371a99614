//! What a template has and this machine does not carry out.
//! It does not say what that is; see `checks::elsewhere`.

use crate::span::Span;

/// A resource, or one property of it, that the local runner does not carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotEmulated {
    /// The logical id, or the section when it is not about one resource (`Globals.Function`,
    /// `Rules`).
    pub resource: String,
    /// The resource's type, empty for a section.
    pub kind: String,
    /// The path of the property below the resource; empty when the whole resource is meant.
    pub property: String,
    /// Where it stands; in SAM's globals when several resources have it from there.
    pub at: Span,
    /// What happens on this machine instead.
    pub instead: String,
}
