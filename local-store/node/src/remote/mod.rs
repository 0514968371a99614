//! A group without a replica on this node: its writes and reads go to the nodes that hold it.
//!
//! The client of a group keeps no list of the group's members. It remembers which node led last, and asks all
//! nodes when that node no longer leads. So a group may move to other nodes at any time.

pub(crate) mod read;
mod view;

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::join_all;
use locks::Mutex;
use partition::mutation::{self, Mutation};
use partition::{ArcId, Catalogue, Command, ReadError, Reply, Ring, read_ring};

pub use self::read::{Found, FoundRange, Wanted, WantedRange};
pub use self::view::RemoteView;
use crate::clock::Clock;
use crate::error::SubmitError;
use crate::forward::{Submission, decode, encode, encode_submission};
use crate::proposer::{PROPOSAL_BYTES_MAX, refuse_as_too_large};
use crate::replica::{MEMBERSHIP_KEY, decode_membership};
use crate::replicas::Replicas;
use crate::status::Role;
use crate::transport::{
    CallError, Envelope, FORWARD_TIMEOUT, Request, Response, Submitted, Transport,
};
use crate::types::NodeId;

/// The pause between two attempts while no node leads the group.
const RETRY: Duration = Duration::from_millis(20);
/// The time-out of the question which node leads. Elections take longer, so a late answer is useless.
const SEARCH: Duration = Duration::from_millis(300);
/// The maximum number of fetches of one read. The bytes of a range grow with each fetch, so that more fetches
/// mean that a read asks for ever more ranges.
const FETCHES_MAX: usize = 64;

/// The parts of a [`RemoteGroup`].
pub struct RemoteParts {
    /// The group.
    pub arc: ArcId,
    /// The replicas of the node that asks, which may be or become the leader.
    pub own: Weak<Replicas>,
    /// The messages to the other nodes.
    pub transport: Arc<dyn Transport>,
    /// The clock of the node.
    pub clock: Arc<Clock>,
    /// The time-out of a request.
    pub timeout: Duration,
}

/// A client of a group.
pub struct RemoteGroup {
    parts: RemoteParts,
    known: Mutex<Known>,
}

/// What the node knows about the group.
#[derive(Default)]
struct Known {
    leader: Option<NodeId>,
    /// The highest log index that an answer has shown. Later reads show at least this entry.
    seen: u64,
    catalogue: Arc<Catalogue>,
    ring: Arc<Ring>,
    /// A log index as of which the catalogue and the ring are at least.
    definitions_at: u64,
    /// The version of the catalogue and of the ring; `None` before the first answer.
    tables_version: Option<u64>,
}

impl RemoteGroup {
    /// Creates a client that knows nothing about the group yet.
    #[must_use]
    pub fn new(parts: RemoteParts) -> Self {
        Self { parts, known: Mutex::default() }
    }

    /// Returns the group's arc.
    #[must_use]
    pub fn arc(&self) -> ArcId {
        self.parts.arc
    }

