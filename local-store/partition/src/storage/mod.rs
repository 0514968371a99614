//! The state machine's interface to an ordered storage engine: a consistent view to read, and one
//! atomic batch to write. `overlay` builds a batch; the engines are in the crate `storage`.

pub(crate) mod overlay;

use std::ops::ControlFlow;
use std::sync::Arc;

use thiserror::Error;

/// The error of a read from a damaged or unreadable storage. The replica must stop. No request
/// causes this error.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("storage cannot be read: {0}")]
pub struct ReadError(pub String);

/// A value. Clones share their bytes: the item, its index entries and all replicas of a process
/// share one allocation.
pub type Value = Arc<[u8]>;

/// The visitor of a scan, called for each key and value; it breaks to stop the scan.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// A consistent snapshot of an ordered engine.
pub trait View {
    /// Returns the value under a key.
    ///
    /// # Errors
    /// When the engine cannot be read.
    fn get(&self, key: &[u8]) -> Result<Option<Value>, ReadError>;

    /// Prefetches keys that the caller will read soon, because an engine may look up many keys
    /// together faster than one by one. Has no effect on results.
    fn fetch(&self, keys: &mut dyn Iterator<Item = &[u8]>) {
        let _ = keys;
    }

    /// Visits the keys from `from` (inclusive) to `to` (exclusive), ascending, or descending if
    /// `reverse`, until the visitor breaks.
    ///
    /// # Errors
    /// When the engine cannot be read.
    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        reverse: bool,
        visit: &mut Visit<'_>,
    ) -> Result<(), ReadError>;
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sets the value of a key.
    Put(Vec<u8>, Value),
    /// Sets the value of a key that does not exist yet. An engine may therefore delete the key
    /// later without a tombstone.
    Insert(Vec<u8>, Value),
    /// Deletes a key.
    Delete(Vec<u8>),
}

impl Op {
    /// Returns the key that the operation changes.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Put(key, _) | Self::Insert(key, _) | Self::Delete(key) => key,
        }
    }
}

/// Changes that an engine applies atomically. No key occurs twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The changes, in the order in which their keys were first changed.
    pub ops: Vec<Op>,
}

impl Batch {
    /// Returns the total size of all keys and values in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let size = |op: &Op| match op {
            Op::Put(key, value) | Op::Insert(key, value) => key.len() + value.len(),
            Op::Delete(key) => key.len(),
        };
        self.ops.iter().map(size).sum()
    }
}

/// Returns the direct successor of a key.
pub(crate) fn successor(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

/// Returns the smallest key after every key that begins with `prefix`.
pub(crate) fn end_of_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // Only a prefix of 0xff bytes reaches this line, and no key family has the tag 0xff.
    vec![u8::MAX; prefix.len() + 1]
}

#[cfg(test)]
pub(crate) mod testing {
    //! A storage engine in a map, for the tests of this crate.

    use std::collections::BTreeMap;

    use super::*;

    /// A storage engine in a map that tests read and change directly.
    #[derive(Clone, Default)]
    pub(crate) struct MapStorage(pub(crate) BTreeMap<Vec<u8>, Vec<u8>>);

    impl MapStorage {
        pub(crate) fn apply(&mut self, batch: Batch) {
            for op in batch.ops {
                match op {
                    Op::Put(key, value) => self.0.insert(key, value.to_vec()),
                    Op::Insert(key, value) => {
                        let before = self.0.insert(key, value.to_vec());
                        assert_eq!(before, None, "the inserted key already exists");
                        before
                    }
                    Op::Delete(key) => self.0.remove(&key),
                };
            }
        }
    }

    impl View for MapStorage {
        fn get(&self, key: &[u8]) -> Result<Option<Value>, ReadError> {
            Ok(self.0.get(key).map(|value| value.as_slice().into()))
        }

        fn scan(
            &self,
            from: &[u8],
            to: &[u8],
            reverse: bool,
            visit: &mut Visit<'_>,
        ) -> Result<(), ReadError> {
            if from >= to {
                return Ok(());
            }
            let range = self.0.range(from.to_vec()..to.to_vec());
            let entries: Vec<_> = if reverse { range.rev().collect() } else { range.collect() };
            for (key, value) in entries {
                if visit(key, value).is_break() {
                    break;
                }
            }
            Ok(())
        }
    }
}
