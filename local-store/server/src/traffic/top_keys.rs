//! The hottest keys of a table, found with a fixed number of counters (the algorithm Space-Saving).
//!
//! With k counters and n units in a window, the algorithm finds every key with more than n / k units. A count
//! exceeds the true value by at most the counter's error, which is at most n / k. The module is pure: the
//! caller passes the time. Source: Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k
//! Elements in Data Streams" (2005).

use model::{EpochMillis, KeyValue, Token};

use super::HotKey;
use super::heat::per_second;

/// The number of counters of one window. Every key with more than 1/64 of the traffic is found.
const COUNTERS: usize = 64;
/// The maximum number of keys in a result.
const SHOWN_MAX: usize = 10;
/// The length of a window in milliseconds of the store's clock.
const WINDOW_MS: u64 = 60_000;

/// The hottest keys of the current and the previous window.
#[derive(Debug, Default)]
pub(super) struct HotKeys {
    window: u64,
    present: Counters,
    last: Counters,
}

/// The counters, in parallel vectors, so that the data that each request scans is contiguous in memory.
#[derive(Debug, Default)]
struct Counters {
    tokens: Vec<Token>,
    halves: Vec<u64>,
    keys: Vec<CountedKey>,
}

#[derive(Clone, Debug, PartialEq)]
struct CountedKey {
    key: KeyValue,
    error: u64,
}

impl HotKeys {
    pub(super) fn record(&mut self, now: EpochMillis, token: Token, key: &KeyValue, halves: u64) {
        if halves == 0 {
            return;
        }
        let window = now.0 / WINDOW_MS;
        if window > self.window {
            let last = std::mem::take(&mut self.present);
            self.last = if window == self.window + 1 { last } else { Counters::default() };
            self.window = window;
        }
        self.present.record(token, key, halves);
    }

    /// Returns the hottest keys of the previous window, or of the current window if it is the
    /// first.
    pub(super) fn hottest(&self, now: EpochMillis) -> Vec<HotKey> {
        let window = now.0 / WINDOW_MS;
        let (counters, millis) = match window.checked_sub(self.window) {
            Some(0) if self.last.keys.is_empty() => (&self.present, now.0 % WINDOW_MS),
            Some(0) => (&self.last, WINDOW_MS),
            Some(1) => (&self.present, WINDOW_MS),
            _ => return Vec::new(),
        };
        let mut counts: Vec<(u64, &CountedKey)> = counters.counts().collect();
        counts
            .sort_by(|(a, counted), (b, other)| b.cmp(a).then_with(|| counted.key.cmp(&other.key)));
        // The length of a new window counts as at least one second, so that the first requests do not
        // result in extreme rates.
        let millis = millis.max(1000);
        let hot = |(halves, counted): (u64, &CountedKey)| HotKey {
            key: counted.key.clone(),
            units_per_second: per_second(halves, millis),
            error_per_second: per_second(counted.error, millis),
        };
        counts.into_iter().take(SHOWN_MAX).map(hot).collect()
    }
}

impl Counters {
    fn counts(&self) -> impl Iterator<Item = (u64, &CountedKey)> {
        self.halves.iter().copied().zip(&self.keys)
    }

    fn record(&mut self, token: Token, key: &KeyValue, halves: u64) {
        let found = self.tokens.iter().position(|known| *known == token);
        if let Some(count) = found.and_then(|place| self.halves.get_mut(place)) {
            *count = count.saturating_add(halves);
            return;
        }
        if self.tokens.len() < COUNTERS {
            self.tokens.push(token);
            self.halves.push(halves);
            self.keys.push(CountedKey { key: key.clone(), error: 0 });
            return;
        }
        // The new key replaces the key with the smallest count, and this count becomes the error of
        // the new key.
        let Some(smallest) = self.halves.iter().copied().min() else { return };
        let place = self.halves.iter().position(|count| *count == smallest).unwrap_or_default();
        if let Some(known) = self.tokens.get_mut(place)
            && let Some(count) = self.halves.get_mut(place)
            && let Some(counted) = self.keys.get_mut(place)
        {
            *known = token;
            *count = smallest.saturating_add(halves);
            counted.error = smallest;
            match (&mut counted.key, key) {
                // Reuses the buffer of the replaced key, which is usually large enough.
                (KeyValue::S(before), KeyValue::S(text)) => before.clone_from(text),
                (before, key) => *before = key.clone(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn key(number: u64) -> KeyValue {
        KeyValue::S(format!("k{number}"))
    }

    fn record(keys: &mut HotKeys, now: u64, number: u64, halves: u64) {
        keys.record(EpochMillis(now), Token::of(&key(number)), &key(number), halves);
    }

    proptest! {
        /// Goal: the error bounds hold for every multiset of requests.
        #[test]
        fn counts_are_within_their_error(
            requests in prop::collection::vec((0u64..500, 1u64..9), 1..2000),
        ) {
            let mut keys = HotKeys::default();
            let mut exact: BTreeMap<KeyValue, u64> = BTreeMap::new();
            let mut sum = 0;
            for (number, halves) in &requests {
                // A few keys get most of the traffic.
                let number = if number % 3 == 0 { number % 7 } else { *number };
                record(&mut keys, 0, number, *halves);
                *exact.entry(key(number)).or_default() += halves;
                sum += halves;
            }
            let room = u64::try_from(COUNTERS).unwrap();
            for (halves, counted) in keys.present.counts() {
                let truth = exact[&counted.key];
                prop_assert!(halves - counted.error <= truth && truth <= halves);
                prop_assert!(counted.error <= sum / room);
            }
            for (key, truth) in &exact {
                let known = keys.present.keys.iter().any(|counted| counted.key == *key);
                prop_assert!(known || *truth <= sum / room, "{key:?} has {truth} of {sum}");
            }
        }
    }

    #[test]
    fn windows_follow_the_time() {
        let mut keys = HotKeys::default();
        for _ in 0..120 {
            record(&mut keys, 0, 1, 2);
        }
        record(&mut keys, 0, 2, 2);
        let shown = |keys: &HotKeys, now| -> Vec<(KeyValue, f64)> {
            let hottest = keys.hottest(EpochMillis(now));
            hottest.into_iter().map(|hot| (hot.key, hot.units_per_second)).collect()
        };
        assert_eq!(shown(&keys, 10), [(key(1), 120.0), (key(2), 1.0)], "one second at least");
        assert_eq!(shown(&keys, WINDOW_MS)[0], (key(1), 2.0));
        record(&mut keys, WINDOW_MS, 3, 2);
        assert_eq!(shown(&keys, WINDOW_MS)[0], (key(1), 2.0), "the last complete window");
        assert_eq!(shown(&keys, 2 * WINDOW_MS)[0].0, key(3));
        assert_eq!(shown(&keys, 4 * WINDOW_MS), []);
    }
}
