//! Limits concurrent reads of the archive: each object by one reader, and few bytes in total.
//!
//! A compacted object has about 16 MB and is needed for every bucket of its hour, and the function
//! has 256 MB in total. A reader that arrives while an object is being read waits for the result.
//! The module reads nothing itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use locks::Mutex;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard, Semaphore, SemaphorePermit};

/// Bytes of objects in memory at the same time, unless a single one has more.
const BYTES_MAX: u64 = 32 << 20;
/// Unit in which bytes are counted, rounded up.
const UNIT: u64 = 1 << 10;

/// The reads of one archive in progress.
#[derive(Debug)]
pub(super) struct Reads {
    room: Semaphore,
    units_max: u32,
    turns: Mutex<BTreeMap<String, Arc<Turn<()>>>>,
}

impl Default for Reads {
    fn default() -> Self {
        Self::with_bytes_max(BYTES_MAX)
    }
}

impl Reads {
    /// Returns a limiter of this many bytes.
    pub(super) fn with_bytes_max(bytes_max: u64) -> Self {
        let units_max = u32::try_from(bytes_max / UNIT).unwrap_or(u32::MAX).max(1);
        let permits = usize::try_from(units_max).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { room: Semaphore::new(permits), units_max, turns: Mutex::default() }
    }

    /// Waits until no other reader has the object, and locks it.
    pub(super) async fn turn(&self, name: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock();
            // Locks without a holder or waiter have no other reference.
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(turns.entry(name.to_owned()).or_default())
        };
        turn.lock_owned().await
    }

    /// Waits until there is memory for an object. Never returns `None`, because the semaphore is
    /// never closed.
    pub(super) async fn room_for(&self, bytes: u64) -> Option<SemaphorePermit<'_>> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        self.room.acquire_many(units.clamp(1, self.units_max)).await.ok()
    }
}
