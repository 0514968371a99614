//! Keys: the key schema of a table, the primary key of an item, and its token.
//!
//! Keys are validated: a [`PrimaryKey`] has the types of its schema and the sizes that DynamoDB
//! accepts. `docs/formats/keys.md` shows the order-preserving encoding.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::attribute_value::{AttributeType, AttributeValue};
use crate::item::Item;
use crate::limits::{PARTITION_KEY_BYTES_MAX, SORT_KEY_BYTES_MAX};
use crate::number::Number;

/// The types that a key attribute can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeyAttributeType {
    /// String.
    S,
    /// Number.
    N,
    /// Binary.
    B,
}

impl KeyAttributeType {
    /// Returns the corresponding attribute type.
    #[must_use]
    pub fn attribute_type(self) -> AttributeType {
        match self {
            Self::S => AttributeType::S,
            Self::N => AttributeType::N,
            Self::B => AttributeType::B,
        }
    }

    /// Returns the descriptor: `S`, `N` or `B`.
    #[must_use]
    pub fn descriptor(self) -> &'static str {
        self.attribute_type().descriptor()
    }

    /// Returns the type with the descriptor `S`, `N` or `B`.
    #[must_use]
    pub fn from_descriptor(descriptor: &str) -> Option<Self> {
        match descriptor {
            "S" => Some(Self::S),
            "N" => Some(Self::N),
            "B" => Some(Self::B),
            _ => None,
        }
    }
}

/// The name and type of a key attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyAttribute {
    /// The attribute's name in the item.
    pub name: String,
    /// The attribute's type.
    pub attribute_type: KeyAttributeType,
}

/// The primary key attributes of a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeySchema {
    /// The partition key.
    pub partition: KeyAttribute,
    /// The sort key, if the table has one.
    pub sort: Option<KeyAttribute>,
}

/// The value of one key attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeyValue {
    /// String.
    S(String),
    /// Number.
    N(#[serde(with = "number_text")] Number),
    /// Binary.
    B(Vec<u8>),
}

/// The key of one item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PrimaryKey {
    /// The value of the partition key.
    pub partition: KeyValue,
    /// The value of the sort key, if the table has one.
    pub sort: Option<KeyValue>,
}

/// A position on the hash ring: the 64-bit hash of a partition key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Token(pub u64);

/// The reason why attributes do not form a valid key. The messages are DynamoDB's own.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// An item lacks a key attribute.
    #[error("One or more parameter values were invalid: Missing the key {0} in the item")]
    Missing(String),
    /// An item's key attribute has a type other than the schema's.
    #[error(
        "One or more parameter values were invalid: Type mismatch for key {name} expected: {expected} actual: {actual}"
    )]
    TypeMismatch {
        /// The key attribute.
        name: String,
        /// The descriptor of the schema's type.
        expected: &'static str,
        /// The descriptor of the value's type.
        actual: &'static str,
    },
    /// A `Key` parameter has attributes or types that differ from the schema's.
    #[error("The provided key element does not match the schema")]
    SchemaMismatch,
    /// A `Key` parameter has more or fewer attributes than the schema.
    #[error("The number of conditions on the keys is invalid")]
    WrongCount,
    /// A key value is empty.
    #[error(
        "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty {kind} value. Key: {name}"
    )]
    Empty {
        /// `string` or `binary`.
        kind: &'static str,
        /// The key attribute.
        name: String,
    },
    /// A partition key is too long.
    #[error(
        "One or more parameter values were invalid: Size of hashkey has exceeded the maximum size limit of2048 bytes"
    )]
    PartitionKeyTooLong,
    /// A sort key is too long.
    #[error(
        "One or more parameter values were invalid: Aggregated size of all range keys has exceeded the size limit of 1024 bytes"
    )]
    SortKeyTooLong,
}

impl KeyValue {
    /// Converts an attribute value to a key value, if its type can be a key.
    #[must_use]
    pub fn from_attribute_value(value: &AttributeValue) -> Option<Self> {
        match value {
            AttributeValue::S(text) => Some(Self::S(text.clone())),
            AttributeValue::N(number) => Some(Self::N(*number)),
            AttributeValue::B(bytes) => Some(Self::B(bytes.clone())),
            _ => None,
        }
    }

