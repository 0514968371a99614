//! Keys as tables in memory have them: with a hash, and mostly without an allocation.

use std::hash::BuildHasher;
use std::sync::LazyLock;

use foldhash::fast::RandomState;

/// A line of the processor's memory.
pub(super) const LINE_BYTES: usize = 64;

/// Bytes of a key that stand in the row itself: most keys have no more.
const INLINE_BYTES: usize = 64;

/// With what keys are hashed: another secret in each process, so that nobody can choose keys which
/// share a hash.
static HASHING: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// A key. A comparison mostly finds what it needs without going elsewhere.
#[derive(Clone, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The first bytes, with zeros behind a shorter key. Where they differ they are ordered as the
    /// keys are.
    first: [u64; INLINE_BYTES / 8],
    /// The others. Of two keys with the same first bytes and no others, the shorter one ends with
    /// the zeros that the longer one has.
    rest: Box<[u8]>,
    length: u32,
    /// The same for equal keys.
    hash: u32,
}

/// The first bytes of keys, ordered as the keys are where they differ: of an item's key the table,
/// the token, and 45 bytes of the partition key and the sort key; of an index entry's the index, too,
/// and 43 bytes.
pub(super) type KeyPrefix = [u64; INLINE_BYTES / 8];

impl PartialEq for Key {
    /// As a derived one would, but the first bytes are compared in place, not by a call; and where there
    /// are no others nothing is called: the comparison of no bytes may look at where they would be,
    /// which takes the processor longer than all else here. A key that was let go of has no others any
    /// more, and equals none that has.
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

    /// Something of each line of the processor's memory that the key itself is in.
    pub(super) fn ends(&self) -> (u64, u64, u32) {
        let [first, .., last] = self.first;
        (first, last, self.length)
    }

    /// Something of each line of the processor's memory that the end of a long key is in, but for those
    /// behind the first two: the processor has seen by itself what comes next.
    pub(super) fn rest_lines(&self) -> impl Iterator<Item = &u8> {
        self.rest.iter().step_by(LINE_BYTES).take(2)
    }

    /// Gives back what it takes beside itself. It is no key any more.
    pub(super) fn drop_rest(&mut self) {
        self.rest = Box::default();
    }

    /// Bytes that it takes beside itself.
    pub(super) fn rest_bytes(&self) -> u64 {
        u64::try_from(self.rest.len()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Goal: a place that a long key has left is not taken for that of another one which begins alike.
    #[test]
    fn a_key_that_was_let_go_of_is_no_long_key() {
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
