//! The decisions of the stream functions: rules that turn stream records into effects.
//!
//! Pure: no clock, no disk, no network, no randomness. A rule cannot write; what it wants is an
//! [`Effect`], a statement of what must become true, which the processor applies as often as it
//! is delivered. Names of tables and buckets are not known here.

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
