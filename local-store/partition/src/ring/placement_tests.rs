//! Tests of the placement: random joins and leaves move few replicas and keep the balance.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::ring::placement::{place, place_first};
use crate::ring::{REPLICAS, Slot};
use crate::table::placement::ARCS_MAX;

/// The number of nodes in the random sequences.
const NODES: std::ops::RangeInclusive<usize> = 3..=12;
/// The highest slot in the random sequences. It exceeds the number of nodes, so slots stay unused.
const SLOT_MAX: u8 = 16;

pub(crate) fn slot(number: u8) -> Slot {
    Slot::new(number).unwrap()
}

pub(crate) fn slots(numbers: impl IntoIterator<Item = u8>) -> BTreeSet<Slot> {
    numbers.into_iter().map(slot).collect()
}

fn numbers(replicas: &[Vec<Slot>]) -> Vec<Vec<u8>> {
    let of_arc = |arc: &Vec<Slot>| arc.iter().map(|slot| slot.number()).collect();
    replicas.iter().map(of_arc).collect()
}

/// Returns how often each node occurs, also the nodes that do not.
fn count<'s>(
    found: impl Iterator<Item = &'s Slot>,
    nodes: &BTreeSet<Slot>,
) -> BTreeMap<Slot, usize> {
    let mut counts: BTreeMap<Slot, usize> = nodes.iter().map(|slot| (*slot, 0)).collect();
    found.for_each(|slot| *counts.entry(*slot).or_default() += 1);
    counts
}

/// Returns the largest distance of a count from the mean, and the mean.
fn imbalance(counts: &BTreeMap<Slot, usize>) -> (f64, f64) {
    let total: usize = counts.values().sum();
    let mean = total as f64 / counts.len() as f64;
    let distances = counts.values().map(|count| (*count as f64 - mean).abs());
    (distances.fold(0.0, f64::max), mean)
}

/// Checks that the distance of each count from the mean is at most 15 % of the mean, or 1.
fn check_balance(counts: &BTreeMap<Slot, usize>) -> Result<(), TestCaseError> {
    let (distance, mean) = imbalance(counts);
    prop_assert!(distance <= (0.15 * mean).max(1.0), "{distance} from {mean}: {counts:?}");
    Ok(())
}

/// Returns the number of replicas that the second placement has and the first one has not.
fn moves(before: &[Vec<Slot>], after: &[Vec<Slot>]) -> usize {
    let of_arc = |(before, after): (&Vec<Slot>, &Vec<Slot>)| {
        after.iter().filter(|slot| !before.contains(slot)).count()
    };
    before.iter().zip(after).map(of_arc).sum()
}

/// Returns the nodes of the first three to twelve slots, and the changes: the slot of a node that
/// joins if it is absent, and leaves if it is present.
fn sequences() -> impl Strategy<Value = (u8, Vec<u8>)> {
    (3..=12_u8, prop::collection::vec(1..=SLOT_MAX, 1..40))
}

/// Replays joins and leaves. Calls `check` with the placements before and after each, and with the
/// slot that changed.
fn replay(
    arcs: u32,
    first: u8,
    changes: &[u8],
    check: &mut dyn FnMut(&Step<'_>) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let mut nodes = slots(1..=first);
    let mut placement = place_first(arcs, &nodes);
    for changed in changes.iter().map(|number| slot(*number)) {
        let joins = !nodes.remove(&changed);
        if joins {
            nodes.insert(changed);
        }
        if !NODES.contains(&nodes.len()) {
            // The change is impossible, so it is reverted.
            if joins {
                nodes.remove(&changed)
            } else {
                nodes.insert(changed)
            };
            continue;
        }
        let after = place(&placement, &nodes);
        check(&Step { before: &placement, after: &after, nodes: &nodes, changed, joins })?;
        placement = after;
    }
    Ok(())
}

struct Step<'s> {
    before: &'s [Vec<Slot>],
    after: &'s [Vec<Slot>],
    nodes: &'s BTreeSet<Slot>,
    changed: Slot,
    joins: bool,
}

