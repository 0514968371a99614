//! Detects running migrations that conflict with a plan.
//!
//! Several migrations may read the same table, and may write the same table if their keys differ.
//! Three cases conflict. First, two migrations move the same items into the same table: the end of
//! one migration removes marks that the second still requires, because a mark names the source item
//! and not the migration. Second, two migrations change the items of a table in place: each could
//! undo the changes of the other migration forever. Third, a purge of a target would remove items
//! that a migration copies.
//!
//! To detect conflicts, the control table has a single entry of active migrations. For each
//! migration, from its first write to its last, the entry has the pairs of tables between which
//! items move. Two migrations that start at the same time cannot both write this entry.

use std::collections::BTreeSet;

use control::Active;
use rules::migration::plan::{Kind, Plan};

use crate::migrate::context::Context;
use crate::migrate::failure::{Failure, Result};

/// The separator of the two tables of a pair. Table names cannot contain this character.
const INTO: char = '>';

/// Returns a description of a conflicting migration; `None` if there is none.
///
/// # Errors
/// When the control table cannot be read.
pub(crate) async fn in_the_way(context: &Context, plan: &Plan) -> Result<Option<String>> {
    let active = context.control.active().await?;
    if let Some(why) = refused_by(&active, plan) {
        return Ok(Some(why));
    }
    let mut names: BTreeSet<String> = active.active.into_keys().collect();
    let mut ended = BTreeSet::new();
    for state in context.control.states().await? {
        let names = if state.phase.has_ended() { &mut ended } else { &mut names };
        names.insert(state.migration);
    }
    names.remove(&plan.migration);
    for name in names {
        // A migration that is just starting may have written its pairs of tables, but not its plan.
        let Ok((other, _)) = context.plan(&name).await else { continue };
        if let Some(table) = purged_target(&other, plan).filter(|_| !ended.contains(&name)) {
            return Ok(Some(format!(
                "the running purge `{name}` removes items of `{table}`, a target of this plan; complete or abort it first"
            )));
        }
        let Some(way) = moves(plan).intersection(&moves(&other)).next().cloned() else { continue };
        return Ok(Some(match ended.contains(&name) {
            true => format!(
                "`{name}` has ended, but functions still follow it; `weir migrate status {name}` shows how to stop that"
            ),
            false => told(&name, &way),
        }));
    }
    Ok(None)
}

/// Adds a plan's pairs of tables to the active migrations. Returns true if the pairs are new.
///
/// # Errors
/// When another migration conflicts with the plan; the message names that migration.
pub(crate) fn enter(active: &mut Active, plan: &Plan) -> Result<bool> {
    if let Some(why) = refused_by(active, plan) {
        return Err(Failure::Refused(why));
    }
    // A different plan with the same migration name is refused later, before the migration moves
    // any item.
    let is_noted = active.moves.contains_key(&plan.migration);
    if !is_noted {
        active.moves.insert(plan.migration.clone(), moves(plan));
    }
    Ok(!is_noted)
}

fn refused_by(active: &Active, plan: &Plan) -> Option<String> {
    let own = moves(plan);
    let mut others = active.moves.iter().filter(|(name, _)| **name != plan.migration);
    others.find_map(|(name, ways)| Some(told(name, ways.intersection(&own).next()?)))
}

/// Describes a conflict with the migration `name`.
fn told(name: &str, way: &str) -> String {
    let (source, target) = way.split_once(INTO).unwrap_or((way, way));
    if source == target {
        return format!(
            "the running migration `{name}` also changes items of `{source}` in place; end that migration first, because each of the two could undo the other's changes forever"
        );
    }
    format!(
        "the running migration `{name}` also moves items of `{source}` into `{target}`; end that migration first, because the end of one migration would remove the marks of both"
    )
}

/// Returns a target of `plan` from which `purge` removes items; `None` if there is none, or `purge`
/// is another kind of plan.
fn purged_target(purge: &Plan, plan: &Plan) -> Option<String> {
    if purge.kind != Kind::Purge || plan.kind.is_in_place() {
        return None;
    }
    let mut targets = plan.from.iter().flat_map(|source| &source.items).map(|item| &item.to);
    targets.find(|table| purge.from.iter().any(|source| source.table == **table)).cloned()
}

