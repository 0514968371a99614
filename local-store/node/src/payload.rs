//! An encoded log entry, which is the payload type for the consensus library.

use std::fmt;
use std::mem;
use std::sync::{Arc, MutexGuard};

use bytes::Bytes;
use locks::Mutex;
use partition::{Batch, Entry, EntryError, Reply, decode_entry, entry_counts};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::log_id::LogId;
use crate::ring::ArcId;

/// An entry's bytes and, while the entry is new, its decoded commands and its result.
#[derive(Clone)]
pub struct Payload {
    bytes: Bytes,
    counts: usize,
    shared: Arc<Mutex<Shared>>,
}

/// The parts that are cached while the entry is new.
#[derive(Default)]
struct Shared {
    decoded: DecodedEntry,
    outcome: Option<Arc<Outcome>>,
}

/// The size limit of a cached result, as a multiple of the entry's counted bytes (see
/// [`Payload::counts`]), to which a constant is added. The result of a put stays below the limit:
/// its item, a record with two images, and some index entries. An update of a few bytes may exceed
/// the limit: its result may be an item of 400 KB and a record with two images of this size. Such a
/// result is not cached, because the memory of new entries is bounded only by their counted bytes.
const OUTCOME_TIMES_MAX: usize = 8;
const OUTCOME_BYTES_MORE: usize = 256 * 1024;

/// The result of an entry, which one node computed and other nodes can use.
pub(super) struct Outcome {
    /// The group and position of the entry. Nodes with equal states before the entry have equal
    /// states after it, so they can share the result.
    pub(super) place: (ArcId, LogId),
    /// The changes of the entry.
    pub(super) batch: Arc<Batch>,
    /// The replies to the entry's commands. Only one node needs them, and takes them.
    pub(super) replies: Mutex<Option<Vec<Reply>>>,
}

impl Outcome {
    /// Takes the replies if `is_asked` is true, otherwise returns an empty list. Returns `None` if
    /// the replies are needed but were already taken.
    pub(super) fn replies(&self, is_asked: bool) -> Option<Vec<Reply>> {
        if !is_asked {
            return Some(Vec::new());
        }
        self.replies.lock().take()
    }
}

/// The decoded commands of the bytes.
#[derive(Default)]
enum DecodedEntry {
    /// Not decoded yet.
    #[default]
    Pending,
    Cached(Arc<Entry>),
    /// The decoded commands were dropped, because newer entries have replaced them. A node that
    /// applies the entry late decodes the bytes itself.
    Released,
}

