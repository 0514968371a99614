//! Notifies tasks in this process that a table's stream may have new records, so that they need not
//! poll.
//!
//! A notification does not say which records or how many: the receiver reads the stream. It may be
//! spurious, and it may be missing, for example if the leader died before it could notify.
//! Therefore receivers also poll at a low rate.

use std::collections::BTreeMap;

use locks::RwLock;

use partition::{Batch, Op, TableId, table_of_record};
use tokio::sync::watch;

/// The waiting tasks at one replica, by table.
#[derive(Default)]
pub(crate) struct Arrivals(RwLock<BTreeMap<TableId, watch::Sender<()>>>);

impl Arrivals {
    /// Returns a receiver that is notified when a table may have new records since the last
    /// notification.
    pub(crate) fn of_table(&self, table: TableId) -> watch::Receiver<()> {
        let mut waiting = self.0.write();
        // Removes the tables for which no task waits any more.
        waiting.retain(|_, sender| sender.receiver_count() > 0);
        waiting.entry(table).or_insert_with(|| watch::Sender::new(())).subscribe()
    }

    /// Notifies the tasks of the tables in a batch, which must be part of the state already.
    pub(crate) fn notify(&self, batch: &Batch) {
        let waiting = self.0.read();
        if waiting.is_empty() {
            return;
        }
        // Most batches have many records of few tables, one after another, so this skips
        // repetitions.
        let mut last = None;
        let came = |op: &Op| match op {
            Op::Put(key, _) | Op::Insert(key, _) => table_of_record(key),
            // A deleted record was trimmed, so the stream has nothing new.
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
