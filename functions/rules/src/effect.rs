//! Effects: statements about the required state of a target, and how such statements are joined.
//!
//! No effect adds, increments or appends. The processor applies effects.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::archive::{Bucket, Rows};
use crate::counters::Cells;
use crate::fan_out::{Copy, DeploymentHops, LatestOriginState, Origin, Revision};
use crate::migration::{Document, Keys, Registers, Target};
use crate::versions::Changes;

/// A statement that can be joined with another statement about the same target.
///
/// The join is associative, commutative and idempotent. A batch may therefore be folded into one write
/// for each target. A statement that is applied twice, late or out of order has no further effect. (A
/// join semilattice: Shapiro et al., "Conflict-free Replicated Data Types", 2011.)
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
pub enum Effect {
    /// The total of a counter contains these slots as of their stamps, or later values.
    Cells {
        /// The counter.
        counter: String,
        /// Its slots.
        cells: Cells,
    },
    /// A bucket of the archive contains these rows, each exactly once.
    Rows {
        /// The bucket.
        bucket: Bucket,
        /// Its rows.
        rows: Rows,
    },
    /// The history of an item contains these changes.
    Changes {
        /// The key of the item, as text.
        item: String,
        /// Its changes.
        changes: Changes,
    },
    /// Every copy of an origin has this state or a later one.
    Origin {
        /// The origin.
        origin: Origin,
        /// The latest known state of the origin; see [`LatestOriginState`].
        state: LatestOriginState,
    },
    /// The job of an origin must continue, if it still has this revision.
    Continue {
        /// The origin.
        origin: Origin,
        /// The job's revision; see [`Revision`].
        revision: Revision,
    },
    /// A copy must be checked, because it may lack the current values of its origin.
    CheckCopy {
        /// The copy.
        copy: Copy,
        /// The number of deployments through which the copy's values have passed.
        arrival: DeploymentHops,
    },
    /// The target of a migration contains these registers of source items, as of their stamps, or
    /// later ones.
    Registers {
        /// The target item.
        target: Target,
        /// The registers of the source items that have this target.
        registers: Registers,
    },
    /// An item must be as the plan of a migration requires. The effect contains no data, because the
    /// write follows from the current item.
    Rewrite {
        /// The item.
        target: Target,
    },
    /// A document must equal the assembly of its current parts.
    Assemble {
        /// The document.
        document: Document,
        /// The keys under which the document was or is stored.
        keys: Keys,
    },
}

/// The joined statements of a batch about one target, and the records from which they come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined<T> {
    /// The joined statements.
    pub value: T,
    /// The positions of these records in the batch, from 0. They are ascending if the records were
    /// folded in order.
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

/// A batch's effects, with one statement for each target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folded {
    /// The cells, by counter.
    pub cells: BTreeMap<String, Joined<Cells>>,
    /// The rows, by bucket.
    pub rows: BTreeMap<Bucket, Joined<Rows>>,
    /// The changes, by item.
    pub changes: BTreeMap<String, Joined<Changes>>,
    /// The states of origins, by origin.
    pub origins: BTreeMap<Origin, Joined<LatestOriginState>>,
    /// The jobs that continue, by origin.
    pub jobs: BTreeMap<Origin, Joined<Revision>>,
    /// The copies to check.
    pub copy_checks: BTreeMap<Copy, Joined<DeploymentHops>>,
    /// The registers, by target of a migration.
    pub registers: BTreeMap<Target, Joined<Registers>>,
    /// The items that a migration changes in place.
    pub rewrites: BTreeMap<Target, Joined<()>>,
    /// The documents to assemble from their parts.
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
    /// Joins one more effect. `position` is the position of its record in the batch.
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
            Effect::CheckCopy { copy, arrival } => {
                insert(&mut self.copy_checks, copy, arrival, position);
            }
            Effect::Registers { target, registers } => {
                insert(&mut self.registers, target, registers, position);
            }
            Effect::Rewrite { target } => insert(&mut self.rewrites, target, (), position),
            Effect::Assemble { document, keys } => {
                insert(&mut self.assemblies, document, keys, position);
            }
        }
    }

    /// Joins the folded effects of other records of the same batch.
    pub fn join(&mut self, other: Self) {
        let Self {
            cells,
            rows,
            changes,
            origins,
            jobs,
            copy_checks,
            registers,
            rewrites,
            assemblies,
        } = other;
        join_all(&mut self.cells, cells);
        join_all(&mut self.rows, rows);
        join_all(&mut self.changes, changes);
        join_all(&mut self.origins, origins);
        join_all(&mut self.jobs, jobs);
        join_all(&mut self.copy_checks, copy_checks);
        join_all(&mut self.registers, registers);
        join_all(&mut self.rewrites, rewrites);
        join_all(&mut self.assemblies, assemblies);
    }

    /// Returns every target as text with the positions of its records, for an executor that handles
    /// all kinds of targets alike.
    pub fn into_targets(self) -> impl Iterator<Item = (String, Vec<usize>)> {
        let cells = self.cells.into_iter().map(|(counter, joined)| (counter, joined.records));
        let rows =
            self.rows.into_iter().map(|(bucket, joined)| (bucket.to_string(), joined.records));
        let changes = self.changes.into_iter().map(|(item, joined)| (item, joined.records));
        let origins = self.origins.into_iter().map(|(o, joined)| (o.job_key(), joined.records));
        let jobs = self.jobs.into_iter().map(|(o, joined)| (o.job_key(), joined.records));
        let looks = self.copy_checks.into_iter().map(|(copy, joined)| (copy.key, joined.records));
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
        /// Goal: the parts of a batch may be folded separately and then joined.
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
