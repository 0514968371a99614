//! Which entries of a group are recent: the newest ones, of so many bytes together, which its log keeps
//! for peers that are a little behind.
//!
//! The consensus library counts entries alone, and one may have some hundred bytes or 16 MB. What is
//! purged when is decided in `maintenance`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the entries that are recent, at least: as many as are applied between two moments at which
/// the state is made durable.
const RECENT_BYTES: usize = 40 * 1024 * 1024;
/// Bytes between two places that are remembered.
const STEP_BYTES: usize = 8 * 1024 * 1024;
/// Places that have all recent entries between the first and the last.
const PLACES: usize = RECENT_BYTES / STEP_BYTES + 1;

/// See the module. As of a start, all entries are recent.
#[derive(Default)]
pub(crate) struct RecentEntries {
    /// Places in the log, `STEP_BYTES` or more apart, the oldest first.
    places: VecDeque<u64>,
    /// Bytes since the last one.
    bytes: usize,
    before: RecentBoundary,
}

/// The last entry that is not recent, for those who look from elsewhere; 0 if all are.
#[derive(Clone, Default)]
pub(crate) struct RecentBoundary(Arc<AtomicU64>);

impl RecentBoundary {
    pub(crate) fn index(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl RecentEntries {
    /// Notes that an entry was applied.
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

    /// Goal: what is behind the last entry that is not recent has the bytes that are kept, and not many
    /// more; small entries are many.
    #[test]
    fn recent_entries_have_so_many_bytes() {
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
