//! The plan of the rounds in which nodes come and go: which events happen, in which order.
//!
//! The events are faults of `faults`: nodes join and leave the ring, lose their disks, are killed or cut off.
//! The plan keeps the ring between three nodes and the maximum. It does not choose the nodes.

use storage::disk::SplitMix64;

use super::cluster::PLACES;
use super::faults::Fault;

/// The number of arcs of the ring. A table has four partitions, so each arc has one of them.
pub const ARCS: usize = 4;
/// The minimum number of nodes of a ring.
const NODES_MIN: usize = 3;
/// The maximum number of nodes at the start of a round. In a round that starts with more than three nodes, each node
/// has only some of the arcs.
const FOUNDERS_MAX: usize = 5;
/// The events of a round, before they are shuffled. After each of them replicas move for some seconds, so a round
/// has few, and its history is short enough for the checkers to search.
const EVENTS: [Fault; 8] = [
    Fault::Join,
    Fault::Join,
    Fault::Leave,
    Fault::Leave,
    Fault::Wipe,
    Fault::Wipe,
    Fault::KillOne,
    Fault::CutOff,
];

/// Returns rounds with `count` events in total: for each round the number of nodes at its start, and its events.
pub fn plan(count: usize, random: &mut SplitMix64) -> Vec<(usize, Vec<Fault>)> {
    let sizes = (0..count).step_by(EVENTS.len()).map(|begun| (count - begun).min(EVENTS.len()));
    let round = |size| {
        let founders = NODES_MIN + random.up_to(FOUNDERS_MAX - NODES_MIN);
        (founders, events(founders, size, random))
    };
    sizes.map(round).collect()
}

/// Returns the events of a round that starts with this number of nodes.
fn events(founders: usize, size: usize, random: &mut SplitMix64) -> Vec<Fault> {
    let mut events = EVENTS;
    for place in (1..events.len()).rev() {
        events.swap(place, random.up_to(place));
    }
    let mut nodes = founders;
    let possible = |event: Fault| match event {
        Fault::Leave if nodes > NODES_MIN => {
            nodes -= 1;
            Fault::Leave
        }
        Fault::Join | Fault::Leave if nodes < PLACES => {
            nodes += 1;
            Fault::Join
        }
        Fault::Join => {
            nodes -= 1;
            Fault::Leave
        }
        other => other,
    };
    events.into_iter().take(size).map(possible).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_all_events_and_keeps_three_nodes() {
        let rounds = plan(204, &mut SplitMix64::new(1));
        assert_eq!(rounds.iter().map(|(_, events)| events.len()).sum::<usize>(), 204);
        assert_eq!(rounds.len(), 26);
        let mut ends = [0; PLACES + 1];
        for (founders, events) in &rounds {
            assert!((NODES_MIN..=FOUNDERS_MAX).contains(founders));
            let mut nodes = *founders;
            for event in events {
                match event {
                    Fault::Join => nodes += 1,
                    Fault::Leave => nodes -= 1,
                    _ => {}
                }
                assert!((NODES_MIN..=PLACES).contains(&nodes), "{founders} {events:?}");
                ends[nodes] += 1;
            }
        }
        assert!(ends[NODES_MIN..].iter().all(|seen| *seen > 0), "{ends:?}");
        assert!(plan(0, &mut SplitMix64::new(1)).is_empty());
    }
}
