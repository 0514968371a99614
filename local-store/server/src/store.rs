//! A running store: commands go in, are made durable in the log, applied, and answered.
//!
//! Two threads share the work, so that one entry is synced while the one before is applied. The
//! committer gathers all commands that are ready into one log entry and syncs it once (group
//! commit); the applier applies entries in order and sends the replies. A reply is sent only after
//! its entry is on disk and applied, so a later read sees it. HTTP and its formats are elsewhere.

mod applier;
mod committer;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use model::EpochMillis;
use partition::{Catalogue, Command, Machine, Reply, View, decode_entry};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use crate::clock::Clock;
use crate::disk::{Disk, FileDisk};
use crate::log::{Log, Options as LogOptions};
use crate::storage::{FjallStorage, Storage};
use crate::ticks;
use crate::token_key::TokenKey;
use crate::traffic::Traffic;

/// Where and as what a store runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// The data directory; it is made if it is not there, and locked.
    pub directory: PathBuf,
    /// The Region in ARNs and in the health check.
    pub region: String,
    /// The account in ARNs: twelve digits.
    pub account: String,
}

/// Why a store cannot be opened.
#[derive(Debug, Error)]
#[error("cannot open the store in `{}`: {reason}", directory.display())]
pub struct OpenError {
    /// The data directory.
    pub directory: PathBuf,
    /// What is wrong and what to do about it.
    pub reason: String,
}

/// The store is stopping, or had to stop because its disk failed. Whether a command that was
/// under way was carried out is not known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the store is unavailable: {0}")]
pub struct Unavailable(pub String);

/// Proposals that wait for the committer at most; beyond that, requests wait in their connections.
const PROPOSALS_MAX: usize = 4096;

/// Commands of one request, and where their replies go.
pub(crate) struct Proposal {
    pub(crate) commands: Vec<Command>,
    pub(crate) replies: oneshot::Sender<Vec<Reply>>,
}

/// A handle on a running store. The store ends when the last handle is gone.
#[derive(Clone)]
pub struct Store {
    proposals: mpsc::Sender<Proposal>,
    shared: Arc<Shared>,
}

/// A handle that does not keep the store running.
pub(crate) struct WeakStore {
    proposals: mpsc::WeakSender<Proposal>,
    shared: Weak<Shared>,
}

impl WeakStore {
    /// The store, if somebody still keeps it running.
    pub(crate) fn upgrade(&self) -> Option<Store> {
        Some(Store { proposals: self.proposals.upgrade()?, shared: self.shared.upgrade()? })
    }
}

/// What readers see: always the state as of some applied entry.
pub(crate) struct Shared {
    pub(crate) storage: Arc<dyn Storage>,
    catalogue: RwLock<Arc<Catalogue>>,
    clock: Clock,
    traffic: Traffic,
    token_key: TokenKey,
    region: String,
    account: String,
}

impl Shared {
    pub(crate) fn now(&self) -> EpochMillis {
        self.clock.now()
    }

    pub(crate) fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&self.catalogue.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_catalogue(&self, catalogue: &Arc<Catalogue>) {
        *self.catalogue.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(catalogue);
    }
}

/// Called once, from the store's own threads, when the disk failed: the process has to end, because
/// what was not acknowledged may or may not be on disk.
pub type OnFatal = Box<dyn Fn(&str) + Send + Sync>;

impl Store {
    /// Opens the store in a directory and starts its threads and, on the current tokio runtime, its
    /// ticks.
    ///
    /// # Errors
    /// When the directory is in use, damaged, or cannot be read or written.
    pub fn open(config: Config, on_fatal: OnFatal) -> Result<Self, OpenError> {
        let directory = config.directory.clone();
        Self::open_inner(config, on_fatal).map_err(|reason| OpenError { directory, reason })
    }

