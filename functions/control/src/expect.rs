//! What a state must be for a change that moves a migration on.

use rules::migration::Phase;

use crate::state::State;

/// What a state must be. Every step of a verb names it again in the transaction that takes the step, so
/// that of two commands one is refused.
#[derive(Clone, Copy, Debug)]
pub struct Expect<'e> {
    /// The phases in which the change begins.
    pub phases: &'e [Phase],
    /// Who must hold the migration, if somebody must.
    pub holder: Option<&'e str>,
    /// The run of tasks that must be the last one, if that matters.
    pub run: Option<u64>,
}

/// Why a state is not what is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// It is in another phase.
    Moved {
        /// The phase.
        phase: Phase,
    },
    /// Somebody else holds it.
    TakenOver,
    /// A later run of tasks was begun.
    LaterRun,
}

impl<'e> Expect<'e> {
    /// Expects one of these phases.
    #[must_use]
    pub fn phases(phases: &'e [Phase]) -> Self {
        Self { phases, holder: None, run: None }
    }

    /// Expects one of these phases and this holder.
    #[must_use]
    pub fn held(phases: &'e [Phase], holder: &'e str) -> Self {
        Self { phases, holder: Some(holder), run: None }
    }

    /// Expects as well that this run of tasks is the last one.
    #[must_use]
    pub fn with_run(self, run: u64) -> Self {
        Self { run: Some(run), ..self }
    }

    /// Checks a state.
    ///
    /// # Errors
    /// Why it is not what is expected.
    pub fn check(&self, state: &State) -> Result<(), Broken> {
        if !self.phases.contains(&state.phase) {
            return Err(Broken::Moved { phase: state.phase });
        }
        if self.holder.is_some_and(|holder| state.holder.as_deref() != Some(holder)) {
            return Err(Broken::TakenOver);
        }
        match self.run {
            Some(run) if state.run != run => Err(Broken::LaterRun),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_that_somebody_else_moved_is_not_moved() {
        let holder = Some("a".to_owned());
        let state = State { phase: Phase::CuttingOver, holder, run: 4, ..State::new("shop") };
        let phases = [Phase::CuttingOver];
        assert_eq!(Expect::phases(&phases).check(&state), Ok(()));
        assert_eq!(Expect::held(&phases, "a").check(&state), Ok(()));
        assert_eq!(Expect::held(&phases, "b").check(&state), Err(Broken::TakenOver));
        let moved = Expect::phases(&[Phase::Ready, Phase::Tailing]).check(&state);
        assert_eq!(moved, Err(Broken::Moved { phase: Phase::CuttingOver }));
        assert_eq!(Expect::phases(&phases).with_run(4).check(&state), Ok(()));
        assert_eq!(Expect::phases(&phases).with_run(3).check(&state), Err(Broken::LaterRun));
        // A migration that was not started has no state.
        assert_eq!(Expect::phases(&[Phase::None]).check(&State::new("shop")), Ok(()));
    }
}
