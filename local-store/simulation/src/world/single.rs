//! One replica without a group: the log, the machine and the storage. The replica uses group commit like the
//! server: it appends all ready commands, syncs once, applies them, and replies.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use futures::future::BoxFuture;
use locks::Mutex;
use model::{EpochMillis, Item};
use node::ring::ArcId;
use partition::{Catalogue, Command, Entry, Machine, Reply, View, decode_entry, encode_entry};
use storage::Storage;
use storage::disk::SimulatedDisk;
use storage::log::{self, Log};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::machinery::{Machinery, OnFatal};
use super::replica::{Replica, Snapshot};
use super::state::Alive;
use super::translation;
use crate::error::{HarnessError, NodeError};
use crate::request::Failure;

/// The number of entries after which the storage is persisted and the log is truncated.
const PERSIST_ENTRIES: u64 = 200;
/// The maximum number of commands in one entry.
const COMMANDS_MAX: usize = 64;
/// The maximum number of waiting proposals.
const WAITING_MAX: usize = 1_024;

type Answered = oneshot::Sender<Result<Vec<Reply>, Failure>>;
type Proposal = (Vec<Command>, Answered);

/// The state that readers see.
struct Shared {
    storage: Arc<dyn Storage>,
    catalogue: Mutex<Arc<Catalogue>>,
    applied: AtomicU64,
    alive: Alive,
}

impl Shared {
    fn catalogue(&self) -> MutexGuard<'_, Arc<Catalogue>> {
        self.catalogue.lock()
    }
}

/// A running replica.
pub struct SingleNode {
    proposals: mpsc::Sender<Proposal>,
    shared: Arc<Shared>,
    machinery: Arc<Machinery>,
    task: AbortHandle,
}

/// Opens the log and the machine, and applies the entries that the storage does not contain yet.
///
/// # Errors
/// The disk fails, or its content cannot be the result of the writes.
pub fn recover(
    disk: &SimulatedDisk,
    storage: &dyn Storage,
    options: &log::Options,
) -> Result<(Log, Machine), NodeError> {
    let log = Log::open(Arc::new(disk.clone()), options.clone())?;
    let mut machine = Machine::open(&*storage.view())?;
    let applied = machine.applied_index();
    if log.last_index() < applied || log.first_index() > applied + 1 {
        return Err(format!(
            "the log has the entries {} to {}, but the state is as of {applied}",
            log.first_index(),
            log.last_index()
        )
        .into());
    }
    let entries = log.read(applied + 1, log.next_index())?;
    for entry in entries {
        let entry = entry?;
        let decoded = decode_entry(&entry.payload.into_bytes())?;
        let (batch, _) = machine.apply(&*storage.view(), entry.index, &decoded)?;
        storage.apply(&batch)?;
    }
    Ok((log, machine))
}

struct Committer {
    log: Log,
    machine: Machine,
    machinery: Arc<Machinery>,
    shared: Arc<Shared>,
    persisted: u64,
}

impl SingleNode {
    /// Starts the replica from its disk and its storage.
    ///
    /// # Errors
    /// The errors of [`recover`].
    pub fn start(machinery: &Arc<Machinery>, on_fatal: OnFatal) -> Result<Arc<Self>, NodeError> {
        let alive: Alive = Arc::new(AtomicBool::new(true));
        let state = machinery.state(ArcId::FIRST);
        let storage = state.open(&alive)?;
        let (log, machine) = recover(&machinery.disk(), &*storage, &machinery.log_options)?;
        let shared = Arc::new(Shared {
            storage,
            catalogue: Mutex::new(Arc::clone(machine.catalogue())),
            applied: AtomicU64::new(machine.applied_index()),
            alive,
        });
        let (proposals, waiting) = mpsc::channel(WAITING_MAX);
        let mut committer = Committer {
            log,
            machine,
            machinery: Arc::clone(machinery),
            shared: Arc::clone(&shared),
            persisted: 0,
        };
        let task = tokio::spawn(async move {
            if let Err(HarnessError(reason)) = committer.run(waiting).await {
                on_fatal(&reason);
            }
        });
        let machinery = Arc::clone(machinery);
        Ok(Arc::new(Self { proposals, shared, machinery, task: task.abort_handle() }))
    }
}

