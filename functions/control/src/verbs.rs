//! What each verb of `weir migrate` does in each phase, as one table; where it does nothing, why, and which
//! command helps.
//!
//! A command decides by this table first, from what it has read. The transaction that changes the phase
//! names the phases again, so that of two commands at the same time one is refused.

use rules::migration::Phase;
use rules::migration::plan::Kind;

/// A verb that changes what a migration does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Starts a migration, or resumes its start.
    Start,
    /// Pauses the backfill.
    Pause,
    /// Resumes the backfill and wakes workers.
    Resume,
    /// Sets the rate of the backfill.
    Throttle,
    /// Compares targets and sources.
    Verify,
    /// Switches readers and writers to the targets.
    Cutover,
    /// Switches readers and writers back to the sources.
    Revert,
    /// Closes the way back and ends the migration.
    Complete,
    /// Ends the migration before the cut-over.
    Abort,
}

/// What becomes of a verb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is carried out.
    Go,
    /// Somebody began it and has not ended it: it is taken over.
    GoOn,
    /// It is done; whoever did it may have died before its last step, which is done again.
    Already,
    /// Nothing is done.
    Refused(String),
}

/// Returns what a verb does to a migration of this name and kind in this phase.
#[must_use]
pub fn answer(name: &str, kind: Kind, verb: Verb, phase: Phase) -> Answer {
    let answer = match verb {
        Verb::Start => start(phase),
        Verb::Pause => pause(phase),
        Verb::Resume | Verb::Throttle => go_on(phase),
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
            Answer::Refused(format!("`{name}` is {}; {why}", phase.as_str()))
        }
    }
}

type Cell = Result<Answer, &'static str>;

/// Of a migration that was never begun.
const NOT_BEGUN: &str = "begin it with `weir migrate start`";
/// Of one whose route is about to be opened.
const FINISH_CUTOVER: &str =
    "everything is drained already, `weir migrate cutover NAME` opens the route";
const FINISH_REVERT: &str =
    "everything is drained already, `weir migrate revert NAME` opens the route";
const ENDED: &str = "it has ended";

fn start(phase: Phase) -> Cell {
    match phase {
        Phase::None => Ok(Answer::Go),
        Phase::Preparing => Ok(Answer::GoOn),
        Phase::Copying
        | Phase::Tailing
        | Phase::Ready
        | Phase::CuttingOver
        | Phase::Turning
        | Phase::CutOver
        | Phase::Reverting
        | Phase::Returning
        | Phase::Completing => Ok(Answer::Already),
        Phase::Reverted | Phase::Completed | Phase::Aborted => Err(
            "what it wrote must not be mixed with what another run writes: give the plan another name",
        ),
    }
}

fn pause(phase: Phase) -> Cell {
    match phase {
        Phase::Preparing | Phase::Copying | Phase::Tailing | Phase::Ready => Ok(Answer::Go),
        Phase::None => Err(NOT_BEGUN),
        Phase::CuttingOver
        | Phase::Turning
        | Phase::CutOver
        | Phase::Reverting
        | Phase::Returning
        | Phase::Completing => Err("its backfill is over, there is nothing to pause"),
        Phase::Reverted | Phase::Completed | Phase::Aborted => Err(ENDED),
    }
}

/// Workers may have something left to do after the end: marks to take off.
fn go_on(phase: Phase) -> Cell {
    match phase {
        Phase::None => Err(NOT_BEGUN),
        Phase::Completed => Err(ENDED),
        _ => Ok(Answer::Go),
    }
}

/// After a cut-over, the way back is compared.
fn verify(kind: Kind, phase: Phase) -> Cell {
    match phase {
        Phase::Tailing | Phase::Ready => Ok(Answer::Go),
        Phase::CutOver if matches!(kind, Kind::Restructure | Kind::Split) => Ok(Answer::Go),
        Phase::None => Err(NOT_BEGUN),
        Phase::Preparing | Phase::Copying => Err("verify when it is tailing"),
        Phase::CuttingOver => {
            Err("somebody is cutting it over, `weir migrate cutover NAME` takes that over")
        }
        Phase::Turning => Err(FINISH_CUTOVER),
        Phase::Reverting => {
            Err("somebody is switching it back, `weir migrate revert NAME` takes that over")
        }
        Phase::Returning => Err(FINISH_REVERT),
        Phase::CutOver | Phase::Completing => {
            Err("the targets are no longer what the sources say, there is nothing to compare")
        }
        Phase::Reverted | Phase::Completed | Phase::Aborted => Err(ENDED),
    }
}

