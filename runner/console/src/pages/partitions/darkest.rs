//! The darkest cell of a heat map: its time, its partition, and whether the hottest key is in it.

use super::view::HotKey;
use crate::load_history::{BANDS, Partition, Sample, band_of, first_token};

/// The relative difference below which two rates have the same shade. The cells of a partition have
/// the same rate, except for rounding.
const EQUAL: f64 = 1e-6;

/// The cell with the highest rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Darkest {
    /// Capacity units per second in the cell.
    pub(super) rate: f64,
    /// The time of the sample, in seconds since 1970.
    pub(super) at: i64,
    /// The partition that has most of the cell's tokens now.
    pub(super) partition: Option<u32>,
    /// Whether the table had a different number of partitions at that time.
    pub(super) has_split: bool,
    /// Whether the hottest key is in this partition; `None` if no key is hot.
    pub(super) has_hottest: Option<bool>,
}

impl Darkest {
    /// Finds the cell with the highest rate: the newest of them, and if possible the one with the
    /// hottest key. Returns `None` if all rates are zero.
    pub(super) fn of(
        samples: &[Sample],
        units: impl Fn(&Sample) -> &[f64],
        partitions: &[Partition],
        hottest: Option<&HotKey>,
    ) -> Option<Self> {
        let rate = samples.iter().flat_map(&units).copied().fold(0.0, f64::max);
        if rate <= 0.0 {
            return None;
        }
        let is_darkest = |own: &f64| rate - *own <= rate * EQUAL;
        let sample = samples.iter().rev().find(|sample| units(sample).iter().any(is_darkest))?;
        let cells = units(sample);
        let of_key = hottest.and_then(|hot| hot.token.parse().ok()).map(band_of);
        let of_key = of_key.filter(|band| cells.get(*band).is_some_and(is_darkest));
        let band = of_key.or_else(|| cells.iter().position(is_darkest))?;
        let partition = covering(band, partitions);
        Some(Self {
            rate,
            at: sample.at,
            partition,
            has_split: sample.partitions != partitions.len(),
            has_hottest: hottest.map(|hot| Some(hot.partition) == partition),
        })
    }
}

/// Returns the partition with most of a band's tokens.
fn covering(band: usize, partitions: &[Partition]) -> Option<u32> {
    let lowest = first_token(band);
    let highest = lowest | (u64::MAX / u64::try_from(BANDS).unwrap_or(1));
    let common = |partition: &Partition| {
        let (first, last) = partition.tokens()?;
        last.min(highest).checked_sub(first.max(lowest))
    };
    let common = partitions.iter().filter_map(|it| Some((common(it)?, it.number)));
    common.max().map(|(_, number)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(number: u32, first: u64, last: u64) -> Partition {
        Partition {
            number,
            first_token: first.to_string(),
            last_token: last.to_string(),
            items: 0,
            bytes: 0,
            read_units_per_second: 0.0,
            write_units_per_second: 0.0,
            shard: None,
            splitting: false,
        }
    }

    fn hot(partition: u32, token: u64) -> HotKey {
        HotKey {
            key: serde_json::json!({"p": {"S": "a"}}),
            token: token.to_string(),
            partition,
            units_per_second: 90.0,
            error_per_second: 0.0,
        }
    }

    #[test]
    fn the_darkest_cell_names_the_partition_of_the_hottest_key() {
        let half = u64::MAX / 2;
        let partitions = [partition(3, 0, half), partition(4, half + 1, u64::MAX)];
        let sample = |at, lower: f64, upper: f64| {
            let mut writes = vec![lower; BANDS / 2];
            writes.resize(BANDS, upper);
            Sample { at, partitions: 2, reads: vec![0.0; BANDS], writes }
        };
        let samples = [sample(1, 7.0, 1.0), sample(2, 1.0, 9.0), sample(3, 9.0, 9.0)];
        let of = |samples: &[Sample], hottest: Option<&HotKey>| {
            Darkest::of(samples, |sample| &sample.writes, &partitions, hottest).unwrap()
        };
        let both = of(&samples, Some(&hot(4, half + 9)));
        assert_eq!((both.rate, both.at, both.partition), (9.0, 3, Some(4)));
        assert_eq!((both.has_hottest, both.has_split), (Some(true), false));
        let other = of(&samples[..2], Some(&hot(3, 5)));
        assert_eq!((other.at, other.partition, other.has_hottest), (2, Some(4), Some(false)));
        assert_eq!(of(&samples, None).has_hottest, None);
        let split = Sample { partitions: 1, ..samples[1].clone() };
        assert!(of(&[split], None).has_split);
        let quiet = Darkest::of(&samples, |sample| &sample.reads, &partitions, None);
        assert_eq!(quiet, None);
    }
}
