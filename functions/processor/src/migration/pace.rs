//! The pace of a task: its share of the migration's rate.

use std::time::Duration;

use control::{Entry as _, Task};

use super::task::SLICE;

/// Items per second that a task may read; unlimited if `None`.
pub(crate) struct Pace(pub(crate) Option<u64>);

/// Returns how many items per second of the migration's `rate` a task may read. `tasks` contains
/// all tasks of the migration. Returns 0 if the workers of other tasks have taken the whole rate.
///
/// A worker gets at most an equal share of the rate, and at most the unused part of the rate. So a
/// worker that joins waits until earlier workers end their slices. A crashed worker's share becomes
/// free when its lease ends. If two leased tasks have no share, the task whose name sorts first
/// takes its share first, so that they do not both take the same part.
pub(crate) fn share(rate: u64, tasks: &[Task], task: &Task, now_ms: u64) -> u64 {
    let name = task.name();
    let others = tasks.iter().map(|other| (other.name(), other)).filter(|(of_other, other)| {
        *of_other != name && other.work.has_rate() && !other.done && other.is_leased(now_ms)
    });
    let others: Vec<_> = others.collect();
    let fair = (rate / (others.len() as u64 + 1)).max(1);
    let taken = others.iter().map(|(of_other, other)| match other.share {
        Some(share) => share,
        None if *of_other < name => fair,
        None => 0,
    });
    fair.min(rate.saturating_sub(taken.sum()))
}

impl Pace {
    /// Returns the number of items for a page, at most `most`. A page has at most as many items as
    /// one slice may read, so that the wait after it fits into a slice.
    pub(super) fn page_items(&self, most: u32) -> u32 {
        let of_slice = self.0.map(|rate| rate.saturating_mul(SLICE.as_secs()));
        let of_slice = of_slice.map_or(most, |items| u32::try_from(items).unwrap_or(most));
        of_slice.clamp(1, most.max(1))
    }

    /// Returns how long to wait after `read` items were read in the time `elapsed`.
    pub(super) fn wait(&self, read: u64, elapsed: Duration) -> Duration {
        let Some(rate) = self.0.filter(|rate| *rate > 0) else { return Duration::ZERO };
        Duration::from_millis(read.saturating_mul(1000) / rate).saturating_sub(elapsed)
    }
}

#[cfg(test)]
mod tests {
    use control::Work;

    use super::super::lease::LEASE;
    use super::super::task::PAGE_ITEMS;
    use super::*;

    const NOW: u64 = 1_000;

    /// Returns a backfill task with this owner, end of the lease, and share.
    fn task(segment: u32, owner: Option<&str>, leased_until: u64, share: Option<u64>) -> Task {
        let task = Task::new("shop", 0, Work::Backfill, "cats");
        Task { segment, segments: 8, owner: owner.map(str::to_owned), leased_until, share, ..task }
    }

    /// Returns the share of the task of a segment.
    fn share(rate: u64, tasks: &[Task], segment: u32, now_ms: u64) -> u64 {
        super::share(rate, tasks, &task(segment, None, 0, None), now_ms)
    }

    #[test]
    fn a_rate_is_of_the_backfill_alone() {
        assert!([Work::Backfill, Work::Touch].into_iter().all(Work::has_rate));
        let others = [Work::CheckSource, Work::CheckTarget, Work::Unmark];
        assert!(!others.into_iter().any(Work::has_rate));
        let mut compares = task(1, Some("v"), NOW + 1, Some(300));
        compares.work = Work::CheckSource;
        assert_eq!(share(300, &[compares], 0, NOW), 300);
    }

    #[test]
    fn one_worker_has_the_whole_rate_however_many_segments_there_are() {
        let mut tasks: Vec<Task> = (0..8).map(|number| task(number, None, 0, None)).collect();
        tasks[0] = task(0, Some("w"), NOW + 1, None);
        assert_eq!(share(300, &tasks, 0, NOW), 300);
        // A crashed worker's share counts until its lease ends.
        tasks[5] = task(5, Some("dead"), NOW + 1, Some(150));
        assert_eq!(share(300, &tasks, 0, NOW), 150);
        assert_eq!(share(300, &tasks, 0, NOW + 1), 300);
    }

    #[test]
    fn a_worker_that_joins_takes_only_what_the_others_leave() {
        let of = |shares: &[Option<u64>]| {
            let others = shares.iter().zip(1..);
            let others = others.map(|(share, number)| task(number, Some("v"), NOW + 1, *share));
            share(300, &others.collect::<Vec<_>>(), 0, NOW)
        };
        assert_eq!(of(&[Some(300)]), 0);
        assert_eq!(of(&[Some(150)]), 150);
        assert_eq!(of(&[Some(150), Some(100)]), 50);
        // The rate was reduced after the other task took its share.
        assert_eq!(of(&[Some(1_000)]), 0);
        assert_eq!(of(&[None]), 150);
    }

    #[test]
    fn workers_that_ask_at_the_same_time_stay_below_the_rate_together() {
        for (rate, workers) in [(300, 1), (300, 2), (300, 7), (3, 8), (1, 2), (100, 256)] {
            let tasks: Vec<Task> =
                (0..workers).map(|number| task(number, Some("w"), NOW + 1, None)).collect();
            let shares = (0..workers).map(|number| share(rate, &tasks, number, NOW));
            let shares: Vec<u64> = shares.collect();
            let sum: u64 = shares.iter().sum();
            assert!(sum <= rate, "{rate} {workers}: {shares:?}");
            assert!(sum + u64::from(workers) > rate, "{rate} {workers}: {shares:?}");
        }
    }

    #[test]
    fn a_rate_is_kept_from_slice_to_slice() {
        for rate in [1, 2, 10, 249, 250, 1_000, 100_000] {
            let pace = Pace(Some(rate));
            // In this test pages take no time, so only the waits limit the rate.
            let (mut all_read, mut all_time) = (0, Duration::ZERO);
            for _ in 0..20 {
                let (mut read, mut elapsed) = (0, Duration::ZERO);
                while elapsed < SLICE {
                    read += u64::from(pace.page_items(PAGE_ITEMS));
                    let wait = pace.wait(read, elapsed);
                    assert!(elapsed + wait < LEASE, "{rate}: {wait:?}");
                    elapsed += wait;
                }
                all_read += read;
                all_time += elapsed;
            }
            let allowed = all_time.as_secs_f64() * f64::from(u32::try_from(rate).unwrap());
            let read = f64::from(u32::try_from(all_read).unwrap());
            // The tolerance is necessary, because waits are whole milliseconds.
            assert!(read <= allowed * 1.01 + 1.0, "{rate}: {read} of {allowed}");
        }
        assert_eq!(Pace(None).page_items(PAGE_ITEMS), PAGE_ITEMS);
        assert_eq!(Pace(None).wait(1_000, Duration::ZERO), Duration::ZERO);
    }
}
