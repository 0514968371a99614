//! Which failed reads of the log are damage of the disk.

use std::io;

use storage::log;

/// The error code of a failed disk, `EIO`, which is the same on Linux and macOS.
const DISK_ERROR: i32 = 5;

/// Returns whether a read failed because the disk is damaged: it returned an I/O error or wrong
/// bytes.
pub(super) fn is_damage(error: &io::Error) -> bool {
    match error.get_ref().and_then(|source| source.downcast_ref::<log::Error>()) {
        Some(log::Error::Disk(disk)) => disk.source.raw_os_error() == Some(DISK_ERROR),
        Some(log::Error::Corrupt { .. }) | None => true,
        Some(_) => false,
    }
}

pub(super) fn cannot_be_read(error: &io::Error) -> String {
    format!("the log cannot be read: {error}")
}
