//! The thread that flushes sealed tables to disk and merges the tables on disk. Without this
//! thread, the memory and the number of tables would grow without bound.
//!
//! The thread never changes the contents of a view.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread::{self, JoinHandle};

use locks::{Condvar, Mutex};
use lsm_tree::AbstractTree;
use lsm_tree::compaction::Leveled;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::{State, is_full, is_passing};
use crate::disk::descriptors::Backoff;
use crate::error::Error;

/// The maximum number of sealed tables that wait for a flush. If there are more, writers wait.
const SEALED_TABLES_MAX: usize = 3;

/// The maximum number of runs of tables that a read must search. If there are more, writers wait
/// for a merge.
const RUNS_MAX: usize = 20;

/// The number of runs at which the compaction strategy merges them. The number is a trade-off: a
/// merge rewrites the tables that overlap with the runs, but a read on disk must search each run.
/// With 10 instead of 6, batches of writes to a table with a stream or an index take a tenth less
/// CPU time, but some queries of data on disk take a seventh more.
const RUNS_TO_MERGE: u8 = 10;

/// The number of levels of the tree.
const LEVELS: usize = 7;

/// The size ratio above which deeper levels are merged before the first two. It is practically
/// unlimited, so the first two levels are always merged first.
const LEVEL_RATIO_UNLIMITED: f32 = 1e9;

/// The maximum size of a tree, in bytes of its files, whose tables are all merged to free disk
/// space. The merge takes about a second; writers wait for it only after they have written some 60
/// MB.
const RECLAIMED_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// The size of files in bytes below which a merge to free disk space is not worthwhile.
const RECLAIMED_BYTES_MIN: u64 = 4 * 1024 * 1024;

/// A handle on the maintenance thread, for the storage.
pub(super) struct MaintenanceThread {
    work: Arc<Work>,
    thread: Option<JoinHandle<()>>,
}

struct Work {
    state: Arc<State>,
    pending: Mutex<PendingWork>,
    /// Bytes of the tree's files after the last merge of all tables; 0 after a start.
    bytes_merged: AtomicU64,
    /// Signals new work to the thread, and finished work to the writers.
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PendingWork {
    Nothing,
    Tables,
    /// Flush and merge, and also merge all tables if that frees much space.
    Space,
    End,
}

impl MaintenanceThread {
    /// Starts the thread, and continues a merge that the previous process left unfinished.
    pub(super) fn start(state: Arc<State>) -> io::Result<Self> {
        let pending = Mutex::new(PendingWork::Tables);
        let bytes_merged = AtomicU64::new(0);
        let work = Arc::new(Work { state, pending, bytes_merged, changed: Condvar::new() });
        let thread = thread::Builder::new().name("tables".to_owned()).spawn({
            let work = Arc::clone(&work);
            move || work.run()
        })?;
        Ok(Self { work, thread: Some(thread) })
    }

    /// Requests a flush of sealed tables, and a merge if there are many runs. Does not wait.
    pub(super) fn start_maintenance(&self) {
        *self.work.lock() = PendingWork::Tables;
        self.work.changed.notify_all();
    }

    /// Requests a merge of all tables if that would free much space. Does not wait.
    pub(super) fn start_reclaiming(&self) {
        *self.work.lock() = PendingWork::Space;
        self.work.changed.notify_all();
    }

    /// Requests a flush after a table was sealed, and waits while too much work is pending.
    ///
    /// # Errors
    /// The error that ended the thread.
    pub(super) fn wait_for_room(&self) -> Result<(), Error> {
        self.start_maintenance();
        if let Some(room) = self.work.room() {
            return room;
        }
        // A merge may take seconds. Meanwhile other tasks should run.
        block_in_place(|| {
            let mut to_do = self.work.lock();
            loop {
                if let Some(room) = self.work.room() {
                    return room;
                }
                to_do = self.work.changed.wait(to_do);
            }
        })
    }
}

impl Drop for MaintenanceThread {
    fn drop(&mut self) {
        *self.work.lock() = PendingWork::End;
        self.work.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the maintenance thread of a storage panicked, which is a defect");
        }
    }
}

/// Calls `wait`, which blocks, and lets the other tasks of a runtime with several threads continue.
/// In a runtime with one thread, which only simulations and tests use, other tasks wait.
pub(super) fn block_in_place<T>(wait: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
        _ => wait(),
    }
}

impl Work {
    /// Returns whether a writer may continue, or the error that ended the thread. Returns `None`
    /// while the writer must wait.
    fn room(&self) -> Option<Result<(), Error>> {
        if let Some(error) = self.state.failed.get() {
            return Some(Err(error.clone()));
        }
        let state = &self.state;
        let has_room =
            state.sealed_count() <= SEALED_TABLES_MAX && state.tree.l0_run_count() <= RUNS_MAX;
        has_room.then_some(Ok(()))
    }

