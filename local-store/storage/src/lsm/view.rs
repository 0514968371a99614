//! Views: the storage as of one batch, and the set of open views, whose versions must be kept. Most
//! reads open a view, so opening a view is cheap: it acquires a lock briefly and increments a
//! reference count.

use std::collections::VecDeque;
use std::mem;
use std::ops::Bound;
use std::sync::Arc;

use partition::{QUEUE_KEYS, ReadError, Value, View, Visit};

use super::disk_rows::DiskRows;
use super::key::Key;
use super::maintenance::block_in_place;
use super::memtable::Cursor;
use super::memtables::Memtables;
use super::queue::Queues;
use super::row::ROWS_TOGETHER;
use super::versions::OpenViews;
use super::{READ, State, is_exhausted};
use crate::disk::descriptors::Backoff;
use crate::engine::{KEY_BYTES_MAX, OWN_KEYS};

/// The state that a view sees. The view is open as long as references to the state exist.
pub(super) struct ViewState {
    /// The end of the batches that the view sees, exclusive.
    pub(super) number: u64,
    pub(super) tables: Memtables,
    pub(super) queues: Arc<Queues>,
}

impl ViewState {
    /// Copies the state without opening a view.
    pub(super) fn copy(&self) -> Self {
        let Self { number, tables, queues } = self;
        Self { number: *number, tables: tables.clone(), queues: Arc::clone(queues) }
    }
}

/// The state for the next view, and the states of open views.
pub(super) struct ViewStates {
    current: Arc<ViewState>,
    /// Earlier states that may have open views, oldest first.
    earlier: VecDeque<Arc<ViewState>>,
}

impl ViewStates {
    /// Returns the first state of a storage that was just opened.
    pub(super) fn new(number: u64, queues: Queues) -> Self {
        let (tables, queues) = (Memtables::default(), Arc::new(queues));
        let current = Arc::new(ViewState { number, tables, queues });
        Self { current, earlier: VecDeque::new() }
    }

    pub(super) fn current(&self) -> &Arc<ViewState> {
        &self.current
    }

    /// Sets the state for later views. Returns the states that no view uses any longer. The caller
    /// must release the lock before it drops them, because dropping them may remove files.
    #[must_use]
    pub(super) fn publish(&mut self, next: ViewState) -> Vec<Arc<ViewState>> {
        let before = mem::replace(&mut self.current, Arc::new(next));
        self.earlier.push_back(before);
        let mut unseen = Vec::new();
        self.earlier.retain(|view_state| {
            let is_held = is_held(view_state);
            if !is_held {
                unseen.push(Arc::clone(view_state));
            }
            is_held
        });
        unseen
    }

    /// Returns the range of open views. The caller ensures that no view is opened in the meantime.
    pub(super) fn open_views(&self) -> OpenViews {
        let mut held =
            self.earlier.iter().chain([&self.current]).filter(|view_state| is_held(view_state));
        let oldest = held.next().map(|view_state| view_state.number);
        let newest = held.next_back().map(|view_state| view_state.number).or(oldest);
        OpenViews { oldest: oldest.unwrap_or(u64::MAX), newest: newest.unwrap_or(0) }
    }
}

/// Returns whether a view holds the state. For an earlier state, the result `false` is final,
/// because only a view that holds the state can share it.
fn is_held(view_state: &Arc<ViewState>) -> bool {
    Arc::strong_count(view_state) > 1
}

/// A view of the batches below a number.
pub(super) struct LsmView {
    state: Arc<State>,
    view_state: Arc<ViewState>,
    /// Whether reads wait for a file descriptor without a time limit.
    is_patient: bool,
}

impl LsmView {
    pub(super) fn new(state: Arc<State>, is_patient: bool) -> Self {
        let view_state = Arc::clone(state.view_states().current());
        Self { state, view_state, is_patient }
    }

    fn fail(&self, error: lsm_tree::Error) -> ReadError {
        ReadError(self.state.sort(READ, error).to_string())
    }

    /// Calls a read. Retries while no file descriptor is available, until the waiting time of this
    /// view is over.
    fn read<T>(
        &self,
        mut read: impl FnMut() -> Result<T, lsm_tree::Error>,
    ) -> Result<T, ReadError> {
        let mut backoff = Backoff::default();
        loop {
            match read() {
                Err(error) if is_exhausted(&error) && (self.is_patient || !backoff.is_over()) => {
                    block_in_place(|| backoff.pause());
                }
                other => return other.map_err(|error| self.fail(error)),
            }
        }
    }

    /// Advances to the next row on disk. If no file descriptor is available, waits and recreates
    /// the cursor after the current row.
    fn advance(
        &self,
        stored: &mut DiskRows,
        (from, to): (&[u8], &[u8]),
        reverse: bool,
    ) -> Result<(), ReadError> {
        match stored.advance() {
            Err(error) if is_exhausted(&error) => {}
            other => return other.map_err(|error| self.fail(error)),
        }
        let Some(last) = stored.row().map(|(key, _)| key.to_vec()) else { return Ok(()) };
        let behind = [&*last, &[0]].concat();
        let (from, to) = if reverse { (from, &*last) } else { (&*behind, to) };
        *stored = match clamp(from, to) {
            Some(range) => self.read(|| {
                DiskRows::new(&self.state, &self.view_state, (from, to), range, reverse)
            })?,
            None => DiskRows::at_end(reverse),
        };
        Ok(())
    }
}

