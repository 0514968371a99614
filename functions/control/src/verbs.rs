//! The decision about each subcommand (verb) of `weir migrate` in each phase, as one table. A
//! refusal contains the reason and the command to run instead.
//!
//! A command reads the phase, and looks up its verb and the phase in this table. The transaction
//! that changes the phase is conditional on the same phases, so only one of two concurrent commands
//! succeeds.

use rules::migration::Phase;
use rules::migration::plan::Kind;

/// A subcommand of `weir migrate` that changes the course of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Starts a migration, or resumes its start.
    Start,
    /// Pauses the backfill.
    Pause,
    /// Resumes the backfill and makes workers retry tasks that were set aside.
    Resume,
    /// Sets the rate of the backfill.
    Throttle,
    /// Compares targets and sources.
    Verify,
    /// Switches readers and writers to the targets.
    Cutover,
    /// Switches readers and writers back to the sources.
    Revert,
    /// Ends the migration after the cut-over, so that it can no longer be reverted.
    Complete,
    /// Ends the migration before the cut-over.
    Abort,
}

/// The decision about a subcommand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerbDecision {
    /// The subcommand is carried out.
    CarryOut,
    /// An earlier command began this subcommand and did not finish; the new command continues its
    /// work.
    TakeOver,
    /// The subcommand was already carried out. Its last step is repeated, because the earlier
    /// command may have died before that step.
    AlreadyDone,
    /// The subcommand is refused, for this reason.
    Refused(String),
}

/// Returns the decision about a subcommand for a migration of this name, kind and phase.
#[must_use]
pub fn decide_verb(name: &str, kind: Kind, verb: Verb, phase: Phase) -> VerbDecision {
    let answer = match verb {
        Verb::Start => start(phase),
        Verb::Pause => pause(phase),
        Verb::Resume | Verb::Throttle => adjust(phase),
        Verb::Verify => verify(kind, phase),
        Verb::Cutover => cutover(kind, phase),
        Verb::Revert => revert(kind, phase),
        Verb::Complete => complete(kind, phase),
        Verb::Abort => abort(phase),
    };
    match answer {
        Ok(answer) => answer,
        Err(why) => {
            let why = why.replace("NAME", name);
            VerbDecision::Refused(format!("`{name}` is {}; {why}", phase.as_str()))
        }
    }
}

type PhaseDecision = Result<VerbDecision, &'static str>;

/// The reason to refuse a subcommand for a migration that was never started.
const NOT_BEGUN: &str = "start it with `weir migrate start`";
/// The reason to refuse a subcommand for a migration whose switch is committed but not finished.
const FINISH_CUTOVER: &str =
    "the switch is committed but not finished: run `weir migrate cutover NAME` again";
const FINISH_REVERT: &str =
    "the switch is committed but not finished: run `weir migrate revert NAME` again";
const ENDED: &str = "the migration has ended";
/// The reason to refuse another cut-over of a run that was reverted or aborted.
const RUN_AGAIN: &str = "the migration has ended; to run again, empty the targets and start the plan under another name";
const RUN_AGAIN_IN_PLACE: &str =
    "the migration has ended; to run again, start the plan under another name";

fn start(phase: Phase) -> PhaseDecision {
    match phase {
        Phase::None => Ok(VerbDecision::CarryOut),
        Phase::Preparing => Ok(VerbDecision::TakeOver),
        Phase::Copying
        | Phase::Tailing
        | Phase::Ready
        | Phase::CuttingOver
        | Phase::Turning
        | Phase::CutOver
        | Phase::Reverting
        | Phase::Returning
        | Phase::Completing => Ok(VerbDecision::AlreadyDone),
        Phase::Reverted | Phase::Completed | Phase::Aborted => {
            Err("a migration of this name has already ended: give the plan another name")
        }
    }
}

fn pause(phase: Phase) -> PhaseDecision {
    match phase {
        Phase::Preparing | Phase::Copying | Phase::Tailing | Phase::Ready => {
            Ok(VerbDecision::CarryOut)
        }
        Phase::None => Err(NOT_BEGUN),
        Phase::CuttingOver
        | Phase::Turning
        | Phase::CutOver
        | Phase::Reverting
        | Phase::Returning
        | Phase::Completing => Err("the backfill is complete, so there is nothing to pause"),
        Phase::Reverted | Phase::Completed | Phase::Aborted => Err(ENDED),
    }
}

/// Returns the decision about `resume` and `throttle`. Both are allowed after an abort or a revert,
/// because workers may still have marks to remove.
fn adjust(phase: Phase) -> PhaseDecision {
    match phase {
        Phase::None => Err(NOT_BEGUN),
        Phase::Completed => Err(ENDED),
        _ => Ok(VerbDecision::CarryOut),
    }
}