impl Step<'_> {
    /// Returns the minimum number of replicas to move: those of the node that leaves, or the fair
    /// share of each node without an arc.
    fn moves_min(&self) -> usize {
        let count = |slot: &Slot| self.before.iter().filter(|arc| arc.contains(slot)).count();
        let idle = self.nodes.iter().filter(|slot| count(slot) == 0).count();
        let shares = idle * (self.after.len() * REPLICAS / self.nodes.len());
        shares.max(if self.joins { 0 } else { count(&self.changed) })
    }

    /// Returns the minimum number of preferred leaders that any placement has to change.
    fn changes_min(&self) -> usize {
        if self.joins {
            return self.after.len() / self.nodes.len();
        }
        self.before.iter().filter(|arc| arc.first() == Some(&self.changed)).count()
    }

    fn leader_changes(&self) -> usize {
        self.before
            .iter()
            .zip(self.after)
            .filter(|(one, other)| one.first() != other.first())
            .count()
    }

    fn loads(&self) -> BTreeMap<Slot, usize> {
        count(self.after.iter().flatten(), self.nodes)
    }

    fn leaders(&self) -> BTreeMap<Slot, usize> {
        count(self.after.iter().filter_map(|arc| arc.first()), self.nodes)
    }

    fn check(&self) -> Result<(), TestCaseError> {
        for arc in self.after {
            let distinct: BTreeSet<Slot> = arc.iter().copied().collect();
            prop_assert_eq!(arc.len(), REPLICAS);
            prop_assert_eq!(distinct.len(), REPLICAS, "{:?}", arc);
            prop_assert!(distinct.is_subset(self.nodes), "{:?}", arc);
        }
        prop_assert_eq!(place(self.after, self.nodes), self.after, "a repetition has an effect");
        let (moves, least) = (moves(self.before, self.after), self.moves_min());
        prop_assert!(moves * 10 <= least * 11, "{moves} moves instead of {least}");
        let (changes, least) = (self.leader_changes(), self.changes_min());
        prop_assert!(changes <= least + least / 2 + 5, "{changes} leaders instead of {least}");
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn many_arcs_are_balanced(
        (first, changes) in sequences(), arcs in 8 * 12..=ARCS_MAX,
    ) {
        replay(arcs, first, &changes, &mut |step| {
            step.check()?;
            check_balance(&step.loads())?;
            check_balance(&step.leaders())
        })?;
    }

    #[test]
    fn few_arcs_move_little((first, changes) in sequences(), arcs in 1..8 * 12_u32) {
        replay(arcs, first, &changes, &mut |step| {
            step.check()?;
            if arcs as usize >= 8 * step.nodes.len() {
                check_balance(&step.loads())?;
            }
            check_balance(&step.leaders())
        })?;
    }
}

/// Goal: a node that joins and leaves again leads back to a balanced placement.
#[test]
fn a_visitor_leaves_a_balanced_placement() {
    for arcs in [24, 96, 128] {
        let (few, more) = (slots(1..=3), slots(1..=4));
        let placement = place_first(arcs, &few);
        let visited = place(&placement, &more);
        let left = place(&visited, &few);
        let held = arcs as usize * REPLICAS / 4;
        assert_eq!((moves(&placement, &visited), moves(&visited, &left)), (held, held));
        let loads = count(left.iter().flatten(), &few);
        assert!(loads.values().all(|load| *load == arcs as usize), "{loads:?}");
        check_balance(&count(left.iter().filter_map(|arc| arc.first()), &few)).unwrap();
    }
}

/// Goal: the number of replicas follows the number of nodes up to three.
#[test]
fn few_nodes_have_every_arc() {
    let mut placement = place_first(4, &slots([1]));
    for (nodes, moved) in [(2, 4), (3, 4), (2, 0), (1, 0)] {
        let after = place(&placement, &slots(1..=nodes));
        assert!(after.iter().all(|arc| slots(1..=nodes) == arc.iter().copied().collect()));
        assert_eq!(moves(&placement, &after), moved);
        check_balance(&count(after.iter().filter_map(|arc| arc.first()), &slots(1..=nodes)))
            .unwrap();
        placement = after;
    }
    assert_eq!(place(&placement, &BTreeSet::new()), vec![Vec::new(); 4]);
    assert_eq!(place(&[], &slots(1..=3)), Vec::<Vec<Slot>>::new());
}

/// Goal: the work to apply a change is bounded, also with the most nodes and arcs.
#[test]
fn the_largest_ring_changes() {
    let mut nodes = slots(1..=254);
    let placement = place_first(ARCS_MAX, &nodes);
    nodes.insert(slot(255));
    let placement = place(&placement, &nodes);
    check_balance(&count(placement.iter().flatten(), &nodes)).unwrap();
    let few = slots(1..=128);
    check_balance(&count(place(&placement, &few).iter().flatten(), &few)).unwrap();
}

/// Goal: the first placement is that of the crate `node` before rings could change.
#[test]
fn the_first_placement_is_cyclic() {
    let first = |arcs, nodes| numbers(&place_first(arcs, &slots(1..=nodes)));
    assert_eq!(first(1, 4), [[1, 2, 3]]);
    assert_eq!(first(3, 4), [[1, 2, 3], [2, 3, 4], [3, 4, 1]]);
    assert_eq!(first(2, 1), [[1], [1]]);
    assert_eq!(first(2, 2), [[1, 2], [2, 1]]);
    assert_eq!(numbers(&place_first(2, &slots([7, 9, 200]))), [[7, 9, 200], [9, 200, 7]]);
    assert_eq!(place_first(2, &BTreeSet::new()), [[], []]);
}
