//! The group of an arc, as this process reaches it: through a replica of its own, or at other nodes.

use std::sync::Arc;

use futures::FutureExt as _;
use partition::{Catalogue, Command, Reply};

use node::remote::RemoteGroup;
use node::{Node, SubmitError};

/// The group of an arc.
#[derive(Clone)]
pub(crate) enum Group {
    /// This process has a replica.
    Here(Node),
    /// Only other processes have replicas.
    Elsewhere(Arc<RemoteGroup>),
}

impl Group {
    /// Applies commands, in order, in one log entry of the group.
    ///
    /// # Errors
    /// See [`SubmitError`]; a time-out is [`SubmitError::Unknown`].
    pub(crate) async fn submit(&self, commands: Vec<Command>) -> Result<Vec<Reply>, SubmitError> {
        match self {
            Self::Here(node) => node.submit(commands).await,
            // Boxed, so that the futures of requests that need no other process stay small.
            Self::Elsewhere(remote) => remote.submit(commands).boxed().await,
        }
    }

    /// Returns the tables of the group as far as this process knows them.
    pub(crate) fn catalogue(&self) -> Arc<Catalogue> {
        match self {
            Self::Here(node) => node.catalogue(),
            Self::Elsewhere(remote) => remote.catalogue(),
        }
    }

    /// Brings [`Group::catalogue`] up to date with the answers that this process has seen.
    ///
    /// # Errors
    /// When no replica answers in time.
    pub(crate) async fn follow(&self) -> Result<(), SubmitError> {
        match self {
            Self::Here(_) => Ok(()),
            Self::Elsewhere(remote) => remote.refresh(false).boxed().await,
        }
    }

    /// Waits until later reads of the group show every write that was acknowledged before the call, and
    /// [`Group::catalogue`] shows every change of a table.
    ///
    /// # Errors
    /// When no majority of the group answers in time.
    pub(crate) async fn read_index(&self) -> Result<(), SubmitError> {
        match self {
            Self::Here(node) => node.read_index().await,
            Self::Elsewhere(remote) => remote.refresh(true).boxed().await,
        }
    }
}
