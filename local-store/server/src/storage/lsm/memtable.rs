//! A table in memory: what batches have changed since the last table was sealed, in the order of the
//! keys.
//!
//! A change takes the place of the one before it, unless an open view sees that one: what is written
//! again and again takes no more room, and is written to disk once. Rows are found by the hash of
//! their key, as most keys are looked for one by one, and stand in the order of the keys beside that.
//! It does not decide when a table is full, and knows no tables but itself.

use std::cmp::Ordering as Order;
use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::mem;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use lsm_tree::{InternalValue, Slice, ValueType};
use partition::{Op, Value, Visit};

/// What a row takes beside its value and the end of a long key: its places in the order and among the
/// hashes, which are full to two thirds, and two allocations.
const ROW_BYTES: u64 = 264;
/// What another version of a row takes beside its value.
const VERSION_BYTES: u64 = 64;
/// Changes that are made while readers wait for them.
const CHANGES_AT_A_TIME: usize = 32;
/// Rows and bytes that are copied while a writer waits for them. The first copy is smaller, as most
/// readers want little.
const ROWS_AT_A_TIME: usize = 128;
const FIRST_ROWS: usize = 16;
const BYTES_AT_A_TIME: usize = 64 * 1024;

/// Bytes of a key that stand in the table itself: most keys have no more.
const INLINE_BYTES: usize = 48;

/// Of these first bytes, those that stand in the order itself: of an item's key the table, the token
/// and the beginning of the partition key.
const ORDERED_BYTES: usize = 24;

/// With what keys are hashed: another secret in each process, so that nobody can choose keys which
/// share a hash.
static HASHING: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// A key. A comparison mostly finds what it needs without going elsewhere.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The first bytes, with zeros behind a shorter key. Where they differ they are ordered as the
    /// keys are.
    first: [u64; INLINE_BYTES / 8],
    /// The others. Of two keys with the same first bytes and no others, the shorter one ends with
    /// the zeros that the longer one has.
    rest: Box<[u8]>,
    length: usize,
    /// The same for equal keys.
    hash: u64,
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Self {
        let (inline, rest) = bytes.split_at_checked(INLINE_BYTES).unwrap_or((bytes, &[]));
        let mut padded = [0; INLINE_BYTES];
        if let Some(to) = padded.get_mut(..inline.len()) {
            to.copy_from_slice(inline);
        }
        let mut first = [0; INLINE_BYTES / 8];
        for (number, bytes) in first.iter_mut().zip(padded.as_chunks().0) {
            *number = u64::from_be_bytes(*bytes);
        }
        let hash = HASHING.hash_one(bytes);
        Self { first, rest: Box::from(rest), length: bytes.len(), hash }
    }
}

impl Key {
    fn append_to(&self, out: &mut Vec<u8>) {
        let end = out.len() + self.length.min(INLINE_BYTES);
        for number in self.first {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.truncate(end);
        out.extend_from_slice(&self.rest);
    }
}

/// A value, or none for a deletion, and the number of the batch that made it so.
struct Version {
    number: u64,
    value: Option<Value>,
}

impl Version {
    fn bytes(&self) -> u64 {
        let length = self.value.as_ref().map_or(0, |value| value.len());
        u64::try_from(length).unwrap_or(u64::MAX)
    }
}

/// What is known of a key.
struct Versions {
    newest: Version,
    /// What views still see, the newest last.
    older: Vec<Version>,
}

impl Versions {
    /// What a view that sees the batches below a number finds.
    fn version(&self, below: u64) -> Option<&Version> {
        let mut versions = std::iter::once(&self.newest).chain(self.older.iter().rev());
        versions.find(|version| version.number < below)
    }

    /// Puts a version on top, and lets go of those that nobody sees. Gives the bytes that came and
    /// went.
    fn change(&mut self, version: Version, seen: &Seen) -> (u64, u64) {
        let (mut came, mut went) = (version.bytes(), 0);
        let before = mem::replace(&mut self.newest, version);
        if seen.sees(before.number) {
            came += VERSION_BYTES;
            self.older.push(before);
        } else {
            went += before.bytes();
        }
        if !self.older.is_empty() {
            let bytes = |version: Version| version.bytes() + VERSION_BYTES;
            let end = self.older.partition_point(|version| seen.sees(version.number));
            went += self.older.drain(end..).map(bytes).sum::<u64>();
            // The oldest view sees the newest of those below it, and none before that.
            let below = self.older.partition_point(|version| version.number < seen.oldest);
            went += self.older.drain(..below.saturating_sub(1)).map(bytes).sum::<u64>();
        }
        (came, went)
    }
}

struct Row {
    key: Key,
    versions: Mutex<Versions>,
}

impl Row {
    fn new(key: Key, newest: Version) -> Arc<Self> {
        Arc::new(Self { key, versions: Mutex::new(Versions { newest, older: Vec::new() }) })
    }

