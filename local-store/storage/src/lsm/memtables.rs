//! The tables in memory: the one that is filled, those that wait to be written to disk, and the last
//! one that was, which still answers for what was written lately.

use std::sync::Arc;

use super::memtable::Memtable;

/// A set of tables that never changes, so that views can keep it.
#[derive(Clone, Default)]
pub(super) struct Memtables {
    active: Arc<Memtable>,
    /// The newest first.
    sealed: Vec<Arc<Memtable>>,
    written: Option<Arc<Memtable>>,
}

impl Memtables {
    pub(super) fn active(&self) -> &Memtable {
        &self.active
    }

    /// All of them. What an earlier one knows of a key is newer.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = &Memtable> {
        let active = std::iter::once(&self.active);
        active.chain(&self.sealed).chain(&self.written).map(|table| &**table)
    }

    /// How many wait to be written.
    pub(super) fn sealed_count(&self) -> usize {
        self.sealed.len()
    }

    /// The one that has waited longest.
    pub(super) fn oldest_sealed(&self) -> Option<Arc<Memtable>> {
        self.sealed.last().cloned()
    }

    /// With a new table to be filled. Nothing is sealed that is empty.
    pub(super) fn seal(&self) -> Self {
        if self.active.bytes() == 0 {
            return self.clone();
        }
        let mut sealed = vec![Arc::clone(&self.active)];
        sealed.extend(self.sealed.iter().cloned());
        Self { active: Arc::default(), sealed, written: self.written.clone() }
    }

    /// When the one that has waited longest is on disk.
    pub(super) fn wrote_oldest(&self) -> Self {
        let mut sealed = self.sealed.clone();
        let written = sealed.pop().or_else(|| self.written.clone());
        Self { active: Arc::clone(&self.active), sealed, written }
    }
}
