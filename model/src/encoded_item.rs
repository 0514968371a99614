//! An item in its stored form. Most of what happens to an item needs its bytes and its size alone:
//! it is logged, copied to the other replicas and put into its place without being decoded.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::attribute_value::{CONTAINER_OVERHEAD, MEMBER_OVERHEAD};
use crate::encoding::{self, DEPTH_MAX, EncodingError, Reader, Tag};
use crate::item::Item;

/// The bytes that `encoding::encode_item` writes. Equal items have equal bytes: attributes and
/// members of sets are in order, and a number has one form.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EncodedItem(Vec<u8>);

impl EncodedItem {
    /// Takes stored bytes as they are; damage is found when they are looked into.
    #[must_use]
    pub fn from_stored(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same, where nobody needs the item any more.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The item.
    ///
    /// # Errors
    /// When the bytes are damaged.
    pub fn decode(&self) -> Result<Item, EncodingError> {
        encoding::decode_item(&self.0)
    }

    /// Size in bytes: names and values, as DynamoDB counts them.
    ///
    /// # Errors
    /// When the bytes are damaged.
    pub fn size(&self) -> Result<usize, EncodingError> {
        let mut reader = Reader::start(&self.0)?;
        let size = members_size(&mut reader, DEPTH_MAX, 0)?;
        reader.end()?;
        Ok(size)
    }
}

impl From<&Item> for EncodedItem {
    fn from(item: &Item) -> Self {
        Self(encoding::encode_item(item))
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

/// Each member takes `overhead` beside its name and value.
fn members_size(
    reader: &mut Reader<'_>,
    depth: usize,
    overhead: usize,
) -> Result<usize, EncodingError> {
    let mut size = 0;
    for _ in 0..reader.count()? {
        size += reader.slice()?.len() + overhead + value_size(reader, depth)?;
    }
    Ok(size)
}

fn value_size(reader: &mut Reader<'_>, depth: usize) -> Result<usize, EncodingError> {
    let depth = depth.checked_sub(1).ok_or_else(|| reader.error("nested too deeply"))?;
    Ok(match reader.tag()? {
        Tag::S | Tag::B => reader.slice()?.len(),
        Tag::N => reader.number()?.size(),
        Tag::False | Tag::True | Tag::Null => 1,
        Tag::M => CONTAINER_OVERHEAD + members_size(reader, depth, MEMBER_OVERHEAD)?,
        Tag::L => {
            let mut size = CONTAINER_OVERHEAD;
            for _ in 0..reader.count()? {
                size += MEMBER_OVERHEAD + value_size(reader, depth)?;
            }
            size
        }
        Tag::Ss | Tag::Bs => {
            let count = reader.count()?;
            (0..count).map(|_| reader.slice().map(<[u8]>::len)).sum::<Result<_, _>>()?
        }
        Tag::Ns => {
            let count = reader.count()?;
            (0..count).map(|_| reader.number().map(|number| number.size())).sum::<Result<_, _>>()?
        }
    })
}

/// In binary formats the same byte string as an [`Item`].
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
                Ok(EncodedItem(bytes.to_vec()))
            }
        }

        deserializer.deserialize_bytes(Bytes)
    }
}