impl Payload {
    /// Creates a payload from the bytes of an entry, without decoding them.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        Self { counts: entry_counts(&bytes).unwrap_or(0), bytes, shared: Arc::default() }
    }

    /// Creates a payload from the bytes of an entry and their decoded form.
    #[must_use]
    pub fn of(bytes: Bytes, entry: Arc<Entry>) -> Self {
        let shared = Shared { decoded: DecodedEntry::Cached(entry), outcome: None };
        Self { shared: Arc::new(Mutex::new(shared)), ..Self::new(bytes) }
    }

    /// Returns the counted bytes of the entry: the size of its commands without delta encoding. The
    /// counted bytes limit the size of the cached result. The value is at least the length of the
    /// bytes, and at most 4 GiB.
    #[must_use]
    pub fn counts(&self) -> usize {
        self.counts.min(u32::MAX as usize).max(self.bytes.len())
    }

    /// Returns the encoded entry.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the decoded entry, and caches it for nodes that share the bytes.
    ///
    /// # Errors
    /// When the bytes are damaged or of an unknown version.
    pub fn decode(&self) -> Result<Arc<Entry>, EntryError> {
        let mut shared = self.lock();
        if let DecodedEntry::Cached(entry) = &shared.decoded {
            return Ok(Arc::clone(entry));
        }
        let entry = Arc::new(decode_entry(&self.bytes)?);
        if matches!(shared.decoded, DecodedEntry::Pending) {
            shared.decoded = DecodedEntry::Cached(Arc::clone(&entry));
        }
        Ok(entry)
    }

    /// Decodes the bytes again, even if the decoded commands are cached.
    ///
    /// # Errors
    /// When the bytes are damaged or of an unknown version.
    pub fn decode_anew(&self) -> Result<Arc<Entry>, EntryError> {
        Ok(Arc::new(decode_entry(&self.bytes)?))
    }

    /// Returns the result that a node has computed for the entry at the given position, while the
    /// entry is new.
    pub(super) fn outcome(&self, place: (ArcId, LogId)) -> Option<Arc<Outcome>> {
        let shared = self.lock();
        shared.outcome.as_ref().filter(|outcome| outcome.place == place).map(Arc::clone)
    }

    /// Caches a result for other nodes that share the entry. Does nothing if the decoded commands
    /// were dropped, if there already is a result, or if the result is much larger than the entry.
    pub(super) fn keep_outcome(&self, outcome: Outcome) {
        let bytes_max = OUTCOME_TIMES_MAX * self.counts() + OUTCOME_BYTES_MORE;
        let is_small = outcome.batch.size() <= bytes_max;
        let mut shared = self.lock();
        if is_small && matches!(shared.decoded, DecodedEntry::Cached(_)) && shared.outcome.is_none()
        {
            shared.outcome = Some(Arc::new(outcome));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock()
    }

    /// Drops the decoded commands and the result. Called when newer entries have replaced the entry
    /// in the cache.
    pub fn forget_decoded(&self) {
        let mut shared = self.lock();
        let old = Shared { decoded: DecodedEntry::Released, outcome: None };
        let before = mem::replace(&mut *shared, old);
        // The memory is freed after the lock is released.
        drop(shared);
        drop(before);
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Payload {}

impl fmt::Debug for Payload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never prints the content, which is user data.
        write!(formatter, "{} bytes", self.bytes.len())
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.bytes)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_byte_buf(BytesVisitor).map(Self::new)
    }
}

/// A serde visitor that takes ownership of a byte buffer, without a copy if the format permits it.
struct BytesVisitor;

