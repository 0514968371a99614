//! The transport between nodes of one process, in which messages are function calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use locks::Mutex;

use crate::leadership::Ballot;
use crate::node::{Node, WeakNode};
use crate::ring::ArcId;
use crate::transport::{BoxFuture, CallError, Envelope, Response, Transport};
use crate::types::NodeId;

/// A transport between nodes of one process, which sends messages as function calls.
#[derive(Clone, Default)]
pub struct LocalTransport {
    nodes: Arc<Mutex<BTreeMap<(NodeId, ArcId), WeakNode>>>,
}

impl LocalTransport {
    /// Registers a node, so that the other nodes can reach it.
    pub fn add(&self, node: &Node) {
        let mut nodes = self.nodes.lock();
        nodes.insert((node.id(), node.arc()), node.downgrade());
    }

    /// Makes a node unreachable.
    pub fn remove(&self, node: NodeId) {
        let mut nodes = self.nodes.lock();
        nodes.retain(|(id, _), _| *id != node);
    }

    fn find(&self, node: NodeId, arc: ArcId) -> Option<Node> {
        self.nodes.lock().get(&(node, arc))?.upgrade()
    }
}

impl Transport for LocalTransport {
    fn call(&self, message: Envelope, timeout: Duration) -> BoxFuture<Result<Response, CallError>> {
        let node = self.find(message.to, message.arc);
        Box::pin(async move {
            let Some(node) = node else {
                return Err(CallError::Unreachable(format!(
                    "node {} is not in this process",
                    message.to
                )));
            };
            let timed_out =
                |_| CallError::Lost(format!("the node did not answer within {timeout:?}"));
            tokio::time::timeout(timeout, node.handle(message)).await.map_err(timed_out)
        })
    }

    fn nodes(&self) -> Vec<NodeId> {
        let ids: BTreeSet<NodeId> = self.nodes.lock().keys().map(|(node, _)| *node).collect();
        ids.into_iter().collect()
    }

    fn ballot_of(&self, node: NodeId, arc: ArcId) -> Option<Ballot> {
        self.find(node, arc)?.ballot()
    }
}
