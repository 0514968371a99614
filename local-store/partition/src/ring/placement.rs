//! The placement: the nodes that shall hold each arc.
//!
//! A placement is a table that changes as little as possible when a node joins or leaves: see
//! `docs/decisions/0014-placement.md`. The functions are pure. They do not know which replicas
//! already exist, and in which order data moves.

use std::collections::BTreeSet;

use crate::mutation::{self, Mutation};
use crate::ring::exchange::Exchange;
use crate::ring::{REPLICAS, Slot};

/// Returns the placement of a new ring: arc *i* is on the *i*-th node in the order of the slots,
/// and on the nodes after it, cyclically.
#[must_use]
pub fn place_first(arcs: u32, nodes: &BTreeSet<Slot>) -> Vec<Vec<Slot>> {
    let of_arc = |arc: usize| {
        let first = arc % nodes.len().max(1);
        nodes.iter().cycle().skip(first).take(nodes.len().min(REPLICAS)).copied().collect()
    };
    (0..usize::try_from(arcs).unwrap_or(0)).map(of_arc).collect()
}

/// Returns the placement on the given nodes that follows from the current one. Each arc is on
/// [`REPLICAS`] nodes, or on all nodes if they are fewer. The first one is the preferred leader.
///
/// Replaces the nodes that are gone and gives each new node its share. For the sake of balance,
/// moves at most one further replica per ten. The preferred leaders are balanced too, with as few
/// changes as possible.
#[must_use]
pub fn place(current: &[Vec<Slot>], nodes: &BTreeSet<Slot>) -> Vec<Vec<Slot>> {
    let replicas = move_replicas(current, nodes);
    choose_leaders(current, &replicas, nodes)
}

/// Returns the nodes of each arc: first the current ones that remain, then the new ones.
fn move_replicas(current: &[Vec<Slot>], nodes: &BTreeSet<Slot>) -> Vec<Vec<Slot>> {
    let wanted = nodes.len().min(REPLICAS);
    let mut exchange = Exchange::new(nodes);
    for replicas in current {
        exchange.add_arc(replicas, nodes, wanted);
    }
    let holders: BTreeSet<Slot> = current.iter().flatten().copied().collect();
    let newcomers = nodes.difference(&holders).count();
    let needed = exchange.vacancies().max(newcomers * exchange.fair_share());
    exchange.settle(needed + needed / 10);
    let in_order = |(replicas, found): (&Vec<Slot>, BTreeSet<Slot>)| {
        let kept = replicas.iter().filter(|slot| found.contains(slot)).copied();
        let is_new =
            |slot: &&Slot| !replicas.contains(slot) && !mutation::is_active(Mutation::LosePlace);
        let fresh = found.iter().filter(is_new).copied();
        kept.chain(fresh).collect()
    };
    current.iter().zip(exchange.holders()).map(in_order).collect()
}

/// Puts the preferred leader of each arc first.
fn choose_leaders(
    current: &[Vec<Slot>],
    replicas: &[Vec<Slot>],
    nodes: &BTreeSet<Slot>,
) -> Vec<Vec<Slot>> {
    let mut exchange = Exchange::new(nodes);
    for (before, now) in current.iter().zip(replicas) {
        let candidates = now.iter().copied().collect();
        exchange.add_arc(before.get(..1).unwrap_or_default(), &candidates, now.len().min(1));
    }
    exchange.settle(usize::MAX);
    let leader_first = |(replicas, leader): (&Vec<Slot>, BTreeSet<Slot>)| {
        let others = replicas.iter().filter(|slot| !leader.contains(slot));
        leader.iter().chain(others).copied().collect()
    };
    replicas.iter().zip(exchange.holders()).map(leader_first).collect()
}
