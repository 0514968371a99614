//! Items of the sources on the way back that have no mark: they stand as they were before the cut-over,
//! and what they became says that they are there, as long as nobody has changed it.
//!
//! Without that, whoever speaks first of such an item would be taken for its only origin, and one that
//! stood beside it unchanged would be overwritten, or deleted with it, without a collision. Who reads
//! the origins is not known here.

use model::Item;

use super::{Migration, Register, Registers, Target};
use crate::effect::Join as _;
use crate::stamp::Stamp;

impl Migration {
    /// The items that an item without a mark became and that this way back makes it of again; `forward`
    /// is the way there. None of an item that could not be transformed.
    #[must_use]
    pub fn origins(&self, forward: &Self, target: &Target, item: &Item) -> Vec<Target> {
        let became = forward.outputs(&target.table, item).unwrap_or_default();
        let is_origin = |(origin, made): &(Target, Item)| {
            self.outputs(&origin.table, made).is_ok_and(|back| back.contains_key(target))
        };
        became.into_iter().filter(is_origin).map(|(origin, _)| origin).collect()
    }

    /// What an origin says of an item without a mark before all else. `stands` is the origin as it is
    /// now; if it was changed since the cut-over, its record says more.
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

    /// The text by which marks name an origin.
    #[must_use]
    pub fn origin_text(&self, origin: &Target) -> Option<String> {
        let key = origin.key.to_item(self.schema(&origin.table)?);
        Some(self.source_item(&origin.table, &key).ok()?.to_string())
    }
}

/// What all origins say together.
#[must_use]
pub fn said_by_all(origins: impl IntoIterator<Item = Registers>) -> Registers {
    origins.into_iter().fold(Registers::default(), |mut all, one| {
        all.join(one);
        all
    })
}
