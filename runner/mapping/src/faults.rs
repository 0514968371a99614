//! The plan of injected faults: it determines which fault occurs at which call.
//!
//! The plan has no clock, no randomness and no counters. The same seed gives the same faults at the
//! same calls of the same mapping.

use crate::{mix, seed_of};

/// The maximum delay of a slow function in milliseconds, inclusive.
pub const SLOW_MS_MAX: u64 = 300;
/// A late redelivery comes at most this many batches after the first delivery.
pub const LATE_BATCHES_MAX: usize = 4;

/// A fault of one invocation. None of these faults loses a record on AWS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvocationFault {
    /// The batch is delivered twice.
    Duplicate,
    /// The function has processed the batch, but the poller crashes before it receives the
    /// response.
    Crash,
    /// An old batch is delivered again, after newer batches.
    Late {
        /// The number of batches since the first delivery, from 1 to [`LATE_BATCHES_MAX`].
        back: usize,
    },
    /// The first records of the batch are delivered, and then the entire batch, as after a restart
    /// with different batch boundaries.
    Split {
        /// A random number that determines the split of a batch of `n` records. The first part has
        /// `1 + draw % (n - 1)` records.
        draw: u64,
    },
    /// The function starts after a delay.
    Slow {
        /// The delay in milliseconds, from 1 to [`SLOW_MS_MAX`].
        ms: u64,
    },
    /// The invocation is throttled, so the function does not run.
    Throttle,
}

/// The plan of faults for one mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    seed: u64,
}

impl Plan {
    /// Creates the fault plan of one mapping. The same seed and mapping id give the same faults.
    #[must_use]
    pub fn new(seed: u64, mapping_id: &str) -> Self {
        Self { seed: mix(seed ^ seed_of(mapping_id)) }
    }

    /// Returns the fault of the invocation with this number; `None` if the invocation has no fault.
    /// 36 % of the invocations have a fault.
    #[must_use]
    pub fn invocation(&self, number: u64) -> Option<InvocationFault> {
        let draw = mix(self.seed.wrapping_add(number.wrapping_mul(2)));
        let detail = draw / 100;
        match draw % 100 {
            0..6 => Some(InvocationFault::Duplicate),
            6..12 => Some(InvocationFault::Crash),
            12..18 => {
                let back = usize::try_from(detail % LATE_BATCHES_MAX as u64).unwrap_or(0);
                Some(InvocationFault::Late { back: back + 1 })
            }
            18..24 => Some(InvocationFault::Split { draw: detail }),
            24..30 => Some(InvocationFault::Slow { ms: 1 + detail % SLOW_MS_MAX }),
            30..36 => Some(InvocationFault::Throttle),
            _ => None,
        }
    }

    /// Returns true if the iterator expires at the read with this number. This happens in 6 % of
    /// the reads.
    #[must_use]
    pub fn iterator_expires(&self, number: u64) -> bool {
        mix(self.seed.wrapping_add(number.wrapping_mul(2) + 1)) % 100 < 6
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_same_seed_gives_the_same_faults() {
        let faults = |seed, mapping| -> Vec<_> {
            let plan = Plan::new(seed, mapping);
            (0..500).map(|n| (plan.invocation(n), plan.iterator_expires(n))).collect()
        };
        assert_eq!(faults(7, "a"), faults(7, "a"));
        assert_ne!(faults(7, "a"), faults(8, "a"));
        assert_ne!(faults(7, "a"), faults(7, "b"));
    }

    #[test]
    fn every_fault_happens_and_most_calls_are_well() {
        let plan = Plan::new(1, "mapping");
        let faults: Vec<_> = (0..2_000).filter_map(|n| plan.invocation(n)).collect();
        let kinds: BTreeSet<_> =
            faults.iter().map(std::mem::discriminant).map(|d| format!("{d:?}")).collect();
        assert_eq!(kinds.len(), 6);
        assert!((600..840).contains(&faults.len()), "{}", faults.len());
        let expired = (0..2_000).filter(|n| plan.iterator_expires(*n)).count();
        assert!((80..160).contains(&expired), "{expired}");
    }
}
