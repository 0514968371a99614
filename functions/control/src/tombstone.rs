//! The location of a tombstone, stored so that a later clean-up finds the tombstone.
//!
//! Item name`/tombstones/<00 to 15>` / `TOMBSTONE#<table>#<hash of the key>`: `table`, `key`, and
//! `at`, the stamp of the tombstone. The entry is written before its tombstone and removed with it.
//! An entry without a tombstone has no effect.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::entry::Entry;

/// The number of partitions over which these entries of a migration are spread, because DynamoDB
/// accepts 1,000 writes per second on one partition. Source: DynamoDB developer guide, "Burst and
/// adaptive capacity".
const PARTITIONS: u32 = 16;

/// The location of one tombstone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// The partition key of the entry, one of [`tombstone_partitions`].
    pub migration: String,
    /// The table of the tombstone.
    pub table: String,
    /// The key of the tombstone as DynamoDB JSON.
    pub key: String,
    /// The stamp of the tombstone.
    pub at: String,
}

impl Tombstone {
    /// The prefix of the names of tombstone entries.
    pub const PREFIX: &'static str = "TOMBSTONE#";

    /// Returns the entry for a tombstone. `key` is DynamoDB JSON.
    #[must_use]
    pub fn new(migration: &str, table: &str, key: &str, stamp: &str) -> Self {
        let partition = u32::try_from(hash_of(key) % u128::from(PARTITIONS)).unwrap_or(0);
        Self {
            migration: partition_of(migration, partition),
            table: table.to_owned(),
            key: key.to_owned(),
            at: stamp.to_owned(),
        }
    }
}

impl Entry for Tombstone {
    fn partition(&self) -> String {
        self.migration.clone()
    }

    fn name(&self) -> String {
        format!("{}{}#{:032x}", Self::PREFIX, self.table, hash_of(&self.key))
    }
}

/// Returns the partition keys of all tombstone entries of a migration.
pub fn tombstone_partitions(migration: &str) -> impl ExactSizeIterator<Item = String> {
    let migration = migration.to_owned();
    (0..PARTITIONS as usize)
        .map(move |number| partition_of(&migration, u32::try_from(number).unwrap_or(PARTITIONS)))
}

fn partition_of(migration: &str, number: u32) -> String {
    format!("{migration}/tombstones/{number:02}")
}

fn hash_of(key: &str) -> u128 {
    xxh3_128(key.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_in_one_of_the_partitions() {
        let note = Tombstone::new("shop", "orders", r#"{"id":{"S":"7"}}"#, "/1");
        assert!(tombstone_partitions("shop").any(|partition| partition == note.partition()));
        assert_eq!(tombstone_partitions("shop").nth(3).as_deref(), Some("shop/tombstones/03"));
        let name = note.name();
        assert!(name.starts_with("TOMBSTONE#orders#") && name.len() == 17 + 32, "{name}");
    }
}
