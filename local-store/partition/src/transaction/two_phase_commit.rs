//! Transactions over several arcs: two-phase commit, with the decision in the log of one arc.
//!
//! Each arc **prepares** its operations: it checks them as if it made them, keeps what the items
//! will be, and locks them: until the transaction is over here, every other write of them meets a
//! conflict. When all have prepared, the transaction's **home** arc **decides**; the first decision
//! counts, whoever asks for it, and the client's request token is kept with it. Then each arc
//! **finishes**: it makes what it prepared, or lets go of it. At the moment of the decision all
//! items are locked, so transactions and single writes are in one order (two-phase locking).
//!
//! Whoever finds a transaction left over (see the server) asks the home arc for a decision to abort
//! it, gets the one that counts, and finishes it. What is late changes nothing: prepared is only
//! what is not over yet, committed only what is young, and what is over is remembered for as long
//! as a transaction is young. Each arc looks at its own time alone.

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
use crate::transaction::state::{Decision, Fate, Locked, Prepared, PreparedHead, TransactionId};
use crate::transaction::{self, TRANSACTION_TOO_LARGE};
use crate::write;

/// For how long a transaction may begin steps that change anything, in milliseconds of store time.
const TRANSACTION_LIFE_MS: u64 = 60_000;
/// Records of transactions that one command forgets at most.
const FORGOTTEN_MAX: usize = 1000;
/// Bytes that the items of a transaction may become in one arc: what it prepared is one value, and
/// has to fit into a message between nodes when a snapshot is sent.
const PREPARED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Whether a transaction that began then is too old for a step that changes anything.
fn is_old(began: EpochMillis, now: EpochMillis) -> bool {
    now.since(began) > TRANSACTION_LIFE_MS
}

/// Checks the operations of a transaction and locks their items, or says what stands against it. A
/// command that comes again meets its own locks.
pub(crate) fn prepare(
    overlay: &mut Overlay<'_>,
    catalogue: &Catalogue,
    locks: &mut Locks,
    first: Sequence,
    now: EpochMillis,
    prepare: &Prepare,
) -> Result<Reply, ReadError> {
    let &Prepare { id, home, began, ref operations, return_items } = prepare;
    // Without operations there is nothing that its locks could tell from another one.
    if operations.is_empty() || is_old(began, now) || keys::is_finished(overlay, began, id)? {
        return Ok(Reply::TransactionOver);
    }
    if let Some(reasons) = locks.conflicts(operations) {
        if locks.are_of_the_same_request(id, operations) {
            return Ok(Reply::TransactionInProgress);
        }
        return Ok(Reply::TransactionCancelled(reasons));
    }
    // They are made only to see what comes of it.
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
        let fate = match write.action {
            WriteAction::Check => Fate::Stays,
            _ => Fate::Becomes(new),
        };
        if let Fate::Becomes(Some(new)) = &fate {
            bytes += new.as_bytes().len();
        }
        items.push(Locked { table, key, fate });
    }
    drop(attempt);
    if bytes > PREPARED_BYTES_MAX {
        return Ok(Reply::Invalid(TRANSACTION_TOO_LARGE.to_owned()));
    }
    let prepared = Prepared { began, home, items };
    keys::write_prepared(overlay, id, &prepared)?;
    keys::count_step(overlay)?;
    locks.add(id, &prepared);
    Ok(Reply::Prepared { writes })
}

/// Decides, unless that was done already, and tells the decision that counts.
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
    // What is old may have been decided and forgotten.
    let commit = commit && !is_old(began, now);
    if let Some((token, fingerprint)) = token.as_ref().filter(|_| commit) {
        if let Some(reply) = transaction::recall_token(overlay, now, token, *fingerprint)? {
            // Another one with this token was made in between: this one is not.
            let decision = Decision { began, commit: false, participants };
            keys::write_decision(overlay, id, &decision, true)?;
            return Ok(reply);
        }
        transaction::remember(overlay, now, token, *fingerprint, sizes.clone())?;
    }
    if mutation::is_active(Mutation::ForgetDecision) {
        return Ok(Reply::Decided { commit });
    }
    // An aborted one need not be finished by anybody but those who find that they prepared it.
    keys::write_decision(overlay, id, &Decision { began, commit, participants }, !commit)?;
    keys::count_step(overlay)?;
    Ok(Reply::Decided { commit })
}

/// Makes what a transaction prepared here, or lets go of it, and tells what it did: so its items were
/// locked until now. What was not prepared, or is over already, stays as it is, and is told as over.
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
        let Fate::Becomes(new) = locked.fate else { continue };
        // A table that was deleted meanwhile has no items any more.
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

/// Notes that every arc has finished a transaction.
pub(crate) fn settle(
    overlay: &mut Overlay<'_>,
    id: TransactionId,
    began: EpochMillis,
) -> Result<Reply, ReadError> {
    if let Some(decision) = keys::read_decision(overlay, began, id)? {
        keys::write_decision(overlay, id, &decision, true)?;
    }
    Ok(Reply::Done { more: false })
}

/// Forgets the next transactions that are over everywhere and so old that nothing of them can still
/// be on its way. Gives whether there are more.
pub(crate) fn forget(overlay: &mut Overlay<'_>, now: EpochMillis) -> Result<bool, ReadError> {
    let old = keys::find_old(overlay, oldest_kept(now), FORGOTTEN_MAX)?;
    let more = old.len() == FORGOTTEN_MAX;
    old.into_iter().for_each(|key| overlay.delete(key));
    Ok(more)
}

/// The oldest transaction that is not old began then.
fn oldest_kept(now: EpochMillis) -> EpochMillis {
    EpochMillis(now.0.saturating_sub(TRANSACTION_LIFE_MS))
}

/// Whether there are transactions to forget.
///
/// # Errors
/// When the storage cannot be read.
pub fn has_old_transactions(view: &dyn View, now: EpochMillis) -> Result<bool, ReadError> {
    Ok(!keys::find_old(view, oldest_kept(now), 1)?.is_empty())
}

/// What transactions have prepared in an arc and not yet finished.
///
/// # Errors
/// When the storage cannot be read.
pub fn read_prepared(view: &dyn View) -> Result<Vec<(TransactionId, Prepared)>, ReadError> {
    keys::read_all_prepared(view)
}

/// The same, of which no item is looked at.
///
/// # Errors
/// When the storage cannot be read.
pub fn read_prepared_heads(
    view: &dyn View,
) -> Result<Vec<(TransactionId, PreparedHead)>, ReadError> {
    keys::read_prepared_heads(view)
}

/// What was decided in an arc and is not known to be finished everywhere.
///
/// # Errors
/// When the storage cannot be read.
pub fn read_unsettled(view: &dyn View) -> Result<Vec<(TransactionId, Decision)>, ReadError> {
    keys::read_unsettled(view)
}

/// Counts the steps of transactions over several arcs in this one: while it stays the same, none of
/// them has locked items here, decided that it is made, or let go of items that it had locked. Steps
/// that do none of these, as the end of what was never prepared, are not all counted.
///
/// # Errors
/// When the storage cannot be read.
pub fn read_transaction_steps(view: &dyn View) -> Result<u64, ReadError> {
    keys::read_steps(view)
}
