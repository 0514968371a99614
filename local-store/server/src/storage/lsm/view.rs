//! A storage as of one batch, and which of these views are open: what they see must stay.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lsm_tree::{AbstractTree, Guard};
use partition::{ReadError, View, Visit};

use super::super::KEY_BYTES_MAX;
use super::State;

/// How many views there are of each number.
#[derive(Default)]
pub(super) struct OpenViews(Mutex<BTreeMap<u64, usize>>);

impl OpenViews {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the oldest view that there is, or of the next one: nothing that is asked of
    /// later views needs what came before it. Numbers are read under the lock, so a view that is
    /// about to be opened is either counted or younger.
    pub(super) fn oldest(&self, next: impl FnOnce() -> u64) -> u64 {
        let views = self.lock();
        views.first_key_value().map_or_else(next, |(number, _)| *number)
    }

    fn open(&self, next: impl FnOnce() -> u64) -> u64 {
        let mut views = self.lock();
        let number = next();
        *views.entry(number).or_default() += 1;
        number
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
}

impl LsmView {
    pub(super) fn new(state: Arc<State>) -> Self {
        let number = state.views.open(|| state.visible());
        Self { state, number }
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
        if let Some(value) = self.state.recent.get(key, self.number) {
            return Ok(value.map(|value| value.to_vec()));
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
        let mut found = self.state.tree.range::<&[u8], _>(range, self.number, None);
        while let Some(guard) = if reverse { found.next_back() } else { found.next() } {
            let (key, value) = guard.into_inner().map_err(|error| self.fail(error))?;
            if visit(&key, &value).is_break() {
                break;
            }
        }
        Ok(())
    }
}
