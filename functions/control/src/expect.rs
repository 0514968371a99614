//! The precondition of a change that moves a migration to a different phase.

use rules::migration::Phase;

use crate::state::State;

/// The expected state of a migration. The transaction of each step of a command has this
/// expectation as its condition, so only one of two concurrent commands succeeds.
#[derive(Clone, Copy, Debug)]
pub struct Expect<'e> {
    /// The phases in which the change may begin.
    pub phases: &'e [Phase],
    /// The command that must have claimed the migration; `None` accepts any command.
    pub holder: Option<&'e str>,
    /// The run of tasks that must be the latest run; `None` accepts any run.
    pub run: Option<u64>,
}

/// The reason why a state is not the expected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnexpectedState {
    /// The migration is in a different phase.
    OtherPhase {
        /// The current phase.
        phase: Phase,
    },
    /// Another command has claimed the migration.
    OtherHolder,
    /// A later run of tasks has begun.
    LaterRun,
}

impl<'e> Expect<'e> {
    /// Expects one of these phases, with any holder.
    #[must_use]
    pub fn phases(phases: &'e [Phase]) -> Self {
        Self { phases, holder: None, run: None }
    }

    /// Expects one of these phases and this holder.
    #[must_use]
    pub fn claimed_by(phases: &'e [Phase], holder: &'e str) -> Self {
        Self { phases, holder: Some(holder), run: None }
    }

    /// Expects in addition that this run of tasks is the latest run.
    #[must_use]
    pub fn with_run(self, run: u64) -> Self {
        Self { run: Some(run), ..self }
    }

    /// Checks a state.
    ///
    /// # Errors
    /// Returns the first expectation that the state does not meet.
    pub fn check(&self, state: &State) -> Result<(), UnexpectedState> {
        if !self.phases.contains(&state.phase) {
            return Err(UnexpectedState::OtherPhase { phase: state.phase });
        }
        if self.holder.is_some_and(|holder| state.holder.as_deref() != Some(holder)) {
            return Err(UnexpectedState::OtherHolder);
        }
        match self.run {
            Some(run) if state.run != run => Err(UnexpectedState::LaterRun),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_state_is_refused() {
        let holder = Some("a".to_owned());
        let state = State { phase: Phase::CuttingOver, holder, run: 4, ..State::new("shop") };
        let phases = [Phase::CuttingOver];
        assert_eq!(Expect::phases(&phases).check(&state), Ok(()));
        assert_eq!(Expect::claimed_by(&phases, "a").check(&state), Ok(()));
        assert_eq!(
            Expect::claimed_by(&phases, "b").check(&state),
            Err(UnexpectedState::OtherHolder)
        );
        let moved = Expect::phases(&[Phase::Ready, Phase::Tailing]).check(&state);
        assert_eq!(moved, Err(UnexpectedState::OtherPhase { phase: Phase::CuttingOver }));
        assert_eq!(Expect::phases(&phases).with_run(4).check(&state), Ok(()));
        assert_eq!(
            Expect::phases(&phases).with_run(3).check(&state),
            Err(UnexpectedState::LaterRun)
        );
        // A migration that was not started has no state.
        assert_eq!(Expect::phases(&[Phase::None]).check(&State::new("shop")), Ok(()));
    }
}