    fn versions(&self) -> MutexGuard<'_, Versions> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A row among the others, ordered by its key.
struct Ordered {
    /// The key's first bytes, which mostly tell.
    first: [u64; ORDERED_BYTES / 8],
    row: Arc<Row>,
}

impl Ordered {
    fn new(row: Arc<Row>) -> Self {
        let mut first = [0; ORDERED_BYTES / 8];
        for (to, from) in first.iter_mut().zip(row.key.first) {
            *to = from;
        }
        Self { first, row }
    }

    /// Stands where a row with this key would.
    fn at(key: Key) -> Self {
        Self::new(Row::new(key, Version { number: 0, value: None }))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> Order {
        self.first.cmp(&other.first).then_with(|| self.row.key.cmp(&other.row.key))
    }
}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ordered {
    fn eq(&self, other: &Self) -> bool {
        self.row.key == other.row.key
    }
}

impl Eq for Ordered {}

/// All rows, twice.
#[derive(Default)]
struct Rows {
    /// With the hashes of their keys, so that none has to be looked at when the room grows.
    by_hash: HashTable<(u64, Arc<Row>)>,
    in_order: BTreeSet<Ordered>,
}

impl Rows {
    fn find(&self, key: &Key) -> Option<&Row> {
        self.by_hash.find(key.hash, |(_, row)| row.key == *key).map(|(_, row)| &**row)
    }

    /// Puts a version under a key. Gives the bytes that came and went.
    fn change(&mut self, key: Key, version: Version, seen: &Seen) -> (u64, u64) {
        let hash = key.hash;
        match self.by_hash.entry(hash, |(_, row)| row.key == key, |(hash, _)| *hash) {
            Entry::Occupied(found) => found.get().1.versions().change(version, seen),
            Entry::Vacant(place) => {
                let rest = u64::try_from(key.rest.len()).unwrap_or(u64::MAX);
                let came = ROW_BYTES + rest + version.bytes();
                let row = Row::new(key, version);
                place.insert((hash, Arc::clone(&row)));
                self.in_order.insert(Ordered::new(row));
                (came, 0)
            }
        }
    }
}

/// The numbers of the oldest and of the newest open view.
pub(super) struct Seen {
    pub(super) oldest: u64,
    pub(super) newest: u64,
}

impl Seen {
    /// Whether a view that is open may see what a batch did, if a later one has undone it.
    fn sees(&self, number: u64) -> bool {
        number < self.newest
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Memtable {
    rows: RwLock<Rows>,
    bytes: AtomicU64,
}

impl Memtable {
    /// Makes the changes of a batch. Nobody opens a view meanwhile.
    pub(super) fn apply(&self, ops: &[Op], number: u64, seen: &Seen) {
        for ops in ops.chunks(CHANGES_AT_A_TIME) {
            let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
            let (mut came, mut went) = (0, 0);
            for op in ops {
                let (key, value) = match op {
                    Op::Put(key, value) => (key, Some(value.clone())),
                    Op::Delete(key) => (key, None),
                };
                let version = Version { number, value };
                let (more, less) = rows.change(Key::from(key.as_slice()), version, seen);
                came += more;
                went += less;
            }
            // Nobody else writes to it, and what goes has come before.
            let bytes = self.bytes.load(Ordering::Relaxed);
            self.bytes.store((bytes + came).saturating_sub(went), Ordering::Relaxed);
        }
    }

    /// The memory that it takes, about.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What a view that sees the batches below a number finds under a key: `None` if nothing is
    /// known of it here, `Some(None)` if it was deleted.
    pub(super) fn get(&self, key: &Key, below: u64) -> Option<Option<Value>> {
        let rows = self.read();
        let versions = rows.find(key)?.versions();
        Some(versions.version(below)?.value.clone())
    }

    /// Copies the next rows of a range that a view which sees the batches below a number finds.
    /// Fewer than were asked for come only at the end of the range.
    fn copy(&self, range: (Bound<Key>, Bound<Key>), reverse: bool, below: u64, to: &mut Copied) {
        let range = (range.0.map(Ordered::at), range.1.map(Ordered::at));
        let rows = self.read();
        let mut range = rows.in_order.range(range);
        while !to.is_full()
            && let Some(Ordered { row, .. }) =
                if reverse { range.next_back() } else { range.next() }
        {
            if let Some(version) = row.versions().version(below) {
                to.push(&row.key, version.value.as_deref());
            }
        }
    }

    /// Calls a function with every version, in the order in which the tree keeps them: by key, the
    /// newest first.
    pub(super) fn with_versions<T>(
        &self,
        take: impl FnOnce(&mut dyn Iterator<Item = InternalValue>) -> T,
    ) -> T {
        let rows = self.read();
        let mut versions = rows.in_order.iter().flat_map(|Ordered { row, .. }| {
            let mut user_key = Vec::with_capacity(INLINE_BYTES + row.key.rest.len());
            row.key.append_to(&mut user_key);
            let user_key = Slice::from(user_key);
            let stored = |version: &Version| {
                let (value, kind) = match &version.value {
                    Some(value) => (&**value, ValueType::Value),
                    None => ([].as_slice(), ValueType::Tombstone),
                };
                InternalValue::from_components(user_key.clone(), value, version.number, kind)
            };
            let versions = row.versions();
            let older: Vec<_> = versions.older.iter().rev().map(stored).collect();
            std::iter::once(stored(&versions.newest)).chain(older)
        });
        take(&mut versions)
    }

    fn read(&self) -> RwLockReadGuard<'_, Rows> {
        self.rows.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rows that were copied out of a table, one behind the other.
#[derive(Default)]
struct Copied {
    bytes: Vec<u8>,
    rows: Vec<CopiedRow>,
    /// Rows that were asked for.
    rows_max: usize,
}

/// Where a row's key ends and where its value does; it begins where the row before it ends.
#[derive(Clone, Copy)]
struct CopiedRow {
    start: usize,
    key_end: usize,
    end: usize,
    is_deleted: bool,
}

impl Copied {
    fn is_full(&self) -> bool {
        self.rows.len() >= self.rows_max || self.bytes.len() >= BYTES_AT_A_TIME
    }

    fn push(&mut self, key: &Key, value: Option<&[u8]>) {
        let start = self.bytes.len();
        key.append_to(&mut self.bytes);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value.unwrap_or_default());
        let end = self.bytes.len();
        self.rows.push(CopiedRow { start, key_end, end, is_deleted: value.is_none() });
    }

    fn row(&self, index: usize) -> Option<(&[u8], Option<&[u8]>)> {
        let CopiedRow { start, key_end, end, is_deleted } = *self.rows.get(index)?;
        let value = self.bytes.get(key_end..end)?;
        Some((self.bytes.get(start..key_end)?, (!is_deleted).then_some(value)))
    }
}

/// Reads a range of a table, some rows at a time: whoever changes the table does not wait until all
/// of them have been visited.
pub(super) struct Cursor<'a> {
    table: &'a Memtable,
    /// What is not copied yet.
    rest: (Bound<Key>, Bound<Key>),
    reverse: bool,
    below: u64,
    copied: Copied,
    next: usize,
}

impl<'a> Cursor<'a> {
    /// From `from` (inclusive) to `to` (exclusive), of which the first is less than the second.
    pub(super) fn new(
        table: &'a Memtable,
        (from, to): (&[u8], &[u8]),
        reverse: bool,
        below: u64,
    ) -> Self {
        let rest = (Bound::Included(Key::from(from)), Bound::Excluded(Key::from(to)));
        let copied = Copied { rows_max: FIRST_ROWS, ..Copied::default() };
        let mut cursor = Self { table, rest, reverse, below, copied, next: 0 };
        table.copy(cursor.rest.clone(), reverse, below, &mut cursor.copied);
        cursor
    }

