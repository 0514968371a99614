//! A location in a template's text.

use std::fmt;

/// A location in the template's text. `line` and `column` are counted from 1. `column` and `width`
/// are in characters.
///
/// For a location that spans several lines, `width` covers only the first line. A single position
/// has the width 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// The line number, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The width in characters, at least 1.
    pub width: usize,
}

/// Formats the location as `line:column`, so that a debug output of a stack is readable.
impl fmt::Debug for Span {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.line, self.column)
    }
}
