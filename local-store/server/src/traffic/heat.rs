//! The heat of one partition: the consumed units in each time slot, and a sample of the requested tokens.
//!
//! The module is pure: the caller passes the time of the store's clock. A partition is hot if each of the
//! last six slots was above a limit. Therefore a single peak does not make a partition hot.

use std::collections::VecDeque;

use model::{EpochMillis, Token};
use partition::TokenRange;

use super::{PartitionRate, SplitLimits, Units};

/// The number of consecutive slots above the limit that make a partition hot.
const SLOTS: u64 = 6;
/// The maximum number of tokens in the sample of one window of six slots. In a window with more
/// requests, the sample has at least half of this number.
const SAMPLES_MAX: usize = 256;
/// The minimum number of samples in a window. If there are fewer, the samples of the previous
/// window are used as well.
const SAMPLES_MIN: usize = 64;

/// The traffic of one partition.
#[derive(Debug, Default)]
pub(super) struct Heat {
    /// The slots with traffic, oldest first: the number of the slot (the time divided by the slot's length)
    /// and its consumed units.
    slots: VecDeque<(u64, Units)>,
    samples: Samples,
    before: Samples,
}

/// A sample that contains every nth token of one window.
#[derive(Debug, Default)]
struct Samples {
    window: u64,
    tokens: Vec<Token>,
    /// The value of n, which doubles whenever the sample is full.
    stride: u64,
    skipped: u64,
}

fn slot_ms(sustained_ms: u64) -> u64 {
    (sustained_ms / SLOTS).max(1)
}

impl Heat {
    /// Counts a request. `token` is `None` if the request concerns several tokens.
    pub(super) fn record(
        &mut self,
        now: EpochMillis,
        sustained_ms: u64,
        units: Units,
        token: Option<Token>,
    ) {
        let slot = now.0 / slot_ms(sustained_ms);
        match self.slots.back_mut() {
            // The clock may be frozen, and requests may be counted slightly out of order. A late
            // request is counted in the newest slot.
            Some((newest, sum)) if *newest >= slot => add(sum, units),
            _ => self.slots.push_back((slot, units)),
        }
        while self.slots.front().is_some_and(|(oldest, _)| oldest + SLOTS < slot) {
            self.slots.pop_front();
        }
        if let Some(token) = token {
            let window = slot / SLOTS;
            if window > self.samples.window {
                self.before = std::mem::take(&mut self.samples);
                self.samples.window = window;
            }
            self.samples.take(token);
        }
    }

    /// Returns the units of each of the last six complete slots.
    fn complete(&self, now: EpochMillis, sustained_ms: u64) -> impl Iterator<Item = Units> {
        let current = now.0 / slot_ms(sustained_ms);
        (current.saturating_sub(SLOTS)..current).map(|slot| {
            let found = self.slots.iter().find(|(number, _)| *number == slot);
            found.map_or_else(Units::default, |(_, units)| *units)
        })
    }

    pub(super) fn is_hot(&self, now: EpochMillis, limits: &SplitLimits) -> bool {
        // Units per slot, in halves and multiplied by 1000, so that the comparison needs only
        // integers.
        let slot_ms = slot_ms(limits.sustained_ms);
        let above = |halves: u64, per_second: u64| {
            halves.saturating_mul(1000) > per_second.saturating_mul(2).saturating_mul(slot_ms)
        };
        let slots: Vec<Units> = self.complete(now, limits.sustained_ms).collect();
        if now.0 < SLOTS * slot_ms {
            return false;
        }
        slots.iter().all(|units| above(units.write_halves, limits.write_units))
            || slots.iter().all(|units| above(units.read_halves, limits.read_units))
    }

    /// Returns the mean rate over the last six slots and the current slot.
    pub(super) fn rate(&self, now: EpochMillis, sustained_ms: u64) -> PartitionRate {
        let slot_ms = slot_ms(sustained_ms);
        let current = now.0 / slot_ms;
        let mut sum = Units::default();
        for (slot, units) in &self.slots {
            if slot + SLOTS >= current {
                add(&mut sum, *units);
            }
        }
        let millis = SLOTS * slot_ms + now.0 % slot_ms;
        let rate = |halves: u64| per_second(halves, millis);
        PartitionRate {
            read_units_per_second: rate(sum.read_halves),
            write_units_per_second: rate(sum.write_halves),
        }
    }

    /// Returns the token at which a split divides the sampled requests most evenly; `None` if all
    /// requests are for one token. If one token has most of the requests, it becomes the first or
    /// the last token of its half. A second split can then separate it from all other tokens.
    pub(super) fn split_point(&self, range: TokenRange) -> Option<Token> {
        let within = |token: &&Token| range.first <= **token && **token <= range.last;
        let mut tokens: Vec<Token> = self.samples.tokens.iter().filter(within).copied().collect();
        if tokens.len() < SAMPLES_MIN {
            tokens.extend(self.before.tokens.iter().filter(within));
        }
        tokens.sort_unstable();
        let half = tokens.len() / 2;
        let middle = *tokens.get(half)?;
        let below = tokens.partition_point(|token| *token < middle);
        let through = tokens.partition_point(|token| *token <= middle);
        let behind = Token(middle.0.saturating_add(1));
        match (below, tokens.len() - through) {
            (0, 0) => None,
            (0, _) => Some(behind),
            (_, 0) => Some(middle),
            _ if half.abs_diff(below) <= half.abs_diff(through) => Some(middle),
            _ => Some(behind),
        }
    }
}

