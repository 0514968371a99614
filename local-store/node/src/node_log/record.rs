//! The encoding of a node's log records: one stream of records for all its groups.
//!
//! Entries, votes and truncations share the stream, so that one sync makes all of them durable and
//! their order on disk is the order of events. `docs/formats/log.md` documents the layout. This
//! module does no I/O.

use bytes::Bytes;
use openraft::EntryPayload;
use openraft::entry::RaftEntry;
use thiserror::Error;

use crate::log_id::{LogId, log_id};
use crate::ring::ArcId;
use crate::types::{Entry, Payload, Vote};
use storage::log;

/// The number of bytes before a record's body: kind, arc and index.
pub(crate) const HEAD_BYTES: usize = 13;

const BLANK: u8 = 1;
const COMMANDS: u8 = 2;
const MEMBERSHIP: u8 = 3;
const VOTE: u8 = 4;
const CUT: u8 = 5;
const PURGED: u8 = 6;
const LEFT: u8 = 7;
const JOINED: u8 = 8;

/// One record of a group.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Record {
    /// An entry of the group.
    Entry(Entry),
    /// The node's vote, or the leader that the node has accepted.
    Vote(Vote),
    /// Removes all entries from this index (inclusive) to the end.
    Cut(u64),
    /// Purges the entries up to the given position, inclusive. The state durably contains these
    /// entries.
    Purged(LogId),
    /// The node has left the group: it needs no entry of the group any more. Its last vote stays valid.
    Left,
    /// The node has joined the group. It takes part in elections, even if it has no entry yet.
    Joined,
}

/// The reason why a record cannot be decoded: it is damaged, or of another version.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid log record: {0}")]
pub(super) struct RecordError(String);

/// Encodes a record. Returns the term of its log entry, and the payload.
pub(super) fn encode(arc: ArcId, record: &Record) -> Result<(u64, log::Payload), RecordError> {
    let fail = |error: postcard::Error| RecordError(error.to_string());
    Ok(match record {
        Record::Entry(entry) => {
            let at = entry.log_id;
            let payload = match &entry.payload {
                EntryPayload::Blank => head(BLANK, arc, at.index, 0).into(),
                EntryPayload::Normal(payload) => {
                    let head = head(COMMANDS, arc, at.index, 0);
                    log::Payload::new(head, payload.bytes().clone())
                }
                EntryPayload::Membership(membership) => {
                    let head = head(MEMBERSHIP, arc, at.index, 64);
                    postcard::to_extend(membership, head).map_err(fail)?.into()
                }
            };
            (at.leader_id.term, payload)
        }
        Record::Vote(vote) => {
            let payload = postcard::to_extend(vote, head(VOTE, arc, 0, 16)).map_err(fail)?;
            (vote.leader_id.term, payload.into())
        }
        Record::Cut(from) => (0, head(CUT, arc, *from, 0).into()),
        Record::Left => (0, head(LEFT, arc, 0, 0).into()),
        Record::Joined => (0, head(JOINED, arc, 0, 0).into()),
        Record::Purged(at) => (at.leader_id.term, head(PURGED, arc, at.index, 0).into()),
    })
}

fn head(kind: u8, arc: ArcId, index: u64, body_bytes: usize) -> Vec<u8> {
    let mut payload = Vec::with_capacity(HEAD_BYTES + body_bytes);
    payload.push(kind);
    payload.extend_from_slice(&arc.0.to_le_bytes());
    payload.extend_from_slice(&index.to_le_bytes());
    payload
}

/// Decodes a record from a payload of [`encode`] in contiguous bytes.
pub(super) fn decode(term: u64, payload: Vec<u8>) -> Result<(ArcId, Record), RecordError> {
    let short =
        || RecordError(format!("the record is too short: it has only {} bytes", payload.len()));
    let (kind, rest) = payload.split_first().ok_or_else(short)?;
    let (arc, rest) = rest.split_first_chunk().ok_or_else(short)?;
    let (index, body) = rest.split_first_chunk().ok_or_else(short)?;
    let (kind, arc) = (*kind, ArcId(u32::from_le_bytes(*arc)));
    let at = log_id(term, u64::from_le_bytes(*index));
    let fail = |error: postcard::Error| RecordError(error.to_string());
    let entry = |payload| Record::Entry(Entry::new(at, payload));
    let record = match kind {
        BLANK => entry(EntryPayload::Blank),
        MEMBERSHIP => entry(EntryPayload::Membership(postcard::from_bytes(body).map_err(fail)?)),
        VOTE => Record::Vote(postcard::from_bytes(body).map_err(fail)?),
        CUT => Record::Cut(at.index),
        PURGED => Record::Purged(at),
        LEFT => Record::Left,
        JOINED => Record::Joined,
        COMMANDS => {
            let body = Bytes::from(payload).slice(HEAD_BYTES..);
            entry(EntryPayload::Normal(Payload::new(body)))
        }
        unknown => return Err(RecordError(format!("kind {unknown} is unknown"))),
    };
    Ok((arc, record))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use openraft::Membership;
    use openraft::impls::leader_id_std::LeaderId;

    use super::*;

    fn vote() -> Vote {
        openraft::Vote { leader_id: LeaderId { term: 7, voted_for: 2 }, committed: true }
    }

    #[test]
    fn every_kind_round_trips() {
        let members: BTreeSet<u64> = [1, 2, 3].into();
        let membership: Membership<u64, openraft::impls::EmptyNode> =
            Membership::new(vec![members.clone()], members).unwrap();
        let body = Payload::new(Bytes::from_static(b"commands"));
        let records = [
            Record::Entry(Entry::new(log_id(7, 9), EntryPayload::Blank)),
            Record::Entry(Entry::new(log_id(7, 10), EntryPayload::Normal(body))),
            Record::Entry(Entry::new(log_id(8, 0), EntryPayload::Membership(membership))),
            Record::Vote(vote()),
            Record::Cut(12),
            Record::Purged(log_id(3, 8)),
            Record::Left,
            Record::Joined,
        ];
        for record in records {
            let (term, payload) = encode(ArcId(5), &record).unwrap();
            assert_eq!(decode(term, payload.into_bytes()).unwrap(), (ArcId(5), record));
        }
    }

    #[test]
    fn the_layout_is_as_drawn() {
        let body = Payload::new(Bytes::from_static(b"c"));
        let record = Record::Entry(Entry::new(log_id(7, 0x0102), EntryPayload::Normal(body)));
        let (term, payload) = encode(ArcId(5), &record).unwrap();
        assert_eq!(term, 7);
        assert_eq!(payload.into_bytes(), [2, 5, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, b'c']);
    }

    #[test]
    fn invalid_records_are_refused() {
        for payload in [vec![], vec![2, 0, 0], vec![9; 20], vec![VOTE; 13]] {
            assert!(decode(1, payload.clone()).is_err(), "{payload:?}");
        }
    }
}
