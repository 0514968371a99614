//! Effects: statements of what must become true, and how statements about one target combine.
//!
//! There is no effect that adds, increments or appends, and none is applied here.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::archive::{Bucket, Rows};
use crate::counters::Cells;
use crate::fan_out::{Arrival, Copy, Latest, Origin, Revision};
use crate::migration::{Document, Keys, Registers, Target};
use crate::versions::Changes;

/// Two statements about one target become one that says what both say.
///
/// Associative, commutative and idempotent. Therefore a batch may be folded into one write per
/// target, and a statement that is applied twice, late or out of order changes nothing. (A join
/// semilattice: Shapiro et al., "Conflict-free Replicated Data Types", 2011.)
pub trait Join {
    /// Adds what `other` says.
    fn join(&mut self, other: Self);
}

/// A statement that has nothing to it but its target.
impl Join for () {
    fn join(&mut self, (): ()) {
        // Said twice, it says the same.
    }
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
    /// The history of an item knows at least these changes.
    Changes {
        /// The item's key as text.
        item: String,
        /// Its changes.
        changes: Changes,
    },
    /// Every copy of an origin holds what this says, or something later.
    Origin {
        /// The origin.
        origin: Origin,
        /// The last that is known of it.
        state: Latest,
    },
    /// The job of an origin goes on, if it is still at this revision.
    Continue {
        /// The origin.
        origin: Origin,
        /// The job's revision.
        revision: Revision,
    },
    /// A copy holds what its origin says now.
    Look {
        /// The copy.
        copy: Copy,
        /// Through how many deployments came what was written to it.
        arrival: Arrival,
    },
    /// The target of a migration knows at least what these source items say, as of their stamps.
    Registers {
        /// The target item.
        target: Target,
        /// What source items say about it.
        registers: Registers,
    },
    /// An item is as the plan of a migration wants it. What it was when that was said is no part of
    /// it: what has to be written follows from what stands there.
    Rewrite {
        /// The item.
        target: Target,
    },
    /// A document is what its parts make together.
    Assemble {
        /// The document.
        document: Document,
        /// Keys that it had.
        keys: Keys,
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

impl<T: Join> Joined<T> {
    fn join(&mut self, value: T, records: &[usize]) {
        self.value.join(value);
        for position in records {
            if self.records.last() != Some(position) {
                self.records.push(*position);
            }
        }
    }
}

/// A batch's effects, one statement per target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folded {
    /// By counter.
    pub cells: BTreeMap<String, Joined<Cells>>,
    /// By bucket.
    pub rows: BTreeMap<Bucket, Joined<Rows>>,
    /// By item.
    pub changes: BTreeMap<String, Joined<Changes>>,
    /// By origin.
    pub origins: BTreeMap<Origin, Joined<Latest>>,
    /// By origin whose job goes on.
    pub jobs: BTreeMap<Origin, Joined<Revision>>,
    /// By copy that must be looked at.
    pub looks: BTreeMap<Copy, Joined<Arrival>>,
    /// By target of a migration.
    pub registers: BTreeMap<Target, Joined<Registers>>,
    /// By item that a migration changes where it stands.
    pub rewrites: BTreeMap<Target, Joined<()>>,
    /// By document that is assembled of its parts.
    pub assemblies: BTreeMap<Document, Joined<Keys>>,
}

/// Joins the effects of a batch, each given with the position of its record in the batch.
#[must_use]
pub fn fold(effects: impl IntoIterator<Item = (usize, Effect)>) -> Folded {
    let mut folded = Folded::default();
    effects.into_iter().for_each(|(position, effect)| folded.add(position, effect));
    folded
}

impl Folded {
    /// Joins one more effect, of the record at `position` in the batch.
    pub fn add(&mut self, position: usize, effect: Effect) {
        match effect {
            Effect::Cells { counter, cells } => {
                insert(&mut self.cells, counter, cells, position);
            }
            Effect::Rows { bucket, rows } => insert(&mut self.rows, bucket, rows, position),
            Effect::Changes { item, changes } => {
                insert(&mut self.changes, item, changes, position);
            }
            Effect::Origin { origin, state } => {
                insert(&mut self.origins, origin, state, position);
            }
            Effect::Continue { origin, revision } => {
                insert(&mut self.jobs, origin, revision, position);
            }
            Effect::Look { copy, arrival } => insert(&mut self.looks, copy, arrival, position),
            Effect::Registers { target, registers } => {
                insert(&mut self.registers, target, registers, position);
            }
            Effect::Rewrite { target } => insert(&mut self.rewrites, target, (), position),
            Effect::Assemble { document, keys } => {
                insert(&mut self.assemblies, document, keys, position);
            }
        }
    }

