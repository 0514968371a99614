//! The store's clock: the wall clock plus an offset, which can be frozen and advanced.
//!
//! Store time never decreases. TTL, shard rotation, retention and iterators use store time, so a
//! test can let a day pass. This is the only module that reads the system's time.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use locks::Mutex;
use model::EpochMillis;

/// The largest clock skew in milliseconds. If other nodes are ahead by at most this value, the
/// clock stops until its wall clock has caught up. If they are ahead by more, the clock concludes
/// that an operator advanced a clock, because synchronised clocks differ by less.
const SKEW_MAX: u64 = 10_000;

/// The smallest difference from the wall clock, in milliseconds, at which the store reports that
/// its clock was moved. The `Date` header has whole seconds and cannot show a smaller difference.
const MOVED_MIN: u64 = 1_000;

/// A source of wall time.
pub type TimeSource = Box<dyn Fn() -> EpochMillis + Send + Sync>;

/// A monotonic source of elapsed milliseconds, independent of changes of the wall clock.
type ElapsedSource = Box<dyn Fn() -> u64 + Send + Sync>;

/// The store's clock; only an operator can move it, and only forward.
pub struct Clock {
    state: Mutex<State>,
    wall_clock: TimeSource,
    /// The monotonic source that detects jumps of the wall clock. `None` if the wall clock never
    /// jumps.
    elapsed: Option<ElapsedSource>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// The operator's offset from the wall clock, in milliseconds.
    offset: i128,
    /// The correction that is added to the wall clock and `offset`, in milliseconds. The correction
    /// prevents this clock from falling behind other nodes, or behind the time that it showed
    /// before a restart. The correction decreases if a slow wall clock is set forward.
    learned: i128,
    /// The readings of the wall clock and of the monotonic clock at their last comparison.
    last: Option<(EpochMillis, u64)>,
    /// Store time while the clock is frozen.
    frozen_at: Option<EpochMillis>,
    /// The latest time that was returned.
    latest: EpochMillis,
    /// The latest time that this clock would have shown without corrections towards other nodes.
    own: EpochMillis,
}

