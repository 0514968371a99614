//! Marks: how texts and messages show that whoever made them knows a key.
//!
//! A mark is the first half of an HMAC-SHA-256 over parts, each behind its length (8 bytes, the
//! highest first), so that no two lists of parts give the same bytes. Nothing is hidden by it.

use hmac::digest::FixedOutput;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The length of a mark in bytes.
pub(crate) const MARK_BYTES: usize = 16;

/// A key that marks parts.
#[derive(Clone)]
pub(crate) struct MarkKey(Hmac<Sha256>);

impl MarkKey {
    pub(crate) fn new(key: &[u8]) -> Self {
        // HMAC takes keys of every length; this library has no other error.
        Self(Hmac::new_from_slice(key).unwrap_or_else(|_| Hmac::new(&Default::default())))
    }

    /// A key of its own for what these parts say.
    pub(crate) fn derive(&self, parts: &[&[u8]]) -> Self {
        Self::new(&self.over(parts).finalize_fixed())
    }

    pub(crate) fn mark(&self, parts: &[&[u8]]) -> [u8; MARK_BYTES] {
        let mut mark = [0; MARK_BYTES];
        for (to, from) in mark.iter_mut().zip(self.over(parts).finalize_fixed()) {
            *to = from;
        }
        mark
    }

    /// Whether a mark is right. It takes the same time wherever marks differ.
    pub(crate) fn is_right(&self, parts: &[&[u8]], mark: &[u8]) -> bool {
        mark.len() == MARK_BYTES && self.over(parts).verify_truncated_left(mark).is_ok()
    }

    fn over(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            mac.update(part);
        }
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_depend_on_every_part_and_its_length() {
        let key = MarkKey::new(b"key");
        let mark = key.mark(&[b"ab", b"c"]);
        assert!(key.is_right(&[b"ab", b"c"], &mark));
        for parts in [&[b"a".as_slice(), b"bc"][..], &[b"abc"], &[b"ab", b"C"], &[b"ab", b"c", b""]]
        {
            assert!(!key.is_right(parts, &mark), "{parts:?}");
        }
        for other in [MarkKey::new(b"another"), key.derive(&[]), key.derive(&[b"x"])] {
            assert!(!other.is_right(&[b"ab", b"c"], &mark));
        }
        for part in [&mark[..15], &[]] {
            assert!(!key.is_right(&[b"ab", b"c"], part));
        }
    }
}
