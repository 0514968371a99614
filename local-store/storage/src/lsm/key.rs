//! Keys of rows in memory. A key stores its hash, and usually needs no allocation.

use std::hash::BuildHasher;
use std::sync::LazyLock;

use foldhash::fast::RandomState;

/// Size of a CPU cache line in bytes.
pub(super) const LINE_BYTES: usize = 64;

/// The number of bytes of a key that are stored inline in the row. Most keys are not longer.
const INLINE_BYTES: usize = 64;

/// The hasher of keys. Its seed differs in each process, so that no client can choose keys that
/// collide.
static HASHING: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// A key. Most comparisons need only its inline bytes.
#[derive(Clone, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The first bytes, padded with zeros. If these bytes of two keys differ, their order is the
    /// order of the keys.
    first: [u64; INLINE_BYTES / 8],
    /// The remaining bytes. Two keys of different lengths can have the same first bytes and no
    /// remaining bytes: the longer key then ends with zeros.
    rest: Box<[u8]>,
    length: u32,
    /// The hash of the key; equal keys have equal hashes.
    hash: u32,
}

/// The first bytes of a key. If these bytes of two keys differ, their order is the order of the
/// keys. In an item's key they contain the table, the token, and 45 bytes of the partition key and
/// the sort key. In an index entry's key they contain the table, the index, the token, and 43
/// bytes.
pub(super) type KeyPrefix = [u64; INLINE_BYTES / 8];

impl PartialEq for Key {
    /// Equivalent to a derived implementation, but faster: it compares the first bytes inline, and
    /// makes no call if there are no remaining bytes. A call that compares zero bytes may load
    /// memory, which would take longer than the rest of this function. A key whose remaining bytes
    /// were dropped never equals a key that has remaining bytes.
    fn eq(&self, other: &Self) -> bool {
        let first = self.first.iter().zip(&other.first);
        let differing = first.fold(0, |all, (own, other)| all | (own ^ other));
        differing == 0
            && self.length == other.length
            && self.rest.len() == other.rest.len()
            && (self.rest.is_empty() || self.rest == other.rest)
    }
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Self {
        let (inline, rest) = bytes.split_at_checked(INLINE_BYTES).unwrap_or((bytes, &[]));
        let mut padded = [0; INLINE_BYTES];
        if let Some(to) = padded.get_mut(..inline.len()) {
            to.copy_from_slice(inline);
        }
        let mut first = [0; INLINE_BYTES / 8];
        for (number, bytes) in first.iter_mut().zip(padded.as_chunks().0) {
            *number = u64::from_be_bytes(*bytes);
        }
        let hash = u32::try_from(HASHING.hash_one(bytes) >> 32).unwrap_or(u32::MAX);
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Self { first, rest: Box::from(rest), length, hash }
    }
}

impl Key {
    pub(super) fn append_to(&self, out: &mut Vec<u8>) {
        let inline = usize::try_from(self.length).unwrap_or(usize::MAX).min(INLINE_BYTES);
        let end = out.len() + inline;
        for number in self.first {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.truncate(end);
        out.extend_from_slice(&self.rest);
    }

    pub(super) fn hash(&self) -> u32 {
        self.hash
    }

    pub(super) fn beginning(&self) -> KeyPrefix {
        self.first
    }

    /// Returns one value from each cache line of the key, without its remaining bytes. Reading the
    /// values loads these lines.
    pub(super) fn ends(&self) -> (u64, u64, u32) {
        let [first, .., last] = self.first;
        (first, last, self.length)
    }

    /// Returns a byte of each of the first two cache lines of a long key's remaining bytes. Reading
    /// these bytes loads the lines; the CPU automatically prefetches the following lines.
    pub(super) fn rest_lines(&self) -> impl Iterator<Item = &u8> {
        self.rest.iter().step_by(LINE_BYTES).take(2)
    }

    /// Frees the remaining bytes of the key. A long key is incomplete afterwards.
    pub(super) fn drop_rest(&mut self) {
        self.rest = Box::default();
    }

    /// Returns the number of bytes that are allocated for the key's remaining bytes.
    pub(super) fn rest_bytes(&self) -> u64 {
        u64::try_from(self.rest.len()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Goal: a removed long key does not equal another long key with the same first bytes.
    #[test]
    fn a_removed_key_equals_no_long_key() {
        let (mut bytes, other) = ([7; 80], [7; 80]);
        bytes[70] = 8;
        let (mut key, other) = (Key::from(&bytes[..]), Key::from(&other[..]));
        assert!(key != other);
        key.drop_rest();
        assert_eq!([key == other, other == key], [false, false]);
    }

    proptest! {
        #[test]
        fn keys_are_ordered_as_their_bytes(
            // Long keys that differ late, and some that end with zeros.
            a in prop::collection::vec(prop_oneof![Just(0), Just(0), Just(7), any::<u8>()], 0..100),
            common in 0..100usize,
            b in prop::collection::vec(prop_oneof![Just(0), Just(0), Just(7), any::<u8>()], 0..60),
        ) {
            let b: Vec<u8> = a.iter().take(common).copied().chain(b).collect();
            let keys = (Key::from(a.as_slice()), Key::from(b.as_slice()));
            prop_assert_eq!(keys.0.cmp(&keys.1), a.cmp(&b));
            prop_assert_eq!(keys.0 == keys.1, a == b);
            let mut out = vec![1];
            keys.0.append_to(&mut out);
            prop_assert_eq!(&out[1..], &a[..]);
        }
    }
}
