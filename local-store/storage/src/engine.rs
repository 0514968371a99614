//! The contract of every engine, and the validity of batches.
//!
//! The engines are in `lsm` and `memory`.

use std::ops::ControlFlow;

use partition::{Batch, Op, View};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The maximum length of a key in bytes, inclusive: the tree stores the length in 16 bits. The
/// longest key that the store writes is less than a twentieth of this limit.
pub const KEY_BYTES_MAX: usize = 65_535;

/// The maximum length of a value in bytes, inclusive: the tree stores the length in 32 bits.
pub const VALUE_BYTES_MAX: usize = u32::MAX as usize;

/// The first byte of keys that are reserved for engines. A batch must not contain such keys.
pub(crate) const OWN_KEYS: u8 = u8::MAX;

/// A file of an engine on disk. Verification processes files in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StoredFile {
    /// A table of the tree.
    Table(u64),
    /// A queue file, which contains rows.
    Rows(u64),
}

/// A callback that receives the number of verified bytes and waits to limit the rate. It returns
/// `Break` to end the verification.
pub type Pace<'a> = dyn FnMut(usize) -> ControlFlow<()> + 'a;

/// An ordered key-value storage engine.
pub trait Storage: Send + Sync + 'static {
    /// Applies a batch: later views see all of its changes or none. The batch is not synced. No key
    /// may occur twice, and inserted keys must not exist. The production engine does not check
    /// these rules; the memory engine, which most tests use, checks them.
    ///
    /// # Errors
    ///
    /// [`Error::Batch`] means that nothing changed; any other error is fatal.
    fn apply(&self, batch: &Batch) -> Result<(), Error>;

    /// Makes all earlier batches survive a power loss.
    ///
    /// # Errors
    ///
    /// Every error is fatal, and must not be retried.
    fn persist(&self) -> Result<(), Error>;

    /// Returns a snapshot of the current state. Views are cheap to open and must be short-lived,
    /// because the storage retains every version that an open view sees.
    fn view(&self) -> Box<dyn View + Send + Sync>;

    /// Returns a view whose reads wait for a free file descriptor without a time limit. Reads of
    /// other views time out. Use this view for work that cannot continue without a result.
    fn patient_view(&self) -> Box<dyn View + Send + Sync> {
        self.view()
    }

    /// Starts to free the disk space of replaced and deleted rows, if the space is large and
    /// freeing it takes at most some seconds. Does not wait until the space is free.
    fn reclaim(&self) {}

    /// Verifies the checksums of the first file after `after`, and returns that file; `None` after
    /// the last file. An engine without files always returns `None`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the file is damaged; the damage is also reported to the node's record
    /// of damage.
    fn verify_next(
        &self,
        _after: Option<StoredFile>,
        _pace: &mut Pace<'_>,
    ) -> Result<Option<StoredFile>, Error> {
        Ok(None)
    }

    /// Returns the total size in bytes of the files that [`Storage::verify_next`] verifies.
    fn disk_bytes(&self) -> u64 {
        0
    }
}

/// Rejects keys and values that would make an engine panic or return wrong data.
pub(crate) fn check(batch: &Batch) -> Result<(), Error> {
    for op in &batch.ops {
        let (key, value_bytes) = match op {
            Op::Put(key, value) | Op::Insert(key, value) => (key, value.len()),
            Op::Delete(key) => (key, 0),
        };
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            let bytes = key.len();
            return Err(Error::Batch(format!(
                "a key has {bytes} bytes; it must have 1 to {KEY_BYTES_MAX}"
            )));
        }
        if key.first() == Some(&OWN_KEYS) {
            return Err(Error::Batch(format!("a key begins with the reserved byte {OWN_KEYS}")));
        }
        if value_bytes > VALUE_BYTES_MAX {
            return Err(Error::Batch(format!(
                "a value has {value_bytes} bytes; it must have at most {VALUE_BYTES_MAX}"
            )));
        }
    }
    Ok(())
}
