//! Errors of the log, classified by what the caller must do.

use crate::disk;

/// A failed log operation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No space is left for another segment. Nothing was appended: reject the request, continue to
    /// read, and retry when there is space.
    #[error("cannot create the log's next segment: {0}")]
    OutOfSpace(#[source] disk::Error),
    /// The payload is larger than a record may be. Nothing was appended.
    #[error(
        "entry index=`{index}` has a payload of {payload_bytes} bytes; the log takes at most \
         {payload_bytes_max}"
    )]
    TooLarge {
        /// The entry's index.
        index: u64,
        /// The size of the payload, in bytes.
        payload_bytes: usize,
        /// The maximum size of a payload, in bytes, inclusive.
        payload_bytes_max: usize,
    },
    /// The entries do not follow the last entry of the log. Nothing was appended.
    #[error("the next entry must have index=`{expected}`, but has index=`{found}`")]
    NotContiguous {
        /// The index that the first entry must have.
        expected: u64,
        /// The index that the first entry has instead.
        found: u64,
    },
    /// The log does not contain all requested entries.
    #[error(
        "the log has the entries from=`{first}` to=`{next}` (exclusive), but the request was for from=`{from}` to=`{to}`"
    )]
    OutOfRange {
        /// The first requested index, inclusive.
        from: u64,
        /// The end of the requested range, exclusive.
        to: u64,
        /// The first index in the log, inclusive.
        first: u64,
        /// The end of the log, exclusive.
        next: u64,
    },
    /// A setting is invalid.
    #[error("{0}")]
    Options(String),
    /// The files are inconsistent: durable bytes were lost or changed. Stop this node, and rebuild
    /// it from another node or restore it from a backup.
    #[error(
        "the log is corrupt: file=`{file}` offset=`{offset}`: expected {expected}, found {found}"
    )]
    Corrupt {
        /// The file's name.
        file: String,
        /// The offset in the file, in bytes.
        offset: u64,
        /// The expected content.
        expected: String,
        /// The content found.
        found: String,
    },
    /// The files were written by another version of this program: use that version.
    #[error(
        "the log file=`{file}` has format version {found}; this program reads version {expected}"
    )]
    UnknownVersion {
        /// The file's name.
        file: String,
        /// The file's format version.
        found: u32,
        /// The format version of this program.
        expected: u32,
    },
    /// The disk failed. Entries that were appended since the last [`super::Log::sync`] may be lost:
    /// acknowledge none of these entries, end the process and recover.
    #[error("the log has stopped: {0}")]
    Disk(#[from] disk::Error),
    /// The log failed earlier and rejects changes.
    #[error("the log has stopped after an earlier error; restart the process to recover")]
    Stopped,
}

impl Error {
    /// Returns whether the process must end. If not, the failed call changed nothing and the log
    /// can be used.
    pub fn is_fatal(&self) -> bool {
        match self {
            Error::OutOfSpace(_)
            | Error::TooLarge { .. }
            | Error::NotContiguous { .. }
            | Error::OutOfRange { .. } => false,
            Error::Options(_)
            | Error::Corrupt { .. }
            | Error::UnknownVersion { .. }
            | Error::Disk(_)
            | Error::Stopped => true,
        }
    }
}