/// Converts a number of half units in this number of milliseconds to units per second.
#[expect(clippy::cast_precision_loss, reason = "the value is only shown; 53 bits are plenty")]
pub(super) fn per_second(halves: u64, millis: u64) -> f64 {
    halves as f64 * 500.0 / millis.max(1) as f64
}

fn add(sum: &mut Units, units: Units) {
    sum.read_halves = sum.read_halves.saturating_add(units.read_halves);
    sum.write_halves = sum.write_halves.saturating_add(units.write_halves);
}

impl Samples {
    fn take(&mut self, token: Token) {
        self.skipped += 1;
        if self.skipped < self.stride {
            return;
        }
        self.skipped = 0;
        self.tokens.push(token);
        if self.tokens.len() == SAMPLES_MAX {
            let mut position = 0;
            self.tokens.retain(|_| {
                position += 1;
                position % 2 == 0
            });
            self.stride = self.stride.max(1) * 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: SplitLimits =
        SplitLimits { write_units: 10, read_units: 20, sustained_ms: 6000, bytes: 1 };

    fn write(units: u64) -> Units {
        Units { read_halves: 0, write_halves: 2 * units }
    }

    /// Returns the heat of a partition that consumed the given number of units in each second.
    fn heat(seconds: &[u64]) -> (Heat, EpochMillis) {
        let mut heat = Heat::default();
        for (second, units) in (0u64..).zip(seconds) {
            for part in 0..2 {
                let now = EpochMillis(second * 1000 + part * 400);
                heat.record(now, LIMITS.sustained_ms, write(*units).half(part), Some(Token(part)));
            }
        }
        let end = u64::try_from(seconds.len()).unwrap() * 1000;
        (heat, EpochMillis(end))
    }

    impl Units {
        fn half(self, part: u64) -> Self {
            let write_halves = self.write_halves / 2 + part * (self.write_halves % 2);
            Self { write_halves, ..self }
        }
    }

    #[test]
    fn only_sustained_traffic_is_hot() {
        for (seconds, hot) in [
            (&[11, 11, 11, 11, 11, 11][..], true),
            (&[10, 11, 11, 11, 11, 11], false),
            (&[99_999, 0, 0, 0, 0, 0], false),
            (&[0, 0, 20, 20, 20, 20, 20, 20], true),
            (&[20, 20, 20, 20, 20, 20, 0], false),
            (&[20, 20, 20, 20, 20], false),
            (&[], false),
        ] {
            let (heat, end) = heat(seconds);
            assert_eq!(heat.is_hot(end, &LIMITS), hot, "{seconds:?}");
        }
        let (heat, end) = heat(&[30; 6]);
        assert!(heat.is_hot(end, &LIMITS));
        assert!(!heat.is_hot(end.plus(24 * 3600 * 1000), &LIMITS), "a day has passed");
        assert!(!heat.is_hot(EpochMillis(500), &LIMITS), "it has only begun");
        let rate = heat.rate(end, LIMITS.sustained_ms);
        assert!((rate.write_units_per_second - 30.0).abs() < 0.01, "{rate:?}");
        assert!(heat.rate(end.plus(60_000), LIMITS.sustained_ms).write_units_per_second < 0.01);
    }

    #[test]
    fn reads_count_in_halves() {
        let mut heat = Heat::default();
        for second in 0..6 {
            // 41 eventually consistent reads are 20.5 units.
            let units = Units { read_halves: 41, write_halves: 0 };
            heat.record(EpochMillis(second * 1000), LIMITS.sustained_ms, units, None);
        }
        assert!(heat.is_hot(EpochMillis(6000), &LIMITS));
    }

    #[test]
    fn the_split_point_halves_the_requests() {
        let whole = TokenRange::ALL;
        let point = |tokens: &[u64], range| {
            let mut heat = Heat::default();
            for token in tokens {
                heat.record(EpochMillis(0), 6000, write(1), Some(Token(*token)));
            }
            heat.split_point(range).map(|token| token.0)
        };
        for (tokens, at) in [
            (&[][..], None),
            (&[7, 7, 7], None),
            (&[1, 2, 3, 4], Some(3)),
            // The key with most of the requests is the first key of the upper half, or the last key of the
            // lower half.
            (&[1, 7, 7, 7, 7], Some(7)),
            (&[7, 7, 7, 7, 9], Some(8)),
            (&[1, 7, 7, 7, 7, 7, 9, 10], Some(8)),
        ] {
            assert_eq!(point(tokens, whole), at, "{tokens:?}");
        }
        let above = TokenRange { first: Token(3), last: Token(5) };
        assert_eq!(point(&[1, 2, 3, 4, 5, 9], above), Some(4), "only what lies in the range");
        let many: Vec<u64> = (0..10_000).collect();
        let at = point(&many, whole).unwrap();
        assert!((4000..6000).contains(&at), "{at}");
    }
}
