//! Possible key values in an item's stored form. The values are not decoded, because their stored
//! bytes are already in the order-preserving encoding.

use std::cmp::Ordering;

use super::{EncodedItem, skip};
use crate::encoding::{DEPTH_MAX, EncodingError, Reader, Tag};
use crate::key::KeyAttributeType;

/// A value of a possible key type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredKeyValue<'a> {
    /// The type of the value.
    pub attribute_type: KeyAttributeType,
    /// The value in the encoding of [`crate::KeyValue::encode_ordered`]. Its length is at least the
    /// size that DynamoDB counts.
    pub ordered: &'a [u8],
}

impl StoredKeyValue<'_> {
    /// A placeholder for unused positions of an array of key values.
    pub(crate) const NOTHING: Self = Self { attribute_type: KeyAttributeType::S, ordered: &[] };

    /// Returns whether the value is an empty string or binary, which cannot be a key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ordered.is_empty()
    }
}

/// The value of an attribute in an item's stored form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredValue<'a> {
    /// The item has no such attribute.
    Missing,
    /// A value of a possible key type.
    Key(StoredKeyValue<'a>),
    /// A value of another type.
    Other,
}

impl EncodedItem {
    /// Returns the value of an attribute.
    ///
    /// # Errors
    /// When the bytes are damaged.
    pub fn stored_value(&self, name: &str) -> Result<StoredValue<'_>, EncodingError> {
        let (mut reader, _) = Reader::of_item(&self.0)?;
        for _ in 0..reader.count()? {
            // Attributes are in the order of their names, so the search can stop at a greater name.
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
