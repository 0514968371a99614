//! What a worker does with a task whose stream record it received, by the state of the migration.
//!
//! Whether another worker has the task, and whether a stream is behind, is not known here.

use rules::migration::Phase;

use crate::state::State;
use crate::task::{Task, Work};

/// What a worker does with a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Works on it.
    Work,
    /// Removes the marks of a touch that was aborted.
    Clear,
    /// Checks it again: a switch is under way, which may be rolled back, and a repair must not meet it.
    Later,
    /// Nothing. A later record of the task will come, or there is no migration.
    Ignore,
    /// Marks it as superseded: what it would repair belongs to the writers now. It would stay open, and
    /// whoever waits for the comparison would wait forever.
    End,
    /// Marks it as superseded unless another worker has it. That one may be repairing, and a switch waits
    /// for it.
    EndWhenFree,
}

impl State {
    /// Returns what a worker does with a task.
    #[must_use]
    pub fn turn_of(&self, task: &Task) -> Turn {
        if self.replaces(task.run) || self.is_past(task.run) {
            return Turn::EndWhenFree;
        }
        // A comparison that outlived the switch would write what the sources were over what writers
        // have written to the targets since, or the other way round.
        if task.repairs && !self.phase.may_repair(task.direction) {
            return match self.phase {
                Phase::None => Turn::Ignore,
                phase if phase.is_past_repair(task.direction) => Turn::End,
                _ => Turn::Later,
            };
        }
        // A pause stops the backfill alone; a person waits for comparisons and for the end of a migration.
        // A resume writes every task, which makes a record of each.
        match self.stopped {
            true if task.work == Work::Touch => Turn::Clear,
            false if !self.paused || !task.is_backfill() => Turn::Work,
            _ => Turn::Ignore,
        }
    }
}

#[cfg(test)]
mod tests {
    use rules::migration::Direction;

    use super::*;

    fn state(phase: Phase) -> State {
        State { phase, ..State::new("shop") }
    }

    #[test]
    fn a_repair_that_can_never_be_made_is_superseded() {
        let (forward, reverse) = (Direction::Forward, Direction::Reverse);
        for (phase, direction, expected) in [
            (Phase::Ready, forward, Turn::Work),
            (Phase::CuttingOver, forward, Turn::Later),
            (Phase::Turning, forward, Turn::End),
            (Phase::CutOver, forward, Turn::End),
            (Phase::Reverting, forward, Turn::End),
            (Phase::CutOver, reverse, Turn::Work),
            (Phase::Reverting, reverse, Turn::Later),
            (Phase::Returning, reverse, Turn::End),
            (Phase::None, forward, Turn::Ignore),
        ] {
            let task = Task::new("shop", 3, Work::CheckSource, "cats");
            let task = Task { direction, repairs: true, ..task };
            assert_eq!(state(phase).turn_of(&task), expected, "{phase:?} {direction:?}");
        }
    }

    #[test]
    fn a_pause_is_of_the_backfill_and_a_stop_of_all_but_marks() {
        let paused = State { paused: true, ..state(Phase::Copying) };
        let stopped = State { stopped: true, ..state(Phase::Copying) };
        for (run, work, of_paused, of_stopped) in [
            (0, Work::Backfill, Turn::Ignore, Turn::Ignore),
            (0, Work::Touch, Turn::Ignore, Turn::Clear),
            (1, Work::CheckTarget, Turn::Work, Turn::Ignore),
            (2, Work::Unmark, Turn::Work, Turn::Ignore),
        ] {
            let task = Task::new("shop", run, work, "cats");
            assert_eq!(paused.turn_of(&task), of_paused, "{work:?}");
            assert_eq!(stopped.turn_of(&task), of_stopped, "{work:?}");
            assert_eq!(state(Phase::Copying).turn_of(&task), Turn::Work, "{work:?}");
        }
    }

    #[test]
    fn a_task_that_nobody_waits_for_is_superseded() {
        let task = |run| Task::new("shop", run, Work::Unmark, "cats");
        let replaced = State { run: 4, stopped: true, ..state(Phase::Completing) };
        assert_eq!(replaced.turn_of(&task(3)), Turn::EndWhenFree);
        assert_eq!(state(Phase::Completed).turn_of(&task(3)), Turn::EndWhenFree);
        let unswept = State { unswept: true, run: 3, ..state(Phase::Reverted) };
        assert_eq!(unswept.turn_of(&task(3)), Turn::Work);
    }
}
