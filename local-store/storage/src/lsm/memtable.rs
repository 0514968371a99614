//! A table in memory: the changes of batches since the last table was sealed, in key order.
//!
//! A change replaces the previous change of its key, unless an open view sees the previous change.
//! Therefore a key that is written repeatedly takes no more memory, and is written to disk once. A
//! key that was inserted and deleted before the flush is never written to disk. `rows` looks up
//! rows; the caller decides when a table is full.

use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{RwLockReadGuard, RwLockWriteGuard};

use locks::RwLock;
use lsm_tree::{InternalValue, Slice, ValueType};
use partition::{Op, Value, Visit};

use super::blocks::RowPosition;
use super::key::Key;
use super::row::{ROWS_TOGETHER, Row};
use super::rows::{Range, Rows, VALUE_BYTES_TOGETHER};
use super::versions::{OpenViews, Version, Versions};

/// The maximum number of rows and bytes that are copied while the lock is held. It is limited
/// because writers wait for the lock. The first copy is smaller, because most readers need only a
/// few rows.
const COPY_SIZE: CopySize = CopySize { rows: 128, bytes: 64 * 1024 };
const FIRST_COPY_SIZE: CopySize = CopySize { rows: 16, bytes: 4 * 1024 };

/// A table in memory.
#[derive(Default)]
pub(super) struct Memtable {
    rows: RwLock<Rows>,
    bytes: AtomicU64,
}

impl Memtable {
    /// Applies the changes of a batch. The caller ensures that no view is opened in the meantime.
    pub(super) fn apply(&self, ops: &[Op], number: u64, open_views: &OpenViews) {
        for ops in ops.chunks(ROWS_TOGETHER) {
            let keys: Vec<Key> = ops.iter().map(|op| Key::from(op.key())).collect();
            let mut rows = self.rows.write();
            // Prefetches only one byte of each value, which loads the reference count. Dropping a
            // replaced value needs no more.
            let fetched = rows.fetch(&keys, 1);
            let rows_before = rows.bytes();
            let (mut came, mut went) = (0, 0);
            for (at, (op, key)) in ops.iter().zip(keys).enumerate() {
                let value = match op {
                    Op::Put(_, value) | Op::Insert(_, value) => Some(value.clone()),
                    Op::Delete(_) => None,
                };
                let version = Version { number, value };
                let place = rows.find_fetched(&key, &fetched, at);
                let row = place.and_then(|place| rows.get_mut(place));
                let (Some(place), Some(row)) = (place, row) else {
                    came += version.bytes();
                    let is_new = matches!(op, Op::Insert(..));
                    rows.insert(Row { key, versions: Versions::new(version) }, is_new);
                    continue;
                };
                let (more, less) = row.versions.change(version, open_views);
                came += more;
                went += less;
                if row.versions.is_nothing() {
                    rows.release(place);
                }
            }
            came += rows.bytes().saturating_sub(rows_before);
            went += rows_before.saturating_sub(rows.bytes());
            // No atomic addition is needed, because only the holder of the write lock changes the
            // value. The result is never negative, because each removed byte was added before.
            let bytes = self.bytes.load(Ordering::Relaxed);
            self.bytes.store((bytes + came).saturating_sub(went), Ordering::Relaxed);
        }
    }

    /// Returns the approximate memory use of the table, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the value of a key for a view of the batches below `below`: `None` if the table does
    /// not have the key, `Some(None)` if the key was deleted.
    pub(super) fn get(&self, key: &Key, below: u64) -> Option<Option<Value>> {
        let rows = self.read();
        Some(rows.find(key)?.versions.version(below)?.value.clone())
    }

    /// Loads the rows of these keys into the CPU cache.
    pub(super) fn fetch(&self, keys: &[Key]) {
        self.read().fetch(keys, VALUE_BYTES_TOGETHER);
    }

    /// Copies the next rows of a range, as a view of the batches below `below` sees them. Copies as
    /// many rows as fit into `to`, or all rows up to the end of the range.
    fn copy(&self, range: &Range, reverse: bool, below: u64, to: &mut Copied) {
        let rows = self.read_in_order();
        let mut range = rows.range(range);
        while !to.is_full()
            && let Some(row) = if reverse { range.next_back() } else { range.next() }
        {
            if let Some(version) = row.versions.version(below) {
                to.push(&row.key, version.value.as_deref());
            }
        }
    }

    /// Returns every version of the keys whose first byte is wanted, in the tree's order: by key,
    /// then the newest version first. The table must be sealed. A concurrent reader waits only
    /// while a few rows are copied, not for the entire iteration.
    pub(super) fn versions(
        &self,
        is_wanted: impl Fn(u8) -> bool,
    ) -> impl Iterator<Item = InternalValue> {
        let places = self.read().places(is_wanted);
        let mut next = 0;
        let mut some = Vec::new().into_iter();
        std::iter::from_fn(move || {
            loop {
                if let Some(version) = some.next() {
                    return Some(version);
                }
                let together = places.get(next..)?.chunks(ROWS_TOGETHER).next()?;
                next += together.len();
                some = self.stored_versions(together).into_iter();
            }
        })
    }

