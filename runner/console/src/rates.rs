//! The rates of mappings in records per second, from samples of their counts.

use std::collections::{BTreeMap, VecDeque};

use locks::Mutex;

/// The minimum age in milliseconds of the sample that a new sample is compared with. It is long
/// enough for a steady rate, and short enough to show a change.
const SPAN_MS: i64 = 5_000;

/// The minimum time in milliseconds between compared samples, if no older sample exists.
const SPAN_MS_MIN: i64 = 400;

/// The maximum age in milliseconds of a sample. After a longer pause the rate is unknown.
const AGE_MS_MAX: i64 = 60_000;

/// The maximum number of samples. `weir up` writes its counts twice a second.
const SAMPLES_MAX: usize = 128;

/// The records per second of each mapping.
pub(crate) type PerSecond = BTreeMap<String, f64>;

/// The samples of the last minute, for all pages and event streams.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<VecDeque<Sample>>);

/// The number of records that each mapping had read at one time.
#[derive(Debug)]
struct Sample {
    taken_ms: i64,
    read: BTreeMap<String, u64>,
}

impl Rates {
    /// Adds a sample of the number of records that each mapping has read. Returns the rate of each
    /// mapping since an earlier sample. The time is in milliseconds since 1970.
    pub(crate) fn note(&self, taken_ms: i64, read: BTreeMap<String, u64>) -> PerSecond {
        let mut samples = self.0.lock();
        note(&mut samples, Sample { taken_ms, read })
    }
}

fn note(samples: &mut VecDeque<Sample>, sample: Sample) -> PerSecond {
    let age = |earlier: &Sample| sample.taken_ms.saturating_sub(earlier.taken_ms);
    samples.retain(|earlier| (0..AGE_MS_MAX).contains(&age(earlier)));
    // The newest sample that is old enough, or else the oldest sample.
    let earlier = samples.iter().rev().find(|earlier| age(earlier) >= SPAN_MS).or(samples.front());
    let earlier = earlier.filter(|earlier| age(earlier) >= SPAN_MS_MIN);
    let rates = earlier.map(|earlier| {
        let seconds = age(earlier) as f64 / 1_000.0;
        let of = |(name, read): (&String, &u64)| {
            // A restart of `weir up` resets the counts.
            let grown = read.checked_sub(*earlier.read.get(name)?)?;
            Some((name.clone(), grown as f64 / seconds))
        };
        sample.read.iter().filter_map(of).collect()
    });
    if samples.back().is_none_or(|last| last.taken_ms < sample.taken_ms) {
        samples.push_back(sample);
    }
    if samples.len() > SAMPLES_MAX {
        samples.pop_front();
    }
    rates.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_two_samples_and_a_steady_count() {
        let mut samples = VecDeque::new();
        let mut rate = |taken_ms, read| {
            let read = BTreeMap::from([("m".to_owned(), read)]);
            note(&mut samples, Sample { taken_ms, read }).get("m").copied()
        };
        for (taken_ms, read, expected) in [
            (0, 100, None),
            (0, 100, None),
            (500, 600, Some(1_000.0)),
            (5_000, 5_100, Some(1_000.0)),
            // The sample at 6,000 ms is compared with the sample at 500 ms.
            (6_000, 600, Some(0.0)),
            (7_000, 3, None),
            (200_000, 50, None),
            (199_000, 50, None),
        ] {
            assert_eq!(rate(taken_ms, read), expected, "{taken_ms}");
        }
    }
}
