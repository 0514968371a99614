//! The rows of a table in memory: a hash table for lookups by key, and an index in key order.
//!
//! Most of the time of a lookup is spent on CPU cache misses. Therefore a row stores its key and
//! its versions together, and rows that are needed together are prefetched together. Other modules
//! decide which version a view sees.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hint::black_box;
use std::mem;
use std::ops::Bound;

use hashbrown::HashTable;

use super::blocks::{Blocks, RowPosition, RowState};
use super::key::{Key, KeyPrefix, LINE_BYTES};
use super::row::{ROWS_TOGETHER, Row};

/// The memory of a row in bytes, without its value and the remaining bytes of a long key: the row
/// itself, and its positions in the key order and in the hash table, which is two thirds full.
pub(super) const ROW_BYTES: u64 = 275;

/// The number of bytes of each value to prefetch for a reader of the entire value. The CPU
/// automatically prefetches the following bytes.
pub(super) const VALUE_BYTES_TOGETHER: usize = 512;

/// The position of a row, and the hash of its key. The hash excludes most other keys without
/// reading their rows.
struct Slot {
    hash: u32,
    place: RowPosition,
}

/// A lower and an upper bound.
type Bounds<T> = (Bound<T>, Bound<T>);

/// Positions of the rows with one key prefix, in key order. Most prefixes have one position. Index
/// entries with the same key, and items with the same long partition key, have several positions.
enum RowPositions {
    One(RowPosition),
    Several(Vec<RowPosition>),
}

impl RowPositions {
    fn as_slice(&self) -> &[RowPosition] {
        match self {
            Self::One(place) => std::slice::from_ref(place),
            Self::Several(places) => places,
        }
    }

    /// Returns the positions of the rows in a range of keys.
    fn within(&self, (from, to): &Bounds<Key>, blocks: &Blocks) -> &[RowPosition] {
        let places = self.as_slice();
        let is_before = |key: &Key| match from {
            Bound::Included(from) => key < from,
            Bound::Excluded(from) => key <= from,
            Bound::Unbounded => false,
        };
        let is_not_behind = |key: &Key| match to {
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
            Bound::Unbounded => true,
        };
        let count = |holds: &dyn Fn(&Key) -> bool| {
            places.partition_point(|place| blocks.get(*place).is_some_and(|row| holds(&row.key)))
        };
        places.get(count(&is_before)..count(&is_not_behind)).unwrap_or_default()
    }

    /// Adds the positions of rows whose keys have no position in this set yet. Both sets may be
    /// large, so each new position is placed by binary search, and each existing position moves
    /// only once.
    fn add(&mut self, mut coming: Vec<RowPosition>, blocks: &Blocks) {
        let key_of = |place: &RowPosition| blocks.get(*place).map(|row| &row.key);
        coming.sort_unstable_by(|one, other| key_of(one).cmp(&key_of(other)));
        let mut rest = self.as_slice();
        let mut all = Vec::with_capacity(rest.len() + coming.len());
        for place in coming {
            let key = key_of(&place);
            let (before, behind) = rest.split_at(rest.partition_point(|other| key_of(other) < key));
            all.extend_from_slice(before);
            all.push(place);
            rest = behind;
        }
        all.extend_from_slice(rest);
        *self = Self::Several(all);
    }

    /// Removes positions, which must be sorted by number. Returns whether the set is then empty.
    fn remove(&mut self, gone: &[RowPosition]) -> bool {
        let is_left = |place: &RowPosition| gone.binary_search(place).is_err();
        match self {
            Self::One(only) => !is_left(only),
            Self::Several(places) => {
                places.retain(is_left);
                places.is_empty()
            }
        }
    }
}

/// The rows of a table in memory.
#[derive(Default)]
pub(super) struct Rows {
    blocks: Blocks,
    by_hash: HashTable<Slot>,
    in_order: BTreeMap<KeyPrefix, RowPositions>,
    /// Positions that are not in the key order yet, without duplicates. Some of their rows may have
    /// been removed in the meantime, and other rows may have been stored at these positions.
    unordered: Vec<RowPosition>,
    /// Positions of released rows that have not been removed from the key order yet. The next
    /// removal skips rows that have been written again.
    released: Vec<RowPosition>,
    /// The memory of the rows in bytes, without their values.
    bytes: u64,
    /// The number of removals of rows from the key order.
    removals: u64,
}

