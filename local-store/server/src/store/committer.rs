//! The committer: makes everything that is ready durable with one sync, in log order.
//!
//! It applies nothing and answers nobody; a proposal whose entry is durable goes to the applier.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::{io, thread};

use partition::{Entry, EntryEncoder, EntryError};
use tokio::sync::mpsc;

use super::applier::{Committed, Waiters};
use super::{Proposal, Shared};
use crate::disk::FileDisk;
use crate::log::{self, Log};

/// Positions of commands after which an entry takes no further proposal: what a few thousand
/// connections have ready at once. The sequence number has room for 99,999.
const POSITIONS_PER_ENTRY: usize = 4096;
/// Proposals in one entry at most: as many as there are connections.
const PROPOSALS_PER_ENTRY: usize = 1024;
/// Bytes after which an entry takes no further proposal. With the last one, of at most the 16 MB of
/// a request, an entry stays below the 32 MiB that the log takes.
const BYTES_PER_ENTRY: usize = 4 * 1024 * 1024;
/// The only term while a store has one replica.
const TERM: u64 = 1;

pub(crate) struct Committer {
    pub(crate) log: Log,
    /// Held for its lock on the data directory.
    pub(crate) disk: FileDisk,
    pub(crate) next_index: u64,
    pub(crate) waiting: mpsc::Receiver<Proposal>,
    pub(crate) applier: SyncSender<Committed>,
    /// The log index up to which the storage survives power loss: older entries can go.
    pub(crate) persisted: Arc<AtomicU64>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) on_fatal: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Committer {
    /// Starts the committer's thread. It ends when no handle on the store is left.
    pub(crate) fn start(mut self) -> io::Result<()> {
        let run = move || {
            let mut truncated = 0;
            while let Some(first) = self.waiting.blocking_recv() {
                if let Err(error) = self.commit(first) {
                    (self.on_fatal)(&format!("the log cannot be written: {error}"));
                    return;
                }
                let persisted = self.persisted.load(Ordering::Acquire);
                if persisted > truncated {
                    if let Err(error) = self.log.truncate_prefix(persisted) {
                        (self.on_fatal)(&format!("the log cannot be truncated: {error}"));
                        return;
                    }
                    truncated = persisted;
                }
            }
            tracing::debug!(directory = %self.disk.path().display(), "the store is closed");
        };
        thread::Builder::new().name("committer".to_owned()).spawn(run).map(drop)
    }

    /// Makes `first`, and whatever else is ready, durable as one entry.
    fn commit(&mut self, first: Proposal) -> Result<(), log::Error> {
        let mut entry = Entry { now: self.shared.now(), commands: Vec::new() };
        let mut waiters = Vec::new();
        let payload = match self.gather(first, &mut entry, &mut waiters) {
            Ok(payload) => payload,
            Err(error) => {
                // A defect of ours: nothing was written, and the waiters learn that by the drop.
                tracing::error!(%error, "commands cannot be encoded");
                return Ok(());
            }
        };
        let index = self.next_index;
        match self.log.append(&[log::Entry { index, term: TERM, payload }]) {
            Ok(()) => {}
            Err(error) if error.is_fatal() => return Err(error),
            Err(error) => {
                // Nothing was appended (the disk is full, say): the waiters learn it by the drop.
                tracing::error!(%error, "commands were refused by the log");
                return Ok(());
            }
        }
        self.log.sync()?;
        self.next_index += 1;
        // The applier only ends after a fatal error, which it has reported.
        let _ = self.applier.send(Committed { index, entry, waiters });
        Ok(())
    }

    /// Takes proposals into an entry until none is ready or it is large enough. Gives its payload.
    fn gather(
        &mut self,
        first: Proposal,
        entry: &mut Entry,
        waiters: &mut Waiters,
    ) -> Result<Vec<u8>, EntryError> {
        let mut encoder = EntryEncoder::default();
        let (mut bytes, mut positions) = (0, 0);
        let mut next = Some(first);
        while let Some(proposal) = next {
            for command in &proposal.commands {
                bytes = encoder.push(command)?;
                positions += command.positions();
            }
            waiters.push((proposal.commands.len(), proposal.replies));
            entry.commands.extend(proposal.commands);
            let full = positions >= POSITIONS_PER_ENTRY
                || waiters.len() >= PROPOSALS_PER_ENTRY
                || bytes >= BYTES_PER_ENTRY;
            next = if full { None } else { self.waiting.try_recv().ok() };
        }
        encoder.finish(entry.now)
    }
}
