//! The admission of a node without data: it asks its peers for an identity, until the ring has the node.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use thiserror::Error;

use super::progress::WaitReport;
use super::{JOINING, REFUSAL_WAIT, ROUND, StartingMember, addresses, identity_of};
use crate::fatal::Fatal;
use crate::peer::{Answer, Invitation, PeerIdentity, Question, Unanswered};
use crate::store::cluster;
use crate::store::directory::{HOLDS_NOTHING, Identity, NodeFiles, Problem};
use crate::token_key::TokenKey;
use node::Replicas;

/// The reason why this node has no identity yet.
#[derive(Debug, Error)]
#[error("{0}")]
pub(super) struct NotAdmitted(pub(super) Refusal);

/// The reasons why the peers give no identity.
#[derive(Debug, Error)]
pub(super) enum Refusal {
    /// No peer leads the first arc, or it does not answer: keep waiting.
    #[error("no leader admits this node: {}", .0.join("; "))]
    NotYet(Vec<String>),
    /// The ring does not admit the node: do not start.
    #[error("{0}")]
    OfRing(String),
}

impl StartingMember<'_> {
    /// Joins a running cluster as a new node.
    pub(super) async fn join_ring(
        &self,
        files: Option<NodeFiles>,
        address: SocketAddr,
    ) -> Result<Arc<Replicas>, Problem> {
        // An earlier start may have got an identity and died before it stored anything.
        if files.is_some() {
            drop(files);
            cluster::set_aside(&self.data, self.local.slot, HOLDS_NOTHING)?;
        }
        let mut progress = WaitReport::new();
        let mut refused_since = None;
        let question = Question::JoinRing { slot: self.local.slot, address };
        loop {
            match self.ask_for_invitation(&question).await {
                Ok(invitation) => {
                    let files = self.adopt_identity(&invitation, None)?;
                    tracing::info!("joined the cluster as node {}", self.local.slot);
                    return Ok(self.start_node(files).await?);
                }
                Err(NotAdmitted(Refusal::OfRing(reason))) => {
                    return Err(Problem::Fatal(Fatal::new(reason)));
                }
                Err(error) => progress.log(&error.to_string()),
            }
            if let Some(reason) = self.peers.refusals().first() {
                let since = *refused_since.get_or_insert_with(Instant::now);
                if since.elapsed() > REFUSAL_WAIT {
                    return Err(Problem::Fatal(Fatal::new(reason)));
                }
            }
            tokio::time::sleep(ROUND).await;
        }
    }

    /// Asks each peer in turn, until the leader of the first arc answers with an identity.
    pub(super) async fn ask_for_invitation(
        &self,
        question: &Question,
    ) -> Result<Invitation, NotAdmitted> {
        let mut reasons = Vec::new();
        for slot in self.peers.slots() {
            match self.peers.ask(slot, question, JOINING).await {
                Ok(Answer::Rejoined(invitation)) => return Ok(invitation),
                Ok(Answer::NotAdmitted(reason)) => {
                    return Err(NotAdmitted(Refusal::OfRing(reason)));
                }
                Ok(Answer::Refused(reason)) => reasons.push(reason),
                other => reasons.push(Unanswered::of(other).to_string()),
            }
        }
        Err(NotAdmitted(Refusal::NotYet(reasons)))
    }

    /// Stores the identity of the invitation durably as the identity of this process.
    pub(super) fn adopt_identity(
        &self,
        invitation: &Invitation,
        files: Option<NodeFiles>,
    ) -> Result<NodeFiles, Problem> {
        TokenKey::adopt(&self.data, &invitation.token_key)?;
        self.follow_addresses(&invitation.addresses);
        if let Some(files) = files {
            let is_same = identity_of(&files.identity) == invitation.identity;
            if is_same && files.identity.arcs == invitation.arcs {
                return Ok(files);
            }
            drop(files);
            cluster::set_aside(&self.data, self.local.slot, HOLDS_NOTHING)?;
        }
        let PeerIdentity { cluster, node } = invitation.identity.clone();
        let founders = invitation.founders.clone();
        let identity = Identity::of_founders(cluster, node, invitation.arcs, founders);
        cluster::create_slot(&self.data, self.local.slot, identity, self.host)
    }

    /// Connects to the nodes of the ring. The flags may name only a node without the first arc, which has the ring.
    fn follow_addresses(&self, of_ring: &BTreeMap<u64, SocketAddr>) {
        let mut known = of_ring.clone();
        known.extend(self.flags);
        self.peers.follow(&known);
        if let Err(error) = addresses::write(&self.data, &known) {
            tracing::warn!(%error, "cannot keep the addresses of the nodes");
        }
    }
}
