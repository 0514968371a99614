//! How far the request of a connection is, and which connection gives up its place first.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// How often a connection is checked in the time after which it is closed as idle, so that no clock has
/// to be set for each request.
const CHECKS: u32 = 4;

/// The order in which connections give up their places, the first one first. Nobody loses an answer
/// that is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// Idle, and of a client of whom nothing is known.
    IdleStranger,
    /// Idle, of a client that was answered or whose signature was verified.
    IdleClient,
    /// A request has begun and has not come whole, of a client of whom nothing is known.
    SendingStranger,
    /// The same of a known client.
    SendingClient,
}

/// How far the request of a connection is.
#[derive(Debug)]
pub struct Progress {
    is_arrived: AtomicBool,
    is_under_way: AtomicBool,
    /// The client has not taken yet what was to be written.
    is_writing: AtomicBool,
    is_known: AtomicBool,
    is_leaving: AtomicBool,
    /// Counts requests that begin, answers that are made, and parts of them that were taken.
    steps: AtomicU64,
    /// When something last passed, in milliseconds since the first connection of the process.
    active_ms: AtomicU64,
    wanted: Notify,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            is_arrived: AtomicBool::new(false),
            is_under_way: AtomicBool::new(false),
            is_writing: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            steps: AtomicU64::new(0),
            active_ms: AtomicU64::new(now_ms()),
            wanted: Notify::new(),
        }
    }

    /// Notes that the client is known: its signature was verified, or it was answered by a service that
    /// has no keys.
    pub fn set_known(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    /// Notes whether the service waits for the client: `true` says that the request has come whole, or
    /// that it is the service that does not read on.
    pub fn set_arrived(&self, is_arrived: bool) {
        self.is_arrived.store(is_arrived, Ordering::Relaxed);
    }

    pub(super) fn is_arrived(&self) -> bool {
        self.is_arrived.load(Ordering::Relaxed)
    }

    /// Notes that a request has begun, or that its answer was handed over to be sent.
    pub(super) fn set_under_way(&self, is_under_way: bool) {
        self.is_under_way.store(is_under_way, Ordering::Relaxed);
        self.step();
    }

    /// Notes whether a part of an answer waits for the client.
    pub(super) fn set_writing(&self, is_writing: bool) {
        self.is_writing.store(is_writing, Ordering::Relaxed);
    }

    /// Returns true while a request is under way or its answer is being sent.
    pub(super) fn is_busy(&self) -> bool {
        self.is_under_way.load(Ordering::Relaxed) || self.is_writing.load(Ordering::Relaxed)
    }

    /// Notes that the client sent something. A head that comes in pieces is no request yet, so this is
    /// no step.
    pub(super) fn note_read(&self) {
        self.active_ms.store(now_ms(), Ordering::Relaxed);
    }

    /// Notes that a request began, an answer is made, or the client took a part of one.
    pub(super) fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.note_read();
    }

    /// Returns how soon this connection gives up its place, and since when it is inactive; `None` when
    /// it keeps its place: its answer is being made, or it leaves already.
    pub(super) fn rank(&self) -> Option<(Rank, u64)> {
        if self.is_leaving.load(Ordering::Relaxed) {
            return None;
        }
        let is_known = self.is_known.load(Ordering::Relaxed);
        let rank = match (self.is_busy(), self.is_arrived()) {
            (true, true) => return None,
            (true, false) if is_known => Rank::SendingClient,
            (true, false) => Rank::SendingStranger,
            (false, _) if is_known => Rank::IdleClient,
            (false, _) => Rank::IdleStranger,
        };
        Some((rank, self.active_ms.load(Ordering::Relaxed)))
    }

    /// Asks the connection to give up its place.
    pub(super) fn ask_to_leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        self.wanted.notify_one();
    }

    /// Returns when the connection's place is wanted.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Returns when no request began for `time`, and none was under way.
    pub(super) async fn silence(&self, time: Duration) {
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
