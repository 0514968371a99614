//! A table's TTL setting.
//!
//! How it is carried out is in the crate's module `time_to_live`.

use serde::{Deserialize, Serialize};

/// A table's TTL setting. Enabling indexes the items that are already there, step by step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeToLive {
    /// Nothing expires.
    #[default]
    Disabled,
    /// New writes are indexed; older items up to the cursor are too.
    Enabling {
        /// The attribute that holds the time.
        attribute: String,
        /// The item key after which indexing goes on; `None` at the start.
        cursor: Option<Vec<u8>>,
    },
    /// Items expire.
    Enabled {
        /// The attribute that holds the time.
        attribute: String,
    },
    /// Nothing expires any more, and the index is being removed.
    Disabling {
        /// The attribute that held the time.
        attribute: String,
    },
}

impl TimeToLive {
    /// The attribute whose value is kept in the expiry index.
    #[must_use]
    pub fn indexed_attribute(&self) -> Option<&str> {
        match self {
            Self::Enabling { attribute, .. } | Self::Enabled { attribute } => Some(attribute),
            Self::Disabled | Self::Disabling { .. } => None,
        }
    }

    /// `ENABLING`, `ENABLED`, `DISABLING` or `DISABLED`.
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
