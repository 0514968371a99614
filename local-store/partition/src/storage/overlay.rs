//! A storage view plus the changes of the batch that is being built.
//!
//! The overlay collects the stream records of an entry into rows, which it writes when they are
//! full or when it is closed.

use std::hash::BuildHasher;
use std::mem;
use std::ops::ControlFlow;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::keys::stream_row::OpenRows;
use crate::mutation::{self, Mutation};
use crate::storage::{Batch, Op, ReadError, Value, View, Visit};

/// The change of a key in a batch: its new value, or `None` for a deletion.
struct KeyChange {
    value: Option<Value>,
    /// Whether the key did not exist before the batch.
    is_new: bool,
}

/// The last change of each key.
#[derive(Default)]
struct KeyChanges {
    in_order: Vec<(Vec<u8>, KeyChange)>,
    /// Positions of keys in `in_order`, with the hashes of the keys. The seed of the hashes may be
    /// random, because nothing iterates over this table.
    places: HashTable<(u64, usize)>,
    hashing: RandomState,
}

impl KeyChanges {
    /// Creates an empty collection with capacity for `count` changes.
    fn with_capacity(count: usize) -> Self {
        let (in_order, places) = (Vec::with_capacity(count), HashTable::with_capacity(count));
        Self { in_order, places, hashing: RandomState::default() }
    }

    fn get(&self, key: &[u8]) -> Option<&Option<Value>> {
        let place = self.place(self.hashing.hash_one(key), key)?;
        self.in_order.get(place).map(|(_, change)| &change.value)
    }

    fn place(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let is_it = |(other, place): &(u64, usize)| {
            *other == hash && self.in_order.get(*place).is_some_and(|(found, _)| found == key)
        };
        self.places.find(hash, is_it).map(|(_, place)| *place)
    }

    /// Records a change; `is_new` has an effect only for the first change of a key.
    fn insert(&mut self, key: Vec<u8>, value: Option<Value>, is_new: bool) {
        let hash = self.hashing.hash_one(key.as_slice());
        let known = self.place(hash, &key).and_then(|place| self.in_order.get_mut(place));
        if let Some((_, known)) = known {
            known.value = value;
            return;
        }
        self.places.insert_unique(hash, (hash, self.in_order.len()), |(hash, _)| *hash);
        self.in_order.push((key, KeyChange { value, is_new }));
    }

    /// Returns the changes from `from` (inclusive) to `to` (exclusive), in key order.
    fn within(&self, from: &[u8], to: &[u8]) -> Vec<(&[u8], Option<&Value>)> {
        let changes =
            self.in_order.iter().map(|(key, change)| (key.as_slice(), change.value.as_ref()));
        let mut within: Vec<_> = changes.filter(|(key, _)| from <= *key && *key < to).collect();
        within.sort_unstable_by_key(|(key, _)| *key);
        within
    }
}

/// A storage view plus the changes of the batch that is being built, so that the commands of one
/// log entry see each other's effects.
pub(crate) struct Overlay<'a> {
    base: &'a dyn View,
    changes: KeyChanges,
    /// Open rows of stream records. Reads of the overlay do not see them until they are closed.
    open_rows: OpenRows,
}

impl<'a> Overlay<'a> {
    pub(crate) fn new(base: &'a dyn View) -> Self {
        Self { base, changes: KeyChanges::default(), open_rows: OpenRows::default() }
    }

    /// Creates an overlay with capacity for `changes` changes.
    pub(crate) fn with_room(base: &'a dyn View, changes: usize) -> Self {
        Self { changes: KeyChanges::with_capacity(changes), ..Self::new(base) }
    }

    pub(crate) fn put(&mut self, key: Vec<u8>, value: impl Into<Value>) {
        self.changes.insert(key, Some(value.into()), false);
    }

    /// Writes the value of a key that does not exist.
    pub(crate) fn insert(&mut self, key: Vec<u8>, value: impl Into<Value>) {
        self.changes.insert(key, Some(value.into()), true);
    }

    /// Returns the rows of stream records that still accept records.
    pub(crate) fn open_rows(&mut self) -> &mut OpenRows {
        &mut self.open_rows
    }