impl Clock {
    /// Creates a running clock that shows at least `earliest`, the store's last time before it
    /// stopped. This time is ahead of the wall clock if an operator advanced the store's clock.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "the clock of a real node; the simulation sets the sources"
    )]
    pub fn starting_at(earliest: EpochMillis) -> Self {
        let start = Instant::now();
        let elapsed = move || u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        Self::with_sources(earliest, Box::new(wall_clock), Some(Box::new(elapsed)))
    }

    /// Creates a clock like [`Clock::starting_at`], but with a given wall clock that never jumps,
    /// such as a simulated one.
    #[must_use]
    pub fn with_source(earliest: EpochMillis, wall_clock: TimeSource) -> Self {
        Self::with_sources(earliest, wall_clock, None)
    }

    fn with_sources(
        earliest: EpochMillis,
        wall_clock: TimeSource,
        elapsed: Option<ElapsedSource>,
    ) -> Self {
        let state = State {
            offset: 0,
            learned: 0,
            last: None,
            frozen_at: None,
            latest: EpochMillis(0),
            own: EpochMillis(0),
        };
        let clock = Self { state: Mutex::new(state), wall_clock, elapsed };
        clock.reach(earliest);
        clock
    }

    /// Makes the clock show at least `earliest`, a time that this or another node has shown before.
    ///
    /// If `earliest` is slightly ahead, the clock stops until the wall clock has caught up.
    /// Therefore a faulty clock on another node has an effect only while it is faulty, and the
    /// errors of several clocks do not add up. If `earliest` is further ahead, an operator advanced
    /// a clock, and this clock continues from `earliest`.
    pub fn reach(&self, earliest: EpochMillis) {
        self.update(|state, wall| {
            if earliest <= state.now(wall) {
                return;
            }
            // Compares with this clock's own time, which excludes earlier corrections towards other
            // nodes. A comparison with the corrected time would mistake an operator's advance in
            // many small steps for skew.
            if earliest.0.saturating_sub(state.own_time(wall).0) > SKEW_MAX {
                state.continue_from(wall, earliest);
            } else if state.frozen_at.is_none() {
                state.latest = earliest;
            }
        });
    }

    /// Advances the clock to at least `now`, the time of another node whose clock an operator has
    /// changed. Freezes this clock if that clock is frozen, and resumes it otherwise.
    pub fn follow(&self, now: EpochMillis, is_frozen: bool) {
        self.update(|state, wall| {
            let shown = state.now(wall).max(now);
            state.run_from(wall, shown);
            state.frozen_at = is_frozen.then_some(shown);
        });
    }

    /// Returns the current store time.
    #[must_use]
    pub fn now(&self) -> EpochMillis {
        self.update(|_, _| {})
    }

    /// Returns the current store time if it differs from the wall clock by a second or more;
    /// otherwise `None`.
    #[must_use]
    pub fn moved(&self) -> Option<EpochMillis> {
        let mut apart = 0;
        let now = self.update(|state, wall| apart = state.now(wall).0.abs_diff(wall.0));
        (apart >= MOVED_MIN).then_some(now)
    }

    /// Freezes the clock at its current time and returns that time. Has no effect on a frozen
    /// clock.
    pub fn freeze(&self) -> EpochMillis {
        self.update(|state, wall| state.frozen_at = Some(state.now(wall)))
    }

    /// Moves the clock forward by `millis` milliseconds, even if it is frozen, and returns its
    /// time.
    pub fn advance(&self, millis: u64) -> EpochMillis {
        self.update(|state, wall| state.advance(wall, millis))
    }

    /// Resumes a frozen clock, which continues from its current time. Returns that time.
    pub fn resume(&self) -> EpochMillis {
        self.update(|state, wall| {
            if let Some(time) = state.frozen_at.take() {
                state.offset = i128::from(time.0) - i128::from(wall.0) - state.learned;
            }
        })
    }

    /// Returns whether the clock is frozen.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.state.lock().frozen_at.is_some()
    }

    fn update(&self, change: impl FnOnce(&mut State, EpochMillis)) -> EpochMillis {
        let mut state = self.state.lock();
        let wall = (self.wall_clock)();
        if let Some(elapsed) = &self.elapsed {
            state.detect_correction(wall, elapsed());
        }
        change(&mut state, wall);
        state.latest = state.now(wall);
        state.own = state.own_time(wall);
        state.latest
    }
}

impl State {
    fn now(&self, wall: EpochMillis) -> EpochMillis {
        self.own_time(wall).max(self.latest)
    }

    fn own_time(&self, wall: EpochMillis) -> EpochMillis {
        let running = i128::from(wall.0) + self.offset + self.learned;
        let running = EpochMillis(u64::try_from(running).unwrap_or(0));
        self.frozen_at.unwrap_or(running).max(self.own)
    }

    /// Sets the current time. A running clock continues from that time.
    fn continue_from(&mut self, wall: EpochMillis, time: EpochMillis) {
        match self.frozen_at {
            Some(_) => self.frozen_at = Some(time),
            None => self.run_from(wall, time),
        }
    }

    /// Sets a running clock to the time of other nodes. The difference is recorded in `learned`,
    /// not in `offset`, because its cause is unknown: an operator advanced the other nodes, or this
    /// node's wall clock is slow.
    fn run_from(&mut self, wall: EpochMillis, time: EpochMillis) {
        self.learned = i128::from(time.0) - i128::from(wall.0) - self.offset;
        if self.learned < 0 {
            self.offset += std::mem::take(&mut self.learned);
        }
    }

    /// Detects that the wall clock was set forward. In that case the wall clock was slow, which
    /// explains why other nodes were ahead. Therefore `learned` is reduced by the size of the jump.
    fn detect_correction(&mut self, wall: EpochMillis, elapsed: u64) {
        let before = self.last.replace((wall, elapsed));
        let Some((wall_before, elapsed_before)) = before else { return };
        let step = i128::from(wall.0)
            - i128::from(wall_before.0)
            - i128::from(elapsed.saturating_sub(elapsed_before));
        if step > i128::from(SKEW_MAX) {
            self.learned -= step.min(self.learned);
        }
    }

