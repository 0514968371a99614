//! A window over the targets of a batch or of a page: they are worked on in the order of their
//! records, so many at the same time as the throttling allows at each moment.
//!
//! What is done with a target is not known here. Which are ahead of others matters, because whatever
//! a batch has not done by its end begins at the first target that is left.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::targets::WRITES_AT_ONCE;
use super::throttling::Throttling;
use crate::back_off::Attempts;
use crate::frame::TargetOutcome;

/// What targets are worked on for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// A batch of a stream. Nothing else makes it smaller than what it got done, so it waits for
    /// capacity until its deadline, and adapts the number of writes at the same time by itself.
    Batch,
    /// A page of a task, whose worker adapts that number, and the page with it, between two pages.
    Page,
    /// A target by itself.
    One,
}

/// What those that are worked on together know of each other.
#[derive(Debug)]
pub(super) struct Window<'t> {
    throttling: &'t Throttling,
    extent: Extent,
    /// Attempts that had been throttled when it began.
    throttled: u64,
    /// A target was met that was not as a first write takes it to be.
    has_met_others: AtomicBool,
}

impl<'t> Window<'t> {
    pub(super) fn new(throttling: &'t Throttling, extent: Extent) -> Self {
        let throttled = throttling.attempts();
        Self { throttling, extent, throttled, has_met_others: AtomicBool::new(false) }
    }

    /// How many are worked on at the same time now.
    pub(super) fn width(&self) -> usize {
        self.throttling.width()
    }

    /// Notes a target that was not as a first write takes it to be: the batch may have come before.
    pub(super) fn met_another(&self) {
        self.has_met_others.store(true, Ordering::Relaxed);
    }

    /// Whether targets are read before they are written. A write whose condition fails costs what a
    /// write costs, so a batch that comes again would spend on what it did before all that a slow
    /// table gives. While nothing is in the way, the read would be a request more for each target.
    pub(super) fn reads_first(&self) -> bool {
        self.extent != Extent::One
            && (self.has_met_others.load(Ordering::Relaxed)
                || self.throttling.attempts() > self.throttled
                || self.throttling.width() < WRITES_AT_ONCE)
    }

    /// Allows one more attempt if the last one was throttled, before which there had been `throttled`
    /// throttled attempts. A target that gave up would leave its capacity to those behind it, and the
    /// batch would come again as long as it is. The deadline of the batch ends it.
    pub(super) fn wait_for_capacity(&self, attempts: &mut Attempts, throttled: u64) {
        if self.extent == Extent::Batch && self.throttling.attempts() > throttled {
            attempts.allow_one_more();
        }
    }

    /// Attempts that were throttled so far.
    pub(super) fn throttled(&self) -> u64 {
        self.throttling.attempts()
    }

    /// Does all of `work`, beginning in its order. What has not begun is not made before: each takes
    /// several kilobytes, and a batch has thousands.
    pub(super) async fn run<F: Future<Output = TargetOutcome>>(
        &self,
        mut work: impl Iterator<Item = F>,
    ) -> Vec<TargetOutcome> {
        let (mut running, mut outcomes) = (FuturesUnordered::new(), Vec::new());
        let (mut throttled, mut done) = (self.throttling.attempts(), 0);
        loop {
            while running.len() < self.width()
                && let Some(next) = work.next()
            {
                running.push(next);
            }
            let Some(outcome) = running.next().await else { return outcomes };
            // What the deadline ends says nothing of the throttling.
            done += usize::from(outcome.result.is_ok());
            outcomes.push(outcome);
            // As often as a page of so many writes would end.
            if self.extent == Extent::Batch && done >= self.width() {
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

    /// Runs 300 that each take some turns; gives the order in which they began, and the most that
    /// were under way at each beginning.
    async fn run(throttling: &Throttling, extent: Extent) -> (Vec<usize>, Vec<usize>) {
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
        let (order, running) = run(&throttling, Extent::Page).await;
        assert!(order.is_sorted());
        assert_eq!(running.iter().max(), Some(&2));
        assert_eq!(throttling.width(), 2);
        // A batch widens its window while nothing is throttled.
        let (order, running) = run(&throttling, Extent::Batch).await;
        assert!(order.is_sorted());
        assert!(running.iter().take(3).all(|running| *running <= 2), "{running:?}");
        assert!(throttling.width() > 2);
    }

    #[tokio::test]
    async fn what_the_deadline_ends_widens_nothing() {
        let throttling = Throttling::narrowed_to(2);
        let ended = (0..500_usize).map(|number| async move {
            let result = Err(crate::failure::Failure::Retry("out of time".to_owned()));
            TargetOutcome::new(String::new(), vec![number], result)
        });
        let outcomes = Window::new(&throttling, Extent::Batch).run(ended).await;
        assert_eq!((outcomes.len(), throttling.width()), (500, 2));
    }

    #[test]
    fn targets_are_read_first_once_something_was_in_the_way() {
        let throttling = Throttling::default();
        assert!(!Window::new(&throttling, Extent::Batch).reads_first());
        let met = Window::new(&throttling, Extent::Batch);
        met.met_another();
        assert!(met.reads_first());
        let throttled = Window::new(&throttling, Extent::Page);
        throttling.throttle();
        assert!(throttled.reads_first());
        assert!(!Window::new(&throttling, Extent::Batch).reads_first());
        let narrow = Throttling::narrowed_to(32);
        assert!(Window::new(&narrow, Extent::Batch).reads_first());
        assert!(!Window::new(&narrow, Extent::One).reads_first());
    }
}