/// Returns the pairs of tables between which a plan moves items. An in-place change has pairs of
/// the same table. A purge has no pair, because two purges never undo each other's changes.
fn moves(plan: &Plan) -> BTreeSet<String> {
    let way = |source: &str, target: &str| format!("{source}{INTO}{target}");
    let sources = plan.from.iter();
    match plan.kind {
        Kind::Restructure | Kind::Split => sources
            .flat_map(|source| source.items.iter().map(|item| way(&source.table, &item.to)))
            .collect(),
        Kind::InPlace => sources.map(|source| way(&source.table, &source.table)).collect(),
        Kind::Purge => BTreeSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use rules::migration::plan::{Output, Source};

    use super::*;
    use crate::migrate::report::next_steps::tests::plan;

    fn moving(kind: Kind, moves: &[(&str, &str)]) -> Plan {
        let from = moves.iter().map(|(table, to)| {
            let output = Output { to: (*to).to_owned(), transform: ".".to_owned(), key: [].into() };
            Source { table: (*table).to_owned(), items: vec![output], split: None, archive: false }
        });
        Plan { from: from.collect(), ..plan(kind, false) }
    }

    #[test]
    fn a_purge_of_a_target_is_in_the_way() {
        let purge = moving(Kind::Purge, &[("shop", "shop"), ("lines", "lines")]);
        for (kind, moves, expected) in [
            (Kind::Restructure, &[("orders", "details"), ("orders", "shop")][..], Some("shop")),
            (Kind::Split, &[("orders", "lines")], Some("lines")),
            // Functions apply the removals of a purge of a source to the target like any other
            // deletes.
            (Kind::Restructure, &[("shop", "details")], None),
            (Kind::InPlace, &[("shop", "shop")], None),
            (Kind::Purge, &[("shop", "shop")], None),
        ] {
            let plan = moving(kind, moves);
            assert_eq!(purged_target(&purge, &plan).as_deref(), expected, "{kind:?} {moves:?}");
        }
        let other = moving(Kind::Restructure, &[("shop", "shop")]);
        assert_eq!(purged_target(&other, &moving(Kind::Restructure, &[("a", "shop")])), None);
    }

    #[test]
    fn only_the_same_way_is_shared() {
        let one = moving(Kind::Restructure, &[("orders", "shop"), ("lines", "details")]);
        let changes = moving(Kind::InPlace, &[("orders", "orders"), ("shop", "shop")]);
        for (first, kind, moves, expected) in [
            (&one, Kind::Restructure, &[("orders", "shop")][..], "`orders` into `shop`"),
            (&one, Kind::Split, &[("a", "b"), ("lines", "details")], "`lines` into `details`"),
            // Both migrations write the same target, but from different sources.
            (&one, Kind::Restructure, &[("orders", "details"), ("customers", "shop")], ""),
            (&one, Kind::InPlace, &[("orders", "orders")], ""),
            (&changes, Kind::InPlace, &[("shop", "shop")], "items of `shop` in place"),
            (&changes, Kind::InPlace, &[("lines", "lines")], ""),
            (&changes, Kind::Purge, &[("orders", "orders")], ""),
        ] {
            let mut active = Active::default();
            assert_eq!(enter(&mut active, first), Ok(true));
            let same_name = moving(Kind::Restructure, &[("a", "b")]);
            for own in [first, &same_name] {
                assert_eq!(enter(&mut active, own), Ok(false), "no conflict with itself");
            }
            let other = Plan { migration: "other".into(), ..moving(kind, moves) };
            let refused = enter(&mut active, &other).err().map(String::from).unwrap_or_default();
            let is_as_expected =
                refused.contains(expected) && refused.is_empty() == expected.is_empty();
            assert!(is_as_expected, "{moves:?}: {refused}");
            // A migration that has ended conflicts with no other migration.
            assert!(active.remove(&first.migration));
            assert!(!active.remove(&first.migration));
            assert!(enter(&mut active, &other).is_ok());
        }
    }
}
