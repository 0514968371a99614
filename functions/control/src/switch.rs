//! The cut-over and the revert: one switch with a direction, as a state machine.
//!
//! Writers are blocked; a drain proves that everything they wrote has arrived; the switch is committed by
//! one write; then the route says where to go on. Until the commit, whatever goes wrong rolls back, so
//! that writers go on where they were. After it nothing can go against the switch: whoever runs the verb
//! again finishes it. Where no answer comes to the commit, the roll-back finds out which of both it is.
//!
//! A step is performed by the caller, who says how it ended; [`Switch::next`] says which step follows.
//! Nothing is read, written or waited for here.

use rules::migration::{Direction, Phase};

use crate::route::Side;

/// Which switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch(Direction);

/// What is known before a switch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The phase of the migration.
    pub phase: Phase,
    /// Whether it is asked who follows the streams that the way back needs.
    pub asks_followers: bool,
}

/// A step of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Check that somebody follows the streams that the way back needs.
    FindFollowers,
    /// Check that every document of a split can go back.
    CheckDocuments,
    /// Check that no comparison is at work, and that the result of the last one is known.
    CheckComparison,
    /// Wait until few changes are not applied. Writers are not blocked.
    CatchUp,
    /// Check that the record times of the store can separate what comes before the switch from what comes
    /// after it.
    CheckRecordTimes,
    /// Take the migration, also from a command that has died.
    Claim,
    /// Have functions follow as before the switch: a command that died may have turned them round.
    Follow,
    /// Check again what may have changed since the first check.
    CheckAgain,
    /// Close the route for writers, and wait until each of them has seen it.
    BlockWriters,
    /// Prove that everything is applied.
    Drain,
    /// Check again that every document can go back; all of them have been tried by now.
    CheckDocumentsAgain,
    /// Have functions follow the other direction.
    Turn,
    /// Write that the switch is decided.
    Commit,
    /// Put everything back as it was.
    RollBack,
    /// Open the route to the other side.
    OpenRoute,
    /// Write that the switch is done.
    Finish,
    /// Remove tombstones and marks from the sources.
    Clean,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As it should.
    Done,
    /// Something is in the way, which was said.
    Refused,
    /// Not in time, which was said.
    TimedOut,
    /// It failed, or nobody knows whether it was done, or a person ended the command.
    Failed,
    /// Of a roll-back: the commit had been written although no answer came.
    Committed,
}

/// How a switch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Readers and writers use the other side.
    Switched,
    /// Something is in the way; everything is as it was.
    Refused,
    /// Not in time; everything is as it was.
    TimedOut,
    /// It failed; everything is as it was.
    Failed,
    /// It failed, and could not be rolled back: writers may be blocked.
    Stuck,
    /// It is committed and not finished: writers may be blocked until the verb is run again.
    Unfinished,
    /// Readers and writers use the other side, and tombstones or marks are left to remove.
    Unswept,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A step.
    Do(Step),
    /// The end.
    End(End),
}

/// Why a switch is rolled back: how it ends once that is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cause(Option<Outcome>);

impl Switch {
    /// To the targets.
    pub const CUTOVER: Self = Self(Direction::Forward);
    /// Back to the sources.
    pub const REVERT: Self = Self(Direction::Reverse);

    /// Returns which way the migration runs before the switch.
    #[must_use]
    pub fn direction(self) -> Direction {
        self.0
    }

    /// Returns the verb, for people.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self.0 {
            Direction::Forward => "cutover",
            Direction::Reverse => "revert",
        }
    }

    /// Returns the phase in which it begins, and to which it is rolled back.
    #[must_use]
    pub fn before(self) -> Phase {
        match self.0 {
            Direction::Forward => Phase::Ready,
            Direction::Reverse => Phase::CutOver,
        }
    }

    /// Returns the phase in which a command holds the migration, and nothing is decided.
    #[must_use]
    pub fn held(self) -> Phase {
        match self.0 {
            Direction::Forward => Phase::CuttingOver,
            Direction::Reverse => Phase::Reverting,
        }
    }

    /// Returns the phase in which it is decided and not finished.
    #[must_use]
    pub fn committed(self) -> Phase {
        match self.0 {
            Direction::Forward => Phase::Turning,
            Direction::Reverse => Phase::Returning,
        }
    }

    /// Returns the phase in which it is done.
    #[must_use]
    pub fn after(self) -> Phase {
        match self.0 {
            Direction::Forward => Phase::CutOver,
            Direction::Reverse => Phase::Reverted,
        }
    }

    /// Returns the side that readers and writers use before it.
    #[must_use]
    pub fn from_side(self) -> Side {
        match self.0 {
            Direction::Forward => Side::Source,
            Direction::Reverse => Side::Target,
        }
    }

    /// Returns the side that readers and writers use after it.
    #[must_use]
    pub fn to_side(self) -> Side {
        match self.0 {
            Direction::Forward => Side::Target,
            Direction::Reverse => Side::Source,
        }
    }

    /// Returns the first step.
    #[must_use]
    pub fn first(self, known: Known) -> Step {
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

    /// Returns what follows a step that ended in this way. `cause` keeps why a switch is rolled back.
    pub fn next(self, known: Known, step: Step, outcome: Outcome, cause: &mut Cause) -> Next {
        if step == Step::RollBack {
            return self.after_roll_back(outcome, *cause);
        }
        if outcome == Outcome::Done {
            return self.following(known, step);
        }
        match step {
            Step::OpenRoute | Step::Finish => Next::End(End::Unfinished),
            Step::Clean => Next::End(End::Unswept),
            _ if step <= Step::Claim => Next::End(ended(outcome)),
            _ => {
                *cause = Cause(Some(outcome));
                Next::Do(Step::RollBack)
            }
        }
    }

    fn following(self, known: Known, step: Step) -> Next {
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
            Step::Drain | Step::CheckDocumentsAgain => Step::Turn,
            Step::Turn => Step::Commit,
            Step::Commit => Step::OpenRoute,
            Step::OpenRoute => Step::Finish,
            Step::Finish if is_revert => Step::Clean,
            Step::Finish | Step::Clean | Step::RollBack => return Next::End(End::Switched),
        })
    }

    /// A command that takes over from one that died checks nothing that it cannot change any more.
    fn after_followers(self, known: Known) -> Step {
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

/// How a switch ends of which nothing is left.
fn ended(outcome: Outcome) -> End {
    match outcome {
        Outcome::Refused => End::Refused,
        Outcome::TimedOut => End::TimedOut,
        Outcome::Done | Outcome::Failed | Outcome::Committed => End::Failed,
    }
}

#[cfg(test)]
mod tests;
