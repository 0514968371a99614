//! Transfers of states to other nodes: their common bandwidth, and their progress.
//!
//! This module does not read or send a state.

use std::collections::BTreeMap;
use std::time::Duration;

use locks::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::ring::ArcId;
use crate::types::NodeId;

/// The default bandwidth of all transfers of a process, in bytes per second: half of a gigabit network, so that
/// requests keep the other half.
pub const BYTES_PER_SECOND: u64 = 64_000_000;
/// The maximum number of concurrent transfers of a process. With more of them, a slow transfer could exceed
/// the time that its receiver waits for the next part.
const CONCURRENT_MAX: usize = 4;

/// The transfers that all replicas of a process share.
#[derive(Debug)]
pub struct Transfers {
    bytes_per_second: u64,
    slots: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The time at which the next part may be sent; `None` before the first part.
    next: Option<Instant>,
    running: BTreeMap<(ArcId, NodeId), Running>,
    /// The bytes that were sent in all transfers.
    sent_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    begun: Instant,
    sent_bytes: u64,
}

/// The progress of a transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// The receiving node.
    pub to: NodeId,
    /// The bytes of keys and values that were sent.
    pub sent_bytes: u64,
    /// The time since the first part, in milliseconds.
    pub elapsed_ms: u64,
}

impl Default for Transfers {
    fn default() -> Self {
        Self::new(BYTES_PER_SECOND)
    }
}

impl Transfers {
    /// Creates the transfers of a process, which together send at most this number of bytes per second, at least 1.
    #[must_use]
    pub fn new(bytes_per_second: u64) -> Self {
        let bytes_per_second = bytes_per_second.max(1);
        let (slots, state) = (Semaphore::new(CONCURRENT_MAX), Mutex::default());
        Self { bytes_per_second, slots, state }
    }

    /// Begins a transfer, which ends when the returned value is dropped. Waits while [`CONCURRENT_MAX`] other
    /// transfers run.
    pub(super) async fn begin(&self, arc: ArcId, to: NodeId) -> OutgoingTransfer<'_> {
        // The semaphore is never closed. Without a permit, the transfer is only not counted.
        let permit = self.slots.acquire().await.ok();
        let begun = Running { begun: Instant::now(), sent_bytes: 0 };
        self.state.lock().running.insert((arc, to), begun);
        OutgoingTransfer { transfers: self, arc, to, _permit: permit }
    }

    /// Returns the running transfers of an arc.
    pub(super) fn of(&self, arc: ArcId) -> Vec<Transfer> {
        let state = self.state.lock();
        let of_arc = state.running.range((arc, 0)..=(arc, NodeId::MAX));
        let progress = |((_, to), running): (&(ArcId, NodeId), &Running)| Transfer {
            to: *to,
            sent_bytes: running.sent_bytes,
            elapsed_ms: u64::try_from(running.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        of_arc.map(progress).collect()
    }

    /// Returns the bytes of keys and values that were sent since the process started.
    pub fn sent_bytes(&self) -> u64 {
        self.state.lock().sent_bytes
    }

    /// Reserves the time for a part, and returns when it begins.
    fn reserve(&self, arc: ArcId, to: NodeId, bytes: u64) -> Instant {
        let mut state = self.state.lock();
        let begins = state.next.unwrap_or_else(Instant::now).max(Instant::now());
        let micros = bytes.saturating_mul(1_000_000) / self.bytes_per_second;
        state.next = Some(begins + Duration::from_micros(micros));
        if let Some(running) = state.running.get_mut(&(arc, to)) {
            running.sent_bytes += bytes;
        }
        state.sent_bytes += bytes;
        begins
    }
}

/// A transfer to one node.
pub(super) struct OutgoingTransfer<'a> {
    transfers: &'a Transfers,
    arc: ArcId,
    to: NodeId,
    _permit: Option<SemaphorePermit<'a>>,
}

impl OutgoingTransfer<'_> {
    /// Waits until a part of this size may be sent.
    pub(super) async fn admit(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        tokio::time::sleep_until(self.transfers.reserve(self.arc, self.to, bytes)).await;
    }
}

impl Drop for OutgoingTransfer<'_> {
    fn drop(&mut self) {
        self.transfers.state.lock().running.remove(&(self.arc, self.to));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_transfers_share_the_bandwidth() {
        let transfers = Arc::new(Transfers::new(1_000_000));
        let begun = Instant::now();
        let send = |to| {
            let transfers = Arc::clone(&transfers);
            async move {
                let transfer = transfers.begin(ArcId(1), to).await;
                for _ in 0..10 {
                    transfer.admit(500_000).await;
                }
                transfers.of(ArcId(1)).len()
            }
        };
        let (first, second) = tokio::join!(send(4), send(5));
        // The last part of 20 is sent when the others have used their time.
        assert_eq!(begun.elapsed().as_millis(), 9_500);
        assert_eq!((first, second), (2, 1));
        assert_eq!(transfers.of(ArcId(1)), []);
        assert_eq!(transfers.sent_bytes(), 10_000_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_transfers_run_at_a_time_and_show_their_progress() {
        let transfers = Arc::new(Transfers::new(1_000_000));
        let mut running = Vec::new();
        for to in 1..=4 {
            running.push(transfers.begin(ArcId(0), to).await);
        }
        let fifth = transfers.begin(ArcId(0), 5);
        assert!(tokio::time::timeout(Duration::from_secs(60), fifth).await.is_err());
        running[0].admit(2_000_000).await;
        running[0].admit(1).await;
        let progress = Transfer { to: 1, sent_bytes: 2_000_001, elapsed_ms: 62_000 };
        assert_eq!(transfers.of(ArcId(0)).first(), Some(&progress));
        running.remove(3);
        let fifth = transfers.begin(ArcId(0), 5).await;
        assert_eq!(fifth.to, 5);
    }
}
