//! The store's clock: the wall clock plus an offset, which can be frozen and advanced.
//!
//! Store time never goes back. Everything that depends on time (TTL, shard rotation, retention,
//! iterators) follows it, so a day can pass in a test. This is the only place that asks the system
//! what time it is.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use locks::Mutex;
use model::EpochMillis;

/// Time in milliseconds up to which a clock that is behind waits until the others' past is over,
/// and beyond which it was the store's clock that was advanced: more than clocks differ that are
/// kept in step at all, and less than anybody advances a clock by.
const SKEW_MAX: u64 = 10_000;

/// Milliseconds from the wall clock from which on a clock counts as moved: what a header with whole
/// seconds can show.
const MOVED_MIN: u64 = 1_000;

/// Where wall time comes from.
pub type TimeSource = Box<dyn Fn() -> EpochMillis + Send + Sync>;

/// Milliseconds that have passed since some moment, whatever is done to the wall clock.
type ElapsedSource = Box<dyn Fn() -> u64 + Send + Sync>;

/// A clock that only its owner can move, and only forward.
pub struct Clock {
    state: Mutex<State>,
    wall_clock: TimeSource,
    /// What the wall clock is compared with, if it may be set.
    elapsed: Option<ElapsedSource>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// By how much the owner moved the clock from the wall clock, in milliseconds.
    offset: i128,
    /// By how much it is ahead of that as others were, or it before a restart, in milliseconds: they
    /// were moved, or the wall clock is behind. In the latter case it goes when the wall clock is set.
    learned: i128,
    /// The wall clock and the elapsed time at the last look.
    last: Option<(EpochMillis, u64)>,
    /// Store time while the clock is frozen.
    frozen_at: Option<EpochMillis>,
    /// The latest time that was given out.
    latest: EpochMillis,
    /// The latest time that the clock would have shown by itself, whatever others had shown.
    own: EpochMillis,
}

impl Clock {
    /// A running clock that shows at least `earliest`: the time that the store had reached when it
    /// was last stopped, which is ahead of the wall clock if the clock was advanced then.
    #[must_use]
    pub fn starting_at(earliest: EpochMillis) -> Self {
        let start = Instant::now();
        let elapsed = move || u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        Self::with_sources(earliest, Box::new(wall_clock), Some(Box::new(elapsed)))
    }

    /// As [`Clock::starting_at`], with another wall clock, that nobody sets: that of a simulation.
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

    /// Sees to it that the clock shows at least `earliest`, which it or the clock of another node
    /// showed before. If that is a little ahead, the clock stands until the wall clock is there: so
    /// that a clock that goes wrong is followed only while it does, and the faults of several do
    /// not add up. If it is far ahead, somebody advanced the clock, and it goes on from there.
    pub fn reach(&self, earliest: EpochMillis) {
        self.update(|state, wall| {
            if earliest <= state.now(wall) {
                return;
            }
            // Not from what it shows: small steps would each be a little ahead of the one before.
            if earliest.0.saturating_sub(state.by_itself(wall).0) > SKEW_MAX {
                state.go_on_from(wall, earliest);
            } else if state.frozen_at.is_none() {
                state.latest = earliest;
            }
        });
    }

    /// Makes the clock show what another one shows that was changed by its owner, or more.
    pub fn follow(&self, now: EpochMillis, is_frozen: bool) {
        self.update(|state, wall| {
            let shown = state.now(wall).max(now);
            state.run_from(wall, shown);
            state.frozen_at = is_frozen.then_some(shown);
        });
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> EpochMillis {
        self.update(|_, _| {})
    }

    /// The time now if somebody moved the clock: if it is a second or more from the wall clock.
    #[must_use]
    pub fn moved(&self) -> Option<EpochMillis> {
        let mut apart = 0;
        let now = self.update(|state, wall| apart = state.now(wall).0.abs_diff(wall.0));
        (apart >= MOVED_MIN).then_some(now)
    }

    /// Stops the clock where it is. A frozen clock stays frozen.
    pub fn freeze(&self) -> EpochMillis {
        self.update(|state, wall| state.frozen_at = Some(state.now(wall)))
    }

    /// Moves the clock forward by `millis` from what it shows, frozen or not.
    pub fn advance(&self, millis: u64) -> EpochMillis {
        self.update(|state, wall| state.advance(wall, millis))
    }

    /// Lets a frozen clock run on from where it stands.
    pub fn resume(&self) -> EpochMillis {
        self.update(|state, wall| {
            if let Some(time) = state.frozen_at.take() {
                state.offset = i128::from(time.0) - i128::from(wall.0) - state.learned;
            }
        })
    }

    /// Whether the clock stands still.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.state.lock().frozen_at.is_some()
    }

