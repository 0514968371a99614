//! The decision of a worker about a task whose stream record it received, depending on the state of
//! the migration.
//!
//! This module does not consider leases and the lag of streams.

use rules::migration::Phase;

use crate::state::State;
use crate::task::{Task, Work};

/// The decision of a worker about a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskDecision {
    /// Work on the task.
    Work,
    /// Remove the marks of a touch that was aborted.
    RemoveMarks,
    /// Check again later. A switch is in progress and may be rolled back, and no repair may run
    /// during the switch.
    CheckLater,
    /// Do nothing: a later record of the task will arrive, or the migration does not exist.
    Ignore,
    /// Mark the task as superseded, because writers now own the items that it would repair. An open
    /// task would block the command that waits for the comparison.
    Supersede,
    /// Mark the task as superseded when no other worker leases it. A worker with a lease may be
    /// repairing, and a switch waits for its repair.
    SupersedeWhenFree,
}

impl State {
    /// Decides what a worker does with a task.
    #[must_use]
    pub fn decide_task(&self, task: &Task) -> TaskDecision {
        if self.replaces(task.run) || self.is_past(task.run) {
            return TaskDecision::SupersedeWhenFree;
        }
        // After a switch, a repair would overwrite the writers' values with values from before the
        // switch.
        if task.repairs && !self.phase.may_repair(task.direction) {
            return match self.phase {
                Phase::None => TaskDecision::Ignore,
                phase if phase.is_past_repair(task.direction) => TaskDecision::Supersede,
                _ => TaskDecision::CheckLater,
            };
        }
        // A pause stops only the backfill, because an operator waits for comparisons and for the
        // end of a migration. `resume` writes every task again, so each task gets a new stream
        // record.
        match self.stopped {
            true if task.work == Work::Touch => TaskDecision::RemoveMarks,
            false if !self.paused || !task.is_backfill() => TaskDecision::Work,
            _ => TaskDecision::Ignore,
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
            (Phase::Ready, forward, TaskDecision::Work),
            (Phase::CuttingOver, forward, TaskDecision::CheckLater),
            (Phase::Turning, forward, TaskDecision::Supersede),
            (Phase::CutOver, forward, TaskDecision::Supersede),
            (Phase::Reverting, forward, TaskDecision::Supersede),
            (Phase::CutOver, reverse, TaskDecision::Work),
            (Phase::Reverting, reverse, TaskDecision::CheckLater),
            (Phase::Returning, reverse, TaskDecision::Supersede),
            (Phase::None, forward, TaskDecision::Ignore),
        ] {
            let task = Task::new("shop", 3, Work::CheckSource, "cats");
            let task = Task { direction, repairs: true, ..task };
            assert_eq!(state(phase).decide_task(&task), expected, "{phase:?} {direction:?}");
        }
    }

    #[test]
    fn a_pause_stops_the_backfill_and_an_abort_all_but_marks() {
        let paused = State { paused: true, ..state(Phase::Copying) };
        let stopped = State { stopped: true, ..state(Phase::Copying) };
        for (run, work, of_paused, of_stopped) in [
            (0, Work::Backfill, TaskDecision::Ignore, TaskDecision::Ignore),
            (0, Work::Touch, TaskDecision::Ignore, TaskDecision::RemoveMarks),
            (1, Work::CheckTarget, TaskDecision::Work, TaskDecision::Ignore),
            (2, Work::Unmark, TaskDecision::Work, TaskDecision::Ignore),
        ] {
            let task = Task::new("shop", run, work, "cats");
            assert_eq!(paused.decide_task(&task), of_paused, "{work:?}");
            assert_eq!(stopped.decide_task(&task), of_stopped, "{work:?}");
            assert_eq!(state(Phase::Copying).decide_task(&task), TaskDecision::Work, "{work:?}");
        }
    }

    #[test]
    fn a_task_of_an_ended_or_replaced_run_is_superseded() {
        let task = |run| Task::new("shop", run, Work::Unmark, "cats");
        let replaced = State { run: 4, stopped: true, ..state(Phase::Completing) };
        assert_eq!(replaced.decide_task(&task(3)), TaskDecision::SupersedeWhenFree);
        assert_eq!(state(Phase::Completed).decide_task(&task(3)), TaskDecision::SupersedeWhenFree);
        let unswept = State { needs_cleaning: true, run: 3, ..state(Phase::Reverted) };
        assert_eq!(unswept.decide_task(&task(3)), TaskDecision::Work);
    }
}
