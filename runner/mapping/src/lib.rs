//! An event source mapping as a pure state machine. It decides which records of a stream a function
//! receives, when and how often the records are delivered, and what happens when the function
//! fails.
//!
//! The crate has no clock, I/O, randomness or async. The poller in the crate `local` sends inputs
//! and executes commands.
//!
//! Guarantees, even after failures:
//!
//! - Each record that passes the filter is delivered until the function has processed it or it is
//!   discarded. A discarded record is stored in the failure destination, if there is one.
//! - Delivery is in order within a lane: with one lane, within the shard; with several lanes, for
//!   each item.
//! - The checkpoint of a shard never passes a record that is neither done nor discarded. The
//!   checkpoints of all shards are a consistent cut: a child has no progress before its parent is
//!   closed.
//! - If the stream trimmed records before they were read, the mapping reports a gap. The shard and
//!   its descendants are blocked until the operator accepts the gap.

mod back_off;
mod checkpoint;
mod command;
mod context;
mod failure;
pub mod faults;
mod filter;
mod id;
mod lane;
mod lineage;
mod machine;
mod progress;
mod queue;
mod record;
mod response;
mod sequence;
mod settings;
mod shard;
mod status;
mod tumbling;
mod work;

#[cfg(test)]
mod arrival_tests;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the cases are in files")]
mod cases;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the cases are in files")]
mod parity;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod text_tests;

pub use self::back_off::BackOff;
pub use self::back_off::{mix, seed_of};
pub use self::checkpoint::{CheckpointPosition, Checkpoints, ShardCheckpoint};
pub use self::command::{
    Command, Event, Input, InvokeOutcome, Now, ReadFailure, ReadFrom, ShardDescription,
};
pub use self::context::Totals;
pub use self::failure::{Condition, FailureObject};
pub use self::filter::{
    Clause, FilterCriteria, InvalidFilter, ItemValues, PATTERN_CHARACTERS_MAX, PATTERNS_MAX,
    PatternFault, RecordShape, Remark, UnknownName, Verdict,
};
pub use self::id::{BatchId, DeliveryId, ShardId};
pub use self::machine::{BUFFER_BYTES_MAX, Mapping};
pub use self::record::{Delivery, EVENT_BYTES_MAX, RETENTION_MS, Record, event, event_bytes};
pub use self::response::{Answer, read_answer};
pub use self::sequence::{DIGITS_MAX, InvalidSequenceNumber, SequenceNumber};
pub use self::settings::{
    BATCH_SIZE_MAX, BATCHING_WINDOW_MS_MAX, Faults, InvalidSetting, PARALLELIZATION_FACTOR_MAX,
    Pace, RECORD_AGE_MS, RETRY_ATTEMPTS_MAX, Settings, StartingPosition, TUMBLING_WINDOW_S_MAX,
};
pub use self::shard::Phase;
pub use self::status::{ShardStatus, Status};
pub use self::tumbling::{OpenWindow, STATE_BYTES_MAX, Window, WindowInvocation};
