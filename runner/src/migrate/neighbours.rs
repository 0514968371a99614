//! Other migrations of the same tables that are under way.
//!
//! Several may read one table, and several may write one, each its own keys. But the mark of a target
//! item names its source item and not its migration: of two that move the same items into the same
//! table, the end of one would take off the marks that the other one needs.

use std::collections::BTreeSet;

use rules::migration::Phase;
use rules::migration::plan::Plan;

use super::Context;
use super::control::{phase_of, text};

/// Another migration under way that moves items of the same table into the same table, in words.
///
/// # Errors
/// When the control table cannot be read.
pub(super) async fn in_the_way(context: &Context, plan: &Plan) -> Result<Option<String>, String> {
    for state in context.control.states().await? {
        let Some(name) = text(&state, "migration").filter(|name| *name != plan.migration) else {
            continue;
        };
        let has_ended = matches!(
            phase_of(&state),
            Phase::None | Phase::Reverted | Phase::Completed | Phase::Aborted
        );
        if has_ended {
            continue;
        }
        // Whoever begins it just now may not have written its plan.
        let Ok((other, _)) = context.plan(name).await else { continue };
        if let Some((source, target)) = shared(plan, &other) {
            return Ok(Some(format!(
                "`{name}` is under way and moves items of `{source}` into `{target}` as well; end it first, as the end of one would take off the marks of both"
            )));
        }
    }
    Ok(None)
}

/// Two tables between which both plans move items.
fn shared<'p>(one: &'p Plan, other: &'p Plan) -> Option<(&'p str, &'p str)> {
    moves(one).intersection(&moves(other)).next().copied()
}

/// From which table into which a plan moves items. What is changed where it stands has no marks.
fn moves(plan: &Plan) -> BTreeSet<(&str, &str)> {
    let sources = plan.from.iter().filter(|_| !plan.kind.is_in_place());
    let moves = sources.flat_map(|source| {
        source.items.iter().map(|output| (source.table.as_str(), output.to.as_str()))
    });
    moves.collect()
}

#[cfg(test)]
mod tests {
    use rules::migration::plan::{Kind, Output, Source};

    use super::super::steps::tests::plan;
    use super::*;

    fn moving(kind: Kind, moves: &[(&str, &str)]) -> Plan {
        let from = moves.iter().map(|(table, to)| {
            let output = Output { to: (*to).to_owned(), transform: ".".to_owned(), key: [].into() };
            Source { table: (*table).to_owned(), items: vec![output], split: None, archive: false }
        });
        Plan { from: from.collect(), ..plan(kind, false) }
    }

    #[test]
    fn only_the_same_way_is_shared() {
        let one = moving(Kind::Restructure, &[("orders", "shop"), ("lines", "details")]);
        for (kind, moves, expected) in [
            (Kind::Restructure, &[("orders", "shop")][..], Some(("orders", "shop"))),
            (Kind::Split, &[("a", "b"), ("lines", "details")], Some(("lines", "details"))),
            // One source into another target, another source into the same one.
            (Kind::Restructure, &[("orders", "details"), ("customers", "shop")], None),
            (Kind::InPlace, &[("orders", "shop")], None),
        ] {
            assert_eq!(shared(&one, &moving(kind, moves)), expected);
        }
    }
}