    /// Adds what was folded of other records of the same batch.
    pub fn join(&mut self, other: Self) {
        let Self { cells, rows, changes, origins, jobs, looks, registers, rewrites, assemblies } =
            other;
        join_all(&mut self.cells, cells);
        join_all(&mut self.rows, rows);
        join_all(&mut self.changes, changes);
        join_all(&mut self.origins, origins);
        join_all(&mut self.jobs, jobs);
        join_all(&mut self.looks, looks);
        join_all(&mut self.registers, registers);
        join_all(&mut self.rewrites, rewrites);
        join_all(&mut self.assemblies, assemblies);
    }

    /// Every target as text with the records behind it, for an executor that knows none of them.
    pub fn into_targets(self) -> impl Iterator<Item = (String, Vec<usize>)> {
        let cells = self.cells.into_iter().map(|(counter, joined)| (counter, joined.records));
        let rows =
            self.rows.into_iter().map(|(bucket, joined)| (bucket.to_string(), joined.records));
        let changes = self.changes.into_iter().map(|(item, joined)| (item, joined.records));
        let origins = self.origins.into_iter().map(|(o, joined)| (o.job_key(), joined.records));
        let jobs = self.jobs.into_iter().map(|(o, joined)| (o.job_key(), joined.records));
        let looks = self.looks.into_iter().map(|(copy, joined)| (copy.key, joined.records));
        cells.chain(rows).chain(changes).chain(origins).chain(jobs).chain(looks)
    }
}

fn insert<K: Ord, T: Join>(
    targets: &mut BTreeMap<K, Joined<T>>,
    target: K,
    value: T,
    position: usize,
) {
    match targets.entry(target) {
        Entry::Vacant(place) => {
            place.insert(Joined { value, records: vec![position] });
        }
        Entry::Occupied(mut place) => place.get_mut().join(value, &[position]),
    }
}

fn join_all<K: Ord, T: Join>(targets: &mut BTreeMap<K, Joined<T>>, others: BTreeMap<K, Joined<T>>) {
    for (target, joined) in others {
        match targets.entry(target) {
            Entry::Vacant(place) => {
                place.insert(joined);
            }
            Entry::Occupied(mut place) => place.get_mut().join(joined.value, &joined.records),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Stamp;

    proptest! {
        /// A batch may be folded in parts.
        #[test]
        fn parts_of_a_batch_join(
            said in prop::collection::vec((0..4_u8, 0..3_u8, 0..9_u32), 0..20),
            cut in any::<prop::sample::Index>(),
        ) {
            let effects: Vec<_> = said.iter().enumerate().map(|(position, (name, slot, sequence))| {
                let stamp = Stamp::of_record("l", &sequence.to_string().parse().unwrap());
                let source = slot.to_string();
                let register = crate::migration::Register { stamp, item: None };
                let target = Target {
                    migration: "m".to_owned(),
                    table: "t".to_owned(),
                    key: model::PrimaryKey {
                        partition: model::KeyValue::S(name.to_string()),
                        sort: None,
                    },
                    adopts: false,
                };
                (position, Effect::Registers { target, registers: Registers::of(source, register) })
            }).collect();
            let cut = cut.index(effects.len() + 1);
            let mut joined = fold(effects[..cut].iter().cloned());
            joined.join(fold(effects[cut..].iter().cloned()));
            prop_assert_eq!(joined, fold(effects));
        }
    }
}
