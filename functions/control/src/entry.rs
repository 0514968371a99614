//! The common parts of all entries in the control table: the keys and, for most entries, a
//! revision.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The name of the table's partition key.
pub const PARTITION_KEY: &str = "migration";
/// The name of the table's sort key.
pub const SORT_KEY: &str = "entry";
/// The name of the attribute that every conditional write compares.
pub const REVISION: &str = "revision";
/// The partition of entries that belong to no single migration.
pub const SHARED: &str = "*";

/// An entry of the control table.
///
/// The attributes of its item are the fields of the type, and the two keys from
/// [`Entry::partition`] and [`Entry::name`].
pub trait Entry: Serialize + DeserializeOwned + Clone + Debug + PartialEq + Send + Sync {
    /// Returns the partition key.
    fn partition(&self) -> String;

    /// Returns the sort key.
    fn name(&self) -> String;
}

/// An entry with optimistic locking: a write replaces it only if it still has the revision that was
/// read.
pub trait Revised: Entry {
    /// Returns the revision; 0 if the entry is not in the table.
    fn revision(&self) -> u64;

    /// Sets the revision.
    fn set_revision(&mut self, revision: u64);

    /// Returns the entry with its revision incremented, ready to be written.
    #[must_use]
    fn next(mut self) -> Self {
        self.set_revision(self.revision().saturating_add(1));
        self
    }
}

/// Implements [`Revised`] for a type with a field `revision`.
macro_rules! revised {
    ($entry:ty) => {
        impl $crate::entry::Revised for $entry {
            fn revision(&self) -> u64 {
                self.revision
            }

            fn set_revision(&mut self, revision: u64) {
                self.revision = revision;
            }
        }
    };
}
pub(crate) use revised;

/// Returns whether a field has its default value. Such a field is not stored in the item.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
