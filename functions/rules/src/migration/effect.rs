//! The effects of a migration, and how the effects of a batch are folded.
//!
//! `registers`, `in_place` and `assembly` compute what the targets must be.

use super::{Document, Keys, Registers, Target};
use crate::effect::{self, Fold, add, join_folded};

/// An effect of a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The target must contain these registers of source items, as of their stamps, or later
    /// registers.
    Registers {
        /// The target item.
        target: Target,
        /// The registers of the source items that have this target.
        registers: Registers,
    },
    /// An item must be as the plan requires. The effect contains no data, because the write is
    /// computed from the current item.
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

/// A migration's effects of a batch, with one statement for each target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folded {
    /// The registers, by target.
    pub registers: effect::Folded<Target, Registers>,
    /// The items that are changed in place.
    pub rewrites: effect::Folded<Target, ()>,
    /// The documents to assemble from their parts.
    pub assemblies: effect::Folded<Document, Keys>,
}

impl Folded {
    /// Joins the folded effects of other records of the same batch.
    pub fn join(&mut self, other: Self) {
        let Self { registers, rewrites, assemblies } = other;
        join_folded(&mut self.registers, registers);
        join_folded(&mut self.rewrites, rewrites);
        join_folded(&mut self.assemblies, assemblies);
    }
}

impl Fold for Effect {
    type Folded = Folded;

    fn fold_into(self, folded: &mut Folded, position: usize) {
        match self {
            Self::Registers { target, registers } => {
                add(&mut folded.registers, target, registers, [position]);
            }
            Self::Rewrite { target } => add(&mut folded.rewrites, target, (), [position]),
            Self::Assemble { document, keys } => {
                add(&mut folded.assemblies, document, keys, [position]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Stamp;
    use crate::effect::fold;
    use crate::migration::Register;

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
                let register = Register { stamp, item: None };
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
