//! The network interface of the consensus library, implemented with the transport.
//!
//! Every message has a time-out. Errors distinguish a message that was not sent from a message
//! without a response, so that the library backs off from a node that is down.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{EmptyNode, OptionalSend};
use partition::QUEUE_KEYS;
use partition::mutation::{self, Mutation};

use crate::replica::{Snapshot, SnapshotData, read_part};
use crate::ring::ArcId;
use crate::transfer::Transfers;
use crate::transport::{CallError, Envelope, Request, Response, SnapshotPart, Transport};
use crate::types::{NodeId, TypeConfig, Vote};

/// The time-out for entries to become durable on another node. It is long enough for many slow
/// syncs.
const APPEND_TIMEOUT: Duration = Duration::from_secs(1);

/// A factory of connections from one replica to its peers.
#[derive(Clone)]
pub(super) struct Network {
    pub(super) id: NodeId,
    pub(super) arc: ArcId,
    pub(super) transport: Arc<dyn Transport>,
    /// The transfers of the process, with their bandwidth.
    pub(super) transfers: Arc<Transfers>,
    /// The number of the next snapshot transfer of this node.
    pub(super) next_transfer: Arc<AtomicU64>,
    /// The last entry that this node has announced as committed. Followers may apply that entry and
    /// serve reads of it before this node has applied it.
    pub(super) announced_commit: Arc<AtomicU64>,
    /// Time-out for a part of a snapshot: see [`crate::Settings::snapshot_part`].
    pub(super) snapshot_part: Duration,
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Connection;

    async fn new_client(&mut self, target: NodeId, _node: &EmptyNode) -> Connection {
        Connection { network: self.clone(), target }
    }
}

/// A connection to one peer.
pub(super) struct Connection {
    network: Network,
    target: NodeId,
}

impl Connection {
    async fn call(&self, request: Request, timeout: Duration) -> Result<Response, CallError> {
        let Network { id: from, arc, transport, .. } = &self.network;
        let message = Envelope { from: *from, to: self.target, arc: *arc, request };
        transport.call(message, timeout).await
    }

    /// Sends the parts of a snapshot one after another; returns the response to the last part.
    async fn send_parts(
        &self,
        vote: Vote,
        snapshot: Snapshot,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let transfer = self.network.next_transfer.fetch_add(1, Ordering::Relaxed);
        let SnapshotData::View(view) = snapshot.snapshot else {
            return Err(unexpected("a received snapshot cannot be sent to another node").into());
        };
        let outgoing = self.network.transfers.begin(self.network.arc, self.target).await;
        let mut from = vec![0];
        for sequence in 0.. {
            // An unreadable state is reported to the consensus library as a broken connection, so
            // that this node continues to vote until it is replaced.
            let (pairs, next) =
                read_part(&*view, &from).map_err(|error| unexpected(&error.to_string()))?;
            outgoing.admit(pairs.iter().map(|(key, value)| key.len() + value.len()).sum()).await;
            let last = next.is_none();
            let mut pairs = pairs;
            if last && mutation::is_active(Mutation::LoseEndOfSnapshot) {
                pairs.truncate(pairs.len() * 3 / 4);
            }
            if mutation::is_active(Mutation::SnapshotWithoutStream) {
                pairs.retain(|(key, _)| key.first() != Some(&QUEUE_KEYS));
            }
            let meta = snapshot.meta.clone();
            let part = SnapshotPart { vote, meta, transfer, sequence, pairs, last };
            let request = Request::Snapshot(Box::new(part));
            match self.call(request, self.network.snapshot_part).await {
                Ok(Response::PartTaken) if !last => {}
                Ok(Response::Snapshot(response)) => return Ok(response),
                Ok(other) => return Err(unexpected(&format!("{other:?}")).into()),
                Err(CallError::Unreachable(reason)) => {
                    return Err(Unreachable::from_string(reason).into());
                }
                Err(CallError::Lost(reason)) => return Err(unexpected(&reason).into()),
            }
            from = next.unwrap_or_default();
        }
        Err(unexpected("the snapshot ended before its last part").into())
    }
}

fn unexpected(what: &str) -> NetworkError<TypeConfig> {
    NetworkError::from_string(what)
}

fn sort(error: CallError) -> RPCError<TypeConfig> {
    match error {
        CallError::Unreachable(reason) => Unreachable::from_string(reason).into(),
        CallError::Lost(reason) => unexpected(&reason).into(),
    }
}

/// Returns the error for a message that the peer refused: a node with another id has replaced the
/// addressed node.
fn refused(response: &Response) -> RPCError<TypeConfig> {
    match response {
        Response::Refused(reason) => Unreachable::from_string(reason).into(),
        other => unexpected(&format!("unexpected response: {other:?}")).into(),
    }
}

impl RaftNetworkV2<TypeConfig> for Connection {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        if let Some(committed) = &request.leader_commit {
            self.network.announced_commit.fetch_max(committed.index, Ordering::SeqCst);
        }
        let heartbeat = request.entries.is_empty();
        let timeout = if heartbeat { option.hard_ttl() } else { APPEND_TIMEOUT };
        match self.call(Request::Append(request), timeout).await.map_err(sort)? {
            Response::Append(response) => Ok(response),
            other => Err(refused(&other)),
        }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        match self.call(Request::Vote(request), option.hard_ttl()).await.map_err(sort)? {
            Response::Vote(response) => Ok(response),
            other => Err(refused(&other)),
        }
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        match self.call(Request::PreVote(request), option.hard_ttl()).await.map_err(sort)? {
            Response::Vote(response) => Ok(response),
            other => Err(refused(&other)),
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        let request = Request::TransferLeader(request);
        match self.call(request, option.hard_ttl()).await.map_err(sort)? {
            Response::LeaderTransferred => Ok(Ok(())),
            other => Err(refused(&other)),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        tokio::select! {
            biased;
            closed = cancel => Err(closed.into()),
            sent = self.send_parts(vote, snapshot) => sent,
        }
    }
}
