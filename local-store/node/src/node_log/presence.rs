//! The groups that a node takes part in: it joins a group, and leaves it, durably.

use std::collections::BTreeSet;
use std::io;

use partition::mutation::{self, Mutation};

use super::NodeLog;
use super::record::Record;
use crate::ring::ArcId;

impl NodeLog {
    /// Returns the groups that the node has not left, ascending: of `first`, and of the groups in the log.
    #[must_use]
    pub fn arcs_with(&self, first: &[ArcId]) -> Vec<ArcId> {
        let state = self.shared.lock();
        let all: BTreeSet<ArcId> = first.iter().chain(state.groups.keys()).copied().collect();
        let has_left = |arc: &ArcId| state.groups.get(arc).is_some_and(|group| group.has_left);
        all.into_iter().filter(|arc| !has_left(arc)).collect()
    }

    /// Returns the groups that the node has left, ascending.
    #[must_use]
    pub fn left_arcs(&self) -> Vec<ArcId> {
        let state = self.shared.lock();
        state.groups.iter().filter(|(_, group)| group.has_left).map(|(arc, _)| *arc).collect()
    }

    /// Returns whether the node has left a group, and has not joined it again.
    pub fn has_left(&self, arc: ArcId) -> bool {
        self.shared.lock().groups.get(&arc).is_some_and(|group| group.has_left)
    }

    /// Records durably that the node has joined a group. Called before the node acknowledges anything as a
    /// member, because a member that forgets its group after a crash would not vote.
    ///
    /// # Errors
    /// When the disk has failed.
    pub async fn join(&self, arc: ArcId) -> io::Result<()> {
        if mutation::is_active(Mutation::ForgetJoined) {
            return Ok(());
        }
        self.write_durably(arc, [Record::Joined]).await
    }

    /// Drops everything of a group but the vote, durably. The replica of the group must have ended.
    ///
    /// # Errors
    /// When the disk has failed.
    pub async fn leave(&self, arc: ArcId) -> io::Result<()> {
        if mutation::is_active(Mutation::ForgetLeft) {
            return Ok(());
        }
        self.write_durably(arc, [Record::Left]).await
    }
}
