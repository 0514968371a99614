//! Transactions over several arcs: two-phase commit, with the decision in the log of one arc.
//!
//! Each arc **prepares** its operations: it evaluates them, stores the resulting items, and locks
//! them. Until the transaction has ended in this arc, every other write of these items is rejected
//! with a conflict. When all arcs have prepared, the transaction's **home** arc **decides**. The
//! first decision is final, even if several nodes request a decision. The client's request token is
//! stored with the decision. Then each arc **finishes**: it applies or discards the prepared
//! operations. All items are locked at the time of the decision, so transactions and single writes
//! are serializable (two-phase locking).
//!
//! The server recovers an abandoned transaction: it requests an abort from the home arc, receives
//! the final decision, and finishes the transaction. Late messages change nothing: an arc does not
//! prepare a transaction that has ended, and does not commit one that is older than a minute. For
//! that minute, the arc remembers ended transactions. Each arc uses only its own time.

use model::{EncodedItem, EpochMillis};

use crate::catalogue::Catalogue;
use crate::command::reply::Reply;
use crate::command::{Decide, Finish, Prepare, WriteAction};
use crate::entry::sequence::Sequence;
use crate::image::damaged;
use crate::keys::{item, two_phase_commit as keys};
use crate::mutation::{self, Mutation};
use crate::storage::overlay::Overlay;
use crate::storage::{ReadError, View};
use crate::transaction::locks::Locks;
use crate::transaction::state::{
    Decision, LockedChange, LockedItem, Prepared, PreparedHead, TransactionId,
};
use crate::transaction::{self, TRANSACTION_TOO_LARGE};
use crate::write;

/// The maximum age, in milliseconds of store time, at which a transaction may change state.
const TRANSACTION_LIFE_MS: u64 = 60_000;
/// The maximum number of records of ended transactions that one command deletes.
const FORGOTTEN_MAX: usize = 1000;
/// The maximum total size in bytes of the resulting items of a transaction in one arc. They are
/// stored as one value, which must fit into a message of a snapshot transfer.
const PREPARED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Returns whether a transaction is too old for a step that changes state.
fn is_old(began: EpochMillis, now: EpochMillis) -> bool {
    now.since(began) > TRANSACTION_LIFE_MS
}

/// Prepares a transaction in this arc: checks its operations and locks their items. If an operation
/// fails or an item is locked already, replies with the reason. A repeated command finds the locks
/// of the first command and replies with a conflict.
pub(crate) fn prepare(
    overlay: &mut Overlay<'_>,
    catalogue: &Catalogue,
    locks: &mut Locks,
    first: Sequence,
    now: EpochMillis,
    prepare: &Prepare,
) -> Result<Reply, ReadError> {
    let &Prepare { id, deciding_arc, began, ref operations, return_items } = prepare;
    // A transaction without operations has no locks, so a repeated command could not be recognised.
    if operations.is_empty() || is_old(began, now) || keys::is_finished(overlay, began, id)? {
        return Ok(Reply::TransactionOver);
    }
    if let Some(reasons) = locks.conflicts(operations) {
        if locks.are_of_the_same_request(id, operations) {
            return Ok(Reply::TransactionInProgress);
        }
        return Ok(Reply::TransactionCancelled(reasons));
    }
    // This overlay is used only to compute the results, and is then discarded.
    let mut attempt = Overlay::new(overlay);
    let mut writes =
        match transaction::attempt_all(&mut attempt, catalogue, first, now, operations)? {
            Ok(writes) => writes,
            Err(refusal) => return Ok(refusal),
        };
    let (mut items, mut bytes) = (Vec::with_capacity(operations.len()), 0);
    for (write, written) in operations.iter().zip(&mut writes) {
        let (table, key) = (write.table, write.key.clone());
        let new = attempt.get(&item::encode(table, &key))?.map(EncodedItem::from_stored);
        if return_items {
            written.new = new.as_ref().map(EncodedItem::decode).transpose().map_err(damaged)?;
        }
        let change = match write.action {
            WriteAction::Check => LockedChange::Unchanged,
            _ => LockedChange::Replaced(new),
        };
        if let LockedChange::Replaced(Some(new)) = &change {
            bytes += new.as_bytes().len();
        }
        items.push(LockedItem { table, key, change });
    }
    drop(attempt);
    if bytes > PREPARED_BYTES_MAX {
        return Ok(Reply::Invalid(TRANSACTION_TOO_LARGE.to_owned()));
    }
    let prepared = Prepared { began, deciding_arc, items };
    keys::write_prepared(overlay, id, &prepared)?;
    keys::count_step(overlay)?;
    locks.add(id, &prepared);
    Ok(Reply::Prepared { writes })
}

