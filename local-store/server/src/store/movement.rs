//! Movement of replicas: brings the members of each group to the nodes that the ring names.
//!
//! The leader of an arc adds new nodes as learners, waits until they have the state, and replaces the
//! voters in one step of two majorities. Then the preferred leader takes over, and the nodes that are no
//! longer members remove their replicas. Each step can be repeated, so the next leader resumes after a
//! crash. This module does not decide which node has which arc: see `partition::ring`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::try_join_all;
use partition::mutation::{self, Mutation};
use partition::{Command, Ring, RingChange, Slot};
use tokio::time::Instant;

use super::group::Group;
use super::{Store, WeakStore};
use node::remote::RemoteGroup;
use node::ring::ArcId;
use node::{Node, NodeId, Replicas, slot_of};

/// The interval between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The time-out of a membership change, in which new members receive the state. After a time-out, the
/// next check resumes the change.
const CHANGE: Duration = Duration::from_secs(60);
/// The maximum number of entries that the next leader may be behind. It is some requests more than are in flight.
const LAG_MAX: u64 = 1_000;
/// The time for which a node leads an arc before it transfers the leadership to the preferred leader. A preferred
/// leader that keeps failing causes at most one more election in this time.
const LEAD_MIN: Duration = Duration::from_secs(10);
/// The time-out of the question which nodes are members of a group.
const QUESTION: Duration = Duration::from_secs(5);

/// Moves replicas while the store exists: one group at a time of those that this node leads, so that a node
/// sends one state at a time.
pub(super) async fn run(store: WeakStore, replicas: Weak<Replicas>) {
    // The arcs that this node leads.
    let mut led: BTreeMap<ArcId, Lead> = BTreeMap::new();
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let (Some(upgraded), Some(own)) = (store.upgrade(), replicas.upgrade()) else { return };
        let Some(ring) = upgraded.ring() else { continue };
        upgraded.follow_ring(&ring);
        for node in own.running().iter() {
            let target = members(&ring, node.arc());
            if node.leads() {
                let lead = led
                    .entry(node.arc())
                    .or_insert_with(|| Lead { since: Instant::now(), last_log: None });
                let may_end = lead.may_end(node.status().last_log);
                let change = lead_change(&upgraded, node, may_end);
                let changed = tokio::time::timeout(CHANGE, change).await;
                if changed.is_err() {
                    tracing::warn!("{} did not move within {CHANGE:?}", node.arc());
                }
                if node.arc() == ArcId::FIRST
                    && let Some(ring) = upgraded.ring()
                {
                    forget_left(&upgraded, &ring).await;
                }
            } else {
                led.remove(&node.arc());
                let is_kept = target.contains(&node.id());
                if !is_kept && !mutation::is_active(Mutation::KeepReplica) {
                    remove(&own, node.arc(), upgraded.remote_group(node.arc())).await;
                }
            }
        }
    }
}

/// The time for which this node has led an arc, and the end of the arc's log at the last check.
struct Lead {
    since: Instant,
    last_log: Option<u64>,
}

impl Lead {
    /// Returns whether the preferred leader may take over: this node has led long enough, and there was no write
    /// since the last check, because a write in flight would get an unknown outcome.
    fn may_end(&mut self, last_log: Option<u64>) -> bool {
        let is_quiet = self.last_log == last_log;
        self.last_log = last_log;
        is_quiet && self.since.elapsed() >= LEAD_MIN
    }
}

/// Returns the nodes that shall have an arc, the preferred leader first.
fn members(ring: &Ring, arc: ArcId) -> Vec<NodeId> {
    let index = usize::try_from(arc.0).unwrap_or(usize::MAX);
    let slots: &[Slot] = ring.replicas.get(index).map(Vec::as_slice).unwrap_or_default();
    slots.iter().filter_map(|slot| ring.node_id(*slot)).collect()
}

/// The next step of a group towards its members.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// The group has the right members.
    Nothing,
    /// Another node must lead, because this node leaves the group.
    Transfer(NodeId),
    /// The members are right, and this other node should lead, so that all nodes lead equally many groups.
    Prefer(NodeId),
    /// These nodes become the voters.
    Change(BTreeSet<NodeId>),
}

/// Decides the next step of the group that the node `own` leads. `target` are the members that the group shall
/// have.
fn next_step(
    own: NodeId,
    voters: &BTreeSet<NodeId>,
    learners: &BTreeSet<NodeId>,
    target: &[NodeId],
) -> Step {
    let wanted: BTreeSet<NodeId> = target.iter().copied().collect();
    let Some(preferred) = target.first() else { return Step::Nothing };
    if *voters == wanted && learners.is_empty() {
        return if *preferred == own { Step::Nothing } else { Step::Prefer(*preferred) };
    }
    if wanted.contains(&own) {
        return Step::Change(wanted);
    }
    match target.iter().find(|node| voters.contains(node)) {
        Some(next) => Step::Transfer(*next),
        // No voter stays. The leader stays until one of the new voters can lead.
        None => Step::Change(wanted.into_iter().chain([own]).collect()),
    }
}