    fn lock(&self) -> MutexGuard<'_, PendingWork> {
        self.pending.lock()
    }

    fn run(&self) {
        loop {
            let mut to_do = self.lock();
            while *to_do == PendingWork::Nothing {
                to_do = self.changed.wait(to_do);
            }
            let task = std::mem::replace(&mut *to_do, PendingWork::Nothing);
            drop(to_do);
            let done = match task {
                PendingWork::End => return,
                PendingWork::Space => self.write_and_merge().and_then(|()| self.reclaim()),
                PendingWork::Nothing | PendingWork::Tables => self.write_and_merge(),
            };
            let failed = done.err();
            let to_do = self.lock();
            if let Some(error) = failed {
                // The thread has ended, so the next batch must fail with this error.
                _ = self.state.failed.set(error);
            }
            self.changed.notify_all();
            drop(to_do);
            if self.state.failed.get().is_some() {
                return;
            }
        }
    }

    fn write_and_merge(&self) -> Result<(), Error> {
        let state = &*self.state;
        state.flush_with_descriptors(|| self.is_to_end())?;
        // Wakes the writers before the merge, because writers that wait for the flush need not wait
        // for a merge. Acquires the lock first, so that no writer is between its check and its wait
        // and misses the notification.
        drop(self.lock());
        self.changed.notify_all();
        // The loop is bounded, because each merge moves at least one table down by one level.
        let merges_max = LEVELS * (state.tree.table_count() + 1);
        let mut backoff = Backoff::default();
        for _ in 0..merges_max {
            if self.is_to_end() {
                return Ok(());
            }
            match self.merge_once() {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                // A failed merge has removed its unfinished output and left its input unchanged, so
                // the merge can be retried.
                Err(error) if is_passing(&error) => {
                    backoff.pause();
                    continue;
                }
                Err(error) => return Err(state.sort("write to", error)),
            }
            let waits_for_merges = state.tree.l0_run_count() > RUNS_MAX;
            // A writer has requested a flush of newly sealed tables, which comes before further
            // merges.
            if state.sealed_count() > 0 && !waits_for_merges {
                return Ok(());
            }
            drop(self.lock());
            self.changed.notify_all();
        }
        // The loop continues if tables were sealed in the meantime.
        let mut to_do = self.lock();
        if *to_do == PendingWork::Nothing {
            *to_do = PendingWork::Tables;
        }
        Ok(())
    }

    /// Merges all tables if they may have twice the necessary bytes, or many deleted rows.
    fn reclaim(&self) -> Result<(), Error> {
        let state = &*self.state;
        let bytes = state.tree.disk_space();
        let is_possible = (RECLAIMED_BYTES_MIN..=RECLAIMED_BYTES_MAX).contains(&bytes);
        let has_grown = bytes / 2 > self.bytes_merged.load(Ordering::Relaxed);
        let deleted = state.tree.tombstone_count().saturating_mul(4);
        let is_useful = has_grown || deleted > state.tree.approximate_len() as u64;
        if !is_possible || !is_useful || state.tree.table_count() < 2 || self.is_to_end() {
            return Ok(());
        }
        match state.tree.major_compact(state.file_bytes, state.oldest_seen()) {
            // The input is unchanged. The merge is retried in the next quiet time.
            Err(error) if is_passing(&error) => return Ok(()),
            Err(lsm_tree::Error::Io(error)) if is_full(&error) => return Ok(()),
            Err(error) => return Err(state.sort("write to", error)),
            Ok(()) => {}
        }
        self.bytes_merged.store(state.tree.disk_space(), Ordering::Relaxed);
        Ok(())
    }

    fn is_to_end(&self) -> bool {
        *self.lock() == PendingWork::End
    }

    /// Merges some tables. Returns whether a merge was possible.
    ///
    /// The strategy chooses the level that exceeds its target size the most, and does nothing if
    /// only a large merge is possible in this level. Writers wait only for the newest level, so
    /// this level is merged first while it has many runs.
    fn merge_once(&self) -> Result<bool, lsm_tree::Error> {
        let state = &*self.state;
        let all = Leveled::default()
            .with_table_target_size(state.file_bytes)
            .with_l0_threshold(RUNS_TO_MERGE);
        let first = all.clone().with_level_ratio_policy(vec![LEVEL_RATIO_UNLIMITED]);
        let is_long = state.tree.l0_run_count() >= usize::from(RUNS_TO_MERGE);
        let before = self.shape();
        for strategy in if is_long { [first, all] } else { [all, first] } {
            state.tree.compact(Arc::new(strategy), state.oldest_seen())?;
            if self.shape() != before {
                return Ok(true);
            }
        }
        if state.tree.l0_run_count() <= RUNS_MAX {
            return Ok(false);
        }
        // No small merge is possible, but writers wait: merge all tables into one run.
        let (tables, path) = (state.tree.table_count(), state.home.path().display());
        tracing::info!(tables, %path, "merging all tables; writes and shutdown wait until this ends");
        state.tree.major_compact(state.file_bytes, state.oldest_seen())?;
        if self.shape() == before {
            // Without this error, writers would wait forever.
            return Err(io::Error::other("the tables cannot be merged").into());
        }
        Ok(true)
    }

    /// Returns the number of tables in each level, and the number of runs in the newest level.
    fn shape(&self) -> [usize; LEVELS + 1] {
        let tree = &self.state.tree;
        std::array::from_fn(|level| match level {
            LEVELS => tree.l0_run_count(),
            level => tree.level_table_count(level).unwrap_or(0),
        })
    }
}
