//! Tells who waits for the records of a table's stream that some have come, so that nobody in this
//! process has to ask again and again.
//!
//! It says neither which nor how many: who hears it reads. It may say it in vain; and it may say
//! nothing, as a leader does that died before it could. So who waits also looks by himself now and then.

use std::collections::BTreeMap;

use locks::RwLock;

use partition::{Batch, Op, TableId, table_of_record};
use tokio::sync::watch;

/// Who waits at one replica, by the table.
#[derive(Default)]
pub(crate) struct Arrivals(RwLock<BTreeMap<TableId, watch::Sender<()>>>);

impl Arrivals {
    /// Changes whenever records of a table may have come since it was last looked at.
    pub(crate) fn of_table(&self, table: TableId) -> watch::Receiver<()> {
        let mut waiting = self.0.write();
        // Tables come and go, and so does who waits for them.
        waiting.retain(|_, sender| sender.receiver_count() > 0);
        waiting.entry(table).or_insert_with(|| watch::Sender::new(())).subscribe()
    }

    /// Tells what a batch has brought. It is a part of the state by now.
    pub(crate) fn tell(&self, batch: &Batch) {
        let waiting = self.0.read();
        if waiting.is_empty() {
            return;
        }
        // Most batches have many records of few tables, one behind the other.
        let mut last = None;
        let came = |op: &Op| match op {
            Op::Put(key, _) | Op::Insert(key, _) => table_of_record(key),
            // Records go, too.
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