/// Returns the next step of the group that this node leads, and its voters. If `may_end` is false, this node stays the
/// leader of a group with the right members.
fn step_of(store: &Store, node: &Node, may_end: bool) -> (Step, BTreeSet<NodeId>) {
    let Some(ring) = store.ring() else { return (Step::Nothing, BTreeSet::new()) };
    let status = node.status();
    let voters: BTreeSet<NodeId> = status.voters.iter().copied().collect();
    let learners = status.learners.iter().copied().collect();
    let target = members(&ring, node.arc());
    // A voter that does not follow would not win the election.
    let follows = |node: &NodeId| {
        let at = status.acknowledged.get(node).map_or(0, |at| at.saturating_add(LAG_MAX));
        voters.contains(node) && Some(at) >= status.last_log
    };
    let step = match next_step(node.id(), &voters, &learners, &target) {
        Step::Transfer(_) => {
            let follower = target.iter().find(|node| follows(node));
            follower.map_or(Step::Nothing, |node| Step::Transfer(*node))
        }
        Step::Prefer(to) if may_end && follows(&to) => Step::Transfer(to),
        Step::Prefer(_) => Step::Nothing,
        step => step,
    };
    (step, voters)
}

async fn lead_change(store: &Store, node: &Node, may_end: bool) {
    if step_of(store, node, may_end).0 == Step::Nothing {
        return;
    }
    // The ring may have changed since this node has read it. An outdated ring would move replicas back.
    if store.group(ArcId::FIRST).read_index().await.is_err() {
        return;
    }
    if let Some(ring) = store.ring() {
        store.follow_ring(&ring);
    }
    let (step, voters) = step_of(store, node, may_end);
    match step {
        Step::Nothing | Step::Prefer(_) => {}
        Step::Transfer(to) => node.transfer_leadership(to).await,
        Step::Change(members) => {
            let new: Vec<u64> = members.difference(&voters).map(|id| slot_of(*id)).collect();
            tracing::info!(nodes = ?new, "copying {} to its new nodes", node.arc());
            match node.change_members(&members).await {
                Ok(()) => tracing::info!("{} has all its replicas", node.arc()),
                Err(error) => tracing::warn!(%error, "cannot move {} yet", node.arc()),
            }
        }
    }
}

/// Removes leaving nodes from the ring when no group has them any more.
async fn forget_left(store: &Store, ring: &Ring) {
    for (slot, _) in ring.nodes.iter().filter(|(_, node)| node.is_leaving) {
        let memberships = store.arcs().map(|arc| store.remote_group(arc).membership());
        let asked = tokio::time::timeout(QUESTION, try_join_all(memberships)).await;
        let Ok(Ok(memberships)) = asked else { return };
        let is_in = |(_, members): &(u64, BTreeSet<NodeId>)| {
            ring.node_id(*slot).is_some_and(|id| members.contains(&id))
        };
        if memberships.iter().any(is_in) && !mutation::is_active(Mutation::ForgetTooEarly) {
            continue;
        }
        let forget = RingChange::Forget { slot: *slot };
        match store.submit(vec![Command::ChangeRing(Box::new(forget))]).await {
            Ok(_) => tracing::info!("node {slot} has left the ring: its process can end"),
            Err(error) => tracing::debug!(%error, "cannot remove node {slot} from the ring yet"),
        }
    }
}

async fn remove(own: &Arc<Replicas>, arc: ArcId, group: &RemoteGroup) {
    let committed = match tokio::time::timeout(QUESTION, group.membership()).await {
        Ok(Ok(committed)) => committed,
        Ok(Err(_)) | Err(_) => return,
    };
    match own.remove_if_left(arc, &committed).await {
        Ok(true) => tracing::info!("removed the replica of {arc}, which other nodes have"),
        Ok(false) => {}
        Err(error) => tracing::debug!(%error, "cannot remove the replica of {arc} yet"),
    }
}

impl Store {
    /// Returns the ring as far as this process knows it; `None` for a store whose nodes are all in this process,
    /// and before the ring is founded.
    #[must_use]
    pub fn ring(&self) -> Option<Arc<Ring>> {
        let ring = match self.group(ArcId::FIRST) {
            Group::Here(node) => node.ring(),
            Group::Elsewhere(group) => group.ring(),
        };
        ring.is_founded().then_some(ring)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_leader_of_a_busy_arc_stays() {
        let mut lead = Lead { since: Instant::now(), last_log: None };
        assert!(!lead.may_end(Some(7)) && !lead.may_end(Some(7)));
        tokio::time::advance(LEAD_MIN).await;
        assert!(!lead.may_end(Some(8)));
        assert!(lead.may_end(Some(8)));
    }

    #[test]
    fn a_group_moves_step_by_step() {
        let set = |nodes: &[NodeId]| nodes.iter().copied().collect::<BTreeSet<_>>();
        for (own, voters, learners, target, expected) in [
            (1, [1, 2, 3], vec![], vec![1, 2, 3], Step::Nothing),
            (1, [1, 2, 3], vec![], vec![], Step::Nothing),
            (3, [1, 2, 3], vec![], vec![2, 1, 3], Step::Prefer(2)),
            (1, [1, 2, 3], vec![4], vec![1, 2, 3], Step::Change(set(&[1, 2, 3]))),
            (1, [1, 2, 3], vec![], vec![1, 2, 4], Step::Change(set(&[1, 2, 4]))),
            (3, [1, 2, 3], vec![], vec![4, 2, 1], Step::Transfer(2)),
            (3, [1, 2, 3], vec![], vec![4, 5, 6], Step::Change(set(&[3, 4, 5, 6]))),
            // A node that lost its disk has a later incarnation.
            (1, [1, 2, 3], vec![], vec![1, 258, 3], Step::Change(set(&[1, 258, 3]))),
        ] {
            let step = next_step(own, &set(&voters), &set(&learners), &target);
            assert_eq!(step, expected, "{own} {voters:?} {learners:?} {target:?}");
        }
    }
}
