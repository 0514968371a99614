//! Errors of the tree, classified by what the caller must do.

use std::io;
use std::path::Path;

use super::queue;
use crate::disk::descriptors;
use crate::error::Error;

pub(super) fn io_error(operation: &'static str, path: &Path, source: &io::Error) -> Error {
    let remedy =
        if is_full(source) { "; no acknowledged write is lost; free disk space" } else { "" };
    let reason = format!("{source}{remedy}");
    Error::Io { path: path.display().to_string(), operation, reason }
}

/// Returns whether the operation failed for lack of a file descriptor.
pub(super) fn is_exhausted(error: &lsm_tree::Error) -> bool {
    matches!(error, lsm_tree::Error::Io(source) if descriptors::is_exhausted(source))
}

/// Returns whether the operation can be retried, because it failed for lack of a temporary
/// resource.
pub(super) fn is_passing(error: &lsm_tree::Error) -> bool {
    matches!(error, lsm_tree::Error::Io(source) if descriptors::is_passing(source))
}

/// The error code of a failed disk, `EIO`, which is the same on Linux and macOS.
const DISK_ERROR: i32 = 5;

/// Returns whether the error is a failure of the disk itself.
pub(super) fn is_of_disk(error: &io::Error) -> bool {
    error.raw_os_error() == Some(DISK_ERROR)
}

/// Returns whether the error is that the disk is full.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Classifies an error of the tree by what the caller must do.
pub(super) fn sort(operation: &'static str, path: &Path, error: lsm_tree::Error) -> Error {
    match error {
        lsm_tree::Error::Io(source) if queue::is_damage(&source) => corrupt(path, &source),
        lsm_tree::Error::Io(source) => io_error(operation, path, &source),
        other => corrupt(path, &other),
    }
}

/// Classifies an error of a tree that is being opened. Missing or truncated files count as damage,
/// like wrong bytes. An empty table file causes the error `InvalidInput`, because the tree seeks to
/// a position before the beginning of the file.
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