    fn update(&self, change: impl FnOnce(&mut State, EpochMillis)) -> EpochMillis {
        let mut state = self.state.lock();
        let wall = (self.wall_clock)();
        if let Some(elapsed) = &self.elapsed {
            state.look(wall, elapsed());
        }
        change(&mut state, wall);
        state.latest = state.now(wall);
        state.own = state.by_itself(wall);
        state.latest
    }
}

impl State {
    fn now(&self, wall: EpochMillis) -> EpochMillis {
        self.by_itself(wall).max(self.latest)
    }

    fn by_itself(&self, wall: EpochMillis) -> EpochMillis {
        let running = i128::from(wall.0) + self.offset + self.learned;
        let running = EpochMillis(u64::try_from(running).unwrap_or(0));
        self.frozen_at.unwrap_or(running).max(self.own)
    }

    /// Shows a time from now on, and what follows it unless it is frozen.
    fn go_on_from(&mut self, wall: EpochMillis, time: EpochMillis) {
        match self.frozen_at {
            Some(_) => self.frozen_at = Some(time),
            None => self.run_from(wall, time),
        }
    }

    /// Has the running clock show a time that others show. Whether they were moved, or the wall clock is
    /// behind, cannot be known yet.
    fn run_from(&mut self, wall: EpochMillis, time: EpochMillis) {
        self.learned = i128::from(time.0) - i128::from(wall.0) - self.offset;
        if self.learned < 0 {
            self.offset += std::mem::take(&mut self.learned);
        }
    }

    /// Notices that the wall clock was set forward by more than time has passed: then it was behind, and
    /// what others were ahead by was that.
    fn look(&mut self, wall: EpochMillis, elapsed: u64) {
        let before = self.last.replace((wall, elapsed));
        let Some((wall_before, elapsed_before)) = before else { return };
        let step = i128::from(wall.0)
            - i128::from(wall_before.0)
            - i128::from(elapsed.saturating_sub(elapsed_before));
        if step > i128::from(SKEW_MAX) {
            self.learned -= step.min(self.learned);
        }
    }

    /// A clock that stands, as others were ahead of it, stands as long as it would have: that is no
    /// owner's change, and goes when what was wrong is put right.
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

/// The time of this machine, which signatures are made with; nothing in the store depends on it.
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

    /// A clock that shows at least `earliest`, and its wall clock.
    fn with_wall(earliest: u64, wall: u64) -> (Clock, Arc<Mutex<u64>>) {
        let wall = Arc::new(Mutex::new(wall));
        let source = Arc::clone(&wall);
        let source = Box::new(move || EpochMillis(*source.lock()));
        (Clock::with_source(EpochMillis(earliest), source), wall)
    }

