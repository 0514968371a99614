//! What every engine promises, and what a batch must be for every engine.
//!
//! The engines are in `lsm` and `memory`.

use std::ops::ControlFlow;

use partition::{Batch, Op, View};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The longest key in bytes, inclusive: the tree keeps the length in 16 bits. The longest key that a
/// table can have, with its partition and sort key, is not a twentieth of it.
pub const KEY_BYTES_MAX: usize = 65_535;

/// The longest value in bytes, inclusive: the tree keeps the length in 32 bits.
pub const VALUE_BYTES_MAX: usize = u32::MAX as usize;

/// The first byte of keys that engines have for themselves; a batch has none.
pub(crate) const OWN_KEYS: u8 = u8::MAX;

/// A file of an engine on disk; files are verified in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StoredFile {
    /// A table of the tree.
    Table(u64),
    /// A file of rows.
    Rows(u64),
}

/// Told how many bytes were verified; it waits as long as they should take, or ends the verifying.
pub type Pace<'a> = dyn FnMut(usize) -> ControlFlow<()> + 'a;

/// An ordered engine.
pub trait Storage: Send + Sync + 'static {
    /// Makes all changes of a batch, visible to later views together, and not synced. What a batch
    /// promises (no key twice, new keys that are new) is believed; the engine in memory, which runs in
    /// every test, looks.
    ///
    /// # Errors
    ///
    /// [`Error::Batch`] changed nothing; any other error is fatal.
    fn apply(&self, batch: &Batch) -> Result<(), Error>;

    /// Makes every batch applied up to now survive a power loss.
    ///
    /// # Errors
    ///
    /// Every error is fatal, and must not be answered with another try.
    fn persist(&self) -> Result<(), Error>;

    /// The state as of now, whatever is applied later. Views are cheap to take, and short-lived:
    /// what they see is kept for as long as they exist.
    fn view(&self) -> Box<dyn View + Send + Sync>;

    /// A view whose reads wait for as long as the process has no file descriptor left, where those of
    /// others fail after a while: for what cannot go on without an answer.
    fn patient_view(&self) -> Box<dyn View + Send + Sync> {
        self.view()
    }

    /// Compares a file with its checksums, the first one behind `after`, and gives which one that was;
    /// `None` behind the last one. An engine without files has none.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when it is damaged, which is reported, too.
    fn verify_next(
        &self,
        _after: Option<StoredFile>,
        _pace: &mut Pace<'_>,
    ) -> Result<Option<StoredFile>, Error> {
        Ok(None)
    }

    /// Bytes of the files that are verified.
    fn disk_bytes(&self) -> u64 {
        0
    }
}

/// Refuses what an engine would misread or panic at.
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
            return Err(Error::Batch(format!("a key begins with {OWN_KEYS}, which none may")));
        }
        if value_bytes > VALUE_BYTES_MAX {
            return Err(Error::Batch(format!(
                "a value has {value_bytes} bytes; it must have at most {VALUE_BYTES_MAX}"
            )));
        }
    }
    Ok(())
}