impl<'de> Visitor<'de> for BytesVisitor {
    type Value = Bytes;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("bytes")
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
        Ok(Bytes::copy_from_slice(bytes))
    }

    fn visit_byte_buf<E: serde::de::Error>(self, bytes: Vec<u8>) -> Result<Bytes, E> {
        Ok(Bytes::from(bytes))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Bytes, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = elements.next_element()? {
            bytes.push(byte);
        }
        Ok(Bytes::from(bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use expression::{Placeholders, parse_update};
    use model::{EpochMillis, KeyValue, PrimaryKey};
    use partition::{Command, Op, TableId, Write, WriteAction, encode_entry};

    use super::*;
    use crate::log_id::log_id;

    #[test]
    fn payloads_round_trip() {
        let payload = Payload::new(Bytes::from_static(b"\0abc"));
        let bytes = postcard::to_stdvec(&payload).unwrap();
        assert_eq!(postcard::from_bytes::<Payload>(&bytes).unwrap(), payload);
        assert!(payload.decode().is_err());
    }

    #[test]
    fn a_new_entry_is_decoded_once() {
        let entry = Entry { now: EpochMillis(7), commands: vec![Command::ForgetTokens] };
        let leader = Payload::new(Bytes::from(encode_entry(&entry).unwrap()));
        let follower = leader.clone();
        let decoded = leader.decode().unwrap();
        assert_eq!((decoded.now, decoded.commands.len()), (entry.now, 1));
        assert!(Arc::ptr_eq(&decoded, &follower.decode().unwrap()));
        assert!(!Arc::ptr_eq(&decoded, &follower.decode_anew().unwrap()));
        follower.forget_decoded();
        let late = leader.decode().unwrap();
        assert!(!Arc::ptr_eq(&decoded, &late) && late.now == entry.now);
        assert!(!Arc::ptr_eq(&late, &leader.decode().unwrap()));
        // No other reference to the entry remains.
        assert_eq!((Arc::strong_count(&decoded), Arc::strong_count(&late)), (1, 1));
    }

    #[test]
    fn a_proposed_entry_is_not_decoded() {
        let entry = Arc::new(Entry { now: EpochMillis(7), commands: vec![Command::ForgetTokens] });
        let leader = Payload::of(Bytes::from(encode_entry(&entry).unwrap()), Arc::clone(&entry));
        let follower = leader.clone();
        assert!(Arc::ptr_eq(&entry, &follower.decode().unwrap()));
        follower.forget_decoded();
        assert!(!Arc::ptr_eq(&entry, &leader.decode().unwrap()));
        assert_eq!(Arc::strong_count(&entry), 1);
    }

    #[test]
    fn an_outcome_is_for_its_place_and_while_the_entry_is_new() {
        let place = |index| (ArcId::FIRST, log_id(1, index));
        let outcome = |index| Outcome {
            place: place(index),
            batch: Arc::default(),
            replies: Mutex::new(Some(vec![Reply::TableNotFound])),
        };
        let entry = Entry { now: EpochMillis(7), commands: vec![Command::ForgetTokens] };
        let leader = Payload::new(Bytes::from(encode_entry(&entry).unwrap()));
        let follower = leader.clone();
        leader.keep_outcome(outcome(7));
        assert!(follower.outcome(place(7)).is_none(), "it is not decoded");
        leader.decode().unwrap();
        leader.keep_outcome(outcome(7));
        leader.keep_outcome(outcome(8));
        assert!(follower.outcome(place(8)).is_none(), "the first result is kept");
        let found = follower.outcome(place(7)).unwrap();
        assert_eq!(found.replies(false), Some(Vec::new()));
        assert_eq!(found.replies(true), Some(vec![Reply::TableNotFound]));
        assert_eq!(found.replies(true), None, "replies can be taken once");
        follower.forget_decoded();
        leader.keep_outcome(outcome(7));
        assert!(leader.outcome(place(7)).is_none(), "the entry was already applied");
    }

    #[test]
    fn an_outcome_that_is_much_larger_than_its_entry_is_not_kept() {
        let place = (ArcId::FIRST, log_id(1, 7));
        let nothing = Entry { now: EpochMillis(7), commands: vec![Command::ForgetTokens] };
        let text = "long".repeat(100);
        let values = BTreeMap::from([(":v".to_owned(), text.as_str().into())]);
        let mut placeholders = Placeholders::new(None, Some(values)).unwrap();
        let update = parse_update("SET a = :v", &mut placeholders).unwrap();
        let write = |number: u64| Write {
            table: TableId(1),
            key: PrimaryKey { partition: KeyValue::S(number.to_string()), sort: None },
            action: WriteAction::Update(update.clone()),
            condition: None,
            return_old: false,
            return_new: false,
            return_on_failure: false,
        };
        let commands = (0..25).map(|number| Command::Write(Box::new(write(number)))).collect();
        let alike = Entry { now: EpochMillis(7), commands };
        let most = |counts| OUTCOME_TIMES_MAX * counts + OUTCOME_BYTES_MORE;
        let bytes_of = |entry| Bytes::from(encode_entry(entry).unwrap());
        let (few, many) = (most(bytes_of(&nothing).len()), most(25 * text.len()));
        assert!(bytes_of(&alike).len() < 2 * text.len());
        for (entry, size, is_kept) in [
            (&nothing, few, true),
            (&nothing, few + 1, false),
            // A value that the deltas store only once is counted for each command.
            (&alike, many, true),
            (&alike, 2 * many, false),
        ] {
            let payload = Payload::new(bytes_of(entry));
            payload.decode().unwrap();
            let op = Op::Put(vec![1], vec![0; size - 1].into());
            let batch = Arc::new(Batch { ops: vec![op] });
            payload.keep_outcome(Outcome { place, batch, replies: Mutex::new(None) });
            assert_eq!(payload.outcome(place).is_some(), is_kept, "{size}");
        }
    }
}
