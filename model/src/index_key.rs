//! Keys of secondary indexes. The partition key and the sort key of an index have up to four
//! attributes each. In a table, each has one attribute.
//!
//! The code that creates an index validates the schema. Source: AWS, "Using global secondary
//! indexes", multi-attribute keys.

use serde::{Deserialize, Serialize};

use crate::attribute_value::AttributeValue;
use crate::encoded_item::{EncodedItem, StoredKeyValue, StoredValue};
use crate::encoding::EncodingError;
use crate::item::Item;
use crate::key::{KeyAttribute, KeyError, KeySchema, KeyValue, PrimaryKey, Token};
use crate::limits::{INDEX_KEY_ATTRIBUTES_MAX, PARTITION_KEY_BYTES_MAX, SORT_KEY_BYTES_MAX};

/// The key attributes of an index.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IndexKeySchema {
    /// The partition key: one to four attributes.
    pub partition: Vec<KeyAttribute>,
    /// The sort key: zero to four attributes, in order of significance.
    pub sort: Vec<KeyAttribute>,
}

/// The values of an index's key, in the order of its schema.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IndexKeyValues {
    /// The values of the partition key, one for each attribute.
    pub partition: Vec<KeyValue>,
    /// The values of the sort key, one for each attribute.
    pub sort: Vec<KeyValue>,
}

impl From<KeySchema> for IndexKeySchema {
    fn from(schema: KeySchema) -> Self {
        Self { partition: vec![schema.partition], sort: schema.sort.into_iter().collect() }
    }
}

impl From<PrimaryKey> for IndexKeyValues {
    fn from(key: PrimaryKey) -> Self {
        Self { partition: vec![key.partition], sort: key.sort.into_iter().collect() }
    }
}

impl IndexKeySchema {
    /// Returns the key attributes: first the attributes of the partition key, then the attributes
    /// of the sort key.
    pub fn attributes(&self) -> impl Iterator<Item = &KeyAttribute> {
        self.partition.iter().chain(&self.sort)
    }

