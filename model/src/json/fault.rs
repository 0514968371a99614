//! Faults of values, in DynamoDB's current wording and in its wording until mid-2026.
//!
//! DynamoDB has been changing the messages since mid-2026, one operation at a time. The server
//! selects the wording for each operation.

use std::fmt;

/// A fault of a value, in DynamoDB's current wording and in its wording until mid-2026.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueFault {
    current: String,
    /// The message until mid-2026, if it differs from the current message.
    older: Option<String>,
    /// See [`ValueFault::stands_alone`].
    stands_alone: bool,
}

impl ValueFault {
    pub(super) fn new(current: impl Into<String>, older: impl Into<String>) -> Self {
        Self { current: current.into(), older: Some(older.into()), stands_alone: true }
    }

    /// Creates a fault whose message did not change in mid-2026, and does not name the location of
    /// the value: see [`ValueFault::stands_alone`].
    pub(super) fn alone(text: impl Into<String>) -> Self {
        Self { current: text.into(), older: None, stands_alone: true }
    }

    /// Returns true if DynamoDB's message does not name the location of the value. Examples are
    /// messages for invalid numbers, sets with duplicates, and empty number sets.
    #[must_use]
    pub fn stands_alone(&self) -> bool {
        self.stands_alone
    }

    /// Returns DynamoDB's current message.
    #[must_use]
    pub fn current(&self) -> &str {
        &self.current
    }

    /// Returns DynamoDB's message until mid-2026.
    #[must_use]
    pub fn older(&self) -> &str {
        self.older.as_deref().unwrap_or(&self.current)
    }
}

/// Creates a fault whose message did not change in mid-2026.
impl From<String> for ValueFault {
    fn from(text: String) -> Self {
        Self { current: text, older: None, stands_alone: false }
    }
}

/// Creates a fault whose message did not change in mid-2026.
impl From<&str> for ValueFault {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

/// Writes DynamoDB's current message.
impl fmt::Display for ValueFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.current)
    }
}
