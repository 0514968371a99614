//! Waits until records of a table's stream have come.

use futures::future::{pending, select_all};
use tokio::sync::watch;

use super::Store;

/// Of one table, at all nodes of this process. It may miss something, when a leader dies; and records
/// that come by a node of another process it does not hear of. So who waits also looks by himself now
/// and then.
#[derive(Debug, Clone)]
pub struct Arrivals(Vec<watch::Receiver<()>>);

impl Arrivals {
    /// Returns when records may have come since it last did. Nothing is lost when it is dropped before.
    pub async fn next(&mut self) {
        // One whose node has ended never tells anything.
        self.0.retain(|receiver| receiver.has_changed().is_ok());
        if self.0.is_empty() {
            return pending().await;
        }
        let _ = select_all(self.0.iter_mut().map(|receiver| Box::pin(receiver.changed()))).await;
        self.0.iter_mut().for_each(watch::Receiver::mark_unchanged);
    }
}

impl Store {
    /// Tells when records of a table's stream have come. `None`: there is no such table.
    #[must_use]
    pub fn arrivals(&self, table: &str) -> Option<Arrivals> {
        let table = self.find_table(table)?.id;
        let nodes = self.shared.nodes.iter().flatten();
        Some(Arrivals(nodes.map(|node| node.arrivals(table)).collect()))
    }
}
