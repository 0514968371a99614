//! How commands and their replies travel from the node that was asked to the leader and back.
//!
//! The bytes are for nodes of one version; nothing of it is kept on a disk.

use bytes::Bytes;
use partition::{Command, Reply};

use super::types::Payload;

/// Commands as bytes.
///
/// # Errors
/// Only for a defect of a command's encoding.
pub fn encode_commands(commands: &[Command]) -> Result<Payload, String> {
    encode(&commands)
}

/// Reads what [`encode_commands`] wrote.
///
/// # Errors
/// When the bytes are damaged or of another version.
pub fn decode_commands(payload: &Payload) -> Result<Vec<Command>, String> {
    postcard::from_bytes(&payload.0).map_err(|error| error.to_string())
}

/// Replies as bytes.
///
/// # Errors
/// Only for a defect of a reply's encoding.
pub fn encode_replies(replies: &[Reply]) -> Result<Payload, String> {
    encode(&replies)
}

/// Reads what [`encode_replies`] wrote.
///
/// # Errors
/// When the bytes are damaged or of another version.
pub fn decode_replies(payload: &Payload) -> Result<Vec<Reply>, String> {
    postcard::from_bytes(&payload.0).map_err(|error| error.to_string())
}

fn encode<T: serde::Serialize>(value: &T) -> Result<Payload, String> {
    let bytes = postcard::to_stdvec(value).map_err(|error| error.to_string())?;
    Ok(Payload(Bytes::from(bytes)))
}
