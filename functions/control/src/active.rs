//! Which migrations functions follow now, and which tables migrations move items between.
//!
//! Item `*` / `ACTIVE`, of which there is one: `active`, by migration its `direction`, the `fingerprint`
//! of its plan and `since`; `moves`, by migration that has not ended the pairs `<source>><target>`.
//! A function reads it in each invocation.

use std::collections::{BTreeMap, BTreeSet};

use rules::migration::Direction;
use serde::{Deserialize, Serialize};

use crate::entry::{Entry, SHARED, is_default, revised};

/// The migrations that functions follow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Active {
    /// The revision of the entry.
    #[serde(default, skip_serializing_if = "is_default")]
    pub revision: u64,
    /// By migration: how functions follow it.
    #[serde(default)]
    pub active: BTreeMap<String, Followed>,
    /// By migration that has not ended: from which table into which it moves items.
    #[serde(default, skip_serializing_if = "is_default")]
    pub moves: BTreeMap<String, BTreeSet<String>>,
}

/// How functions follow a migration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Followed {
    /// Which way items go.
    pub direction: Direction,
    /// The fingerprint of its plan.
    pub fingerprint: String,
    /// The second, since 1970, up to which stream records are passed over: a backfill reads what they say.
    #[serde(default)]
    pub since: i64,
}

impl Active {
    /// The name of the entry.
    pub const NAME: &'static str = "ACTIVE";

    /// Removes a migration; returns whether it was there.
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