    /// Returns every version of the rows at these positions.
    fn stored_versions(&self, places: &[RowPosition]) -> Vec<InternalValue> {
        let rows = self.read();
        let mut key = Vec::new();
        let versions = rows.in_places(places).flat_map(|row| {
            key.clear();
            row.key.append_to(&mut key);
            let user_key = Slice::from(key.as_slice());
            let stored = move |version: &Version| {
                let (value, kind) = match &version.value {
                    Some(value) => (&**value, ValueType::Value),
                    None => ([].as_slice(), ValueType::Tombstone),
                };
                InternalValue::from_components(user_key.clone(), value, version.number, kind)
            };
            let versions = std::iter::once(&row.versions.newest);
            versions.chain(row.versions.older.iter().rev()).map(stored)
        });
        versions.collect()
    }

    /// Returns the newest version of each key with this first byte, in key order.
    pub(super) fn newest(&self, first: u8) -> Newest {
        let rows = self.read();
        let mut newest = Newest { keys: Vec::new(), rows: Vec::new() };
        for places in rows.places(|other| other == first).chunks(ROWS_TOGETHER) {
            for row in rows.in_places(places) {
                row.key.append_to(&mut newest.keys);
                newest.rows.push((newest.keys.len(), row.versions.newest.value.clone()));
            }
        }
        newest
    }

    /// Puts all rows into key order, if they are not in order yet, and returns them. Ordering is
    /// deferred until a reader of a range needs it.
    fn read_in_order(&self) -> RwLockReadGuard<'_, Rows> {
        let rows = self.read();
        if rows.is_in_order() {
            return rows;
        }
        drop(rows);
        let mut rows = self.rows.write();
        let before = rows.bytes();
        rows.put_in_order();
        self.bytes.fetch_sub(before.saturating_sub(rows.bytes()), Ordering::Relaxed);
        RwLockWriteGuard::downgrade(rows)
    }

    fn read(&self) -> RwLockReadGuard<'_, Rows> {
        self.rows.read()
    }
}

/// The newest values of keys, or their deletions.
pub(super) struct Newest {
    keys: Vec<u8>,
    /// For each row, the end of its key and its value. A key begins at the end of the previous key.
    rows: Vec<(usize, Option<Value>)>,
}

impl Newest {
    /// Returns the rows in key order.
    pub(super) fn rows(&self) -> Vec<(&[u8], Option<&[u8]>)> {
        let mut rows = Vec::with_capacity(self.rows.len());
        let mut start = 0;
        for (end, value) in &self.rows {
            rows.push((self.keys.get(start..*end).unwrap_or_default(), value.as_deref()));
            start = *end;
        }
        rows
    }
}

/// Rows that were copied out of a table, concatenated.
#[derive(Default)]
struct Copied {
    bytes: Vec<u8>,
    rows: Vec<CopiedRow>,
    size: CopySize,
}

#[derive(Clone, Copy, Default)]
struct CopySize {
    rows: usize,
    bytes: usize,
}

/// The ends of a row's key and value. The row begins at the end of the previous row.
#[derive(Clone, Copy)]
struct CopiedRow {
    start: usize,
    key_end: usize,
    end: usize,
    is_deleted: bool,
}

impl Copied {
    fn is_full(&self) -> bool {
        self.rows.len() >= self.size.rows || self.bytes.len() >= self.size.bytes
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

/// A cursor over a range of a table. It copies some rows at a time, so that writers need not wait
/// until all rows have been visited.
pub(super) struct Cursor<'a> {
    table: &'a Memtable,
    /// The range that is not copied yet.
    rest: Range,
    reverse: bool,
    below: u64,
    copied: Copied,
    next: usize,
}

impl<'a> Cursor<'a> {
    /// Creates a cursor from `from` (inclusive) to `to` (exclusive); `from` must be less than `to`.
    pub(super) fn new(
        table: &'a Memtable,
        (from, to): (&[u8], &[u8]),
        reverse: bool,
        below: u64,
    ) -> Self {
        let rest = Range::new(Bound::Included(from), Bound::Excluded(to));
        let copied = Copied { size: FIRST_COPY_SIZE, ..Copied::default() };
        let mut cursor = Self { table, rest, reverse, below, copied, next: 0 };
        cursor.copy();
        cursor
    }

    /// Returns the current row, or `None` at the end. A row is a key with its value, or without a
    /// value if the key was deleted.
    pub(super) fn row(&self) -> Option<(&[u8], Option<&[u8]>)> {
        self.copied.row(self.next)
    }

    /// Visits the remaining rows, until the visitor breaks.
    pub(super) fn visit_all(&mut self, visit: &mut Visit<'_>) {
        while let Some((key, value)) = self.row() {
            if value.is_some_and(|value| visit(key, value).is_break()) {
                return;
            }
            self.advance();
        }
    }

    /// Advances to the next row.
    pub(super) fn advance(&mut self) {
        self.next += 1;
        if self.next < self.copied.rows.len() || !self.copied.is_full() {
            return;
        }
        if let Some((last, _)) = self.copied.row(self.next - 1) {
            self.rest.resume_after(self.reverse, last);
        }
        self.copied.bytes.clear();
        self.copied.rows.clear();
        self.copied.size = COPY_SIZE;
        self.next = 0;
        self.copy();
    }

    fn copy(&mut self) {
        self.table.copy(&self.rest, self.reverse, self.below, &mut self.copied);
    }
}
