//! The plan of a migration, stored when the migration starts.
//!
//! Item name / `PLAN`: `plan`, the plan as JSON. The plan's fingerprint is computed from this JSON.

use serde::{Deserialize, Serialize};

use crate::entry::{Entry, is_default, revised};

/// The plan of a migration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanEntry {
    /// The migration.
    pub migration: String,
    /// The revision of the entry.
    #[serde(default, skip_serializing_if = "is_default")]
    pub revision: u64,
    /// The plan as JSON.
    pub plan: String,
}

impl PlanEntry {
    /// The name of the entry.
    pub const NAME: &'static str = "PLAN";
}

impl Entry for PlanEntry {
    fn partition(&self) -> String {
        self.migration.clone()
    }

    fn name(&self) -> String {
        Self::NAME.to_owned()
    }
}

revised!(PlanEntry);
