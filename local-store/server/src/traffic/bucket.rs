//! A bucket of capacity units that fills with store time.
//!
//! Pure: time is handed in. Units are counted in halves, and what is in the bucket in thousandths
//! of a half, so that a millisecond's share is a whole number and nothing is ever rounded away.

use model::EpochMillis;

/// How fast a bucket fills, and how much it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) units_per_second: u64,
    /// What so many seconds bring is kept when it is not used.
    pub(super) burst_seconds: u64,
}

/// A bucket. What is taken beyond what is in it is a debt, which is paid before anything else.
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
    /// A bucket that was not used for long.
    pub(super) fn full(rate: Rate, now: EpochMillis) -> Self {
        Self { rate, level: rate.capacity(), at: now }
    }

    /// Brings the bucket to the present. With another rate, what is in it stays as far as it fits.
    pub(super) fn refill(&mut self, rate: Rate, now: EpochMillis) {
        let millis = now.since(self.at);
        // Half units a second, times milliseconds, are thousandths of a half.
        let brought = signed(self.rate.units_per_second.saturating_mul(2).saturating_mul(millis));
        self.rate = rate;
        self.level = self.level.saturating_add(brought).min(rate.capacity());
        self.at = self.at.max(now);
    }

    /// Whether so much is in it. A full bucket has enough for anything: otherwise an item that is
    /// larger than all that it can hold could never be read or written.
    pub(super) fn has(&self, halves: u64) -> bool {
        let wanted = signed(halves.saturating_mul(THOUSAND));
        self.level >= wanted.min(self.rate.capacity())
    }

    /// Takes so much out, also what is not in it.
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
    fn what_is_not_used_is_kept_for_the_burst() {
        let mut bucket = Bucket::full(RATE, EpochMillis(0));
        assert!(bucket.has(60) && bucket.has(999), "a full one has enough for anything");
        bucket.take(1);
        assert!(bucket.has(59) && !bucket.has(60));
        bucket.take(59);
        assert!(!bucket.has(1));
        for (at, has) in [(49, false), (50, true)] {
            // 20 halves a second are one in 50 milliseconds.
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
        /// Goal: whatever is asked for when, no more is let through than the burst, the rate times
        /// the time, and one request.
        #[test]
        fn no_more_is_let_through_than_the_rate(
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