    #[test]
    fn a_clock_that_stands_moves_by_what_it_is_told() {
        // What the store had reached before a restart may be a little ahead of the wall clock.
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
    fn a_clock_that_stands_reaches_what_was_advanced_elsewhere() {
        let (clock, wall) = with_wall(1_005_000, 1_000_000);
        clock.reach(EpochMillis(1_005_000 + DAY));
        assert_eq!(clock.now().0, 1_005_000 + DAY);
        *wall.lock() += 1_000;
        assert_eq!(clock.now().0, 1_006_000 + DAY);
    }

    #[test]
    fn small_steps_that_are_far_together_are_no_skew() {
        let (clock, wall) = with_wall(1_008_000, 1_000_000);
        assert_eq!(clock.now().0, 1_008_000);
        clock.reach(EpochMillis(1_016_000));
        *wall.lock() += 1_000;
        assert_eq!(clock.now().0, 1_017_000);
    }

    #[test]
    fn a_wrong_wall_clock_is_not_kept_by_an_advance() {
        let (clock, wall) = with_wall(0, 4_600_000);
        assert_eq!(clock.now().0, 4_600_000);
        // It was an hour ahead, and is put right.
        *wall.lock() = 1_000_000;
        assert_eq!(clock.advance(5_000).0, 4_605_000);
        *wall.lock() = 4_601_000;
        assert_eq!(clock.now().0, 4_606_000);
    }

    /// A clock that shows at least `earliest`; its wall clock is at `wall`. Gives a function that lets
    /// time pass and sets the wall clock forward or back meanwhile, and gives what the clock shows.
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

    /// Goal: a machine that starts with a wrong clock does not take the store's time with it.
    #[test]
    fn a_wall_clock_that_was_behind_is_set_right() {
        let year = 365 * DAY;
        let (clock, pass) = with_settable_wall(3 * year, year);
        assert_eq!(clock.now().0, 3 * year, "time does not go back");
        assert_eq!(pass(5_000, 0), 3 * year + 5_000);
        assert_eq!(pass(1_000, 2 * year as i64), 3 * year + 6_000, "and not forward either");
        assert_eq!(pass(1_000, 0), 3 * year + 7_000);
        assert_eq!(clock.advance(DAY).0, 3 * year + 7_000 + DAY, "what its owner does stays");
        assert_eq!(pass(1_000, 20_000), 3 * year + 28_000 + DAY, "a clock that is set is followed");
    }

    /// Goal: one node whose wall clock is wrong for a while does not move the others for good.
    #[test]
    fn a_wall_clock_that_was_behind_for_a_while_leaves_nothing() {
        let hour = 3_600_000;
        let (clock, pass) = with_settable_wall(0, 10 * hour);
        assert_eq!(clock.now().0, 10 * hour);
        assert_eq!(pass(1_000, -(hour as i64)), 10 * hour, "time does not go back");
        for second in 2..=25 {
            pass(1_000, 0);
            clock.reach(EpochMillis(10 * hour + second * 1_000));
        }
        assert_eq!(clock.now().0, 10 * hour + 25_000, "it goes with the others");
        assert_eq!(pass(1_000, hour as i64), 10 * hour + 26_000);
        // What another node's owner does to its clock is still followed.
        clock.reach(EpochMillis(10 * hour + 26_000 + DAY));
        assert_eq!(pass(1_000, 0), 10 * hour + 27_000 + DAY);
    }

    #[test]
    fn a_little_skew_is_waited_for_and_does_not_add_up() {
        let (clock, wall) = with_wall(0, 1_000_000);
        let at = |time: u64| {
            *wall.lock() = time;
            clock.now().0
        };
        assert_eq!(clock.moved(), None);
        for ahead in [1_005_000, 1_006_000] {
            clock.reach(EpochMillis(ahead));
            assert_eq!(clock.now().0, ahead, "it shows what was seen");
        }
        assert_eq!(at(1_002_000), 1_006_000, "it waits");
        assert_eq!(at(1_007_000), 1_007_000, "and then goes on as if nothing had been");
        clock.reach(EpochMillis(1_007_000 + DAY));
        assert_eq!(at(1_008_000), 1_008_000 + DAY, "what was advanced stays so");
        clock.follow(EpochMillis(1_009_000 + DAY), true);
        assert_eq!(at(2_000_000), 1_009_000 + DAY, "it stands with the other");
        clock.follow(EpochMillis(1_009_500 + DAY), false);
        assert_eq!(at(2_000_100), 1_009_600 + DAY, "and goes on with it");
    }

    #[test]
    fn time_reached_before_a_restart_is_not_lost() {
        let ahead = wall_clock().plus(26 * 60 * 60 * 1000);
        let clock = Clock::starting_at(ahead);
        assert!(clock.now() >= ahead);
        assert!(clock.now() < ahead.plus(DAY));
    }
}
