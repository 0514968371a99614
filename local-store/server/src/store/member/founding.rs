//! The creation of a cluster: the groups that begin later, and the first ring.

use std::collections::BTreeSet;
use std::sync::Weak;

use futures::future::join_all;
use partition::{Command, RingChange};

use super::{QUESTION, ROUND};
use crate::peer::{Answer, Peers, Question};
use node::ring::ArcId;
use node::status::{Role, Status};
use node::{NodeId, Replicas, WeakNode};

/// Creates the group of an arc when the first arc has a leader.
pub(super) async fn begin_when_all_have_joined(
    node: WeakNode,
    peers: Weak<Peers>,
    members: BTreeSet<NodeId>,
) {
    loop {
        let Some(peers) = peers.upgrade() else { return };
        let ask = async |slot| peers.ask(slot, &Question::Status, QUESTION).await;
        let answers = join_all(peers.slots().map(ask)).await;
        let leads = |status: &Status| status.arc == ArcId::FIRST && status.role == Role::Leader;
        let has_leader = answers.iter().any(
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

/// Sets the ring of a new cluster as soon as this node leads the first arc, unless another node has set it.
pub(super) async fn found_ring(replicas: Weak<Replicas>, found: RingChange) {
    loop {
        tokio::time::sleep(ROUND).await;
        let Some(replicas) = replicas.upgrade() else { return };
        let first = replicas.get(ArcId::FIRST);
        match first {
            Some(node) if node.ring().is_founded() => return,
            Some(node) if node.leads() => {
                let command = Command::ChangeRing(Box::new(found.clone()));
                if let Err(error) = node.submit(vec![command]).await {
                    tracing::debug!(%error, "cannot set the ring yet");
                }
            }
            _ => {}
        }
    }
}
