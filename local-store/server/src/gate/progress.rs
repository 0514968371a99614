//! The progress of a connection's request. It determines the rank of the connection, which is the
//! order in which connections are closed to free permits.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// The number of times that a connection is checked within its idle time-out. Periodic checks are
/// cheaper than a timer for each request.
const CHECKS: u32 = 4;

/// The order in which connections are closed to free permits, the lowest rank first. A connection
/// with a response in progress is not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// An idle connection of an unknown client.
    IdleUnknown,
    /// An idle connection of a client that got a response or whose signature was verified.
    IdleClient,
    /// A connection with an incomplete request of an unknown client.
    SendingUnknown,
    /// A connection with an incomplete request of a known client.
    SendingClient,
}

/// The progress of a connection's request.
#[derive(Debug)]
pub struct Progress {
    is_arrived: AtomicBool,
    is_under_way: AtomicBool,
    /// Whether a part of a response waits for the client.
    is_writing: AtomicBool,
    is_known: AtomicBool,
    is_closing: AtomicBool,
    /// The number of steps: requests that began, responses that were started, and parts of
    /// responses that were sent.
    steps: AtomicU64,
    /// The time of the last transfer, in milliseconds since the first connection of the process.
    active_ms: AtomicU64,
    eviction: Notify,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            is_arrived: AtomicBool::new(false),
            is_under_way: AtomicBool::new(false),
            is_writing: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            steps: AtomicU64::new(0),
            active_ms: AtomicU64::new(now_ms()),
            eviction: Notify::new(),
        }
    }

    /// Records that the client is known: the service has verified its signature, or requires no
    /// signatures and has sent a response.
    pub fn set_known(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    /// Records whether the service no longer waits for the client: the request is complete, or the
    /// service itself has paused reading.
    pub fn set_arrived(&self, is_arrived: bool) {
        self.is_arrived.store(is_arrived, Ordering::Relaxed);
    }

    pub(super) fn is_arrived(&self) -> bool {
        self.is_arrived.load(Ordering::Relaxed)
    }

    /// Records that a request has begun, or that its response was handed over for sending.
    pub(super) fn set_under_way(&self, is_under_way: bool) {
        self.is_under_way.store(is_under_way, Ordering::Relaxed);
        self.step();
    }

    /// Records whether a part of a response waits for the client.
    pub(super) fn set_writing(&self, is_writing: bool) {
        self.is_writing.store(is_writing, Ordering::Relaxed);
    }

    /// Returns whether a request is in progress or its response is being sent.
    pub(super) fn is_busy(&self) -> bool {
        self.is_under_way.load(Ordering::Relaxed) || self.is_writing.load(Ordering::Relaxed)
    }

    /// Records that the client sent something. Received data does not count as a step, because an
    /// incomplete head is not a request yet.
    pub(super) fn note_read(&self) {
        self.active_ms.store(now_ms(), Ordering::Relaxed);
    }

    /// Records a step: a request began, a response was started, or a part of a response was sent.
    pub(super) fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.note_read();
    }

    /// Returns the rank of the connection, and the time of its last transfer. Returns `None` if the
    /// connection must not be closed because a response is in progress, or if it is already closing.
    pub(super) fn rank(&self) -> Option<(Rank, u64)> {
        if self.is_closing.load(Ordering::Relaxed) {
            return None;
        }
        let is_known = self.is_known.load(Ordering::Relaxed);
        let rank = match (self.is_busy(), self.is_arrived()) {
            (true, true) => return None,
            (true, false) if is_known => Rank::SendingClient,
            (true, false) => Rank::SendingUnknown,
            (false, _) if is_known => Rank::IdleClient,
            (false, _) => Rank::IdleUnknown,
        };
        Some((rank, self.active_ms.load(Ordering::Relaxed)))
    }

    /// Asks the connection to close, so that its permit becomes free.
    pub(super) fn ask_to_leave(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
        self.eviction.notify_one();
    }

    /// Waits until the connection is asked to close so that another connection can get its permit.
    pub(crate) async fn evicted(&self) {
        self.eviction.notified().await;
    }

    /// Waits until the connection has had no request in progress for `time`.
    pub(super) async fn idle(&self, time: Duration) {
        let (mut quiet, mut seen) = (0, self.steps.load(Ordering::Relaxed));
        while quiet < CHECKS {
            sleep(time / CHECKS).await;
            let steps = self.steps.load(Ordering::Relaxed);
            let is_quiet = steps == seen && !self.is_busy();
            quiet = if is_quiet { quiet + 1 } else { 0 };
            seen = steps;
        }
    }
}

fn now_ms() -> u64 {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(Instant::now().saturating_duration_since(*FIRST).as_millis()).unwrap_or(u64::MAX)
}
