//! The versions of a row that views may still see.

use std::mem;

use partition::Value;

/// The memory of an older version of a row in bytes, without its value.
const VERSION_BYTES: u64 = 48;

/// A value, or `None` for a deletion, and the number of the batch that wrote it.
#[cfg_attr(test, derive(Default))]
pub(super) struct Version {
    pub(super) number: u64,
    pub(super) value: Option<Value>,
}

impl Version {
    pub(super) fn bytes(&self) -> u64 {
        let length = self.value.as_ref().map_or(0, |value| value.len());
        u64::try_from(length).unwrap_or(u64::MAX)
    }
}

/// The versions of a key.
#[cfg_attr(test, derive(Default))]
pub(super) struct Versions {
    pub(super) newest: Version,
    /// Older versions that views may still see, the newest last.
    pub(super) older: Box<[Version]>,
}

impl Versions {
    pub(super) fn new(newest: Version) -> Self {
        Self { newest, older: Box::default() }
    }

    #[cfg(test)]
    pub(super) fn of_something() -> Self {
        Self::new(Version { number: 1, value: Some(Value::default()) })
    }

    pub(super) fn number(&self) -> u64 {
        self.newest.number
    }

    /// Returns whether the key is deleted in every view.
    pub(super) fn is_nothing(&self) -> bool {
        self.newest.value.is_none() && self.older.is_empty()
    }

    /// Returns the newest value.
    pub(super) fn value(&self) -> Option<&[u8]> {
        self.newest.value.as_deref()
    }

    /// Returns the version that a view of the batches below `below` sees.
    pub(super) fn version(&self, below: u64) -> Option<&Version> {
        let mut versions = std::iter::once(&self.newest).chain(self.older.iter().rev());
        versions.find(|version| version.number < below)
    }

    /// Adds the newest version, and drops the versions that no view sees. Returns the numbers of
    /// added and removed bytes.
    pub(super) fn change(&mut self, version: Version, open_views: &OpenViews) -> (u64, u64) {
        let (mut came, mut went) = (version.bytes(), 0);
        let before = mem::replace(&mut self.newest, version);
        let is_seen = open_views.sees(before.number);
        if self.older.is_empty() && !is_seen {
            return (came, before.bytes());
        }
        let mut older = mem::take(&mut self.older).into_vec();
        if is_seen {
            came += VERSION_BYTES;
            older.push(before);
        } else {
            went += before.bytes();
        }
        let bytes = |version: Version| version.bytes() + VERSION_BYTES;
        let end = older.partition_point(|version| open_views.sees(version.number));
        went += older.drain(end..).map(bytes).sum::<u64>();
        // The oldest view sees the newest version below it, and no earlier version.
        let below = older.partition_point(|version| version.number < open_views.oldest);
        went += older.drain(..below.saturating_sub(1)).map(bytes).sum::<u64>();
        self.older = older.into_boxed_slice();
        (came, went)
    }
}

/// The numbers of the oldest and of the newest open view.
pub(super) struct OpenViews {
    pub(super) oldest: u64,
    pub(super) newest: u64,
}

impl OpenViews {
    /// Returns whether an open view may see the change of the batch with this number although a
    /// later batch has replaced it.
    pub(super) fn sees(&self, number: u64) -> bool {
        number < self.newest
    }
}
