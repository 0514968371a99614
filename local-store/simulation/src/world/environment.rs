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

/// Store time at the beginning of every run.
pub const START: EpochMillis = EpochMillis(1_800_000_000_000);

/// Random choices, in a separate sequence for each purpose, so that a change of one does not affect
/// the others.
#[derive(Debug)]
pub struct Dice(Mutex<SplitMix64>);

impl Dice {
    /// Creates the choices for one purpose, from a seed.
    #[must_use]
    pub fn new(seed: u64, purpose: &str) -> Self {
        Self(Mutex::new(stream(seed, purpose)))
    }

    /// Makes a choice.
    pub fn roll<T>(&self, choose: impl FnOnce(&mut SplitMix64) -> T) -> T {
        choose(&mut self.0.lock())
    }

    /// Returns a random duration from `least` to `most` microseconds.
    pub fn micros(&self, least: u64, most: u64) -> Duration {
        let span = most.saturating_sub(least) + 1;
        Duration::from_micros(least + self.roll(SplitMix64::next_u64) % span)
    }
}

/// Returns the random numbers for one purpose, from a seed.
#[must_use]
pub fn stream(seed: u64, purpose: &str) -> SplitMix64 {
    SplitMix64::new(xxh3_64_with_seed(purpose.as_bytes(), seed))
}

/// The shared state of one world.
#[derive(Debug)]
pub struct Environment {
    /// The run's seed.
    pub seed: u64,
    /// How often each fault occurred.
    pub coverage: Coverage,
    begun: Instant,
    /// How far store time was advanced, in milliseconds.
    advanced_ms: AtomicU64,
    /// The most by which a node's clock was ahead of true store time, in milliseconds.
    ahead_ms: AtomicU64,
    /// The hash of all events, chained, and their number.
    trace: Mutex<(u64, u64)>,
    log: Option<Mutex<Vec<String>>>,
}

impl Environment {
    /// Creates the environment of a run that begins now; `explain` keeps the text of every event.
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

    /// Returns true store time, that of a clock without skew.
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

    /// Returns the most by which a node's clock was ahead of true store time, in whole seconds,
    /// rounded up.
    #[must_use]
    pub fn ahead_seconds(&self) -> u64 {
        self.ahead_ms.load(Ordering::SeqCst).div_ceil(1_000)
    }

    /// Adds an event to the trace: the same seed gives the same trace.
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

/// One node's clock: true store time plus an error. It never goes back.
#[derive(Debug)]
pub struct NodeClock {
    environment: Arc<Environment>,
    skew_ms: AtomicI64,
    latest: AtomicU64,
}

impl NodeClock {
    /// Creates a clock without error.
    #[must_use]
    pub fn new(environment: &Arc<Environment>) -> Arc<Self> {
        Arc::new(Self {
            environment: Arc::clone(environment),
            skew_ms: AtomicI64::new(0),
            latest: AtomicU64::new(0),
        })
    }

    /// Sets its error, in milliseconds.
    pub fn set_skew(&self, millis: i64) {
        self.skew_ms.store(millis, Ordering::SeqCst);
    }

    /// Returns its time.
    #[must_use]
    pub fn now(&self) -> EpochMillis {
        let skewed =
            self.environment.now().0.saturating_add_signed(self.skew_ms.load(Ordering::SeqCst));
        let latest = self.latest.fetch_max(skewed, Ordering::SeqCst).max(skewed);
        EpochMillis(latest)
    }
}
