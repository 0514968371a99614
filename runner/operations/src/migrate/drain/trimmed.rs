//! Advice for the operator after a stream has trimmed unread records: commands that are allowed in
//! the migration's phase.
//!
//! The event source mapping detects the lost records; this module only formats the advice.

use rules::migration::Phase;
use rules::migration::plan::Plan;

/// Returns the advice after a stream has trimmed records that were not applied. Before the
/// cut-over, the migration can be aborted, because clients do not use the targets yet. After the
/// cut-over, new workers start with the oldest existing records, and a comparison finds the
/// differences.
pub(crate) fn after_loss(name: &str, plan: Option<&Plan>, phase: Phase) -> String {
    let work = format!(
        "`weir migrate work {name} --directory ANOTHER` resumes at the oldest existing record"
    );
    let is_in_place = plan.is_some_and(|plan| plan.kind.is_in_place());
    let has_way_back = plan.is_none_or(|plan| !plan.inverse.is_empty());
    match phase {
        Phase::CutOver if is_in_place => {
            format!("{work}, then `weir migrate complete {name}` compares once more")
        }
        Phase::CutOver if has_way_back => {
            format!(
                "{work}, then `weir migrate verify {name} --repair` repairs the remaining differences"
            )
        }
        Phase::Turning => {
            format!("{work}, then `weir migrate cutover {name}` resumes the cut-over")
        }
        Phase::Reverting | Phase::Returning => {
            format!("{work}, then `weir migrate revert {name}` resumes the revert")
        }
        Phase::Completing => {
            format!("{work}, then `weir migrate complete {name}` resumes the completion")
        }
        Phase::CutOver | Phase::Reverted | Phase::Completed | Phase::Aborted => work,
        Phase::None
        | Phase::Preparing
        | Phase::Copying
        | Phase::Tailing
        | Phase::Ready
        | Phase::CuttingOver => {
            format!(
                "run `weir migrate abort {name}`, then start a new migration under another name"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use rules::migration::plan::Kind;

    use super::*;
    use crate::migrate::report::next_steps::tests::plan;
    use control::verbs::{Verb, VerbDecision, decide_verb};

    #[test]
    fn advised_commands_are_not_refused() {
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
                    let answer = decide_verb("shop", kind, verb, phase);
                    assert!(
                        !matches!(answer, VerbDecision::Refused(_)),
                        "{kind:?} {phase:?}: {advice}"
                    );
                }
            }
        }
        // If no revert is possible, no change has to be copied back.
        let for_good = plan(Kind::Restructure, false);
        assert!(!after_loss("shop", Some(&for_good), Phase::CutOver).contains("verify"));
    }
}
