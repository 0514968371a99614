//! Settings of a template that this machine does not emulate. `checks::elsewhere` lists them.

use crate::span::Span;

/// A resource, or one property of it, that the local runner does not emulate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotEmulated {
    /// The logical id of the resource, or the section (`Globals.Function`, `Rules`) if several
    /// resources or none have the setting.
    pub resource: String,
    /// The resource's type, empty for a section.
    pub kind: String,
    /// The path of the property below the resource; empty for the whole resource.
    pub property: String,
    /// The place of the setting in the template. For a setting that several resources have from SAM's
    /// globals, this is the place in the globals.
    pub at: Span,
    /// What happens on this machine instead.
    pub instead: String,
}