    /// Writes the open rows of stream records. Call this before code that reads or writes rows of
    /// stream records directly.
    pub(crate) fn close_rows(&mut self) {
        for (key, value) in mem::take(&mut self.open_rows).close() {
            self.insert_row(key, value);
        }
    }

    /// Writes a row of stream records. The key contains the row's position in the log, so it did
    /// not exist before.
    pub(crate) fn insert_row(&mut self, key: Vec<u8>, row: Vec<u8>) {
        // With this deliberate fault, the row may exist already. If it were declared as new, the
        // engine would reject it before the checkers could find the fault.
        let is_new = !mutation::is_active(Mutation::ApplyTwice);
        self.changes.insert(key, Some(row.into()), is_new);
    }

    pub(crate) fn delete(&mut self, key: Vec<u8>) {
        self.changes.insert(key, None, false);
    }

    /// Applies the changes of a batch that was built on top of this overlay.
    pub(crate) fn adopt(&mut self, batch: Batch) {
        self.close_rows();
        for op in batch.ops {
            match op {
                Op::Put(key, value) => self.put(key, value),
                Op::Insert(key, value) => self.insert(key, value),
                Op::Delete(key) => self.delete(key),
            }
        }
    }

    pub(crate) fn into_batch(mut self) -> Batch {
        self.close_rows();
        let op = |(key, KeyChange { value, is_new })| match value {
            Some(value) if is_new => Some(Op::Insert(key, value)),
            Some(value) => Some(Op::Put(key, value)),
            // A key that was created and deleted within the batch needs no operation.
            None if is_new => None,
            None => Some(Op::Delete(key)),
        };
        Batch { ops: self.changes.in_order.into_iter().filter_map(op).collect() }
    }
}

impl View for Overlay<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Value>, ReadError> {
        match self.changes.get(key) {
            Some(change) => Ok(change.clone()),
            None => self.base.get(key),
        }
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), ReadError> {
        debug_assert!(self.open_rows.is_empty(), "stream rows must be closed before a scan");
        if from >= to {
            return Ok(());
        }
        let mut changes = self.changes.within(from, to);
        if reverse {
            changes.reverse();
        }
        let mut changes = changes.into_iter();
        let mut next = changes.next();
        let mut stopped = false;
        // Merges the overlay's changes into the scan. They replace the values of the underlying
        // view.
        self.base.scan(from, to, reverse, &mut |key, value| {
            while let Some((changed, change)) = next {
                let order = if reverse { key.cmp(changed) } else { changed.cmp(key) };
                if order.is_gt() {
                    break;
                }
                next = changes.next();
                if let Some(value) = change
                    && visit(changed, value).is_break()
                {
                    stopped = true;
                    return ControlFlow::Break(());
                }
                if order.is_eq() {
                    return ControlFlow::Continue(());
                }
            }
            let flow = visit(key, value);
            stopped = flow.is_break();
            flow
        })?;
        while !stopped && let Some((key, change)) = next {
            if let Some(value) = change {
                stopped = visit(key, value).is_break();
            }
            next = changes.next();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::storage::testing::MapStorage;

    proptest! {
        #[test]
        fn an_overlay_reads_like_its_batch_applied(
            base in prop::collection::btree_map(prop::collection::vec(0u8..4, 1..3), any::<u8>(), 0..12),
            changes in prop::collection::vec((prop::collection::vec(0u8..4, 1..3), any::<Option<u8>>()), 0..12),
            from in prop::collection::vec(0u8..4, 0..3),
            to in prop::collection::vec(0u8..5, 0..3),
            reverse in any::<bool>(),
            limit in 0usize..9,
        ) {
            let mut storage = MapStorage(base.into_iter().map(|(k, v)| (k, vec![v])).collect());
            let below = storage.clone();
            let mut overlay = Overlay::new(&below);
            for (key, value) in changes {
                match value {
                    Some(value) => overlay.put(key, vec![value]),
                    None => overlay.delete(key),
                }
            }
            let read = |view: &dyn View| {
                let mut seen = Vec::new();
                view.scan(&from, &to, reverse, &mut |key, value| {
                    seen.push((key.to_vec(), value.to_vec()));
                    if seen.len() > limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                }).unwrap();
                seen
            };
            let through_overlay = read(&overlay);
            storage.apply(overlay.into_batch());
            prop_assert_eq!(through_overlay, read(&storage));
        }
    }
}
