//! Waits until records of a table's stream have come.

use std::fmt;

use futures::future::{pending, select_all};
use partition::TableId;
use tokio::sync::watch;

use super::Store;
use super::node_set::Nodes;

/// Of one table, at all nodes of this process. It may miss something, when a leader dies; and records
/// that come by a node of another process it does not hear of. So who waits also looks by himself now
/// and then.
#[derive(Clone)]
pub struct Arrivals {
    table: TableId,
    nodes: watch::Receiver<Nodes>,
    receivers: Vec<watch::Receiver<()>>,
}

impl fmt::Debug for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arrivals of {:?} at {} nodes", self.table, self.receivers.len())
    }
}

impl Arrivals {
    /// Returns when records may have come since it last did. Nothing is lost when it is dropped before.
    pub async fn next(&mut self) {
        // One whose node has ended never tells anything.
        self.receivers.retain(|receiver| receiver.has_changed().is_ok());
        let receivers = &mut self.receivers;
        let arrived = async {
            if receivers.is_empty() {
                return pending().await;
            }
            let changes = receivers.iter_mut().map(|receiver| Box::pin(receiver.changed()));
            let _ = select_all(changes).await;
            receivers.iter_mut().for_each(watch::Receiver::mark_unchanged);
        };
        tokio::select! {
            () = arrived => {}
            // A node was filled again: what came by it meanwhile nobody has heard of.
            Ok(()) = self.nodes.changed() => {
                self.receivers = receivers_at(&self.nodes.borrow_and_update(), self.table);
            }
        }
    }
}

impl Store {
    /// Tells when records of a table's stream have come. `None`: there is no such table.
    #[must_use]
    pub fn arrivals(&self, table: &str) -> Option<Arrivals> {
        let table = self.find_table(table)?.id;
        let mut nodes = self.shared.nodes.subscribe();
        let receivers = receivers_at(&nodes.borrow_and_update(), table);
        Some(Arrivals { table, nodes, receivers })
    }
}

fn receivers_at(nodes: &Nodes, table: TableId) -> Vec<watch::Receiver<()>> {
    nodes.iter().flatten().map(|node| node.arrivals(table)).collect()
}
