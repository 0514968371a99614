//! An item in its stored form. Most operations log, replicate and store an item without decoding
//! it, because they need only its bytes and its size.

mod difference;
mod key_value;
mod replacement;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use self::difference::Difference;
pub use self::key_value::{StoredKeyValue, StoredValue};
use crate::attribute_value::AttributeValue;
use crate::encoding::{self, DEPTH_MAX, EncodingError, Reader, Tag};
use crate::item::Item;
use crate::key::{KeyAttribute, KeyError, KeySchema, PrimaryKey};

/// The bytes of `encoding::encode_item`, which contain the item's size. Equal items have equal
/// bytes: attributes and members of sets are sorted, and a number has one form. Clones share the
/// bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct EncodedItem(Arc<[u8]>);

impl EncodedItem {
    /// Wraps stored bytes without validating them. Decoding detects damaged bytes.
    #[must_use]
    pub fn from_stored(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns a handle to the bytes, which are shared with this item, not copied.
    #[must_use]
    pub fn to_shared(&self) -> Arc<[u8]> {
        Arc::clone(&self.0)
    }

    /// Decodes the item.
    ///
    /// # Errors
    /// When the bytes are damaged.
    pub fn decode(&self) -> Result<Item, EncodingError> {
        encoding::decode_item(&self.0)
    }

    /// Returns the size in bytes: names and values, as DynamoDB counts them.
    ///
    /// # Errors
    /// When the bytes are damaged.
    pub fn size(&self) -> Result<usize, EncodingError> {
        Reader::of_item(&self.0).map(|(_, size)| size)
    }

    /// Returns the value of an attribute.
    ///
    /// # Errors
    /// When the bytes are damaged.
    pub fn get(&self, name: &str) -> Result<Option<AttributeValue>, EncodingError> {
        let (mut reader, _) = Reader::of_item(&self.0)?;
        for _ in 0..reader.count()? {
            if reader.slice()? == name.as_bytes() {
                return reader.value(DEPTH_MAX).map(Some);
            }
            skip(&mut reader, DEPTH_MAX)?;
        }
        Ok(None)
    }

    /// Returns the primary key.
    ///
    /// # Errors
    /// When the bytes are damaged. The inner result is the result of [`KeySchema::key_of_item`].
    pub fn primary_key(
        &self,
        schema: &KeySchema,
    ) -> Result<Result<PrimaryKey, KeyError>, EncodingError> {
        let mut values = Vec::with_capacity(2);
        for KeyAttribute { name, .. } in schema.attributes() {
            values.push(self.get(name)?);
        }
        let mut values = values.into_iter();
        Ok(schema.key_of_values(|_| values.next().flatten()))
    }

    /// Decodes only the attributes for whose names `wants` returns true.
    ///
    /// # Errors
    /// When the bytes are damaged.
    pub fn decode_only(&self, wants: impl Fn(&str) -> bool) -> Result<Item, EncodingError> {
        let (mut reader, _) = Reader::of_item(&self.0)?;
        let mut item = Item::new();
        for _ in 0..reader.count()? {
            let name = reader.str()?;
            if wants(name) {
                item.insert(name.to_owned(), reader.value(DEPTH_MAX)?);
            } else {
                skip(&mut reader, DEPTH_MAX)?;
            }
        }
        Ok(item)
    }
}

impl From<&Item> for EncodedItem {
    fn from(item: &Item) -> Self {
        Self(encoding::encode_item(item).into())
    }
}

impl fmt::Debug for EncodedItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.decode() {
            Ok(item) => item.fmt(f),
            Err(error) => error.fmt(f),
        }
    }
}

/// Skips a value.
fn skip(reader: &mut Reader<'_>, depth: usize) -> Result<(), EncodingError> {
    let depth = depth.checked_sub(1).ok_or_else(|| reader.error("nested too deeply"))?;
    let tag = reader.tag()?;
    let count = match tag {
        Tag::M | Tag::L | Tag::Ss | Tag::Bs | Tag::Ns => reader.count()?,
        _ => 1,
    };
    for _ in 0..count {
        match tag {
            Tag::False | Tag::True | Tag::Null => {}
            Tag::S | Tag::B | Tag::Ss | Tag::Bs => drop(reader.slice()?),
            Tag::N | Tag::Ns => drop(reader.number_bytes()?),
            Tag::M => {
                reader.slice()?;
                skip(reader, depth)?;
            }
            Tag::L => skip(reader, depth)?,
        }
    }
    Ok(())
}

/// In binary formats, serialises to the same byte string as an [`Item`].
impl Serialize for EncodedItem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for EncodedItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;

        impl de::Visitor<'_> for Bytes {
            type Value = EncodedItem;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an encoded item")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<EncodedItem, E> {
                Ok(EncodedItem(bytes.into()))
            }
        }

        deserializer.deserialize_bytes(Bytes)
    }
}
