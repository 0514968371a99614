//! The route of a migration: the side (sources or targets) that the application reads and writes.
//!
//! Item name / `ROUTE`, where `name` is the route's name: the plan's `route`, by default the
//! migration's name. `read` and `write` are `source` or `target`; `write` is `none` while writers
//! are blocked. `revision` is the epoch, which increases with each change. The application reads
//! this entry.

use serde::{Deserialize, Serialize};

use crate::entry::{Entry, is_default, revised};

/// A side of a migration: the sources, the targets, or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The tables that the plan reads.
    Source,
    /// The tables that the plan writes.
    Target,
    /// Neither: writers are blocked.
    None,
}

impl Side {
    /// Returns the name of the side in the entry.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Target => "target",
            Self::None => "none",
        }
    }
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The name of the route, which is the partition of its entry.
    pub migration: String,
    /// The migration that uses the route; `None` if the migration has the same name as the route.
    #[serde(default, skip_serializing_if = "is_default")]
    pub run: Option<String>,
    /// The revision of the entry, which is the epoch of the route.
    #[serde(default, skip_serializing_if = "is_default")]
    pub revision: u64,
    /// The side that readers use.
    pub read: Side,
    /// The side that writers use.
    pub write: Side,
}

impl Route {
    /// The name of the entry.
    pub const NAME: &'static str = "ROUTE";

    /// Returns the initial route, for a name that has no route in the table yet.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let migration = name.to_owned();
        Self { migration, run: None, revision: 0, read: Side::Source, write: Side::Source }
    }

    /// Returns the migration that uses the route, or used it last.
    #[must_use]
    pub fn owner(&self) -> &str {
        self.run.as_deref().unwrap_or(&self.migration)
    }

    /// Stores the name of the migration that uses the route.
    pub fn set_owner(&mut self, migration: &str) {
        self.run = (self.migration != migration).then(|| migration.to_owned());
    }

    /// Returns whether this is the route of a migration.
    #[must_use]
    pub fn is_of(&self, migration: &str) -> bool {
        self.revision == 0 || self.owner() == migration
    }

    /// Returns whether writers are blocked.
    #[must_use]
    pub fn blocks_writers(&self) -> bool {
        self.write == Side::None
    }
}

impl Entry for Route {
    fn partition(&self) -> String {
        self.migration.clone()
    }

    fn name(&self) -> String {
        Self::NAME.to_owned()
    }
}

revised!(Route);
