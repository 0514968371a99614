//! The items that transactions over several arcs have locked in this arc.
//!
//! The locks are in memory. A restarted replica restores them from the stored state.

use std::collections::BTreeMap;

use crate::command::Write;
use crate::command::reply::CancellationReason;
use crate::keys::{item, two_phase_commit as keys};
use crate::storage::{ReadError, View};
use crate::transaction::state::{Prepared, TransactionId};

/// The storage keys of the items that are locked in this arc, and the transaction that holds each
/// lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locks(BTreeMap<Vec<u8>, TransactionId>);

impl Locks {
    /// Restores the locks from the state.
    pub(crate) fn read(view: &dyn View) -> Result<Self, ReadError> {
        let mut locks = Self::default();
        for (id, prepared) in keys::read_all_prepared(view)? {
            locks.add(id, &prepared);
        }
        Ok(locks)
    }

    pub(crate) fn add(&mut self, id: TransactionId, prepared: &Prepared) {
        let locked =
            prepared.items.iter().map(|locked| (item::encode(locked.table, &locked.key), id));
        self.0.extend(locked);
    }

    pub(crate) fn remove(&mut self, id: TransactionId, prepared: &Prepared) {
        for locked in &prepared.items {
            let stored = item::encode(locked.table, &locked.key);
            if self.0.get(&stored) == Some(&id) {
                self.0.remove(&stored);
            }
        }
    }

    /// Returns whether the item with the given storage key is locked.
    pub(crate) fn contains(&self, stored: &[u8]) -> bool {
        self.0.contains_key(stored)
    }

    fn holder(&self, write: &Write) -> Option<&TransactionId> {
        self.0.get(&item::encode(write.table, &write.key))
    }

    /// Returns whether an attempt at the same request has locked one of the items: this attempt or
    /// another one.
    pub(crate) fn are_of_the_same_request(&self, id: TransactionId, operations: &[Write]) -> bool {
        let mut holders = operations.iter().filter_map(|write| self.holder(write));
        holders.any(|holder| holder.has_token_of(id))
    }

    /// Returns the cancellation reasons of the operations if at least one of their items is locked;
    /// `None` otherwise.
    pub(crate) fn conflicts(&self, operations: &[Write]) -> Option<Vec<CancellationReason>> {
        // Fast path: usually no item is locked, so the keys need not be encoded.
        if self.0.is_empty() {
            return None;
        }
        let reason = |write: &Write| match self.holder(write) {
            Some(_) => CancellationReason::Conflict,
            None => CancellationReason::None,
        };
        let reasons: Vec<_> = operations.iter().map(reason).collect();
        reasons.contains(&CancellationReason::Conflict).then_some(reasons)
    }
}
