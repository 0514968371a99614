//! Items read straight from JSON text, without a tree in between: for texts that are right, which
//! is what stream records are.
//!
//! It says only that a text is not right, never in DynamoDB's words: whoever needs those reads the
//! tree with `decode`. What is read here is what `decode` reads, and nothing that it refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor,
};

use crate::attribute_value::{AttributeType, AttributeValue};
use crate::item::Item;
use crate::limits::NESTING_LEVELS_MAX;
use crate::number::Number;

/// An item that is read from its JSON.
pub(crate) struct DirectItem(pub(crate) Item);

impl<'de> Deserialize<'de> for DirectItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Members { level: 1 }.deserialize(deserializer).map(|members| Self(Item(members)))
    }
}

/// Attribute values by name; `level` is theirs: 1 in an item, one more in each map or list.
struct Members {
    level: usize,
}

impl<'de> DeserializeSeed<'de> for Members {
    type Value = BTreeMap<String, AttributeValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members {
    type Value = BTreeMap<String, AttributeValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("attributes by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut members = BTreeMap::new();
        while let Some(name) = access.next_key::<String>()? {
            let value = access.next_value_seed(Value { level: self.level })?;
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("two attributes of one name"));
            }
        }
        Ok(members)
    }
}

/// One attribute value.
struct Value {
    level: usize,
}

impl<'de> DeserializeSeed<'de> for Value {
    type Value = AttributeValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if self.level > NESTING_LEVELS_MAX {
            return Err(D::Error::custom("nested too deeply"));
        }
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Value {
    type Value = AttributeValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with one type descriptor")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<AttributeValue, A::Error> {
        let Some(Descriptor(attribute_type)) = access.next_key()? else {
            return Err(A::Error::custom("no type descriptor"));
        };
        let value = match attribute_type {
            AttributeType::S => AttributeValue::S(access.next_value()?),
            AttributeType::N => AttributeValue::N(access.next_value_seed(Text(number))?),
            AttributeType::B => AttributeValue::B(access.next_value_seed(Text(binary))?),
            AttributeType::Bool => AttributeValue::Bool(access.next_value()?),
            AttributeType::Null => match access.next_value()? {
                true => AttributeValue::Null,
                false => {
                    return Err(A::Error::invalid_value(Unexpected::Bool(false), &"true"));
                }
            },
            AttributeType::M => {
                AttributeValue::M(access.next_value_seed(Members { level: self.level + 1 })?)
            }
            AttributeType::L => {
                AttributeValue::L(access.next_value_seed(List { level: self.level + 1 })?)
            }
            AttributeType::Ss => AttributeValue::Ss(access.next_value_seed(Set(owned))?),
            AttributeType::Ns => AttributeValue::Ns(access.next_value_seed(Set(number))?),
            AttributeType::Bs => AttributeValue::Bs(access.next_value_seed(Set(binary))?),
        };
        match access.next_key::<Descriptor>()? {
            None => Ok(value),
            Some(_) => Err(A::Error::custom("two type descriptors")),
        }
    }
}

/// The name of a value's type.
struct Descriptor(AttributeType);

impl<'de> Deserialize<'de> for Descriptor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Text(AttributeType::from_descriptor).deserialize(deserializer).map(Self)
    }
}