/// The probable positions of the rows with some keys. [`Rows::find_fetched`] uses them only if
/// `removals` shows that no row was removed from the order in the meantime.
pub(super) struct ProbablePositions {
    places: [Option<RowPosition>; ROWS_TOGETHER],
    removals: u64,
}

/// The number of unordered rows at which they are put in order, even if no range is read. Ordering
/// single rows would cause a cache miss for each row. If many rows are ordered together,
/// consecutive rows are usually close to each other, and many index entries have already been
/// deleted. Ordering takes some milliseconds, during which other threads wait. A table in memory is
/// usually full before it has so many unordered rows.
const UNORDERED_MAX: usize = 32 * 1024;
/// The number of released rows at which they are removed from the key order. The removal takes a
/// millisecond or two.
const GONE_MAX: usize = 4096;

/// Returns the bytes of a row without its value.
fn row_bytes(row: &Row) -> u64 {
    ROW_BYTES + row.key.rest_bytes()
}

/// Spreads a hash over 64 bits, because the hash table uses its highest and its lowest bits.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Rows {
    pub(super) fn find(&self, key: &Key) -> Option<&Row> {
        self.blocks.get(self.place(key)?)
    }

    /// Returns the position of the row whose key was the `number`-th of a prefetch. The caller
    /// ensures that no row with this key was inserted after the prefetch.
    pub(super) fn find_fetched(
        &self,
        key: &Key,
        fetched: &ProbablePositions,
        number: usize,
    ) -> Option<RowPosition> {
        // A removal frees positions, which other rows may then use. Therefore positions from before
        // a removal are ignored.
        let likely = fetched.places.get(number).filter(|_| fetched.removals == self.removals);
        let is_there =
            |place: RowPosition| self.blocks.get(place).is_some_and(|row| row.key == *key);
        match likely {
            Some(None) => {
                debug_assert!(self.place(key).is_none());
                None
            }
            Some(Some(place)) if is_there(*place) => Some(*place),
            _ => self.place(key),
        }
    }

    pub(super) fn get_mut(&mut self, place: RowPosition) -> Option<&mut Row> {
        self.blocks.get_mut(place)
    }

    fn place(&self, key: &Key) -> Option<RowPosition> {
        let is_it = |slot: &Slot| {
            slot.hash == key.hash()
                && self.blocks.get(slot.place).is_some_and(|row| row.key == *key)
        };
        self.by_hash.find(spread(key.hash()), is_it).map(|slot| slot.place)
    }

    /// Loads the rows with these keys, at most [`ROWS_TOGETHER`], and `value_bytes` of their values
    /// into the CPU cache. The reads do not depend on each other, so their cache misses overlap. If
    /// the rows were read one by one, each miss would stall the CPU.
    pub(super) fn fetch(&self, keys: &[Key], value_bytes: usize) -> ProbablePositions {
        let mut places = [None; ROWS_TOGETHER];
        for (place, key) in places.iter_mut().zip(keys) {
            let is_likely = |slot: &Slot| slot.hash == key.hash();
            *place = self.by_hash.find(spread(key.hash()), is_likely).map(|slot| slot.place);
        }
        self.fetch_places(&places, value_bytes);
        ProbablePositions { places, removals: self.removals }
    }

    fn fetch_places(&self, places: &[Option<RowPosition>], value_bytes: usize) {
        let rows = || places.iter().flatten().filter_map(|place| self.blocks.get(*place));
        for row in rows() {
            black_box((row.key.ends(), row.versions.number()));
        }
        for row in rows() {
            let value = row.versions.value().unwrap_or_default();
            let value = value.get(..value_bytes).unwrap_or(value);
            let bytes = value.iter().step_by(LINE_BYTES);
            // A caller that needs no value bytes compares only key prefixes, so the remaining bytes
            // of long keys are not loaded.
            let ends = (value_bytes > 0).then(|| row.key.rest_lines()).into_iter().flatten();
            black_box(bytes.chain(ends).fold(0, |all, byte| all ^ byte));
        }
    }

    /// Inserts a row whose key is not in the table. `is_new` is true if the key did not exist
    /// before.
    pub(super) fn insert(&mut self, row: Row, is_new: bool) {
        let hash = row.key.hash();
        self.bytes += row_bytes(&row);
        let (place, is_listed) = self.blocks.push(row, is_new);
        self.by_hash.insert_unique(spread(hash), Slot { hash, place }, |slot| spread(slot.hash));
        if is_listed {
            return;
        }
        self.unordered.push(place);
        if self.unordered.len() == UNORDERED_MAX {
            self.put_in_order();
        }
    }

    /// Returns the memory of the rows in bytes, without their values.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Releases a row that has no versions to keep. An unordered row is removed immediately; any
    /// other row is removed later. Only a row whose key was new can be removed; other rows remain
    /// as tombstones.
    pub(super) fn release(&mut self, place: RowPosition) {
        match self.blocks.row_state_mut(place).copied() {
            Some(RowState { is_new: true, is_waiting: true, .. }) => self.free(place),
            Some(RowState { is_new: true, is_waiting: false, .. }) => {
                self.released.push(place);
                if self.released.len() == GONE_MAX {
                    self.remove_gone();
                }
            }
            _ => {}
        }
    }

    /// Removes a row that is not in the key order, or was removed from it.
    fn free(&mut self, place: RowPosition) {
        let Self { blocks, by_hash, bytes, .. } = self;
        let Some(row) = blocks.get_mut(place) else { return };
        *bytes = bytes.saturating_sub(row_bytes(row));
        row.key.drop_rest();
        let hash = spread(row.key.hash());
        if let Ok(slot) = by_hash.find_entry(hash, |slot| slot.place == place) {
            slot.remove();
        }
        if let Some(state) = blocks.row_state_mut(place) {
            state.is_waiting = false;
        }
        blocks.free.push(place);
    }

    /// Returns whether every row is in the key order, and no released row waits for removal.
    pub(super) fn is_in_order(&self) -> bool {
        self.unordered.is_empty() && self.released.is_empty()
    }

    /// Puts the waiting rows in order, and removes the released rows.
    pub(super) fn put_in_order(&mut self) {
        // Taking the vector also frees its capacity, which a full table no longer needs.
        let mut waiting = mem::take(&mut self.unordered);
        waiting.retain(|place| {
            self.blocks.row_state_mut(*place).is_some_and(|state| {
                state.is_listed = false;
                mem::take(&mut state.is_waiting)
            })
        });
        let mut sorted = self.beginnings(&waiting);
        sorted.sort_unstable();
        let Self { blocks, in_order, .. } = self;
        for coming in sorted.chunk_by(|(one, _), (other, _)| one == other) {
            let Some((beginning, place)) = coming.first() else { continue };
            let entry = in_order.entry(*beginning);
            if coming.len() == 1 && matches!(entry, Entry::Vacant(_)) {
                entry.or_insert(RowPositions::One(*place));
            } else {
                let places = entry.or_insert_with(|| RowPositions::Several(Vec::new()));
                places.add(coming.iter().map(|(_, place)| *place).collect(), blocks);
            }
        }
        self.remove_gone();
    }

    /// Returns the key prefixes of the rows at some positions, with the positions.
    fn beginnings(&self, places: &[RowPosition]) -> Vec<(KeyPrefix, RowPosition)> {
        let mut beginnings = Vec::with_capacity(places.len());
        for places in places.chunks(ROWS_TOGETHER) {
            let mut together = [None; ROWS_TOGETHER];
            together.iter_mut().zip(places).for_each(|(to, place)| *to = Some(*place));
            self.fetch_places(&together, 0);
            let beginning =
                |place: &RowPosition| Some((self.blocks.get(*place)?.key.beginning(), *place));
            beginnings.extend(places.iter().filter_map(beginning));
        }
        beginnings
    }

    /// Removes the released rows from the key order, except rows that have been written again.
    fn remove_gone(&mut self) {
        self.removals += 1;
        let mut gone = mem::take(&mut self.released);
        let is_nothing = |place: RowPosition| {
            self.blocks.get(place).is_some_and(|row| row.versions.is_nothing())
        };
        gone.retain(|place| is_nothing(*place));
        gone.sort_unstable();
        gone.dedup();
        let mut sorted = self.beginnings(&gone);
        sorted.sort_unstable();
        for going in sorted.chunk_by(|(one, _), (other, _)| one == other) {
            let places: Vec<RowPosition> = going.iter().map(|(_, place)| *place).collect();
            let beginning = going.first().map(|(beginning, _)| *beginning).unwrap_or_default();
            if let Entry::Occupied(mut found) = self.in_order.entry(beginning)
                && found.get_mut().remove(&places)
            {
                found.remove();
            }
        }
        gone.into_iter().for_each(|place| self.free(place));
    }

    /// Returns the rows of a range, in key order. All rows must be in the key order, and the lower
    /// bound must not be above the upper bound.
    pub(super) fn range<'a>(
        &'a self,
        range: &'a Range,
    ) -> impl DoubleEndedIterator<Item = &'a Row> {
        debug_assert!(self.is_in_order());
        self.in_order
            .range(range.beginnings())
            .flat_map(move |(_, places)| places.within(&range.keys, &self.blocks))
            .filter_map(|place| self.blocks.get(*place))
    }

    /// Returns the positions of the rows whose first byte is wanted, in key order, without removed
    /// rows that need no tombstone. If there are unordered rows, sorts a copy of their positions,
    /// so that other threads do not wait until all rows are in order.
    pub(super) fn places(&self, is_wanted: impl Fn(u8) -> bool) -> Vec<RowPosition> {
        let is_wanted = |[first, ..]: &KeyPrefix| {
            let [first, ..] = first.to_be_bytes();
            is_wanted(first)
        };
        if self.is_in_order() {
            let wanted = self.in_order.iter().filter(|(beginning, _)| is_wanted(beginning));
            return wanted.flat_map(|(_, places)| places.as_slice()).copied().collect();
        }
        let mut sorted: Vec<_> = self.blocks.needed(is_wanted).collect();
        sorted.sort_unstable();
        let key_of =
            |(_, place): &(KeyPrefix, RowPosition)| self.blocks.get(*place).map(|row| &row.key);
        for alike in sorted.chunk_by_mut(|(one, _), (other, _)| one == other) {
            if alike.len() > 1 {
                alike.sort_unstable_by(|one, other| key_of(one).cmp(&key_of(other)));
            }
        }
        sorted.into_iter().map(|(_, place)| place).collect()
    }

    /// Returns the rows at these positions, at most [`ROWS_TOGETHER`], and prefetches them
    /// together.
    pub(super) fn in_places(&self, places: &[RowPosition]) -> impl Iterator<Item = &Row> {
        let mut together = [None; ROWS_TOGETHER];
        together.iter_mut().zip(places).for_each(|(to, place)| *to = Some(*place));
        self.fetch_places(&together, VALUE_BYTES_TOGETHER);
        together.into_iter().flatten().filter_map(|place| self.blocks.get(place))
    }
}

