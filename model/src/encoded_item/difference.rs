//! The difference between two items. The difference is usually small, because most changes leave
//! most of an item's bytes unchanged.

use serde::{Deserialize, Serialize, Serializer};

use super::EncodedItem;
use crate::encoding::{EncodingError, MEMBERS_BEGIN, Reader, begin_item, finish_item};

/// The difference of an item's encoded members from the encoded members of another item. `between`
/// is the part between the common prefix and the common suffix. `docs/formats/items.md` shows the
/// layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference<'a> {
    /// The item's size in bytes, as DynamoDB counts it.
    size: usize,
    begins_alike: usize,
    ends_alike: usize,
    #[serde(borrow, serialize_with = "as_bytes")]
    between: &'a [u8],
}

fn as_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

/// The number of bytes that are compared in one step.
const TOGETHER: usize = 16;

/// Returns the length of the common prefix.
fn begins_alike(one: &[u8], other: &[u8]) -> usize {
    let chunks = one.chunks_exact(TOGETHER).zip(other.chunks_exact(TOGETHER));
    let alike = TOGETHER * chunks.take_while(|(one, other)| one == other).count();
    let rest = one.iter().zip(other).skip(alike);
    alike + rest.take_while(|(one, other)| one == other).count()
}

/// Returns the length of the common suffix.
fn ends_alike(one: &[u8], other: &[u8]) -> usize {
    let chunks = one.rchunks_exact(TOGETHER).zip(other.rchunks_exact(TOGETHER));
    let alike = TOGETHER * chunks.take_while(|(one, other)| one == other).count();
    let rest = one.iter().rev().zip(other.iter().rev()).skip(alike);
    alike + rest.take_while(|(one, other)| one == other).count()
}

impl EncodedItem {
    /// Returns the difference of this item from another item.
    ///
    /// # Errors
    /// When the bytes of either item are damaged.
    pub fn difference_from(&self, other: &Self) -> Result<Difference<'_>, EncodingError> {
        let ((_, size), _) = (Reader::of_item(&self.0)?, Reader::of_item(&other.0)?);
        let (own, other) = (self.members(), other.members());
        let begins_alike = begins_alike(own, other);
        let rest = own.get(begins_alike..).unwrap_or_default();
        let ends_alike = ends_alike(rest, other.get(begins_alike..).unwrap_or_default());
        let between = rest.get(..rest.len() - ends_alike).unwrap_or_default();
        Ok(Difference { size, begins_alike, ends_alike, between })
    }

    /// Applies a difference to this item.
    ///
    /// # Errors
    /// When the difference was not computed from this item.
    pub fn changed(&self, difference: &Difference<'_>) -> Result<Self, EncodingError> {
        let members = self.members();
        let ends_from = members.len().checked_sub(difference.ends_alike);
        let beginning = members.get(..difference.begins_alike);
        let end = ends_from
            .filter(|from| *from >= difference.begins_alike)
            .and_then(|from| members.get(from..));
        let (Some(beginning), Some(end)) = (beginning, end) else {
            let problem = "the difference was computed from an item other than this old item";
            return Err(EncodingError { offset: self.0.len(), problem });
        };
        let length = beginning.len() + difference.between.len() + end.len();
        let mut item = Vec::with_capacity(MEMBERS_BEGIN + length);
        begin_item(&mut item);
        item.extend_from_slice(beginning);
        item.extend_from_slice(difference.between);
        item.extend_from_slice(end);
        finish_item(&mut item, difference.size);
        Ok(Self(item.into()))
    }

    fn members(&self) -> &[u8] {
        self.0.get(MEMBERS_BEGIN..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::item::Item;

    /// Generates items with few different names and values, so that two items often share parts.
    /// Some items are long.
    fn any_item() -> impl Strategy<Value = Item> {
        let value = prop_oneof!["[ab]{0,3}", "a{30,50}b{0,2}a{30,50}"];
        prop::collection::btree_map("[a-d]{1,2}", value, 0..6).prop_map(|members| {
            members.into_iter().fold(Item::new(), |item, (name, text)| item.with(&name, &*text))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Goal: applying the difference to the other item restores the item. This also holds after
        /// the difference was serialised and deserialised.
        #[test]
        fn a_difference_gives_the_item((one, other) in (any_item(), any_item())) {
            let (one, other) = (EncodedItem::from(&one), EncodedItem::from(&other));
            let difference = one.difference_from(&other).unwrap();
            prop_assert_eq!(other.changed(&difference).unwrap(), one.clone());
            if one == other {
                prop_assert!(difference.between.is_empty());
            }
        }

        /// Goal: an item that is too short for a difference rejects it.
        #[test]
        fn a_difference_does_not_apply_to_a_shorter_item((one, other) in (any_item(), any_item())) {
            let (one, other) = (EncodedItem::from(&one), EncodedItem::from(&other));
            let difference = one.difference_from(&one).unwrap();
            let alike = difference.begins_alike + difference.ends_alike;
            prop_assert_eq!(other.changed(&difference).is_err(), other.members().len() < alike);
        }
    }

    #[test]
    fn one_number_of_a_long_item_is_all_that_differs() {
        let item = |version: u64| {
            EncodedItem::from(
                &Item::new()
                    .with("title", "x".repeat(250).as_str())
                    .with("version", crate::Number::from(version)),
            )
        };
        let (one, other) = (item(7), item(8));
        assert!(one.difference_from(&other).unwrap().between.len() < 4);
    }

    #[test]
    fn damage_is_detected() {
        let whole = EncodedItem::from(&Item::new().with("a", "b"));
        let damaged = EncodedItem::from_stored(&b"\x09"[..]);
        assert!(whole.difference_from(&damaged).is_err());
        assert!(damaged.difference_from(&whole).is_err());
    }
}
