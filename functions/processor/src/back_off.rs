//! Back-off: how often an operation is retried within one invocation, and the waits between the
//! attempts.
//!
//! The module is independent of the operation. Waits have full jitter, so that writers that
//! collided do not collide again (AWS Architecture Blog, "Exponential Backoff And Jitter").

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

use crate::failure::Failure;

/// Upper bound of the time that an invocation reserves for its report. At most a quarter of the
/// invocation is reserved.
const REPORT_TIME_MAX: Duration = Duration::from_secs(1);

/// The time at which an invocation must stop working.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    begun: Instant,
    end: Instant,
}

impl Deadline {
    /// Returns the deadline of an invocation that is stopped after `remaining`.
    #[must_use]
    pub fn after(remaining: Duration) -> Self {
        let begun = Instant::now();
        Self { begun, end: begun + (remaining - REPORT_TIME_MAX.min(remaining / 4)) }
    }

    /// Returns the deadline in the middle between now and this deadline.
    #[must_use]
    pub fn half_way(self) -> Self {
        self.part_way(50)
    }

    /// Returns the deadline after `percent` percent of the remaining time.
    #[must_use]
    pub fn part_way(self, percent: u32) -> Self {
        let now = Instant::now();
        let end = now + self.end.saturating_duration_since(now) * percent / 100;
        Self { end, ..self }
    }

    /// Returns whether the deadline has passed.
    #[must_use]
    pub fn is_over(self) -> bool {
        Instant::now() >= self.end
    }

    /// Returns the remaining time; zero once the deadline has passed.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Returns whether at least `most` remains, for work that must not be interrupted. In an
    /// invocation shorter than twice `most`, returns whether half of the invocation remains.
    #[must_use]
    pub fn has_time_for(self, most: Duration) -> bool {
        self.remaining() >= most.min(self.end.saturating_duration_since(self.begun) / 2)
    }

    /// Runs `work` until the deadline.
    ///
    /// # Errors
    /// Returns the work's failure, or a retry if the work did not finish in time. After the
    /// deadline no work is started. Interrupted work must be idempotent: running it again repairs
    /// what it left incomplete.
    pub async fn limit<T>(
        self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let out_of_time =
            || Err(Failure::Retry("the time limit of this invocation was reached".to_owned()));
        if self.is_over() {
            return out_of_time();
        }
        tokio::time::timeout_at(self.end, work).await.unwrap_or_else(|_| out_of_time())
    }
}

#[cfg(test)]
impl Deadline {
    /// Returns the deadline of an invocation that had `all` time in total, of which `left` remains.
    pub(crate) fn late(all: Duration, left: Duration) -> Self {
        let end = Instant::now() + left;
        Self { begun: end.checked_sub(all).unwrap_or(end), end }
    }
}

/// Retry policy: the number of attempts and the waits between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in total, including the first.
    pub attempts_max: u32,
    /// Upper bound of the wait before the second attempt. The bound doubles from attempt to
    /// attempt.
    pub delay_base: Duration,
    /// Upper bound of every wait.
    pub delay_max: Duration,
}

impl RetryPolicy {
    /// The policy for operations that other writers or throttling may delay: at most about 12 s of
    /// waits. With 16 attempts, 16 concurrent writers of one target all succeed even if only one of
    /// them succeeds at a time.
    pub const CONTENDED: Self = Self {
        attempts_max: 16,
        delay_base: Duration::from_millis(20),
        delay_max: Duration::from_secs(2),
    };

    /// Returns the attempts of one operation.
    #[must_use]
    pub fn attempts(self) -> Attempts {
        Attempts { policy: self, made: 0, random: RandomState::new().hash_one(0_u8) }
    }
}

/// The attempts of one operation: the number made, and the policy that limits them.
#[derive(Clone, Debug)]
pub struct Attempts {
    policy: RetryPolicy,
    made: u32,
    random: u64,
}

impl Attempts {
    /// Waits until the next attempt may begin. The first attempt begins immediately. Returns
    /// `false` when no attempt is left.
    pub async fn next(&mut self) -> bool {
        if self.made >= self.policy.attempts_max {
            return false;
        }
        self.made += 1;
        if self.made > 1 {
            let delay = self.jittered_delay();
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
        }
        true
    }

    /// Returns the number of attempts made.
    #[must_use]
    pub fn made(&self) -> u32 {
        self.made
    }

    /// Resets the number of attempts. Callers use this after the operation has made progress.
    pub fn restart(&mut self) {
        self.made = 0;
    }

    /// Allows another attempt without shortening the waits, for operations that fail only because
    /// capacity is short. The caller must have a deadline, because this call removes the bound of
    /// attempts.
    pub fn allow_one_more(&mut self) {
        self.made = self.made.min(self.policy.attempts_max.saturating_sub(1));
    }

    fn jittered_delay(&mut self) -> Duration {
        // The limit prevents an overflow: 20 doublings exceed any sensible maximum.
        let doublings = self.made.saturating_sub(2).min(20);
        let longest = self.policy.delay_base.saturating_mul(1 << doublings);
        let longest = longest.min(self.policy.delay_max);
        // One step of a linear congruential generator with the constants of Knuth's MMIX.
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let percent = u32::try_from((self.random >> 33) % 101).unwrap_or(100);
        longest * percent / 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn attempts_and_waits_are_bounded() {
        let policy = RetryPolicy {
            attempts_max: 5,
            delay_base: Duration::from_micros(100),
            delay_max: Duration::from_micros(300),
        };
        let mut attempts = policy.attempts();
        let mut made = 0;
        while attempts.next().await {
            made += 1;
            assert!(attempts.jittered_delay() <= policy.delay_max);
        }
        assert_eq!((made, attempts.made()), (5, 5));
        attempts.allow_one_more();
        assert!(attempts.next().await);
        assert!(!attempts.next().await);
        attempts.restart();
        assert!(attempts.next().await);
    }

    #[test]
    fn uninterruptible_work_needs_its_time_or_half_of_all() {
        let minute = Duration::from_secs(60);
        for (all, left, most, expected) in
            [(9, 8, 5, true), (9, 4, 5, false), (9, 3, 2, true), (4, 3, 5, true), (4, 1, 5, false)]
        {
            assert_eq!(
                Deadline::late(minute * all, minute * left).has_time_for(minute * most),
                expected,
                "{all} {left}"
            );
        }
    }

    #[tokio::test]
    async fn work_ends_at_the_deadline() {
        let deadline = Deadline::after(Duration::from_millis(20));
        let endless = deadline.limit(std::future::pending::<Result<(), Failure>>()).await;
        assert!(matches!(endless, Err(Failure::Retry(_))));
        assert!(deadline.is_over());
        // After the deadline no work is started, even if it would finish immediately.
        assert!(matches!(deadline.limit(async { Ok(7) }).await, Err(Failure::Retry(_))));
        assert_eq!(Deadline::after(Duration::from_secs(60)).limit(async { Ok(7) }).await, Ok(7));
    }
}
