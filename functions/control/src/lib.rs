//! Migrations as a state machine over one table: each entry of the control table as a type, every move of
//! a migration, and the switch of readers and writers.
//!
//! The command line and the workers meet in this table: a verb writes what shall be done, a worker reads
//! it from the table's stream and writes how far it came. The fields of a type are the attributes of its
//! item, so the type is the layout; `docs/formats/control.md` says what they mean to others who read
//! them. Nothing here reads or writes the table.

mod active;
mod expect;
mod followed;
mod journal_line;
mod lag;
mod moves;
mod plan;
mod problem;
mod receipt;
mod record_time;
mod route;
mod state;
mod switch;
mod task;
mod throttled;
mod tombstone;
mod turn;
pub mod verbs;

#[cfg(test)]
mod round_trip_tests;

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use active::{Active, Followed};
pub use expect::{Broken, Expect};
pub use followed::FollowedTable;
pub use journal_line::JournalLine;
pub use lag::Lag;
pub use moves::Move;
pub use plan::PlanEntry;
pub use problem::{Problem, ProblemKind};
pub use receipt::Receipt;
pub use record_time::RecordTime;
pub use route::{Route, Side};
pub use state::{COMPARISON_SECONDS, Comparing, State, Verified};
pub use switch::{Cause, End, Known, Next, Outcome, Step, Switch};
pub use task::{BACKFILL_RUN, Copied, Task, Work};
pub use throttled::Throttled;
pub use tombstone::{Tombstone, tombstone_partitions};
pub use turn::Turn;

/// The attribute that is the table's partition key.
pub const PARTITION_KEY: &str = "migration";
/// The attribute that is the table's sort key.
pub const SORT_KEY: &str = "entry";
/// The attribute by which a change is guarded.
pub const REVISION: &str = "revision";
/// The partition of entries that belong to no single migration.
pub const SHARED: &str = "*";

/// An entry of the control table.
///
/// Its attributes are those of the type; the two keys are added from [`Entry::partition`] and
/// [`Entry::name`].
pub trait Entry: Serialize + DeserializeOwned + Clone + Debug + PartialEq + Send + Sync {
    /// Returns the partition key.
    fn partition(&self) -> String;

    /// Returns the sort key.
    fn name(&self) -> String;
}

/// An entry that is replaced only while it still has the revision that was read.
pub trait Revised: Entry {
    /// Returns the revision; 0 of an entry that is not in the table.
    fn revision(&self) -> u64;

    /// Sets the revision.
    fn set_revision(&mut self, revision: u64);

    /// Returns the entry one revision later, as it is to be written.
    #[must_use]
    fn next(mut self) -> Self {
        self.set_revision(self.revision().saturating_add(1));
        self
    }
}

/// Implements [`Revised`] for a type with a field `revision`.
macro_rules! revised {
    ($entry:ty) => {
        impl $crate::Revised for $entry {
            fn revision(&self) -> u64 {
                self.revision
            }

            fn set_revision(&mut self, revision: u64) {
                self.revision = revision;
            }
        }
    };
}
use revised;

/// Whether a field has its default value, which an item does not store.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
