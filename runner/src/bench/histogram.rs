//! A histogram of latencies in fixed memory, with values that are at most 1 % too high.
//!
//! It keeps no single values and knows no clock.

/// Buckets that each doubling of the value is divided into, as a power of two: a value is off by
/// less than 1/128.
const STEPS_BITS: u32 = 7;
const STEPS: usize = 1 << STEPS_BITS;
/// Doublings above the exact range. Larger values than 2^40 ns, which is 18 minutes, are counted
/// as that: no request waits so long.
const DOUBLINGS: usize = 33;
const BUCKETS: usize = STEPS * (DOUBLINGS + 1);

/// Counts of values in nanoseconds. Values below 128 are exact.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, max: 0 }
    }
}

impl Histogram {
    /// Counts one value.
    pub(super) fn record(&mut self, nanos: u64) {
        if let Some(count) = self.counts.get_mut(bucket_of(nanos)) {
            *count += 1;
        }
        self.total += 1;
        self.max = self.max.max(nanos);
    }

    /// How many values were counted.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The largest value, exact; 0 when there is none.
    pub(super) fn max(&self) -> u64 {
        self.max
    }

    /// The smallest bucket end that `per_mille` of 1,000 values do not exceed; 0 when there is none.
    pub(super) fn quantile(&self, per_mille: u64) -> u64 {
        let rank = self.total.saturating_mul(per_mille.min(1000)).div_ceil(1000).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return end_of(bucket).min(self.max);
            }
        }
        self.max
    }
}

fn bucket_of(nanos: u64) -> usize {
    let bits = u64::BITS - nanos.leading_zeros();
    let shift = bits.saturating_sub(STEPS_BITS + 1);
    // The leading one and the seven bits behind it, which count on from bucket to bucket.
    let place = usize::try_from(nanos >> shift).unwrap_or(usize::MAX);
    let start = usize::try_from(shift).unwrap_or(usize::MAX).saturating_mul(STEPS);
    start.saturating_add(place).min(BUCKETS - 1)
}

/// The largest value of a bucket.
fn end_of(bucket: usize) -> u64 {
    let shift = (bucket / STEPS).saturating_sub(1);
    let place = bucket - shift * STEPS;
    let next = u64::try_from(place).unwrap_or(u64::MAX).saturating_add(1);
    (next << shift) - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_continue_each_other() {
        for bucket in 0..BUCKETS - 1 {
            let end = end_of(bucket);
            assert_eq!(bucket_of(end), bucket, "end {end}");
            assert_eq!(bucket_of(end + 1), bucket + 1, "after {end}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_of_known_values() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.quantile(500), histogram.max(), histogram.total()), (0, 0, 0));
        for value in 1..=100 {
            histogram.record(value);
        }
        for (per_mille, expected) in [(0, 1), (10, 1), (500, 50), (990, 99), (1000, 100)] {
            assert_eq!(histogram.quantile(per_mille), expected, "{per_mille}");
        }
    }

    proptest! {
        #[test]
        fn a_value_is_at_most_one_percent_too_high(value in 0_u64..1 << 40) {
            let end = end_of(bucket_of(value));
            prop_assert!(end >= value && (end - value).saturating_mul(128) <= value, "{value} -> {end}");
        }
    }
}
