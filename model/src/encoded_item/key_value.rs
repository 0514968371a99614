//! Values that may be of keys, in an item's stored form: they are not decoded, as their stored bytes
//! are their ordered bytes.

use std::cmp::Ordering;

use super::{EncodedItem, skip};
use crate::encoding::{DEPTH_MAX, EncodingError, Reader, Tag};
use crate::key::KeyAttributeType;

/// A value of a type that keys may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredKeyValue<'a> {
    /// Its type.
    pub attribute_type: KeyAttributeType,
    /// Its ordered bytes, as [`crate::KeyValue::encode_ordered`] writes them: at least as many as
    /// DynamoDB counts.
    pub ordered: &'a [u8],
}

impl StoredKeyValue<'_> {
    /// What stands where no value is.
    pub(crate) const NOTHING: Self = Self { attribute_type: KeyAttributeType::S, ordered: &[] };

    /// Whether it is a string or a binary without content, which no key may be.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ordered.is_empty()
    }
}

/// What an item has under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredValue<'a> {
    /// Nothing.
    Missing,
    /// A value of a type that keys may have.
    Key(StoredKeyValue<'a>),
    /// A value of another type.
    Other,
}

impl EncodedItem {
    /// What the item has under a name.
    ///
    /// # Errors
    /// When the bytes are damaged.
    pub fn stored_value(&self, name: &str) -> Result<StoredValue<'_>, EncodingError> {
        let (mut reader, _) = Reader::of_item(&self.0)?;
        for _ in 0..reader.count()? {
            // Attributes stand in the order of their names.
            match reader.slice()?.cmp(name.as_bytes()) {
                Ordering::Less => skip(&mut reader, DEPTH_MAX)?,
                Ordering::Equal => return stored_value(&mut reader),
                Ordering::Greater => break,
            }
        }
        Ok(StoredValue::Missing)
    }
}

fn stored_value<'a>(reader: &mut Reader<'a>) -> Result<StoredValue<'a>, EncodingError> {
    let (attribute_type, ordered) = match reader.tag()? {
        Tag::S => (KeyAttributeType::S, reader.slice()?),
        Tag::N => (KeyAttributeType::N, reader.number_bytes()?),
        Tag::B => (KeyAttributeType::B, reader.slice()?),
        _ => return Ok(StoredValue::Other),
    };
    Ok(StoredValue::Key(StoredKeyValue { attribute_type, ordered }))
}
