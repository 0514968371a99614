//! The registers of a target item: the last statement of each source item about it, with a stamp.
//!
//! A target item is **live** if at least one source item produces it. If two source items produce
//! it at the same time, this is a **collision**: readers see the item of the first source, in the
//! order of the strings that identify the sources. The mark stores the item of the second source,
//! which becomes visible when the first source no longer produces the target. If no source produces
//! the target, it is a **tombstone**: an item with only a key and a mark, so that an older
//! statement that arrives late cannot restore the target.
//!
//! The mark is the attribute [`MARK`] of the target item.

use std::collections::BTreeMap;

use model::json::write_string;
use model::{AttributeValue, Item, KeySchema};
use thiserror::Error;

use crate::effect::Join;
use crate::marks::migration::{MARK, MARK_AT, MARK_FROM, MARK_GONE, MARK_MORE, is_gone, unmarked};
use crate::stamp::Stamp;

/// A member of an entry of [`MARK_MORE`]: the target item of a source whose item is not visible.
const MORE_ITEM: &str = "item";

/// The last statement of one source item about a target item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// The stamp of the statement.
    pub stamp: Stamp,
    /// The target item with its key and without its mark; `None` if the source does not produce
    /// this target.
    pub item: Option<Item>,
}

/// The registers of one target item, ordered by the string that identifies the source. Nearly all
/// targets have one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registers(Vec<(String, Register)>);

/// The reason why an item of a target table has no valid mark, which means that this migration did
/// not write the item.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the target item was not written by this migration: {0}")]
pub struct ForeignItem(&'static str);

/// The mark of a live target with a single source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnlyMark<'r> {
    source: &'r str,
    stamp: &'r str,
}

impl OnlyMark<'_> {
    /// Appends the mark as DynamoDB JSON.
    pub fn write(&self, out: &mut String) {
        let text = |out: &mut String, name: &str, text: &str| {
            write_string(out, name);
            out.push_str(":{\"S\":");
            write_string(out, text);
            out.push('}');
        };
        out.push_str("{\"M\":{");
        text(out, MARK_AT, self.stamp);
        out.push(',');
        text(out, MARK_FROM, self.source);
        out.push_str("}}");
    }
}

impl Register {
    /// Returns whether this register replaces the other register. Equal stamps with different
    /// contents occur only if a scan read an item twice. The choice does not matter in that case,
    /// because the record of the change between the reads has a later stamp.
    fn wins_over(&self, other: &Self) -> bool {
        let content = |register: &Self| register.item.as_ref().map(model::json::item_to_string);
        self.stamp > other.stamp || (self.stamp == other.stamp && content(self) > content(other))
    }
}

impl Join for Registers {
    fn join(&mut self, other: Self) {
        for (source, register) in other.0 {
            match self.place(&source) {
                Err(place) => self.0.insert(place, (source, register)),
                Ok(place) => {
                    let known = self.0.get_mut(place).map(|(_, known)| known);
                    if let Some(known) = known.filter(|known| register.wins_over(known)) {
                        *known = register;
                    }
                }
            }
        }
    }
}

impl Registers {
    /// Returns the registers with a single statement.
    #[must_use]
    pub fn of(source: String, register: Register) -> Self {
        Self(vec![(source, register)])
    }

