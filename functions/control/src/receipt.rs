//! The receipt of a purge: what the purge removed.
//!
//! Item name / `RECEIPT`: `receipt`, JSON in the format `weir.migration.receipt/v1`. The entry is
//! written once.

use serde::{Deserialize, Serialize};

use crate::entry::{Entry, is_default, revised};

/// The receipt of a purge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The migration.
    pub migration: String,
    /// The revision of the entry.
    #[serde(default, skip_serializing_if = "is_default")]
    pub revision: u64,
    /// The receipt as JSON.
    pub receipt: String,
}

impl Receipt {
    /// The name of the entry.
    pub const NAME: &'static str = "RECEIPT";
}

impl Entry for Receipt {
    fn partition(&self) -> String {
        self.migration.clone()
    }

    fn name(&self) -> String {
        Self::NAME.to_owned()
    }
}

revised!(Receipt);
