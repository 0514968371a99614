//! The replicas of one node: starts them, routes messages to them, and adds and removes replicas while the
//! node runs.
//!
//! A node has a replica of an arc from its first message of the arc's leader on, until it is certain that it is
//! no longer a member. The log records that the node has left a group ([`NodeLog::leave`]), so the set of replicas
//! survives every crash. This module does not decide which node has which arc.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use partition::mutation::{self, Mutation};
use tokio::sync::{Mutex, watch};

use crate::clock::Clock;
use crate::error::StartError;
use crate::failure::OnFatal;
use crate::node::{Node, Parts, Settings};
use crate::node_log::NodeLog;
use crate::ring::ArcId;
use crate::state_location::StateLocation;
use crate::status::Status;
use crate::transfer::Transfers;
use crate::transport::{Envelope, Request, Response, Transport};
use crate::types::NodeId;
use crate::worker::Worker;
use storage::Error;
use storage::disk::Damage;

/// The locations of a node's states.
pub trait States: Send + Sync + 'static {
    /// Returns the location of an arc's state. Creates it if it does not exist.
    ///
    /// # Errors
    /// When the location cannot be read or created, or is damaged.
    fn location(&self, arc: ArcId) -> Result<Arc<dyn StateLocation>, Error>;
}

/// The parts that all replicas of a node share.
pub struct NodeParts {
    /// The identity of the node.
    pub id: NodeId,
    /// The node's log.
    pub log: NodeLog,
    /// The locations of the states.
    pub states: Arc<dyn States>,
    /// The worker for blocking work on the states.
    pub worker: Arc<dyn Worker>,
    /// The messages to the other nodes.
    pub transport: Arc<dyn Transport>,
    /// The clock of the node.
    pub clock: Arc<Clock>,
    /// The settings.
    pub settings: Settings,
    /// The seed of random numbers. It is different for each start of a node.
    pub seed: u64,
    /// The record of damage of the node's disk.
    pub damage: Damage,
    /// Called when the node cannot continue.
    pub on_fatal: OnFatal,
}

/// The running replicas of a node, in the order of their arcs.
pub type Running = Arc<Vec<Node>>;

/// The replicas of a node.
pub struct Replicas {
    parts: NodeParts,
    running: watch::Sender<Running>,
    /// Held while a replica is added or removed. False after the node has ended.
    changes: Mutex<bool>,
}

impl Replicas {
    /// Starts the replicas of a node: of the groups in its log that it has not left, and of the arcs in `first`
    /// that its log does not know yet.
    ///
    /// # Errors
    /// The error of the first replica that cannot be started. Then no replica runs.
    pub async fn start(parts: NodeParts, first: &[ArcId]) -> Result<Arc<Self>, StartError> {
        let arcs = parts.log.arcs_with(first);
        let running = watch::Sender::new(Arc::default());
        let replicas = Self { parts, running, changes: Mutex::new(true) };
        // The previous process may have died after it left a group, and before it removed the state.
        for arc in replicas.parts.log.left_arcs() {
            empty(&*replicas.parts.states.location(arc).map_err(io::Error::other)?)
                .map_err(io::Error::other)?;
        }
        let mut each = Vec::new();
        for arc in arcs {
            each.push(replicas.parts_of(arc)?);
        }
        replicas.running.send_replace(Arc::new(Node::start_all(each).await?));
        Ok(Arc::new(replicas))
    }

    fn parts_of(&self, arc: ArcId) -> Result<Parts, StartError> {
        let NodeParts { id, log, worker, transport, clock, settings, seed, .. } = &self.parts;
        let state_location = self.parts.states.location(arc).map_err(io::Error::other)?;
        Ok(Parts {
            id: *id,
            arc,
            log: log.clone(),
            state_location,
            worker: Arc::clone(worker),
            transport: Arc::clone(transport),
            clock: Arc::clone(clock),
            settings: settings.clone(),
            seed: seed ^ (u64::from(arc.0) << 56),
            damage: self.parts.damage.clone(),
            on_fatal: Arc::clone(&self.parts.on_fatal),
        })
    }

