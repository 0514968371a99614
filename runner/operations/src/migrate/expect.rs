//! What a state must be for a change that moves a migration on, and the change.
//!
//! Who reads and writes states is not known here.

use rules::migration::Phase;

use super::control::{Entry, number, phase_of, text};

/// What a state must be for a change that moves a migration on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expect<'e> {
    /// The phases that the change begins in.
    pub(crate) phases: &'e [Phase],
    /// Who holds the migration for a switch, if somebody must.
    pub(crate) holder: Option<&'e str>,
    /// The run of tasks that must be the last one, if that matters.
    pub(crate) run: Option<u64>,
}

impl<'e> Expect<'e> {
    /// Any state in one of these phases.
    pub(crate) fn phases(phases: &'e [Phase]) -> Self {
        Self { phases, holder: None, run: None }
    }

    /// A state in this phase, held by this holder.
    pub(crate) fn held(phase: &'e [Phase], holder: &'e str) -> Self {
        Self { phases: phase, holder: Some(holder), run: None }
    }

    /// Why a state is not what is expected; none if it is.
    pub(super) fn broken_by(&self, name: &str, state: &Entry) -> Option<String> {
        let phase = phase_of(state);
        if !self.phases.contains(&phase) {
            return Some(format!(
                "somebody else moved `{name}`, it is {} now; nothing was changed",
                phase.as_str()
            ));
        }
        if self.holder.is_some_and(|holder| text(state, "holder") != Some(holder)) {
            return Some(format!(
                "somebody else took over what was begun with `{name}`; it is theirs to end"
            ));
        }
        if self.run.is_some_and(|run| number(state, "run") != run) {
            return Some(format!(
                "a later comparison of `{name}` was begun meanwhile; its result counts"
            ));
        }
        None
    }
}

/// A change of a phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move<'m> {
    pub(crate) expect: Expect<'m>,
    /// None: it stays as it is, and something else is noted in the journal.
    pub(crate) to: Option<Phase>,
    pub(crate) why: &'m str,
    /// The store's time.
    pub(crate) now: i64,
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::control::{n, s};
    use super::*;

    #[test]
    fn a_state_that_somebody_else_moved_is_not_moved() {
        let state: Entry = HashMap::from([
            ("phase".to_owned(), s("cutting-over")),
            ("holder".to_owned(), s("a")),
            ("run".to_owned(), n(4)),
        ]);
        let phases = [Phase::CuttingOver];
        let broken = |expect: Expect<'_>| expect.broken_by("shop", &state).unwrap_or_default();
        assert_eq!(broken(Expect::phases(&phases)), "");
        assert_eq!(broken(Expect::held(&phases, "a")), "");
        assert!(broken(Expect::held(&phases, "b")).contains("took over"));
        let moved = broken(Expect::phases(&[Phase::Ready, Phase::Tailing]));
        assert!(moved.contains("it is cutting-over now"), "{moved}");
        let run = |run| Expect { run: Some(run), ..Expect::phases(&phases) };
        assert_eq!(broken(run(4)), "");
        assert!(broken(run(3)).contains("a later comparison"));
        // A state that is not there is of a migration that was not begun.
        assert_eq!(Expect::phases(&[Phase::None]).broken_by("shop", &Entry::new()), None);
    }
}
