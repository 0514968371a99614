//! The engine in memory, whose power can be cut, for tests and the simulation.
//!
//! The engine stores several versions of a value, so that opening a view only records a sequence
//! number and does not copy the map. The cost is that a replaced value stays in memory until no
//! view can see it, and that a scan acquires the lock once for every few entries. Nothing is
//! written to a disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, RwLockReadGuard, RwLockWriteGuard};

use locks::{Mutex, RwLock};
use partition::mutation::{self, Mutation};
use partition::{Batch, Op, ReadError, Value, View, Visit};

use crate::disk::SplitMix64;
use crate::engine::{Storage, check};
use crate::error::Error;

/// The maximum number of entries that a scan copies under the lock. It is small, so that writers do
/// not wait long.
const SCAN_ENTRIES: usize = 64;

/// The maximum number of batches that a power cut can undo. Older batches count as persisted,
/// because an engine may persist at any time. This limits the memory of a run that never persists.
const UNPERSISTED_MAX: usize = 100_000;

/// Number of adjacent keys that are damaged together, like the keys of one block.
const DAMAGED_KEYS: usize = 8;

/// The value of a key as of batch `sequence`; `None` if that batch deleted the key.
#[derive(Debug)]
struct Version {
    sequence: u64,
    value: Option<Value>,
}

#[derive(Debug, Default)]
struct State {
    /// The versions of each key, oldest first, never empty.
    entries: BTreeMap<Vec<u8>, Vec<Version>>,
    /// Number of applied batches.
    sequence: u64,
    /// Keys with a replaced or deleted version, and the number of the batch that replaced it.
    replaced: VecDeque<(u64, Vec<u8>)>,
    /// The inverse of each batch since the last persist, oldest first.
    unpersisted: VecDeque<Batch>,
}

impl State {
    fn current(&self, key: &[u8]) -> Option<&Value> {
        self.entries.get(key)?.last()?.value.as_ref()
    }

    /// Applies a batch; `oldest_view` is the lowest sequence of an open view.
    fn apply(&mut self, batch: Batch, oldest_view: Option<u64>) {
        self.sequence += 1;
        let sequence = self.sequence;
        for op in batch.ops {
            let (key, value) = match op {
                Op::Put(key, value) | Op::Insert(key, value) => (key, Some(value)),
                Op::Delete(key) => (key, None),
            };
            let versions = self.entries.entry(key.clone()).or_default();
            if !versions.is_empty() || value.is_none() {
                self.replaced.push_back((sequence, key));
            }
            versions.push(Version { sequence, value });
        }
        let oldest = oldest_view.unwrap_or(sequence);
        while self.replaced.front().is_some_and(|(replaced, _)| *replaced <= oldest) {
            if let Some((_, key)) = self.replaced.pop_front() {
                self.prune(&key, oldest);
            }
        }
    }

    /// Drops the versions of a key that no view of batch `oldest` or a later batch sees.
    fn prune(&mut self, key: &[u8], oldest: u64) {
        let Some(versions) = self.entries.get_mut(key) else { return };
        let seen = versions.partition_point(|version| version.sequence <= oldest);
        versions.drain(..seen.saturating_sub(1));
        if matches!(versions.as_slice(), [Version { sequence, value: None }] if *sequence <= oldest)
        {
            self.entries.remove(key);
        }
    }

    /// Returns the inverse of a batch.
    fn invert(&self, batch: &Batch) -> Batch {
        let undo = |op: &Op| {
            let key = op.key().to_vec();
            match self.current(&key) {
                Some(value) => Op::Put(key, Arc::clone(value)),
                None => Op::Delete(key),
            }
        };
        Batch { ops: batch.ops.iter().map(undo).collect() }
    }
}

/// Damaged keys, whose values can no longer be read.
#[derive(Debug)]
struct Damage {
    first: Vec<u8>,
    last: Vec<u8>,
    /// Whether a read has found the damage.
    is_known: bool,
}

