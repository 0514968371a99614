//! A table's TTL setting.
//!
//! The crate's module `time_to_live` implements TTL.

use serde::{Deserialize, Serialize};

/// A table's TTL setting. After TTL is enabled, existing items get their expiry entries step by
/// step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeToLive {
    /// TTL is disabled: items do not expire.
    #[default]
    Disabled,
    /// TTL is being enabled, and writes already maintain the expiry entries. Older items have their
    /// expiry entries up to the cursor.
    Enabling {
        /// The attribute that contains the expiry time.
        attribute: String,
        /// The key of the item after which indexing continues; `None` at the start.
        cursor: Option<Vec<u8>>,
    },
    /// TTL is enabled: items expire.
    Enabled {
        /// The attribute that contains the expiry time.
        attribute: String,
    },
    /// Items no longer expire, and the expiry entries are being removed.
    Disabling {
        /// The attribute that contained the expiry time.
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

    /// Returns the status in the API: `ENABLING`, `ENABLED`, `DISABLING` or `DISABLED`.
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
