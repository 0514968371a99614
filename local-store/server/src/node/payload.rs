//! An encoded entry of the partition machine, as the consensus library hands it about.
//!
//! Copies share their bytes, also between the nodes of one process; and those nodes share what the
//! bytes say while the entry is new: the first one that applies it decodes it.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use partition::{Entry, EntryError, decode_entry};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// See the module.
#[derive(Clone)]
pub struct Payload {
    bytes: Bytes,
    decoded: Arc<Mutex<Decoded>>,
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
        Self { bytes, decoded: Arc::default() }
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
        let mut decoded = self.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Decoded::Kept(entry) = &*decoded {
            return Ok(Arc::clone(entry));
        }
        let entry = Arc::new(decode_entry(&self.bytes)?);
        if matches!(*decoded, Decoded::NotYet) {
            *decoded = Decoded::Kept(Arc::clone(&entry));
        }
        Ok(entry)
    }

    /// Keeps what the bytes say no longer: the entry is not new any more.
    pub fn forget_decoded(&self) {
        let mut decoded = self.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        let before = mem::replace(&mut *decoded, Decoded::NoLonger);
        // What it takes to give it back nobody has to wait for.
        drop(decoded);
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
    use model::EpochMillis;
    use partition::{Command, encode_entry};

    use super::*;

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
        follower.forget_decoded();
        let late = leader.decode().unwrap();
        assert!(!Arc::ptr_eq(&decoded, &late) && late.now == entry.now);
        assert!(!Arc::ptr_eq(&late, &leader.decode().unwrap()));
        // Nobody else holds it.
        assert_eq!((Arc::strong_count(&decoded), Arc::strong_count(&late)), (1, 1));
    }
}
