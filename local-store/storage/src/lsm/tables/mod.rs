//! The tables of a storage on disk: those of lsm-tree, or simulated ones.
//!
//! The enum is matched once per read, flush or merge, not once per row of a block.

mod lsm;
mod simulated;
mod simulated_file;

use std::io;
use std::path::Path;
use std::sync::MutexGuard;

use lsm_tree::{AbstractTree, Guard, InternalValue, IterGuardImpl, SeqNo, Slice};
use partition::Value;

pub(super) use self::lsm::{LEVELS, LsmTables, open_tree};
pub(super) use self::simulated::{SimulatedRows, SimulatedTables};
use super::view::KeyRange;
use crate::engine::Pace;

/// The tables of a storage on disk.
pub(super) enum Tables {
    /// The tables of lsm-tree in a directory.
    Lsm(LsmTables),
    /// Tables on a simulated disk.
    Simulated(SimulatedTables),
}

/// The rows of a range, from one of its ends.
pub(super) enum TableRows {
    Lsm(Box<dyn DoubleEndedIterator<Item = IterGuardImpl> + Send>),
    Simulated(SimulatedRows),
}

impl TableRows {
    /// Returns the next row. All calls must have the same direction.
    pub(super) fn next(
        &mut self,
        reverse: bool,
    ) -> Option<Result<(Slice, Slice), lsm_tree::Error>> {
        match self {
            Self::Lsm(rows) => {
                let next = if reverse { rows.next_back() } else { rows.next() };
                next.map(IterGuardImpl::into_inner)
            }
            Self::Simulated(rows) => Some(rows.next(reverse)?.map_err(Into::into)),
        }
    }
}

impl Tables {
    /// Returns the newest value of a key with a number below `below`.
    pub(super) fn get(&self, key: &[u8], below: SeqNo) -> Result<Option<Value>, lsm_tree::Error> {
        match self {
            Self::Lsm(tables) => Ok(tables.tree.get(key, below)?.map(|value| Value::from(&*value))),
            Self::Simulated(tables) => Ok(tables.get(key, below)?),
        }
    }

    /// Returns the newest rows of a range with numbers below `below`.
    pub(super) fn range(&self, range: KeyRange<'_>, below: SeqNo) -> TableRows {
        match self {
            Self::Lsm(tables) => TableRows::Lsm(tables.tree.range::<&[u8], _>(range, below, None)),
            Self::Simulated(tables) => TableRows::Simulated(tables.range(range, below)),
        }
    }

    /// Returns the highest number of a row, or `None` if there are no rows.
    pub(super) fn highest_number(&self) -> Option<SeqNo> {
        match self {
            Self::Lsm(tables) => tables.tree.get_highest_persisted_seqno(),
            Self::Simulated(tables) => tables.highest_number(),
        }
    }

    /// Acquires the lock that a flush holds.
    pub(super) fn lock_flush(&self) -> MutexGuard<'_, ()> {
        match self {
            Self::Lsm(tables) => tables.tree.get_flush_lock(),
            Self::Simulated(tables) => tables.lock_flush(),
        }
    }

    /// Writes rows into new tables, syncs them, and makes them valid. The caller holds the flush
    /// lock. The rows must be ordered by key, then the newest version first. No view of the batches
    /// below `oldest` is open.
    pub(super) fn flush(
        &self,
        rows: impl Iterator<Item = InternalValue>,
        oldest: SeqNo,
    ) -> Result<(), lsm_tree::Error> {
        match self {
            Self::Lsm(tables) => {
                if let Some((new, _)) = tables.tree.flush_to_tables(&mut rows.map(Ok))? {
                    tables.tree.register_tables(&new, None, None, &[], oldest)?;
                }
                Ok(())
            }
            Self::Simulated(tables) => Ok(tables.flush(rows)?),
        }
    }

    /// Merges some tables. Returns whether a merge was possible. `oldest` returns the lowest number
    /// that an open or later view can have.
    pub(super) fn merge_once(
        &self,
        oldest: impl Fn() -> SeqNo,
        path: &Path,
    ) -> Result<bool, lsm_tree::Error> {
        match self {
            Self::Lsm(tables) => tables.merge_once(oldest, path),
            Self::Simulated(tables) => Ok(tables.merge_many(oldest())?),
        }
    }

    /// Merges all tables.
    pub(super) fn merge_all(&self, oldest: SeqNo) -> Result<(), lsm_tree::Error> {
        match self {
            Self::Lsm(tables) => tables.merge_all(oldest),
            Self::Simulated(tables) => Ok(tables.merge_all(oldest)?),
        }
    }

    /// Returns the number of tables.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Lsm(tables) => tables.tree.table_count(),
            Self::Simulated(tables) => tables.count(),
        }
    }

    /// Returns the number of runs in the newest level, which writers wait for if it is too high.
    pub(super) fn run_count(&self) -> usize {
        match self {
            Self::Lsm(tables) => tables.tree.l0_run_count(),
            Self::Simulated(tables) => tables.count(),
        }
    }

    /// Returns the numbers of deleted rows and of all rows, approximately.
    pub(super) fn row_counts(&self) -> (u64, u64) {
        match self {
            Self::Lsm(tables) => {
                (tables.tree.tombstone_count(), tables.tree.approximate_len() as u64)
            }
            Self::Simulated(tables) => tables.row_counts(),
        }
    }

    /// Returns the total size of all tables in bytes.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Lsm(tables) => tables.tree.disk_space(),
            Self::Simulated(tables) => tables.bytes(),
        }
    }

    /// Verifies the table with the lowest id above `after`, and returns that id; `None` after the
    /// last table.
    pub(super) fn verify_next(
        &self,
        after: Option<u64>,
        pace: &mut Pace<'_>,
    ) -> io::Result<Option<u64>> {
        match self {
            Self::Lsm(tables) => tables.verify_next(after, pace),
            Self::Simulated(tables) => tables.verify_next(after, pace),
        }
    }
}