impl Committer {
    async fn run(&mut self, mut waiting: mpsc::Receiver<Proposal>) -> Result<(), HarnessError> {
        while let Some(first) = waiting.recv().await {
            let mut proposals = vec![first];
            while proposals.len() < COMMANDS_MAX
                && let Ok(next) = waiting.try_recv()
            {
                proposals.push(next);
            }
            self.commit(proposals).await?;
        }
        Ok(())
    }

    async fn commit(&mut self, proposals: Vec<Proposal>) -> Result<(), HarnessError> {
        let (commands, waiters): (Vec<_>, Vec<_>) = proposals.into_iter().unzip();
        let counts: Vec<usize> = commands.iter().map(Vec::len).collect();
        let commands = commands.into_iter().flatten().collect();
        let entry = Entry { now: self.machinery.clock.now(), commands };
        let payload = encode_entry(&entry)?;
        let index = self.log.next_index();
        match self.log.append(&[log::Entry { index, term: 1, payload: payload.into() }]) {
            Ok(()) => {}
            Err(error) if error.is_fatal() => return Err(error.into()),
            Err(error) => {
                for waiter in waiters {
                    // A client that no longer waits has dropped its receiver.
                    let _ = waiter.send(Err(Failure::Refused(error.to_string())));
                }
                return Ok(());
            }
        }
        tokio::time::sleep(self.machinery.sync_time()).await;
        self.log.sync()?;
        tokio::time::sleep(Duration::from_micros(20)).await;
        let view = self.shared.storage.view();
        let (batch, replies) = self.machine.apply(&*view, index, &entry)?;
        drop(view);
        self.shared.storage.apply(&batch)?;
        *self.shared.catalogue() = Arc::clone(self.machine.catalogue());
        self.shared.applied.store(index, Ordering::SeqCst);
        let mut replies = replies.into_iter();
        for (count, waiter) in counts.into_iter().zip(waiters) {
            let _ = waiter.send(Ok(replies.by_ref().take(count).collect()));
        }
        if index - self.persisted >= PERSIST_ENTRIES {
            self.shared.storage.persist()?;
            self.persisted = index;
            match self.log.truncate_prefix(index) {
                Err(error) if error.is_fatal() => return Err(error.into()),
                // There was no space for a new segment, so the log was not truncated and keeps its
                // old segments.
                _ => {}
            }
        }
        Ok(())
    }
}

impl Replica for SingleNode {
    fn submit(&self, commands: Vec<Command>) -> BoxFuture<'static, Result<Vec<Reply>, Failure>> {
        let proposals = self.proposals.clone();
        Box::pin(async move {
            let (sender, receiver) = oneshot::channel();
            let stopped = |_| Failure::Refused("the node is stopping".to_owned());
            proposals.send((commands, sender)).await.map_err(stopped)?;
            receiver.await.unwrap_or_else(|_| Err(Failure::Unknown("it died".to_owned())))
        })
    }

    fn read(&self, _strong: bool) -> BoxFuture<'static, Result<Snapshot, Failure>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            if !shared.alive.load(Ordering::SeqCst) {
                return Err(Failure::Refused("it died".to_owned()));
            }
            let catalogue = Arc::clone(&shared.catalogue());
            Ok(Snapshot { catalogue, view: shared.storage.view(), store: None })
        })
    }

    fn view(&self, _: ArcId) -> Option<Box<dyn View + Send + Sync>> {
        Some(self.shared.storage.view())
    }

    fn get_together(
        &self,
        keys: Vec<String>,
    ) -> BoxFuture<'static, Result<Vec<Option<Item>>, Failure>> {
        let read = self.read(true);
        Box::pin(async move { translation::get_from(&read.await?, &keys) })
    }

    fn begin(&self, _: ArcId, _: Vec<u64>) -> BoxFuture<'static, Result<(), HarnessError>> {
        // A single node has no group to create.
        Box::pin(async { Ok(()) })
    }

    fn ticks(&self) -> Option<BoxFuture<'static, ()>> {
        None
    }

    fn now(&self) -> EpochMillis {
        self.machinery.clock.now()
    }

    fn leads(&self, _: ArcId) -> bool {
        true
    }

    fn applied(&self, arc: ArcId) -> Option<u64> {
        (arc == ArcId::FIRST).then(|| self.shared.applied.load(Ordering::SeqCst))
    }

    fn describe(&self) -> String {
        format!("applied {:?}", self.applied(ArcId::FIRST))
    }

    fn coordinates(&self) -> bool {
        false
    }

    fn crash(&self) {
        self.shared.alive.store(false, Ordering::SeqCst);
        self.task.abort();
    }
}
