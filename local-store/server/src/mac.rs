//! Message authentication codes (MAC). A MAC proves that the sender of a message has the key.
//!
//! A MAC is the first half of an HMAC-SHA-256 over a list of parts. Each part is preceded by its length
//! (8 bytes, big-endian), so that different lists never result in the same input. A MAC does not encrypt
//! the message.

use hmac::digest::FixedOutput;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The length of a MAC in bytes.
pub(crate) const MAC_BYTES: usize = 16;

/// A key for MACs.
#[derive(Clone)]
pub(crate) struct MacKey(Hmac<Sha256>);

impl MacKey {
    pub(crate) fn new(key: &[u8]) -> Self {
        // `new_from_slice` never fails: HMAC accepts keys of any length.
        Self(Hmac::new_from_slice(key).unwrap_or_else(|_| Hmac::new(&Default::default())))
    }

    /// Derives another key from this key. `parts` identify the purpose of the derived key.
    pub(crate) fn derive(&self, parts: &[&[u8]]) -> Self {
        Self::new(&self.over(parts).finalize_fixed())
    }

    pub(crate) fn mac(&self, parts: &[&[u8]]) -> [u8; MAC_BYTES] {
        let mut mac = [0; MAC_BYTES];
        for (to, from) in mac.iter_mut().zip(self.over(parts).finalize_fixed()) {
            *to = from;
        }
        mac
    }

    /// Verifies a MAC in constant time.
    pub(crate) fn verify(&self, parts: &[&[u8]], mac: &[u8]) -> bool {
        mac.len() == MAC_BYTES && self.over(parts).verify_truncated_left(mac).is_ok()
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
    fn macs_depend_on_every_part_and_its_length() {
        let key = MacKey::new(b"key");
        let mac = key.mac(&[b"ab", b"c"]);
        assert!(key.verify(&[b"ab", b"c"], &mac));
        for parts in [&[b"a".as_slice(), b"bc"][..], &[b"abc"], &[b"ab", b"C"], &[b"ab", b"c", b""]]
        {
            assert!(!key.verify(parts, &mac), "{parts:?}");
        }
        for other in [MacKey::new(b"another"), key.derive(&[]), key.derive(&[b"x"])] {
            assert!(!other.verify(&[b"ab", b"c"], &mac));
        }
        for part in [&mac[..15], &[]] {
            assert!(!key.verify(&[b"ab", b"c"], part));
        }
    }
}
