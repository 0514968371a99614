//! The position of a replica in its log, and its membership, as its state stores them.

use std::collections::BTreeSet;
use std::io;

use partition::View;

use crate::error::StartError;
use crate::log_id::LogId;
use crate::node_log::NodeLog;
use crate::ring::ArcId;
use crate::types::{NodeId, StoredMembership};

/// The key of the replica's own state. It sorts after every key of the state machine.
pub(super) const APPLIED_KEY: [u8; 2] = [0xf0, 1];
/// The key of the membership as of the last applied entry.
pub(crate) const MEMBERSHIP_KEY: [u8; 2] = [0xf0, 2];

pub(super) fn encode<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, io::Error> {
    postcard::to_stdvec(value).map_err(io::Error::other)
}

/// Returns the last log position in a state, and the membership at that position.
pub(super) fn read_place(view: &dyn View) -> Result<(Option<LogId>, StoredMembership), io::Error> {
    let read = |key: &[u8]| view.get(key).map_err(io::Error::other);
    let applied = match read(&APPLIED_KEY)? {
        Some(bytes) => Some(postcard::from_bytes(&bytes).map_err(io::Error::other)?),
        None => None,
    };
    let membership = match read(&MEMBERSHIP_KEY)? {
        Some(bytes) => postcard::from_bytes(&bytes).map_err(io::Error::other)?,
        None => StoredMembership::default(),
    };
    Ok((applied, membership))
}

/// Decodes the value of [`MEMBERSHIP_KEY`]. Returns the log index of the membership, and all voters and
/// learners; index 0 and no members if there is no value.
///
/// # Errors
/// When the bytes are damaged, or of another version.
pub(crate) fn decode_membership(bytes: &[u8]) -> Result<(u64, BTreeSet<NodeId>), io::Error> {
    if bytes.is_empty() {
        return Ok((0, BTreeSet::new()));
    }
    let stored: StoredMembership = postcard::from_bytes(bytes).map_err(io::Error::other)?;
    let index = stored.log_id().as_ref().map_or(0, |at| at.index);
    Ok((index, stored.membership().nodes().map(|(node, _)| *node).collect()))
}

/// Rejects a state that lacks entries which the log has purged, because this node cannot restore
/// them. A state that is ahead of the log is accepted. It occurs after a crash between the adoption
/// of a received snapshot and the purge of the log. It also occurs after a crash of a node that had
/// applied an entry which only a majority of other nodes had synced.
///
/// # Errors
/// The range of missing entries, or a failed read of the state.
pub fn check_continuity(log: &NodeLog, arc: ArcId, view: &dyn View) -> Result<(), StartError> {
    let Some(purged) = log.purged(arc) else { return Ok(()) };
    let (applied, _) = read_place(view)?;
    let from = applied.map_or(0, |at| at.index + 1);
    if from > purged { Ok(()) } else { Err(StartError::MissingEntries { arc, from, upto: purged }) }
}
