//! The thread that flushes sealed tables to disk and merges the tables on disk. Without this
//! thread, the memory and the number of tables would grow without bound.
//!
//! The thread never changes the contents of a view.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread::{self, JoinHandle};

use locks::{Condvar, Mutex};
use tokio::runtime::{Handle, RuntimeFlavor};

use super::tables::LEVELS;
use super::{State, is_full, is_passing};
use crate::disk::descriptors::Backoff;
use crate::error::Error;

/// The maximum number of sealed tables that wait for a flush. If there are more, writers wait.
const SEALED_TABLES_MAX: usize = 3;

/// The maximum number of runs of tables that a read must search. If there are more, writers wait
/// for a merge.
pub(super) const RUNS_MAX: usize = 20;

/// The maximum size of a tree, in bytes of its files, whose tables are all merged to free disk
/// space. The merge takes about a second; writers wait for it only after they have written some 60
/// MB.
const RECLAIMED_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// The size of files in bytes below which a merge to free disk space is not worthwhile.
const RECLAIMED_BYTES_MIN: u64 = 4 * 1024 * 1024;

/// A handle on the maintenance thread, for the storage.
pub(super) struct MaintenanceThread {
    work: Arc<Work>,
    /// The thread; `None` if the callers do its work.
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
        let work = Work::new(state, PendingWork::Tables);
        let thread = thread::Builder::new().name("tables".to_owned()).spawn({
            let work = Arc::clone(&work);
            move || work.run()
        })?;
        Ok(Self { work, thread: Some(thread) })
    }

    /// Returns a handle without a thread, for simulations: each request does its work at once.
    pub(super) fn inline(state: Arc<State>) -> Self {
        Self { work: Work::new(state, PendingWork::Nothing), thread: None }
    }

    /// Requests a flush of sealed tables, and a merge if there are many runs. Does not wait.
    pub(super) fn start_maintenance(&self) {
        self.request(PendingWork::Tables);
    }

    /// Requests a merge of all tables if that would free much space. Does not wait.
    pub(super) fn start_reclaiming(&self) {
        self.request(PendingWork::Space);
    }

    fn request(&self, task: PendingWork) {
        if self.thread.is_none() {
            if self.work.state.failed.get().is_none() {
                self.work.finish(self.work.perform(task));
            }
            return;
        }
        *self.work.lock() = task;
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
        if self.thread.is_none() {
            // The work was done by this call, so waiting would not make room.
            return Ok(());
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
            tracing::error!("the maintenance thread of a storage panicked, which is a bug");
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
    fn new(state: Arc<State>, first: PendingWork) -> Arc<Self> {
        let (pending, bytes_merged) = (Mutex::new(first), AtomicU64::new(0));
        Arc::new(Self { state, pending, bytes_merged, changed: Condvar::new() })
    }

    /// Returns whether a writer may continue, or the error that ended the thread. Returns `None`
    /// while the writer must wait.
    fn room(&self) -> Option<Result<(), Error>> {
        if let Some(error) = self.state.failed.get() {
            return Some(Err(error.clone()));
        }
        let state = &self.state;
        let has_room =
            state.sealed_count() <= SEALED_TABLES_MAX && state.tables.run_count() <= RUNS_MAX;
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
            if task == PendingWork::End {
                return;
            }
            self.finish(self.perform(task));
            if self.state.failed.get().is_some() {
                return;
            }
        }
    }

    fn perform(&self, task: PendingWork) -> Result<(), Error> {
        self.write_and_merge()?;
        if task == PendingWork::Space { self.reclaim() } else { Ok(()) }
    }

    /// Records the outcome of some work, and notifies the writers.
    fn finish(&self, done: Result<(), Error>) {
        let to_do = self.lock();
        if let Err(error) = done {
            // No more work is done, so the next batch must fail with this error.
            _ = self.state.failed.set(error);
        }
        self.changed.notify_all();
        drop(to_do);
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
        let merges_max = LEVELS * (state.tables.count() + 1);
        let mut backoff = Backoff::default();
        for _ in 0..merges_max {
            if self.is_to_end() {
                return Ok(());
            }
            match state.tables.merge_once(|| state.oldest_seen(), state.home.path()) {
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
            let waits_for_merges = state.tables.run_count() > RUNS_MAX;
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
        let bytes = state.tables.bytes();
        let is_possible = (RECLAIMED_BYTES_MIN..=RECLAIMED_BYTES_MAX).contains(&bytes);
        let has_grown = bytes / 2 > self.bytes_merged.load(Ordering::Relaxed);
        let (deleted, rows) = state.tables.row_counts();
        let is_useful = has_grown || deleted.saturating_mul(4) > rows;
        if !is_possible || !is_useful || state.tables.count() < 2 || self.is_to_end() {
            return Ok(());
        }
        match state.tables.merge_all(state.oldest_seen()) {
            // The input is unchanged. The merge is retried in the next quiet time.
            Err(error) if is_passing(&error) => return Ok(()),
            Err(lsm_tree::Error::Io(error)) if is_full(&error) => return Ok(()),
            Err(error) => return Err(state.sort("write to", error)),
            Ok(()) => {}
        }
        self.bytes_merged.store(state.tables.bytes(), Ordering::Relaxed);
        Ok(())
    }

    fn is_to_end(&self) -> bool {
        *self.lock() == PendingWork::End
    }
}
