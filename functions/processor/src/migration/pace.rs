//! How fast a task may read.

use std::time::Duration;

use super::control::Work;
use super::task::SLICE;

/// Items per second that a task may read; none without a limit.
pub(crate) struct Pace(pub(crate) Option<u64>);

impl Pace {
    /// What is left to one of `segments` tasks of a rate for each table, 0 without a limit. A rate is
    /// of the backfill: a comparison, and what ends a migration, is asked for by a person who waits.
    pub(crate) fn of(work: Work, rate: u64, segments: i32) -> Self {
        let is_backfill = matches!(work, Work::Backfill | Work::Touch);
        let share = (rate / u64::try_from(segments).unwrap_or(1).max(1)).max(1);
        Self((is_backfill && rate > 0).then_some(share))
    }

    /// Items of a page, `most` without a limit. A page is no more than a slice may read, so that what
    /// is waited for it fits into one.
    pub(super) fn page_items(&self, most: i32) -> i32 {
        let of_slice = self.0.map(|rate| rate.saturating_mul(SLICE.as_secs()));
        let of_slice = of_slice.map_or(most, |items| i32::try_from(items).unwrap_or(most));
        of_slice.clamp(1, most.max(1))
    }

    /// How long is to be waited when so many items were read in this time.
    pub(super) fn wait(&self, read: u64, elapsed: Duration) -> Duration {
        let Some(rate) = self.0.filter(|rate| *rate > 0) else { return Duration::ZERO };
        Duration::from_millis(read.saturating_mul(1000) / rate).saturating_sub(elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::lease::LEASE;
    use super::super::task::PAGE_ITEMS;
    use super::*;

    #[test]
    fn a_rate_is_of_the_backfill_alone() {
        for work in [Work::Backfill, Work::Touch] {
            let of = |rate, segments| Pace::of(work, rate, segments).0;
            assert_eq!((of(100, 8), of(3, 8), of(0, 8)), (Some(12), Some(1), None));
        }
        for work in [Work::CheckSource, Work::CheckTarget, Work::Unmark] {
            assert_eq!(Pace::of(work, 100, 8).0, None, "{work:?}");
        }
    }

    #[test]
    fn a_rate_is_kept_from_slice_to_slice() {
        for rate in [1, 2, 10, 249, 250, 1_000, 100_000] {
            let pace = Pace(Some(rate));
            // Pages take no time here, so that only the waiting keeps the rate.
            let (mut all_read, mut all_time) = (0, Duration::ZERO);
            for _ in 0..20 {
                let (mut read, mut elapsed) = (0, Duration::ZERO);
                while elapsed < SLICE {
                    read += u64::try_from(pace.page_items(PAGE_ITEMS)).unwrap();
                    let wait = pace.wait(read, elapsed);
                    assert!(elapsed + wait < LEASE, "{rate}: {wait:?}");
                    elapsed += wait;
                }
                all_read += read;
                all_time += elapsed;
            }
            let allowed = all_time.as_secs_f64() * f64::from(u32::try_from(rate).unwrap());
            let read = f64::from(u32::try_from(all_read).unwrap());
            // A wait is whole milliseconds.
            assert!(read <= allowed * 1.01 + 1.0, "{rate}: {read} of {allowed}");
        }
        assert_eq!(Pace(None).page_items(PAGE_ITEMS), PAGE_ITEMS);
        assert_eq!(Pace(None).wait(1_000, Duration::ZERO), Duration::ZERO);
    }
}
