//! An item before or after a change: its stored bytes and its size, and its attributes when a rule
//! asks for them. Most tables have no rule that does.

use std::cell::OnceCell;

use model::encoding::EncodingError;
use model::{EncodedItem, Item};

use crate::storage::ReadError;

/// What stands in an item's place, or will.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    encoded: EncodedItem,
    size: usize,
    item: OnceCell<Item>,
}

impl Image {
    /// An item that is stored already.
    pub(crate) fn stored(encoded: EncodedItem) -> Result<Self, ReadError> {
        let size = encoded.size().map_err(damaged)?;
        Ok(Self { encoded, size, item: OnceCell::new() })
    }

    /// An item that was made just now.
    pub(crate) fn made(item: Item) -> Self {
        let (encoded, size) = (EncodedItem::from(&item), item.size());
        Self { encoded, size, item: OnceCell::from(item) }
    }

    /// Size in bytes, as DynamoDB counts it.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn encoded(&self) -> &EncodedItem {
        &self.encoded
    }

    /// The attributes.
    pub(crate) fn item(&self) -> Result<&Item, ReadError> {
        if let Some(item) = self.item.get() {
            return Ok(item);
        }
        let item = self.encoded.decode().map_err(damaged)?;
        Ok(self.item.get_or_init(|| item))
    }

    pub(crate) fn into_item(self) -> Result<Item, ReadError> {
        match self.item.into_inner() {
            Some(item) => Ok(item),
            None => self.encoded.decode().map_err(damaged),
        }
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

/// The attributes of an image that may not be there.
pub(crate) fn item_of(image: Option<&Image>) -> Result<Option<&Item>, ReadError> {
    image.map(Image::item).transpose()
}
