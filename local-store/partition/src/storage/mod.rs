//! What the machine needs of an ordered storage engine: a consistent view to read, and one atomic
//! batch to hand back. How a batch is built is in `overlay`; the engines themselves are in the
//! server.

pub(crate) mod overlay;

use std::ops::ControlFlow;
use std::sync::Arc;

use thiserror::Error;

/// Reading failed: the replica cannot go on and must stop. Never caused by a request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("storage cannot be read: {0}")]
pub struct ReadError(pub String);

/// A value. Copies share their bytes: an item stands in its place, in its entries of indexes and with
/// all replicas of a process, and is there once.
pub type Value = Arc<[u8]>;

/// What a scan calls for each key and value; it breaks to stop the scan.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// One point in time of an ordered engine.
pub trait View {
    /// The value under a key.
    ///
    /// # Errors
    /// When the engine cannot be read.
    fn get(&self, key: &[u8]) -> Result<Option<Value>, ReadError>;

    /// Says that these keys are going to be asked for soon: an engine may find what is known of many
    /// keys together sooner than one by one. Changes nothing.
    fn fetch(&self, keys: &mut dyn Iterator<Item = &[u8]>) {
        let _ = keys;
    }

    /// Visits the keys from `from` (inclusive) to `to` (exclusive), ascending, or descending when
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
    /// The key has this value.
    Put(Vec<u8>, Value),
    /// The same of a key that was not there: an engine need not remember that it went again.
    Insert(Vec<u8>, Value),
    /// The key is not there.
    Delete(Vec<u8>),
}

impl Op {
    /// What it changes.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Put(key, _) | Self::Insert(key, _) | Self::Delete(key) => key,
        }
    }
}

/// Changes that an engine makes together or not at all. No key occurs twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The changes, in the order in which their keys were first changed.
    pub ops: Vec<Op>,
}

impl Batch {
    /// Bytes of all keys and values.
    #[must_use]
    pub fn size(&self) -> usize {
        let size = |op: &Op| match op {
            Op::Put(key, value) | Op::Insert(key, value) => key.len() + value.len(),
            Op::Delete(key) => key.len(),
        };
        self.ops.iter().map(size).sum()
    }
}

/// The key behind a key: none lies between the two.
pub(crate) fn behind(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

/// The smallest key after every key that begins with `prefix`.
pub(crate) fn end_of_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // Only a prefix of nothing but 0xff ends here; no key family has that number.
    vec![u8::MAX; prefix.len() + 1]
}

#[cfg(test)]
pub(crate) mod testing {
    //! The smallest engine there is, for the tests of this crate.

    use std::collections::BTreeMap;

    use super::*;

    /// A map that is read and changed directly.
    #[derive(Clone, Default)]
    pub(crate) struct MapStorage(pub(crate) BTreeMap<Vec<u8>, Vec<u8>>);

    impl MapStorage {
        pub(crate) fn apply(&mut self, batch: Batch) {
            for op in batch.ops {
                match op {
                    Op::Put(key, value) => self.0.insert(key, value.to_vec()),
                    Op::Insert(key, value) => {
                        let before = self.0.insert(key, value.to_vec());
                        assert_eq!(before, None, "a key that is said to be new was there");
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
