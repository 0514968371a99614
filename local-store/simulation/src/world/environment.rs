//! The shared state of one world: random choices, clock, trace, counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use locks::Mutex;
use model::EpochMillis;
use storage::disk::SplitMix64;
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::coverage::Coverage;

/// The store time at the beginning of every run.
pub const START: EpochMillis = EpochMillis(1_800_000_000_000);

/// Random choices for one purpose. Each purpose has its own sequence of random numbers, so that
/// additional choices for one purpose do not change the choices for others.
#[derive(Debug)]
pub struct Dice(Mutex<SplitMix64>);

impl Dice {
    /// Creates the choices for one purpose from a seed.
    #[must_use]
    pub fn new(seed: u64, purpose: &str) -> Self {
        Self(Mutex::new(stream(seed, purpose)))
    }

    /// Calls `choose` with the random numbers and returns its choice.
    pub fn roll<T>(&self, choose: impl FnOnce(&mut SplitMix64) -> T) -> T {
        choose(&mut self.0.lock())
    }

    /// Returns a random duration from `least` to `most` microseconds, inclusive.
    pub fn micros(&self, least: u64, most: u64) -> Duration {
        let span = most.saturating_sub(least) + 1;
        Duration::from_micros(least + self.roll(SplitMix64::next_u64) % span)
    }
}

/// Returns the sequence of random numbers for one purpose and seed.
#[must_use]
pub fn stream(seed: u64, purpose: &str) -> SplitMix64 {
    SplitMix64::new(xxh3_64_with_seed(purpose.as_bytes(), seed))
}

/// The shared state of one world.
#[derive(Debug)]
pub struct Environment {
    /// The run's seed.
    pub seed: u64,
    /// The number of occurrences of each fault.
    pub coverage: Coverage,
    begun: Instant,
    /// The number of milliseconds by which the store time was advanced.
    advanced_ms: AtomicU64,
    /// The maximum number of milliseconds by which a node's clock was ahead of the true store time.
    ahead_ms: AtomicU64,
    /// The chained hash of all events, and their number.
    trace: Mutex<(u64, u64)>,
    log: Option<Mutex<Vec<String>>>,
}

impl Environment {
    /// Creates the environment of a run that begins now. If `explain` is true, the text of every event is
    /// kept.
    #[must_use]
    pub fn new(seed: u64, explain: bool) -> Arc<Self> {
        Arc::new(Self {
            seed,
            coverage: Coverage::default(),
            begun: Instant::now(),
            advanced_ms: AtomicU64::new(0),
            ahead_ms: AtomicU64::new(0),
            trace: Mutex::new((0, 0)),
            log: explain.then(Mutex::default),
        })
    }

    /// Returns the time since the beginning of the run.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Returns the true store time: the time of a clock without skew.
    #[must_use]
    pub fn now(&self) -> EpochMillis {
        let elapsed = u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX);
        START.plus(elapsed).plus(self.advanced_ms.load(Ordering::SeqCst))
    }

    /// Advances store time.
    pub fn advance(&self, millis: u64) {
        self.advanced_ms.fetch_add(millis, Ordering::SeqCst);
    }

    /// Records the time of a node's clock.
    pub fn note_clock(&self, shown: EpochMillis) {
        self.ahead_ms.fetch_max(shown.0.saturating_sub(self.now().0), Ordering::SeqCst);
    }

    /// Returns the maximum number of seconds by which a node's clock was ahead of the true store time,
    /// rounded up.
    #[must_use]
    pub fn ahead_seconds(&self) -> u64 {
        self.ahead_ms.load(Ordering::SeqCst).div_ceil(1_000)
    }

    /// Adds an event to the trace. The same seed always gives the same trace.
    pub fn note(&self, what: &str) {
        let at = u64::try_from(self.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut trace = self.trace.lock();
        *trace = (xxh3_64_with_seed(what.as_bytes(), trace.0.rotate_left(1) ^ at), trace.1 + 1);
        drop(trace);
        if let Some(log) = &self.log {
            let line = format!("{:>10.3} ms  {what}", self.elapsed().as_secs_f64() * 1e3);
            log.lock().push(line);
        }
    }

    /// Returns whether the text of events is kept.
    #[must_use]
    pub fn explains(&self) -> bool {
        self.log.is_some()
    }

    /// Returns the hash over all events, and their number.
    #[must_use]
    pub fn trace(&self) -> (u64, u64) {
        *self.trace.lock()
    }

    /// Takes the text of all events, if it was kept.
    #[must_use]
    pub fn take_log(&self) -> Vec<String> {
        let taken = |log: &Mutex<Vec<String>>| std::mem::take(&mut *log.lock());
        self.log.as_ref().map(taken).unwrap_or_default()
    }
}

/// The clock of one node: the true store time plus a skew. The time never decreases.
#[derive(Debug)]
pub struct NodeClock {
    environment: Arc<Environment>,
    skew_ms: AtomicI64,
    latest: AtomicU64,
}

impl NodeClock {
    /// Creates a clock without skew.
    #[must_use]
    pub fn new(environment: &Arc<Environment>) -> Arc<Self> {
        Arc::new(Self {
            environment: Arc::clone(environment),
            skew_ms: AtomicI64::new(0),
            latest: AtomicU64::new(0),
        })
    }

    /// Sets the skew in milliseconds.
    pub fn set_skew(&self, millis: i64) {
        self.skew_ms.store(millis, Ordering::SeqCst);
    }

    /// Returns the time of the clock.
    #[must_use]
    pub fn now(&self) -> EpochMillis {
        let skewed =
            self.environment.now().0.saturating_add_signed(self.skew_ms.load(Ordering::SeqCst));
        let latest = self.latest.fetch_max(skewed, Ordering::SeqCst).max(skewed);
        EpochMillis(latest)
    }
}
