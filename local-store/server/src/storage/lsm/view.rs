//! A storage as of one batch, and which of these views are open: what they see must stay.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lsm_tree::{AbstractTree, Guard, Slice};
use partition::{ReadError, View, Visit};

use super::super::KEY_BYTES_MAX;
use super::State;
use super::memtable::{Cursor, Key, Seen};
use super::memtables::Memtables;

/// How many views there are of each number.
#[derive(Default)]
pub(super) struct OpenViews(Mutex<BTreeMap<u64, usize>>);

impl OpenViews {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest and the newest of them.
    pub(super) fn seen(&self) -> Seen {
        let views = self.lock();
        let oldest = views.first_key_value().map_or(u64::MAX, |(number, _)| *number);
        let newest = views.last_key_value().map_or(0, |(number, _)| *number);
        Seen { oldest, newest }
    }

    fn open(&self, number: u64) {
        *self.lock().entry(number).or_default() += 1;
    }

    fn close(&self, number: u64) {
        let mut views = self.lock();
        if let Some(count) = views.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                views.remove(&number);
            }
        }
    }
}

/// The batches below a number.
pub(super) struct LsmView {
    state: Arc<State>,
    number: u64,
    tables: Arc<Memtables>,
}

impl LsmView {
    pub(super) fn new(state: Arc<State>) -> Self {
        let published = state.published();
        let (number, tables) = (published.number, Arc::clone(&published.tables));
        state.views.open(number);
        drop(published);
        Self { state, number, tables }
    }

    fn fail(&self, error: lsm_tree::Error) -> ReadError {
        ReadError(self.state.sort("read", error).to_string())
    }
}

impl Drop for LsmView {
    fn drop(&mut self) {
        self.state.views.close(self.number);
    }
}

/// A lower and an upper bound.
type KeyRange<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// The range from `from` (inclusive) to `to` (exclusive) in bounds that are no longer than a key,
/// as the tree panics at others, or `None` if no key can be in it.
fn clamp<'a>(from: &'a [u8], to: &'a [u8]) -> Option<KeyRange<'a>> {
    // A key that equals the first part of a longer bound is less than the bound.
    let (start, lower) = match from.get(..KEY_BYTES_MAX) {
        Some(start) if from.len() > KEY_BYTES_MAX => (start, Bound::Excluded(start)),
        _ => (from, Bound::Included(from)),
    };
    let (end, upper) = match to.get(..KEY_BYTES_MAX) {
        Some(end) if to.len() > KEY_BYTES_MAX => (end, Bound::Included(end)),
        _ => (to, Bound::Excluded(to)),
    };
    (start < end).then_some((lower, upper)).or_else(|| {
        // One key can be left between equal parts, if both bounds let it in.
        let both = matches!((lower, upper), (Bound::Included(_), Bound::Included(_)));
        (start == end && both).then_some((lower, upper))
    })
}

impl View for LsmView {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        // No key is empty, and the tree does not expect to be asked for one.
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Ok(None);
        }
        let wanted = Key::from(key.to_vec());
        let mut tables = self.tables.newest_first();
        if let Some(found) = tables.find_map(|table| table.get(&wanted, self.number)) {
            return Ok(found);
        }
        let value = self.state.tree.get(key, self.number).map_err(|error| self.fail(error))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), ReadError> {
        let Some(range) = clamp(from, to) else { return Ok(()) };
        let mut below = self.state.tree.range::<&[u8], _>(range, self.number, None);
        let mut next_below = || -> Result<Option<(Slice, Slice)>, ReadError> {
            let next = if reverse { below.next_back() } else { below.next() };
            next.map(|guard| guard.into_inner().map_err(|error| self.fail(error))).transpose()
        };
        let mut stored = next_below()?;
        let cursor = |table| Cursor::new(table, (from, to), reverse, self.number);
        let mut cursors: Vec<Cursor<'_>> = self.tables.newest_first().map(cursor).collect();
        let mut key = Vec::new();
        loop {
            cursors.retain(|cursor| cursor.row().is_some());
            let Some(newest) = first_of(&cursors, stored.as_ref(), reverse) else {
                // Nothing in memory comes before what is stored.
                let Some((key, value)) = stored else { return Ok(()) };
                if visit(&key, &value).is_break() {
                    return Ok(());
                }
                stored = next_below()?;
                continue;
            };
            let Some((found, value)) = cursors.get(newest).and_then(Cursor::row) else {
                return Ok(());
            };
            key.clear();
            key.extend_from_slice(found);
            if value.is_some_and(|value| visit(found, value).is_break()) {
                return Ok(());
            }
            // What is older under the same key does not count.
            for cursor in &mut cursors {
                if cursor.row().is_some_and(|(other, _)| other == key) {
                    cursor.advance();
                }
            }
            if stored.as_ref().is_some_and(|(other, _)| **other == *key) {
                stored = next_below()?;
            }
        }
    }
}

/// Which cursor has the first row of all, the newest if several have one with its key; `None` if
/// what is stored comes before all of them.
fn first_of(
    cursors: &[Cursor<'_>],
    stored: Option<&(Slice, Slice)>,
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
