//! The tables in memory: the active table, the sealed tables that wait for a flush, and the last
//! flushed table, which serves reads of recent writes.

use std::sync::Arc;

use super::memtable::Memtable;

/// An immutable set of tables. A view keeps the set that was current when it was opened.
#[derive(Clone, Default)]
pub(super) struct Memtables {
    active: Arc<Memtable>,
    /// Sealed tables, newest first.
    sealed: Vec<Arc<Memtable>>,
    written: Option<Arc<Memtable>>,
}

impl Memtables {
    pub(super) fn active(&self) -> &Memtable {
        &self.active
    }

    /// Returns all tables, newest first. If several tables contain a key, the first of these tables
    /// has the key's newest version.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = &Memtable> {
        let active = std::iter::once(&self.active);
        active.chain(&self.sealed).chain(&self.written).map(|table| &**table)
    }

    /// Returns how many tables wait for a flush.
    pub(super) fn sealed_count(&self) -> usize {
        self.sealed.len()
    }

    /// Returns the oldest sealed table.
    pub(super) fn oldest_sealed(&self) -> Option<Arc<Memtable>> {
        self.sealed.last().cloned()
    }

    /// Returns the set with a new active table after sealing the previous one. Returns an equal set
    /// if the active table is empty.
    pub(super) fn seal(&self) -> Self {
        if self.active.bytes() == 0 {
            return self.clone();
        }
        let mut sealed = vec![Arc::clone(&self.active)];
        sealed.extend(self.sealed.iter().cloned());
        Self { active: Arc::default(), sealed, written: self.written.clone() }
    }

    /// Returns the set after the flush of the oldest sealed table.
    pub(super) fn wrote_oldest(&self) -> Self {
        let mut sealed = self.sealed.clone();
        let written = sealed.pop().or_else(|| self.written.clone());
        Self { active: Arc::clone(&self.active), sealed, written }
    }
}