/// Returns the decision about `verify`. After a cut-over, `verify` compares the reverse direction.
fn verify(kind: Kind, phase: Phase) -> PhaseDecision {
    match phase {
        Phase::Tailing | Phase::Ready => Ok(VerbDecision::CarryOut),
        Phase::CutOver if matches!(kind, Kind::Restructure | Kind::Split) => {
            Ok(VerbDecision::CarryOut)
        }
        Phase::None => Err(NOT_BEGUN),
        Phase::Preparing | Phase::Copying => Err(
            "wait until the migration is tailing: `weir migrate status NAME` shows the progress",
        ),
        Phase::CuttingOver => Err(
            "another command is cutting the migration over: `weir migrate cutover NAME` replaces that command",
        ),
        Phase::Turning => Err(FINISH_CUTOVER),
        Phase::Reverting => Err(
            "another command is reverting the migration: `weir migrate revert NAME` replaces that command",
        ),
        Phase::Returning => Err(FINISH_REVERT),
        Phase::CutOver => Err(
            "clients now write the new attributes to the same items, so there is nothing to compare",
        ),
        Phase::Completing => {
            Err("the targets no longer follow the sources, so there is nothing to compare")
        }
        Phase::Reverted | Phase::Completed | Phase::Aborted => Err(ENDED),
    }
}

fn cutover(kind: Kind, phase: Phase) -> PhaseDecision {
    if kind == Kind::Purge && !matches!(phase, Phase::Completed | Phase::Aborted) {
        return Err("a purge has no cut-over: `weir migrate complete NAME` ends the purge");
    }
    match phase {
        Phase::Ready => Ok(VerbDecision::CarryOut),
        Phase::CuttingOver | Phase::Turning => Ok(VerbDecision::TakeOver),
        Phase::CutOver => Ok(VerbDecision::AlreadyDone),
        Phase::None => Err(NOT_BEGUN),
        Phase::Preparing | Phase::Copying | Phase::Tailing => {
            Err("`weir migrate verify NAME` must find no difference first")
        }
        Phase::Reverting | Phase::Returning => Err(
            "another command is reverting the migration: `weir migrate revert NAME` replaces that command",
        ),
        Phase::Completing => {
            Err("the migration is being completed: `weir migrate complete NAME` finishes it")
        }
        Phase::Reverted | Phase::Aborted if kind == Kind::InPlace => Err(RUN_AGAIN_IN_PLACE),
        Phase::Reverted | Phase::Aborted if kind != Kind::Purge => Err(RUN_AGAIN),
        Phase::Reverted | Phase::Completed | Phase::Aborted => Err(ENDED),
    }
}

fn revert(kind: Kind, phase: Phase) -> PhaseDecision {
    if kind == Kind::Purge && !matches!(phase, Phase::Completed | Phase::Aborted) {
        return Err("purged items cannot be restored");
    }
    match phase {
        Phase::CutOver => Ok(VerbDecision::CarryOut),
        Phase::Reverting | Phase::Returning => Ok(VerbDecision::TakeOver),
        Phase::Reverted => Ok(VerbDecision::AlreadyDone),
        Phase::None => Err(NOT_BEGUN),
        Phase::Preparing | Phase::Copying | Phase::Tailing | Phase::Ready | Phase::CuttingOver => {
            Err("the migration is not cut over yet: to end it, run `weir migrate abort NAME`")
        }
        Phase::Turning => Err(FINISH_CUTOVER),
        Phase::Completing => {
            Err("the migration can no longer be reverted: `weir migrate complete NAME` finishes it")
        }
        Phase::Completed | Phase::Aborted => Err(ENDED),
    }
}

fn complete(kind: Kind, phase: Phase) -> PhaseDecision {
    match phase {
        Phase::Ready if kind.is_in_place() => Ok(VerbDecision::CarryOut),
        Phase::CutOver => Ok(VerbDecision::CarryOut),
        Phase::Completing => Ok(VerbDecision::TakeOver),
        Phase::Completed => Ok(VerbDecision::AlreadyDone),
        Phase::None => Err(NOT_BEGUN),
        Phase::Preparing | Phase::Copying | Phase::Tailing if kind.is_in_place() => {
            Err("`weir migrate verify NAME` must find no difference first")
        }
        Phase::Preparing | Phase::Copying | Phase::Tailing | Phase::Ready | Phase::CuttingOver => {
            Err("cut the migration over first: `weir migrate cutover NAME`")
        }
        Phase::Turning => Err(FINISH_CUTOVER),
        Phase::Reverting => Err(
            "another command is reverting the migration: `weir migrate revert NAME` replaces that command",
        ),
        Phase::Returning => Err(FINISH_REVERT),
        Phase::Reverted | Phase::Aborted => Err(ENDED),
    }
}

