//! The rows of a range on disk, in key order: the rows of the tree merged with the rows of the
//! queues. Rows in memory are not included.

use std::ops::Bound;

use lsm_tree::Slice;
use partition::QUEUE_KEYS;

use super::State;
use super::queue::Rows;
use super::tables::TableRows;
use super::view::{KeyRange, ViewState};
use crate::engine::OWN_KEYS;

/// A cursor over the rows of a range on disk. It points to a row, or to the end.
pub(super) struct DiskRows {
    tree: Option<TableRows>,
    tree_row: Option<(Slice, Slice)>,
    queues: Option<Rows>,
    reverse: bool,
}

impl DiskRows {
    /// Creates a cursor over the rows from `from` (inclusive) to `to` (exclusive). `in_tree` is the
    /// same range as bounds that the tree accepts.
    ///
    /// # Errors
    /// When a row cannot be read.
    pub(super) fn new(
        state: &State,
        view_state: &ViewState,
        (from, to): (&[u8], &[u8]),
        in_tree: KeyRange<'_>,
        reverse: bool,
    ) -> Result<Self, lsm_tree::Error> {
        let (first, behind) = ([QUEUE_KEYS].as_slice(), [QUEUE_KEYS + 1].as_slice());
        let own = [OWN_KEYS].as_slice();
        let is_in_queues = first <= from && to <= behind;
        let tree = (!is_in_queues && from < own).then(|| {
            // This upper bound excludes the engine's reserved keys, which sort after all other
            // keys.
            let (lower, upper) = in_tree;
            let upper = if to < own { upper } else { Bound::Excluded(own) };
            state.tables.range((lower, upper), view_state.number)
        });
        let has_queues = from < behind && first < to;
        let queues =
            has_queues.then(|| view_state.queues.scan(from.max(first), to.min(behind), reverse));
        let queues = queues.transpose()?;
        let mut stored = Self { tree, tree_row: None, queues, reverse };
        stored.advance_tree()?;
        Ok(stored)
    }

    /// Creates a cursor that points to the end, without rows.
    pub(super) fn at_end(reverse: bool) -> Self {
        Self { tree: None, tree_row: None, queues: None, reverse }
    }

    /// Returns the current row; `None` at the end.
    pub(super) fn row(&self) -> Option<(&[u8], &[u8])> {
        let tree = self.tree_row.as_ref().map(|(key, value)| (&**key, &**value));
        let queue = self.queues.as_ref().and_then(Rows::row);
        if self.is_queue_next() { queue } else { tree }
    }

    /// Advances to the next row.
    ///
    /// # Errors
    /// When a row cannot be read. The cursor then keeps its current row.
    pub(super) fn advance(&mut self) -> Result<(), lsm_tree::Error> {
        if self.is_queue_next()
            && let Some(queues) = &mut self.queues
        {
            return Ok(queues.advance()?);
        }
        self.advance_tree()
    }

    fn advance_tree(&mut self) -> Result<(), lsm_tree::Error> {
        let Some(tree) = &mut self.tree else { return Ok(()) };
        self.tree_row = tree.next(self.reverse).transpose()?;
        Ok(())
    }

    /// Returns whether the next row comes from a queue. No key is both in the tree and in a queue.
    fn is_queue_next(&self) -> bool {
        let queue = self.queues.as_ref().and_then(Rows::row);
        match (queue, &self.tree_row) {
            (Some((queue, _)), Some((tree, _))) => (queue < &**tree) != self.reverse,
            (queue, _) => queue.is_some(),
        }
    }
}
