//! A table's TTL setting.
//!
//! The crate's module `time_to_live` implements TTL.

use serde::{Deserialize, Serialize};

/// A table's TTL setting. Enabling it indexes the existing items step by step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeToLive {
    /// Nothing expires.
    #[default]
    Disabled,
    /// Writes maintain the expiry entries. Older items up to the cursor have their expiry entries,
    /// too.
    Enabling {
        /// The attribute that holds the time.
        attribute: String,
        /// The item key after which indexing continues; `None` at the start.
        cursor: Option<Vec<u8>>,
    },
    /// Items expire.
    Enabled {
        /// The attribute that holds the time.
        attribute: String,
    },
    /// Items no longer expire, and the expiry entries are being removed.
    Disabling {
        /// The attribute that held the time.
        attribute: String,
    },
}

impl TimeToLive {
    /// Returns the attribute whose values are in the expiry entries.
    #[must_use]
    pub fn indexed_attribute(&self) -> Option<&str> {
        match self {
            Self::Enabling { attribute, .. } | Self::Enabled { attribute } => Some(attribute),
            Self::Disabled | Self::Disabling { .. } => None,
        }
    }

    /// Returns `ENABLING`, `ENABLED`, `DISABLING` or `DISABLED`.
    #[must_use]
    pub fn status(&self) -> &'static str {
        match self {
            Self::Disabled => "DISABLED",
            Self::Enabling { .. } => "ENABLING",
            Self::Enabled { .. } => "ENABLED",
            Self::Disabling { .. } => "DISABLING",
        }
    }
}
