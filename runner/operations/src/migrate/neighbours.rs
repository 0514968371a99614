//! Other migrations of the same tables that are under way.
//!
//! Several may read one table, and several may write one, each its own keys. But the mark of a target
//! item names its source item and not its migration: of two that move the same items into the same
//! table, the end of one would take off the marks that the other one needs. And of two that change the
//! items of a table where they stand, each could undo what the other one does, for ever.
//!
//! So the entry of active migrations, of which there is one, says of each migration from which table into which it
//! moves items, from the write that begins it to the write that ends it. Two that begin at the same
//! time cannot both write that.

use std::collections::BTreeSet;

use control::Active;
use rules::migration::plan::{Kind, Plan};

use super::Context;
use super::failure::{Failure, Result};

/// Between two tables; no table has it in its name.
const INTO: char = '>';

/// Another migration under way that moves items of the same table into the same table, in words.
///
/// # Errors
/// When the control table cannot be read.
pub(super) async fn in_the_way(context: &Context, plan: &Plan) -> Result<Option<String>> {
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
        // Whoever begins it just now has not written its plan, but what it moves.
        let Ok((other, _)) = context.plan(&name).await else { continue };
        let Some(way) = moves(plan).intersection(&moves(&other)).next().cloned() else { continue };
        return Ok(Some(match ended.contains(&name) {
            true => format!(
                "`{name}` has ended and is still followed; `weir migrate status {name}` says how to end that"
            ),
            false => told(&name, &way),
        }));
    }
    Ok(None)
}

/// Notes in the active migrations what a plan moves, unless another one is in its way. Returns whether
/// it was not noted before.
///
/// # Errors
/// Which one is in its way.
pub(super) fn enter(active: &mut Active, plan: &Plan) -> Result<bool> {
    if let Some(why) = refused_by(active, plan) {
        return Err(Failure::Refused(why));
    }
    // Who begins another plan by the same name is refused later, and moves nothing.
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

/// That a migration is in the way of another one, and why.
fn told(name: &str, way: &str) -> String {
    let (source, target) = way.split_once(INTO).unwrap_or((way, way));
    if source == target {
        return format!(
            "`{name}` is under way and changes items of `{source}` where they stand as well; end it first, as two that do not agree would change an item for ever"
        );
    }
    format!(
        "`{name}` is under way and moves items of `{source}` into `{target}` as well; end it first, as the end of one would take off the marks of both"
    )
}

/// From which table into which a plan moves items; what it changes where it stands it moves into the
/// same one. Two that only remove items agree about each.
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
        let changes = moving(Kind::InPlace, &[("orders", "orders"), ("shop", "shop")]);
        for (first, kind, moves, expected) in [
            (&one, Kind::Restructure, &[("orders", "shop")][..], "`orders` into `shop`"),
            (&one, Kind::Split, &[("a", "b"), ("lines", "details")], "`lines` into `details`"),
            // One source into another target, another source into the same one.
            (&one, Kind::Restructure, &[("orders", "details"), ("customers", "shop")], ""),
            (&one, Kind::InPlace, &[("orders", "orders")], ""),
            (&changes, Kind::InPlace, &[("shop", "shop")], "items of `shop` where they stand"),
            (&changes, Kind::InPlace, &[("lines", "lines")], ""),
            (&changes, Kind::Purge, &[("orders", "orders")], ""),
        ] {
            let mut active = Active::default();
            assert_eq!(enter(&mut active, first), Ok(true));
            let same_name = moving(Kind::Restructure, &[("a", "b")]);
            for own in [first, &same_name] {
                assert_eq!(enter(&mut active, own), Ok(false), "its own is not in its way");
            }
            let other = Plan { migration: "other".into(), ..moving(kind, moves) };
            let refused = enter(&mut active, &other).err().map(String::from).unwrap_or_default();
            let is_as_expected =
                refused.contains(expected) && refused.is_empty() == expected.is_empty();
            assert!(is_as_expected, "{moves:?}: {refused}");
            // What has ended is in nobody's way.
            assert!(active.remove(&first.migration));
            assert!(!active.remove(&first.migration));
            assert!(enter(&mut active, &other).is_ok());
        }
    }
}
