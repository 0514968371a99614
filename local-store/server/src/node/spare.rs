//! Whether a store can do without a damaged node, which is to be set aside and filled again.
//!
//! Until then the node still votes and keeps the log, so of two damaged nodes one waits for the other
//! and nothing is lost that was acknowledged. What a leader has that is sound every other node can
//! be filled with.

use std::collections::BTreeSet;

use super::status::{Role, Status};
use super::types::{NodeId, slot_of};
use crate::ring::ArcId;

/// Looks at the replicas of all other nodes: every arc needs a leader among them whose disk is sound,
/// and all nodes as its members. Of several damaged nodes the one in the lowest slot goes first.
///
/// # Errors
/// What has to come first.
pub fn check_spare(own: NodeId, others: &[Status], arcs: u32) -> Result<(), String> {
    let goes_first = |status: &&Status| {
        let (slot, own) = (slot_of(status.node), slot_of(own));
        status.role == Role::Stopped || (status.is_damaged && slot < own)
    };
    if let Some(status) = others.iter().find(goes_first) {
        return Err(format!("node {} does not work, or goes first", slot_of(status.node)));
    }
    for arc in (0..arcs).map(ArcId) {
        let of_arc = || others.iter().filter(|status| status.arc == arc);
        let leads = |status: &&Status| status.role == Role::Leader && !status.is_damaged;
        let Some(leader) = of_arc().find(leads) else {
            return Err(format!("no other node that is sound leads {arc}"));
        };
        let members: BTreeSet<NodeId> = of_arc().map(|status| status.node).chain([own]).collect();
        let voters: BTreeSet<NodeId> = leader.voters.iter().copied().collect();
        // An identity that a try before this one was given goes with the next change.
        let mut learners = leader.learners.iter().map(|learner| slot_of(*learner));
        if voters != members || learners.any(|slot| slot != slot_of(own)) {
            return Err(format!("the members of {arc} are being changed, or a node is away"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(node: NodeId, arc: u32, role: Role) -> Status {
        let mut status = Status::of_nothing(node, ArcId(arc));
        status.role = role;
        status.voters = vec![1, 2, 3];
        status
    }

    /// Node 1 is damaged; node 2 leads both arcs, and node 3 follows.
    fn others() -> Vec<Status> {
        let of_arc = |arc| [status(2, arc, Role::Leader), status(3, arc, Role::Follower)];
        [of_arc(0), of_arc(1)].concat()
    }

    #[test]
    fn a_node_goes_only_when_the_others_can_fill_it_again() {
        assert_eq!(check_spare(1, &others(), 2), Ok(()));
        let refused: [(&str, fn(&mut Vec<Status>)); 8] = [
            ("the leader is damaged", |all| all[2].is_damaged = true),
            ("nobody leads", |all| all[2].role = Role::Follower),
            ("another one has ended", |all| all[1].role = Role::Stopped),
            ("another one is away", |all| all.retain(|status| status.node != 3)),
            ("an arc has no replica", |all| all.truncate(2)),
            ("a vote is missing", |all| all[0].voters.truncate(2)),
            ("another one is filled", |all| all[0].learners.push(super::super::node_id(3, 1))),
            ("it is no member any more", |all| all[0].voters[0] = super::super::node_id(1, 1)),
        ];
        for (what, spoil) in refused {
            let mut all = others();
            spoil(&mut all);
            assert!(check_spare(1, &all, 2).is_err(), "{what}");
        }
    }

    #[test]
    fn of_two_damaged_nodes_the_first_goes_first() {
        let mut all = others();
        for status in all.iter_mut().filter(|status| status.node == 3) {
            status.is_damaged = true;
        }
        assert_eq!(check_spare(1, &all, 2), Ok(()), "node 2 is sound and leads");
        let mut all = others();
        for status in &mut all {
            status.node = if status.node == 2 { 2 } else { 1 };
            status.is_damaged = status.node == 1;
        }
        assert!(check_spare(3, &all, 2).is_err(), "node 1 is damaged, too, and goes first");
    }
}
