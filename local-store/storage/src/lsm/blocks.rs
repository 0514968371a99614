//! The rows of a table in memory, stored in blocks, so that no row ever moves.
//!
//! `rows` looks up rows and keeps them in order.

use super::key::KeyPrefix;
use super::row::Row;

/// The number of rows per block. A table in memory grows by one block at a time, without moving
/// existing rows.
pub(super) const ROWS_IN_BLOCK: usize = 256;

/// The position of a row in the blocks. A table is flushed to disk long before 32 bits are
/// exhausted.
pub(super) type RowPosition = u32;

/// Rows in insertion order. A row never moves.
#[derive(Default)]
pub(super) struct Blocks {
    blocks: Vec<Block>,
    /// Positions of removed rows, for reuse by new rows.
    pub(super) free: Vec<RowPosition>,
}

struct Block {
    rows: Vec<Row>,
    states: [RowState; ROWS_IN_BLOCK],
}

/// The state of a row in addition to its key and its versions.
#[derive(Clone, Copy, Default)]
pub(super) struct RowState {
    /// Whether the key did not exist when the row was inserted, so that removing the row needs no
    /// tombstone.
    pub(super) is_new: bool,
    /// Whether the row is not in the key order yet.
    pub(super) is_waiting: bool,
    /// Whether the row's position is in the list of positions to be put in order. It may be in the
    /// list because of an earlier row at the same position.
    pub(super) is_listed: bool,
}

impl Blocks {
    pub(super) fn get(&self, place: RowPosition) -> Option<&Row> {
        let place = usize::try_from(place).ok()?;
        self.blocks.get(place / ROWS_IN_BLOCK)?.rows.get(place % ROWS_IN_BLOCK)
    }

    pub(super) fn get_mut(&mut self, place: RowPosition) -> Option<&mut Row> {
        let place = usize::try_from(place).ok()?;
        self.blocks.get_mut(place / ROWS_IN_BLOCK)?.rows.get_mut(place % ROWS_IN_BLOCK)
    }

    pub(super) fn row_state_mut(&mut self, place: RowPosition) -> Option<&mut RowState> {
        let place = usize::try_from(place).ok()?;
        self.blocks.get_mut(place / ROWS_IN_BLOCK)?.states.get_mut(place % ROWS_IN_BLOCK)
    }

    /// Adds a row. Returns its position, and whether the position is already in the list of
    /// positions to be put in order.
    pub(super) fn push(&mut self, row: Row, is_new: bool) -> (RowPosition, bool) {
        let place = self.free.pop().unwrap_or_else(|| self.end());
        match self.get_mut(place) {
            Some(free) => *free = row,
            None => {
                if let Some(last) = self.blocks.last_mut() {
                    last.rows.push(row);
                }
            }
        }
        let Some(state) = self.row_state_mut(place) else { return (place, false) };
        let was_listed = state.is_listed;
        *state = RowState { is_new, is_waiting: true, is_listed: true };
        (place, was_listed)
    }

    /// Returns the prefixes and positions of the rows whose key prefix is wanted, without rows that
    /// have no version to keep.
    pub(super) fn needed(
        &self,
        is_wanted: impl Fn(&KeyPrefix) -> bool,
    ) -> impl Iterator<Item = (KeyPrefix, RowPosition)> {
        let rows = self.blocks.iter().flat_map(|block| block.rows.iter().zip(&block.states));
        (0..).zip(rows).filter_map(move |(place, (row, state))| {
            let beginning = row.key.beginning();
            let is_nothing = state.is_new && row.versions.is_nothing();
            (is_wanted(&beginning) && !is_nothing).then_some((beginning, place))
        })
    }

    /// Returns the position after the last row, and ensures that its block has space.
    fn end(&mut self) -> RowPosition {
        if self.blocks.last().is_none_or(|last| last.rows.len() == ROWS_IN_BLOCK) {
            let rows = Vec::with_capacity(ROWS_IN_BLOCK);
            self.blocks.push(Block { rows, states: [RowState::default(); ROWS_IN_BLOCK] });
        }
        let full = (self.blocks.len() - 1) * ROWS_IN_BLOCK;
        let place = full + self.blocks.last().map_or(0, |last| last.rows.len());
        RowPosition::try_from(place).unwrap_or(RowPosition::MAX)
    }
}
