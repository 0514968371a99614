//! Effects: statements about the required state of a target, and the join of statements.
//!
//! No effect adds, increments or appends. Each rule defines its targets and statements. The processor
//! applies effects.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// A statement that can be joined with another statement about the same target.
///
/// The join is associative, commutative and idempotent. A batch may therefore be folded into one
/// write for each target. A statement may be applied twice, late or out of order without changing
/// the result. (A join semilattice: Shapiro et al., "Conflict-free Replicated Data Types", 2011.)
pub trait Join {
    /// Joins `other` into this statement.
    fn join(&mut self, other: Self);
}

/// A statement without content, for effects that consist only of their target.
impl Join for () {
    fn join(&mut self, (): ()) {
        // Both statements are empty, so there is nothing to join.
    }
}

/// A statement about the required state of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect<T, S> {
    /// The target.
    pub target: T,
    /// The statement.
    pub statement: S,
}

/// The joined statements of a batch about one target, and the records that caused them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined<S> {
    /// The joined statements.
    pub value: S,
    /// The positions of these records in the batch, from 0. They are ascending if the records were
    /// folded in order.
    pub records: Vec<usize>,
}

impl<S: Join> Joined<S> {
    fn join(&mut self, value: S, records: impl IntoIterator<Item = usize>) {
        self.value.join(value);
        for position in records {
            if self.records.last() != Some(&position) {
                self.records.push(position);
            }
        }
    }
}

/// A batch's effects of one kind: the joined statements, by target.
pub type Folded<T, S> = BTreeMap<T, Joined<S>>;

/// The effects of a rule: an [`Effect`], or an enum of the rule's kinds of effects.
pub trait Fold: Sized {
    /// A batch's effects, with one statement for each target.
    type Folded: Default;

    /// Joins this effect with the other effects of a batch. `position` is the position of its
    /// record in the batch.
    fn fold_into(self, folded: &mut Self::Folded, position: usize);
}

impl<T: Ord, S: Join> Fold for Effect<T, S> {
    type Folded = Folded<T, S>;

    fn fold_into(self, folded: &mut Self::Folded, position: usize) {
        add(folded, self.target, self.statement, [position]);
    }
}

/// Joins the effects of a batch, each given with the position of its record in the batch.
#[must_use]
pub fn fold<E: Fold>(effects: impl IntoIterator<Item = (usize, E)>) -> E::Folded {
    let mut folded = E::Folded::default();
    effects.into_iter().for_each(|(position, effect)| effect.fold_into(&mut folded, position));
    folded
}

/// Joins a statement about a target. `records` are the positions of its records in the batch.
pub(crate) fn add<T: Ord, S: Join>(
    folded: &mut Folded<T, S>,
    target: T,
    statement: S,
    records: impl IntoIterator<Item = usize>,
) {
    match folded.entry(target) {
        Entry::Vacant(place) => {
            place.insert(Joined { value: statement, records: records.into_iter().collect() });
        }
        Entry::Occupied(mut place) => place.get_mut().join(statement, records),
    }
}

/// Joins the folded effects of other records of the same batch.
pub(crate) fn join_folded<T: Ord, S: Join>(folded: &mut Folded<T, S>, others: Folded<T, S>) {
    for (target, joined) in others {
        add(folded, target, joined.value, joined.records);
    }
}
