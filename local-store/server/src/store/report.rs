//! The state of the nodes of a store, for its operator.

use super::{Store, directory};
use node::status::Status;
use node::{Node, slot_of};

/// The state of one node.
#[derive(Clone, Debug)]
pub struct NodeReport {
    /// The slot of the node.
    pub slot: u64,
    /// The status of its replicas; empty while the node is not running.
    pub replicas: Vec<Status>,
    /// The directories that were set aside because of damage.
    pub set_aside: Vec<String>,
    /// The reason why the node does not report its state; `None` if it reports its state.
    pub unreachable: Option<String>,
}

impl Store {
    /// Returns the status of each replica of this process, in the order of the nodes.
    #[must_use]
    pub fn statuses(&self) -> Vec<Status> {
        if let Some(own) = &self.shared.own_replicas {
            return own.statuses();
        }
        self.current_nodes().iter().flatten().map(Node::status).collect()
    }

    /// Returns the bytes that this process has sent to the other nodes since it started; `None` if all nodes are in
    /// this process.
    #[must_use]
    pub fn sent_to_peers_bytes(&self) -> Option<u64> {
        Some(self.shared.membership.as_ref()?.sent_bytes())
    }

    /// Returns the bytes of states that this process has sent to nodes that joined or were rebuilt since it started;
    /// `None` if all nodes are in this process.
    #[must_use]
    pub fn sent_state_bytes(&self) -> Option<u64> {
        Some(self.shared.own_replicas.as_ref()?.transfers().sent_bytes())
    }

    /// Returns the state of every node of the store, in the order of the slots. Includes nodes in other
    /// processes.
    pub async fn nodes(&self) -> Vec<NodeReport> {
        let report = |slot, replicas| {
            let set_aside = self.set_aside(slot);
            NodeReport { slot, replicas, set_aside, unreachable: None }
        };
        let mut reports: Vec<NodeReport> = match &self.shared.own_replicas {
            Some(own) => vec![report(slot_of(own.id()), own.statuses())],
            None => {
                let nodes = self.current_nodes();
                let of_node = |replicas: &Vec<Node>| {
                    let slot = slot_of(replicas.first()?.id());
                    Some(report(slot, replicas.iter().map(Node::status).collect()))
                };
                nodes.iter().filter_map(of_node).collect()
            }
        };
        if let Some(membership) = &self.shared.membership {
            for (slot, answer) in membership.statuses().await {
                let unreachable = answer.as_ref().err().map(ToString::to_string);
                let (replicas, set_aside) = answer.unwrap_or_default();
                reports.push(NodeReport { slot, replicas, set_aside, unreachable });
            }
            reports.sort_by_key(|report| report.slot);
        }
        reports
    }

    fn set_aside(&self, slot: u64) -> Vec<String> {
        let lock = self.shared.lock.as_ref();
        lock.map(|lock| directory::list_set_aside(lock.path(), slot)).unwrap_or_default()
    }
}
