//! The marker that a command writes to check the timestamps of stream records. A switch needs these
//! timestamps to separate the changes before it from those after it.
//!
//! Item `*` / `RECORD_TIME`: `marker`, a name that each check replaces; `behind`, the largest
//! number of seconds by which the timestamp of a marker's record lagged behind the store's clock.

use serde::{Deserialize, Serialize};

use crate::entry::{Entry, SHARED, is_default, revised};

/// The entry of the marker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordTime {
    /// The revision of the entry.
    #[serde(default, skip_serializing_if = "is_default")]
    pub revision: u64,
    /// The name of the last marker.
    #[serde(default, skip_serializing_if = "is_default")]
    pub marker: String,
    /// The largest lag of record times behind the store's clock, in seconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub behind: u64,
}

impl RecordTime {
    /// The name of the entry.
    pub const NAME: &'static str = "RECORD_TIME";
}

impl Entry for RecordTime {
    fn partition(&self) -> String {
        SHARED.to_owned()
    }

    fn name(&self) -> String {
        Self::NAME.to_owned()
    }
}

revised!(RecordTime);
