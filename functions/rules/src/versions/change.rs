//! Changes: what is said about one item's history, by stamp, and how such statements join.
//!
//! A change has no number; which one it is follows from the changes before it.

use std::collections::BTreeMap;

use model::Item;

use super::history::{VersionEvent, image_bytes};
use crate::effect::Join;
use crate::stamp::Stamp;

/// One change of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What happened.
    pub event: VersionEvent,
    /// The item after it; `None` when it was deleted.
    pub image: Option<Item>,
    /// The item before it; `None` when it was not there.
    pub before: Option<Item>,
    /// The fingerprint of what it was before, whether or not a version can hold that.
    pub follows: Option<u128>,
    /// When, in epoch seconds, if the record says so.
    pub at_seconds: Option<u64>,
    /// Whether TTL deleted it.
    pub by_ttl: bool,
    /// The stream record's id.
    pub event_id: String,
}

/// Changes of one item by stamp. A stamp names one change, so the join is a union.
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
    /// All changes, earliest first.
    pub fn iter(&self) -> impl Iterator<Item = (&Stamp, &Change)> {
        self.0.iter()
    }

    /// Number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The stamp of the earliest change.
    #[must_use]
    pub fn earliest(&self) -> Option<&Stamp> {
        self.0.keys().next()
    }

    /// The earliest changes: at most `count`, and with `bytes` of images at most, but one always.
    #[must_use]
    pub fn first(&self, count: usize, bytes: usize) -> Self {
        let mut sum = 0;
        let those = self.iter().take(count).enumerate().take_while(|(position, (_, change))| {
            sum += change.image.as_ref().map_or(0, image_bytes);
            *position == 0 || sum <= bytes
        });
        those.map(|(_, (stamp, change))| (stamp.clone(), change.clone())).collect()
    }

    /// The changes whose stamps fit.
    #[must_use]
    pub fn filtered(&self, fits: impl Fn(&Stamp) -> bool) -> Self {
        let those = self.iter().filter(|(stamp, _)| fits(stamp));
        those.map(|(stamp, change)| (stamp.clone(), change.clone())).collect()
    }

    /// The same, and none says what the item was before.
    #[must_use]
    pub fn baseless(self) -> Self {
        let baseless = |(stamp, change)| (stamp, Change { before: None, ..change });
        self.0.into_iter().map(baseless).collect()
    }

    /// The changes of `other` stand for those with the same stamps.
    #[must_use]
    pub fn replaced(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Without the changes that `other` has as well.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.filtered(|stamp| !other.0.contains_key(stamp))
    }
}
