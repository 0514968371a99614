//! Migrations as a state machine over one table: a type for each entry of the control table, every move
//! (state transition) of a migration, and the switch of readers and writers.
//!
//! The command line and the workers communicate through this table. A command writes the requested
//! work. A worker reads it from the table's stream and writes its progress. The fields of a type
//! are the attributes of its item, so the types define the layout; `docs/formats/control.md`
//! describes it for other readers. This crate does not read or write the table.

mod active;
mod entry;
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
mod task_decision;
mod throttled;
mod tombstone;
pub mod verbs;

#[cfg(test)]
mod round_trip_tests;

pub use active::{Active, Followed};
pub use entry::{Entry, PARTITION_KEY, REVISION, Revised, SHARED, SORT_KEY};
pub use expect::{Expect, UnexpectedState};
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
pub use switch::{Cause, End, Next, Outcome, Step, Switch, SwitchFacts};
pub use task::{BACKFILL_RUN, Copied, Task, Work};
pub use task_decision::TaskDecision;
pub use throttled::Throttled;
pub use tombstone::{Tombstone, tombstone_partitions};