    /// Returns the size in bytes, as DynamoDB counts it.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::S(text) => text.len(),
            Self::N(number) => number.size(),
            Self::B(bytes) => bytes.len(),
        }
    }

    /// Converts the value to an attribute value.
    #[must_use]
    pub fn to_attribute_value(&self) -> AttributeValue {
        match self {
            Self::S(text) => AttributeValue::S(text.clone()),
            Self::N(number) => AttributeValue::N(*number),
            Self::B(bytes) => AttributeValue::B(bytes.clone()),
        }
    }

    /// Returns the type of this value.
    #[must_use]
    pub fn attribute_type(&self) -> KeyAttributeType {
        match self {
            Self::S(_) => KeyAttributeType::S,
            Self::N(_) => KeyAttributeType::N,
            Self::B(_) => KeyAttributeType::B,
        }
    }

    /// Appends the order-preserving encoding: the unsigned order of the bytes is the order of
    /// values of one type. Strings and binaries are written without a terminator, so the caller
    /// must write them last, or write their length before them.
    pub fn encode_ordered(&self, out: &mut Vec<u8>) {
        match self {
            Self::S(text) => out.extend_from_slice(text.as_bytes()),
            Self::N(number) => number.encode_ordered(out),
            Self::B(bytes) => out.extend_from_slice(bytes),
        }
    }

    /// Returns the maximum number of bytes that [`KeyValue::encode_ordered`] appends.
    #[must_use]
    pub fn ordered_bytes_max(&self) -> usize {
        match self {
            Self::S(text) => text.len(),
            Self::B(bytes) => bytes.len(),
            Self::N(_) => Number::ORDERED_BYTES_MAX,
        }
    }

    /// Decodes a value from its [`KeyValue::encode_ordered`] encoding, which must fill `bytes`
    /// completely.
    #[must_use]
    pub fn decode_ordered(attribute_type: KeyAttributeType, bytes: &[u8]) -> Option<Self> {
        match attribute_type {
            KeyAttributeType::S => String::from_utf8(bytes.to_vec()).ok().map(Self::S),
            KeyAttributeType::N => match Number::decode_ordered(bytes) {
                Some((number, length)) if length == bytes.len() => Some(Self::N(number)),
                _ => None,
            },
            KeyAttributeType::B => Some(Self::B(bytes.to_vec())),
        }
    }

    fn check(&self, name: &str, bytes_max: usize, too_long: KeyError) -> Result<(), KeyError> {
        let kind = match self {
            Self::S(text) if text.is_empty() => "string",
            Self::B(bytes) if bytes.is_empty() => "binary",
            _ if self.size() > bytes_max => return Err(too_long),
            _ => return Ok(()),
        };
        Err(KeyError::Empty { kind, name: name.to_owned() })
    }
}

impl Ord for KeyValue {
    /// Compares in the order of a sort key. Values of different types never occur in one table;
    /// they are ordered by type only to make the order total.
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::S(left), Self::S(right)) => left.as_bytes().cmp(right.as_bytes()),
            (Self::N(left), Self::N(right)) => left.cmp(right),
            (Self::B(left), Self::B(right)) => left.cmp(right),
            _ => (self.attribute_type() as u8).cmp(&(other.attribute_type() as u8)),
        }
    }
}

/// Converts a value, or returns it unchanged if its type cannot be a key.
impl TryFrom<AttributeValue> for KeyValue {
    type Error = AttributeValue;

    fn try_from(value: AttributeValue) -> Result<Self, AttributeValue> {
        match value {
            AttributeValue::S(text) => Ok(Self::S(text)),
            AttributeValue::N(number) => Ok(Self::N(number)),
            AttributeValue::B(bytes) => Ok(Self::B(bytes)),
            other => Err(other),
        }
    }
}

impl PartialOrd for KeyValue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl KeySchema {
    /// Returns the key attributes: the partition key, then the sort key.
    pub fn attributes(&self) -> impl Iterator<Item = &KeyAttribute> {
        std::iter::once(&self.partition).chain(&self.sort)
    }

