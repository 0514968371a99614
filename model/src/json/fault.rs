//! What is wrong with a value, in the service's words of today and in those of before.
//!
//! Since the middle of 2026 the service words it anew, operation by operation. Which operation has
//! which words is not known here.

use std::fmt;

/// A fault of a value, in both wordings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueFault {
    current: String,
    /// Where it is another one.
    older: Option<String>,
    /// See [`ValueFault::stands_alone`].
    stands_alone: bool,
}

impl ValueFault {
    pub(super) fn new(current: impl Into<String>, older: impl Into<String>) -> Self {
        Self { current: current.into(), older: Some(older.into()), stands_alone: true }
    }

    /// The same, of a fault that is told in one way only and stands alone.
    pub(super) fn alone(text: impl Into<String>) -> Self {
        Self { current: text.into(), older: None, stands_alone: true }
    }

    /// Whether nothing is told before it of where the value stood: of numbers that are none, and of
    /// sets that have a member twice or that are of numbers and have none.
    #[must_use]
    pub fn stands_alone(&self) -> bool {
        self.stands_alone
    }

    /// In today's words.
    #[must_use]
    pub fn current(&self) -> &str {
        &self.current
    }

    /// In the words of before.
    #[must_use]
    pub fn older(&self) -> &str {
        self.older.as_deref().unwrap_or(&self.current)
    }
}

/// A fault that is told in one way only.
impl From<String> for ValueFault {
    fn from(text: String) -> Self {
        Self { current: text, older: None, stands_alone: false }
    }
}

/// See above.
impl From<&str> for ValueFault {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

/// Today's words.
impl fmt::Display for ValueFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.current)
    }
}