/// A lower and an upper bound.
pub(super) type KeyRange<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Clamps the bounds of a range from `from` (inclusive) to `to` (exclusive) to the maximum length
/// of a key, because the tree panics at longer bounds. Returns `None` if the range cannot contain a
/// key.
fn clamp<'a>(from: &'a [u8], to: &'a [u8]) -> Option<KeyRange<'a>> {
    // A key that equals a truncated bound is less than the original bound.
    let (start, lower) = match from.get(..KEY_BYTES_MAX) {
        Some(start) if from.len() > KEY_BYTES_MAX => (start, Bound::Excluded(start)),
        _ => (from, Bound::Included(from)),
    };
    let (end, upper) = match to.get(..KEY_BYTES_MAX) {
        Some(end) if to.len() > KEY_BYTES_MAX => (end, Bound::Included(end)),
        _ => (to, Bound::Excluded(to)),
    };
    (start < end).then_some((lower, upper)).or_else(|| {
        // Two equal truncated bounds contain at most one key, and only if both are inclusive.
        let both = matches!((lower, upper), (Bound::Included(_), Bound::Included(_)));
        (start == end && both).then_some((lower, upper))
    })
}

impl View for LsmView {
    fn get(&self, key: &[u8]) -> Result<Option<Value>, ReadError> {
        // No key is empty, and the tree does not handle a lookup of an empty key.
        if key.is_empty() || key.len() > KEY_BYTES_MAX || key.first() == Some(&OWN_KEYS) {
            return Ok(None);
        }
        let wanted = Key::from(key);
        let ViewState { number, tables, queues } = &*self.view_state;
        if let Some(found) = tables.newest_first().find_map(|table| table.get(&wanted, *number)) {
            return Ok(found);
        }
        if key.first() == Some(&QUEUE_KEYS) {
            return self.read(|| Ok(queues.get(key)?));
        }
        self.read(|| self.state.tables.get(key, *number))
    }

    fn fetch(&self, keys: &mut dyn Iterator<Item = &[u8]>) {
        let mut all = Vec::with_capacity(ROWS_TOGETHER);
        all.extend(keys.map(Key::from));
        for keys in all.chunks(ROWS_TOGETHER) {
            self.view_state.tables.newest_first().for_each(|table| table.fetch(keys));
        }
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), ReadError> {
        let Some(range) = clamp(from, to) else { return Ok(()) };
        let ViewState { number, tables, .. } = &*self.view_state;
        let begin = || DiskRows::new(&self.state, &self.view_state, (from, to), range, reverse);
        let mut stored = self.read(begin)?;
        let cursor = |table| Cursor::new(table, (from, to), reverse, *number);
        let mut cursors: Vec<Cursor<'_>> = tables.newest_first().map(cursor).collect();
        let mut key = Vec::new();
        loop {
            cursors.retain(|cursor| cursor.row().is_some());
            match (&mut *cursors, stored.row()) {
                ([only], None) => {
                    only.visit_all(visit);
                    return Ok(());
                }
                ([], _) => break,
                _ => {}
            }
            let Some(newest) = first_of(&cursors, stored.row(), reverse) else {
                // The row on disk comes first, before all rows in memory.
                if stored.row().is_some_and(|(key, value)| visit(key, value).is_break()) {
                    return Ok(());
                }
                self.advance(&mut stored, (from, to), reverse)?;
                continue;
            };
            let Some((found, value)) = cursors.get(newest).and_then(Cursor::row) else { break };
            key.clear();
            key.extend_from_slice(found);
            if value.is_some_and(|value| visit(found, value).is_break()) {
                return Ok(());
            }
            // Older rows of the same key are skipped.
            for cursor in &mut cursors {
                if cursor.row().is_some_and(|(other, _)| other == key) {
                    cursor.advance();
                }
            }
            if stored.row().is_some_and(|(other, _)| *other == *key) {
                self.advance(&mut stored, (from, to), reverse)?;
            }
        }
        while let Some((key, value)) = stored.row() {
            if visit(key, value).is_break() {
                break;
            }
            self.advance(&mut stored, (from, to), reverse)?;
        }
        Ok(())
    }
}

/// Returns the cursor whose row comes first in the order of the scan. If several cursors are at the
/// same key, returns the cursor with the newest version. Returns `None` if the row on disk comes
/// before all their rows.
fn first_of(
    cursors: &[Cursor<'_>],
    stored: Option<(&[u8], &[u8])>,
    reverse: bool,
) -> Option<usize> {
    let mut first: Option<(usize, &[u8])> = None;
    let is_before = |a: &[u8], b: &[u8]| if reverse { a > b } else { a < b };
    for (index, cursor) in cursors.iter().enumerate() {
        if let Some((key, _)) = cursor.row()
            && first.is_none_or(|(_, found)| is_before(key, found))
        {
            first = Some((index, key));
        }
    }
    first
        .filter(|(_, key)| stored.is_none_or(|(other, _)| !is_before(other, key)))
        .map(|(at, _)| at)
}