fn cutover(kind: Kind, phase: Phase) -> Cell {
    if kind == Kind::Purge && !matches!(phase, Phase::Completed | Phase::Aborted) {
        return Err("a purge has nothing to switch to: `weir migrate complete NAME` ends it");
    }
    match phase {
        Phase::Ready => Ok(Answer::Go),
        Phase::CuttingOver | Phase::Turning => Ok(Answer::GoOn),
        Phase::CutOver => Ok(Answer::Already),
        Phase::None => Err(NOT_BEGUN),
        Phase::Preparing | Phase::Copying | Phase::Tailing => {
            Err("`weir migrate verify NAME` must find no difference first")
        }
        Phase::Reverting | Phase::Returning => {
            Err("somebody is switching it back, `weir migrate revert NAME` takes that over")
        }
        Phase::Completing => Err("it was cut over before, `weir migrate complete NAME` goes on"),
        Phase::Reverted | Phase::Completed | Phase::Aborted => Err(ENDED),
    }
}

fn revert(kind: Kind, phase: Phase) -> Cell {
    if kind == Kind::Purge && !matches!(phase, Phase::Completed | Phase::Aborted) {
        return Err("what is purged does not come back");
    }
    match phase {
        Phase::CutOver => Ok(Answer::Go),
        Phase::Reverting | Phase::Returning => Ok(Answer::GoOn),
        Phase::Reverted => Ok(Answer::Already),
        Phase::None => Err(NOT_BEGUN),
        Phase::Preparing | Phase::Copying | Phase::Tailing | Phase::Ready | Phase::CuttingOver => {
            Err("only what is cut over can be reverted; `weir migrate abort NAME` gives it up")
        }
        Phase::Turning => Err(FINISH_CUTOVER),
        Phase::Completing => Err("its way back is closed, `weir migrate complete NAME` goes on"),
        Phase::Completed | Phase::Aborted => Err(ENDED),
    }
}

fn complete(kind: Kind, phase: Phase) -> Cell {
    match phase {
        Phase::Ready if kind.is_in_place() => Ok(Answer::Go),
        Phase::CutOver => Ok(Answer::Go),
        Phase::Completing => Ok(Answer::GoOn),
        Phase::Completed => Ok(Answer::Already),
        Phase::None => Err(NOT_BEGUN),
        Phase::Preparing | Phase::Copying | Phase::Tailing if kind.is_in_place() => {
            Err("`weir migrate verify NAME` must find no difference first")
        }
        Phase::Preparing | Phase::Copying | Phase::Tailing | Phase::Ready | Phase::CuttingOver => {
            Err("only what is cut over can be completed")
        }
        Phase::Turning => Err(FINISH_CUTOVER),
        Phase::Reverting => {
            Err("somebody is switching it back, `weir migrate revert NAME` takes that over")
        }
        Phase::Returning => Err(FINISH_REVERT),
        Phase::Reverted | Phase::Aborted => Err(ENDED),
    }
}

fn abort(phase: Phase) -> Cell {
    match phase {
        Phase::Preparing | Phase::Copying | Phase::Tailing | Phase::Ready | Phase::CuttingOver => {
            Ok(Answer::Go)
        }
        Phase::Aborted => Ok(Answer::Already),
        Phase::None => Err(NOT_BEGUN),
        Phase::Turning => Err(FINISH_CUTOVER),
        Phase::Returning => Err(FINISH_REVERT),
        Phase::CutOver | Phase::Reverting | Phase::Completing => {
            Err("only what was not cut over can be aborted")
        }
        Phase::Reverted | Phase::Completed => Err(ENDED),
    }
}

/// Returns the phases in which a verb is carried out, for the write that carries it out.
#[must_use]
pub fn phases_of(kind: Kind, verb: Verb) -> Vec<Phase> {
    let is_carried_out = |phase: &Phase| answer("", kind, verb, *phase) == Answer::Go;
    Phase::ALL.into_iter().filter(is_carried_out).collect()
}

/// Returns what an abort leaves in the tables, for people.
#[must_use]
pub fn left_by_abort(kind: Kind) -> &'static str {
    match kind {
        Kind::Restructure | Kind::Split => {
            "the sources are as they were, the targets are left to you"
        }
        Kind::InPlace => {
            "items that were changed stay changed: a plan of another name whose transform is the way back changes them back"
        }
        Kind::Purge => "what was removed stays removed",
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

    /// Every cell of the table, drawn as people read it.
    fn drawn(kind: Kind) -> String {
        let mut text = format!("{:<14}", "phase");
        VERBS.iter().for_each(|(name, _)| text.push_str(&format!("{name:<9}")));
        for phase in Phase::ALL {
            text = format!("{}\n{:<14}", text.trim_end(), phase.as_str());
            for (_, verb) in VERBS {
                let cell = match answer("shop", kind, verb, phase) {
                    Answer::Go => "go",
                    Answer::GoOn => "go on",
                    Answer::Already => "already",
                    Answer::Refused(_) => "-",
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
                if let Answer::Refused(why) = answer("shop", kind, verb, phase) {
                    let head = format!("`shop` is {}; ", phase.as_str());
                    assert!(why.starts_with(&head) && !why.contains("NAME"), "{why}");
                }
            }
        }
        let Answer::Refused(why) = answer("shop", Kind::Restructure, Verb::Start, Phase::Aborted)
        else {
            panic!()
        };
        assert!(why.contains("give the plan another name"), "{why}");
    }
}
