//! A read of a group by a node that has no replica of it: the keys and ranges that it needs, and what
//! a replica found.
//!
//! All values of one answer come from one snapshot. Both nodes must have the same version; these bytes
//! are never stored.

use std::ops::ControlFlow;

use partition::mutation::{self, Mutation};
use partition::{ReadError, View};
use serde::{Deserialize, Serialize};

/// A request for keys and ranges of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Whether the answer must contain every write that was acknowledged before the request. Only the
    /// leader can answer such a request.
    pub is_strong: bool,
    /// The log index that the answering replica must have applied.
    pub at_least: u64,
    /// The keys.
    pub keys: Vec<Vec<u8>>,
    /// The ranges.
    pub ranges: Vec<WantedRange>,
}

/// A range of keys to read, up to a number of bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedRange {
    /// The first key, inclusive.
    pub from: Vec<u8>,
    /// The end, exclusive.
    pub to: Vec<u8>,
    /// Whether to read from the end.
    pub reverse: bool,
    /// The number of bytes of keys and values at which the answer ends.
    pub bytes: usize,
}

/// The keys and values of a request, from one snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The last log index that the replica had applied before it took the snapshot.
    pub applied: u64,
    /// A number that differs whenever the definitions of tables differ.
    pub tables_version: u64,
    /// The values of the requested keys, in the order of the request.
    pub values: Vec<Option<Vec<u8>>>,
    /// The requested ranges, in the order of the request.
    pub ranges: Vec<FoundRange>,
}

/// The keys and values of a range, in the order of the scan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundRange {
    /// Keys and values.
    pub pairs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether these are all pairs of the range.
    pub is_whole: bool,
}

/// Reads the requested keys and ranges from a snapshot. `versions` are the last applied log index and the version
/// of the tables, as of the snapshot or before it.
///
/// # Errors
/// When the engine cannot be read.
pub(crate) fn find(
    view: &dyn View,
    wanted: &Wanted,
    (applied, tables_version): (u64, u64),
) -> Result<Found, ReadError> {
    view.fetch(&mut wanted.keys.iter().map(Vec::as_slice));
    let value = |key: &Vec<u8>| Ok(view.get(key)?.map(|value| value.to_vec()));
    let values = wanted.keys.iter().map(value).collect::<Result<_, ReadError>>()?;
    let ranges = wanted.ranges.iter().map(|range| find_range(view, range));
    let ranges = ranges.collect::<Result<_, _>>()?;
    Ok(Found { applied, tables_version, values, ranges })
}

fn find_range(view: &dyn View, range: &WantedRange) -> Result<FoundRange, ReadError> {
    let WantedRange { from, to, reverse, bytes } = range;
    let mut found = FoundRange { pairs: Vec::new(), is_whole: true };
    let mut size = 0;
    view.scan(from, to, *reverse, &mut |key, value| {
        if size >= *bytes {
            found.is_whole = false;
            return ControlFlow::Break(());
        }
        size += key.len() + value.len();
        found.pairs.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    if found.pairs.len() > 1 && mutation::is_active(Mutation::LoseEndOfRange) {
        found.pairs.pop();
    }
    Ok(found)
}
