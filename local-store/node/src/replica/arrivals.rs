//! Notifications to tasks of this process that a table's stream may have new records, so that they
//! need not poll often.
//!
//! A notification does not contain records: the receiver reads the stream. A notification may be
//! spurious or missing, for example if the leader died before it sent the notification. Therefore
//! receivers also poll at a low rate.

use std::collections::BTreeMap;

use locks::RwLock;

use partition::{Batch, Op, TableId, table_of_record};
use tokio::sync::watch;

/// The tasks that wait at one replica for new records, by table.
#[derive(Default)]
pub(crate) struct Arrivals(RwLock<BTreeMap<TableId, watch::Sender<()>>>);

impl Arrivals {
    /// Returns a receiver that is notified when a table may have new records since the last
    /// notification.
    pub(crate) fn of_table(&self, table: TableId) -> watch::Receiver<()> {
        let mut waiting = self.0.write();
        // Removes tables without waiting tasks.
        waiting.retain(|_, sender| sender.receiver_count() > 0);
        waiting.entry(table).or_insert_with(|| watch::Sender::new(())).subscribe()
    }

    /// Notifies the tasks that wait for tables with records in a batch, which the state must
    /// already contain.
    pub(crate) fn notify(&self, batch: &Batch) {
        let waiting = self.0.read();
        if waiting.is_empty() {
            return;
        }
        // Most batches have many consecutive records of one table, so this notifies only when the
        // table changes.
        let mut last = None;
        let came = |op: &Op| match op {
            Op::Put(key, _) | Op::Insert(key, _) => table_of_record(key),
            // A deleted key is a trimmed record, not a new one.
            Op::Delete(_) => None,
        };
        for table in batch.ops.iter().filter_map(came) {
            if last.replace(table) != Some(table)
                && let Some(sender) = waiting.get(&table)
            {
                sender.send_replace(());
            }
        }
    }
}
