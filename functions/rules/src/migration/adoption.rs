//! Adoption of unmarked source items after the cut-over, in the reverse direction. An unmarked item
//! is unchanged since the cut-over. Its origins are the target items that the forward direction
//! derived from it.
//!
//! Without adoption, the first origin that changes would count as the only origin of the item. An
//! item with several origins would then be overwritten or deleted, and no collision would be
//! recorded. The caller reads the origins.

use model::Item;

use super::{Migration, Register, Registers, Target};
use crate::effect::Join as _;
use crate::stamp::Stamp;

impl Migration {
    /// Returns the origins of an unmarked item: the target items derived from it, if this reverse
    /// direction restores the item from them. `forward` is the forward direction. The result is
    /// empty if the item cannot be transformed.
    #[must_use]
    pub fn origins(&self, forward: &Self, target: &Target, item: &Item) -> Vec<Target> {
        let became = forward.outputs(&target.table, item).unwrap_or_default();
        let is_origin = |(origin, made): &(Target, Item)| {
            self.outputs(&origin.table, made).is_ok_and(|back| back.contains_key(target))
        };
        became.into_iter().filter(is_origin).map(|(origin, _)| origin).collect()
    }

    /// Returns the initial register of an origin for an unmarked item. `stands` is the current item
    /// of the origin. If the origin has changed since the cut-over, its stream record replaces this
    /// register.
    #[must_use]
    pub fn adopted(&self, target: &Target, origin: &Target, stands: &Item) -> Registers {
        let source = self.source_item(&origin.table, stands);
        let item =
            self.outputs(&origin.table, stands).ok().and_then(|mut back| back.remove(target));
        match (source, item) {
            (Ok(source), Some(item)) => {
                let register = Register { stamp: Stamp::lowest(), item: Some(item) };
                Registers::of(source.to_string(), register)
            }
            _ => Registers::default(),
        }
    }

    /// Returns the string that identifies an origin in marks.
    #[must_use]
    pub fn origin_text(&self, origin: &Target) -> Option<String> {
        let key = origin.key.to_item(self.schema(&origin.table)?);
        Some(self.source_item(&origin.table, &key).ok()?.to_string())
    }
}

/// Joins the registers of all origins of one item.
#[must_use]
pub fn said_by_all(origins: impl IntoIterator<Item = Registers>) -> Registers {
    origins.into_iter().fold(Registers::default(), |mut all, one| {
        all.join(one);
        all
    })
}
