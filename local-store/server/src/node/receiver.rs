//! Receives a snapshot, part by part, into a storage beside the state.
//!
//! One transfer at a time: another one that begins takes its place. A part that comes twice is
//! acknowledged twice; one that is missing ends the transfer, and the leader begins again. One that
//! is late is of another transfer, also when a sender that was restarted counts its transfers anew:
//! it leads in a later term then.

use std::sync::Arc;

use openraft::storage::Snapshot;
use tokio::sync::Mutex;

use super::Raft;
use super::home::{Begun, StorageHome};
use super::replica::{SnapshotData, write_part};
use super::transport::{Response, SnapshotPart};
use super::types::{NodeId, Vote};
use super::worker::{Worker, run_on};

/// A transfer under way.
struct Incoming {
    from: NodeId,
    vote: Vote,
    transfer: u64,
    /// The sequence of the part that is expected next.
    next: u64,
    begun: Begun,
}

pub(super) struct Receiver {
    home: Arc<dyn StorageHome>,
    worker: Arc<dyn Worker>,
    incoming: Mutex<Option<Incoming>>,
}

impl Receiver {
    pub(super) fn new(home: Arc<dyn StorageHome>, worker: Arc<dyn Worker>) -> Self {
        Self { home, worker, incoming: Mutex::new(None) }
    }

    /// Takes a part; with the last one the snapshot is installed.
    pub(super) async fn take(&self, raft: &Raft, from: NodeId, part: SnapshotPart) -> Response {
        let mut incoming = self.incoming.lock().await;
        if part.sequence == 0 {
            match self.begin(from, &part).await {
                Ok(begun) => *incoming = Some(begun),
                Err(reason) => return Response::Refused(reason),
            }
        }
        let is_same = |current: &&mut Incoming| {
            let (sender, transfer) = (current.from, current.transfer);
            (sender, &current.vote, transfer) == (from, &part.vote, part.transfer)
        };
        let Some(current) = incoming.as_mut().filter(is_same) else {
            return Response::Refused("this snapshot is not being received".to_owned());
        };
        if part.sequence + 1 == current.next && !part.last {
            return Response::PartTaken;
        }
        if part.sequence != current.next {
            let (found, expected) = (part.sequence, current.next);
            *incoming = None;
            return Response::Refused(format!("part {found} came where {expected} must"));
        }
        current.next += 1;
        let storage = Arc::clone(&current.begun.storage);
        let pairs = part.pairs;
        let written = run_on(&*self.worker, move || write_part(&*storage, pairs)).await;
        if !matches!(written, Some(Ok(()))) {
            *incoming = None;
            return Response::Refused(format!("the snapshot cannot be written: {written:?}"));
        }
        if !part.last {
            return Response::PartTaken;
        }
        let Some(done) = incoming.take() else {
            return Response::Refused("this snapshot is not being received".to_owned());
        };
        drop(incoming);
        let snapshot = Snapshot { meta: part.meta, snapshot: SnapshotData::Received(done.begun) };
        match raft.install_full_snapshot(part.vote, snapshot).await {
            Ok(response) => Response::Snapshot(response),
            Err(error) => Response::Refused(error.to_string()),
        }
    }

    async fn begin(&self, from: NodeId, part: &SnapshotPart) -> Result<Incoming, String> {
        let home = Arc::clone(&self.home);
        let begun = run_on(&*self.worker, move || home.begin()).await;
        let begun = begun.ok_or("the worker has ended")?;
        let begun = begun.map_err(|error| error.to_string())?;
        let (vote, transfer) = (part.vote, part.transfer);
        Ok(Incoming { from, vote, transfer, next: 0, begun })
    }
}
