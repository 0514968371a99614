//! A small seeded random number generator for simulated faults: the same seed gives the same
//! numbers on every platform.
//!
//! Do not use it for secrets or for values that users see.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[derive(Debug, Clone)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// Creates a generator. `seed` determines all numbers that it returns.
    pub fn new(seed: u64) -> Self {
        SplitMix64 { state: seed }
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 to `bound`, inclusive. The slight bias of the modulo operation does
    /// not matter for faults.
    pub fn up_to(&mut self, bound: usize) -> usize {
        let choices = (bound as u64).saturating_add(1);
        usize::try_from(self.next_u64() % choices).unwrap_or(bound)
    }

    /// Returns true with a probability of `percent` in 100.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.next_u64() % 100 < percent
    }
}

#[cfg(test)]
mod tests {
    use super::SplitMix64;

    #[test]
    fn follows_the_published_sequence() {
        let mut generator = SplitMix64::new(1_234_567);
        let numbers: Vec<u64> = (0..3).map(|_| generator.next_u64()).collect();
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn stays_within_the_bound() {
        let mut generator = SplitMix64::new(7);
        let mut seen = [0_u32; 4];
        for _ in 0..1_000 {
            seen[generator.up_to(3)] += 1;
        }
        assert!(seen.iter().all(|&count| count > 150), "{seen:?}");
        assert_eq!(generator.up_to(0), 0);
    }
}