    /// Returns whether `name` is a key attribute.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.attributes().any(|attribute| attribute.name == name)
    }

    /// Returns the primary key of a complete item, with the checks of `PutItem`.
    ///
    /// # Errors
    /// [`KeyError::Missing`], [`KeyError::TypeMismatch`], or an empty or too long value.
    pub fn key_of_item(&self, item: &Item) -> Result<PrimaryKey, KeyError> {
        self.key_of_values(|name| item.get(name).cloned())
    }

    /// Builds the key from the results of `value_of`. Calls it first for the partition key, then
    /// for the sort key.
    pub(crate) fn key_of_values(
        &self,
        mut value_of: impl FnMut(&str) -> Option<AttributeValue>,
    ) -> Result<PrimaryKey, KeyError> {
        let mut key_value = |attribute: &KeyAttribute| {
            let value = value_of(&attribute.name)
                .ok_or_else(|| KeyError::Missing(attribute.name.clone()))?;
            let actual = value.attribute_type().descriptor();
            typed(attribute, value).ok_or_else(|| KeyError::TypeMismatch {
                name: attribute.name.clone(),
                expected: attribute.attribute_type.descriptor(),
                actual,
            })
        };
        let partition = key_value(&self.partition)?;
        let sort = self.sort.as_ref().map(key_value).transpose()?;
        self.checked(PrimaryKey { partition, sort })
    }

    /// Returns the primary key of a `Key` parameter, which must have exactly the key attributes.
    ///
    /// # Errors
    /// [`KeyError::SchemaMismatch`], or an empty or too long value.
    pub fn key_of_parameter(&self, key: &Item) -> Result<PrimaryKey, KeyError> {
        if key.len() != self.attributes().count() {
            return Err(KeyError::SchemaMismatch);
        }
        let value_of = |attribute: &KeyAttribute| {
            key.get(&attribute.name)
                .and_then(|value| typed(attribute, value.clone()))
                .ok_or(KeyError::SchemaMismatch)
        };
        let partition = value_of(&self.partition)?;
        let sort = self.sort.as_ref().map(value_of).transpose()?;
        self.checked(PrimaryKey { partition, sort })
    }

    fn checked(&self, key: PrimaryKey) -> Result<PrimaryKey, KeyError> {
        let too_long = KeyError::PartitionKeyTooLong;
        key.partition.check(&self.partition.name, PARTITION_KEY_BYTES_MAX, too_long)?;
        if let (Some(attribute), Some(value)) = (&self.sort, &key.sort) {
            value.check(&attribute.name, SORT_KEY_BYTES_MAX, KeyError::SortKeyTooLong)?;
        }
        Ok(key)
    }
}

fn typed(attribute: &KeyAttribute, value: AttributeValue) -> Option<KeyValue> {
    KeyValue::try_from(value).ok().filter(|key| key.attribute_type() == attribute.attribute_type)
}

impl PrimaryKey {
    /// Returns the key as attributes, named as in the schema.
    #[must_use]
    pub fn to_item(&self, schema: &KeySchema) -> Item {
        let mut item = Item::new();
        item.insert(schema.partition.name.clone(), self.partition.to_attribute_value());
        if let (Some(attribute), Some(value)) = (&schema.sort, &self.sort) {
            item.insert(attribute.name.clone(), value.to_attribute_value());
        }
        item
    }

    /// Returns the token of the item. Items with the same partition key have the same token.
    #[must_use]
    pub fn token(&self) -> Token {
        Token::of(&self.partition)
    }
}

impl Token {
    /// Returns the token of a partition key value: XXH3 (64 bits, no seed) of its ordered bytes.
    /// This function is part of the storage format and never changes.
    #[must_use]
    pub fn of(partition: &KeyValue) -> Self {
        // The ordered bytes of strings and binaries are the values themselves.
        match partition {
            KeyValue::S(text) => Self::of_ordered(text.as_bytes()),
            KeyValue::B(bytes) => Self::of_ordered(bytes),
            KeyValue::N(_) => {
                let mut bytes = Vec::with_capacity(64);
                partition.encode_ordered(&mut bytes);
                Self::of_ordered(&bytes)
            }
        }
    }

    /// Returns the token of a partition key value from its ordered bytes.
    #[must_use]
    pub fn of_ordered(bytes: &[u8]) -> Self {
        Self(xxhash_rust::xxh3::xxh3_64(bytes))
    }

