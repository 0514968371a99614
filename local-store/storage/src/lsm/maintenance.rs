//! The thread that writes sealed tables to disk and merges the tables there. Without it memory and
//! the number of tables would grow with each write.
//!
//! It changes nothing that a view sees.

use std::io;
use std::sync::{Arc, MutexGuard};
use std::thread::{self, JoinHandle};

use locks::{Condvar, Mutex};
use lsm_tree::AbstractTree;
use lsm_tree::compaction::Leveled;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::{State, is_passing};
use crate::disk::descriptors::Backoff;
use crate::error::Error;

/// Sealed tables that may wait to be written; writers wait for room beyond that.
const SEALED_TABLES_MAX: usize = 3;

/// Runs of tables that a read may have to look into one after the other; writers wait for them to
/// be merged beyond that.
const RUNS_MAX: usize = 20;

/// The strategy merges runs from this number on: a merge writes again what the runs overlap with,
/// and each run is one more to look into for what is not in memory. With 10 in place of 6, batches of
/// writes to a table with a stream or an index take a tenth less processor time, but some queries of
/// what is on disk a seventh more.
const RUNS_TO_MERGE: u8 = 10;

/// The tree has so many levels below each other.
const LEVELS: usize = 7;

/// How many times the size of the first two levels the others may be before they come before those:
/// never.
const LATER: f32 = 1e9;

/// The thread, as the storage sees it.
pub(super) struct MaintenanceThread {
    work: Arc<Work>,
    thread: Option<JoinHandle<()>>,
}

struct Work {
    state: Arc<State>,
    to_do: Mutex<ToDo>,
    /// Something is to be done, or was.
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ToDo {
    Nothing,
    Tables,
    End,
}

impl MaintenanceThread {
    /// Starts the thread, with what the last one left to be merged.
    pub(super) fn start(state: Arc<State>) -> io::Result<Self> {
        let to_do = Mutex::new(ToDo::Tables);
        let work = Arc::new(Work { state, to_do, changed: Condvar::new() });
        let thread = thread::Builder::new().name("tables".to_owned()).spawn({
            let work = Arc::clone(&work);
            move || work.run()
        })?;
        Ok(Self { work, thread: Some(thread) })
    }

    /// Has sealed tables written, and runs merged if there are many, without waiting for it.
    pub(super) fn start_maintenance(&self) {
        *self.work.lock() = ToDo::Tables;
        self.work.changed.notify_all();
    }

    /// After a table was sealed: has it written, and waits while too much is left to do.
    ///
    /// # Errors
    /// The one that ended the thread.
    pub(super) fn wait_for_room(&self) -> Result<(), Error> {
        self.start_maintenance();
        if let Some(room) = self.work.room() {
            return room;
        }
        // A merge may take seconds, in which others want to read.
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
        *self.work.lock() = ToDo::End;
        self.work.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes tables panicked");
        }
    }
}

/// Waits, and lets other tasks have the thread of a runtime that has several; one that has one thread
/// alone is a simulation, or a test.
pub(super) fn block_in_place<T>(wait: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(wait),
        _ => wait(),
    }
}

impl Work {
    /// Whether a writer may go on, or never may; `None` while it has to wait.
    fn room(&self) -> Option<Result<(), Error>> {
        if let Some(error) = self.state.failed.get() {
            return Some(Err(error.clone()));
        }
        let state = &self.state;
        let has_room =
            state.sealed_count() <= SEALED_TABLES_MAX && state.tree.l0_run_count() <= RUNS_MAX;
        has_room.then_some(Ok(()))
    }

    fn lock(&self) -> MutexGuard<'_, ToDo> {
        self.to_do.lock()
    }

    fn run(&self) {
        loop {
            let mut to_do = self.lock();
            while *to_do == ToDo::Nothing {
                to_do = self.changed.wait(to_do);
            }
            if *to_do == ToDo::End {
                return;
            }
            *to_do = ToDo::Nothing;
            drop(to_do);
            let failed = self.write_and_merge().err();
            let to_do = self.lock();
            if let Some(error) = failed {
                // The next batch is refused with it.
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
        // Writers that wait for a table to be written need not wait for a merge. Whoever has looked
        // and not begun to wait holds the lock, and would not hear of it.
        drop(self.lock());
        self.changed.notify_all();
        // Each merge brings at least one table one level down.
        let merges_max = LEVELS * (state.tree.table_count() + 1);
        let mut backoff = Backoff::default();
        for _ in 0..merges_max {
            if self.is_to_end() {
                return Ok(());
            }
            match self.merge_once() {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                // What was begun is of no use and removed; what was to be merged is as it was.
                Err(error) if is_passing(&error) => {
                    backoff.pause();
                    continue;
                }
                Err(error) => return Err(state.sort("write to", error)),
            }
            let waits_for_merges = state.tree.l0_run_count() > RUNS_MAX;
            // Somebody has asked for what is sealed meanwhile to be written.
            if state.sealed_count() > 0 && !waits_for_merges {
                return Ok(());
            }
            drop(self.lock());
            self.changed.notify_all();
        }
        // It goes on with what was written meanwhile.
        let mut to_do = self.lock();
        if *to_do == ToDo::Nothing {
            *to_do = ToDo::Tables;
        }
        Ok(())
    }

    fn is_to_end(&self) -> bool {
        *self.lock() == ToDo::End
    }

    /// Merges some tables, if there is anything to merge.
    ///
    /// The strategy takes the level that is furthest above its size, and nothing if that one has no
    /// small merge. Writers wait for the newest level alone, so it does not wait for the others when it
    /// is long; they have their turn when it is short.
    fn merge_once(&self) -> Result<bool, lsm_tree::Error> {
        let state = &*self.state;
        let all = Leveled::default()
            .with_table_target_size(state.file_bytes)
            .with_l0_threshold(RUNS_TO_MERGE);
        let first = all.clone().with_level_ratio_policy(vec![LATER]);
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
        // No small merge is left, and writers wait: all tables become one run.
        let (tables, path) = (state.tree.table_count(), state.path.display());
        tracing::info!(tables, %path, "all tables are merged, which writers and an end wait for");
        state.tree.major_compact(state.file_bytes, state.oldest_seen())?;
        if self.shape() == before {
            // They would wait for ever.
            return Err(io::Error::other("its tables cannot be merged").into());
        }
        Ok(true)
    }

    /// How many tables each level has, and how many runs the newest.
    fn shape(&self) -> [usize; LEVELS + 1] {
        let tree = &self.state.tree;
        std::array::from_fn(|level| match level {
            LEVELS => tree.l0_run_count(),
            level => tree.level_table_count(level).unwrap_or(0),
        })
    }
}