/// A range of keys.
pub(super) struct Range {
    keys: Bounds<Key>,
}

impl Range {
    pub(super) fn new(from: Bound<&[u8]>, to: Bound<&[u8]>) -> Self {
        Self { keys: (from.map(Key::from), to.map(Key::from)) }
    }

    /// Restricts the range to the keys after `behind`, in the direction of the scan.
    pub(super) fn resume_after(&mut self, reverse: bool, behind: &[u8]) {
        let behind = Bound::Excluded(Key::from(behind));
        if reverse {
            self.keys.1 = behind;
        } else {
            self.keys.0 = behind;
        }
    }

    /// Returns the range of key prefixes. Keys whose prefix equals a bound's prefix may be inside
    /// or outside of the range.
    fn beginnings(&self) -> Bounds<KeyPrefix> {
        let inclusive = |bound: &Bound<Key>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => Bound::Included(key.beginning()),
            Bound::Unbounded => Bound::Unbounded,
        };
        (inclusive(&self.keys.0), inclusive(&self.keys.1))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ops::RangeBounds;

    use proptest::prelude::*;

    use super::super::blocks::ROWS_IN_BLOCK;
    use super::super::versions::Versions;
    use super::*;

    /// Returns keys of few different letters. Many keys have a common prefix, and some are long.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let letters = |most| prop::collection::vec(0_u8..3, 0..most);
        (prop_oneof![Just(0), Just(63), Just(64), Just(80)], letters(4))
            .prop_map(|(common, end)| [vec![1; common], end].concat())
    }

    fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
        prop_oneof![
            key().prop_map(Bound::Included),
            key().prop_map(Bound::Excluded),
            Just(Bound::Unbounded)
        ]
    }

    fn release(rows: &mut Rows, key: &[u8]) {
        if let Some(place) = rows.place(&Key::from(key)) {
            rows.get_mut(place).unwrap().versions = Versions::default();
            rows.release(place);
        }
    }

    fn insert(rows: &mut Rows, key: &[u8], is_new: bool) {
        rows.insert(Row { key: Key::from(key), versions: Versions::of_something() }, is_new);
    }

    fn bytes(row: &Row) -> Vec<u8> {
        let mut out = Vec::new();
        row.key.append_to(&mut out);
        out
    }

    fn all(rows: &Rows) -> Vec<Vec<u8>> {
        let places = rows.places(|_| true);
        places.chunks(ROWS_TOGETHER).flat_map(|places| rows.in_places(places)).map(bytes).collect()
    }

    proptest! {
        #[test]
        fn rows_are_found_and_in_order(
            keys in prop::collection::btree_set(key(), 0..80).prop_map(Vec::from_iter).prop_shuffle(),
            // The number of rows after which all rows are put in order once.
            first in 0_usize..80,
            // The rows that are released at the end, and the rows that are released right after
            // their insertion. Only rows with new keys and without versions can be released.
            gone in prop::collection::vec(any::<bool>(), 80),
            soon in prop::collection::vec(any::<bool>(), 80),
            new in prop::collection::vec(any::<bool>(), 80),
            wanted in prop::collection::vec(key(), 0..20),
            (from, to) in (bound(), bound()),
        ) {
            let mut rows = Rows::default();
            for (position, key) in keys.iter().enumerate() {
                insert(&mut rows, key, new[position]);
                if gone[position] && soon[position] {
                    release(&mut rows, key);
                    // Another row, or the same row again, may use the position.
                    if new[position] && soon[position / 2] {
                        insert(&mut rows, key, true);
                    }
                }
                if position == first {
                    rows.put_in_order();
                }
            }
            for (key, _) in keys.iter().zip(&gone).filter(|(_, gone)| **gone) {
                // A second release has no effect.
                release(&mut rows, key);
                release(&mut rows, key);
            }
            let before = all(&rows);
            rows.put_in_order();
            prop_assert_eq!(before, all(&rows));
            let is_left = |position: usize| !(gone[position] && new[position]);
            let left: Vec<_> =
                keys.iter().enumerate().filter(|(position, _)| is_left(*position)).collect();
            let row_bytes = left.iter().map(|(_, key)| ROW_BYTES + Key::from(key.as_slice()).rest_bytes());
            prop_assert_eq!(rows.bytes(), row_bytes.sum::<u64>());
            let mut keys: BTreeSet<Vec<u8>> = left.into_iter().map(|(_, key)| key.clone()).collect();
            // New rows use the positions of removed rows.
            let places = rows.blocks.free.len();
            for key in wanted.iter().take(places / 2) {
                if keys.insert(key.clone()) {
                    insert(&mut rows, key, true);
                }
            }
            prop_assert!(places < 2 || wanted.is_empty() || rows.blocks.free.len() <= places);
            for key in keys.iter().chain(&wanted) {
                let found = rows.find(&Key::from(key.as_slice()));
                prop_assert_eq!(found.map(bytes), keys.get(key).cloned());
            }
            rows.put_in_order();
            prop_assert!(all(&rows).iter().eq(&keys));
            let is_within = |key: &Vec<u8>| (from.clone(), to.clone()).contains(key);
            let is_empty = match (&from, &to) {
                (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
                (Bound::Included(from), Bound::Included(to)) => from > to,
                (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
            };
            prop_assume!(!is_empty);
            let ends = Range::new(from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
            let found: Vec<_> = rows.range(&ends).map(bytes).collect();
            prop_assert!(found.iter().eq(keys.iter().filter(|key| is_within(key))));
            let back: Vec<_> = rows.range(&ends).rev().map(bytes).collect();
            prop_assert!(back.iter().eq(keys.iter().filter(|key| is_within(key)).rev()));
        }
    }

    #[test]
    fn rows_of_several_blocks_are_all_there() {
        let count = UNORDERED_MAX + 3 * ROWS_IN_BLOCK + 1;
        let mut rows = Rows::default();
        for number in 0..count {
            insert(&mut rows, &number.to_be_bytes(), false);
        }
        assert_eq!(rows.unordered.len(), count - UNORDERED_MAX);
        rows.put_in_order();
        let expected: Vec<_> = (0..count).map(|number| number.to_be_bytes().to_vec()).collect();
        assert_eq!(all(&rows), expected);
        for key in &expected {
            assert!(rows.find(&Key::from(key.as_slice())).is_some());
        }
    }
}
