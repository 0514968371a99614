//! What a worker says that a stream has left behind: commands that are not refused where the
//! migration stands.
//!
//! Nothing is read here; who finds the gap is the mapping.

use rules::migration::Phase;
use rules::migration::plan::Plan;

/// What to do when a stream has forgotten records that were not applied. Before the cut-over nothing
/// rests on the targets yet. After it there is nothing to give up: new workers begin with what the
/// stream still has, and a comparison finds what it has not.
pub(super) fn after_loss(name: &str, plan: Option<&Plan>, phase: Phase) -> String {
    let work = format!(
        "`weir migrate work {name} --directory ANOTHER` goes on with the oldest that there is"
    );
    let is_in_place = plan.is_some_and(|plan| plan.kind.is_in_place());
    let has_way_back = plan.is_none_or(|plan| !plan.inverse.is_empty());
    match phase {
        Phase::CutOver if is_in_place => {
            format!("{work}, and then `weir migrate complete {name}` compares once more")
        }
        Phase::CutOver if has_way_back => {
            format!("{work}, and then `weir migrate verify {name} --repair` brings the rest back")
        }
        Phase::Turning => format!("{work}, and then `weir migrate cutover {name}` goes on"),
        Phase::Reverting | Phase::Returning => {
            format!("{work}, and then `weir migrate revert {name}` goes on")
        }
        Phase::Completing => format!("{work}, and then `weir migrate complete {name}` goes on"),
        Phase::CutOver | Phase::Reverted | Phase::Completed | Phase::Aborted => work,
        Phase::None
        | Phase::Preparing
        | Phase::Copying
        | Phase::Tailing
        | Phase::Ready
        | Phase::CuttingOver => {
            format!("`weir migrate abort {name}`, and begin a new one under another name")
        }
    }
}

#[cfg(test)]
mod tests {
    use rules::migration::plan::Kind;

    use super::super::steps::tests::plan;
    use super::*;
    use control::verbs::{Answer, Verb, answer};

    #[test]
    fn what_is_advised_is_not_refused() {
        let verbs = [
            ("abort", Verb::Abort),
            ("verify", Verb::Verify),
            ("cutover", Verb::Cutover),
            ("revert", Verb::Revert),
            ("complete", Verb::Complete),
        ];
        for (kind, has_way_back) in [
            (Kind::Restructure, true),
            (Kind::Restructure, false),
            (Kind::Split, true),
            (Kind::InPlace, true),
            (Kind::Purge, false),
        ] {
            let plan = plan(kind, has_way_back);
            let is_there = |phase: &Phase| {
                *phase != Phase::None
                    && (kind != Kind::Purge
                        || !(Phase::CuttingOver..=Phase::Reverted).contains(phase))
            };
            for phase in Phase::ALL.into_iter().filter(is_there) {
                let advice = after_loss("shop", Some(&plan), phase);
                for (word, verb) in verbs {
                    if !advice.contains(&format!("`weir migrate {word} shop")) {
                        continue;
                    }
                    let answer = answer("shop", kind, verb, phase);
                    assert!(!matches!(answer, Answer::Refused(_)), "{kind:?} {phase:?}: {advice}");
                }
            }
        }
        // There is nothing to bring back where nothing flows back.
        let for_good = plan(Kind::Restructure, false);
        assert!(!after_loss("shop", Some(&for_good), Phase::CutOver).contains("verify"));
    }
}