    /// Returns the tables of the group as of the last answer.
    #[must_use]
    pub fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&self.known.lock().catalogue)
    }

    /// Returns the ring as of the last answer. Only the first arc has a ring.
    #[must_use]
    pub fn ring(&self) -> Arc<Ring> {
        Arc::clone(&self.known.lock().ring)
    }

    /// Applies commands, in order, in one log entry of the group; see [`crate::Node::submit`].
    ///
    /// # Errors
    /// See [`SubmitError`]; a time-out is [`SubmitError::Unknown`].
    pub async fn submit(&self, commands: Vec<Command>) -> Result<Vec<Reply>, SubmitError> {
        let timeout = self.parts.timeout;
        let slow =
            |_| SubmitError::Unknown(format!("the request had no answer within {timeout:?}"));
        tokio::time::timeout(timeout, self.submit_inner(commands)).await.map_err(slow)?
    }

    async fn submit_inner(&self, commands: Vec<Command>) -> Result<Vec<Reply>, SubmitError> {
        let mut submission = Submission { asked_at: self.parts.clock.now(), commands };
        loop {
            let encoded = encode_submission(&submission)
                .map_err(|error| SubmitError::NotDone(error.to_string()))?;
            if encoded.bytes().len() > PROPOSAL_BYTES_MAX {
                return Ok(refuse_as_too_large(&submission.commands));
            }
            if let Some(leader) = self.leader().await {
                let answer = self.call(leader, Request::Submit(encoded), FORWARD_TIMEOUT).await;
                match Submitted::of(answer) {
                    Ok(Submitted::Done { index, replies }) => {
                        self.note_seen(index);
                        return Ok(replies);
                    }
                    Ok(Submitted::NotLeader) => self.forget(leader),
                    Ok(Submitted::TooOld { now }) => self.parts.clock.reach(now),
                    Err(error) => {
                        self.forget(leader);
                        return Err(error);
                    }
                }
            }
            tokio::time::sleep(RETRY).await;
            // The client is still waiting, so the next attempt counts as a new submission.
            submission.asked_at = self.parts.clock.now();
        }
    }

    /// Brings [`RemoteGroup::catalogue`] and [`RemoteGroup::ring`] up to date. If `is_strong` is true, they contain
    /// every change that was acknowledged before the call, and so do all later reads.
    ///
    /// # Errors
    /// When no node answers in time.
    pub async fn refresh(&self, is_strong: bool) -> Result<(), SubmitError> {
        let nothing = Wanted { is_strong, at_least: 0, keys: Vec::new(), ranges: Vec::new() };
        let found = self.request(nothing).await?;
        let known = self.known.lock().tables_version;
        let is_known = known.is_some() && mutation::is_active(Mutation::KeepOldDefinitions);
        if known == Some(found.tables_version) || is_known {
            return Ok(());
        }
        let view = RemoteView::default();
        let read = || Ok::<_, ReadError>((Catalogue::read(&view)?, read_ring(&view)?));
        let mut definitions = read();
        while self.complete(&view).await? {
            definitions = read();
        }
        let (catalogue, ring) =
            definitions.map_err(|error| SubmitError::NotDone(error.to_string()))?;
        let mut known = self.known.lock();
        // A slow call must not replace what a later call has read.
        if known.definitions_at > found.applied {
            return Ok(());
        }
        known.definitions_at = found.applied;
        known.catalogue = Arc::new(catalogue);
        known.ring = Arc::new(ring.unwrap_or_default());
        known.tables_version = Some(found.tables_version);
        Ok(())
    }

    /// Returns the newest committed membership of the group: its log index, and all voters and learners.
    ///
    /// # Errors
    /// When no leader answers in time.
    pub async fn membership(&self) -> Result<(u64, BTreeSet<NodeId>), SubmitError> {
        let keys = vec![MEMBERSHIP_KEY.to_vec()];
        let wanted = Wanted { is_strong: true, at_least: 0, keys, ranges: Vec::new() };
        let found = self.request(wanted).await?;
        let stored = found.values.into_iter().next().flatten().unwrap_or_default();
        decode_membership(&stored).map_err(|error| SubmitError::NotDone(error.to_string()))
    }

    /// Fetches what `view` is missing, from a state that contains everything that earlier answers have
    /// shown. Returns false if it is missing nothing, so that the reads since the last fetch have found
    /// everything.
    ///
    /// # Errors
    /// When no node answers in time.
    pub async fn complete(&self, view: &RemoteView) -> Result<bool, SubmitError> {
        let Some((keys, ranges)) = view.missing() else { return Ok(false) };
        if view.fetches() >= FETCHES_MAX {
            let reason = format!("a request needs more than {FETCHES_MAX} messages to read");
            return Err(SubmitError::NotDone(reason));
        }
        let wanted = Wanted { is_strong: false, at_least: 0, keys, ranges };
        let found = self.request(wanted.clone()).await?;
        view.take(wanted, found);
        Ok(true)
    }

    /// Sends a request to the leader until it answers. If no node leads, any replica answers a request that is
    /// not strong.
    async fn request(&self, wanted: Wanted) -> Result<Found, SubmitError> {
        let timeout = self.parts.timeout;
        let slow = |_| SubmitError::NotDone(format!("no replica answered within {timeout:?}"));
        tokio::time::timeout(timeout, self.request_inner(wanted)).await.map_err(slow)?
    }

    async fn request_inner(&self, mut wanted: Wanted) -> Result<Found, SubmitError> {
        wanted.at_least = self.known.lock().seen;
        let encoded = encode(&wanted).map_err(|error| SubmitError::NotDone(error.to_string()))?;
        loop {
            let leader = self.leader().await;
            let any = if wanted.is_strong { Vec::new() } else { self.nodes() };
            for node in leader.into_iter().chain(any) {
                let answer = self.call(node, Request::Read(encoded.clone()), FORWARD_TIMEOUT).await;
                if let Ok(Response::Read(bytes)) = answer {
                    let found: Found =
                        decode(&bytes).map_err(|error| SubmitError::NotDone(error.to_string()))?;
                    self.note_seen(found.applied);
                    return Ok(found);
                }
                self.forget(node);
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    fn note_seen(&self, index: u64) {
        let mut known = self.known.lock();
        known.seen = known.seen.max(index);
    }

    fn forget(&self, leader: NodeId) {
        if mutation::is_active(Mutation::KeepOldLeader) {
            return;
        }
        let mut known = self.known.lock();
        known.leader = known.leader.filter(|known| *known != leader);
    }

    /// Returns the node that led last; if it is unknown, asks all nodes.
    async fn leader(&self) -> Option<NodeId> {
        let known = self.known.lock().leader;
        if known.is_some() {
            return known;
        }
        let ask = async |node| {
            let answer = self.call(node, Request::Status, SEARCH).await;
            let Ok(Response::Status(status)) = answer else { return None };
            (status.role == Role::Leader).then_some((status.term, node))
        };
        let answers = join_all(self.nodes().into_iter().map(ask)).await;
        // A node that was cut off may still believe that it leads an earlier term.
        let (_, leader) = answers.into_iter().flatten().max()?;
        self.known.lock().leader = Some(leader);
        Some(leader)
    }

    async fn call(
        &self,
        to: NodeId,
        request: Request,
        timeout: Duration,
    ) -> Result<Response, CallError> {
        let own = self.parts.own.upgrade();
        let own = own.ok_or_else(|| CallError::Unreachable("this node has ended".to_owned()))?;
        let message = Envelope { from: own.id(), to, arc: self.parts.arc, request };
        if to != own.id() {
            drop(own);
            return self.parts.transport.call(message, timeout).await;
        }
        let late = |_| CallError::Lost("no response in time".to_owned());
        tokio::time::timeout(timeout, own.handle(message)).await.map_err(late)
    }

    /// Returns all nodes, this node first.
    fn nodes(&self) -> Vec<NodeId> {
        let own = self.parts.own.upgrade().map(|own| own.id());
        own.into_iter().chain(self.parts.transport.nodes()).collect()
    }
}
