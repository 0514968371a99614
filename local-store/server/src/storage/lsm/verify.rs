//! Reads files that are on disk and compares them with their checksums, file by file, past the block
//! cache: what is verified displaces nothing that requests read.

use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;

use lsm_tree::AbstractTree;
use xxhash_rust::xxh3::Xxh3Default;

use super::super::{Pace, StoredFile};
use super::State;
use super::queue::damaged;
use crate::disk::descriptors::wait_for_one;

/// Bytes that are read between two calls of the pace: less than a millisecond of a disk's time.
const PIECE_BYTES: usize = 128 * 1024;

/// Verifies the file behind `after`. See [`super::super::Storage::verify_next`].
pub(super) fn verify_next(
    state: &State,
    after: Option<StoredFile>,
    pace: &mut Pace<'_>,
) -> Result<Option<StoredFile>, lsm_tree::Error> {
    let last_table = match after {
        Some(StoredFile::Rows(_)) => Some(u64::MAX),
        Some(StoredFile::Table(id)) => Some(id),
        None => None,
    };
    let version = state.tree.current_version();
    let behind = version.iter_tables().filter(|table| Some(table.id()) > last_table);
    let next = behind.min_by_key(|table| table.id()).cloned();
    drop(version);
    if let Some(table) = next {
        // The table keeps its file, also when a merge replaces it meanwhile.
        verify_table(&table.path, table.checksum().into_u128(), pace)?;
        return Ok(Some(StoredFile::Table(table.id())));
    }
    let last_file = match after {
        Some(StoredFile::Rows(number)) => Some(number),
        _ => None,
    };
    let queues = state.moments().now().queues.clone();
    let verified = queues.verify_next(last_file, pace)?;
    Ok(verified.map(StoredFile::Rows))
}

fn verify_table(path: &Path, expected: u128, pace: &mut Pace<'_>) -> io::Result<()> {
    let mut file = wait_for_one(|| File::open(path))?;
    let mut hasher = Xxh3Default::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = file.read(&mut piece)?;
        let Some(bytes) = piece.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
        hasher.update(bytes);
        if pace(read) == ControlFlow::Break(()) {
            return Ok(());
        }
    }
    if hasher.digest128() == expected {
        return Ok(());
    }
    Err(damaged(path, "the table has another checksum than the list of tables says"))
}
