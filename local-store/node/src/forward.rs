//! How commands and their replies travel from the node that was asked to the leader and back.
//!
//! The bytes are for nodes of one version; nothing of it is kept on a disk.

use bytes::Bytes;
use model::EpochMillis;
use model::limits::REQUEST_TOKEN_LIFE_MS;
use partition::{Command, Reply};
use serde::{Deserialize, Serialize};

use crate::types::Payload;

/// What is older is not proposed any more: nobody has waited for it for long, and whoever asked has
/// perhaps asked again. While a token is remembered, the second one makes nothing twice; so the first
/// must not come after that. It can be so old only where a node stood still with it, or led without
/// a majority, or where clocks differ by that much.
const AGE_MS_MAX: u64 = REQUEST_TOKEN_LIFE_MS / 2;

/// What a node was asked to propose.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Submission {
    /// When, by the clock of the node that was asked first; that node changes it when it asks again
    /// for somebody who still waits.
    pub asked_at: EpochMillis,
    /// What, in this order.
    pub commands: Vec<Command>,
}

impl Submission {
    /// Whether it must not be proposed any more.
    #[must_use]
    pub fn is_too_old(&self, now: EpochMillis) -> bool {
        now.0.saturating_sub(self.asked_at.0) > AGE_MS_MAX
    }
}

/// A submission as bytes.
///
/// # Errors
/// Only for a defect of a command's encoding.
pub fn encode_submission(submission: &Submission) -> Result<Payload, String> {
    encode(submission)
}

/// Reads what [`encode_submission`] wrote.
///
/// # Errors
/// When the bytes are damaged or of another version.
pub fn decode_submission(payload: &Payload) -> Result<Submission, String> {
    postcard::from_bytes(payload.bytes()).map_err(|error| error.to_string())
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
    postcard::from_bytes(payload.bytes()).map_err(|error| error.to_string())
}

fn encode<T: Serialize>(value: &T) -> Result<Payload, String> {
    let bytes = postcard::to_stdvec(value).map_err(|error| error.to_string())?;
    Ok(Payload::new(Bytes::from(bytes)))
}
