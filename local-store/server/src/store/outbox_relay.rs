//! The outbox relay: delivers changes of index entries from one arc to another arc, in order.
//!
//! Every replica runs a relay for each other arc, so an unavailable arc blocks only its own delivery. Only
//! the relays of the leader deliver. Changes are deleted from the outbox after the receiving arc has
//! acknowledged them. If a delivery or its acknowledgement is lost, the next round retries it, and the
//! receiving arc discards duplicates. Delivery is at-least-once, and application is exactly-once.

use std::time::Duration;

use model::PrimaryKey;
use partition::mutation::{self, Mutation};
use partition::{
    Command, IndexKind, ReadError, Reply, Table, View, has_arrived, is_outbox_full,
    read_delivery_batch, unacknowledged_changes,
};
use tokio::time::Instant;

use super::{Store, Unavailable, WeakStore};
use node::ring::ArcId;
use node::{Node, WeakNode};

/// The interval at which the outbox is checked if there is no notification.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The pause after a round in which the receiving arc accepted no change, because it does not have the
/// index yet or is unavailable.
const RETRY: Duration = Duration::from_millis(20);
/// The number of waiting changes for one arc at which writes are refused (back-pressure).
///
/// An election takes about two seconds, in which 10,000 writes a second add this many changes. The relay
/// delivers them in 40 rounds. A change usually has a few hundred bytes; if all changes had the maximum
/// of 400 KB, they would take 8 GB. Tests use a small number.
const WAITING_MAX: u64 = if cfg!(test) { 300 } else { 20_000 };
/// The number of waiting changes at which the store's background work pauses. It is a quarter of
/// [`WAITING_MAX`], so that most of the space is available to requests. The store checks the number
/// before each step, which can add several thousand changes.
const WAITING_OF_OWN_MAX: u64 = WAITING_MAX / 4;
/// The maximum time that a requested TTL sweep waits for space in the outbox. It is longer than a
/// few elections, and shorter than the client's time-out. A sweep that has timed out once does not
/// wait a second time. Tests use a short time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 20 });
/// The time without a successful delivery after which the relay logs a warning.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

impl Store {
    /// Returns whether writes to a table are blocked in an item's arc, because too many changes wait
    /// for other arcs. Writes in progress are not blocked, so the number can exceed the maximum
    /// slightly.
    pub(crate) async fn blocks_writes(
        &self,
        table: &Table,
        key: &PrimaryKey,
    ) -> Result<bool, Unavailable> {
        // Fast path, because this check precedes every write: a store with one arc has no outbox.
        if self.arc_count() == 1 {
            return Ok(false);
        }
        if table.indexes_of(IndexKind::Global).next().is_none() {
            return Ok(false);
        }
        let is_full = |view: &dyn View| is_outbox_full(view, table, self.arc_count(), WAITING_MAX);
        self.read_arc(table.arc_of(key), is_full).await
    }
}

/// Returns whether background work of the store may add index entries of a table in an arc.
pub(crate) async fn has_room(
    store: &Store,
    arc: ArcId,
    table: &Table,
) -> Result<bool, Unavailable> {
    let arcs = store.arc_count();
    if arcs == 1 {
        return Ok(true);
    }
    let is_full = |view: &dyn View| is_outbox_full(view, table, arcs, WAITING_OF_OWN_MAX);
    store.read_arc(arc, is_full).await.map(|full| !full)
}

/// Waits at most `patience` until background work may add index entries. Returns false after a time-out.
pub(crate) async fn wait_for_room(
    store: &Store,
    arc: ArcId,
    table: &Table,
    patience: Duration,
) -> Result<bool, Unavailable> {
    let until = Instant::now() + patience;
    loop {
        if has_room(store, arc, table).await? {
            return Ok(true);
        }
        if Instant::now() >= until {
            return Ok(false);
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Runs the relay while the replica and the store exist.
pub(super) async fn run(replica: WeakNode, store: WeakStore, to: ArcId) {
    let Some(mut applied) = replica.upgrade().map(|replica| replica.applied_entries()) else {
        return;
    };
    let mut last_progress = Instant::now();
    loop {
        // If the sender was dropped, the replica has ended, so the relay also ends.
        if let Ok(Err(_)) = tokio::time::timeout(CHECK_INTERVAL, applied.changed()).await {
            return;
        }
        let (Some(replica), Some(store)) = (replica.upgrade(), store.upgrade()) else { return };
        let outcome = match replica.leads() {
            true => deliver(&store, &replica, to).await,
            false => Ok(Progress::AllDelivered),
        };
        if matches!(outcome, Ok(Progress::AllDelivered | Progress::PartDelivered)) {
            last_progress = Instant::now();
        }
        if matches!(outcome, Ok(Progress::AllDelivered)) {
            continue;
        }
        let (from, to) = (replica.arc().0, to.0);
        let error = match outcome {
            Err(error) => error.to_string(),
            Ok(_) => "the receiving arc does not have the index yet".to_owned(),
        };
        if last_progress.elapsed() >= LOG_INTERVAL {
            tracing::warn!(from, to, error, "index entries for another arc are not delivered yet");
            last_progress = Instant::now();
        }
        tracing::debug!(from, to, error, "index entries for another arc are not delivered yet");
        tokio::time::sleep(RETRY).await;
    }
}

/// The progress of one round of delivery.
enum Progress {
    /// All waiting changes were delivered.
    AllDelivered,
    /// The receiving arc accepted at least one change, but not all.
    PartDelivered,
    /// The receiving arc accepted no change, because it does not have the index yet.
    Nothing,
}

/// Delivers the next waiting changes in one round.
async fn deliver(store: &Store, replica: &Node, to: ArcId) -> Result<Progress, Unavailable> {
    let read = |error: ReadError| Unavailable::NotDone(error.to_string());
    let Some(batch) = read_delivery_batch(&*replica.view(), replica.arc(), to).map_err(read)?
    else {
        return Ok(Progress::AllDelivered);
    };
    let (first, last) = (batch.first, batch.last());
    if mutation::is_active(Mutation::TrimUnreceived) {
        replica.submit(vec![Command::TrimOutbox { to, upto: last }]).await?;
    }
    let replies = store.group(to).submit(vec![Command::Receive(Box::new(batch))]).await?;
    let Some(Reply::Received { upto }) = replies.first() else {
        return Err(Unavailable::Unknown("unexpected reply to a delivery".to_owned()));
    };
    let upto = *upto;
    if upto.saturating_add(1) < first {
        let what = format!(
            "the receiving arc has the changes up to {upto}, but this arc has already deleted the changes before {first}"
        );
        return Err(Unavailable::NotDone(what));
    }
    if upto < first {
        return Ok(Progress::Nothing);
    }
    replica.submit(vec![Command::TrimOutbox { to, upto }]).await?;
    Ok(if upto >= last { Progress::AllDelivered } else { Progress::PartDelivered })
}

/// Waits until all changes that are in an arc's outbox at the time of the call have been delivered.
pub(super) async fn wait_until_delivered(store: &Store, arc: ArcId) -> Result<(), Unavailable> {
    let arcs = store.arc_count();
    let numbers = store.read_arc(arc, |view| unacknowledged_changes(view, arcs)).await?;
    while !store.read_arc(arc, |view| has_arrived(view, &numbers)).await? {
        if store.replica(arc).is_some_and(|replica| replica.damage().is_stopped()) {
            return Err(Unavailable::NotDone("the node has stopped".to_owned()));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}
