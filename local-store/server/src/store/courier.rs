//! Takes the changes of index entries that an arc has for another one there, in order.
//!
//! One for each other arc runs beside every replica, so that an arc that is away holds up nothing but
//! its own, and has work at the leader only. What was brought is trimmed after it was acknowledged;
//! when anything is lost in between, the next round brings it again, and the receiving machine knows
//! it.

use std::time::Duration;

use partition::mutation::{self, Mutation};
use partition::{Command, Reply, has_arrived, read_parcel, under_way};

use super::{Store, Unavailable, WeakStore};
use crate::node::{Node, WeakNode};
use crate::ring::ArcId;

/// Time after which it looks without having been told that there is something.
const LOOK: Duration = Duration::from_millis(500);
/// Time to wait when nothing was taken: the index is not known there yet, or the arc is away.
const RETRY: Duration = Duration::from_millis(20);

/// Runs for as long as the replica and the store are there.
pub(super) async fn run(replica: WeakNode, store: WeakStore, to: ArcId) {
    let Some(mut applied) = replica.upgrade().map(|replica| replica.applied_entries()) else {
        return;
    };
    loop {
        // The sender is gone with the replica, and then there is nothing left to do.
        if let Ok(Err(_)) = tokio::time::timeout(LOOK, applied.changed()).await {
            return;
        }
        let (Some(replica), Some(store)) = (replica.upgrade(), store.upgrade()) else { return };
        if !replica.leads() {
            continue;
        }
        match deliver(&store, &replica, to).await {
            Ok(true) => {}
            Ok(false) => tokio::time::sleep(RETRY).await,
            Err(error) => {
                tracing::debug!(%error, "index entries wait for their way to another arc");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Brings the next changes. Gives whether all of them were taken.
async fn deliver(store: &Store, replica: &Node, to: ArcId) -> Result<bool, Unavailable> {
    let read = |error: partition::ReadError| Unavailable::NotDone(error.to_string());
    let Some(parcel) = read_parcel(&*replica.view(), replica.arc(), to).map_err(read)? else {
        return Ok(true);
    };
    let (first, last) = (parcel.first, parcel.last());
    if mutation::is_active(Mutation::TrimUnreceived) {
        replica.submit(vec![Command::TrimOutbox { to, upto: last }]).await?;
    }
    let replies = store.replica(to).submit(vec![Command::Receive(Box::new(parcel))]).await?;
    let Some(Reply::Received { upto }) = replies.first() else {
        return Err(Unavailable::Unknown("a delivery was not answered as one".to_owned()));
    };
    if *upto >= first {
        replica.submit(vec![Command::TrimOutbox { to, upto: *upto }]).await?;
    }
    Ok(*upto >= last)
}

/// Returns when the changes that an arc has for others now have arrived.
pub(super) async fn settled(replica: &Node, arcs: u32) -> Result<(), Unavailable> {
    let failed = |error: partition::ReadError| Unavailable::NotDone(error.to_string());
    let numbers = under_way(&*replica.view(), arcs).map_err(failed)?;
    while !has_arrived(&*replica.view(), &numbers).map_err(failed)? {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}
