//! The histograms that the consensus library records its batch sizes and durations in, with one
//! bucket for each power of two.
//!
//! This crate replaces base2histogram and has only the part that the library uses. With its first
//! histogram, base2histogram builds tables for every precision, which costs each process 20 MB of
//! memory, and 80 ms in a development build. This crate draws no charts, because nothing in this
//! repository shows them.

use std::fmt;
use std::marker::PhantomData;

/// Number of buckets: one for zero, and one for each power of two of a `u64`.
const BUCKETS: usize = 65;

/// A histogram of integers. A percentile is exact up to a factor of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram<T = ()> {
    counts: [u64; BUCKETS],
    slots: PhantomData<T>,
}

impl<T> Default for Histogram<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Histogram<T> {
    /// Creates a histogram without values.
    #[must_use]
    pub fn new() -> Self {
        Self { counts: [0; BUCKETS], slots: PhantomData }
    }

    /// Records a value.
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Records a value a number of times.
    pub fn record_n(&mut self, value: u64, times: u64) {
        let bucket = usize::try_from(u64::BITS - value.leading_zeros()).unwrap_or(0);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count = count.saturating_add(times);
        }
    }

    /// Returns the number of values.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the smallest value of the bucket that contains the quantile `thousandths` / 1000; 0
    /// if there are no values.
    fn quantile(&self, thousandths: u64) -> u64 {
        let total = u128::from(self.total());
        let place = (total * u128::from(thousandths)).div_ceil(1_000).max(1);
        let mut sum = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            sum += u128::from(*count);
            if sum >= place {
                return bucket.checked_sub(1).map_or(0, |power| 1 << power);
            }
        }
        0
    }

    /// Returns the usual percentiles.
    #[must_use]
    pub fn percentile_stats(&self) -> PercentileStats {
        PercentileStats {
            samples: self.total(),
            p0_1: self.quantile(1),
            p1: self.quantile(10),
            p5: self.quantile(50),
            p10: self.quantile(100),
            p50: self.quantile(500),
            p90: self.quantile(900),
            p99: self.quantile(990),
            p99_9: self.quantile(999),
        }
    }
}

/// Percentiles of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PercentileStats {
    /// The number of values.
    pub samples: u64,
    /// 0.1 % of the values are at most this value.
    pub p0_1: u64,
    /// 1 % of the values are at most this value.
    pub p1: u64,
    /// 5 % of the values are at most this value.
    pub p5: u64,
    /// 10 % of the values are at most this value.
    pub p10: u64,
    /// The median.
    pub p50: u64,
    /// 90 % of the values are at most this value.
    pub p90: u64,
    /// 99 % of the values are at most this value.
    pub p99: u64,
    /// 99.9 % of the values are at most this value.
    pub p99_9: u64,
}

impl fmt::Display for PercentileStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { samples, p50, p90, p99, p99_9, .. } = self;
        write!(f, "{samples} values, p50 {p50}, p90 {p90}, p99 {p99}, p99.9 {p99_9}")
    }
}

/// A list of named histograms.
#[derive(Clone, Debug, Default)]
pub struct AsciiChart<T = ()> {
    series: Vec<(String, Histogram<T>)>,
}

impl<T> AsciiChart<T> {
    /// Creates an empty list.
    #[must_use]
    pub fn new() -> Self {
        Self { series: Vec::new() }
    }

    /// Adds a histogram.
    #[must_use]
    pub fn add(mut self, name: &str, histogram: Histogram<T>) -> Self {
        self.series.push((name.to_owned(), histogram));
        self
    }
}

impl<T> fmt::Display for AsciiChart<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.series
            .iter()
            .try_for_each(|(name, values)| writeln!(f, "{name}: {}", values.percentile_stats()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact_up_to_a_factor_of_two() {
        let mut values = Histogram::<()>::new();
        assert_eq!((values.total(), values.percentile_stats().p50), (0, 0));
        for value in 1..=1_000 {
            values.record(value);
        }
        values.record_n(u64::MAX, 1);
        values.record(0);
        let found = values.percentile_stats();
        assert_eq!(found.samples, 1_002);
        for (percentile, exact) in [(found.p1, 10), (found.p50, 500), (found.p90, 900)] {
            assert!(percentile <= exact && exact < 2 * percentile, "{percentile} for {exact}");
        }
        let chart = AsciiChart::new().add("batch", values);
        assert_eq!(chart.to_string(), "batch: 1002 values, p50 256, p90 512, p99 512, p99.9 512\n");
    }
}