fn abort(phase: Phase) -> PhaseDecision {
    match phase {
        Phase::Preparing | Phase::Copying | Phase::Tailing | Phase::Ready | Phase::CuttingOver => {
            Ok(VerbDecision::CarryOut)
        }
        Phase::Aborted => Ok(VerbDecision::AlreadyDone),
        Phase::None => Err(NOT_BEGUN),
        Phase::Turning => Err(FINISH_CUTOVER),
        Phase::Returning => Err(FINISH_REVERT),
        Phase::Completing => {
            Err("the migration can no longer be aborted: `weir migrate complete NAME` finishes it")
        }
        Phase::CutOver | Phase::Reverting => Err(
            "a migration can be aborted only before the cut-over: `weir migrate status NAME` shows the next step",
        ),
        Phase::Reverted | Phase::Completed => Err(ENDED),
    }
}

/// Returns the phases in which a subcommand is carried out. The write of the command is conditional
/// on these phases.
#[must_use]
pub fn phases_of(kind: Kind, verb: Verb) -> Vec<Phase> {
    let is_carried_out =
        |phase: &Phase| decide_verb("", kind, verb, *phase) == VerbDecision::CarryOut;
    Phase::ALL.into_iter().filter(is_carried_out).collect()
}

/// Returns a sentence for operators about the items that an abort leaves in the tables.
#[must_use]
pub fn left_by_abort(kind: Kind) -> &'static str {
    match kind {
        Kind::Restructure | Kind::Split => "the sources are unchanged; delete the targets yourself",
        Kind::InPlace => {
            "changed items stay changed; to restore the old shape, start a plan with another name and the inverse transform"
        }
        Kind::Purge => "removed items stay removed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERBS: [(&str, Verb); 9] = [
        ("start", Verb::Start),
        ("pause", Verb::Pause),
        ("resume", Verb::Resume),
        ("throttle", Verb::Throttle),
        ("verify", Verb::Verify),
        ("cutover", Verb::Cutover),
        ("revert", Verb::Revert),
        ("complete", Verb::Complete),
        ("abort", Verb::Abort),
    ];

    /// Returns the decisions about all subcommands in all phases for a kind, in the form of
    /// `testdata/verbs.txt`.
    fn drawn(kind: Kind) -> String {
        let mut text = format!("{:<14}", "phase");
        VERBS.iter().for_each(|(name, _)| text.push_str(&format!("{name:<9}")));
        for phase in Phase::ALL {
            text = format!("{}\n{:<14}", text.trim_end(), phase.as_str());
            for (_, verb) in VERBS {
                let cell = match decide_verb("shop", kind, verb, phase) {
                    VerbDecision::CarryOut => "go",
                    VerbDecision::TakeOver => "go on",
                    VerbDecision::AlreadyDone => "already",
                    VerbDecision::Refused(_) => "-",
                };
                text.push_str(&format!("{cell:<9}"));
            }
        }
        text.trim_end().to_owned()
    }

    #[test]
    fn every_verb_in_every_phase_of_every_kind() {
        let tables = include_str!("../testdata/verbs.txt");
        let mut kinds = 0;
        for table in tables.trim_end().split("\n\n") {
            let (title, expected) = table.split_once('\n').unwrap();
            for kind in title.trim_start_matches("# ").split(", ") {
                let kind = serde_json::from_str(&format!("\"{kind}\"")).unwrap();
                assert_eq!(drawn(kind), expected, "{title}");
                kinds += 1;
            }
        }
        assert_eq!(kinds, 4);
    }

    #[test]
    fn a_refusal_says_where_the_migration_is_and_names_no_placeholder() {
        for kind in [Kind::Restructure, Kind::Split, Kind::InPlace, Kind::Purge] {
            for (phase, (_, verb)) in
                Phase::ALL.into_iter().flat_map(|phase| VERBS.map(|verb| (phase, verb)))
            {
                if let VerbDecision::Refused(why) = decide_verb("shop", kind, verb, phase) {
                    let head = format!("`shop` is {}; ", phase.as_str());
                    assert!(why.starts_with(&head) && !why.contains("NAME"), "{why}");
                }
            }
        }
        let VerbDecision::Refused(why) =
            decide_verb("shop", Kind::Restructure, Verb::Start, Phase::Aborted)
        else {
            panic!()
        };
        assert!(why.contains("give the plan another name"), "{why}");
    }
}
