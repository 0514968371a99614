//! The cut-over and the revert: one switch with two directions, as a state machine.
//!
//! The switch blocks writers, drains their writes from the streams, commits with one write, and
//! opens the route to the other side. A failure before the commit causes a rollback, and writers
//! continue on their old side. After the commit, the switch can only be finished, by running the
//! command again. If the commit gets no response, the rollback checks whether the commit was
//! written.
//!
//! The caller performs a step and reports its outcome; [`Switch::next`] returns the step that
//! follows. This module does not read, write or wait.

use rules::migration::{Direction, Phase};

use crate::route::Side;

/// One of the two switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch(Direction);

/// The facts about the migration and the command that are known before a switch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchFacts {
    /// The phase of the migration.
    pub phase: Phase,
    /// Whether the switch checks that functions follow the streams that the reverse direction
    /// needs.
    pub asks_followers: bool,
}

/// A step of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Check that functions follow the streams that the reverse direction needs.
    FindFollowers,
    /// Check that every document that was split can be assembled again, as the revert requires.
    CheckDocuments,
    /// Check that no comparison is running, and that the result of the last comparison is known.
    CheckComparison,
    /// Wait until few changes are pending. Writers are not blocked.
    CatchUp,
    /// Check that the store's record times can separate the changes before the switch from those
    /// after it.
    CheckRecordTimes,
    /// Claim the migration, even if a command that died still holds it.
    Claim,
    /// Make functions follow the direction from before the switch, because a command that died may
    /// have changed the direction.
    Follow,
    /// Repeat the checks whose result may have changed.
    CheckAgain,
    /// Close the route for writers, and wait until each writer has seen it.
    BlockWriters,
    /// Prove that functions have applied every stream record.
    Drain,
    /// Check again that every document can be assembled. By this step, workers have tried to
    /// assemble all documents.
    CheckDocumentsAgain,
    /// Make functions follow the other direction.
    FollowReverse,
    /// Record the decision to switch.
    Commit,
    /// Restore the state from before the switch.
    RollBack,
    /// Open the route to the other side.
    OpenRoute,
    /// Record that the switch is done.
    Finish,
    /// Remove tombstones and marks from the sources.
    Clean,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The step succeeded.
    Done,
    /// A check failed, and the caller has reported why.
    Refused,
    /// The step took too long, and the caller has reported it.
    TimedOut,
    /// The step failed, its result is unknown, or a person interrupted the command.
    Failed,
    /// The rollback found that the commit was written, although its response did not arrive.
    Committed,
}

/// The result of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Readers and writers use the other side.
    Switched,
    /// A check failed, so the switch did not begin or was rolled back.
    Refused,
    /// A step took too long, so the switch did not begin or was rolled back.
    TimedOut,
    /// A step failed, so the switch did not begin or was rolled back.
    Failed,
    /// A step failed, and the rollback failed too: writers may be blocked.
    Stuck,
    /// The switch is committed but not finished: writers may be blocked until an operator runs the
    /// command again.
    Unfinished,
    /// Readers and writers use the other side, but tombstones or marks must still be removed.
    NeedsCleaning,
}

/// What follows a step: another step or the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next step.
    Do(Step),
    /// The end of the switch.
    End(End),
}

/// The outcome that caused a rollback. It determines the result of the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cause(Option<Outcome>);

impl Switch {
    /// The switch to the targets.
    pub const CUTOVER: Self = Self(Direction::Forward);
    /// The switch back to the sources.
    pub const REVERT: Self = Self(Direction::Reverse);

    /// Returns the direction of the migration before the switch.
    #[must_use]
    pub fn direction(self) -> Direction {
        self.0
    }

