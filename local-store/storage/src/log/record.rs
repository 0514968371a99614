//! The encoding of one entry: a header of 40 bytes, the payload, and zeros up to the next multiple
//! of 8 bytes.
//!
//! This module does no I/O. `docs/formats/log.md` documents the layout.

use bytes::Bytes;
use crc32c::{crc32c, crc32c_append};
use partition::mutation::{self, Mutation};

/// The payload of an entry, in two parts. The second part can be shared, for example between the
/// nodes of one process. The log contains the concatenation of both parts.
#[derive(Debug, Clone, Default)]
pub struct Payload {
    head: Vec<u8>,
    body: Bytes,
}

impl Payload {
    /// Creates a payload of two parts.
    pub fn new(head: Vec<u8>, body: Bytes) -> Self {
        Self { head, body }
    }

    /// Returns the length of the payload in bytes.
    pub fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// Returns whether the payload is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the concatenation of the parts, without a copy if the payload was read from a log.
    pub fn into_bytes(self) -> Vec<u8> {
        let mut bytes = self.head;
        bytes.extend_from_slice(&self.body);
        bytes
    }

    fn crc(&self) -> u32 {
        crc32c_append(crc32c(&self.head), &self.body)
    }
}

impl From<Vec<u8>> for Payload {
    fn from(head: Vec<u8>) -> Self {
        Self { head, body: Bytes::new() }
    }
}

/// Two payloads are equal if their concatenated bytes are equal, even if the boundary between their
/// parts differs.
impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.head.iter().chain(&self.body).eq(other.head.iter().chain(&other.body))
    }
}

impl Eq for Payload {}

/// One entry of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// The index of the entry: the index of the previous entry plus one.
    pub index: u64,
    /// The term of the leader that appended the entry, as in Raft.
    pub term: u64,
    /// The payload of the entry, which the log does not interpret.
    pub payload: Payload,
}

/// The size of a record's header in bytes.
pub(super) const HEADER_BYTES: usize = 40;

/// The alignment of records in bytes: every record begins at a multiple of this number.
pub(super) const ALIGNMENT_BYTES: usize = 8;

/// A header whose checksum was verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) payload_crc: u32,
    pub(super) payload_bytes: u32,
    pub(super) index: u64,
    pub(super) term: u64,
    /// The end of the durable entries (exclusive) when this record was written.
    pub(super) synced_end: u64,
}

impl Header {
    /// Decodes a header; `None` if the bytes are not a valid header that was written into the
    /// segment with this id.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES], segment_id: u64) -> Option<Self> {
        let (crc, rest) = bytes.split_first_chunk::<4>()?;
        let (payload_crc, rest) = rest.split_first_chunk::<4>()?;
        let (payload_bytes, rest) = rest.split_first_chunk::<4>()?;
        let (reserved, rest) = rest.split_first_chunk::<4>()?;
        let (index, rest) = rest.split_first_chunk::<8>()?;
        let (term, rest) = rest.split_first_chunk::<8>()?;
        let (synced_end, _) = rest.split_first_chunk::<8>()?;
        let covered = bytes.get(4..)?;
        let valid = *reserved == [0; 4]
            && u32::from_le_bytes(*crc) == crc32c_append(seed(segment_id), covered);
        valid.then(|| Header {
            payload_crc: u32::from_le_bytes(*payload_crc),
            payload_bytes: u32::from_le_bytes(*payload_bytes),
            index: u64::from_le_bytes(*index),
            term: u64::from_le_bytes(*term),
            synced_end: u64::from_le_bytes(*synced_end),
        })
    }

    /// Returns the size of the record in bytes, including its header and padding.
    pub(super) fn record_bytes(&self) -> u64 {
        record_bytes(self.payload_bytes as usize)
    }

    /// Returns whether `payload` has the length and the checksum that the header contains.
    pub(super) fn matches(&self, payload: &[u8]) -> bool {
        payload.len() == self.payload_bytes as usize
            && (crc32c(payload) == self.payload_crc
                || mutation::is_active(Mutation::IgnoreChecksum))
    }
}

/// Returns the seed of every checksum of a segment. Segment ids are never reused, so old records in
/// a recycled file never pass the check.
fn seed(segment_id: u64) -> u32 {
    crc32c(&segment_id.to_le_bytes())
}

/// Returns the size of a record with a payload of the given size, in bytes.
pub(super) fn record_bytes(payload_bytes: usize) -> u64 {
    (HEADER_BYTES + payload_bytes.next_multiple_of(ALIGNMENT_BYTES)) as u64
}

/// Appends one record to `buffer`. The payload must be shorter than 4 GiB.
pub(super) fn encode(buffer: &mut Vec<u8>, segment_id: u64, entry: &Entry, synced_end: u64) {
    let payload_bytes = u32::try_from(entry.payload.len()).unwrap_or(u32::MAX);
    let mut covered = [0; HEADER_BYTES - 4];
    let fields: [&[u8]; 6] = [
        &entry.payload.crc().to_le_bytes(),
        &payload_bytes.to_le_bytes(),
        &[0; 4],
        &entry.index.to_le_bytes(),
        &entry.term.to_le_bytes(),
        &synced_end.to_le_bytes(),
    ];
    for (place, byte) in covered.iter_mut().zip(fields.into_iter().flatten()) {
        *place = *byte;
    }
    buffer.extend_from_slice(&crc32c_append(seed(segment_id), &covered).to_le_bytes());
    buffer.extend_from_slice(&covered);
    buffer.extend_from_slice(&entry.payload.head);
    buffer.extend_from_slice(&entry.payload.body);
    buffer.resize(buffer.len().next_multiple_of(ALIGNMENT_BYTES), 0);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(index: u64, term: u64, payload: &[u8]) -> Entry {
        let (head, body) = payload.split_at(payload.len() / 2);
        Entry { index, term, payload: Payload::new(head.to_vec(), Bytes::copy_from_slice(body)) }
    }

    #[test]
    fn the_layout_is_as_drawn() {
        let mut bytes = Vec::new();
        encode(&mut bytes, 3, &entry(0x1122, 7, b"hello"), 0x1100);
        assert_eq!(bytes.len(), 48);
        assert_eq!(bytes[4..8], 0x9a71_bb4c_u32.to_le_bytes(), "CRC32C of `hello`");
        assert_eq!(bytes[8..16], [5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..24], [0x22, 0x11, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[24..32], [7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[32..40], [0, 0x11, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&bytes[40..], b"hello\0\0\0");
    }

    proptest! {
        #[test]
        fn round_trips_in_its_own_segment_only(
            index: u64, term: u64, synced_end: u64, segment_id: u64,
            payload in prop::collection::vec(any::<u8>(), 0..40),
            other_id: u64,
        ) {
            let mut bytes = vec![9; 8];
            encode(&mut bytes, segment_id, &entry(index, term, &payload), synced_end);
            prop_assert_eq!(bytes.len() as u64, 8 + record_bytes(payload.len()));
            let head = bytes[8..].first_chunk::<HEADER_BYTES>().unwrap();
            let header = Header::decode(head, segment_id).unwrap();
            prop_assert_eq!((header.index, header.term), (index, term));
            prop_assert_eq!(header.synced_end, synced_end);
            prop_assert!(header.matches(&bytes[48..48 + payload.len()]));
            prop_assert_eq!(header.record_bytes(), record_bytes(payload.len()));
            if other_id != segment_id {
                prop_assert_eq!(Header::decode(head, other_id), None);
            }
        }
    }
}
