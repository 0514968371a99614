//! Checks that each arc has its full number of replicas, each on another member of the ring, and that no other
//! node keeps a replica.

use std::collections::BTreeSet;

/// The nodes of a ring, and the replicas of its arcs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The nodes that belong to the ring and do not leave it.
    pub members: BTreeSet<usize>,
    /// For each arc, the nodes that the ring names.
    pub targets: Vec<Vec<usize>>,
    /// For each arc, the nodes that run a replica.
    pub replicas: Vec<BTreeSet<usize>>,
}

/// Compares a placement with the rules of the ring. `wanted` is the number of replicas of an arc, if there are
/// enough nodes.
#[must_use]
pub fn check(placement: &Placement, wanted: usize) -> Vec<String> {
    let Placement { members, targets, replicas } = placement;
    let mut wrong = Vec::new();
    for (arc, target) in targets.iter().enumerate() {
        let distinct: BTreeSet<usize> = target.iter().copied().collect();
        if target.len() != members.len().min(wanted) || distinct.len() != target.len() {
            wrong.push(format!("arc {arc}: the ring places it on {target:?}, of {members:?}"));
        }
        if !distinct.is_subset(members) {
            wrong.push(format!("arc {arc}: the ring places it on {target:?}, outside {members:?}"));
        }
        let running = replicas.get(arc).cloned().unwrap_or_default();
        if running != distinct {
            wrong.push(format!("arc {arc}: replicas run on {running:?} instead of {distinct:?}"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    type Plant = dyn Fn(&mut Placement);

    fn placement() -> Placement {
        let targets = vec![vec![1, 2, 3], vec![2, 4, 1]];
        let replicas = targets.iter().map(|target| target.iter().copied().collect()).collect();
        Placement { members: [1, 2, 3, 4].into(), targets, replicas }
    }

    fn complaints(plant: impl Fn(&mut Placement)) -> Vec<String> {
        let mut planted = placement();
        plant(&mut planted);
        check(&planted, 3)
    }

    #[test]
    fn a_full_placement_is_accepted() {
        assert_eq!(complaints(|_| {}), Vec::<String>::new());
        let two = Placement {
            members: [1, 2].into(),
            targets: vec![vec![1, 2]],
            replicas: vec![[1, 2].into()],
        };
        assert_eq!(check(&two, 3), Vec::<String>::new());
    }

    #[test]
    fn wrong_placements_are_named() {
        let few = |planted: &mut Placement| {
            planted.targets[1].pop();
            planted.replicas[1].remove(&1);
        };
        let twice = |planted: &mut Placement| {
            planted.targets[1] = vec![2, 4, 4];
            planted.replicas[1].remove(&1);
        };
        let outside = |planted: &mut Placement| assert!(planted.members.remove(&2));
        let kept = |planted: &mut Placement| assert!(planted.replicas[0].insert(4));
        let missing = |planted: &mut Placement| assert!(planted.replicas[0].remove(&3));
        let cases: [(&Plant, &str); 5] = [
            (&few, "arc 1: the ring places it on [2, 4], of"),
            (&twice, "arc 1: the ring places it on [2, 4, 4], of"),
            (&outside, "arc 0: the ring places it on [1, 2, 3], outside"),
            (&kept, "arc 0: replicas run on {1, 2, 3, 4} instead of"),
            (&missing, "arc 0: replicas run on {1, 2} instead of"),
        ];
        for (plant, expected) in cases {
            let found = complaints(plant);
            assert!(found[0].starts_with(expected), "{expected}: {found:?}");
        }
    }
}
