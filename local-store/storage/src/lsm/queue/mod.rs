//! Rows that are only ever added behind others and taken away in front of them, as the records of a
//! stream: they stand in files of their own, which are never merged with other rows, and are written
//! once, but for small ones and where there are very many (`renewal`).
//!
//! A table in memory that is written to disk leaves its rows of queues in one file (`file`). Which
//! files count, and which of their rows are gone, stands in the tree (`listing`), and changes there
//! together with everything else that the table in memory had: so there is one moment at which all
//! of it is on disk. A file that the tree does not name was never finished, or is of no use any more.
//!
//! Any key may be put, put again and deleted, in any order; it is only quick for queues. What is
//! still there stands once in all files: a row that is put again or deleted is gone where it stood.
//!
//! This module knows no tables in memory, and not when they are written.

mod cursor;
mod file;
mod flush;
mod listing;
mod removed_rows;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
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
use crate::engine::Pace;

/// The folder of the files, in the storage's.
pub(super) const FOLDER: &str = "queues";

/// Something in a file that nobody has written so. It comes as the source of an `io::Error`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Damage(String);

/// An error about something that is damaged.
pub(super) fn damaged(path: &Path, reason: &str) -> io::Error {
    io::Error::other(Damage(format!("{}: {reason}", path.display())))
}

/// Whether an error is about something that is damaged.
pub(super) fn is_damage(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|source| source.is::<Damage>())
}

/// A file, and which of its rows are gone.
#[derive(Clone)]
struct Queue {
    file: Arc<QueueFile>,
    removed: RemovedRows,
}

impl Queue {
    fn live_rows(&self) -> u32 {
        self.file.rows().saturating_sub(self.removed.count())
    }

    /// Bytes of the blocks that have rows which are there.
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

/// All files at one moment. It never changes, so that views can keep it.
#[derive(Clone)]
pub(super) struct Queues {
    queues: Vec<Queue>,
    /// The number of the next file.
    next: u64,
}

impl Default for Queues {
    fn default() -> Self {
        Self { queues: Vec::new(), next: 1 }
    }
}

impl Queues {
    /// Opens the files that are listed, and removes all others.
    ///
    /// # Errors
    /// When a file cannot be read, is missing or is not the one that was listed.
    pub(super) fn open(folder: &Path, listed: Vec<(u64, Listing)>) -> io::Result<Self> {
        let names: HashSet<OsString> =
            listed.iter().map(|(number, listing)| name_of(*number, listing.salt).into()).collect();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if names.contains(&entry.file_name()) {
                continue;
            }
            match fs::remove_file(entry.path()) {
                // The last one who read it, in a storage that was closed, has just removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        let next = listed.iter().map(|(number, _)| *number).max().map_or(1, |last| last + 1);
        let queue = |(number, listing): (u64, Listing)| {
            let file = QueueFile::open(folder, number, &listing)?;
            Ok(Queue { file: Arc::new(file), removed: RemovedRows::from_ranges(listing.removed) })
        };
        Ok(Self { queues: listed.into_iter().map(queue).collect::<io::Result<_>>()?, next })
    }

    /// The value under a key.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn get(&self, key: &[u8]) -> io::Result<Option<Value>> {
        let end = [key, &[0]].concat();
        let rows = self.scan(key, &end, false)?;
        Ok(rows.row().map(|(_, value)| Value::from(value)))
    }

    /// Verifies the file with the next number behind `after`, and gives that; `None` behind the last.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
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

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.queues.iter().map(|queue| queue.file.bytes()).sum()
    }

    /// The rows from `from` (inclusive) to `to` (exclusive), the first of them at hand.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn scan(&self, from: &[u8], to: &[u8], reverse: bool) -> io::Result<Rows> {
        Rows::new(&self.queues, from, to, reverse)
    }
}
