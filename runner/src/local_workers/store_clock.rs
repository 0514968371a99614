//! The clock of a store, for the mappings of local workers. The local store's clock may be frozen and
//! advanced. DynamoDB's time is read once from a response; after that, this machine's clock is
//! used.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use client::endpoint::{self, ClockReading};
use locks::Mutex;

/// The interval at which the store's clock is read. An advance is noticed with at most this delay, which
/// is negligible compared with record ages in hours.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// The clock of a store.
pub(super) struct StoreClock {
    last: Mutex<Reading>,
    is_local: bool,
}

/// A reading of a store's clock, and the local time when it was taken.
#[derive(Clone, Copy)]
struct Reading {
    now_ms: i64,
    is_frozen: bool,
    at: Instant,
}

impl StoreClock {
    /// Reads a store's clock repeatedly until the last reference is dropped.
    pub(super) async fn follow(endpoint: &str) -> Arc<Self> {
        let asked = endpoint::read_clock(endpoint).await;
        let is_local = asked.is_some();
        let shown = match asked {
            Some(asked) => asked,
            None => {
                let seconds = endpoint::store_seconds(endpoint, &endpoint::client(endpoint)).await;
                let now_ms = seconds.saturating_mul(1_000);
                ClockReading { now_ms, is_frozen: false, is_only_one: false }
            }
        };
        let clock = Arc::new(Self { last: Mutex::new(reading(shown)), is_local });
        if is_local {
            tokio::spawn(keep(endpoint.to_owned(), Arc::downgrade(&clock)));
        }
        clock
    }

    /// Returns whether this is a local store's clock.
    pub(super) fn is_local(&self) -> bool {
        self.is_local
    }

    /// Returns milliseconds since 1970.
    pub(super) fn now_ms(&self) -> i64 {
        self.last.lock().now_ms()
    }
}

impl Reading {
    fn now_ms(&self) -> i64 {
        let passed = if self.is_frozen { Duration::ZERO } else { self.at.elapsed() };
        self.now_ms.saturating_add(i64::try_from(passed.as_millis()).unwrap_or(i64::MAX))
    }
}

fn reading(clock: ClockReading) -> Reading {
    Reading { now_ms: clock.now_ms, is_frozen: clock.is_frozen, at: Instant::now() }
}

async fn keep(endpoint: String, clock: Weak<StoreClock>) {
    loop {
        tokio::time::sleep(ASK_EVERY).await;
        let asked = endpoint::read_clock(&endpoint).await;
        let Some(clock) = clock.upgrade() else { return };
        // A store that does not respond is starting or stopping. Its clock continues from the last
        // reading.
        if let Some(asked) = asked {
            *clock.last.lock() = reading(asked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frozen_clock_does_not_advance() {
        let at = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        let frozen = Reading { now_ms: 5, is_frozen: true, at };
        assert_eq!(frozen.now_ms(), 5);
        assert!(Reading { is_frozen: false, ..frozen }.now_ms() >= 1005);
    }
}