    /// Returns the token of a partition key of several values. A single value has the same token as
    /// from [`Token::of`]. The token of several values is the same hash of all values, each
    /// prefixed by its length in four bytes. This function is also part of the storage format and
    /// never changes.
    #[must_use]
    pub fn of_parts(parts: &[KeyValue]) -> Self {
        let ordered = |part: &KeyValue| {
            let mut bytes = Vec::with_capacity(64);
            part.encode_ordered(&mut bytes);
            bytes
        };
        let parts: Vec<_> = parts.iter().map(ordered).collect();
        Self::of_ordered_parts(parts.iter().map(Vec::as_slice))
    }

    /// Returns the token of several values from their ordered bytes.
    #[must_use]
    pub fn of_ordered_parts<'p>(parts: impl ExactSizeIterator<Item = &'p [u8]>) -> Self {
        let is_only_one = parts.len() == 1;
        let mut bytes = Vec::new();
        for part in parts {
            if is_only_one {
                return Self::of_ordered(part);
            }
            // A key value has at most 2,048 bytes, so its length always fits into 32 bits.
            let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(part);
        }
        Self::of_ordered(&bytes)
    }
}

/// Serialises numbers in logged keys as the bytes of [`Number::encode_ordered`].
mod number_text {
    use serde::{Deserializer, Serializer};

    use super::Number;
    use crate::encoding::{Decoding, EncodingError};

    pub(super) fn serialize<S: Serializer>(
        number: &Number,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::with_capacity(24);
        number.encode_ordered(&mut bytes);
        serializer.serialize_bytes(&bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Number, D::Error> {
        deserializer.deserialize_bytes(Decoding(|bytes| {
            let damaged = EncodingError { offset: 0, problem: "invalid number in a key" };
            Number::decode_ordered(bytes).map(|(number, _)| number).ok_or(damaged)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::item_from_str;

    fn schema() -> KeySchema {
        let attribute =
            |name: &str, attribute_type| KeyAttribute { name: name.to_owned(), attribute_type };
        KeySchema {
            partition: attribute("pk", KeyAttributeType::S),
            sort: Some(attribute("sk", KeyAttributeType::N)),
        }
    }

    #[test]
    fn keys_of_items_and_parameters() {
        let full = item_from_str(r#"{"pk":{"S":"a"},"sk":{"N":"1"},"x":{"BOOL":true}}"#).unwrap();
        let key = schema().key_of_item(&full).unwrap();
        let parameter = key.to_item(&schema());
        assert_eq!(schema().key_of_parameter(&parameter), Ok(key));
        assert_eq!(schema().key_of_parameter(&full), Err(KeyError::SchemaMismatch));
        let error = |json: &str| {
            schema().key_of_item(&item_from_str(json).unwrap()).unwrap_err().to_string()
        };
        for (json, text) in [
            (
                r#"{"pk":{"S":"a"}}"#,
                "One or more parameter values were invalid: Missing the key sk in the item",
            ),
            (
                r#"{"pk":{"N":"1"},"sk":{"N":"1"}}"#,
                "One or more parameter values were invalid: Type mismatch for key pk expected: S actual: N",
            ),
            (
                r#"{"pk":{"S":""},"sk":{"N":"1"}}"#,
                "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty string value. Key: pk",
            ),
        ] {
            assert_eq!(error(json), text);
        }
        let long = Item::new().with("pk", "x".repeat(2049)).with("sk", Number::ZERO);
        assert_eq!(schema().key_of_item(&long), Err(KeyError::PartitionKeyTooLong));
        let fits = Item::new().with("pk", "x".repeat(2048)).with("sk", Number::ZERO);
        assert!(schema().key_of_item(&fits).is_ok());
    }

    #[test]
    fn tokens_never_change() {
        // The published XXH3 value of "a", and a value that this implementation computed.
        assert_eq!(Token::of(&KeyValue::S("a".to_owned())), Token(0xe6c6_32b6_1e96_4e1f));
        assert_eq!(Token::of(&KeyValue::S("votes".to_owned())), Token(2_444_479_923_041_218_853));
    }
}
