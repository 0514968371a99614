//! An item before or after a change: its stored bytes and its size. Its attributes are decoded by whoever
//! looks at them, and those alone.

use model::encoding::EncodingError;
use model::{EncodedItem, Item};

use crate::storage::ReadError;

/// What stands in an item's place, or will.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    encoded: EncodedItem,
    size: usize,
}

impl Image {
    /// An item that is stored already.
    pub(crate) fn stored(encoded: EncodedItem) -> Result<Self, ReadError> {
        let size = encoded.size().map_err(damaged)?;
        Ok(Self { encoded, size })
    }

    /// An item that was made just now.
    pub(crate) fn made(item: &Item) -> Self {
        Self { encoded: EncodedItem::from(item), size: item.size() }
    }

    /// Size in bytes, as DynamoDB counts it.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn encoded(&self) -> &EncodedItem {
        &self.encoded
    }

    /// Its attributes with these names, which are in order.
    pub(crate) fn part(&self, names: &[&str]) -> Result<Item, ReadError> {
        if names.is_empty() {
            return Ok(Item::new());
        }
        self.encoded.decode_only(|name| names.binary_search(&name).is_ok()).map_err(damaged)
    }

    /// The item with another part in place of one.
    pub(crate) fn with_part(&self, old: &Item, new: &Item) -> Result<Self, ReadError> {
        Self::stored(self.encoded.with_replaced(old, new).map_err(damaged)?)
    }

    /// All attributes.
    pub(crate) fn item(&self) -> Result<Item, ReadError> {
        self.encoded.decode().map_err(damaged)
    }
}

/// What a stored item, or what an index has of one, says that its size is.
pub(crate) fn stored_size(bytes: &[u8]) -> Result<u64, ReadError> {
    let size = EncodedItem::from_stored(bytes).size().map_err(damaged)?;
    Ok(u64::try_from(size).unwrap_or(u64::MAX))
}

#[expect(clippy::needless_pass_by_value, reason = "errors are mapped by value")]
pub(crate) fn damaged(error: EncodingError) -> ReadError {
    ReadError(error.to_string())
}

/// Equal items have equal bytes.
impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        self.encoded == other.encoded
    }
}
