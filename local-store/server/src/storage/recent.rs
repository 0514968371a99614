//! What was written last, by key: the next write of an item asks what stands there, and so does its
//! next reader, and neither has to search the tree for it.
//!
//! It decides nothing about what is kept beyond its bound (quick_cache does), is filled by writes
//! alone, and may forget anything at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ::fjall::Slice;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// What an entry takes beside its key and value: the cache's own fields, and two allocations.
const ENTRY_BYTES: usize = 128;
/// What an entry takes where items are as small as they mostly are; only the first allocation of the
/// cache depends on it.
const USUAL_ENTRY_BYTES: u64 = 512;

/// The value that a batch gave a key, or none if it deleted it.
#[derive(Clone)]
struct Written {
    /// The number of the batch.
    batch: u64,
    value: Option<Slice>,
}

#[derive(Clone)]
struct Bytes;

impl Weighter<Slice, Written> for Bytes {
    fn weight(&self, key: &Slice, written: &Written) -> u64 {
        let value = written.value.as_ref().map_or(0, |value| value.len());
        u64::try_from(key.len() + value + ENTRY_BYTES).unwrap_or(u64::MAX)
    }
}

/// The last writes of a storage, up to a number of bytes.
///
/// A view may be told of a write if its batch was applied before the view was taken and no later
/// batch has touched the key: then the value has been the same from there on. Both are certain
/// because a batch is entered here before the engine has it, and counted after.
pub(super) struct RecentWrites {
    entries: Cache<Slice, Written, Bytes>,
    /// Held while a batch is applied: batches are numbered in the order in which the engine has them.
    begun: Mutex<u64>,
    applied: AtomicU64,
}

impl RecentWrites {
    pub(super) fn new(bytes_max: u64) -> Self {
        let usual = usize::try_from(bytes_max / USUAL_ENTRY_BYTES).unwrap_or(usize::MAX);
        let entries = Cache::with_weighter(usual, bytes_max, Bytes);
        Self { entries, begun: Mutex::new(0), applied: AtomicU64::new(0) }
    }

    /// Begins the next batch; it ends with [`NextBatch::applied`].
    pub(super) fn begin(&self) -> NextBatch<'_> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        *begun += 1;
        NextBatch { recent: self, number: *begun, _others_wait: begun }
    }

    /// The number of the last batch that a view taken from now on sees.
    pub(super) fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    /// What stands under a key for a view that sees the batches up to a number: `None` if it is not
    /// known here, `Some(None)` if nothing does.
    pub(super) fn get(&self, key: &[u8], seen: u64) -> Option<Option<Slice>> {
        let written = self.entries.get(key)?;
        (written.batch <= seen).then_some(written.value)
    }
}

/// A batch that is being applied. An engine that fails to apply it takes no other, so what was
/// entered for it is never read.
pub(super) struct NextBatch<'a> {
    recent: &'a RecentWrites,
    number: u64,
    _others_wait: MutexGuard<'a, u64>,
}

impl NextBatch<'_> {
    /// Enters a write before the engine has it: a value, or none for a deletion.
    pub(super) fn enter(&self, key: &Slice, value: Option<&Slice>) {
        let written = Written { batch: self.number, value: value.cloned() };
        self.recent.entries.insert(key.clone(), written);
    }

    /// The engine has all writes of the batch.
    pub(super) fn applied(self) {
        self.recent.applied.store(self.number, Ordering::Release);
    }
}
