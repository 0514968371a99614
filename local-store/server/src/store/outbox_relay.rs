//! Takes the changes of index entries that an arc has for another one there, in order.
//!
//! One for each other arc runs beside every replica, so that an arc that is away holds up nothing but
//! its own, and has work at the leader only. What was brought is trimmed after it was acknowledged;
//! when anything is lost in between, the next round brings it again, and the receiving machine knows
//! it.

use std::time::Duration;

use model::PrimaryKey;
use partition::mutation::{self, Mutation};
use partition::{
    Command, ReadError, Reply, Table, has_arrived, is_outbox_full, read_delivery_batch, under_way,
};
use tokio::time::Instant;

use super::{Store, Unavailable, WeakStore};
use node::ring::ArcId;
use node::{Node, WeakNode};

/// Time after which it looks without having been told that there is something.
const LOOK: Duration = Duration::from_millis(500);
/// Time to wait when nothing was taken: the index is not known there yet, or the arc is away.
const RETRY: Duration = Duration::from_millis(20);
/// Changes that may wait for their way from one arc to another before writes are refused: what 10,000
/// writes a second leave while an arc elects a leader, which takes about two seconds. A outbox_relay brings
/// them in 40 rounds. At 400 KB each they are 8 GB; most have some hundred bytes. Few in tests.
const WAITING_MAX: u64 = if cfg!(test) { 300 } else { 20_000 };
/// The same for what the store does of its own accord, so that it leaves most of it to requests. One
/// step may add some thousands: room is looked for before it.
const WAITING_OF_OWN_MAX: u64 = WAITING_MAX / 4;
/// How long a sweep of TTL that somebody asked for waits for room: a few elections, and less than he waits
/// for an answer. Once that was in vain, it waits no more. Short in tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 20 });
/// After so long without bringing anything that is to be brought, somebody has to hear of it.
const TELL: Duration = Duration::from_secs(60);

impl Store {
    /// Whether so many index entries wait for their way from an item's arc to others that no request
    /// may add more of this table's. What is under way already is not held up, so a few more may come.
    pub(crate) fn holds_up(&self, table: &Table, key: &PrimaryKey) -> Result<bool, ReadError> {
        // Asked before every write: a ring of one arc has no outbox, and opens no view for it.
        if self.arc_count() == 1 {
            return Ok(false);
        }
        is_full(self, &self.replica(table.arc_of(key)), table, WAITING_MAX)
    }
}

fn is_full(store: &Store, replica: &Node, table: &Table, max: u64) -> Result<bool, ReadError> {
    let arcs = store.arc_count();
    Ok(arcs > 1 && is_outbox_full(&*replica.view(), table, arcs, max)?)
}

/// Whether the store may add index entries of a table of its own accord.
pub(crate) fn has_room(store: &Store, replica: &Node, table: &Table) -> Result<bool, Unavailable> {
    let full = is_full(store, replica, table, WAITING_OF_OWN_MAX);
    full.map(|full| !full).map_err(|error| Unavailable::NotDone(error.to_string()))
}

/// Waits until the store may do so, for so long. Gives whether it may.
pub(crate) async fn wait_for_room(
    store: &Store,
    replica: &Node,
    table: &Table,
    patience: Duration,
) -> Result<bool, Unavailable> {
    let until = Instant::now() + patience;
    loop {
        if has_room(store, replica, table)? {
            return Ok(true);
        }
        if Instant::now() >= until {
            return Ok(false);
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Runs for as long as the replica and the store are there.
pub(super) async fn run(replica: WeakNode, store: WeakStore, to: ArcId) {
    let Some(mut applied) = replica.upgrade().map(|replica| replica.applied_entries()) else {
        return;
    };
    let mut stands_since = Instant::now();
    loop {
        // The sender is gone with the replica, and then there is nothing left to do.
        if let Ok(Err(_)) = tokio::time::timeout(LOOK, applied.changed()).await {
            return;
        }
        let (Some(replica), Some(store)) = (replica.upgrade(), store.upgrade()) else { return };
        let outcome = match replica.leads() {
            true => deliver(&store, &replica, to).await,
            false => Ok(Progress::Arrived),
        };
        if matches!(outcome, Ok(Progress::Arrived | Progress::Partly)) {
            stands_since = Instant::now();
        }
        if matches!(outcome, Ok(Progress::Arrived)) {
            continue;
        }
        let (from, to) = (replica.arc().0, to.0);
        let error = match outcome {
            Err(error) => error.to_string(),
            Ok(_) => "their index is not known there yet".to_owned(),
        };
        if stands_since.elapsed() >= TELL {
            tracing::warn!(from, to, error, "index entries wait for their way to another arc");
            stands_since = Instant::now();
        }
        tracing::debug!(from, to, error, "index entries wait for their way to another arc");
        tokio::time::sleep(RETRY).await;
    }
}

/// How far a round came.
enum Progress {
    /// Nothing is left to bring.
    Arrived,
    /// A part was taken.
    Partly,
    /// Nothing was taken: the index is not known there yet.
    Nothing,
}

/// Brings the next changes.
async fn deliver(store: &Store, replica: &Node, to: ArcId) -> Result<Progress, Unavailable> {
    let read = |error: ReadError| Unavailable::NotDone(error.to_string());
    let Some(batch) = read_delivery_batch(&*replica.view(), replica.arc(), to).map_err(read)?
    else {
        return Ok(Progress::Arrived);
    };
    let (first, last) = (batch.first, batch.last());
    if mutation::is_active(Mutation::TrimUnreceived) {
        replica.submit(vec![Command::TrimOutbox { to, upto: last }]).await?;
    }
    let replies = store.replica(to).submit(vec![Command::Receive(Box::new(batch))]).await?;
    let Some(Reply::Received { upto }) = replies.first() else {
        return Err(Unavailable::Unknown("a delivery was not answered as one".to_owned()));
    };
    let upto = *upto;
    if upto.saturating_add(1) < first {
        let what =
            format!("it has the changes up to {upto} alone, and those before {first} are gone");
        return Err(Unavailable::NotDone(what));
    }
    if upto < first {
        return Ok(Progress::Nothing);
    }
    replica.submit(vec![Command::TrimOutbox { to, upto }]).await?;
    Ok(if upto >= last { Progress::Arrived } else { Progress::Partly })
}

/// Returns when the changes that an arc has for others now have arrived.
pub(super) async fn settled(replica: &Node, arcs: u32) -> Result<(), Unavailable> {
    let failed = |error: ReadError| Unavailable::NotDone(error.to_string());
    let numbers = under_way(&*replica.view(), arcs).map_err(failed)?;
    while !has_arrived(&*replica.view(), &numbers).map_err(failed)? {
        if replica.damage().is_stopped() {
            return Err(Unavailable::NotDone("the node has ended".to_owned()));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}
