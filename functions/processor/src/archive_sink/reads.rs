//! Which objects of the archive are read at the same time: each by one reader, and few bytes of all.
//!
//! An object that compaction made has some 16 MB and is looked at for every bucket of its hour, and
//! the function has 256 MB for everything. Who comes while an object is read waits for what that
//! reader finds. Nothing is read here.

use std::collections::BTreeMap;
use std::sync::Arc;

use locks::Mutex;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard, Semaphore, SemaphorePermit};

/// Bytes of objects that are in memory at the same time, unless one alone has more.
const BYTES_MAX: u64 = 32 << 20;
/// Bytes are counted in these, rounded up.
const UNIT: u64 = 1 << 10;

/// The reads of one archive that are under way.
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
    /// Reads of so many bytes at the same time at most.
    pub(super) fn with_bytes_max(bytes_max: u64) -> Self {
        let units_max = u32::try_from(bytes_max / UNIT).unwrap_or(u32::MAX).max(1);
        let permits = usize::try_from(units_max).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { room: Semaphore::new(permits), units_max, turns: Mutex::default() }
    }

    /// Waits until nobody reads the object, and keeps others from it.
    pub(super) async fn turn(&self, name: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock();
            // Those that nobody has or waits for are only here.
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(turns.entry(name.to_owned()).or_default())
        };
        turn.lock_owned().await
    }

    /// Waits until there is room for an object. `None` never comes, as nobody closes it.
    pub(super) async fn room_for(&self, bytes: u64) -> Option<SemaphorePermit<'_>> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        self.room.acquire_many(units.clamp(1, self.units_max)).await.ok()
    }
}
