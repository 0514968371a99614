//! Errors of a node: a request without a reply, a node that cannot start, and a membership that
//! cannot be changed.

use std::io;

use openraft::ConfigError;
use openraft::errors::{ClientWriteError, Fatal, InitializeError, RaftError};
use thiserror::Error;

use crate::ring::ArcId;
use crate::types::{NodeId, TypeConfig, slot_of};

/// The reason why a request has no reply.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SubmitError {
    /// The request was not applied and never will be: retry it.
    #[error("the request was not applied: {0}")]
    NotDone(String),
    /// The outcome is unknown: the request may have been applied, may be applied later, or may
    /// never be applied.
    #[error("the outcome of the request is unknown: {0}")]
    Unknown(String),
}

/// The reason why a node cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The log or the state cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The state lacks entries that the log has purged: rebuild the node from another node.
    #[error(
        "the state of {arc} lacks the entries {from} to {upto}, which were purged from its log"
    )]
    MissingEntries {
        /// The arc of the state.
        arc: ArcId,
        /// The index of the first missing entry.
        from: u64,
        /// The index of the last missing entry.
        upto: u64,
    },
    /// The settings contradict each other.
    #[error(transparent)]
    Settings(#[from] ConfigError),
    /// The consensus library has stopped.
    #[error(transparent)]
    Stopped(#[from] Fatal<TypeConfig>),
}

/// The reason why the membership of a group was not changed.
#[derive(Debug, Error)]
pub enum MembershipError {
    /// The node has stopped.
    #[error(transparent)]
    Stopped(#[from] Fatal<TypeConfig>),
    /// The group was not initialized.
    #[error(transparent)]
    NotInitialized(#[from] RaftError<TypeConfig, InitializeError<TypeConfig>>),
    /// A new member does not receive the state, or this node no longer leads: repeat the change.
    #[error("node {} does not have the state of the group yet", slot_of(*.0))]
    NotFilled(NodeId),
    /// The node does not lead or has stopped, or another change is in progress: repeat the change.
    #[error(transparent)]
    NotChanged(#[from] RaftError<TypeConfig, ClientWriteError<TypeConfig>>),
}
