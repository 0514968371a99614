//! Where the rows of a table in memory stand: in blocks, so that none ever moves.
//!
//! How rows are found, and in which order they are, is in `rows`.

use super::key::KeyPrefix;
use super::row::Row;

/// Rows of a block: a table in memory grows by one, and what stands in the others stays there.
pub(super) const ROWS_IN_BLOCK: usize = 256;

/// The how many-th row it is. A table is on disk long before there are so many.
pub(super) type Place = u32;

/// Rows in the order in which they came. None of them ever moves.
#[derive(Default)]
pub(super) struct Blocks {
    blocks: Vec<Block>,
    /// Of rows that are gone, for those that come.
    pub(super) free: Vec<Place>,
}

struct Block {
    rows: Vec<Row>,
    states: [RowState; ROWS_IN_BLOCK],
}

/// What is known of a row beside its key and its versions.
#[derive(Clone, Copy, Default)]
pub(super) struct RowState {
    /// Nothing was known of its key before: when it goes, nobody needs to know.
    pub(super) is_new: bool,
    /// It waits for its place in the order.
    pub(super) is_waiting: bool,
    /// The place is among those where rows wait, whether this one does or not.
    pub(super) is_listed: bool,
}

impl Blocks {
    pub(super) fn get(&self, place: Place) -> Option<&Row> {
        let place = usize::try_from(place).ok()?;
        self.blocks.get(place / ROWS_IN_BLOCK)?.rows.get(place % ROWS_IN_BLOCK)
    }

    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut Row> {
        let place = usize::try_from(place).ok()?;
        self.blocks.get_mut(place / ROWS_IN_BLOCK)?.rows.get_mut(place % ROWS_IN_BLOCK)
    }

    pub(super) fn row_state_mut(&mut self, place: Place) -> Option<&mut RowState> {
        let place = usize::try_from(place).ok()?;
        self.blocks.get_mut(place / ROWS_IN_BLOCK)?.states.get_mut(place % ROWS_IN_BLOCK)
    }

    /// Gives the place, and whether it is listed among those where rows wait.
    pub(super) fn push(&mut self, row: Row, is_new: bool) -> (Place, bool) {
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

    /// Where rows are whose beginning is wanted, and of which somebody needs to know.
    pub(super) fn needed(
        &self,
        is_wanted: impl Fn(&KeyPrefix) -> bool,
    ) -> impl Iterator<Item = (KeyPrefix, Place)> {
        let rows = self.blocks.iter().flat_map(|block| block.rows.iter().zip(&block.states));
        (0..).zip(rows).filter_map(move |(place, (row, state))| {
            let beginning = row.key.beginning();
            let is_nothing = state.is_new && row.versions.is_nothing();
            (is_wanted(&beginning) && !is_nothing).then_some((beginning, place))
        })
    }

    /// The place behind the last row, in a block that has room for it.
    fn end(&mut self) -> Place {
        if self.blocks.last().is_none_or(|last| last.rows.len() == ROWS_IN_BLOCK) {
            let rows = Vec::with_capacity(ROWS_IN_BLOCK);
            self.blocks.push(Block { rows, states: [RowState::default(); ROWS_IN_BLOCK] });
        }
        let full = (self.blocks.len() - 1) * ROWS_IN_BLOCK;
        let place = full + self.blocks.last().map_or(0, |last| last.rows.len());
        Place::try_from(place).unwrap_or(Place::MAX)
    }
}
