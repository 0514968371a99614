//! The work limit of one background step, so that no log entry takes long to apply and no batch
//! becomes too large.

use std::ops::ControlFlow;

use crate::keys::{Family, removal};
use crate::storage::overlay::Overlay;
use crate::storage::{ReadError, View, end_of_prefix, successor};
use crate::table::identifiers::TableId;

/// The maximum number of bytes that a step reads, about ten items of the largest size. The last
/// value of a step may exceed this limit.
pub(crate) const STEP_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The remaining budget of a step: the entries and bytes that it may still process.
#[derive(Debug)]
pub(crate) struct Allowance {
    entries: usize,
    bytes: usize,
}

impl Allowance {
    /// Creates a budget of `entries` entries and [`STEP_BYTES_MAX`] bytes.
    pub(crate) fn of_entries(entries: usize) -> Self {
        Self { entries, bytes: STEP_BYTES_MAX }
    }

    /// Counts an entry against the budget. Returns `Break` if the budget is then used up.
    pub(crate) fn take(&mut self, key: &[u8], value: &[u8]) -> ControlFlow<()> {
        self.entries = self.entries.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(key.len() + value.len());
        if self.is_used_up() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Returns whether the budget is used up. The step must then end, and the next step continues.
    pub(crate) fn is_used_up(&self) -> bool {
        self.entries == 0 || self.bytes == 0
    }
}

/// The visitor of a step, called for each key and value; breaks where the step must end.
type StepVisit<'v> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, ReadError> + 'v;

/// Visits the next items of a table, after a key, until `visit` breaks. Returns the last visited
/// key, after which the next step continues; `None` at the end of the table.
pub(crate) fn visit_items(
    view: &dyn View,
    table: TableId,
    cursor: Option<Vec<u8>>,
    visit: &mut StepVisit<'_>,
) -> Result<Option<Vec<u8>>, ReadError> {
    let first = Family::Item.of_table(table);
    let end = end_of_prefix(&first);
    let mut stopped_at = Ok(None);
    view.scan(&cursor.map_or(first, successor), &end, false, &mut |key, value| {
        let next = visit(key, value);
        match next {
            Ok(ControlFlow::Continue(())) => return ControlFlow::Continue(()),
            Ok(ControlFlow::Break(())) => stopped_at = Ok(Some(key.to_vec())),
            Err(error) => stopped_at = Err(error),
        }
        ControlFlow::Break(())
    })?;
    stopped_at
}

/// Removes the next keys with a prefix, as many as the allowance permits, and stores the last
/// removed key under `place`. The next step continues after that key, because a scan from the start
/// of the prefix would read the tombstones of all removed keys. Therefore no new key may be written
/// under the prefix. The caller deletes `place` when no keys remain.
pub(crate) fn remove_under(
    overlay: &mut Overlay<'_>,
    place: &[u8],
    prefix: &[u8],
    left: &mut Allowance,
) -> Result<(), ReadError> {
    let mut from = prefix.to_vec();
    if let Some(removed) = removal::read(overlay, place)? {
        from = from.max(successor(removed));
    }
    let to = end_of_prefix(prefix);
    if from >= to {
        return Ok(());
    }
    let mut keys = Vec::new();
    overlay.scan(&from, &to, false, &mut |key, value| {
        keys.push(key.to_vec());
        left.take(key, value)
    })?;
    if let Some(last) = keys.last() {
        removal::write(overlay, place, last)?;
    }
    keys.into_iter().for_each(|key| overlay.delete(key));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::storage::testing::MapStorage;
    use crate::storage::{Value, Visit};

    /// A storage that records where each scan begins.
    #[derive(Default)]
    struct Watched(MapStorage, RefCell<Vec<Vec<u8>>>);

    impl View for Watched {
        fn get(&self, key: &[u8]) -> Result<Option<Value>, ReadError> {
            self.0.get(key)
        }

        fn scan(
            &self,
            from: &[u8],
            to: &[u8],
            reverse: bool,
            visit: &mut Visit<'_>,
        ) -> Result<(), ReadError> {
            self.1.borrow_mut().push(from.to_vec());
            self.0.scan(from, to, reverse, visit)
        }
    }

    /// Goal: no step reads the keys that earlier steps removed.
    #[test]
    fn a_removal_continues_where_it_ended() {
        let table = TableId(7);
        let prefix = Family::IndexEntry.of_table(table);
        let place = removal::place(table, &[prefix.as_slice(), b"xyz"].concat());
        assert_eq!(place, [&Family::Removal.of_table(table)[..], b"\x08xyz"].concat());
        let key = |number: u8| [prefix.as_slice(), &[number]].concat();
        let mut watched = Watched::default();
        let mut overlay = Overlay::new(&watched);
        (0..5).for_each(|number| overlay.put(key(number), Vec::new()));
        let batch = overlay.into_batch();
        watched.0.apply(batch);
        for _ in 0..3 {
            let mut overlay = Overlay::new(&watched);
            let mut left = Allowance::of_entries(2);
            remove_under(&mut overlay, &place, &prefix, &mut left).unwrap();
            let batch = overlay.into_batch();
            watched.0.apply(batch);
        }
        let behind = |number: u8| [key(number).as_slice(), &[0]].concat();
        assert_eq!(*watched.1.borrow(), [prefix.clone(), behind(1), behind(3)]);
        assert_eq!(watched.0.0.into_keys().collect::<Vec<_>>(), [place]);
    }

    #[test]
    fn a_step_ends_at_its_limit_of_entries_or_bytes() {
        let mut few = Allowance::of_entries(2);
        assert!(few.take(b"k", b"").is_continue() && !few.is_used_up());
        assert!(few.take(b"k", b"").is_break() && few.is_used_up());
        let mut large = Allowance::of_entries(100);
        let half = vec![0; STEP_BYTES_MAX / 2 - 1];
        assert!(large.take(b"k", &half).is_continue());
        assert!(large.take(b"", &half).is_continue(), "a byte is left");
        assert!(large.take(b"", &half).is_break() && large.is_used_up());
    }
}
