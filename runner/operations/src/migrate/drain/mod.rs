//! Reads the streams to prove that every write to one side is applied to the other side.

pub(crate) mod catch_up;
pub(crate) mod followers;
pub(crate) mod lost;
pub(crate) mod open;
pub(crate) mod proof;
pub(crate) mod shard_end;
pub(crate) mod stream_lag;
pub(crate) mod trimmed;
