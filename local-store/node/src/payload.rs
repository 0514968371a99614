//! An encoded entry of the partition machine, as the consensus library hands it about.
//!
//! Copies share their bytes, also between the nodes of one process; and while the entry is new those
//! nodes share what the bytes say, and what becomes of the state: whoever proposed the entry knows
//! what it says, otherwise the first one that applies it decodes it; and that one works out what
//! becomes of the state. This module keeps it; whether another node uses it is decided in `replica`.

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

/// See the module.
#[derive(Clone)]
pub struct Payload {
    bytes: Bytes,
    counts: usize,
    shared: Arc<Mutex<Shared>>,
}

/// What is kept while the entry is new.
#[derive(Default)]
struct Shared {
    decoded: Decoded,
    outcome: Option<Arc<Outcome>>,
}

/// What comes of an entry is kept only up to so many times what the entry counts, and so many more: a
/// put makes its item, a record with two images and some index entries. An update of a few bytes may
/// write 400 KB and two images of it, thousands of times its own bytes, and of the entries that are new
/// only what they count is bounded.
const OUTCOME_TIMES_MAX: usize = 8;
const OUTCOME_BYTES_MORE: usize = 256 * 1024;

/// What becomes of a state by an entry, worked out by one of the nodes that have it.
pub(super) struct Outcome {
    /// Which entry of which group it is: states that are the same before it are so behind it.
    pub(super) place: (ArcId, LogId),
    /// What it changes.
    pub(super) batch: Arc<Batch>,
    /// What its commands are answered with, until it is taken: one node is asked for it at most.
    pub(super) replies: Mutex<Option<Vec<Reply>>>,
}

impl Outcome {
    /// What the commands are answered with, or nothing if that is not asked for. `None` if it is asked
    /// for and not known.
    pub(super) fn replies(&self, is_asked: bool) -> Option<Vec<Reply>> {
        if !is_asked {
            return Some(Vec::new());
        }
        self.replies.lock().take()
    }
}

/// What the bytes say.
#[derive(Default)]
enum Decoded {
    /// Nobody has asked.
    #[default]
    NotYet,
    Kept(Arc<Entry>),
    /// Whoever asks now is late, and decodes for itself.
    NoLonger,
}

impl Payload {
    /// These bytes, which nobody has decoded yet.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        Self { counts: entry_counts(&bytes).unwrap_or(0), bytes, shared: Arc::default() }
    }

    /// The bytes of an entry, and what they say.
    #[must_use]
    pub fn of(bytes: Bytes, entry: Arc<Entry>) -> Self {
        let shared = Shared { decoded: Decoded::Kept(entry), outcome: None };
        Self { shared: Arc::new(Mutex::new(shared)), ..Self::new(bytes) }
    }

    /// What its commands count, by which it is bounded what is kept of it: what they would take, were
    /// each said as it is. At least the bytes that there are, at most 4 GiB.
    #[must_use]
    pub fn counts(&self) -> usize {
        self.counts.min(u32::MAX as usize).max(self.bytes.len())
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// What the bytes say. It is kept for those who share them.
    ///
    /// # Errors
    /// When they are damaged or of an unknown version.
    pub fn decode(&self) -> Result<Arc<Entry>, EntryError> {
        let mut shared = self.lock();
        if let Decoded::Kept(entry) = &shared.decoded {
            return Ok(Arc::clone(entry));
        }
        let entry = Arc::new(decode_entry(&self.bytes)?);
        if matches!(shared.decoded, Decoded::NotYet) {
            shared.decoded = Decoded::Kept(Arc::clone(&entry));
        }
        Ok(entry)
    }

    /// What the bytes themselves say, whatever is kept.
    ///
    /// # Errors
    /// When they are damaged or of an unknown version.
    pub fn decode_anew(&self) -> Result<Arc<Entry>, EntryError> {
        Ok(Arc::new(decode_entry(&self.bytes)?))
    }

    /// What a node has worked out for the entry at this place, while it is new.
    pub(super) fn outcome(&self, place: (ArcId, LogId)) -> Option<Arc<Outcome>> {
        let shared = self.lock();
        shared.outcome.as_ref().filter(|outcome| outcome.place == place).map(Arc::clone)
    }

    /// Keeps what was worked out for those who share the entry, if it is new, nobody else was
    /// earlier, and it is not much larger than the entry.
    pub(super) fn keep_outcome(&self, outcome: Outcome) {
        let bytes_max = OUTCOME_TIMES_MAX * self.counts() + OUTCOME_BYTES_MORE;
        let is_small = outcome.batch.size() <= bytes_max;
        let mut shared = self.lock();
        if is_small && matches!(shared.decoded, Decoded::Kept(_)) && shared.outcome.is_none() {
            shared.outcome = Some(Arc::new(outcome));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock()
    }

    /// Keeps what the bytes say no longer, nor what came of it: the entry is not new any more.
    pub fn forget_decoded(&self) {
        let mut shared = self.lock();
        let old = Shared { decoded: Decoded::NoLonger, outcome: None };
        let before = mem::replace(&mut *shared, old);
        // What it takes to give it back nobody has to wait for.
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
        // Never the content: it is users' data.
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

/// Reads bytes at once where the format can give them so.
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
    fn what_bytes_say_is_decoded_once_while_the_entry_is_new() {
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
        // Nobody else holds it.
        assert_eq!((Arc::strong_count(&decoded), Arc::strong_count(&late)), (1, 1));
    }

    #[test]
    fn who_proposed_an_entry_knows_what_it_says() {
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
        assert!(follower.outcome(place(7)).is_none(), "nobody has decoded it");
        leader.decode().unwrap();
        leader.keep_outcome(outcome(7));
        leader.keep_outcome(outcome(8));
        assert!(follower.outcome(place(8)).is_none(), "the first one counts");
        let found = follower.outcome(place(7)).unwrap();
        assert_eq!(found.replies(false), Some(Vec::new()));
        assert_eq!(found.replies(true), Some(vec![Reply::TableNotFound]));
        assert_eq!(found.replies(true), None, "they are given once");
        follower.forget_decoded();
        leader.keep_outcome(outcome(7));
        assert!(leader.outcome(place(7)).is_none(), "it is not new any more");
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
            // What is said once counts as often as it is meant.
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
