//! Points in time as plain numbers, which the caller passes.
//!
//! No code in this crate can read the current time.

use serde::{Deserialize, Serialize};

/// A point in time in milliseconds since 1970-01-01T00:00:00Z.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct EpochMillis(pub u64);

impl EpochMillis {
    /// Returns whole seconds, rounded down: the resolution of TTL attributes and of stream records.
    #[must_use]
    pub fn seconds(self) -> u64 {
        self.0 / 1000
    }

    /// Returns this time plus `millis`, saturating at the largest representable time.
    #[must_use]
    pub fn plus(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Returns the milliseconds from `earlier` to this time; 0 if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