    /// Advances the clock. An advance does not shorten a stop because of skew: the skew is not an
    /// operator's change, and ends when the wall clock is corrected.
    fn advance(&mut self, wall: EpochMillis, millis: u64) {
        let shown = self.now(wall).plus(millis);
        match self.frozen_at {
            Some(_) => self.frozen_at = Some(shown),
            None => {
                self.offset += i128::from(millis);
                self.latest = shown;
            }
        }
    }
}

/// Returns this machine's wall time, which is used to verify request signatures. The store's state
/// does not depend on it.
#[expect(clippy::disallowed_methods, reason = "the source of the time of a real node")]
pub fn wall_clock() -> EpochMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    EpochMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
        assert_eq!(clock.moved(), Some(start.plus(DAY)));
        assert!(clock.resume() >= start.plus(DAY));
        assert!(!clock.is_frozen());
        assert!(clock.now() < start.plus(2 * DAY));
    }

    /// Returns a clock that shows at least `earliest`, and its wall clock.
    fn with_wall(earliest: u64, wall: u64) -> (Clock, Arc<Mutex<u64>>) {
        let wall = Arc::new(Mutex::new(wall));
        let source = Arc::clone(&wall);
        let source = Box::new(move || EpochMillis(*source.lock()));
        (Clock::with_source(EpochMillis(earliest), source), wall)
    }

    #[test]
    fn a_waiting_clock_advances_by_the_requested_time() {
        // The last time before a restart may be slightly ahead of the wall clock.
        for (earliest, is_frozen) in
            [(1_005_000, false), (1_005_000, true), (1_000_000, false), (1_000_000, true)]
        {
            let (clock, wall) = with_wall(earliest, 1_000_000);
            assert_eq!(clock.now().0, earliest);
            if is_frozen {
                clock.freeze();
            }
            assert_eq!(clock.advance(5_000).0, earliest + 5_000);
            *wall.lock() += 1_000;
            let stands = is_frozen || earliest > 1_000_000;
            assert_eq!(clock.now().0, earliest + if stands { 5_000 } else { 6_000 });
        }
    }

    #[test]
    fn a_waiting_clock_reaches_the_time_of_an_advanced_node() {
        let (clock, wall) = with_wall(1_005_000, 1_000_000);
        clock.reach(EpochMillis(1_005_000 + DAY));
        assert_eq!(clock.now().0, 1_005_000 + DAY);
        *wall.lock() += 1_000;
        assert_eq!(clock.now().0, 1_006_000 + DAY);
    }

    #[test]
    fn many_small_steps_are_not_skew() {
        let (clock, wall) = with_wall(1_008_000, 1_000_000);
        assert_eq!(clock.now().0, 1_008_000);
        clock.reach(EpochMillis(1_016_000));
        *wall.lock() += 1_000;
        assert_eq!(clock.now().0, 1_017_000);
    }

    #[test]
    fn an_advance_does_not_keep_a_wrong_wall_clock() {
        let (clock, wall) = with_wall(0, 4_600_000);
        assert_eq!(clock.now().0, 4_600_000);
        // The wall clock was an hour ahead, and is now corrected.
        *wall.lock() = 1_000_000;
        assert_eq!(clock.advance(5_000).0, 4_605_000);
        *wall.lock() = 4_601_000;
        assert_eq!(clock.now().0, 4_606_000);
    }

    /// Returns a clock that shows at least `earliest`, whose wall clock shows `wall`. Also returns
    /// a function that lets time pass, moves the wall clock forward or back, and returns the
    /// clock's time.
    fn with_settable_wall(earliest: u64, wall: u64) -> (Arc<Clock>, impl Fn(u64, i64) -> u64) {
        let times = Arc::new(Mutex::new((wall, 0)));
        let (walls, passed) = (Arc::clone(&times), Arc::clone(&times));
        let clock = Arc::new(Clock::with_sources(
            EpochMillis(earliest),
            Box::new(move || EpochMillis(walls.lock().0)),
            Some(Box::new(move || passed.lock().1)),
        ));
        let shown = Arc::clone(&clock);
        let pass = move |millis: u64, set: i64| {
            let mut times = times.lock();
            times.0 = (times.0 + millis).checked_add_signed(set).unwrap();
            times.1 += millis;
            drop(times);
            shown.now().0
        };
        (clock, pass)
    }

    /// Goal: a machine that starts with a wrong clock does not change the store's time permanently.
    #[test]
    fn a_wall_clock_that_was_behind_can_be_corrected() {
        let year = 365 * DAY;
        let (clock, pass) = with_settable_wall(3 * year, year);
        assert_eq!(clock.now().0, 3 * year, "time does not go back");
        assert_eq!(pass(5_000, 0), 3 * year + 5_000);
        assert_eq!(pass(1_000, 2 * year as i64), 3 * year + 6_000, "time does not jump forward");
        assert_eq!(pass(1_000, 0), 3 * year + 7_000);
        assert_eq!(clock.advance(DAY).0, 3 * year + 7_000 + DAY, "the operator's advance is kept");
        assert_eq!(
            pass(1_000, 20_000),
            3 * year + 28_000 + DAY,
            "the clock follows a corrected wall clock"
        );
    }

    /// Goal: one node with a temporarily wrong wall clock does not move the other clocks
    /// permanently.
    #[test]
    fn a_temporarily_wrong_wall_clock_has_no_lasting_effect() {
        let hour = 3_600_000;
        let (clock, pass) = with_settable_wall(0, 10 * hour);
        assert_eq!(clock.now().0, 10 * hour);
        assert_eq!(pass(1_000, -(hour as i64)), 10 * hour, "time does not go back");
        for second in 2..=25 {
            pass(1_000, 0);
            clock.reach(EpochMillis(10 * hour + second * 1_000));
        }
        assert_eq!(clock.now().0, 10 * hour + 25_000, "the clock advances with the other nodes");
        assert_eq!(pass(1_000, hour as i64), 10 * hour + 26_000);
        // The clock still follows an advance of another node.
        clock.reach(EpochMillis(10 * hour + 26_000 + DAY));
        assert_eq!(pass(1_000, 0), 10 * hour + 27_000 + DAY);
    }

    #[test]
    fn a_clock_waits_for_small_skew_which_does_not_add_up() {
        let (clock, wall) = with_wall(0, 1_000_000);
        let at = |time: u64| {
            *wall.lock() = time;
            clock.now().0
        };
        assert_eq!(clock.moved(), None);
        for ahead in [1_005_000, 1_006_000] {
            clock.reach(EpochMillis(ahead));
            assert_eq!(clock.now().0, ahead, "the clock adopts the other node's time");
        }
        assert_eq!(at(1_002_000), 1_006_000, "the clock waits for the wall clock");
        assert_eq!(at(1_007_000), 1_007_000, "the clock follows the wall clock");
        clock.reach(EpochMillis(1_007_000 + DAY));
        assert_eq!(at(1_008_000), 1_008_000 + DAY, "an advance is kept");
        clock.follow(EpochMillis(1_009_000 + DAY), true);
        assert_eq!(at(2_000_000), 1_009_000 + DAY, "the clock stops like the leader's");
        clock.follow(EpochMillis(1_009_500 + DAY), false);
        assert_eq!(at(2_000_100), 1_009_600 + DAY, "the clock advances like the leader's");
    }

    #[test]
    fn time_reached_before_a_restart_is_not_lost() {
        let ahead = wall_clock().plus(26 * 60 * 60 * 1000);
        let clock = Clock::starting_at(ahead);
        assert!(clock.now() >= ahead);
        assert!(clock.now() < ahead.plus(DAY));
    }
}
