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

use model::{EncodedItem, EpochMillis, PrimaryKey};
use serde::{Deserialize, Serialize};

use crate::catalogue::Catalogue;
use crate::command::{Write, WriteAction};
use crate::image::damaged;
use crate::keys::item;
use crate::keys::two_phase_commit as keys;
use crate::mutation::{self, Mutation};
use crate::placement::ArcId;
use crate::reply::{CancellationReason, Reply};
use crate::storage::{Overlay, ReadError, View};
use crate::stream::Sequence;
use crate::table::TableId;
use crate::transaction::{self, TRANSACTION_TOO_LARGE};
use crate::write;

/// For how long a transaction may begin steps that change anything, in milliseconds of store time.
const TRANSACTION_LIFE_MS: u64 = 60_000;
/// Records of transactions that one command forgets at most.
const FORGOTTEN_MAX: usize = 1000;
/// Bytes that the items of a transaction may become in one arc: what it prepared is one value, and
/// has to fit into a message between nodes when a snapshot is sent.
const PREPARED_BYTES_MAX: usize = 32 * 1024 * 1024;

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
    pub fate: Fate,
}

/// What becomes of a locked item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fate {
    /// Nothing: it was only looked at.
    Stays,
    /// It will be this, or not be there.
    Becomes(Option<EncodedItem>),
}

/// What a transaction has prepared in an arc. In the storage it begins as [`PreparedHead`] does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// When it began.
    pub began: EpochMillis,
    /// The arc that decides.
    pub home: ArcId,
    /// Its items, in the order of its operations.
    pub items: Vec<Locked>,
}

/// What has to be known of a transaction to end it, without its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedHead {
    /// When it began.
    pub began: EpochMillis,
    /// The arc that decides.
    pub home: ArcId,
    /// How many operations it has in this arc.
    pub operations: u32,
}

/// The keys of the items, as the storage has them, that transactions have locked in this arc, and by
/// which.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locks(BTreeMap<Vec<u8>, TransactionId>);

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
        let locked =
            prepared.items.iter().map(|locked| (item::encode(locked.table, &locked.key), id));
        self.0.extend(locked);
    }

    fn remove(&mut self, id: TransactionId, prepared: &Prepared) {
        for locked in &prepared.items {
            let stored = item::encode(locked.table, &locked.key);
            if self.0.get(&stored) == Some(&id) {
                self.0.remove(&stored);
            }
        }
    }

    /// Whether the item is locked that stands under this key.
    pub(crate) fn contains(&self, stored: &[u8]) -> bool {
        self.0.contains_key(stored)
    }

    fn holder(&self, write: &Write) -> Option<&TransactionId> {
        self.0.get(&item::encode(write.table, &write.key))
    }

    /// Whether another attempt at the same request, or this one, has locked one of the items.
    fn are_of_the_same_request(&self, id: TransactionId, operations: &[Write]) -> bool {
        let mut holders = operations.iter().filter_map(|write| self.holder(write));
        holders.any(|holder| holder.has_token_of(id))
    }

    /// The reasons of operations of which one is on a locked item; `None` if none is.
    pub(crate) fn conflicts(&self, operations: &[Write]) -> Option<Vec<CancellationReason>> {
        // Almost always there is none, and then no key has to be made.
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
