//! The handover of a store to another endpoint, to which its items were copied. Afterwards the store
//! answers reads, and refuses writes of items and changes of tables, also after a restart.
//!
//! A file in the data directory has the new endpoint. The operator ends the handover: stops the store,
//! removes the file, and starts the store again. This module copies nothing; `weir copy` does that.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use partition::{Command, read_incomplete, read_prepared_heads};
use thiserror::Error;
use tokio::sync::{RwLock, RwLockReadGuard};

use super::{Problem, Store, Unavailable};
use crate::fatal::fatal;

/// The name of the file in the data directory that contains the new endpoint.
const FILE: &str = "handover";
/// The maximum time until the writes in flight have ended. It is longer than the time-out of a request,
/// and than the recovery of a transaction whose coordinator was lost.
const WRITES_END_MAX: Duration = Duration::from_secs(60);
/// The pause between two checks for unfinished transactions.
const TRANSACTIONS_PAUSE: Duration = Duration::from_millis(50);

/// A permit for one write: while it exists, no handover is completed.
pub(crate) type WritePermit<'h> = RwLockReadGuard<'h, Option<String>>;

/// The reason why a write is refused: it was not executed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("this store refuses writes, because it was copied to `{0}`; send the request there")]
pub(crate) struct HandedOver(pub(crate) String);

/// The reason why a handover failed. The store accepts writes, unless it was handed over before.
#[derive(Debug, Error)]
pub(crate) enum HandoverError {
    /// The store has other processes, whose writes this process cannot stop.
    #[error("this store has nodes in other processes")]
    OtherProcesses,
    /// The store was handed over to another endpoint.
    #[error("{0}")]
    Before(HandedOver),
    /// Writes in flight did not end in time, or it is unknown whether they were executed.
    #[error("the writes in flight did not end: {0}")]
    InFlight(String),
    /// The file cannot be written.
    #[error("cannot write `{}`: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
}

/// The state of the handover, and the permits of the writes in flight.
#[derive(Default)]
pub(crate) struct Handover {
    /// The file with the new endpoint; `None` if the store has other processes.
    file: Option<PathBuf>,
    /// The new endpoint; `None` while the store accepts writes. Each write holds the lock for reading, so
    /// that the lock for writing waits for all writes in flight, and later writes wait for the handover.
    to: RwLock<Option<String>>,
}

impl Handover {
    /// Reads the state of a store whose nodes are all in this process.
    ///
    /// # Errors
    /// The file exists, but cannot be read.
    pub(super) fn open(directory: &Path) -> Result<Self, Problem> {
        let file = directory.join(FILE);
        let to = match fs::read_to_string(&file) {
            Ok(text) => Some(text.trim().to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(fatal!("cannot read `{}`: {error}", file.display()).into()),
        };
        if let Some(to) = &to {
            let file = file.display();
            tracing::warn!(
                "the store refuses writes, because it was copied to `{to}`; to accept writes again, stop the store and remove `{file}`"
            );
        }
        Ok(Self { file: Some(file), to: RwLock::new(to) })
    }

    /// Waits while a handover is in progress, and permits a write.
    ///
    /// # Errors
    /// The store was handed over.
    pub(crate) async fn permit_write(&self) -> Result<WritePermit<'_>, HandedOver> {
        let permit = self.to.read().await;
        match &*permit {
            None => Ok(permit),
            Some(to) => Err(HandedOver(to.clone())),
        }
    }
}

impl Store {
    /// Returns the state of the handover.
    pub(crate) fn handover(&self) -> &Handover {
        &self.shared.handover
    }

    /// Returns the endpoint to which the store was handed over; `None` if it accepts writes.
    ///
    /// # Errors
    /// The store has other processes.
    pub(crate) async fn handed_over_to(&self) -> Result<Option<String>, HandoverError> {
        let Handover { file, to } = self.handover();
        file.as_ref().ok_or(HandoverError::OtherProcesses)?;
        Ok(to.read().await.clone())
    }

    /// Waits until the writes in flight have ended, and then refuses all writes permanently. Writes that
    /// arrive meanwhile wait, and are refused. Does nothing if the store was handed over to `endpoint`
    /// before.
    ///
    /// # Errors
    /// See [`HandoverError`].
    pub(crate) async fn hand_over(&self, endpoint: &str) -> Result<(), HandoverError> {
        let Handover { file, to } = self.handover();
        let path = file.as_ref().ok_or(HandoverError::OtherProcesses)?;
        let ended = tokio::time::timeout(WRITES_END_MAX, async {
            let to = to.write().await;
            self.finish_commands().await?;
            Ok::<_, Unavailable>(to)
        });
        let too_long = |_| HandoverError::InFlight("they took too long".to_owned());
        let ended = ended.await.map_err(too_long)?;
        let mut to = ended.map_err(|error| HandoverError::InFlight(error.to_string()))?;
        match &*to {
            Some(before) if before == endpoint => return Ok(()),
            Some(before) => return Err(HandoverError::Before(HandedOver(before.clone()))),
            None => {}
        }
        write(path, endpoint).map_err(|error| HandoverError::File { path: path.clone(), error })?;
        *to = Some(endpoint.to_owned());
        tracing::warn!(
            "the store refuses writes from now on, because it was copied to `{endpoint}`"
        );
        Ok(())
    }

    /// Waits until every command is applied whose request ended without a known result, and until every
    /// transaction over several arcs is finished.
    async fn finish_commands(&self) -> Result<(), Unavailable> {
        for arc in self.arcs() {
            // A group applies its commands in order, so the earlier ones are applied before this one.
            self.group(arc).submit(vec![Command::ForgetTokens]).await?;
        }
        while self.has_unfinished_transactions().await? {
            tokio::time::sleep(TRANSACTIONS_PAUSE).await;
        }
        Ok(())
    }

    async fn has_unfinished_transactions(&self) -> Result<bool, Unavailable> {
        let store = self.up_to_date().await?;
        for arc in store.arcs() {
            let prepared = store.read_arc(arc, read_prepared_heads).await?;
            if !prepared.is_empty() || !store.read_arc(arc, read_incomplete).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Writes the endpoint to the file durably.
fn write(path: &Path, endpoint: &str) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = File::create(&fresh)?;
    file.write_all(endpoint.as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(fresh, path)?;
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}
