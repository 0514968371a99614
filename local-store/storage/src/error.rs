//! Errors of the state, classified by what the caller must do.

/// A failed storage operation.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Another process has the storage open: do not start.
    #[error(
        "another process has the storage in `{path}` open; stop it or choose another data directory"
    )]
    InUse {
        /// The storage's directory.
        path: String,
    },
    /// The batch violates the contract, which is a bug in its creator. Nothing was applied.
    #[error("the batch cannot be applied: {0}")]
    Batch(String),
    /// The files are inconsistent. Stop this node, and rebuild it from another node or restore it
    /// from a backup.
    #[error("the storage in `{path}` is corrupt: {reason}")]
    Corrupt {
        /// The storage's directory.
        path: String,
        /// The inconsistency that the engine found.
        reason: String,
    },
    /// The disk failed in this operation or an earlier one. End the process and recover: the log
    /// has the entries of the missing batches.
    #[error("cannot {operation} the storage in `{path}`: {reason}; restart the process to recover")]
    Io {
        /// The storage's directory.
        path: String,
        /// The operation that failed: open, write to, persist.
        operation: &'static str,
        /// The engine's error message.
        reason: String,
    },
}

impl Error {
    /// Returns whether the process must end.
    pub fn is_fatal(&self) -> bool {
        match self {
            Error::Batch(_) => false,
            Error::InUse { .. } | Error::Corrupt { .. } | Error::Io { .. } => true,
        }
    }
}
