//! The store's clock: the wall clock plus an offset, which can be frozen and advanced.
//!
//! Store time never goes back. Everything that depends on time (TTL, shard rotation, retention,
//! iterators) follows it, so a day can pass in a test. This is the only place that asks the system
//! what time it is.

use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use model::EpochMillis;

/// Where wall time comes from.
pub type TimeSource = Box<dyn Fn() -> EpochMillis + Send + Sync>;

/// A clock that only its owner can move, and only forward.
pub struct Clock {
    state: Mutex<State>,
    wall_clock: TimeSource,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// Store time minus wall time while the clock runs, in milliseconds.
    offset: i128,
    /// Store time while the clock is frozen.
    frozen_at: Option<EpochMillis>,
    /// The latest time that was given out.
    latest: EpochMillis,
}

impl Clock {
    /// A running clock that shows at least `earliest`: the time that the store had reached when it
    /// was last stopped, which is ahead of the wall clock if the clock was advanced then.
    #[must_use]
    pub fn starting_at(earliest: EpochMillis) -> Self {
        Self::with_source(earliest, Box::new(wall_clock))
    }

    /// As [`Clock::starting_at`], with another wall clock: that of a simulation.
    #[must_use]
    pub fn with_source(earliest: EpochMillis, wall_clock: TimeSource) -> Self {
        let state = State { offset: 0, frozen_at: None, latest: EpochMillis(0) };
        let clock = Self { state: Mutex::new(state), wall_clock };
        clock.reach(earliest);
        clock
    }

    /// Sees to it that the clock shows at least `earliest`, and runs on from there.
    pub fn reach(&self, earliest: EpochMillis) {
        self.update(|state, wall| {
            let behind = i128::from(earliest.0) - i128::from(state.now(wall).0);
            if behind > 0 {
                state.advance(behind);
            }
        });
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> EpochMillis {
        self.update(|_, _| {})
    }

    /// Stops the clock where it is. A frozen clock stays frozen.
    pub fn freeze(&self) -> EpochMillis {
        self.update(|state, wall| state.frozen_at = Some(state.now(wall)))
    }

    /// Moves the clock forward by `millis`, frozen or not.
    pub fn advance(&self, millis: u64) -> EpochMillis {
        self.update(|state, _| state.advance(i128::from(millis)))
    }

    /// Lets a frozen clock run on from where it stands.
    pub fn resume(&self) -> EpochMillis {
        self.update(|state, wall| {
            if let Some(time) = state.frozen_at.take() {
                state.offset = i128::from(time.0) - i128::from(wall.0);
            }
        })
    }

    /// Whether the clock stands still.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).frozen_at.is_some()
    }

    fn update(&self, change: impl FnOnce(&mut State, EpochMillis)) -> EpochMillis {
        // The state is plain numbers, consistent at every point, so a poisoned lock is usable.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let wall = (self.wall_clock)();
        change(&mut state, wall);
        state.latest = state.now(wall);
        state.latest
    }
}

impl State {
    fn now(&self, wall: EpochMillis) -> EpochMillis {
        let running = i128::from(wall.0) + self.offset;
        let running = EpochMillis(u64::try_from(running).unwrap_or(0));
        self.frozen_at.unwrap_or(running).max(self.latest)
    }

    fn advance(&mut self, millis: i128) {
        match self.frozen_at {
            Some(time) => {
                self.frozen_at = Some(time.plus(u64::try_from(millis).unwrap_or(0)));
            }
            None => self.offset += millis,
        }
    }
}

/// The time of this machine, which signatures are made with; nothing in the store depends on it.
pub(crate) fn wall_clock() -> EpochMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    EpochMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 60 * 60 * 1000;

    #[test]
    fn a_frozen_clock_moves_only_when_told() {
        let clock = Clock::starting_at(EpochMillis(0));
        let start = clock.freeze();
        assert!(clock.is_frozen());
        assert_eq!(clock.now(), start);
        assert_eq!(clock.advance(DAY), start.plus(DAY));
        assert_eq!(clock.now(), start.plus(DAY));
        assert!(clock.resume() >= start.plus(DAY));
        assert!(!clock.is_frozen());
        assert!(clock.now() < start.plus(2 * DAY));
    }

    #[test]
    fn time_reached_before_a_restart_is_not_lost() {
        let ahead = wall_clock().plus(26 * 60 * 60 * 1000);
        let clock = Clock::starting_at(ahead);
        assert!(clock.now() >= ahead);
        assert!(clock.now() < ahead.plus(DAY));
    }
}
