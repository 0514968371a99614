//! A place in a template's text, without the text.

use std::fmt;

/// A place in the template's text: `line` and `column` count characters from 1, `width` is in
/// characters.
///
/// A place on several lines has the width of its part on the first one. Width 1 marks a position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The width in characters, at least 1.
    pub width: usize,
}

/// Formatted as `line:column`, so that a dump of a stack stays readable.
impl fmt::Debug for Span {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.line, self.column)
    }
}
