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

use std::collections::BTreeMap;

use model::{EpochMillis, Item, PrimaryKey};
use serde::{Deserialize, Serialize};

use crate::catalogue::Catalogue;
use crate::command::{CancellationReason, Reply, Transaction, Write, WriteAction, Written};
use crate::keys::two_phase_commit as keys;
use crate::mutation::{self, Mutation};
use crate::placement::ArcId;
use crate::storage::{Overlay, ReadError, View};
use crate::stream::Sequence;
use crate::table::TableId;
use crate::transaction;
use crate::write;

/// For how long a transaction may begin steps that change anything, in milliseconds of store time.
const TRANSACTION_LIFE_MS: u64 = 60_000;
/// Records of transactions that one command forgets at most.
const FORGOTTEN_MAX: usize = 1000;

/// Identifies one attempt at a transaction; never used again. Half of it is drawn at random by its
/// coordinator, the other half follows from the client's token if there is one, so that a lock tells
/// whether the same request holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransactionId(pub u128);

impl TransactionId {
    /// The id of an attempt, from two numbers that were drawn for it.
    #[must_use]
    pub fn new(drawn: [u64; 2], token: Option<&str>) -> Self {
        let [high, low] = drawn;
        let low = token.map_or(low, |token| xxhash_rust::xxh3::xxh3_64(token.as_bytes()));
        Self(u128::from(high) << 64 | u128::from(low))
    }

    /// Whether both are attempts at the request with one token. Two without a token are so with the
    /// probability of two equal random numbers of 64 bits.
    fn has_token_of(self, other: Self) -> bool {
        let low = |id: Self| id.0 & u128::from(u64::MAX);
        low(self) == low(other)
    }

    /// Whether it is an attempt at the request with this token. Another one may be taken for it with
    /// the probability of two equal hashes of 64 bits.
    #[must_use]
    pub fn is_attempt_at(self, token: &str) -> bool {
        self.has_token_of(Self::new([0, 0], Some(token)))
    }
}

/// The operations of a transaction in one arc.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prepare {
    /// Of which transaction.
    pub id: TransactionId,
    /// The arc that decides.
    pub home: ArcId,
    /// When the transaction began, by its coordinator's clock.
    pub began: EpochMillis,
    /// What is to be done in this arc.
    pub operations: Vec<Write>,
    /// Whether the reply carries the items as they are.
    pub return_items: bool,
}

/// What is to be decided.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Decide {
    /// About which transaction.
    pub id: TransactionId,
    /// When it began.
    pub began: EpochMillis,
    /// To make it, or not to.
    pub commit: bool,
    /// The client's token and the fingerprint of all operations, if it sent one.
    pub token: Option<(String, u128)>,
    /// For each operation of the transaction: bytes of the item before and after.
    pub sizes: Vec<(usize, usize)>,
    /// The arcs that have prepared, each with the number of its operations.
    pub participants: Vec<(ArcId, u32)>,
}

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// When the transaction began.
    pub began: EpochMillis,
    /// Whether it is made.
    pub commit: bool,
    /// The arcs that have to finish it, each with the number of its operations.
    pub participants: Vec<(ArcId, u32)>,
}

/// An item that a transaction has locked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Locked {
    /// Of which table.
    pub table: TableId,
    /// Which.
    pub key: PrimaryKey,
    /// What becomes of it.
    pub change: Change,
}

/// What becomes of a locked item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// Nothing: it was only looked at.
    Stays,
    /// It will be this, or not be there.
    Becomes(Option<Item>),
}

/// What a transaction has prepared in an arc.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// When it began.
    pub began: EpochMillis,
    /// The arc that decides.
    pub home: ArcId,
    /// Its items, in the order of its operations.
    pub items: Vec<Locked>,
    /// What the operations do, for a command that is repeated.
    pub writes: Vec<Written>,
}

/// The items that transactions have locked in this arc, and by which.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locks(BTreeMap<(TableId, PrimaryKey), TransactionId>);

impl Locks {
    /// Finds them in the state.
    pub(crate) fn read(view: &dyn View) -> Result<Self, ReadError> {
        let mut locks = Self::default();
        for (id, prepared) in keys::read_all_prepared(view)? {
            locks.add(id, &prepared);
        }
        Ok(locks)
    }

    fn add(&mut self, id: TransactionId, prepared: &Prepared) {
        let locked = prepared.items.iter().map(|item| ((item.table, item.key.clone()), id));
        self.0.extend(locked);
    }

    fn remove(&mut self, id: TransactionId, prepared: &Prepared) {
        for item in &prepared.items {
            let place = (item.table, item.key.clone());
            if self.0.get(&place) == Some(&id) {
                self.0.remove(&place);
            }
        }
    }

    /// Whether an item is locked.
    pub(crate) fn contains(&self, table: TableId, key: &PrimaryKey) -> bool {
        // Almost always there is none, and then no key has to be copied.
        !self.0.is_empty() && self.0.contains_key(&(table, key.clone()))
    }

    /// Whether another attempt at the same request has locked one of the items.
    fn are_of_the_same_request(&self, id: TransactionId, operations: &[Write]) -> bool {
        let holder = |write: &Write| self.0.get(&(write.table, write.key.clone()));
        operations.iter().filter_map(holder).any(|holder| holder.has_token_of(id))
    }

