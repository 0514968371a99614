//! A window over the targets of a batch or of a page. It processes them in the order of their
//! records, with as much concurrency as the throttling currently allows.
//!
//! Callers define how a target is processed. The order matters, because a batch is
//! redelivered from the first record of an unfinished target.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::targets::WRITES_AT_ONCE;
use super::throttling::Throttling;
use crate::back_off::Attempts;
use crate::frame::TargetOutcome;

/// The kind of work on targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkKind {
    /// A batch of a stream. It waits for write capacity until its deadline, because a batch that
    /// fails early is delivered again with all targets that it has not finished. The window adapts
    /// the number of concurrent writes.
    Batch,
    /// A page of a task. Between two pages, the worker of the task adapts the number of concurrent
    /// writes and the size of the page.
    Page,
    /// A single target.
    One,
}

/// State shared by the targets of a window.
#[derive(Debug)]
pub(super) struct Window<'t> {
    throttling: &'t Throttling,
    extent: WorkKind,
    /// Number of throttled attempts when the window was created.
    throttled: u64,
    /// True if a first write has failed because its target already exists, so that further targets
    /// are read before they are written.
    has_existing_targets: AtomicBool,
}

impl<'t> Window<'t> {
    pub(super) fn new(throttling: &'t Throttling, extent: WorkKind) -> Self {
        let throttled = throttling.attempts();
        Self { throttling, extent, throttled, has_existing_targets: AtomicBool::new(false) }
    }

    /// Returns the current number of concurrent targets.
    pub(super) fn concurrency(&self) -> usize {
        self.throttling.concurrency()
    }

    /// Records that a first write has failed because its target already exists. The batch may be a
    /// redelivery.
    pub(super) fn record_existing_target(&self) {
        self.has_existing_targets.store(true, Ordering::Relaxed);
    }

    /// Returns true if targets are read before they are written. A write whose condition fails
    /// costs as much as a successful write. Without reads, a redelivered batch would use up a slow
    /// table's capacity for targets that are already done. For targets that do not exist yet, reads
    /// would be unnecessary requests.
    pub(super) fn reads_first(&self) -> bool {
        self.extent != WorkKind::One
            && (self.has_existing_targets.load(Ordering::Relaxed)
                || self.throttling.attempts() > self.throttled
                || self.throttling.concurrency() < WRITES_AT_ONCE)
    }

    /// Allows one more attempt if the last attempt was throttled. `throttled` is the number of
    /// throttled attempts before the last attempt. If the target failed instead, later targets
    /// would use the capacity, and the redelivered batch would not be shorter. The batch's deadline
    /// bounds the attempts.
    pub(super) fn wait_for_capacity(&self, attempts: &mut Attempts, throttled: u64) {
        if self.extent == WorkKind::Batch && self.throttling.attempts() > throttled {
            attempts.allow_one_more();
        }
    }

    /// Returns the number of throttled attempts so far.
    pub(super) fn throttled(&self) -> u64 {
        self.throttling.attempts()
    }

    /// Runs all futures of `work`, and starts them in order. A future is created only when it
    /// starts, because it takes several kilobytes and a batch has thousands of futures.
    pub(super) async fn run<F: Future<Output = TargetOutcome>>(
        &self,
        mut work: impl Iterator<Item = F>,
    ) -> Vec<TargetOutcome> {
        let (mut running, mut outcomes) = (FuturesUnordered::new(), Vec::new());
        let (mut throttled, mut done) = (self.throttling.attempts(), 0);
        loop {
            while running.len() < self.concurrency()
                && let Some(next) = work.next()
            {
                running.push(next);
            }
            let Some(outcome) = running.next().await else { return outcomes };
            // The write of a target that the deadline interrupted does not show whether it was
            // throttled.
            done += usize::from(outcome.result.is_ok());
            outcomes.push(outcome);
            // A batch adapts its concurrency after as many finished writes as may run concurrently.
            if self.extent == WorkKind::Batch && done >= self.concurrency() {
                self.throttling.adapt(throttled);
                (throttled, done) = (self.throttling.attempts(), 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Runs 300 futures that each need some polls. Returns the order in which they began, and how
    /// many ran at each start.
    async fn run(throttling: &Throttling, extent: WorkKind) -> (Vec<usize>, Vec<usize>) {
        let window = Window::new(throttling, extent);
        let begun = Mutex::new((Vec::new(), Vec::new(), 0_usize));
        let all = (0..300_usize).map(|number| {
            let begun = &begun;
            async move {
                {
                    let mut begun = begun.lock().unwrap();
                    begun.2 += 1;
                    let running = begun.2;
                    begun.0.push(number);
                    begun.1.push(running);
                }
                for _ in 0..number % 5 {
                    tokio::task::yield_now().await;
                }
                begun.lock().unwrap().2 -= 1;
                TargetOutcome::new(String::new(), vec![number], Ok(1))
            }
        });
        assert_eq!(window.run(all).await.len(), 300);
        let (order, running, _) = begun.into_inner().unwrap();
        (order, running)
    }

    #[tokio::test]
    async fn work_begins_in_order_and_as_much_at_the_same_time_as_throttling_allows() {
        let throttling = Throttling::narrowed_to(2);
        let (order, running) = run(&throttling, WorkKind::Page).await;
        assert!(order.is_sorted());
        assert_eq!(running.iter().max(), Some(&2));
        assert_eq!(throttling.concurrency(), 2);
        // While nothing is throttled, a batch increases its concurrency.
        let (order, running) = run(&throttling, WorkKind::Batch).await;
        assert!(order.is_sorted());
        assert!(running.iter().take(3).all(|running| *running <= 2), "{running:?}");
        assert!(throttling.concurrency() > 2);
    }

    #[tokio::test]
    async fn targets_ended_by_the_deadline_do_not_widen_the_window() {
        let throttling = Throttling::narrowed_to(2);
        let ended = (0..500_usize).map(|number| async move {
            let result = Err(crate::failure::Failure::Retry("out of time".to_owned()));
            TargetOutcome::new(String::new(), vec![number], result)
        });
        let outcomes = Window::new(&throttling, WorkKind::Batch).run(ended).await;
        assert_eq!((outcomes.len(), throttling.concurrency()), (500, 2));
    }

    #[test]
    fn targets_are_read_first_once_something_was_in_the_way() {
        let throttling = Throttling::default();
        assert!(!Window::new(&throttling, WorkKind::Batch).reads_first());
        let met = Window::new(&throttling, WorkKind::Batch);
        met.record_existing_target();
        assert!(met.reads_first());
        let throttled = Window::new(&throttling, WorkKind::Page);
        throttling.throttle();
        assert!(throttled.reads_first());
        assert!(!Window::new(&throttling, WorkKind::Batch).reads_first());
        let narrow = Throttling::narrowed_to(32);
        assert!(Window::new(&narrow, WorkKind::Batch).reads_first());
        assert!(!Window::new(&narrow, WorkKind::One).reads_first());
    }
}
