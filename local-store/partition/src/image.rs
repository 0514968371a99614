//! Item images, and the change from one image to another.
//!
//! An image is an item's stored bytes and its size. Readers decode only the attributes that they
//! need.

use model::encoding::EncodingError;
use model::{EncodedItem, Item, PrimaryKey};

use crate::storage::ReadError;

/// An item image before or after a change.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    encoded: EncodedItem,
    size: usize,
}

impl Image {
    /// Creates the image of a stored item.
    pub(crate) fn stored(encoded: EncodedItem) -> Result<Self, ReadError> {
        let size = encoded.size().map_err(damaged)?;
        Ok(Self { encoded, size })
    }

    /// Creates the image of a new item.
    pub(crate) fn made(item: &Item) -> Self {
        Self { encoded: EncodedItem::from(item), size: item.size() }
    }

    /// Returns the size in bytes, as DynamoDB counts it.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn encoded(&self) -> &EncodedItem {
        &self.encoded
    }

    /// Decodes the attributes with the given names, which are sorted.
    pub(crate) fn part(&self, names: &[&str]) -> Result<Item, ReadError> {
        if names.is_empty() {
            return Ok(Item::new());
        }
        self.encoded.decode_only(|name| names.binary_search(&name).is_ok()).map_err(damaged)
    }

    /// Returns the image with the attributes of `old` replaced by the attributes of `new`.
    pub(crate) fn with_part(&self, old: &Item, new: &Item) -> Result<Self, ReadError> {
        Self::stored(self.encoded.with_replaced(old, new).map_err(damaged)?)
    }

    /// Decodes all attributes.
    pub(crate) fn item(&self) -> Result<Item, ReadError> {
        self.encoded.decode().map_err(damaged)
    }
}

/// Returns the size in bytes that is stored with an item or index entry.
pub(crate) fn stored_size(bytes: &[u8]) -> Result<u64, ReadError> {
    let size = EncodedItem::from_stored(bytes).size().map_err(damaged)?;
    Ok(u64::try_from(size).unwrap_or(u64::MAX))
}

/// A change of an item. The changes of index entries and item collection, and the stream record,
/// are derived from it.
pub(crate) struct ItemChange<'a> {
    pub(crate) key: &'a PrimaryKey,
    pub(crate) old: Option<&'a Image>,
    pub(crate) new: Option<&'a Image>,
    pub(crate) time_to_live: bool,
}

#[expect(clippy::needless_pass_by_value, reason = "errors are mapped by value")]
pub(crate) fn damaged(error: EncodingError) -> ReadError {
    ReadError(error.to_string())
}

/// Two images are equal if their stored bytes are equal, because equal items have equal bytes.
impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        self.encoded == other.encoded
    }
}
