//! The coordinator of transactions over several arcs.
//!
//! `partition::two_phase_commit` describes the steps and why they are correct. `transaction_recovery`
//! finishes the transactions of a lost coordinator. If the items and the token of a transaction are in one
//! arc, the transaction is a single command in this arc.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, try_join_all};
use model::{EpochMillis, Item, PrimaryKey};
use partition::mutation::{self, Mutation};
use partition::{
    CancellationReason, Command, Decide, Decision, Finish, Prepare, ReadError, Reply, Table,
    Transaction, TransactionId, View, Write, WriteAction, Written, arc_of_token, find_result,
    fingerprint, is_remembered, read_item, read_prepared, read_transaction_steps,
};
use tokio::task::JoinError;

use super::{Store, Unavailable, routes, transaction_recovery};
use node::ring::ArcId;

/// The maximum number of attempts of a transaction that conflicts with other transactions.
/// [`FIRST_PAUSE`] is the pause before the second attempt, which doubles for each further attempt.
/// All attempts together take longer than a transaction usually takes.
const TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(2);
/// The maximum number of attempts to read several arcs without locks, before the items are locked.
const LOCK_FREE_TRIES: u32 = 3;

/// The positions of a transaction's operations, by arc.
pub(super) type Parts = BTreeMap<ArcId, Vec<usize>>;

/// Executes a transaction. The reply contains the results, or the reason why it was not executed.
pub(super) async fn write(store: &Store, transaction: Transaction) -> Result<Reply, Unavailable> {
    let tables: Vec<_> = transaction.operations.iter().map(|write| write.table).collect();
    let Some(catalogue) = routes::for_items(store, &tables).await? else {
        return Ok(Reply::TableNotFound);
    };
    let mut parts = Parts::new();
    for (place, write) in transaction.operations.iter().enumerate() {
        let Some(table) = catalogue.get(write.table) else { return Ok(Reply::TableNotFound) };
        parts.entry(table.arc_of(&write.key)).or_default().push(place);
    }
    let first = parts.keys().next().copied().unwrap_or_default();
    let token = transaction.token.as_deref();
    let home = token.map_or(first, |token| arc_of_token(token, store.arc_count()));
    if parts.keys().all(|arc| *arc == home) {
        let command = Command::Transaction(Box::new(transaction));
        let replies = store.group(home).submit(vec![command]).await?;
        return replies.into_iter().next().ok_or_else(unanswered);
    }
    let coordinator = Coordinator { store: store.clone(), transaction, parts, home };
    let lost =
        |error| Err(Unavailable::Unknown(format!("the transaction coordinator failed: {error}")));
    to_its_end(store, coordinator.run()).await.unwrap_or_else(lost)
}

impl Store {
    /// Returns whether the store has the result of an executed transaction with the given token.
    /// Also returns true while the outcome is unknown.
    pub(crate) async fn remembers(&self, token: &str) -> Result<bool, Unavailable> {
        let home = arc_of_token(token, self.arc_count());
        let unknown = |error: String| Unavailable::Unknown(error);
        let known = self.up_to_date_in([home].into_iter()).await;
        let known = known.map_err(|error| unknown(error.to_string()))?;
        let read = |view: &dyn View| is_remembered(view, self.now(), token);
        known.read_arc(home, read).await.map_err(|error| unknown(error.to_string()))
    }
}

/// Runs work in a task, which continues even if the caller drops the future. If the work ended
/// early, items could stay locked.
async fn to_its_end<T: Send + 'static>(
    store: &Store,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, JoinError> {
    let held = Arc::clone(&store.shared.coordinated_transactions);
    let outcome = tokio::spawn(async move {
        let outcome = work.await;
        drop(held);
        outcome
    });
    outcome.await
}

fn unanswered() -> Unavailable {
    Unavailable::Unknown("unexpected reply to a command".to_owned())
}

#[derive(Clone)]
struct Coordinator {
    store: Store,
    transaction: Transaction,
    parts: Parts,
    home: ArcId,
}

/// The replies of the arcs to [`Command::Prepare`].
type Votes = Vec<(ArcId, Result<Reply, Unavailable>)>;

