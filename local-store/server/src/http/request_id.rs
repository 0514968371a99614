//! Request ids: 52 letters and digits, unique among the responses of a process.
//!
//! Request ids identify requests in logs, and are not secret.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// The length of an id, as in DynamoDB.
pub(super) const LENGTH: usize = 52;
/// The digits of an id, as in DynamoDB.
const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHIJKLMNOPQRSTUV";
/// The number of digits that one random 64-bit word provides. Each digit needs five bits.
const DIGITS_PER_WORD: usize = 12;

/// A generator of request ids.
#[derive(Debug)]
pub(super) struct RequestIds {
    seed: u64,
    count: AtomicU64,
}

impl RequestIds {
    /// Creates a generator whose ids differ from those of other processes.
    pub(super) fn new() -> Self {
        // `RandomState` has random data from the operating system.
        Self { seed: RandomState::new().hash_one(0u8), count: AtomicU64::new(0) }
    }

    pub(super) fn next(&self) -> [u8; LENGTH] {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let mut state = self.seed.wrapping_add(count.wrapping_mul(0x5851_f42d_4c95_7f2d));
        let mut id = [b'0'; LENGTH];
        for digits in id.chunks_mut(DIGITS_PER_WORD) {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = mix(state);
            for digit in digits {
                *digit = usize::try_from(word & 31)
                    .ok()
                    .and_then(|n| DIGITS.get(n))
                    .map_or(b'0', |d| *d);
                word >>= 5;
            }
        }
        id
    }
}

/// Mixes the bits of a number with the finaliser of SplitMix64, so that similar numbers have dissimilar
/// results.
fn mix(state: u64) -> u64 {
    let word = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_differ() {
        let (first, second) = (RequestIds::new(), RequestIds::new());
        let ids: BTreeSet<_> = (0..5000).flat_map(|_| [first.next(), second.next()]).collect();
        assert_eq!(ids.len(), 10_000);
        let is_digit = |b: &u8| b.is_ascii_uppercase() || b.is_ascii_digit();
        assert!(ids.iter().all(|id| id.iter().all(is_digit)));
    }
}
