//! Changes of one item, by stamp, and how sets of changes are joined.
//!
//! A change has no number, because its number depends on the changes before it.

use std::collections::BTreeMap;

use model::Item;

use super::history::{VersionEvent, image_bytes};
use crate::effect::Join;
use crate::stamp::Stamp;

/// One change of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The kind of the change.
    pub event: VersionEvent,
    /// The item after the change; `None` if it was deleted.
    pub image: Option<Item>,
    /// The item before the change; `None` if it did not exist.
    pub before: Option<Item>,
    /// The fingerprint of the item before the change. It is present even if that item is too large
    /// for a version.
    pub previous_fingerprint: Option<u128>,
    /// The time of the change in seconds since 1970, if the record has it.
    pub at_seconds: Option<u64>,
    /// Whether TTL deleted the item.
    pub by_ttl: bool,
    /// The id of the stream record.
    pub event_id: String,
}

/// Changes of one item by stamp. A stamp identifies one change, so the join is a union.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes(BTreeMap<Stamp, Change>);

impl<const N: usize> From<[(Stamp, Change); N]> for Changes {
    fn from(changes: [(Stamp, Change); N]) -> Self {
        Self(changes.into())
    }
}

impl FromIterator<(Stamp, Change)> for Changes {
    fn from_iter<I: IntoIterator<Item = (Stamp, Change)>>(changes: I) -> Self {
        Self(changes.into_iter().collect())
    }
}

impl Join for Changes {
    fn join(&mut self, other: Self) {
        for (stamp, change) in other.0 {
            self.0.entry(stamp).or_insert(change);
        }
    }
}

impl Changes {
    /// Returns all changes, earliest first.
    pub fn iter(&self) -> impl Iterator<Item = (&Stamp, &Change)> {
        self.0.iter()
    }

    /// Returns the number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the stamp of the earliest change.
    #[must_use]
    pub fn earliest(&self) -> Option<&Stamp> {
        self.0.keys().next()
    }

    /// Returns the earliest changes: at most `count`, with images of at most `bytes` in total. The
    /// result has at least one change if the set is not empty.
    #[must_use]
    pub fn first(&self, count: usize, bytes: usize) -> Self {
        let mut sum = 0;
        let those = self.iter().take(count).enumerate().take_while(|(position, (_, change))| {
            sum += change.image.as_ref().map_or(0, image_bytes);
            *position == 0 || sum <= bytes
        });
        those.map(|(_, (stamp, change))| (stamp.clone(), change.clone())).collect()
    }

    /// Returns the changes whose stamps satisfy `fits`.
    #[must_use]
    pub fn filtered(&self, fits: impl Fn(&Stamp) -> bool) -> Self {
        let those = self.iter().filter(|(stamp, _)| fits(stamp));
        those.map(|(stamp, change)| (stamp.clone(), change.clone())).collect()
    }

    /// Returns the changes without their old images ([`Change::before`]).
    #[must_use]
    pub fn baseless(self) -> Self {
        let baseless = |(stamp, change)| (stamp, Change { before: None, ..change });
        self.0.into_iter().map(baseless).collect()
    }

    /// Returns these changes, each replaced by the change of `other` with the same stamp if there
    /// is one.
    #[must_use]
    pub fn replaced(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Returns the changes that `other` does not contain.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.filtered(|stamp| !other.0.contains_key(stamp))
    }
}