    /// Returns the position of a source. If the source is absent, returns the position to insert
    /// it.
    fn place(&self, source: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.as_str().cmp(source))
    }

    /// Returns each source with its register.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Register)> {
        self.0.iter().map(|(source, register)| (source.as_str(), register))
    }

    /// Returns the register of a source.
    #[must_use]
    pub fn get(&self, source: &str) -> Option<&Register> {
        self.place(source).ok().and_then(|place| self.0.get(place)).map(|(_, register)| register)
    }

    /// Returns the source with its register if there is exactly one.
    #[must_use]
    pub fn only(&self) -> Option<(&str, &Register)> {
        self.iter().next().filter(|_| self.0.len() == 1)
    }

    /// Returns the item and the mark of a live target with a single source: the two parts of
    /// [`Registers::to_item`]. Returns `None` for any other target.
    #[must_use]
    pub fn only_live(&self) -> Option<(&Item, OnlyMark<'_>)> {
        let (source, register) = self.only()?;
        Some((register.item.as_ref()?, OnlyMark { source, stamp: register.stamp.as_str() }))
    }

    /// Returns the sources that currently produce this target, with their items, ordered by source
    /// name. More than one source is a collision.
    pub fn live(&self) -> impl Iterator<Item = (&str, &Item)> {
        self.iter().filter_map(|(source, register)| Some((source, register.item.as_ref()?)))
    }

    /// Returns whether no source produces this target.
    #[must_use]
    pub fn is_tombstone(&self) -> bool {
        self.live().next().is_none()
    }

    /// Returns the stored registers joined with the later registers of `more`; `None` if no
    /// register of `more` is later. A statement with the stored stamp was already applied. If its
    /// content differs from the stored content, a writer has updated the item since then; an update
    /// keeps the mark.
    #[must_use]
    pub fn joined(&self, more: &Self) -> Option<Self> {
        let is_later = |source: &str, said: &Register| {
            self.get(source).is_none_or(|known| said.stamp > known.stamp)
        };
        let later = more.0.iter().filter(|(source, said)| is_later(source, said));
        let later = Self(later.cloned().collect());
        if later.0.is_empty() {
            return None;
        }
        let mut joined = self.clone();
        joined.join(later);
        Some(joined)
    }

    /// Returns the item for the target table. `key` holds its key attributes.
    #[must_use]
    pub fn to_item(&self, key: &Item) -> Item {
        // The first live source is visible. A tombstone shows its first source.
        let shown = self.0.iter().position(|(_, register)| register.item.is_some()).unwrap_or(0);
        let Some((source, register)) = self.0.get(shown) else {
            return key.clone();
        };
        let mut item = register.item.clone().unwrap_or_else(|| key.clone());
        let mut mark = members(register);
        mark.insert(MARK_FROM.to_owned(), AttributeValue::from(source.as_str()));
        let others = self.0.iter().enumerate().filter(|(place, _)| *place != shown);
        let others: BTreeMap<_, _> = others
            .map(|(_, (other, register))| {
                let mut said = members(register);
                if let Some(item) = &register.item {
                    said.insert(MORE_ITEM.to_owned(), AttributeValue::M(item.0.clone()));
                }
                (other.clone(), AttributeValue::M(said))
            })
            .collect();
        if !others.is_empty() {
            mark.insert(MARK_MORE.to_owned(), AttributeValue::M(others));
        }
        item.insert(MARK.to_owned(), AttributeValue::M(mark));
        item
    }

    /// Parses the item of [`Registers::to_item`].
    ///
    /// # Errors
    /// The item has no mark, or a mark that this migration did not write.
    pub fn from_item(item: &Item) -> Result<Self, ForeignItem> {
        let mark = item.get(MARK).ok_or(ForeignItem("it has no attribute `_weir`"))?;
        let read = || {
            let mark = mark.as_map()?;
            let source = mark.get(MARK_FROM)?.as_str()?.to_owned();
            let shown =
                Register { stamp: stamp_of(mark)?, item: (!is_gone(mark)).then(|| unmarked(item)) };
            let mut registers = Self::of(source, shown);
            let others = mark.get(MARK_MORE).map(|more| more.as_map().ok_or(()));
            for (source, said) in others.transpose().ok()?.into_iter().flatten() {
                let said = said.as_map()?;
                let item = said.get(MORE_ITEM).and_then(AttributeValue::as_map).cloned().map(Item);
                if item.is_some() == is_gone(said) {
                    return None;
                }
                let register = Register { stamp: stamp_of(said)?, item };
                match registers.place(source) {
                    Ok(_) => return None,
                    Err(place) => registers.0.insert(place, (source.clone(), register)),
                }
            }
            Some(registers)
        };
        read().ok_or(ForeignItem("its attribute `_weir` is damaged"))
    }
}

fn members(register: &Register) -> BTreeMap<String, AttributeValue> {
    let mut members =
        BTreeMap::from([(MARK_AT.to_owned(), AttributeValue::from(register.stamp.as_str()))]);
    if register.item.is_none() {
        members.insert(MARK_GONE.to_owned(), AttributeValue::Bool(true));
    }
    members
}

fn stamp_of(mark: &BTreeMap<String, AttributeValue>) -> Option<Stamp> {
    mark.get(MARK_AT)?.as_str()?.parse().ok()
}