    /// The row it stands at: a key and its value, or none if it was deleted. `None` at the end.
    pub(super) fn row(&self) -> Option<(&[u8], Option<&[u8]>)> {
        self.copied.row(self.next)
    }

    /// Visits what is left, until the visitor breaks.
    pub(super) fn visit_all(&mut self, visit: &mut Visit<'_>) {
        while let Some((key, value)) = self.row() {
            if value.is_some_and(|value| visit(key, value).is_break()) {
                return;
            }
            self.advance();
        }
    }

    /// Goes on to the next row.
    pub(super) fn advance(&mut self) {
        self.next += 1;
        if self.next < self.copied.rows.len() || !self.copied.is_full() {
            return;
        }
        if let Some((last, _)) = self.copied.row(self.next - 1) {
            let last = Bound::Excluded(Key::from(last));
            if self.reverse {
                self.rest.1 = last;
            } else {
                self.rest.0 = last;
            }
        }
        self.copied.bytes.clear();
        self.copied.rows.clear();
        self.copied.rows_max = ROWS_AT_A_TIME;
        self.next = 0;
        self.table.copy(self.rest.clone(), self.reverse, self.below, &mut self.copied);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_are_ordered_as_their_bytes(
            // Long keys that differ late, and some that end with zeros.
            a in prop::collection::vec(prop_oneof![Just(0), Just(0), Just(7), any::<u8>()], 0..100),
            common in 0..100usize,
            b in prop::collection::vec(prop_oneof![Just(0), Just(0), Just(7), any::<u8>()], 0..60),
        ) {
            let b: Vec<u8> = a.iter().take(common).copied().chain(b).collect();
            let keys = (Key::from(a.as_slice()), Key::from(b.as_slice()));
            prop_assert_eq!(keys.0.cmp(&keys.1), a.cmp(&b));
            prop_assert_eq!(keys.0 == keys.1, a == b);
            let mut out = vec![1];
            keys.0.append_to(&mut out);
            prop_assert_eq!(&out[1..], &a[..]);
        }
    }
}
