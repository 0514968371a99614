//! The applier: applies durable entries in log order, then answers.
//!
//! It never syncs for a reply. From time to time it makes the storage durable so that the log can
//! be shortened.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::{io, thread};

use partition::{Entry, Machine, Reply};
use tokio::sync::oneshot;

use super::Shared;

/// Durable entries that wait to be applied at most: enough to keep both threads busy, little
/// enough that a reply is never far behind its sync.
const COMMITTED_MAX: usize = 4;
/// Entries after which the storage is made durable, so that a restart replays at most so many.
const PERSIST_ENTRIES: u64 = 20_000;
/// Batch bytes after which the storage is made durable: about one log segment.
const PERSIST_BYTES: usize = 64 * 1024 * 1024;

/// Who waits for the replies of an entry: for each the number of its commands.
pub(crate) type Waiters = Vec<(usize, oneshot::Sender<Vec<Reply>>)>;

/// An entry that is durable.
pub(crate) struct Committed {
    pub(crate) index: u64,
    pub(crate) entry: Entry,
    pub(crate) waiters: Waiters,
}

struct Applier {
    machine: Machine,
    shared: Arc<Shared>,
    persisted: Arc<AtomicU64>,
    unpersisted_bytes: usize,
}

/// Starts the applier's thread. Gives where to send entries, and the index up to which the storage
/// is durable.
pub(crate) fn start(
    machine: Machine,
    shared: Arc<Shared>,
    on_fatal: Arc<dyn Fn(&str) + Send + Sync>,
) -> io::Result<(SyncSender<Committed>, Arc<AtomicU64>)> {
    let (sender, receiver): (_, Receiver<Committed>) = sync_channel(COMMITTED_MAX);
    let persisted = Arc::new(AtomicU64::new(machine.applied_index()));
    let mut applier =
        Applier { machine, shared, persisted: Arc::clone(&persisted), unpersisted_bytes: 0 };
    let run = move || {
        for committed in receiver {
            if let Err(error) = applier.apply(committed) {
                on_fatal(&format!("a log entry cannot be applied: {error}"));
                return;
            }
        }
    };
    // Until the first persist of this run, nothing is known to be durable.
    persisted.store(0, Ordering::Release);
    thread::Builder::new().name("applier".to_owned()).spawn(run)?;
    Ok((sender, persisted))
}

impl Applier {
    fn apply(&mut self, committed: Committed) -> Result<(), String> {
        let Committed { index, entry, waiters } = committed;
        let view = self.shared.storage.view();
        let (batch, replies) =
            self.machine.apply(&*view, index, entry).map_err(|e| e.to_string())?;
        drop(view);
        self.unpersisted_bytes += batch.size();
        self.shared.storage.apply(batch).map_err(|e| e.to_string())?;
        if !Arc::ptr_eq(self.machine.catalogue(), &self.shared.catalogue()) {
            self.shared.set_catalogue(self.machine.catalogue());
        }
        let mut replies = replies.into_iter();
        for (count, waiter) in waiters {
            // A requester that has gone away needs no reply.
            let _ = waiter.send(replies.by_ref().take(count).collect());
        }
        self.persist_if_due(index)
    }

    fn persist_if_due(&mut self, index: u64) -> Result<(), String> {
        let persisted = self.persisted.load(Ordering::Acquire);
        if self.unpersisted_bytes < PERSIST_BYTES && index - persisted < PERSIST_ENTRIES {
            return Ok(());
        }
        self.shared.storage.persist().map_err(|e| e.to_string())?;
        self.persisted.store(index, Ordering::Release);
        self.unpersisted_bytes = 0;
        Ok(())
    }
}
