//! Reads the streams to prove that every write to the sources is applied to the targets, or in the
//! reverse direction, every write to the targets to the sources.

pub(crate) mod catch_up;
pub(crate) mod followers;
pub(crate) mod lost;
pub(crate) mod open;
pub(crate) mod proof;
pub(crate) mod shard_end;
pub(crate) mod stream_lag;
pub(crate) mod trimmed;
