//! Settings of a template that Weir does not emulate. `checks::elsewhere` lists them.

use crate::span::Span;

/// A resource, or one property of it, that the local runner does not emulate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotEmulated {
    /// The logical id of the resource. If several resources or no resource have the setting, the
    /// name of the section (`Globals.Function`, `Rules`).
    pub resource: String,
    /// The resource's type; empty for a section.
    pub kind: String,
    /// The path of the property within the resource; empty for the entire resource.
    pub property: String,
    /// The location of the setting in the template. For a setting from SAM's globals that several
    /// resources share, the location in the globals.
    pub at: Span,
    /// The behaviour on this machine instead.
    pub instead: String,
}
