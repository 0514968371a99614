//! Membership of a group, and its changes when a node is rebuilt.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::BoxFuture;
use openraft::async_runtime::watch::WatchReceiver;

use tokio::time::Instant;

use super::Node;
use crate::error::{MembershipError, SubmitError};
use crate::maintenance;
use crate::types::{NodeId, incarnation_of, node_id, slot_of};

/// The maximum time to wait for the next acknowledgement of a learner. A learner that receives a snapshot
/// acknowledges nothing for longer; then the caller checks again whether the change is still wanted.
const FILL_PAUSE_MAX: Duration = Duration::from_secs(2);

impl Node {
    /// Makes `members` the members of the group, if this node leads. New members first receive the
    /// state as learners. A second step makes them voters and removes all other members.
    ///
    /// # Errors
    /// When this node does not lead, or another change is in progress. A partial change is not
    /// rolled back; repeat the call to complete the change.
    pub fn change_members<'n>(
        &'n self,
        members: &'n BTreeSet<NodeId>,
    ) -> BoxFuture<'n, Result<(), MembershipError>> {
        Box::pin(self.change_members_inner(members))
    }

    async fn change_members_inner(
        &self,
        members: &BTreeSet<NodeId>,
    ) -> Result<(), MembershipError> {
        let raft = &self.inner.raft;
        let status = self.status();
        let voters: BTreeSet<NodeId> = status.voters.into_iter().collect();
        for id in members.difference(&voters) {
            if !status.learners.contains(id) {
                raft.add_learner(*id, openraft::EmptyNode::default(), false).await?;
            }
            self.wait_until_filled(*id).await?;
        }
        let change = openraft::ChangeMembers::ReplaceAllVoters(members.clone());
        raft.change_membership(change, false).await?;
        let strangers: BTreeSet<NodeId> =
            self.status().learners.into_iter().filter(|id| !members.contains(id)).collect();
        if !strangers.is_empty() {
            let change = openraft::ChangeMembers::RemoveNodes(strangers);
            raft.change_membership(change, false).await?;
        }
        Ok(())
    }

    /// Waits until a learner has acknowledged all entries that this node has now.
    ///
    /// # Errors
    /// When this node no longer leads, or the learner acknowledges nothing for [`FILL_PAUSE_MAX`].
    async fn wait_until_filled(&self, learner: NodeId) -> Result<(), MembershipError> {
        let wanted = self.status().last_log;
        let mut metrics = self.inner.raft.metrics();
        let (mut last, mut since) = (None, Instant::now());
        loop {
            let (leads, reached) = {
                let metrics = metrics.borrow_watched();
                let reached =
                    metrics.replication.as_ref().and_then(|all| all.get(&learner)?.as_ref());
                let reached = reached.map(|at| at.index);
                (metrics.current_leader == Some(self.id()), reached)
            };
            if reached >= wanted {
                return Ok(());
            }
            if reached > last {
                (last, since) = (reached, Instant::now());
            }
            let is_late = since.elapsed() > FILL_PAUSE_MAX;
            if !leads || is_late {
                return Err(MembershipError::NotFilled(learner));
            }
            // The metrics change at least with each heartbeat.
            let changed = tokio::time::timeout(FILL_PAUSE_MAX, metrics.changed()).await;
            if !matches!(changed, Ok(Ok(()))) {
                return Err(MembershipError::NotFilled(learner));
            }
        }
    }

    /// Returns a new identity for a slot that lost its data, if this node leads. The identity is
    /// committed before it is returned, so it is never assigned twice.
    ///
    /// # Errors
    /// When this node does not lead, or another change is in progress.
    pub fn admit(&self, slot: u64) -> BoxFuture<'_, Result<NodeId, SubmitError>> {
        Box::pin(self.admit_inner(slot))
    }

    async fn admit_inner(&self, slot: u64) -> Result<NodeId, SubmitError> {
        let not_done = |reason: String| SubmitError::NotDone(reason);
        if self.leader() != Some(self.id()) {
            return Err(not_done(format!("node {} is not the leader", slot_of(self.id()))));
        }
        // The membership of a leader with a quorum contains every assigned identity. A deposed
        // leader may lack some identities.
        self.read_index().await?;
        let status = self.status();
        let known = status.voters.iter().chain(&status.learners);
        let of_slot = known.filter(|node| slot_of(**node) == slot);
        let incarnation = of_slot.map(|node| incarnation_of(*node) + 1).max().unwrap_or(0);
        let node = node_id(slot, incarnation);
        let added = self.inner.raft.add_learner(node, openraft::EmptyNode::default(), false).await;
        added.map(|_| node).map_err(|error| not_done(error.to_string()))
    }

    /// Returns the log index of the newest membership in this replica's log, committed or not.
    pub(crate) fn membership_index(&self) -> Option<u64> {
        let metrics = self.inner.raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.log_id().as_ref().map(|at| at.index)
    }

    /// Transfers leadership to another voter, if this node leads, and the voter responds and reports an undamaged
    /// disk. The transfer may fail; repeat the call if this node still leads.
    pub async fn transfer_leadership(&self, to: NodeId) {
        let transport = &*self.inner.transport;
        if !maintenance::is_sound(transport, self.arc(), (self.id(), to)).await {
            return;
        }
        if let Err(error) = self.inner.raft.trigger().transfer_leader(to).await {
            tracing::debug!(%error, "a node stopped before it transferred leadership");
        }
    }

    /// Starts an election immediately. Use it when all nodes have just started and there is no
    /// leader to wait for. If there is a leader, an election is harmless.
    pub async fn stand(&self) {
        if let Err(error) = self.inner.raft.trigger().elect(false).await {
            tracing::debug!(%error, "a node stopped before it could start an election");
        }
    }

    /// Returns whether the log of the node contains an entry or a vote.
    pub fn holds_data(&self) -> bool {
        !self.inner.log.is_fresh()
    }

    /// Returns the time of the last entry that this node has applied.
    pub fn reached(&self) -> model::EpochMillis {
        self.inner.replica.now()
    }
}