    /// Returns whether `name` is a key attribute.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.attributes().any(|attribute| attribute.name == name)
    }

    /// Returns whether the partition key or the sort key has more than one attribute.
    #[must_use]
    pub fn has_several_attributes(&self) -> bool {
        self.partition.len() > 1 || self.sort.len() > 1
    }

    /// Returns the values of this key in an item.
    ///
    /// # Errors
    /// Returns the error of the first attribute that is missing, has another type, is empty or is
    /// too long.
    pub fn values_of_item(&self, item: &Item) -> Result<IndexKeyValues, KeyError> {
        self.values_of(|name| item.get(name).cloned())
    }

    /// Returns the values of this key in an item's stored form, without decoding them; `None` if
    /// the item lacks valid values.
    ///
    /// # Errors
    /// When the item's bytes are damaged.
    pub fn values_of_encoded<'a>(
        &self,
        item: &'a EncodedItem,
    ) -> Result<Option<StoredIndexKey<'a>>, EncodingError> {
        let mut values = [StoredKeyValue::NOTHING; ATTRIBUTES_MAX];
        let mut places = values.iter_mut();
        for attribute in self.attributes() {
            match (item.stored_value(&attribute.name)?, places.next()) {
                (StoredValue::Key(value), Some(place)) if is_fit(attribute, &value) => {
                    *place = value;
                }
                (_, Some(_)) => return Ok(None),
                (_, None) => return Err(TOO_MANY_ATTRIBUTES),
            }
        }
        let (partition, count) = (self.partition.len(), self.partition.len() + self.sort.len());
        let key = StoredIndexKey { values, partition, count };
        if key.is_surely_short() || self.values_of_item(&item.decode()?).is_ok() {
            return Ok(Some(key));
        }
        Ok(None)
    }

    /// Returns true if all values of this key in an item's stored form are certainly valid. `false`
    /// means that they may be valid or invalid. Missing values are allowed.
    ///
    /// # Errors
    /// When the item's bytes are damaged.
    pub fn surely_takes(&self, item: &EncodedItem) -> Result<bool, EncodingError> {
        let sides = [(&self.partition, PARTITION_KEY_BYTES_MAX), (&self.sort, SORT_KEY_BYTES_MAX)];
        for (attributes, bytes_max) in sides {
            let mut bytes = 0;
            for attribute in attributes {
                match item.stored_value(&attribute.name)? {
                    StoredValue::Missing => {}
                    StoredValue::Key(value) if is_fit(attribute, &value) => {
                        bytes += value.ordered.len();
                    }
                    _ => return Ok(false),
                }
            }
            if bytes > bytes_max {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn values_of(
        &self,
        mut value_of: impl FnMut(&str) -> Option<AttributeValue>,
    ) -> Result<IndexKeyValues, KeyError> {
        let partition = values(&self.partition, &mut value_of)?;
        let sort = values(&self.sort, &mut value_of)?;
        if bytes(&partition) > PARTITION_KEY_BYTES_MAX {
            return Err(KeyError::PartitionKeyTooLong);
        }
        if bytes(&sort) > SORT_KEY_BYTES_MAX {
            return Err(KeyError::SortKeyTooLong);
        }
        Ok(IndexKeyValues { partition, sort })
    }
}

impl IndexKeyValues {
    /// Returns the token of the index entry with this key: the hash of the partition key.
    #[must_use]
    pub fn token(&self) -> Token {
        Token::of_parts(&self.partition)
    }
}

/// The values of an index's key in an item's stored form, in the order of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredIndexKey<'a> {
    /// The values, in an inline array instead of a vector because each write creates two of these
    /// keys per index. Unused positions contain a placeholder.
    values: [StoredKeyValue<'a>; ATTRIBUTES_MAX],
    /// The number of values of the partition key.
    partition: usize,
    /// The number of values of the partition key and the sort key together.
    count: usize,
}

/// The maximum number of attributes of an index key, partition key and sort key together.
const ATTRIBUTES_MAX: usize = 2 * INDEX_KEY_ATTRIBUTES_MAX;

const TOO_MANY_ATTRIBUTES: EncodingError =
    EncodingError { offset: 0, problem: "the index has more than 8 key attributes" };

impl<'a> StoredIndexKey<'a> {
    /// Returns the values of the partition key, one for each attribute.
    #[must_use]
    pub fn partition(&self) -> &[StoredKeyValue<'a>] {
        self.values.get(..self.partition).unwrap_or_default()
    }

    /// Returns the values of the sort key, one for each attribute.
    #[must_use]
    pub fn sort(&self) -> &[StoredKeyValue<'a>] {
        self.values.get(self.partition..self.count).unwrap_or_default()
    }

    /// Returns the token of the index entry with this key: the hash of the partition key.
    #[must_use]
    pub fn token(&self) -> Token {
        Token::of_ordered_parts(self.partition().iter().map(|value| value.ordered))
    }

    /// Returns true if both the partition key and the sort key are certainly short enough. The
    /// length of the ordered bytes is an upper bound of the size that DynamoDB counts.
    fn is_surely_short(&self) -> bool {
        let bytes = |values: &[StoredKeyValue<'_>]| -> usize {
            values.iter().map(|value| value.ordered.len()).sum()
        };
        bytes(self.partition()) <= PARTITION_KEY_BYTES_MAX
            && bytes(self.sort()) <= SORT_KEY_BYTES_MAX
    }
}

/// Returns whether a value has the type of a key attribute and is not empty.
fn is_fit(attribute: &KeyAttribute, value: &StoredKeyValue<'_>) -> bool {
    value.attribute_type == attribute.attribute_type && !value.is_empty()
}

/// Returns the total size in bytes of the values of a partition key or of a sort key.
fn bytes(values: &[KeyValue]) -> usize {
    values.iter().map(KeyValue::size).sum()
}

fn values(
    attributes: &[KeyAttribute],
    value_of: &mut impl FnMut(&str) -> Option<AttributeValue>,
) -> Result<Vec<KeyValue>, KeyError> {
    let value_of = |attribute: &KeyAttribute| {
        let value =
            value_of(&attribute.name).ok_or_else(|| KeyError::Missing(attribute.name.clone()))?;
        let actual = value.attribute_type().descriptor();
        let key = KeyValue::try_from(value)
            .ok()
            .filter(|key| key.attribute_type() == attribute.attribute_type);
        let key = key.ok_or_else(|| KeyError::TypeMismatch {
            name: attribute.name.clone(),
            expected: attribute.attribute_type.descriptor(),
            actual,
        })?;
        match &key {
            KeyValue::S(text) if text.is_empty() => {
                Err(KeyError::Empty { kind: "string", name: attribute.name.clone() })
            }
            KeyValue::B(bytes) if bytes.is_empty() => {
                Err(KeyError::Empty { kind: "binary", name: attribute.name.clone() })
            }
            _ => Ok(key),
        }
    };
    attributes.iter().map(value_of).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::json::item_from_str;
    use crate::key::KeyAttributeType;

    fn schema() -> IndexKeySchema {
        let attribute = |name: &str| KeyAttribute {
            name: name.to_owned(),
            attribute_type: KeyAttributeType::S,
        };
        IndexKeySchema {
            partition: vec![attribute("a"), attribute("b")],
            sort: vec![attribute("c"), attribute("d")],
        }
    }

    #[test]
    fn values_of_items() {
        let found = |json: &str| schema().values_of_item(&item_from_str(json).unwrap());
        let all = found(r#"{"a":{"S":"1"},"b":{"S":"2"},"c":{"S":"3"},"d":{"S":"4"}}"#).unwrap();
        assert_eq!(all.partition, [KeyValue::S("1".to_owned()), KeyValue::S("2".to_owned())]);
        assert_eq!(all.sort, [KeyValue::S("3".to_owned()), KeyValue::S("4".to_owned())]);
        for json in [
            r#"{"a":{"S":"1"},"b":{"S":"2"},"c":{"S":"3"}}"#,
            r#"{"a":{"S":"1"},"b":{"N":"2"},"c":{"S":"3"},"d":{"S":"4"}}"#,
            r#"{"a":{"S":"1"},"b":{"S":"2"},"c":{"S":""},"d":{"S":"4"}}"#,
        ] {
            assert!(found(json).is_err(), "{json}");
        }
        let item = |bytes: usize| {
            Item::new()
                .with("a", "x".repeat(bytes))
                .with("b", "x".repeat(1024))
                .with("c", "x")
                .with("d", "x")
        };
        assert!(schema().values_of_item(&item(1024)).is_ok());
        assert_eq!(schema().values_of_item(&item(1025)), Err(KeyError::PartitionKeyTooLong));
    }

    /// Generates values of every type, including empty and long values.
    fn any_value() -> impl Strategy<Value = AttributeValue> {
        prop_oneof![
            6 => "[ab]{0,2}".prop_map(AttributeValue::from),
            1 => (500_usize..1100).prop_map(|length| AttributeValue::from("x".repeat(length))),
            2 => any::<i64>().prop_map(|number| AttributeValue::N(number.into())),
            1 => prop::collection::vec(any::<u8>(), 0..3).prop_map(AttributeValue::B),
            1 => Just(AttributeValue::Null),
            1 => Just(AttributeValue::L(vec![AttributeValue::Bool(true)])),
        ]
    }

    fn any_schema() -> impl Strategy<Value = IndexKeySchema> {
        let types = prop_oneof![
            4 => Just(KeyAttributeType::S),
            2 => Just(KeyAttributeType::N),
            1 => Just(KeyAttributeType::B),
        ];
        (prop::collection::vec(types, 4), 1_usize..3, 0_usize..3).prop_map(
            |(types, partition, sort)| {
                let mut attributes =
                    ["a", "b", "c", "d"].iter().zip(types).map(|(name, attribute_type)| {
                        KeyAttribute { name: (*name).to_owned(), attribute_type }
                    });
                let partition = attributes.by_ref().take(partition).collect();
                IndexKeySchema { partition, sort: attributes.take(sort).collect() }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5000))]

        /// Goal: an item's stored form has the same key as the item. An item with an invalid value
        /// is never reported as certainly valid.
        #[test]
        fn stored_items_have_the_same_key(
            members in prop::collection::btree_map("[a-e]", any_value(), 0..6),
            schema in any_schema(),
        ) {
            let item: Item = members.into_iter().collect();
            let encoded = EncodedItem::from(&item);
            let expected = schema.values_of_item(&item);
            let found = schema.values_of_encoded(&encoded).unwrap();
            prop_assert_eq!(found.is_some(), expected.is_ok());
            if let (Some(found), Ok(expected)) = (&found, &expected) {
                prop_assert_eq!(found.token(), expected.token());
                let parts = [(found.partition(), &expected.partition), (found.sort(), &expected.sort)];
                for (found, expected) in parts {
                    prop_assert_eq!(found.len(), expected.len());
                    for (found, expected) in found.iter().zip(expected) {
                        let mut ordered = Vec::new();
                        expected.encode_ordered(&mut ordered);
                        prop_assert_eq!(found.ordered, ordered);
                        prop_assert_eq!(found.attribute_type, expected.attribute_type());
                        prop_assert!(found.ordered.len() >= expected.size());
                    }
                }
            }
            if schema.surely_takes(&encoded).unwrap() {
                let is_missing = matches!(expected, Err(KeyError::Missing(_)));
                prop_assert!(expected.is_ok() || is_missing, "{expected:?}");
            }
        }
    }

    #[test]
    fn a_key_of_one_attribute_has_the_token_of_a_table_key() {
        let one = KeyValue::S("votes".to_owned());
        assert_eq!(Token::of_parts(std::slice::from_ref(&one)), Token::of(&one));
        let two =
            |a: &str, b: &str| Token::of_parts(&[KeyValue::S(a.into()), KeyValue::S(b.into())]);
        assert_ne!(two("ab", "c"), two("a", "bc"));
    }
}
