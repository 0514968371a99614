//! The decisions of the stream functions: rules that turn stream records into effects.
//!
//! The crate is pure: no clock, disk, network or randomness. A rule cannot write. It returns an
//! [`Effect`], a statement of what must become true, and the processor applies the effect as often as
//! the record is delivered. Names of tables and buckets are not known here.

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

pub use effect::{Effect, Folded, Join, Joined, fold};
pub use rule::{Found, LookAhead, Needs, Refusal, Rule};
pub use stamp::Stamp;
