//! Waits for new records of a table's stream.

use std::fmt;

use futures::future::{pending, select_all};
use partition::TableId;
use tokio::sync::watch;

use super::Store;
use super::node_set::Nodes;

/// Notifications about new records of one table, from all nodes of this process. Notifications are
/// lost if a leader fails, or if the leader is in another process. Therefore the reader must also
/// poll the stream.
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
    /// Waits until there may be new records since the last call. Cancel-safe: dropping the future
    /// loses no notification.
    pub async fn next(&mut self) {
        // Drops the receivers of nodes that have stopped.
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
            // A node was rebuilt. Notifications may have been lost during the rebuild, so the caller must
            // read.
            Ok(()) = self.nodes.changed() => {
                self.receivers = receivers_at(&self.nodes.borrow_and_update(), self.table);
            }
        }
    }
}

impl Store {
    /// Subscribes to the records of a table's stream; `None` if the table does not exist.
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