/// Records a decision if there is none yet, and replies with the final decision.
pub(crate) fn decide(
    overlay: &mut Overlay<'_>,
    now: EpochMillis,
    decide: &Decide,
) -> Result<Reply, ReadError> {
    let &Decide { id, began, commit, ref token, ref sizes, ref participants } = decide;
    let participants = participants.clone();
    if let Some(known) = keys::read_decision(overlay, began, id)? {
        return Ok(Reply::Decided { commit: known.commit });
    }
    // The decision about an old transaction may have been deleted already, so an old transaction is
    // never committed.
    let commit = commit && !is_old(began, now);
    if let Some((token, fingerprint)) = token.as_ref().filter(|_| commit) {
        if let Some(reply) = transaction::find_token_result(overlay, now, token, *fingerprint)? {
            // Another transaction with this token was committed in the meantime, so this
            // transaction is aborted.
            let decision = Decision { began, commit: false, participants };
            keys::write_decision(overlay, id, &decision, true)?;
            return Ok(reply);
        }
        transaction::record_token_result(overlay, now, token, *fingerprint, sizes.clone())?;
    }
    if mutation::is_active(Mutation::ForgetDecision) {
        return Ok(Reply::Decided { commit });
    }
    // An abort needs no delivery: each arc that has prepared the transaction requests the decision
    // itself.
    keys::write_decision(overlay, id, &Decision { began, commit, participants }, !commit)?;
    keys::count_step(overlay)?;
    Ok(Reply::Decided { commit })
}

/// Applies or discards the operations that a transaction has prepared in this arc. A reply with the
/// writes proves that the items were locked until now. If this arc has prepared nothing or the
/// transaction has already ended, changes no item and replies `TransactionOver`.
pub(crate) fn finish(
    overlay: &mut Overlay<'_>,
    catalogue: &Catalogue,
    locks: &mut Locks,
    first: Sequence,
    now: EpochMillis,
    finish: &Finish,
) -> Result<Reply, ReadError> {
    let &Finish { id, began, commit, .. } = finish;
    let Some(prepared) = keys::read_prepared(overlay, id)? else {
        if !keys::is_finished(overlay, began, id)? && !is_old(began, now) {
            keys::finish(overlay, id, began);
        }
        return Ok(Reply::TransactionOver);
    };
    locks.remove(id, &prepared);
    let mut writes = Vec::new();
    for (position, locked) in (first.position..).zip(prepared.items) {
        let LockedChange::Replaced(new) = locked.change else { continue };
        // A table that was deleted in the meantime has no items.
        if let Some(table) = catalogue.get(locked.table).filter(|_| commit) {
            let sequence = Sequence { position, ..first };
            let made = write::replace_with(overlay, table, sequence, now, &locked.key, new)?;
            writes.push(made);
        }
    }
    keys::finish(overlay, id, prepared.began);
    keys::count_step(overlay)?;
    Ok(Reply::Transacted { writes, repeated: false })
}

/// Records that every arc has finished a transaction.
pub(crate) fn complete_transaction(
    overlay: &mut Overlay<'_>,
    id: TransactionId,
    began: EpochMillis,
) -> Result<Reply, ReadError> {
    if let Some(decision) = keys::read_decision(overlay, began, id)? {
        keys::write_decision(overlay, id, &decision, true)?;
    }
    Ok(Reply::Done { more: false })
}

/// Deletes the records of the next transactions that have ended in every arc and are too old for
/// further messages about them. Returns whether more such records remain.
pub(crate) fn forget(overlay: &mut Overlay<'_>, now: EpochMillis) -> Result<bool, ReadError> {
    let old = keys::find_old(overlay, oldest_kept(now), FORGOTTEN_MAX)?;
    let more = old.len() == FORGOTTEN_MAX;
    old.into_iter().for_each(|key| overlay.delete(key));
    Ok(more)
}

/// Returns the earliest start time of a transaction that is not old.
fn oldest_kept(now: EpochMillis) -> EpochMillis {
    EpochMillis(now.0.saturating_sub(TRANSACTION_LIFE_MS))
}

/// Returns whether there are records of ended transactions to delete.
///
/// # Errors
/// When the storage cannot be read.
pub fn has_old_transactions(view: &dyn View, now: EpochMillis) -> Result<bool, ReadError> {
    Ok(!keys::find_old(view, oldest_kept(now), 1)?.is_empty())
}

/// Returns the prepared, unfinished transactions of an arc.
///
/// # Errors
/// When the storage cannot be read.
pub fn read_prepared(view: &dyn View) -> Result<Vec<(TransactionId, Prepared)>, ReadError> {
    keys::read_all_prepared(view)
}

/// Does the same as [`read_prepared`] without decoding items.
///
/// # Errors
/// When the storage cannot be read.
pub fn read_prepared_heads(
    view: &dyn View,
) -> Result<Vec<(TransactionId, PreparedHead)>, ReadError> {
    keys::read_prepared_heads(view)
}

/// Returns the decisions of an arc that at least one participant may not have applied yet.
///
/// # Errors
/// When the storage cannot be read.
pub fn read_incomplete(view: &dyn View) -> Result<Vec<(TransactionId, Decision)>, ReadError> {
    keys::read_unsettled(view)
}

/// Returns the number of steps of transactions over several arcs in this arc. While this number
/// stays the same, no transaction over several arcs locks items, releases items or decides to
/// commit in this arc. Steps without these effects may not be counted, for example finishing a
/// transaction that was never prepared.
///
/// # Errors
/// When the storage cannot be read.
pub fn read_transaction_steps(view: &dyn View) -> Result<u64, ReadError> {
    keys::read_steps(view)
}