    fn open_inner(config: Config, on_fatal: OnFatal) -> Result<Self, String> {
        let disk = FileDisk::open(&config.directory).map_err(|e| e.to_string())?;
        let log_disk: Arc<dyn Disk> =
            Arc::new(disk.subdirectory("log").map_err(|e| e.to_string())?);
        let mut log = Log::open(log_disk, LogOptions::default()).map_err(|e| e.to_string())?;
        let storage: Arc<dyn Storage> = Arc::new(
            FjallStorage::open(&config.directory.join("state")).map_err(|e| e.to_string())?,
        );
        let mut machine = Machine::open(&*storage.view()).map_err(|e| e.to_string())?;
        replay(&mut log, &mut machine, &*storage)?;

        let shared = Arc::new(Shared {
            storage,
            catalogue: RwLock::new(Arc::clone(machine.catalogue())),
            clock: Clock::starting_at(machine.now()),
            traffic: Traffic::default(),
            token_key: TokenKey::open(&config.directory)?,
            region: config.region,
            account: config.account,
        });
        let (proposals, waiting) = mpsc::channel(PROPOSALS_MAX);
        let on_fatal: Arc<dyn Fn(&str) + Send + Sync> = Arc::from(on_fatal);
        let next_index = machine.applied_index() + 1;
        let (applier, persisted) =
            applier::start(machine, Arc::clone(&shared), Arc::clone(&on_fatal))
                .map_err(|e| e.to_string())?;
        let committer = committer::Committer {
            log,
            disk,
            next_index,
            waiting,
            applier,
            persisted,
            shared: Arc::clone(&shared),
            on_fatal,
        };
        committer.start().map_err(|e| e.to_string())?;
        let store = Self { proposals, shared };
        let weak = WeakStore {
            proposals: store.proposals.downgrade(),
            shared: Arc::downgrade(&store.shared),
        };
        tokio::spawn(ticks::run(weak));
        Ok(store)
    }

    /// Store time.
    #[must_use]
    pub fn now(&self) -> EpochMillis {
        self.shared.now()
    }

    /// The store's clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// What requests ask of each partition.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.shared.traffic
    }

    /// The key of the texts that this store gives out and takes back.
    #[must_use]
    pub fn token_key(&self) -> &TokenKey {
        &self.shared.token_key
    }

    /// The Region in ARNs.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.shared.region
    }

    /// The account in ARNs.
    #[must_use]
    pub fn account(&self) -> &str {
        &self.shared.account
    }

    /// The tables as of the last applied entry.
    #[must_use]
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.shared.catalogue()
    }

    /// A consistent view that shows every acknowledged write.
    #[must_use]
    pub fn view(&self) -> Box<dyn View + Send + Sync> {
        self.shared.storage.view()
    }

    /// Carries out commands, in order, in one log entry. Returns when they are durable and applied,
    /// with one reply for each.
    ///
    /// # Errors
    /// When the store stops; the commands may or may not have been carried out.
    pub async fn submit(&self, commands: Vec<Command>) -> Result<Vec<Reply>, Unavailable> {
        let stopped = || Unavailable("it is stopping".to_owned());
        let (sender, receiver) = oneshot::channel();
        let proposal = Proposal { commands, replies: sender };
        self.proposals.send(proposal).await.map_err(|_| stopped())?;
        receiver.await.map_err(|_| stopped())
    }

    /// Deletes every item that has expired by now and gives how many delete commands that took.
    ///
    /// # Errors
    /// When the store stops.
    pub async fn sweep_time_to_live(&self) -> Result<u64, Unavailable> {
        ticks::sweep(self, usize::MAX).await
    }
}

/// Applies the log entries that the storage does not contain yet.
fn replay(log: &mut Log, machine: &mut Machine, storage: &dyn Storage) -> Result<(), String> {
    let applied = machine.applied_index();
    let (first, last) = (log.first_index(), log.last_index());
    if last < applied || first > applied + 1 {
        return Err(format!(
            "the log holds entries {first} to {last}, but the state was applied up to {applied}: \
             the two do not belong together; restore both from the same copy"
        ));
    }
    let entries = log.read(applied + 1, last + 1).map_err(|e| e.to_string())?;
    for entry in entries {
        let entry = entry.map_err(|e| e.to_string())?;
        let commands = decode_entry(&entry.payload).map_err(|e| e.to_string())?;
        let (batch, _) =
            machine.apply(&*storage.view(), entry.index, commands).map_err(|e| e.to_string())?;
        storage.apply(batch).map_err(|e| e.to_string())?;
    }
    Ok(())
}