impl Coordinator {
    async fn run(self) -> Result<Reply, Unavailable> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..TRIES {
            match self.attempt().await? {
                Reply::TransactionCancelled(reasons) if !is_conflict(&reasons) => {
                    return Ok(Reply::TransactionCancelled(reasons));
                }
                Reply::TransactionCancelled(_) | Reply::TransactionInProgress => {
                    tokio::time::sleep(self.store.shared.ids.spread(pause)).await;
                    pause *= 2;
                }
                reply => return Ok(reply),
            }
        }
        self.attempt().await
    }

    async fn attempt(&self) -> Result<Reply, Unavailable> {
        if let Some(reply) = self.find_result().await? {
            return Ok(reply);
        }
        let token = self.transaction.token.as_deref();
        let (id, began) = (self.store.shared.ids.draw(token), self.store.now());
        let votes = prepare(
            &self.store,
            &self.parts,
            id,
            began,
            self.home,
            |place| self.transaction.operations.get(place).cloned(),
            false,
        )
        .await;
        let writes = match self.count(votes) {
            Ok(writes) => writes,
            Err(refusal) => {
                self.give_up(id, began).await;
                // The condition may have failed because the same transaction was already executed.
                return self.find_result().await?.map_or(refusal, Ok);
            }
        };
        let sizes: Vec<(usize, usize)> =
            writes.iter().map(|written| (written.old_bytes, written.new_bytes)).collect();
        if mutation::is_active(Mutation::AnswerBeforeDecision) {
            let (early, answer) = (self.clone(), writes.clone());
            tokio::spawn(async move { early.decide(id, began, sizes, writes).await });
            return Ok(Reply::Transacted { writes: answer, repeated: false });
        }
        self.decide(id, began, sizes, writes).await
    }

    /// Returns the result of the request's transaction, found by its token, if the transaction was
    /// already executed.
    async fn find_result(&self) -> Result<Option<Reply>, Unavailable> {
        if self.transaction.token.is_none() {
            return Ok(None);
        }
        let store = self.store.up_to_date_in([self.home].into_iter()).await?;
        let read = |view: &dyn View| find_result(view, store.now(), &self.transaction);
        match store.read_arc(self.home, read).await? {
            Some(reply) => self.answer_again(reply).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the result of an earlier execution after its writes are visible to every reader. If the
    /// earlier coordinator is lost or slow, finishes its work.
    async fn answer_again(&self, reply: Reply) -> Result<Reply, Unavailable> {
        if let (Reply::Transacted { .. }, Some(token)) = (&reply, &self.transaction.token) {
            let arcs = self.parts.keys();
            let finishes =
                arcs.map(|arc| transaction_recovery::finish_attempts(&self.store, *arc, token));
            try_join_all(finishes).await.map_err(|error| {
                Unavailable::Unknown(format!(
                    "the transaction is committed, but not visible yet: {error}"
                ))
            })?;
        }
        Ok(reply)
    }

    /// Counts the votes. If every arc has prepared, returns the results of the operations in order.
    /// Otherwise returns the reason why the transaction is not executed.
    fn count(&self, votes: Votes) -> Result<Vec<Written>, Result<Reply, Unavailable>> {
        let count = self.transaction.operations.len();
        let mut writes = vec![Written::default(); count];
        let mut reasons = vec![CancellationReason::None; count];
        let mut refusal = None;
        for (arc, vote) in votes {
            let places = self.parts.get(&arc).into_iter().flatten();
            match vote {
                Ok(Reply::Prepared { writes: own }) => {
                    for (place, written) in places.zip(own) {
                        if let Some(slot) = writes.get_mut(*place) {
                            *slot = written;
                        }
                    }
                }
                Ok(Reply::TransactionCancelled(own)) => {
                    for (place, reason) in places.zip(own) {
                        if let Some(slot) = reasons.get_mut(*place) {
                            *slot = reason;
                        }
                    }
                }
                Ok(Reply::TransactionOver) => {
                    refusal =
                        Some(Err(Unavailable::NotDone("the transaction timed out".to_owned())));
                }
                Ok(other) => refusal = Some(Ok(other)),
                // It is unknown whether the arc has prepared. Nothing was executed, because there is
                // no decision to commit.
                Err(error) => refusal = Some(Err(Unavailable::NotDone(error.to_string()))),
            }
        }
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        if reasons.iter().any(|reason| *reason != CancellationReason::None) {
            return Err(Ok(Reply::TransactionCancelled(reasons)));
        }
        Ok(writes)
    }

    /// Aborts the transaction and releases its locks in all arcs. If an arc cannot be reached, recovery
    /// releases its locks later.
    async fn give_up(&self, id: TransactionId, began: EpochMillis) {
        let _ = finish(&self.store, &self.parts, id, began, false).await;
    }

    async fn decide(
        &self,
        id: TransactionId,
        began: EpochMillis,
        sizes: Vec<(usize, usize)>,
        writes: Vec<Written>,
    ) -> Result<Reply, Unavailable> {
        let token = match &self.transaction.token {
            Some(token) => {
                let fingerprint = fingerprint(&self.transaction.operations)
                    .map_err(|error| Unavailable::NotDone(error.to_string()))?;
                Some((token.clone(), fingerprint))
            }
            None => None,
        };
        let participants = participants(&self.parts);
        let decision = Decision { began, commit: true, participants: participants.clone() };
        let decide = Decide { id, began, commit: true, token, sizes, participants };
        let home = self.store.group(self.home);
        let decided = home.submit(vec![Command::Decide(Box::new(decide))]);
        let reply = match decided.await {
            Ok(replies) => replies.into_iter().next().ok_or_else(unanswered)?,
            Err(error) => {
                let error = Unavailable::from(error);
                if matches!(error, Unavailable::NotDone(_)) {
                    self.give_up(id, began).await;
                }
                return Err(error);
            }
        };
        if reply != (Reply::Decided { commit: true }) {
            self.give_up(id, began).await;
            return match reply {
                // This attempt was aborted. A concurrent attempt of the same request may have
                // committed earlier.
                Reply::Decided { .. } => self.find_result().await?.ok_or_else(|| {
                    Unavailable::NotDone("the transaction timed out and was aborted".to_owned())
                }),
                made_before => self.answer_again(made_before).await,
            };
        }
        if finish(&self.store, &self.parts, id, began, true).await.is_err() {
            return Err(Unavailable::Unknown(
                "the transaction is committed, but not visible yet".to_owned(),
            ));
        }
        let (store, home) = (self.store.clone(), self.home);
        tokio::spawn(async move {
            // If this command fails, the leader of the home arc retries it during recovery.
            let settled = Decision { participants: Vec::new(), ..decision };
            let _ = transaction_recovery::carry_out(&store, home, id, &settled).await;
        });
        Ok(Reply::Transacted { writes, repeated: false })
    }
}

fn participants(parts: &Parts) -> Vec<(ArcId, u32)> {
    let count = |places: &Vec<usize>| u32::try_from(places.len()).unwrap_or(u32::MAX);
    parts.iter().map(|(arc, places)| (*arc, count(places))).collect()
}

fn is_conflict(reasons: &[CancellationReason]) -> bool {
    let harmless =
        |reason| matches!(reason, &CancellationReason::None | &CancellationReason::Conflict);
    reasons.iter().all(harmless)
}

async fn prepare(
    store: &Store,
    parts: &Parts,
    id: TransactionId,
    began: EpochMillis,
    deciding_arc: ArcId,
    operation: impl Fn(usize) -> Option<Write>,
    return_items: bool,
) -> Votes {
    let prepares = parts.iter().map(|(arc, places)| {
        let operations = places.iter().filter_map(|place| operation(*place)).collect();
        let prepare = Prepare { id, deciding_arc, began, operations, return_items };
        async move {
            let group = store.group(*arc);
            let sent = group.submit(vec![Command::Prepare(Box::new(prepare))]);
            let vote = match sent.await {
                Ok(replies) => replies.into_iter().next().ok_or_else(unanswered),
                Err(error) => Err(error.into()),
            };
            (*arc, vote)
        }
    });
    join_all(prepares).await
}

/// Sends the decision about a transaction to every arc. Returns the replies.
async fn finish(
    store: &Store,
    parts: &Parts,
    id: TransactionId,
    began: EpochMillis,
    commit: bool,
) -> Result<Vec<Reply>, Unavailable> {
    let finishes = participants(parts).into_iter().map(|(arc, operations)| {
        let finish = Finish { id, began, commit, operations };
        async move { store.group(arc).submit(vec![Command::Finish(finish)]).await }
    });
    let answers = join_all(finishes).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(answers.into_iter().flatten().collect())
}

/// An item to read.
pub(crate) type WantedItem<'r> = (&'r Arc<Table>, &'r PrimaryKey);

/// Reads items atomically with respect to transactions. If running transactions prevent the read,
/// returns the reason for each item.
///
/// # Errors
/// See [`Unavailable`].
pub(crate) async fn read(
    store: &Store,
    wanted: &[WantedItem<'_>],
) -> Result<Result<Vec<Option<Item>>, Vec<CancellationReason>>, Unavailable> {
    let mut parts = Parts::new();
    for (place, (table, key)) in wanted.iter().enumerate() {
        parts.entry(table.arc_of(key)).or_default().push(place);
    }
    for _ in 0..LOCK_FREE_TRIES {
        if let Some(items) = read_without_locks(store, &parts, wanted).await? {
            return Ok(Ok(items));
        }
    }
    let mut pause = FIRST_PAUSE;
    for _ in 1..TRIES {
        match read_with_locks(store, &parts, wanted).await? {
            Ok(items) => return Ok(Ok(items)),
            Err(_) => tokio::time::sleep(store.shared.ids.spread(pause)).await,
        }
        pause *= 2;
    }
    read_with_locks(store, &parts, wanted).await
}

/// Reads items without locking them. Returns `None` if the values may be from different points in time.
///
/// The function reads all items twice. If both reads return the same values, the items had these values at
/// the same time between the reads. A value that changes and changes back counts as unchanged, because no
/// reader can distinguish this from another order.
async fn read_without_locks(
    store: &Store,
    parts: &Parts,
    wanted: &[WantedItem<'_>],
) -> Result<Option<Vec<Option<Item>>>, Unavailable> {
    let Some(first) = look(store, parts, wanted).await? else { return Ok(None) };
    // The view of an arc is a snapshot, so the second read is needed only for several arcs.
    if parts.len() > 1 && look(store, parts, wanted).await?.as_ref() != Some(&first) {
        return Ok(None);
    }
    Ok(Some(first.items))
}

/// The result of one read of the items.
#[derive(PartialEq)]
pub(super) struct ItemReads {
    items: Vec<Option<Item>>,
    /// For each arc, the number of executed steps of transactions over several arcs.
    steps: Vec<u64>,
}

/// Reads items from a snapshot of each arc, which contains every write that was acknowledged before the call.
/// Returns `None` if a transaction over several arcs has locked an item, because its writes may be visible in
/// only some of the arcs.
pub(super) async fn look(
    store: &Store,
    parts: &Parts,
    wanted: &[WantedItem<'_>],
) -> Result<Option<ItemReads>, Unavailable> {
    let mut found = ItemReads { items: vec![None; wanted.len()], steps: Vec::new() };
    let strong = store.up_to_date_in(parts.keys().copied()).await?;
    for (arc, places) in parts {
        let own: Vec<_> = places.iter().filter_map(|place| wanted.get(*place)).collect();
        let Some(in_arc) = strong.read_arc(*arc, |view| look_in(view, &own)).await? else {
            return Ok(None);
        };
        found.steps.extend(in_arc.steps);
        for (place, item) in places.iter().zip(in_arc.items) {
            if let Some(slot) = found.items.get_mut(*place) {
                *slot = item;
            }
        }
    }
    Ok(Some(found))
}

/// Reads items from a snapshot of one arc. Returns `None` if an item is locked.
fn look_in(view: &dyn View, wanted: &[&WantedItem<'_>]) -> Result<Option<ItemReads>, ReadError> {
    let steps = read_transaction_steps(view)?;
    let prepared = read_prepared(view)?;
    let mut locked = prepared.iter().flat_map(|(_, prepared)| &prepared.items);
    if locked.any(|locked| {
        wanted.iter().any(|(table, key)| table.id == locked.table && **key == locked.key)
    }) {
        return Ok(None);
    }
    let items = wanted.iter().map(|(table, key)| read_item(view, table, key));
    let items = items.collect::<Result<_, _>>()?;
    Ok(Some(ItemReads { items, steps: vec![steps] }))
}

/// Locks all items, reads them, and releases the locks.
pub(super) async fn read_with_locks(
    store: &Store,
    parts: &Parts,
    wanted: &[WantedItem<'_>],
) -> Result<Result<Vec<Option<Item>>, Vec<CancellationReason>>, Unavailable> {
    let check = |(table, key): &WantedItem<'_>| Write {
        table: table.id,
        key: PrimaryKey::clone(key),
        action: WriteAction::Check,
        condition: None,
        return_old: false,
        return_new: false,
        return_on_failure: false,
    };
    let reader = LockingReader {
        store: store.clone(),
        parts: parts.clone(),
        checks: wanted.iter().map(check).collect(),
        id: store.shared.ids.draw(None),
        began: store.now(),
    };
    let lost = |error| Err(Unavailable::NotDone(format!("the locking read failed: {error}")));
    to_its_end(store, reader.read()).await.unwrap_or_else(lost)
}

/// A read that locks its items: it prepares a transaction, and then releases it.
pub(super) struct LockingReader {
    pub(super) store: Store,
    pub(super) parts: Parts,
    /// One condition check for each item. An arc that prepares the checks locks the items.
    pub(super) checks: Vec<Write>,
    pub(super) id: TransactionId,
    pub(super) began: EpochMillis,
}

impl LockingReader {
    async fn read(self) -> Result<Result<Vec<Option<Item>>, Vec<CancellationReason>>, Unavailable> {
        let found = self.lock().await;
        let release = self.release().await;
        match found? {
            // If recovery has released the locks early, another client may have written to an arc before
            // the next arc was locked. The values would then be from different points in time.
            Ok(items) if release? => Ok(Ok(items)),
            Ok(_) => Ok(Err(vec![CancellationReason::Conflict; self.checks.len()])),
            Err(reasons) => Ok(Err(reasons)),
        }
    }

    /// Locks the items and returns their values. If another transaction has locked some of the items,
    /// returns the reason for each item.
    pub(super) async fn lock(
        &self,
    ) -> Result<Result<Vec<Option<Item>>, Vec<CancellationReason>>, Unavailable> {
        let home = self.parts.keys().next().copied().unwrap_or_default();
        let check = |place: usize| self.checks.get(place).cloned();
        let votes = prepare(&self.store, &self.parts, self.id, self.began, home, check, true).await;
        let mut items = vec![None; self.checks.len()];
        let mut reasons = vec![CancellationReason::None; self.checks.len()];
        let mut is_locked = true;
        for (arc, vote) in votes {
            let places = self.parts.get(&arc).into_iter().flatten();
            match vote? {
                Reply::Prepared { writes } => {
                    for (place, written) in places.zip(writes) {
                        if let Some(slot) = items.get_mut(*place) {
                            *slot = written.new;
                        }
                    }
                }
                Reply::TransactionCancelled(own) => {
                    is_locked = false;
                    for (place, reason) in places.zip(own) {
                        if let Some(slot) = reasons.get_mut(*place) {
                            *slot = reason;
                        }
                    }
                }
                reply => return Err(why_not_locked(&reply)),
            }
        }
        Ok(if is_locked { Ok(items) } else { Err(reasons) })
    }

    /// Releases the locks. Returns true if all locks were still held. If true, all items were locked at
    /// the same time, because a released transaction is never prepared again.
    pub(super) async fn release(&self) -> Result<bool, Unavailable> {
        let replies = finish(&self.store, &self.parts, self.id, self.began, false).await?;
        Ok(replies.iter().all(|reply| matches!(reply, Reply::Transacted { .. })))
    }
}

/// Returns the error for an arc that did not lock the items for a reason other than a conflict.
fn why_not_locked(reply: &Reply) -> Unavailable {
    let why = match reply {
        Reply::TableNotFound => "a table of the request was deleted",
        Reply::TransactionOver => "the transaction timed out",
        _ => "unexpected reply to a command",
    };
    Unavailable::NotDone(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_cannot_lock_its_items_returns_the_reason() {
        for (reply, why) in [
            (Reply::TableNotFound, "a table of the request was deleted"),
            (Reply::TransactionOver, "the transaction timed out"),
            (Reply::TableExists, "unexpected reply to a command"),
        ] {
            assert_eq!(why_not_locked(&reply), Unavailable::NotDone(why.to_owned()));
        }
    }
}
