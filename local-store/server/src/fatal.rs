//! The error that ends a process, and its end after a disk failure.

use std::fmt::Display;

use thiserror::Error;

/// The reason why a process cannot start, or its command failed: end the process, and show the text,
/// which says what the operator must do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Fatal(String);

/// Returns a [`Fatal`] with this text.
#[macro_export]
macro_rules! fatal {
    ($($part:tt)*) => { $crate::fatal::Fatal::new(format_args!($($part)*)) };
}
pub use fatal;

impl Fatal {
    /// Returns an error with the text of another error.
    #[must_use]
    pub fn new(reason: impl Display) -> Self {
        Self(reason.to_string())
    }
}

/// Ends the process after a disk failure. Only a restart can determine which unacknowledged writes are
/// on disk.
pub fn end_process(reason: &str) {
    tracing::error!(
        reason,
        "the store stops because of a disk failure; repair the disk, then restart the store"
    );
    std::process::exit(1);
}
