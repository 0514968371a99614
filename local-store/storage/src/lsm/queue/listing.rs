//! The row in the tree that lists a queue file: the file's size, so that an incomplete file is
//! detected, and its removed rows. Key: `[255] number:u64`. Value: a version byte and a [`Listing`]
//! in postcard's encoding.

use std::io;
use std::ops::Bound;
use std::path::Path;

use lsm_tree::{InternalValue, ValueType};
use serde::{Deserialize, Serialize};

use super::super::tables::Tables;
use super::damaged;
use crate::engine::OWN_KEYS;

const VERSION: u8 = 1;

/// The listing of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Listing {
    /// The random part of the file's name, which also contains the file's number.
    pub(super) salt: u64,
    /// The size of the file in bytes.
    pub(super) bytes: u64,
    /// The checksum of the file's list of blocks. The list contains the checksums of the blocks.
    pub(super) checksum: u64,
    /// Removed rows, as in [`RemovedRows::ranges`](super::removed_rows::RemovedRows::ranges).
    pub(super) removed: Vec<(u32, u32)>,
}

fn key(number: u64) -> [u8; 9] {
    let mut key = [OWN_KEYS; 9];
    if let Some(rest) = key.last_chunk_mut() {
        *rest = number.to_be_bytes();
    }
    key
}

/// Returns the number of the file in a key of the tree.
fn number_of(key: &[u8]) -> Option<u64> {
    match key.split_first() {
        Some((&OWN_KEYS, rest)) => Some(u64::from_be_bytes(rest.try_into().ok()?)),
        _ => None,
    }
}

/// Returns the row that lists a file in the tree, or a row that deletes the file's listing.
pub(super) fn row(
    number: u64,
    listing: Option<&Listing>,
    sequence: u64,
) -> Result<InternalValue, io::Error> {
    let (value, kind) = match listing {
        None => (Vec::new(), ValueType::Tombstone),
        Some(listing) => {
            let value = postcard::to_extend(listing, vec![VERSION]).map_err(io::Error::other)?;
            (value, ValueType::Value)
        }
    };
    Ok(InternalValue::from_components(key(number), value, sequence, kind))
}

impl Listing {
    /// Returns all files that the tables list.
    ///
    /// # Errors
    /// When the tables cannot be read, or a row is damaged.
    pub(in super::super) fn read_all(
        tables: &Tables,
        path: &Path,
    ) -> Result<Vec<(u64, Self)>, lsm_tree::Error> {
        let own = (Bound::Included([OWN_KEYS].as_slice()), Bound::Unbounded);
        let mut rows = tables.range(own, lsm_tree::SeqNo::MAX);
        let mut found = Vec::new();
        while let Some(row) = rows.next(false) {
            let (key, value) = row?;
            let listed = number_of(&key).zip(decode(&value));
            found.push(
                listed
                    .ok_or_else(|| damaged(path, "cannot decode an entry in the list of files"))?,
            );
        }
        Ok(found)
    }
}

fn decode(value: &[u8]) -> Option<Listing> {
    match value.split_first() {
        Some((&VERSION, rest)) => postcard::from_bytes(rest).ok(),
        _ => None,
    }
}
