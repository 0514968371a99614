//! Membership repair: replaces the previous identity of a rebuilt node in every group.
//!
//! The leader of each arc repairs its group. A node with a new identity first receives the state as a
//! learner, and then becomes a voter in place of its previous identity. After a crash, the next leader
//! resumes the repair. Only the leader of the first arc assigns new identities. The leaders of the other
//! arcs get the identities from the nodes.

use std::collections::BTreeSet;
use std::sync::Weak;
use std::time::Duration;

use super::peer_service::PeerService;
use crate::store::cluster::rebuilt_slots;
use node::ring::ArcId;
use node::{Node, NodeId, WeakNode, incarnation_of, slot_of};

/// The interval between two checks of the group's members.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The time-out of a membership change, in which a rebuilt node receives its data and becomes a
/// voter. After a time-out, the next check retries the change.
const CHANGE: Duration = Duration::from_secs(60);

/// Repairs the membership of a group while the node runs.
pub(super) async fn run(node: WeakNode, peer_service: Weak<PeerService>) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let (Some(node), Some(peer_service)) = (node.upgrade(), peer_service.upgrade()) else {
            return;
        };
        let is_first = node.arc() == ArcId::FIRST;
        if !node.leads() || (is_first && node.status().learners.is_empty()) {
            continue;
        }
        // In the first arc, the assignment of a new identity also changes the members. Two membership
        // changes must not overlap.
        let _turn = if is_first { Some(peer_service.begin_change().await) } else { None };
        let Some(members) = find_members(&node, &peer_service).await else { continue };
        let status = node.status();
        let voters: BTreeSet<NodeId> = status.voters.into_iter().collect();
        if status.learners.is_empty() && voters == members {
            continue;
        }
        let nodes = rebuilt_slots(&members, &voters);
        tracing::info!(?nodes, "copying data to rebuilt nodes");
        match tokio::time::timeout(CHANGE, node.change_members(&members)).await {
            Ok(Ok(())) => tracing::info!("all replicas are complete again"),
            Ok(Err(error)) => tracing::warn!(%error, "cannot copy data to a rebuilt node yet"),
            Err(_) => tracing::warn!("a rebuilt node did not receive its data within {CHANGE:?}"),
        }
    }
}

/// Returns the members that the node's group should have: for each slot, the identity that its process
/// reports. Returns `None` if a process is unreachable or has no identity, and also if the node belongs
/// to the first arc and such an identity is not yet a member of its group.
async fn find_members(node: &Node, peer_service: &PeerService) -> Option<BTreeSet<NodeId>> {
    let status = node.status();
    let mut members = BTreeSet::from([node.id()]);
    for slot in peer_service.peer_slots() {
        let found = peer_service.identify(slot).await?.identity?.node;
        let is_known = status.voters.contains(&found) || status.learners.contains(&found);
        let is_next = node.arc() != ArcId::FIRST
            && status.voters.iter().any(|known| {
                slot_of(*known) == slot && incarnation_of(*known) < incarnation_of(found)
            });
        if !(is_known || is_next) || slot_of(found) != slot {
            return None;
        }
        members.insert(found);
    }
    Some(members)
}
