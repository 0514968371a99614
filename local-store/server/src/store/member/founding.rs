//! The creation of a cluster: the groups that begin later, and the first ring.

use std::collections::BTreeSet;
use std::sync::Weak;

use futures::future::join_all;
use partition::{Command, RingChange, Slot};

use super::{QUESTION, ROUND};
use crate::peer::{Answer, Peers, Question};
use node::ring::ArcId;
use node::status::{Role, Status};
use node::{Node, NodeId, Replicas, WeakNode, incarnation_of, slot_of};

/// Creates the group of an arc when the first arc has a leader.
pub(super) async fn begin_when_all_have_joined(
    node: WeakNode,
    own: Weak<Replicas>,
    peers: Weak<Peers>,
    members: BTreeSet<NodeId>,
) {
    loop {
        let Some(peers) = peers.upgrade() else { return };
        let ask = async |slot| peers.ask(slot, &Question::Status, QUESTION).await;
        let answers = join_all(peers.slots().map(ask)).await;
        let leads = |status: &Status| status.arc == ArcId::FIRST && status.role == Role::Leader;
        let leads_itself = own.upgrade().is_some_and(|own| own.statuses().iter().any(leads));
        let has_leader = leads_itself || answers.iter().any(
            |answer| matches!(answer, Ok(Answer::Status(replicas, _)) if replicas.iter().any(leads)),
        );
        let Some(node) = node.upgrade() else { return };
        if has_leader {
            match node.initialize(members.clone()).await {
                Ok(()) => return,
                Err(error) => tracing::warn!(%error, "cannot create a group yet"),
            }
        }
        drop((node, peers));
        tokio::time::sleep(ROUND).await;
    }
}

/// Returns the commands that set the ring. A cluster of an earlier version may have nodes that were rebuilt, and
/// the ring must have their incarnations. All commands are in one entry, so no node sees a part of them.
fn commands(found: &RingChange, first: &Node) -> Vec<Command> {
    let status = first.status();
    let mut changes = vec![found.clone()];
    for id in status.voters.iter().chain(&status.learners) {
        let slot = u8::try_from(slot_of(*id)).ok().and_then(Slot::new);
        let earlier = (0..incarnation_of(*id))
            .filter_map(|lost| Some(RingChange::Readmit { slot: slot?, lost }));
        changes.extend(earlier);
    }
    changes.into_iter().map(|change| Command::ChangeRing(Box::new(change))).collect()
}

/// Sets the ring of a new cluster as soon as this node leads the first arc, unless another node has set it.
pub(super) async fn found_ring(replicas: Weak<Replicas>, found: RingChange) {
    loop {
        tokio::time::sleep(ROUND).await;
        let Some(replicas) = replicas.upgrade() else { return };
        let first = replicas.get(ArcId::FIRST);
        match first {
            Some(node) if node.ring().is_founded() => return,
            Some(node) if node.leads() => {
                if let Err(error) = node.submit(commands(&found, &node)).await {
                    tracing::debug!(%error, "cannot set the ring yet");
                }
            }
            _ => {}
        }
    }
}
