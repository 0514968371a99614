//! The recent entries of a group. The log keeps them for peers that are slightly behind.
//!
//! The consensus library can limit only the number of entries, but an entry has between some
//! hundred bytes and 16 MB. Therefore this module measures entries in bytes. `maintenance` decides
//! when to purge.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The minimum size of the recent entries that a log keeps, in bytes: the size of the entries
/// between two checkpoints of the state.
const RECENT_BYTES: usize = 40 * 1024 * 1024;
/// The size in bytes of the entries between two remembered indexes.
const STEP_BYTES: usize = 8 * 1024 * 1024;
/// Number of log indexes to remember: enough to span [`RECENT_BYTES`].
const PLACES: usize = RECENT_BYTES / STEP_BYTES + 1;

/// Finds the boundary of a group's recent entries. After a start, all entries are recent.
#[derive(Default)]
pub(crate) struct RecentEntries {
    /// Log indexes, `STEP_BYTES` or more apart, oldest first.
    places: VecDeque<u64>,
    /// Bytes of the entries since the last remembered index.
    bytes: usize,
    before: RecentBoundary,
}

/// A shared handle on the index of the last entry that is not recent; 0 if all entries are recent.
#[derive(Clone, Default)]
pub(crate) struct RecentBoundary(Arc<AtomicU64>);

impl RecentBoundary {
    pub(crate) fn index(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl RecentEntries {
    /// Records an applied entry.
    pub(crate) fn note(&mut self, index: u64, bytes: usize) {
        self.bytes += bytes;
        if self.bytes < STEP_BYTES {
            return;
        }
        self.bytes = 0;
        self.places.push_back(index);
        if self.places.len() > PLACES {
            self.places.pop_front();
        }
        if self.places.len() == PLACES
            && let Some(oldest) = self.places.front()
        {
            self.before.0.store(*oldest, Ordering::Relaxed);
        }
    }

    pub(crate) fn before(&self) -> RecentBoundary {
        self.before.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the entries after the boundary have at least the number of bytes that the log must
    /// keep, but not many more, even if the entries are small.
    #[test]
    fn recent_entries_have_the_bytes_to_keep() {
        for bytes in [400, 190_000, 9_000_000, 16_000_000] {
            let mut recent = RecentEntries::default();
            let before = recent.before();
            for index in 1..=400_000_000 / bytes {
                recent.note(index as u64, bytes);
                let kept = (index - usize::try_from(before.index()).unwrap()) * bytes;
                assert!(kept >= RECENT_BYTES || before.index() == 0, "{kept} at {index}");
                let most = RECENT_BYTES.max(bytes * PLACES) + 2 * (STEP_BYTES + bytes);
                assert!(kept < most, "{kept} at {index}");
            }
            assert!(before.index() > 0);
        }
    }
}