impl Damage {
    /// Returns whether a range, both bounds inclusive, contains any of the damaged keys.
    fn is_in(&self, from: &[u8], to: &[u8]) -> bool {
        *from <= *self.last && *self.first <= *to
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: RwLock<State>,
    /// Whether any key is damaged. This flag avoids a lock if no key is damaged.
    is_damaged: AtomicBool,
    damage: Mutex<Option<Damage>>,
    /// The number of open views of each sequence. Lock this only after `state`, never before it.
    views: Mutex<BTreeMap<u64, usize>>,
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write()
    }

    fn views(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.views.lock()
    }

    fn damage_guard(&self) -> MutexGuard<'_, Option<Damage>> {
        self.damage.lock()
    }

    /// Returns an error if a range, both bounds inclusive, contains damaged keys.
    fn check(&self, from: &[u8], to: &[u8]) -> Result<(), ReadError> {
        if !self.is_damaged.load(Ordering::Acquire) {
            return Ok(());
        }
        match &mut *self.damage_guard() {
            Some(rot) if rot.is_in(from, to) => {
                rot.is_known = true;
                Err(ReadError("the in-memory storage is corrupt".to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn oldest_view(&self) -> Option<u64> {
        self.views().keys().next().copied()
    }
}

/// An ordered map in memory. Clones share the same map, so it can outlive the node that uses it.
#[derive(Debug, Clone, Default)]
pub struct MemoryStorage {
    shared: Arc<Shared>,
}

impl MemoryStorage {
    /// Creates an empty map.
    pub fn new() -> Self {
        MemoryStorage::default()
    }

    /// Damages eight adjacent keys, as if a block of a disk failed; `seed` determines
    /// which keys. Returns whether there were enough keys.
    pub fn damage_keys(&self, seed: u64) -> bool {
        let mut random = SplitMix64::new(seed);
        let state = self.shared.read();
        let Some(most) = state.entries.len().checked_sub(DAMAGED_KEYS) else { return false };
        let mut keys = state.entries.keys().skip(random.up_to(most)).take(DAMAGED_KEYS);
        let (Some(first), Some(last)) = (keys.next(), keys.next_back()) else { return false };
        let rot = Damage { first: first.clone(), last: last.clone(), is_known: false };
        *self.shared.damage_guard() = Some(rot);
        self.shared.is_damaged.store(true, Ordering::Release);
        true
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.shared.read().entries.is_empty()
    }

    /// Returns whether any key is damaged, detected or not.
    pub fn is_damaged(&self) -> bool {
        self.shared.is_damaged.load(Ordering::Acquire)
    }

    /// Returns whether a read has found damage. The production engine would record such damage.
    pub fn has_known_damage(&self) -> bool {
        self.shared.damage_guard().as_ref().is_some_and(|rot| rot.is_known)
    }

    /// Undoes some of the newest batches since the last persist, and returns their number, which
    /// `seed` determines. The contents of open views stay the same.
    pub fn lose_memory(&self, seed: u64) -> usize {
        let state = &mut *self.shared.write();
        let forgotten = SplitMix64::new(seed).up_to(state.unpersisted.len());
        for _ in 0..forgotten {
            if let Some(undo) = state.unpersisted.pop_back() {
                state.apply(undo, self.shared.oldest_view());
            }
        }
        state.unpersisted.clear();
        forgotten
    }
}

impl Storage for MemoryStorage {
    fn apply(&self, batch: &Batch) -> Result<(), Error> {
        check(batch)?;
        let state = &mut *self.shared.write();
        // Checks the rules that the production engine does not check: no key occurs twice, and
        // inserted keys do not exist.
        let mut seen = BTreeSet::new();
        if let Some(key) = batch.ops.iter().map(Op::key).find(|key| !seen.insert(*key)) {
            let shown = key.escape_ascii();
            return Err(Error::Batch(format!("the key `{shown}` occurs twice")));
        }
        let is_wrong = |op: &&Op| matches!(op, Op::Insert(key, _) if state.current(key).is_some());
        if let Some(op) = batch.ops.iter().find(is_wrong) {
            let shown = op.key().escape_ascii();
            return Err(Error::Batch(format!("an inserted key already exists: `{shown}`")));
        }
        let undo = state.invert(batch);
        if state.unpersisted.len() == UNPERSISTED_MAX {
            state.unpersisted.pop_front();
        }
        state.unpersisted.push_back(undo);
        state.apply(batch.clone(), self.shared.oldest_view());
        Ok(())
    }

    fn persist(&self) -> Result<(), Error> {
        if !mutation::is_active(Mutation::PersistNothing) {
            self.shared.write().unpersisted.clear();
        }
        Ok(())
    }

    fn view(&self) -> Box<dyn View + Send + Sync> {
        let state = self.shared.read();
        let sequence = state.sequence;
        *self.shared.views().entry(sequence).or_default() += 1;
        Box::new(MemoryView { shared: Arc::clone(&self.shared), sequence })
    }
}

/// A key and its value.
type FoundPair = (Vec<u8>, Value);

struct MemoryView {
    shared: Arc<Shared>,
    sequence: u64,
}

impl MemoryView {
    fn choose<'a>(&self, versions: &'a [Version]) -> Option<&'a Value> {
        let seen = versions.partition_point(|version| version.sequence <= self.sequence);
        versions.get(seen.checked_sub(1)?)?.value.as_ref()
    }

    /// Returns at most [`SCAN_ENTRIES`] entries from the start of a range, and whether the range
    /// has no further entries.
    fn collect(
        &self,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
    ) -> Result<(Vec<FoundPair>, bool), ReadError> {
        let state = self.shared.read();
        let entries = state.entries.range::<[u8], _>(range);
        let choose = |(key, versions): (&Vec<u8>, &Vec<Version>)| {
            Some((key.clone(), Arc::clone(self.choose(versions)?)))
        };
        let chunk: Vec<_> = if reverse {
            entries.rev().filter_map(choose).take(SCAN_ENTRIES).collect()
        } else {
            entries.filter_map(choose).take(SCAN_ENTRIES).collect()
        };
        drop(state);
        if let (Some((one, _)), Some((other, _))) = (chunk.first(), chunk.last()) {
            self.shared.check(one.min(other), one.max(other))?;
        }
        let done = chunk.len() < SCAN_ENTRIES;
        Ok((chunk, done))
    }
}

impl Drop for MemoryView {
    fn drop(&mut self) {
        let mut views = self.shared.views();
        if let Some(count) = views.get_mut(&self.sequence) {
            *count -= 1;
            if *count == 0 {
                views.remove(&self.sequence);
            }
        }
    }
}

impl View for MemoryView {
    fn get(&self, key: &[u8]) -> Result<Option<Value>, ReadError> {
        self.shared.check(key, key)?;
        let state = self.shared.read();
        let value = state.entries.get(key).and_then(|versions| self.choose(versions));
        Ok(value.cloned())
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), ReadError> {
        let (mut lower, mut upper) = (Bound::Included(from.to_vec()), Bound::Excluded(to.to_vec()));
        loop {
            let bounds = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
            let (Bound::Included(start) | Bound::Excluded(start), Bound::Excluded(end)) = bounds
            else {
                return Ok(());
            };
            if start >= end {
                return Ok(());
            }
            let (chunk, done) = self.collect(bounds, reverse)?;
            for (key, value) in &chunk {
                if visit(key, value).is_break() {
                    return Ok(());
                }
            }
            let Some((last, _)) = chunk.into_iter().next_back().filter(|_| !done) else {
                return Ok(());
            };
            if reverse {
                upper = Bound::Excluded(last);
            } else {
                lower = Bound::Excluded(last);
            }
        }
    }
}
