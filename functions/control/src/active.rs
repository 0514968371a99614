//! The entry of active migrations: the migrations that functions follow, and the tables between
//! which items move.
//!
//! One item, `*` / `ACTIVE`:
//! - `active` maps a migration to its `direction`, the `fingerprint` of its plan, and `since`.
//! - `moves` maps a migration that has not ended to its pairs `<source>><target>`.
//!
//! A function reads the item in each invocation.

use std::collections::{BTreeMap, BTreeSet};

use rules::migration::Direction;
use serde::{Deserialize, Serialize};

use crate::entry::{Entry, SHARED, is_default, revised};

/// The active migrations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Active {
    /// The revision of the entry.
    #[serde(default, skip_serializing_if = "is_default")]
    pub revision: u64,
    /// The way in which functions follow each migration, by the migration's name.
    #[serde(default)]
    pub active: BTreeMap<String, Followed>,
    /// The pairs of source and target table of each migration that has not ended, by its name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub moves: BTreeMap<String, BTreeSet<String>>,
}

/// The way in which functions follow one migration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Followed {
    /// The direction in which items move.
    pub direction: Direction,
    /// The fingerprint of the migration's plan.
    pub fingerprint: String,
    /// The time in seconds since 1970 up to which functions skip stream records. The backfill reads
    /// the items of these records.
    #[serde(default)]
    pub since: i64,
}

impl Active {
    /// The name of the entry.
    pub const NAME: &'static str = "ACTIVE";

    /// Removes a migration. Returns whether the entry contained the migration.
    pub fn remove(&mut self, migration: &str) -> bool {
        let was_followed = self.active.remove(migration).is_some();
        self.moves.remove(migration).is_some() || was_followed
    }
}

impl Entry for Active {
    fn partition(&self) -> String {
        SHARED.to_owned()
    }

    fn name(&self) -> String {
        Self::NAME.to_owned()
    }
}

revised!(Active);
