//! Recovers transactions over several arcs whose coordinator was lost.
//!
//! The leader of an arc watches prepared transactions, and decisions that not all arcs have applied. If a
//! transaction takes longer than a coordinator normally needs, the leader finishes it. The leader requests
//! an abort from the home arc, which replies with its decision: abort, or commit if it has already
//! committed. Every arc then applies this decision. Recovery is idempotent, so two nodes may recover the
//! same transaction at the same time.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::{join_all, try_join_all};
use partition::mutation::{self, Mutation};
use partition::{
    Command, Decide, Decision, Finish, PreparedHead, Reply, TransactionId, read_incomplete,
    read_prepared_heads,
};
use tokio::time::Instant;

use super::{Store, Unavailable};
use node::ring::ArcId;

/// The age at which an unfinished transaction is recovered. It is longer than an election.
const LEFT_OVER_AFTER: Duration = Duration::from_secs(3);

/// The maximum number of transactions that are recovered at the same time.
const AT_ONCE: usize = 100;

/// The unfinished transactions that a node has found, each with the time at which the node found it.
#[derive(Default)]
pub(crate) struct TransactionRecovery {
    first_seen: BTreeMap<(ArcId, TransactionId), Instant>,
}

impl TransactionRecovery {
    /// Recovers the transactions of an arc that this node leads. If a transaction needs an unavailable
    /// arc, it stays unfinished, and the call returns only after the request time-out. All other
    /// transactions are finished.
    pub(crate) async fn finish(&mut self, store: &Store, arc: ArcId) -> Result<(), Unavailable> {
        if store.arc_count() == 1 {
            return Ok(());
        }
        let read = |error: partition::ReadError| Unavailable::NotDone(error.to_string());
        let Some(view) = store.replica(arc).map(|replica| replica.view()) else { return Ok(()) };
        let prepared = read_prepared_heads(&*view).map_err(read)?;
        let unsettled = read_incomplete(&*view).map_err(read)?;
        drop(view);
        let now = Instant::now();
        let ids = prepared.iter().map(|(id, _)| *id).chain(unsettled.iter().map(|(id, _)| *id));
        let mut seen: BTreeMap<(ArcId, TransactionId), Instant> = ids
            .map(|id| ((arc, id), self.first_seen.get(&(arc, id)).copied().unwrap_or(now)))
            .collect();
        self.first_seen.retain(|(other, _), _| *other != arc);
        self.first_seen.append(&mut seen);
        let is_old = |id: TransactionId| {
            let since = self.first_seen.get(&(arc, id));
            since.is_some_and(|since| now.duration_since(*since) >= LEFT_OVER_AFTER)
        };
        let mut outcome = Ok(());
        let old: Vec<_> = prepared.iter().filter(|(id, _)| is_old(*id)).collect();
        for some in old.chunks(AT_ONCE) {
            let all = some.iter().map(|(id, prepared)| finish_prepared(store, arc, *id, prepared));
            outcome = join_all(all).await.into_iter().fold(outcome, Result::and);
        }
        let old: Vec<_> = unsettled.iter().filter(|(id, _)| is_old(*id)).collect();
        for some in old.chunks(AT_ONCE) {
            let all = some.iter().map(|(id, decision)| carry_out(store, arc, *id, decision));
            outcome = join_all(all).await.into_iter().fold(outcome, Result::and);
        }
        outcome
    }
}

/// Requests the decision about a transaction that is prepared in an arc, and applies it in the arc.
pub(crate) async fn finish_prepared(
    store: &Store,
    arc: ArcId,
    id: TransactionId,
    prepared: &PreparedHead,
) -> Result<(), Unavailable> {
    let began = prepared.began;
    let ask = Decide {
        id,
        began,
        commit: false,
        token: None,
        sizes: Vec::new(),
        participants: Vec::new(),
    };
    let replies =
        store.group(prepared.deciding_arc).submit(vec![Command::Decide(Box::new(ask))]).await?;
    let Some(Reply::Decided { commit }) = replies.first() else {
        return Err(Unavailable::Unknown("unexpected reply to a decision".to_owned()));
    };
    let commit = *commit || mutation::is_active(Mutation::CommitAbandoned);
    tracing::info!(commit, "recovered an unfinished transaction");
    let finish = Finish { id, began, commit, operations: prepared.operations };
    store.group(arc).submit(vec![Command::Finish(finish)]).await?;
    Ok(())
}

/// Finishes all prepared attempts of the request with the given token in an arc, including attempts
/// that are already decided.
pub(crate) async fn finish_attempts(
    store: &Store,
    arc: ArcId,
    token: &str,
) -> Result<(), Unavailable> {
    let store = &store.up_to_date_in([arc].into_iter()).await?;
    let prepared = store.read_arc(arc, read_prepared_heads).await?;
    let attempts = prepared.iter().filter(|(id, _)| id.is_attempt_at(token));
    let finishes = attempts.map(|(id, prepared)| finish_prepared(store, arc, *id, prepared));
    try_join_all(finishes).await.map(|_| ())
}

/// Sends a decision to every arc, and records at the home arc that all arcs have applied the
/// decision.
pub(crate) async fn carry_out(
    store: &Store,
    home: ArcId,
    id: TransactionId,
    decision: &Decision,
) -> Result<(), Unavailable> {
    let &Decision { began, commit, .. } = decision;
    let finishes = decision.participants.iter().map(|(arc, operations)| {
        let finish = Finish { id, began, commit, operations: *operations };
        async move { store.group(*arc).submit(vec![Command::Finish(finish)]).await }
    });
    try_join_all(finishes).await?;
    store.group(home).submit(vec![Command::CompleteTransaction { id, began }]).await?;
    Ok(())
}
