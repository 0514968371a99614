//! The rules of the stream functions. Each rule converts stream records to effects.
//!
//! The crate has no clock, I/O or randomness. A rule cannot write: it returns an [`Effect`], a
//! statement about the required state of a target. The processor applies the effect each time the
//! record is delivered. The caller knows the names of tables and buckets.

pub mod archive;
pub mod counters;
pub mod effect;
pub mod fan_out;
mod jq;
pub mod marks;
pub mod migration;
pub mod rule;
pub mod stamp;
pub mod time_to_live;
pub mod versions;

pub use effect::{Effect, Fold, Folded, Join, Joined, fold};
pub use rule::{Found, LookAhead, Needs, Refusal, Rule};
pub use stamp::Stamp;
