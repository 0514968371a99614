//! What can go wrong with the state, by what the caller has to do about it.

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
    /// The batch breaks the contract, which is a defect of whoever made it. Nothing was applied.
    #[error("the batch cannot be applied: {0}")]
    Batch(String),
    /// The files contradict themselves. Stop this node and rebuild it from another one or from a
    /// backup; never guess.
    #[error("the storage in `{path}` is corrupt: {reason}")]
    Corrupt {
        /// The storage's directory.
        path: String,
        /// What the engine found.
        reason: String,
    },
    /// The disk failed, or had failed before. End the process and recover: the log holds what is
    /// missing here.
    #[error("cannot {operation} the storage in `{path}`: {reason}; restart to recover")]
    Io {
        /// The storage's directory.
        path: String,
        /// What was tried: open, write to, persist.
        operation: &'static str,
        /// What the engine said.
        reason: String,
    },
}

impl Error {
    /// True when the process must end.
    pub fn is_fatal(&self) -> bool {
        match self {
            Error::Batch(_) => false,
            Error::InUse { .. } | Error::Corrupt { .. } | Error::Io { .. } => true,
        }
    }
}
