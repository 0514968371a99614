//! What the tree says of each file: its size, so that one which is not whole is noticed, and which of
//! its rows are gone. Key: `[255] number:u64`. Value: a version byte and a [`Listing`] in postcard's
//! encoding.

use std::io;
use std::ops::Bound;
use std::path::Path;

use lsm_tree::{AbstractTree, AnyTree, Guard, InternalValue, ValueType};
use serde::{Deserialize, Serialize};

use super::damaged;
use crate::engine::OWN_KEYS;

const VERSION: u8 = 1;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Listing {
    /// With the number it makes the file's name.
    pub(super) salt: u64,
    /// Of the whole file.
    pub(super) bytes: u64,
    /// Of the file's list of blocks, which has those of the blocks in it.
    pub(super) checksum: u64,
    /// As [`RemovedRows::ranges`](super::removed_rows::RemovedRows::ranges) says it.
    pub(super) removed: Vec<(u32, u32)>,
}

fn key(number: u64) -> [u8; 9] {
    let mut key = [OWN_KEYS; 9];
    if let Some(rest) = key.last_chunk_mut() {
        *rest = number.to_be_bytes();
    }
    key
}

/// The number of the file that a key of the tree is about.
fn number_of(key: &[u8]) -> Option<u64> {
    match key.split_first() {
        Some((&OWN_KEYS, rest)) => Some(u64::from_be_bytes(rest.try_into().ok()?)),
        _ => None,
    }
}

/// The tree's row that lists a file, or that no longer does.
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
    /// All files that a tree lists.
    ///
    /// # Errors
    /// When the tree cannot be read, or says what nobody has written.
    pub(in super::super) fn read_all(
        tree: &AnyTree,
        path: &Path,
    ) -> Result<Vec<(u64, Self)>, lsm_tree::Error> {
        let own: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Included(&[OWN_KEYS]), Bound::Unbounded);
        let rows = tree.range::<&[u8], _>(own, lsm_tree::SeqNo::MAX, None);
        let read = |guard: lsm_tree::IterGuardImpl| {
            let (key, value) = guard.into_inner()?;
            let listed = number_of(&key).zip(decode(&value));
            Ok(listed.ok_or_else(|| damaged(path, "a row that lists a file cannot be read"))?)
        };
        rows.map(read).collect()
    }
}

fn decode(value: &[u8]) -> Option<Listing> {
    match value.split_first() {
        Some((&VERSION, rest)) => postcard::from_bytes(rest).ok(),
        _ => None,
    }
}
