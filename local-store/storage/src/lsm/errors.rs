//! The tree's errors, by what to do about them.

use std::io;
use std::path::Path;

use super::queue;
use crate::disk::descriptors;
use crate::error::Error;

pub(super) fn io_error(operation: &'static str, path: &Path, source: &io::Error) -> Error {
    let remedy =
        if is_full(source) { "; free some space: the log has what was acknowledged" } else { "" };
    let reason = format!("{source}{remedy}");
    Error::Io { path: path.display().to_string(), operation, reason }
}

/// Whether no descriptor was left for a file.
pub(super) fn is_exhausted(error: &lsm_tree::Error) -> bool {
    matches!(error, lsm_tree::Error::Io(source) if descriptors::is_exhausted(source))
}

/// Whether what was begun can be begun again: the process was out of something that comes back.
pub(super) fn is_passing(error: &lsm_tree::Error) -> bool {
    matches!(error, lsm_tree::Error::Io(source) if descriptors::is_passing(source))
}

/// The code of an error of the disk itself, as Linux and macOS number it: `EIO`.
const DISK_ERROR: i32 = 5;

/// Whether the disk itself failed.
pub(super) fn is_of_disk(error: &io::Error) -> bool {
    error.raw_os_error() == Some(DISK_ERROR)
}

/// Whether there was no room on the disk.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Sorts the tree's errors by what to do about them.
pub(super) fn sort(operation: &'static str, path: &Path, error: lsm_tree::Error) -> Error {
    match error {
        lsm_tree::Error::Io(source) if queue::is_damage(&source) => corrupt(path, &source),
        lsm_tree::Error::Io(source) => io_error(operation, path, &source),
        other => corrupt(path, &other),
    }
}

/// The same for a tree that is opened: files that are missing, or end too early, are damage as much as
/// those with wrong bytes. A table that is empty is one in which the tree seeks before its beginning.
pub(super) fn sort_opening(path: &Path, error: lsm_tree::Error) -> Error {
    match &error {
        lsm_tree::Error::Io(source)
            if matches!(
                source.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::InvalidInput
                    | io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::InvalidData
            ) =>
        {
            corrupt(path, &error)
        }
        _ => sort("open", path, error),
    }
}

pub(super) fn corrupt(path: &Path, error: &dyn std::error::Error) -> Error {
    Error::Corrupt { path: path.display().to_string(), reason: error.to_string() }
}
