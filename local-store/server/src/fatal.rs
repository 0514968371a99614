//! The error that ends a process.

use std::fmt::Display;

use thiserror::Error;

/// The reason why a process cannot start, or its command failed: end the process, and show the text,
/// which says what the operator must do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Fatal(String);

/// Returns a [`Fatal`] with this text.
macro_rules! fatal {
    ($($part:tt)*) => { $crate::fatal::Fatal::new(format_args!($($part)*)) };
}
pub(crate) use fatal;

impl Fatal {
    /// Returns an error with the text of another error.
    pub(crate) fn new(reason: impl Display) -> Self {
        Self(reason.to_string())
    }
}
