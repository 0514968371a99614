//! The pause before a retry: an exponential back-off with a maximum and jitter.
//!
//! The caller counts the attempts.

/// An exponential back-off: the delay doubles at each retry, up to a maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackOff {
    /// The delay before the first retry, in milliseconds.
    pub base_ms: u64,
    /// The maximum delay in milliseconds, without the jitter.
    pub cap_ms: u64,
    /// The maximum jitter, in percent of the delay. The jitter prevents simultaneous retries of
    /// shards that failed together.
    pub spread_percent: u64,
}

impl BackOff {
    /// Returns the delay in milliseconds before retry number `attempt` (counted from 1). It is
    /// `base · 2^(attempt-1)`, at most the cap, plus a jitter that depends only on `seed` and
    /// `attempt`.
    #[must_use]
    pub fn delay_ms(&self, attempt: u32, seed: u64) -> u64 {
        // After 20 doublings the delay exceeds every realistic cap. The limit prevents an overflow.
        let doublings = attempt.saturating_sub(1).min(20);
        let delay = self.base_ms.saturating_mul(1_u64 << doublings).min(self.cap_ms);
        let spread = mix(seed ^ u64::from(attempt)) % (self.spread_percent + 1);
        delay + delay.saturating_mul(spread) / 100
    }
}

/// Returns the FNV-1a hash of a string. The hash is the seed of a shard's jitter.
#[must_use]
pub fn seed_of(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Returns a hash of a number by the finalizer of splitmix64: similar inputs have unrelated hashes.
#[must_use]
pub fn mix(input: u64) -> u64 {
    let mut value = input.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_and_stops_growing() {
        let plain = BackOff { base_ms: 100, cap_ms: 1_000, spread_percent: 0 };
        let delays: Vec<_> = (1..=6).map(|attempt| plain.delay_ms(attempt, 1)).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1_000, 1_000]);
        assert_eq!(plain.delay_ms(u32::MAX, 1), 1_000);
    }

    #[test]
    fn spread_stays_within_its_bound_and_differs_between_shards() {
        let spread = BackOff { base_ms: 1_000, cap_ms: 1_000, spread_percent: 25 };
        let delays: std::collections::BTreeSet<_> =
            (0..100).map(|shard| spread.delay_ms(1, seed_of(&format!("shard-{shard}")))).collect();
        assert!(delays.iter().all(|delay| (1_000..=1_250).contains(delay)));
        assert!(delays.len() > 10);
    }
}