    /// The reasons of operations of which one is on a locked item; `None` if none is.
    pub(crate) fn conflicts(&self, operations: &[Write]) -> Option<Vec<CancellationReason>> {
        let reason = |write: &Write| {
            if self.contains(write.table, &write.key) {
                CancellationReason::Conflict
            } else {
                CancellationReason::None
            }
        };
        let reasons: Vec<_> = operations.iter().map(reason).collect();
        reasons.contains(&CancellationReason::Conflict).then_some(reasons)
    }
}

/// Whether a transaction that began then is too old for a step that changes anything.
fn is_old(began: EpochMillis, now: EpochMillis) -> bool {
    now.since(began) > TRANSACTION_LIFE_MS
}

/// Checks the operations of a transaction and locks their items, or says what stands against it.
pub(crate) fn prepare(
    overlay: &mut Overlay<'_>,
    catalogue: &Catalogue,
    locks: &mut Locks,
    first: Sequence,
    now: EpochMillis,
    prepare: Prepare,
) -> Result<Reply, ReadError> {
    let Prepare { id, home, began, mut operations, return_items } = prepare;
    if let Some(known) = keys::read_prepared(overlay, id)? {
        return Ok(Reply::Prepared { writes: known.writes });
    }
    if is_old(began, now) || keys::is_finished(overlay, began, id)? {
        return Ok(Reply::TransactionOver);
    }
    if let Some(reasons) = locks.conflicts(&operations) {
        if locks.are_of_the_same_request(id, &operations) {
            return Ok(Reply::TransactionInProgress);
        }
        return Ok(Reply::TransactionCancelled(reasons));
    }
    let places: Vec<_> = operations
        .iter()
        .map(|write| (write.table, write.key.clone(), matches!(write.action, WriteAction::Check)))
        .collect();
    operations.iter_mut().for_each(|write| write.return_new = true);
    // They are made only to see what comes of it.
    let mut attempt = Overlay::new(overlay);
    let mut writes =
        match transaction::attempt_all(&mut attempt, catalogue, first, now, operations)? {
            Ok(writes) => writes,
            Err(refusal) => return Ok(refusal),
        };
    drop(attempt);
    let mut items = Vec::with_capacity(places.len());
    for ((table, key, stays), written) in places.into_iter().zip(&mut writes) {
        let new = if return_items { written.new.clone() } else { written.new.take() };
        let change = if stays { Change::Stays } else { Change::Becomes(new) };
        items.push(Locked { table, key, change });
    }
    let prepared = Prepared { began, home, items, writes };
    keys::write_prepared(overlay, id, &prepared)?;
    keys::count_step(overlay)?;
    locks.add(id, &prepared);
    Ok(Reply::Prepared { writes: prepared.writes })
}

/// Decides, unless that was done already, and tells the decision that counts.
pub(crate) fn decide(
    overlay: &mut Overlay<'_>,
    now: EpochMillis,
    decide: Decide,
) -> Result<Reply, ReadError> {
    let Decide { id, began, commit, token, sizes, participants } = decide;
    if let Some(known) = keys::read_decision(overlay, began, id)? {
        return Ok(Reply::Decided { commit: known.commit });
    }
    // What is old may have been decided and forgotten.
    let commit = commit && !is_old(began, now);
    if let Some((token, fingerprint)) = token.filter(|_| commit) {
        if let Some(reply) = transaction::recall(overlay, now, &token, fingerprint)? {
            // Another one with this token was made in between: this one is not.
            let decision = Decision { began, commit: false, participants };
            keys::write_decision(overlay, id, &decision, true)?;
            return Ok(reply);
        }
        transaction::remember(overlay, now, &token, fingerprint, sizes)?;
    }
    if mutation::is_active(Mutation::ForgetDecision) {
        return Ok(Reply::Decided { commit });
    }
    // An aborted one need not be finished by anybody but those who find that they prepared it.
    keys::write_decision(overlay, id, &Decision { began, commit, participants }, !commit)?;
    keys::count_step(overlay)?;
    Ok(Reply::Decided { commit })
}

/// Makes what a transaction prepared here, or lets go of it. What was not prepared, or is over
/// already, stays as it is.
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
        return Ok(Reply::Done { more: false });
    };
    for (position, locked) in (first.position..).zip(&prepared.items) {
        let Change::Becomes(new) = &locked.change else { continue };
        // A table that was deleted meanwhile has no items any more.
        if let Some(table) = catalogue.get(locked.table).filter(|_| commit) {
            let sequence = Sequence { position, ..first };
            write::replace_with(overlay, table, sequence, now, &locked.key, new.as_ref())?;
        }
    }
    locks.remove(id, &prepared);
    keys::finish(overlay, id, prepared.began);
    keys::count_step(overlay)?;
    Ok(Reply::Done { more: false })
}

/// The end of a transaction in one arc.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Finish {
    /// Of which transaction.
    pub id: TransactionId,
    /// When it began.
    pub began: EpochMillis,
    /// Whether it is made.
    pub commit: bool,
    /// How many operations it has in this arc.
    pub operations: u32,
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

/// What the transaction with a token did, if it was made here and is not forgotten; or that the
/// token belongs to another one.
///
/// # Errors
/// When the storage cannot be read.
pub fn recall(
    view: &dyn View,
    now: EpochMillis,
    transaction: &Transaction,
) -> Result<Option<Reply>, ReadError> {
    let Some(token) = &transaction.token else { return Ok(None) };
    let fingerprint = transaction::fingerprint(&transaction.operations)?;
    transaction::recall(view, now, token, fingerprint)
}
