//! What was written last, by key: the next write of an item asks what stands there, and so does its
//! next reader, and neither has to search the tree for it.
//!
//! It decides nothing about what is kept beyond its bound (quick_cache does), is filled by writes
//! alone, and may forget anything at any time.

use foldhash::fast::RandomState;
use lsm_tree::Slice;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

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
/// A view may be told of a write if it sees its batch and no later batch has touched the key: then
/// the value has been the same from there on. Both are certain because batches are applied one after
/// the other, and each is entered here before the tree has it and before a view can see it.
pub(super) struct RecentWrites(Cache<Slice, Written, Bytes, RandomState>);

impl RecentWrites {
    pub(super) fn new(bytes_max: u64) -> Self {
        let usual = usize::try_from(bytes_max / USUAL_ENTRY_BYTES).unwrap_or(usize::MAX);
        let hasher = RandomState::default();
        Self(Cache::with(usual, bytes_max, Bytes, hasher, DefaultLifecycle::default()))
    }

    /// Enters a write of the batch with this number: a value, or none for a deletion.
    pub(super) fn enter(&self, batch: u64, key: &Slice, value: Option<&Slice>) {
        self.0.insert(key.clone(), Written { batch, value: value.cloned() });
    }

    /// What stands under a key for a view that sees the batches below a number: `None` if it is not
    /// known here, `Some(None)` if nothing does.
    pub(super) fn get(&self, key: &[u8], below: u64) -> Option<Option<Slice>> {
        let written = self.0.get(key)?;
        (written.batch < below).then_some(written.value)
    }
}