    /// Returns the name of the subcommand of `weir migrate`, for messages to operators.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self.0 {
            Direction::Forward => "cutover",
            Direction::Reverse => "revert",
        }
    }

    /// Returns the phase in which the switch begins, and to which it rolls back.
    #[must_use]
    pub fn before(self) -> Phase {
        match self.0 {
            Direction::Forward => Phase::Ready,
            Direction::Reverse => Phase::CutOver,
        }
    }

    /// Returns the phase in which a command performs the switch and has not committed it.
    #[must_use]
    pub fn claimed_phase(self) -> Phase {
        match self.0 {
            Direction::Forward => Phase::CuttingOver,
            Direction::Reverse => Phase::Reverting,
        }
    }

    /// Returns the phase in which the switch is committed but not finished.
    #[must_use]
    pub fn committed(self) -> Phase {
        match self.0 {
            Direction::Forward => Phase::Turning,
            Direction::Reverse => Phase::Returning,
        }
    }

    /// Returns the phase after the switch.
    #[must_use]
    pub fn after(self) -> Phase {
        match self.0 {
            Direction::Forward => Phase::CutOver,
            Direction::Reverse => Phase::Reverted,
        }
    }

    /// Returns the side that readers and writers use before the switch.
    #[must_use]
    pub fn from_side(self) -> Side {
        match self.0 {
            Direction::Forward => Side::Source,
            Direction::Reverse => Side::Target,
        }
    }

    /// Returns the side that readers and writers use after the switch.
    #[must_use]
    pub fn to_side(self) -> Side {
        match self.0 {
            Direction::Forward => Side::Target,
            Direction::Reverse => Side::Source,
        }
    }

    /// Returns the first step.
    #[must_use]
    pub fn first(self, known: SwitchFacts) -> Step {
        if known.phase == self.committed() {
            return Step::OpenRoute;
        }
        match self.0 {
            Direction::Forward if known.asks_followers => Step::FindFollowers,
            Direction::Forward => self.after_followers(known),
            Direction::Reverse if known.phase == self.before() => Step::CheckDocuments,
            Direction::Reverse => Step::Claim,
        }
    }

    /// Returns the next step, or the end, after a step with this outcome. Stores the cause of a
    /// rollback in `cause`.
    pub fn next(self, known: SwitchFacts, step: Step, outcome: Outcome, cause: &mut Cause) -> Next {
        if step == Step::RollBack {
            return self.after_roll_back(outcome, *cause);
        }
        if outcome == Outcome::Done {
            return self.following(known, step);
        }
        match step {
            Step::OpenRoute | Step::Finish => Next::End(End::Unfinished),
            Step::Clean => Next::End(End::NeedsCleaning),
            _ if step <= Step::Claim => Next::End(ended(outcome)),
            _ => {
                *cause = Cause(Some(outcome));
                Next::Do(Step::RollBack)
            }
        }
    }

    fn following(self, known: SwitchFacts, step: Step) -> Next {
        let is_revert = self.0 == Direction::Reverse;
        Next::Do(match step {
            Step::FindFollowers => self.after_followers(known),
            Step::CheckDocuments => Step::CheckComparison,
            Step::CheckComparison => Step::CatchUp,
            Step::CatchUp if is_revert => Step::Claim,
            Step::CatchUp => Step::CheckRecordTimes,
            Step::CheckRecordTimes => Step::Claim,
            Step::Claim => Step::Follow,
            Step::Follow => Step::CheckAgain,
            Step::CheckAgain => Step::BlockWriters,
            Step::BlockWriters => Step::Drain,
            Step::Drain if is_revert => Step::CheckDocumentsAgain,
            Step::Drain | Step::CheckDocumentsAgain => Step::FollowReverse,
            Step::FollowReverse => Step::Commit,
            Step::Commit => Step::OpenRoute,
            Step::OpenRoute => Step::Finish,
            Step::Finish if is_revert => Step::Clean,
            Step::Finish | Step::Clean | Step::RollBack => return Next::End(End::Switched),
        })
    }

    /// Returns the step after [`Step::FindFollowers`]. A command that takes over a switch skips the
    /// comparison and the catch-up, because the first command passed them.
    fn after_followers(self, known: SwitchFacts) -> Step {
        if known.phase == self.before() { Step::CheckComparison } else { Step::CheckRecordTimes }
    }

    fn after_roll_back(self, outcome: Outcome, cause: Cause) -> Next {
        match outcome {
            Outcome::Committed => Next::Do(Step::OpenRoute),
            Outcome::Done => Next::End(cause.0.map_or(End::Failed, ended)),
            Outcome::Refused | Outcome::TimedOut | Outcome::Failed => Next::End(End::Stuck),
        }
    }
}

/// Returns the result of a switch that failed and left no changes.
fn ended(outcome: Outcome) -> End {
    match outcome {
        Outcome::Refused => End::Refused,
        Outcome::TimedOut => End::TimedOut,
        Outcome::Done | Outcome::Failed | Outcome::Committed => End::Failed,
    }
}

#[cfg(test)]
mod tests;