fn owned(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn number(text: &str) -> Option<Number> {
    text.parse().ok()
}

fn binary(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// What a function makes of a text.
struct Text<F>(F);

impl<'de, T, F: Fn(&str) -> Option<T>> DeserializeSeed<'de> for Text<F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<T, F: Fn(&str) -> Option<T>> Visitor<'_> for Text<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text that fits its place")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// A list of attribute values.
struct List {
    level: usize,
}

impl<'de> DeserializeSeed<'de> for List {
    type Value = Vec<AttributeValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List {
    type Value = Vec<AttributeValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("attribute values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = access.next_element_seed(Value { level: self.level })? {
            members.push(member);
        }
        Ok(members)
    }
}

/// A set of what a function makes of texts.
struct Set<F>(F);

impl<'de, T: Ord, F: Fn(&str) -> Option<T> + Copy> DeserializeSeed<'de> for Set<F> {
    type Value = BTreeSet<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(SetVisitor(self.0, PhantomData))
    }
}

struct SetVisitor<T, F>(F, PhantomData<T>);

impl<'de, T: Ord, F: Fn(&str) -> Option<T> + Copy> Visitor<'de> for SetVisitor<T, F> {
    type Value = BTreeSet<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a set that is not empty")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut members = BTreeSet::new();
        while let Some(member) = access.next_element_seed(Text(self.0))? {
            if !members.insert(member) {
                return Err(A::Error::custom("a member twice"));
            }
        }
        if members.is_empty() { Err(A::Error::invalid_length(0, &self)) } else { Ok(members) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::json::{item_from_str, item_to_string};

    fn direct(text: &str) -> Option<Item> {
        serde_json::from_str::<DirectItem>(text).ok().map(|item| item.0)
    }

    #[test]
    fn what_the_tree_refuses_is_refused() {
        for value in [
            "{}",
            r#"{"X":"1"}"#,
            r#"{"S":"a","N":"1"}"#,
            r#"{"S":"a","S":"a"}"#,
            r#"{"N":1}"#,
            r#"{"N":"abc"}"#,
            r#"{"N":""}"#,
            r#"{"S":true}"#,
            r#"{"S":null}"#,
            r#"{"NULL":false}"#,
            r#"{"SS":[]}"#,
            r#"{"SS":["a","a"]}"#,
            r#"{"NS":["1","1.0"]}"#,
            r#"{"BS":["YQ==","YQ=="]}"#,
            r#"{"M":{"a":{"S":"x"},"a":{"S":"y"}}}"#,
            r#"{"M":[]}"#,
            r#"{"L":{}}"#,
            r#"{"B":"!"}"#,
            r#""a""#,
            "null",
            r#"{"S":"\ud800"}"#,
        ] {
            let text = format!(r#"{{"a":{value}}}"#);
            assert!(item_from_str(&text).is_err(), "{text}");
            assert_eq!(direct(&text), None, "{text}");
        }
        for (levels, good) in [(31, true), (32, false)] {
            let deep = "{\"L\":[".repeat(levels) + "{\"S\":\"x\"}" + &"]}".repeat(levels);
            let text = format!(r#"{{"a":{deep}}}"#);
            assert_eq!(item_from_str(&text).is_ok(), good);
            assert_eq!(direct(&text).is_some(), good);
        }
    }

    fn values() -> impl Strategy<Value = AttributeValue> + Clone {
        let number = any::<i64>().prop_map(Number::from);
        let leaf = prop_oneof![
            any::<String>().prop_map(AttributeValue::S),
            number.clone().prop_map(AttributeValue::N),
            any::<Vec<u8>>().prop_map(AttributeValue::B),
            any::<bool>().prop_map(AttributeValue::Bool),
            Just(AttributeValue::Null),
            prop::collection::btree_set(any::<String>(), 1..4).prop_map(AttributeValue::Ss),
            prop::collection::btree_set(number, 1..4).prop_map(AttributeValue::Ns),
            prop::collection::btree_set(any::<Vec<u8>>(), 1..4).prop_map(AttributeValue::Bs),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(AttributeValue::L),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(AttributeValue::M),
            ]
        })
    }

    proptest! {
        #[test]
        fn items_are_read_as_through_the_tree(
            members in prop::collection::btree_map(any::<String>(), values(), 0..5),
        ) {
            let item = Item(members);
            let text = item_to_string(&item);
            prop_assert_eq!(direct(&text), Some(item));
        }

        #[test]
        fn damaged_texts_are_read_as_through_the_tree_or_not_at_all(
            members in prop::collection::btree_map("[ab]", values(), 1..3),
            at in any::<prop::sample::Index>(),
            with in prop::sample::select(b"\"{}[],:0tnS\\".to_vec()),
        ) {
            let mut bytes = item_to_string(&Item(members)).into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = with;
            if let Ok(text) = std::str::from_utf8(&bytes) {
                let read = direct(text);
                prop_assert!(read.is_none() || read == item_from_str(text).ok(), "{}", text);
            }
        }
    }
}
