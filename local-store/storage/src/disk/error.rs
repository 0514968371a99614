//! Errors of a disk, classified by what the caller must do.
//!
//! A disk does not detect damaged bytes, because only the reader of a file can verify them.

use std::fmt;
use std::io;

/// The kind of an error: what the caller must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// No space is left: reject this write, continue to read, and retry when there is space, as the
    /// log does. The tables of a state are not written through this module; for them, a full disk
    /// ends the process.
    OutOfSpace,
    /// Another process uses this directory: do not start.
    InUse,
    /// The name does not exist, or the name exists although it must be new.
    Name,
    /// A sync failed: all bytes written since the last successful sync may be lost, and no later
    /// sync can detect the loss. Do not acknowledge pending writes and do not retry. End the
    /// process and recover from the disk.
    SyncFailed,
    /// Any other failed read or write: end the process.
    Io,
}

/// The call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A call of [`super::Disk::create`].
    Create,
    /// A call of [`super::Disk::open`].
    Open,
    /// A call of [`super::Disk::list`].
    List,
    /// A call of [`super::Disk::rename`].
    Rename,
    /// A call of [`super::Disk::remove`].
    Remove,
    /// A call of [`super::Disk::sync_directory`].
    SyncDirectory,
    /// A call of [`super::DiskFile::size_bytes`].
    Size,
    /// A call of [`super::DiskFile::read_at`].
    Read,
    /// A call of [`super::DiskFile::write_at`].
    Write,
    /// A call of [`super::DiskFile::sync_data`].
    SyncData,
    /// Acquiring the exclusive lock of a data directory.
    Lock,
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Operation::Create => "create",
            Operation::Open => "open",
            Operation::List => "list",
            Operation::Rename => "rename",
            Operation::Remove => "remove",
            Operation::SyncDirectory => "sync directory",
            Operation::Size => "read size of",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::SyncData => "sync",
            Operation::Lock => "lock",
        })
    }
}

/// A failed disk operation.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} `{file}`: {source}{}", remedy(*.kind))]
pub struct Error {
    /// What the caller must do.
    pub kind: ErrorKind,
    /// The operation that failed.
    pub operation: Operation,
    /// The file or directory of the operation.
    pub file: String,
    /// The error of the operating system.
    pub source: io::Error,
}

impl Error {
    /// Creates an error, and determines its kind from the error of the operating system.
    pub fn new(operation: Operation, file: impl Into<String>, source: io::Error) -> Self {
        let kind = match (operation, source.kind()) {
            (Operation::SyncData | Operation::SyncDirectory, _) => ErrorKind::SyncFailed,
            (_, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => ErrorKind::OutOfSpace,
            (_, io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => ErrorKind::Name,
            _ => ErrorKind::Io,
        };
        Error { kind, operation, file: file.into(), source }
    }

    /// Returns whether the process must end without acknowledging any pending write.
    pub fn is_fatal(&self) -> bool {
        match self.kind {
            ErrorKind::SyncFailed | ErrorKind::Io => true,
            ErrorKind::OutOfSpace | ErrorKind::InUse | ErrorKind::Name => false,
        }
    }
}

impl From<Error> for io::Error {
    /// Returns the error of the operating system, without the name of the file.
    fn from(error: Error) -> Self {
        error.source
    }
}

fn remedy(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::OutOfSpace => "; the write was rejected and no data is lost; free disk space",
        ErrorKind::InUse => "; stop the other process or choose another data directory",
        ErrorKind::SyncFailed => "; unsynced writes may be lost; restart the process to recover",
        ErrorKind::Name | ErrorKind::Io => "",
    }
}
