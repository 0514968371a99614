//! Effects: statements of what must become true, and how statements about one target combine.
//!
//! There is no effect that adds, increments or appends, and none is applied here.

use std::collections::BTreeMap;

use crate::archive::{Bucket, Rows};
use crate::counters::Cells;

/// Two statements about one target become one that says what both say.
///
/// Associative, commutative and idempotent. Therefore a batch may be folded into one write per
/// target, and a statement that is applied twice, late or out of order changes nothing. (A join
/// semilattice: Shapiro et al., "Conflict-free Replicated Data Types", 2011.)
pub trait Join {
    /// Adds what `other` says.
    fn join(&mut self, other: Self);
}

/// What must become true of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The total of a counter knows at least these slots, as of their stamps.
    Cells {
        /// The counter.
        counter: String,
        /// Its slots.
        cells: Cells,
    },
    /// A bucket of the archive holds at least these rows, each exactly once.
    Rows {
        /// The bucket.
        bucket: Bucket,
        /// Its rows.
        rows: Rows,
    },
}

/// What a batch says about one target, and which of its records say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined<T> {
    /// The joined statements.
    pub value: T,
    /// Positions in the batch of the records behind them, from 0, ascending if they were folded in
    /// order.
    pub records: Vec<usize>,
}

/// A batch's effects, one statement per target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folded {
    /// By counter.
    pub cells: BTreeMap<String, Joined<Cells>>,
    /// By bucket.
    pub rows: BTreeMap<Bucket, Joined<Rows>>,
}

/// Joins the effects of a batch, each given with the position of its record in the batch.
#[must_use]
pub fn fold(effects: impl IntoIterator<Item = (usize, Effect)>) -> Folded {
    let mut folded = Folded::default();
    for (position, effect) in effects {
        match effect {
            Effect::Cells { counter, cells } => {
                insert(&mut folded.cells, counter, cells, position);
            }
            Effect::Rows { bucket, rows } => insert(&mut folded.rows, bucket, rows, position),
        }
    }
    folded
}

fn insert<K: Ord, T: Join + Default>(
    targets: &mut BTreeMap<K, Joined<T>>,
    target: K,
    value: T,
    position: usize,
) {
    let joined = targets
        .entry(target)
        .or_insert_with(|| Joined { value: T::default(), records: Vec::new() });
    joined.value.join(value);
    if joined.records.last() != Some(&position) {
        joined.records.push(position);
    }
}
