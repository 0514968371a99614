//! Transactional outbox: delivers changes of index entries to the arcs that hold the entries.
//!
//! The batch of a write contains its changes of entries in other arcs, numbered without gaps for
//! each destination. The server's relay sends the changes in order and removes acknowledged
//! changes. The receiving arc accepts number *n + 1* only after *n*. Therefore a duplicate, late or
//! out-of-order delivery has no effect, and no change is lost.

use crate::arcs::delivery::{Delivery, DeliveryBatch};
use crate::catalogue::Catalogue;
use crate::command::reply::Reply;
use crate::image::stored_size;
use crate::keys::index_statistics;
use crate::keys::outbox::{self, Progress};
use crate::keys::statistics::Statistics;
use crate::mutation::{self, Mutation};
use crate::storage::overlay::Overlay;
use crate::storage::{ReadError, View};
use crate::table::Table;
use crate::table::index::{IndexKind, IndexStatus, SecondaryIndex};
use crate::table::placement::{ARCS_MAX, ArcId};

/// The maximum number of changes in one delivery. [`DELIVERY_BYTES_MAX`] limits its bytes,
/// approximately.
const DELIVERIES_MAX: usize = 500;
const DELIVERY_BYTES_MAX: usize = 1024 * 1024;

/// Appends a change to the outbox for another arc.
pub(crate) fn push(
    overlay: &mut Overlay<'_>,
    to: ArcId,
    delivery: &Delivery,
) -> Result<(), ReadError> {
    if mutation::is_active(Mutation::SkipOutbox) {
        return Ok(());
    }
    let mut progress = outbox::read_progress(overlay, to)?;
    progress.last += 1;
    outbox::write(overlay, to, progress.last, delivery)?;
    outbox::write_progress(overlay, to, progress)
}

/// Returns the next changes to deliver from this arc to another arc; `None` if there are none.
///
/// # Errors
/// When the storage cannot be read.
pub fn read_delivery_batch(
    view: &dyn View,
    from: ArcId,
    to: ArcId,
) -> Result<Option<DeliveryBatch>, ReadError> {
    let Progress { last, acknowledged } = outbox::read_progress(view, to)?;
    if last == acknowledged {
        return Ok(None);
    }
    let deliveries =
        outbox::read_behind(view, to, acknowledged, DELIVERIES_MAX, DELIVERY_BYTES_MAX)?;
    if deliveries.is_empty() {
        return Err(outbox::missing(to, acknowledged.saturating_add(1)));
    }
    Ok(Some(DeliveryBatch { from, first: acknowledged + 1, deliveries }))
}

/// Returns the arcs with unacknowledged changes, each with the number of its last change.
///
/// # Errors
/// When the storage cannot be read.
pub fn unacknowledged_changes(view: &dyn View, arcs: u32) -> Result<Vec<(ArcId, u64)>, ReadError> {
    let mut found = Vec::new();
    for to in (0..arcs.min(ARCS_MAX)).map(ArcId) {
        let Progress { last, acknowledged } = outbox::read_progress(view, to)?;
        if last > acknowledged {
            found.push((to, last));
        }
    }
    Ok(found)
}

/// Returns whether every given arc has acknowledged the changes up to its given number, inclusive.
pub fn has_arrived(view: &dyn View, numbers: &[(ArcId, u64)]) -> Result<bool, ReadError> {
    for (to, number) in numbers {
        if outbox::read_progress(view, *to)?.acknowledged < *number {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether the outbox has `waiting_max` or more changes for any arc that can hold index
/// entries of a table.
pub fn is_outbox_full(
    view: &dyn View,
    table: &Table,
    arcs: u32,
    waiting_max: u64,
) -> Result<bool, ReadError> {
    // Only global indexes have entries in other arcs, and an index that is being removed gets no
    // new entries.
    if !table.indexes_of(IndexKind::Global).any(SecondaryIndex::is_maintained) {
        return Ok(false);
    }
    for to in (0..arcs.min(ARCS_MAX)).map(ArcId) {
        let Progress { last, acknowledged } = outbox::read_progress(view, to)?;
        let is_full = last.saturating_sub(acknowledged) >= waiting_max;
        if is_full && table.placement.arcs().contains(&to) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes the changes for an arc up to a number (inclusive), which the arc has acknowledged.
pub(crate) fn trim(overlay: &mut Overlay<'_>, to: ArcId, upto: u64) -> Result<Reply, ReadError> {
    let mut progress = outbox::read_progress(overlay, to)?;
    let upto = upto.min(progress.last);
    for number in progress.acknowledged + 1..=upto {
        outbox::delete(overlay, to, number);
    }
    if upto > progress.acknowledged {
        progress.acknowledged = upto;
        outbox::write_progress(overlay, to, progress)?;
    }
    Ok(Reply::Done { more: progress.last > progress.acknowledged })
}

/// The decision of a receiving arc about one change of an index entry.
enum ReceiveDecision {
    /// Apply the change: the index exists in this arc.
    Apply,
    /// Discard the change: the table or the index was deleted.
    Discard,
    /// Reject the change for now: this arc does not have the index yet. The sender retries.
    TooEarly,
}

fn judge(catalogue: &Catalogue, delivery: &Delivery) -> ReceiveDecision {
    // Items are written only after every arc has the table. A table that is missing in this arc was
    // therefore deleted.
    let Some(table) = catalogue.get(delivery.table) else { return ReceiveDecision::Discard };
    match table.indexes.iter().find(|index| index.number == delivery.index) {
        Some(index) if index.status != IndexStatus::Deleting => ReceiveDecision::Apply,
        None if delivery.index.0 >= table.next_index => ReceiveDecision::TooEarly,
        Some(_) | None => ReceiveDecision::Discard,
    }
}

/// Applies those changes of a delivery that this arc has not received yet. Replies with the number
/// of the last change received.
pub(crate) fn receive(
    overlay: &mut Overlay<'_>,
    catalogue: &Catalogue,
    batch: &DeliveryBatch,
) -> Result<Reply, ReadError> {
    let known = outbox::read_received(overlay, batch.from)?;
    let mut received = known;
    for (number, delivery) in (batch.first..=batch.last()).zip(&batch.deliveries) {
        if number <= received && !mutation::is_active(Mutation::UnguardedDelivery) {
            continue;
        }
        if number > received + 1 {
            break;
        }
        match judge(catalogue, delivery) {
            ReceiveDecision::Apply => take(overlay, delivery)?,
            ReceiveDecision::Discard => {}
            ReceiveDecision::TooEarly => break,
        }
        received = received.max(number);
    }
    if received > known {
        outbox::write_received(overlay, batch.from, received)?;
    }
    Ok(Reply::Received { upto: received })
}

fn take(overlay: &mut Overlay<'_>, delivery: &Delivery) -> Result<(), ReadError> {
    let &Delivery { table, index, ref key, ref entry } = delivery;
    let before = overlay.get(key)?.as_deref().map(stored_size).transpose()?;
    let after = entry.as_deref().map(stored_size).transpose()?;
    let statistics = index_statistics::read(overlay, table, index)?
        .with_replaced(Statistics::of_one(before), Statistics::of_one(after));
    index_statistics::write(overlay, table, index, &statistics)?;
    match entry {
        Some(entry) => overlay.put(key.clone(), entry.as_slice()),
        None => overlay.delete(key.clone()),
    }
    Ok(())
}
