//! Files for rows that are only appended at the end of a queue and removed from its front, such as
//! the records of a stream. They are never merged with other rows. A row is written only once,
//! unless its file is small or there are very many rows (`flush`).
//!
//! A flush of a table in memory writes its rows of queues into one file (`file`). The tree stores
//! which files are valid and which of their rows are removed (`listing`), and changes both
//! atomically with the table's other rows. A file that the tree does not list is incomplete or no
//! longer needed.
//!
//! Keys may be put, replaced and deleted in any order, but only appending at the end and deleting
//! from the front is fast. An existing key has exactly one row in all files, because a row that is
//! replaced or deleted is marked as removed.
//!
//! This module does not depend on the tables in memory, and does not decide when they are flushed.

mod cursor;
mod file;
mod flush;
mod listing;
mod removed_rows;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use partition::Value;

pub(super) use self::cursor::Rows;
use self::file::{Block, QueueFile, name_of};
pub(super) use self::flush::QueueFlush;
pub(super) use self::listing::Listing;
use self::removed_rows::RemovedRows;
use super::folder::Folder;
use crate::engine::Pace;

/// The name of the folder of the files, in the storage's folder.
pub(super) const FOLDER: &str = "queues";

/// A description of damage in a file, which becomes the source of an `io::Error`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Damage(String);

/// Creates an error about damage.
pub(super) fn damaged(path: &Path, reason: &str) -> io::Error {
    io::Error::other(Damage(format!("{}: {reason}", path.display())))
}

/// Returns whether an error was caused by damage.
pub(super) fn is_damage(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|source| source.is::<Damage>())
}

/// A queue file, and its removed rows.
#[derive(Clone)]
struct Queue {
    file: Arc<QueueFile>,
    removed: RemovedRows,
}

impl Queue {
    fn live_rows(&self) -> u32 {
        self.file.rows().saturating_sub(self.removed.count())
    }

    /// Returns the total size in bytes of the blocks that have existing rows.
    fn live_bytes(&self) -> u64 {
        let has_any = |places: &Range<u32>| !self.removed.contains_all(places.start, places.end);
        let blocks = self.file.blocks().iter().filter(|block| has_any(&block.places()));
        blocks.map(Block::bytes).sum()
    }

    fn listing(&self) -> Listing {
        Listing {
            salt: self.file.salt(),
            bytes: self.file.bytes(),
            checksum: self.file.checksum(),
            removed: self.removed.ranges().to_vec(),
        }
    }
}

/// An immutable set of all files. A view keeps the set that was current when it was opened.
#[derive(Clone)]
pub(super) struct Queues {
    queues: Vec<Queue>,
    /// The number that the next new file will get.
    next: u64,
}

impl Default for Queues {
    fn default() -> Self {
        Self { queues: Vec::new(), next: 1 }
    }
}

impl Queues {
    /// Opens the listed files, and removes all other files.
    ///
    /// # Errors
    /// When a file cannot be read, is missing or differs from its listing.
    pub(super) fn open(folder: &Arc<Folder>, listed: Vec<(u64, Listing)>) -> io::Result<Self> {
        let names: BTreeSet<String> =
            listed.iter().map(|(number, listing)| name_of(*number, listing.salt)).collect();
        for name in folder.list()?.iter().filter(|name| !names.contains(*name)) {
            // The last reader of a closed storage may have removed the file in the meantime.
            folder.remove(name)?;
        }
        let next = listed.iter().map(|(number, _)| *number).max().map_or(1, |last| last + 1);
        let queue = |(number, listing): (u64, Listing)| {
            let file = QueueFile::open(folder, number, &listing)?;
            Ok(Queue { file: Arc::new(file), removed: RemovedRows::from_ranges(listing.removed) })
        };
        Ok(Self { queues: listed.into_iter().map(queue).collect::<io::Result<_>>()?, next })
    }

    /// Returns the value under a key.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn get(&self, key: &[u8]) -> io::Result<Option<Value>> {
        let end = [key, &[0]].concat();
        let rows = self.scan(key, &end, false)?;
        Ok(rows.row().map(|(_, value)| Value::from(value)))
    }

    /// Verifies the file with the lowest number above `after`, and returns that number; `None`
    /// after the last file.
    ///
    /// # Errors
    /// When the file cannot be read, or is damaged.
    pub(super) fn verify_next(
        &self,
        after: Option<u64>,
        pace: &mut Pace<'_>,
    ) -> io::Result<Option<u64>> {
        let files = self.queues.iter().map(|queue| &queue.file);
        let behind = files.filter(|file| Some(file.number()) > after);
        let Some(file) = behind.min_by_key(|file| file.number()) else { return Ok(None) };
        file.verify(pace)?;
        Ok(Some(file.number()))
    }

    /// Returns the total size of all files in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.queues.iter().map(|queue| queue.file.bytes()).sum()
    }

    /// Returns the rows from `from` (inclusive) to `to` (exclusive), with the first row already
    /// read.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn scan(&self, from: &[u8], to: &[u8], reverse: bool) -> io::Result<Rows> {
        Rows::new(&self.queues, from, to, reverse)
    }
}
