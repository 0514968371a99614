//! Limits concurrent reads of the archive: one reader per object, and few bytes in total.
//!
//! A compacted object has about 16 MB and is needed for every bucket of its hour, but the function
//! has only 256 MB. A reader that arrives while an object is being read waits for the result. The
//! module reads no object itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use locks::Mutex;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard, Semaphore, SemaphorePermit};

/// Maximum size of the objects in memory at the same time, in bytes. A single object may be larger.
const BYTES_MAX: u64 = 32 << 20;
/// The number of bytes for one permit of the semaphore; a read rounds its number of permits up.
const UNIT: u64 = 1 << 10;

/// The reads of one archive that are in progress.
#[derive(Debug)]
pub(super) struct Reads {
    units: Semaphore,
    units_max: u32,
    object_locks: Mutex<BTreeMap<String, Arc<Turn<()>>>>,
}

impl Default for Reads {
    fn default() -> Self {
        Self::with_bytes_max(BYTES_MAX)
    }
}

impl Reads {
    /// Returns a limiter of reads. `bytes_max` is the upper bound of bytes in memory.
    pub(super) fn with_bytes_max(bytes_max: u64) -> Self {
        let units_max = u32::try_from(bytes_max / UNIT).unwrap_or(u32::MAX).max(1);
        let permits = usize::try_from(units_max).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { units: Semaphore::new(permits), units_max, object_locks: Mutex::default() }
    }

    /// Waits until no other reader reads the object, and locks it for this reader.
    pub(super) async fn turn(&self, name: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.object_locks.lock();
            // Removes locks that no reader holds or waits for: only this map refers to them.
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(turns.entry(name.to_owned()).or_default())
        };
        turn.lock_owned().await
    }

    /// Waits until there is memory for an object of this size. Never returns `None`, because the
    /// semaphore is never closed.
    pub(super) async fn room_for(&self, bytes: u64) -> Option<SemaphorePermit<'_>> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        self.units.acquire_many(units.clamp(1, self.units_max)).await.ok()
    }
}