/// Returns the key attributes of an item.
#[must_use]
pub fn key_of(item: &Item, schema: &KeySchema) -> Item {
    item.iter()
        .filter(|(name, _)| schema.contains(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use model::json::{attribute_value_from_str, item_from_str, item_to_string};
    use proptest::prelude::*;

    use super::*;
    use crate::marks::migration::visible;

    fn register(sequence: u32, value: Option<u32>) -> Register {
        let stamp = Stamp::of_record("l", &sequence.to_string().parse().unwrap());
        let item = value.map(|value| {
            item_from_str(&format!(r#"{{"pk":{{"S":"k"}},"v":{{"N":"{value}"}}}}"#)).unwrap()
        });
        Register { stamp, item }
    }

    fn key() -> Item {
        item_from_str(r#"{"pk":{"S":"k"}}"#).unwrap()
    }

    fn schema() -> KeySchema {
        let attribute_type = model::KeyAttributeType::S;
        let partition = model::KeyAttribute { name: "pk".to_owned(), attribute_type };
        KeySchema { partition, sort: None }
    }

    #[test]
    fn the_only_source_is_shown_and_then_leaves_a_tombstone() {
        let live = Registers::of("a".to_owned(), register(7, Some(1)));
        let zeros = "0".repeat(39);
        assert_eq!(
            item_to_string(&live.to_item(&key())),
            format!(
                r#"{{"_weir":{{"M":{{"at":{{"S":"l/{zeros}7"}},"from":{{"S":"a"}}}}}},"pk":{{"S":"k"}},"v":{{"N":"1"}}}}"#
            )
        );
        let gone = live.joined(&Registers::of("a".to_owned(), register(8, None))).unwrap();
        assert!(gone.is_tombstone());
        let item = gone.to_item(&key());
        assert_eq!(visible(&item, &schema()), None);
        // After a writer's update, a tombstone is an item again, although the mark remains.
        let written = item.clone().with("v", "new");
        assert_eq!(visible(&written, &schema()), Some(key().with("v", "new")));
        assert_eq!(Registers::from_item(&item), Ok(gone.clone()));
        // An older statement does not restore the item.
        assert_eq!(gone.joined(&live), None);
        assert_eq!(gone.only_live(), None);
    }

    #[test]
    fn the_mark_of_an_only_source_is_written_as_the_item_has_it() {
        let source = r#"t|{"pk":{"S":"k"}}"#;
        let live = Registers::of(source.to_owned(), register(7, Some(1)));
        let (shown, mark) = live.only_live().unwrap();
        let mut written = String::new();
        mark.write(&mut written);
        let mut together = shown.clone();
        together.insert(MARK.to_owned(), attribute_value_from_str(&written).unwrap());
        assert_eq!(together, live.to_item(&key()));
    }

    #[test]
    fn a_collision_shows_the_first_source_and_keeps_the_other() {
        let mut both = Registers::of("b".to_owned(), register(1, Some(2)));
        both.join(Registers::of("a".to_owned(), register(9, Some(3))));
        assert_eq!(both.live().count(), 2);
        assert_eq!(both.only_live(), None);
        let item = both.to_item(&key());
        assert_eq!(item["v"], AttributeValue::N(3u64.into()));
        assert_eq!(Registers::from_item(&item), Ok(both.clone()));
        both.join(Registers::of("a".to_owned(), register(10, None)));
        assert_eq!(both.to_item(&key())["v"], AttributeValue::N(2u64.into()));
    }

    #[test]
    fn foreign_items_are_recognised() {
        for text in [
            r#"{"pk":{"S":"k"}}"#,
            r#"{"pk":{"S":"k"},"_weir":{"S":"x"}}"#,
            r#"{"pk":{"S":"k"},"_weir":{"M":{"from":{"S":"a"}}}}"#,
            r#"{"pk":{"S":"k"},"_weir":{"M":{"from":{"S":"a"},"at":{"S":"x"}}}}"#,
        ] {
            assert!(Registers::from_item(&item_from_str(text).unwrap()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_repeated_statement_does_not_undo_a_writers_change() {
        let said = |sequence, value| Registers::of("a".to_owned(), register(sequence, value));
        for value in [Some(1), Some(3), None] {
            let mut stands = said(7, value).to_item(&key());
            stands.insert("v".to_owned(), AttributeValue::N(2_u64.into()));
            let known = Registers::from_item(&stands).unwrap();
            assert_eq!(known.joined(&said(7, value)), None, "{value:?}");
            assert!(known.joined(&said(8, value)).is_some(), "{value:?}");
        }
        // A source without a register is added. An older statement of another source is ignored.
        let known = said(7, Some(2));
        let mut more = said(7, Some(3));
        more.join(Registers::of("b".to_owned(), register(1, Some(4))));
        let joined = known.joined(&more).unwrap();
        assert_eq!(joined.get("a"), known.get("a"));
        assert_eq!(joined.get("b"), more.get("b"));
        // The order of folding does not matter.
        let (mut one, mut other) = (said(7, Some(2)), said(7, Some(3)));
        one.join(said(7, Some(3)));
        other.join(said(7, Some(2)));
        assert_eq!(one, other);
    }

    proptest! {
        /// Goal: joining statements in any order and any number of times has the same result, also
        /// if the registers are stored as an item and parsed again. Statements with equal stamps
        /// are equal.
        #[test]
        fn statements_join(
            said in prop::collection::btree_map((0..3_u8, 0..6_u32), prop::option::of(0..3_u32), 1..12)
                .prop_map(Vec::from_iter),
            order in prop::collection::vec(any::<prop::sample::Index>(), 24),
        ) {
            let of = |&((source, sequence), value): &((u8, u32), Option<u32>)| {
                Registers::of(source.to_string(), register(sequence, value))
            };
            let mut in_order = Registers::default();
            said.iter().for_each(|said| in_order.join(of(said)));
            let mut stored: Option<Item> = None;
            for said in order.iter().map(|index| index.get(&said)).chain(&said) {
                let known = stored.as_ref().map(|item| Registers::from_item(item).unwrap());
                if let Some(joined) = known.unwrap_or_default().joined(&of(said)) {
                    stored = Some(joined.to_item(&key()));
                }
            }
            prop_assert_eq!(Registers::from_item(&stored.unwrap()), Ok(in_order));
        }
    }
}
