//! The tables of lsm-tree: their options, their merges and their verification.

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use lsm_tree::compaction::Leveled;
use lsm_tree::config::PinningPolicy;
use lsm_tree::{AbstractTree, AnyTree, Config, SeqNo, SequenceNumberCounter};
use xxhash_rust::xxh3::Xxh3Default;

use super::super::maintenance::RUNS_MAX;
use super::super::queue::damaged;
use super::super::{Options, TABLES_FOLDER};
use crate::disk::descriptors::wait_for_one;
use crate::engine::Pace;

/// The number of runs at which the compaction strategy merges them. The number is a trade-off: a
/// merge rewrites the tables that overlap with the runs, but a read on disk must search each run.
/// With 10 instead of 6, batches of writes to a table with a stream or an index take a tenth less
/// CPU time, but some queries of data on disk take a seventh more.
const RUNS_TO_MERGE: u8 = 10;

/// The number of levels of the tree.
pub(in super::super) const LEVELS: usize = 7;

/// The size ratio above which deeper levels are merged before the first two. It is practically
/// unlimited, so the first two levels are always merged first.
const LEVEL_RATIO_UNLIMITED: f32 = 1e9;

/// The number of bytes that are read between two calls of `pace`. Reading them takes less than a
/// millisecond.
const PIECE_BYTES: usize = 128 * 1024;

/// The tables of lsm-tree in a directory.
pub(in super::super) struct LsmTables {
    pub(in super::super) tree: AnyTree,
    /// The size in bytes at which a merge begins a new file.
    pub(in super::super) file_bytes: u64,
}

impl LsmTables {
    /// Merges some tables. Returns whether a merge was possible.
    ///
    /// The strategy chooses the level that exceeds its target size the most, and does nothing if
    /// only a large merge is possible in this level. Writers wait only for the newest level, so
    /// this level is merged first while it has many runs.
    pub(super) fn merge_once(
        &self,
        oldest: impl Fn() -> SeqNo,
        path: &Path,
    ) -> Result<bool, lsm_tree::Error> {
        let all = Leveled::default()
            .with_table_target_size(self.file_bytes)
            .with_l0_threshold(RUNS_TO_MERGE);
        let first = all.clone().with_level_ratio_policy(vec![LEVEL_RATIO_UNLIMITED]);
        let is_long = self.tree.l0_run_count() >= usize::from(RUNS_TO_MERGE);
        let before = self.shape();
        for strategy in if is_long { [first, all] } else { [all, first] } {
            self.tree.compact(Arc::new(strategy), oldest())?;
            if self.shape() != before {
                return Ok(true);
            }
        }
        if self.tree.l0_run_count() <= RUNS_MAX {
            return Ok(false);
        }
        // No small merge is possible, but writers wait: merge all tables into one run.
        let (tables, path) = (self.tree.table_count(), path.display());
        tracing::info!(tables, %path, "merging all tables; writes and shutdown wait until this ends");
        self.merge_all(oldest())?;
        if self.shape() == before {
            // Without this error, writers would wait forever.
            return Err(io::Error::other("the tables cannot be merged").into());
        }
        Ok(true)
    }

    /// Returns the number of tables in each level, and the number of runs in the newest level.
    fn shape(&self) -> [usize; LEVELS + 1] {
        let tree = &self.tree;
        std::array::from_fn(|level| match level {
            LEVELS => tree.l0_run_count(),
            level => tree.level_table_count(level).unwrap_or(0),
        })
    }

    /// Merges all tables into one run.
    pub(super) fn merge_all(&self, oldest: SeqNo) -> Result<(), lsm_tree::Error> {
        self.tree.major_compact(self.file_bytes, oldest)
    }

    /// Verifies the table with the lowest id above `after`. It bypasses the block cache, so that it
    /// does not evict blocks that requests read.
    pub(super) fn verify_next(
        &self,
        after: Option<u64>,
        pace: &mut Pace<'_>,
    ) -> io::Result<Option<u64>> {
        let version = self.tree.current_version();
        let behind = version.iter_tables().filter(|table| Some(table.id()) > after);
        let next = behind.min_by_key(|table| table.id()).cloned();
        drop(version);
        let Some(table) = next else { return Ok(None) };
        // `table` keeps its file on disk, even if a merge replaces the table in the meantime.
        verify_table(&table.path, table.checksum().into_u128(), pace)?;
        Ok(Some(table.id()))
    }
}

/// Opens the tree in a directory, or creates one.
pub(in super::super) fn open_tree(
    path: &Path,
    options: &Options,
    numbers: &SequenceNumberCounter,
) -> Result<AnyTree, lsm_tree::Error> {
    // The tree's own counter of visible changes is not used: a batch may be partly applied while
    // the tree registers a table. Therefore this crate decides which batches a view sees.
    let ignored = SequenceNumberCounter::default();
    let config = Config::new(path, numbers.clone(), ignored)
        .use_cache(Arc::clone(&options.cache.blocks))
        .use_descriptor_table(Some(Arc::clone(&options.cache.open_tables)));
    let tables = path.join(TABLES_FOLDER);
    if tables.try_exists()? && bytes_below(&tables)? > options.pinned_up_to {
        return config.open();
    }
    // With complete indexes and filters in memory, a read by key needs one cache lookup instead of
    // three.
    config
        .index_block_partitioning_policy(PinningPolicy::all(false))
        .filter_block_partitioning_policy(PinningPolicy::all(false))
        .index_block_pinning_policy(PinningPolicy::all(true))
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .open()
}

/// Returns the total size in bytes of all files in a directory, recursively. A file that is removed
/// in the meantime counts as empty.
fn bytes_below(path: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        bytes += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path())?,
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
    }
    Ok(bytes)
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
    Err(damaged(path, "the checksum of the table differs from the manifest"))
}
