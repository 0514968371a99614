//! The encoding of commands that a node forwards to the leader, and of the replies.
//!
//! Both nodes must have the same version; these bytes are never stored.

use bytes::Bytes;
use model::EpochMillis;
use model::limits::REQUEST_TOKEN_LIFE_MS;
use partition::{Command, Reply};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::types::Payload;

/// The age in milliseconds from which a submission is rejected. The client of such an old
/// submission has timed out and may have retried. The client request token prevents the store from
/// applying both attempts, but only until the token expires. Therefore the first attempt must not
/// arrive after that. A submission gets this old only if a node was paused or led without a
/// majority, or if clocks differ by this much.
const AGE_MS_MAX: u64 = REQUEST_TOKEN_LIFE_MS / 2;

/// Commands to propose, and the time of their submission.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Submission {
    /// The time of submission, by the clock of the node that received the commands. That node
    /// updates the time when it retries for a waiting client.
    pub asked_at: EpochMillis,
    /// The commands, in order.
    pub commands: Vec<Command>,
}

impl Submission {
    /// Returns whether the submission is too old to be proposed.
    #[must_use]
    pub fn is_too_old(&self, now: EpochMillis) -> bool {
        now.0.saturating_sub(self.asked_at.0) > AGE_MS_MAX
    }
}

/// The reason why a submission or its replies cannot be encoded or decoded.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct ForwardError(#[from] postcard::Error);

/// Encodes a submission.
///
/// # Errors
/// When a command cannot be encoded, which is a bug.
pub fn encode_submission(submission: &Submission) -> Result<Payload, ForwardError> {
    encode(submission)
}

/// Decodes the bytes of [`encode_submission`].
///
/// # Errors
/// When the bytes are damaged, or were encoded by another version.
pub fn decode_submission(payload: &Payload) -> Result<Submission, ForwardError> {
    decode(payload)
}

/// Encodes replies.
///
/// # Errors
/// When a reply cannot be encoded, which is a bug.
pub fn encode_replies(replies: &[Reply]) -> Result<Payload, ForwardError> {
    encode(&replies)
}

/// Decodes the bytes of [`encode_replies`].
///
/// # Errors
/// When the bytes are damaged, or were encoded by another version.
pub fn decode_replies(payload: &Payload) -> Result<Vec<Reply>, ForwardError> {
    decode(payload)
}

/// Encodes a part of a message.
///
/// # Errors
/// When the value cannot be encoded, which is a bug.
pub(crate) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Payload, ForwardError> {
    Ok(Payload::new(Bytes::from(postcard::to_stdvec(value)?)))
}

/// Decodes the bytes of [`encode`].
///
/// # Errors
/// When the bytes are damaged, or were encoded by another version.
pub(crate) fn decode<'b, T: Deserialize<'b>>(payload: &'b Payload) -> Result<T, ForwardError> {
    Ok(postcard::from_bytes(payload.bytes())?)
}
