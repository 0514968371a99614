//! Receiver of a snapshot, part by part, into a storage that is separate from the state.
//!
//! The receiver handles one transfer at a time; a new transfer replaces the current one. A
//! duplicate part is acknowledged again. A missing part ends the transfer, and the leader starts
//! over. A late part is never mistaken for a part of the current transfer: a restarted sender may
//! reuse transfer numbers, but it leads in a later term. A transfer without new parts times out and
//! closes its files, because its sender may have died, and perhaps no new transfer begins.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use openraft::storage::Snapshot;
use tokio::sync::Mutex;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::raft::Raft;
use crate::replica::{SnapshotData, write_part};
use crate::state_location::{StagedStorage, StateLocation};
use crate::transport::{Response, SnapshotPart};
use crate::types::{NodeId, Vote};
use crate::worker::{Worker, run_on};

/// A transfer in progress.
struct IncomingSnapshot {
    from: NodeId,
    vote: Vote,
    transfer: u64,
    /// The sequence number of the next part.
    next: u64,
    staged: StagedStorage,
    /// The time at which the last part was written.
    last_part_at: Instant,
    _timeout: SilenceTimeout,
}

/// The task that ends a transfer without new parts. The task is aborted when the transfer ends.
struct SilenceTimeout(AbortHandle);

impl Drop for SilenceTimeout {
    fn drop(&mut self) {
        self.0.abort();
    }
}

type SharedTransfer = Arc<Mutex<Option<IncomingSnapshot>>>;

pub(super) struct Receiver {
    state_location: Arc<dyn StateLocation>,
    worker: Arc<dyn Worker>,
    incoming: SharedTransfer,
    silence_max: Duration,
}

impl Receiver {
    /// Creates a receiver. A sender waits up to `part` for a response and then starts over.
    /// Therefore the receiver abandons a transfer that has had no new part for twice this time.
    pub(super) fn new(
        location: Arc<dyn StateLocation>,
        worker: Arc<dyn Worker>,
        part: Duration,
    ) -> Self {
        Self {
            state_location: location,
            worker,
            incoming: SharedTransfer::default(),
            silence_max: part * 2,
        }
    }

    /// Handles a part. After the last part, installs the snapshot.
    pub(super) async fn take(&self, raft: &Raft, from: NodeId, part: SnapshotPart) -> Response {
        let mut incoming = self.incoming.lock().await;
        if part.sequence == 0 {
            match self.begin(from, &part).await {
                Ok(staged) => *incoming = Some(staged),
                Err(error) => return Response::Refused(error.to_string()),
            }
        }
        let is_same = |current: &&mut IncomingSnapshot| {
            let (sender, transfer) = (current.from, current.transfer);
            (sender, &current.vote, transfer) == (from, &part.vote, part.transfer)
        };
        let Some(current) = incoming.as_mut().filter(is_same) else {
            return Response::Refused("no transfer of this snapshot is in progress".to_owned());
        };
        if current.next.checked_sub(1) == Some(part.sequence) && !part.last {
            return Response::PartTaken;
        }
        if part.sequence != current.next {
            let (found, expected) = (part.sequence, current.next);
            *incoming = None;
            return Response::Refused(format!(
                "received snapshot part {found} instead of part {expected}"
            ));
        }
        current.next += 1;
        let storage = Arc::clone(&current.staged.storage);
        let pairs = part.pairs;
        let written = run_on(&*self.worker, move || write_part(&*storage, pairs)).await;
        if !matches!(written, Some(Ok(()))) {
            *incoming = None;
            return Response::Refused(format!("cannot write the snapshot: {written:?}"));
        }
        current.last_part_at = Instant::now();
        if !part.last {
            return Response::PartTaken;
        }
        let Some(done) = incoming.take() else {
            return Response::Refused("no transfer of this snapshot is in progress".to_owned());
        };
        drop(incoming);
        let snapshot = Snapshot { meta: part.meta, snapshot: SnapshotData::Received(done.staged) };
        match raft.install_full_snapshot(part.vote, snapshot).await {
            Ok(response) => Response::Snapshot(response),
            Err(error) => Response::Refused(error.to_string()),
        }
    }

    async fn begin(&self, from: NodeId, part: &SnapshotPart) -> io::Result<IncomingSnapshot> {
        let location = Arc::clone(&self.state_location);
        let staged = run_on(&*self.worker, move || location.begin()).await;
        let stopped = || io::Error::other("the node's worker thread has stopped");
        let staged = staged.ok_or_else(stopped)?.map_err(io::Error::other)?;
        let (vote, transfer) = (part.vote, part.transfer);
        let watched =
            give_up_silent(Arc::downgrade(&self.incoming), staged.number, self.silence_max);
        let watch = SilenceTimeout(tokio::spawn(watched).abort_handle());
        Ok(IncomingSnapshot {
            from,
            vote,
            transfer,
            next: 0,
            staged,
            last_part_at: Instant::now(),
            _timeout: watch,
        })
    }
}

/// Abandons the transfer into the storage with this number, because no new part arrived for too
/// long.
async fn give_up_silent(
    place: Weak<Mutex<Option<IncomingSnapshot>>>,
    number: u64,
    silence_max: Duration,
) {
    let mut until = Instant::now() + silence_max;
    loop {
        tokio::time::sleep_until(until).await;
        let Some(place) = place.upgrade() else { return };
        let mut incoming = place.lock().await;
        // A new transfer has replaced this transfer, or this transfer is being installed.
        let Some(current) = incoming.as_ref().filter(|it| it.staged.number == number) else {
            return;
        };
        until = current.last_part_at + silence_max;
        if until <= Instant::now() {
            tracing::warn!("dropped an incomplete snapshot: its sender stopped sending");
            *incoming = None;
            return;
        }
    }
}
