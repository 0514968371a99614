//! Injects faults into the invocations and reads of a poller.
//!
//! The plan determines the fault of each call. The mapping has no access to the plan.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use locks::Mutex;
use mapping::faults::{InvocationFault, LATE_BATCHES_MAX, Plan};
use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::invoke::{Invoke, InvokeOutcome};

/// The maximum size in bytes of an event that is kept for a late redelivery. The limit bounds the memory of
/// each mapping.
const LATE_EVENT_BYTES_MAX: usize = 1024 * 1024;

/// The faults of a run, for all mappings.
#[derive(Debug)]
pub struct Chaos {
    seed: u64,
    /// Whether faults are switched on.
    is_on: AtomicBool,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl Chaos {
    /// Creates the faults of a run.
    #[must_use]
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self { seed, is_on: AtomicBool::new(true), counts: Mutex::default() })
    }

    /// Returns the faults of one mapping.
    #[must_use]
    pub fn of_mapping(self: &Arc<Self>, mapping_id: &str) -> Arc<MappingChaos> {
        Arc::new(MappingChaos {
            plan: Plan::new(self.seed, mapping_id),
            run: Arc::clone(self),
            invocations: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            delivered: Mutex::default(),
            crash: Notify::new(),
        })
    }

    /// Returns the seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns whether faults are switched on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Turns the faults on or off, for all mappings. They are on at the start.
    pub fn switch(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
    }

    /// Returns the number of faults that have occurred.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.counts.lock().values().sum()
    }

    /// Counts a fault that occurred.
    pub(crate) fn count(&self, fault: &'static str) {
        let mut counts = self.counts.lock();
        *counts.entry(fault).or_default() += 1;
    }
}

/// Formats the seed and the faults, as in `chaos seed=7 faults=3 (crash 1, split 2)`.
impl fmt::Display for Chaos {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "chaos seed={} faults={}", self.seed, self.faults())?;
        let counts = self.counts.lock();
        let counts: Vec<_> = counts.iter().map(|(fault, n)| format!("{fault} {n}")).collect();
        if counts.is_empty() { Ok(()) } else { write!(formatter, " ({})", counts.join(", ")) }
    }
}

/// The faults of one mapping.
#[derive(Debug)]
pub struct MappingChaos {
    plan: Plan,
    run: Arc<Chaos>,
    invocations: AtomicU64,
    reads: AtomicU64,
    /// The last events that were delivered to the function, newest first.
    delivered: Mutex<VecDeque<Bytes>>,
    crash: Notify,
}

impl MappingChaos {
    /// Waits until the poller must crash. The caller then drops all work in progress and resumes from the
    /// checkpoints on disk.
    pub(super) async fn crashed(&self) {
        self.crash.notified().await;
    }

    /// Returns whether to treat the iterator of the next read as expired.
    pub(super) fn iterator_expires(&self) -> bool {
        if !self.run.is_on() {
            return false;
        }
        let expires = self.plan.iterator_expires(self.reads.fetch_add(1, Ordering::Relaxed));
        if expires {
            self.run.count("iterator expired");
        }
        expires
    }

    /// Invokes the function, with the fault that the plan has for this invocation.
    pub(super) async fn invoke<I: Invoke>(
        &self,
        function: &I,
        request: &str,
        event: Bytes,
    ) -> InvokeOutcome {
        if !self.run.is_on() {
            return function.invoke(request, event).await;
        }
        let fault = self.plan.invocation(self.invocations.fetch_add(1, Ordering::Relaxed));
        match fault {
            Some(InvocationFault::Throttle) => {
                self.run.count("throttled");
                return InvokeOutcome::NotInvoked("throttled by a fault of --chaos".to_owned());
            }
            Some(InvocationFault::Slow { ms }) => {
                self.run.count("slow");
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
            Some(InvocationFault::Duplicate) => {
                self.run.count("duplicate");
                function.invoke(request, event.clone()).await;
            }
            Some(InvocationFault::Split { draw }) => {
                if let Some(beginning) = beginning(&event, draw) {
                    self.run.count("split");
                    function.invoke(request, beginning).await;
                }
            }
            Some(InvocationFault::Crash | InvocationFault::Late { .. }) | None => {}
        }
        let outcome = function.invoke(request, event.clone()).await;
        if let Some(InvocationFault::Late { back }) = fault
            && let Some(old) = self.old(back)
        {
            self.run.count("late");
            function.invoke(request, old).await;
        }
        self.remember(event);
        if fault == Some(InvocationFault::Crash) && matches!(outcome, InvokeOutcome::Ok(_)) {
            self.run.count("crash");
            self.crash.notify_one();
            // The crash loses the response.
            std::future::pending::<()>().await;
        }
        outcome
    }

    fn old(&self, back: usize) -> Option<Bytes> {
        let delivered = self.delivered.lock();
        delivered.get(back.saturating_sub(1)).cloned()
    }

    fn remember(&self, event: Bytes) {
        if event.len() > LATE_EVENT_BYTES_MAX {
            return;
        }
        let mut delivered = self.delivered.lock();
        delivered.push_front(event);
        delivered.truncate(LATE_BATCHES_MAX);
    }
}

/// Returns the event with only its first records: at least one, but not all. Returns `None` if the
/// event has fewer than two records.
fn beginning(event: &[u8], draw: u64) -> Option<Bytes> {
    let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(event).ok()?;
    let records: Vec<Box<RawValue>> = serde_json::from_str(members.get("Records")?.get()).ok()?;
    let cuts = u64::try_from(records.len()).ok()?.checked_sub(1).filter(|cuts| *cuts > 0)?;
    let some = records.get(..usize::try_from(1 + draw % cuts).ok()?)?;
    members.insert("Records".to_owned(), serde_json::value::to_raw_value(some).ok()?);
    serde_json::to_vec(&members).ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_is_never_empty_and_never_whole() {
        let event = br#"{"Records":[{"a":1},{"a":2},{"a":3}],"state":{"x":1.50}}"#;
        for (draw, expected) in [
            (0, r#"{"Records":[{"a":1}],"state":{"x":1.50}}"#),
            (1, r#"{"Records":[{"a":1},{"a":2}],"state":{"x":1.50}}"#),
            (2, r#"{"Records":[{"a":1}],"state":{"x":1.50}}"#),
        ] {
            assert_eq!(beginning(event, draw).unwrap(), expected);
        }
        assert_eq!(beginning(br#"{"Records":[{"a":1}]}"#, 0), None);
        assert_eq!(beginning(b"{}", 0), None);
    }
}