    /// Returns the identity of the node.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.parts.id
    }

    /// Returns the transfers of states to other nodes.
    #[must_use]
    pub fn transfers(&self) -> &Transfers {
        &self.parts.settings.transfers
    }

    /// Returns whether the node's log contains an entry or a vote.
    #[must_use]
    pub fn holds_data(&self) -> bool {
        !self.parts.log.is_fresh()
    }

    /// Returns the record of the damage of the node's disk.
    #[must_use]
    pub fn damage(&self) -> &Damage {
        &self.parts.damage
    }

    /// Returns the running replicas.
    #[must_use]
    pub fn running(&self) -> Running {
        Arc::clone(&self.running.borrow())
    }

    /// Returns a receiver of the running replicas, which is notified of every change.
    pub fn subscribe(&self) -> watch::Receiver<Running> {
        self.running.subscribe()
    }

    /// Returns the status of each running replica.
    #[must_use]
    pub fn statuses(&self) -> Vec<Status> {
        self.running().iter().map(Node::status).collect()
    }

    /// Returns the replica of an arc.
    #[must_use]
    pub fn get(&self, arc: ArcId) -> Option<Node> {
        let running = self.running();
        let place = running.binary_search_by_key(&arc, Node::arc).ok()?;
        running.get(place).cloned()
    }

    /// Handles a message from another node, and returns the response. The first message of a leader to a node
    /// without a replica of the arc creates the replica.
    pub async fn handle(&self, message: Envelope) -> Response {
        if let Some(node) = self.get(message.arc) {
            return node.handle(message).await;
        }
        match message.request {
            // A client's request was not executed, so the sender looks for another node.
            Request::Submit(_) | Request::ReadIndex | Request::Read(_) | Request::Status => {
                Response::NotLeader
            }
            _ if message.to == self.parts.id && creates_replica(&message.request) => {
                match self.add(message.arc).await {
                    Ok(node) => node.handle(message).await,
                    Err(error) => Response::Refused(error.to_string()),
                }
            }
            // A node without a replica never votes: it does not know the group's entries.
            _ => Response::Refused(format!("this node has no replica of {}", message.arc)),
        }
    }

    /// Starts an empty replica of an arc, which then receives the state from its leader.
    async fn add(&self, arc: ArcId) -> Result<Node, StartError> {
        let runs = self.changes.lock().await;
        if let Some(node) = self.get(arc) {
            return Ok(node);
        }
        if !*runs {
            return Err(io::Error::other("the node has ended").into());
        }
        let parts = self.parts_of(arc)?;
        // The state could not be removed when the node left the group.
        if self.parts.log.has_left(arc) {
            empty(&*parts.state_location).map_err(io::Error::other)?;
        }
        self.parts.log.join(arc).await?;
        let node = Node::start(parts).await?;
        self.replace(|running| {
            running.push(node.clone());
            running.sort_by_key(Node::arc);
        });
        Ok(node)
    }

    fn replace(&self, change: impl FnOnce(&mut Vec<Node>)) {
        self.running.send_modify(|running| {
            let mut changed = Vec::clone(running);
            change(&mut changed);
            *running = Arc::new(changed);
        });
    }

    /// Removes the node's replica of an arc if the group has committed that this node is no member. Returns
    /// whether the replica was removed. `committed` is the newest committed membership of the group: its log index, and
    /// all voters and learners; see `RemoteGroup::membership`.
    ///
    /// The group's committed membership must be newer than every membership in this node's log. Then this node
    /// has acknowledged no entry as a member of a later membership, so no later member counts on its data.
    ///
    /// # Errors
    /// When the disk has failed.
    pub async fn remove_if_left(
        &self,
        arc: ArcId,
        committed: &(u64, BTreeSet<NodeId>),
    ) -> Result<bool, StartError> {
        let is_over = |node: &Node| {
            let (at, members) = committed;
            mutation::is_active(Mutation::LeaveWhileMember)
                || (!members.contains(&self.parts.id) && node.membership_index() < Some(*at))
        };
        let _turn = self.changes.lock().await;
        let Some(node) = self.get(arc).filter(is_over) else { return Ok(false) };
        self.replace(|running| running.retain(|other| other.arc() != arc));
        node.end().await;
        // The node may have become a member again before its replica ended.
        if !is_over(&node) {
            drop(node);
            let again = Node::start(self.parts_of(arc)?).await?;
            self.replace(|running| {
                running.push(again);
                running.sort_by_key(Node::arc);
            });
            return Ok(false);
        }
        self.parts.log.leave(arc).await?;
        let location = self.parts.states.location(arc).map_err(io::Error::other)?;
        empty(&*location).map_err(io::Error::other)?;
        Ok(true)
    }

    /// Stops all replicas cleanly.
    pub async fn shutdown(&self) {
        *self.changes.lock().await = false;
        for node in self.running().iter() {
            node.shutdown().await;
        }
    }
}

/// Returns whether a message to a node without a replica of the arc creates the replica.
fn creates_replica(request: &Request) -> bool {
    matches!(request, Request::Append(_) | Request::Snapshot(_))
        || mutation::is_active(Mutation::VoteUnfilled)
}

/// Replaces a state with an empty state. The files of the earlier state are removed when their last reader has
/// ended.
fn empty(location: &dyn StateLocation) -> Result<(), Error> {
    let staged = location.begin()?;
    location.adopt(&staged)
}
