//! Check whether a store can continue without a damaged node, so that the node can be set aside and
//! rebuilt.
//!
//! Until it is set aside, the damaged node votes and keeps its log. Two damaged nodes are rebuilt
//! one after the other, so that no acknowledged write is lost. A leader with an undamaged disk has
//! every acknowledged write, and the other nodes can be rebuilt from it.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::ring::ArcId;
use crate::status::{Role, Status};
use crate::types::{NodeId, slot_of};

/// The condition that must be met before a damaged node can be set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InsufficientRedundancy {
    /// The damaged node has no replicas.
    #[error("the node has no replicas")]
    NoReplicas,
    /// The node in this slot must be rebuilt first.
    #[error("node {0} has failed, or is damaged and must be rebuilt first")]
    OtherFirst(u64),
    /// No other node can be the source of this arc's data.
    #[error("{0} has no leader on another node with an undamaged disk")]
    NoLeader(ArcId),
    /// Not all nodes are voters of this arc's group.
    #[error("a membership change of {0} is in progress, or a node is unreachable")]
    NotAllVoters(ArcId),
}

/// Checks whether a damaged node can be set aside, by comparing its replicas with the replicas of
/// all other nodes. Each arc of the node must be led by another node with an undamaged disk and the newest
/// term, and all nodes with a replica must be voters of that leader. If several nodes are damaged, a node that no
/// longer votes is set aside first; otherwise the node in the lowest slot.
///
/// # Errors
/// The unmet condition, which must be met before the node can be set aside.
pub fn check_redundancy(own: &[Status], others: &[Status]) -> Result<(), InsufficientRedundancy> {
    let id = own.first().ok_or(InsufficientRedundancy::NoReplicas)?.node;
    let votes = !own.iter().any(|status| status.role == Role::Stopped);
    let goes_first = |status: &&Status| {
        let is_lower = slot_of(status.node) < slot_of(id);
        status.role == Role::Stopped || (votes && status.is_damaged && is_lower)
    };
    if let Some(status) = others.iter().find(goes_first) {
        return Err(InsufficientRedundancy::OtherFirst(slot_of(status.node)));
    }
    for arc in own.iter().map(|status| status.arc) {
        let of_arc = || others.iter().filter(|status| status.arc == arc);
        let known = own.iter().filter(|status| status.arc == arc).chain(of_arc());
        let newest = known.map(|status| status.term).max();
        // A leader that is cut off by a network partition may believe that it leads, but lack later
        // writes.
        let leads = |status: &&Status| {
            status.role == Role::Leader && !status.is_damaged && Some(status.term) == newest
        };
        let Some(leader) = of_arc().find(leads) else {
            return Err(InsufficientRedundancy::NoLeader(arc));
        };
        let members: BTreeSet<NodeId> = of_arc().map(|status| status.node).chain([id]).collect();
        let voters: BTreeSet<NodeId> = leader.voters.iter().copied().collect();
        // An earlier attempt may have left a new identity of this node as a learner. This learner
        // is no obstacle, because the next membership change removes it.
        let mut learners = leader.learners.iter().map(|learner| slot_of(*learner));
        if voters != members || learners.any(|slot| slot != slot_of(id)) {
            return Err(InsufficientRedundancy::NotAllVoters(arc));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change that a test makes to the other nodes' replicas.
    type Spoil = fn(&mut Vec<Status>);

    fn status(node: NodeId, arc: u32, role: Role) -> Status {
        let mut status = Status::of_nothing(node, ArcId(arc));
        status.role = role;
        status.voters = vec![1, 2, 3];
        status
    }

    /// Returns the replicas of a damaged follower.
    fn damaged(node: NodeId) -> Vec<Status> {
        let of_arc = |arc| Status { is_damaged: true, ..status(node, arc, Role::Follower) };
        vec![of_arc(0), of_arc(1)]
    }

    /// Returns the replicas of node 2, which leads both arcs, and of node 3, a follower. Node 1 is
    /// damaged.
    fn others() -> Vec<Status> {
        let of_arc = |arc| [status(2, arc, Role::Leader), status(3, arc, Role::Follower)];
        [of_arc(0), of_arc(1)].concat()
    }

    #[test]
    fn a_node_is_set_aside_only_if_the_others_can_rebuild_it() {
        assert_eq!(check_redundancy(&damaged(1), &others()), Ok(()));
        assert!(check_redundancy(&[], &others()).is_err());
        let mut own = damaged(1);
        (own[0].role, own[0].term) = (Role::Leader, 1);
        assert!(
            check_redundancy(&own, &others()).is_err(),
            "the damaged node leads the first arc now"
        );
        let refused: [(&str, Spoil); 9] = [
            ("another node may lead since", |all| all[1].term = 1),
            ("the leader is damaged", |all| all[2].is_damaged = true),
            ("no node leads", |all| all[2].role = Role::Follower),
            ("another node has stopped", |all| all[1].role = Role::Stopped),
            ("another node is unreachable", |all| all.retain(|status| status.node != 3)),
            ("an arc has no replica", |all| all.truncate(2)),
            ("a vote is missing", |all| all[0].voters.truncate(2)),
            ("another node is being rebuilt", |all| {
                all[0].learners.push(super::super::node_id(3, 1));
            }),
            ("the node is no member", |all| all[0].voters[0] = super::super::node_id(1, 1)),
        ];
        for (what, spoil) in refused {
            let mut all = others();
            spoil(&mut all);
            assert!(check_redundancy(&damaged(1), &all).is_err(), "{what}");
        }
    }

    #[test]
    fn of_two_damaged_nodes_the_lowest_slot_goes_first() {
        let mut all = others();
        for status in all.iter_mut().filter(|status| status.node == 3) {
            status.is_damaged = true;
        }
        assert_eq!(check_redundancy(&damaged(1), &all), Ok(()), "node 2 is undamaged and leads");
        let mut all = others();
        for status in &mut all {
            status.node = if status.node == 2 { 2 } else { 1 };
            status.is_damaged = status.node == 1;
        }
        assert!(
            check_redundancy(&damaged(3), &all).is_err(),
            "node 1 is also damaged and has the lower slot"
        );
        let mut own = damaged(3);
        own[1].role = Role::Stopped;
        assert_eq!(check_redundancy(&own, &all), Ok(()), "node 1 votes, but node 3 does not");
    }
}
