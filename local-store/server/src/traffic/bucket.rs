//! A token bucket of capacity units.
//!
//! The module is pure: the caller passes the time of the store's clock. Requests are counted in half units.
//! The contents are counted in thousandths of a half unit, so that the units per millisecond are an integer.

use model::EpochMillis;

/// The rate at which a bucket fills, and its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) units_per_second: u64,
    /// The number of seconds in which an empty bucket fills completely, which determines its capacity.
    pub(super) burst_seconds: u64,
}

/// A token bucket. If more units are taken than it contains, its contents become negative.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    rate: Rate,
    level: i64,
    at: EpochMillis,
}

const THOUSAND: u64 = 1000;

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Rate {
    fn capacity(self) -> i64 {
        let halves = self.units_per_second.saturating_mul(2).saturating_mul(self.burst_seconds);
        signed(halves.saturating_mul(THOUSAND))
    }
}

impl Bucket {
    /// Creates a full bucket, which is the state after a long time without requests.
    pub(super) fn full(rate: Rate, now: EpochMillis) -> Self {
        Self { rate, level: rate.capacity(), at: now }
    }

    /// Adds the units for the time until `now`. If the rate has changed, limits the contents to the
    /// new capacity.
    pub(super) fn refill(&mut self, rate: Rate, now: EpochMillis) {
        let millis = now.since(self.at);
        // Half units per second, multiplied by milliseconds, are thousandths of a half unit.
        let brought = signed(self.rate.units_per_second.saturating_mul(2).saturating_mul(millis));
        self.rate = rate;
        self.level = self.level.saturating_add(brought).min(rate.capacity());
        self.at = self.at.max(now);
    }

    /// Returns whether the bucket has enough units for a request. A full bucket is enough for any
    /// request, so that a request of more units than the capacity can succeed.
    pub(super) fn has(&self, halves: u64) -> bool {
        let wanted = signed(halves.saturating_mul(THOUSAND));
        self.level >= wanted.min(self.rate.capacity())
    }

    /// Takes units, even if the bucket contains fewer units.
    pub(super) fn take(&mut self, halves: u64) {
        self.level = self.level.saturating_sub(signed(halves.saturating_mul(THOUSAND)));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RATE: Rate = Rate { units_per_second: 10, burst_seconds: 3 };

    #[test]
    fn unused_units_are_kept_for_the_burst() {
        let mut bucket = Bucket::full(RATE, EpochMillis(0));
        assert!(bucket.has(60) && bucket.has(999), "a full bucket has enough for any request");
        bucket.take(1);
        assert!(bucket.has(59) && !bucket.has(60));
        bucket.take(59);
        assert!(!bucket.has(1));
        for (at, has) in [(49, false), (50, true)] {
            // 20 halves per second are one half in 50 milliseconds.
            bucket.refill(RATE, EpochMillis(at));
            assert_eq!(bucket.has(1), has, "{at}");
        }
        bucket.refill(RATE, EpochMillis(100_000));
        assert!(bucket.has(60));
        bucket.take(100);
        bucket.refill(RATE, EpochMillis(102_000));
        assert!(!bucket.has(1), "the debt of 40 has just been paid");
        bucket.refill(RATE, EpochMillis(102_050));
        assert!(bucket.has(1));
        bucket.refill(RATE, EpochMillis(50));
        assert!(bucket.has(1) && !bucket.has(2), "time never goes back");
        let slow = Rate { units_per_second: 1, burst_seconds: 3 };
        bucket.refill(slow, EpochMillis(200_000));
        assert!(bucket.has(6) && bucket.has(600), "it is full at the new rate");
        bucket.take(1);
        assert!(!bucket.has(6));
    }

    proptest! {
        /// Goal: for any sequence of requests, the admitted units are at most the capacity, plus the rate
        /// times the elapsed time, plus one request.
        #[test]
        fn no_more_is_admitted_than_the_rate(
            requests in prop::collection::vec((0u64..500, 1u64..20), 1..200),
        ) {
            let mut bucket = Bucket::full(RATE, EpochMillis(0));
            let (mut now, mut taken) = (0, 0);
            for (wait, halves) in requests {
                now += wait;
                bucket.refill(RATE, EpochMillis(now));
                if bucket.has(halves) {
                    bucket.take(halves);
                    taken += halves;
                }
                prop_assert!(taken * 1000 <= 60_000 + 20 * now);
            }
        }
    }
}
