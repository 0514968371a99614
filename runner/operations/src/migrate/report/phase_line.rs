//! The phases of a migration in order, with the current phase.

use control::JournalLine;
use rules::migration::Phase;
use rules::migration::plan::Kind;
use serde::Serialize;

/// A phase of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PhaseStep {
    /// The name of the phase.
    pub phase: &'static str,
    /// The position of the phase relative to the current phase.
    pub place: PhasePlace,
}

/// The position of a phase relative to the current phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhasePlace {
    /// The migration has passed the phase.
    Passed,
    /// The migration is in the phase.
    Current,
    /// The migration has not reached the phase.
    Ahead,
}

/// Returns the phases of a migration, from its kind, current phase and journal.
pub(crate) fn line(kind: Kind, current: Phase, journal: &[JournalLine]) -> Vec<PhaseStep> {
    let phases = way(kind, current, journal);
    let at = phases.iter().position(|phase| *phase == current);
    let place = |index: usize| match at {
        Some(at) if index < at => PhasePlace::Passed,
        Some(at) if index == at => PhasePlace::Current,
        _ => PhasePlace::Ahead,
    };
    let steps = phases.iter().enumerate();
    steps.map(|(index, phase)| PhaseStep { phase: phase.as_str(), place: place(index) }).collect()
}

/// Returns the sequence of phases of a migration up to its end: completed, reverted or aborted.
fn way(kind: Kind, current: Phase, journal: &[JournalLine]) -> Vec<Phase> {
    let start = [Phase::Preparing, Phase::Copying, Phase::Tailing, Phase::Ready];
    let there = [Phase::CuttingOver, Phase::Turning, Phase::CutOver];
    let back = [Phase::Reverting, Phase::Returning, Phase::Reverted];
    let mut way = start.to_vec();
    if kind != Kind::Purge {
        way.extend(there);
    }
    match current {
        Phase::Aborted => {
            way.retain(|phase| journal.iter().any(|line| line.to == *phase));
            way.push(Phase::Aborted);
        }
        Phase::Reverting | Phase::Returning | Phase::Reverted => way.extend(back),
        _ => way.extend([Phase::Completing, Phase::Completed]),
    }
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_where_the_migration_goes() {
        let text = |kind, current, journal: &[JournalLine]| -> String {
            let steps = line(kind, current, journal);
            let step = |step: &PhaseStep| match step.place {
                PhasePlace::Passed => format!("{}+", step.phase),
                PhasePlace::Current => format!("[{}]", step.phase),
                PhasePlace::Ahead => step.phase.to_owned(),
            };
            steps.iter().map(step).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            text(Kind::Restructure, Phase::Ready, &[]),
            "preparing+ copying+ tailing+ [ready] cutting-over turning cut-over completing completed"
        );
        assert_eq!(
            text(Kind::Split, Phase::Reverted, &[]),
            "preparing+ copying+ tailing+ ready+ cutting-over+ turning+ cut-over+ reverting+ returning+ [reverted]"
        );
        assert_eq!(
            text(Kind::Purge, Phase::Preparing, &[]),
            "[preparing] copying tailing ready completing completed"
        );
        let to = |to| JournalLine {
            migration: "shop".to_owned(),
            line: 0,
            from: Phase::None,
            to,
            why: String::new(),
            at: 0,
            by: String::new(),
        };
        let journal = [to(Phase::Preparing), to(Phase::Copying), to(Phase::Aborted)];
        assert_eq!(text(Kind::InPlace, Phase::Aborted, &journal), "preparing+ copying+ [aborted]");
    }
}
