//! Keys of deliveries between arcs:
//!
//! - `[12] arc:u32 number:u64`: a change that waits for delivery to that arc.
//! - `[13] arc:u32`: the progress of the deliveries to that arc.
//! - `[14] arc:u32`: the number of the last change received from that arc.
//!
//! The module `arcs::outbox` sends and receives the changes.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use super::{Family, decode_value, encode_value};
use crate::arcs::delivery::Delivery;
use crate::storage::overlay::Overlay;
use crate::storage::{ReadError, View, end_of_prefix};
use crate::table::placement::ArcId;

/// The progress of the deliveries to one arc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// The number of the last change that was added; 0 before the first.
    pub(crate) last: u64,
    /// The number up to which changes have been acknowledged, inclusive.
    pub(crate) acknowledged: u64,
}

fn of_arc(family: Family, arc: ArcId) -> Vec<u8> {
    let mut key = vec![family as u8];
    key.extend_from_slice(&arc.0.to_be_bytes());
    key
}

fn entry_key(to: ArcId, number: u64) -> Vec<u8> {
    let mut key = of_arc(Family::Outbox, to);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

pub(crate) fn read_progress(view: &dyn View, to: ArcId) -> Result<Progress, ReadError> {
    let found = view.get(&of_arc(Family::OutboxProgress, to))?;
    found.map_or(Ok(Progress::default()), |value| decode_value(&value))
}

pub(crate) fn write_progress(
    overlay: &mut Overlay<'_>,
    to: ArcId,
    progress: Progress,
) -> Result<(), ReadError> {
    overlay.put(of_arc(Family::OutboxProgress, to), encode_value(&progress)?);
    Ok(())
}

pub(crate) fn write(
    overlay: &mut Overlay<'_>,
    to: ArcId,
    number: u64,
    delivery: &Delivery,
) -> Result<(), ReadError> {
    overlay.insert(entry_key(to, number), encode_value(delivery)?);
    Ok(())
}

pub(crate) fn delete(overlay: &mut Overlay<'_>, to: ArcId, number: u64) {
    overlay.delete(entry_key(to, number));
}

/// Returns the next changes for an arc after a number (exclusive), in order: at most `limit`
/// changes and about `bytes_max` bytes, but at least one change if any exists. If a number is
/// missing, the result ends before the gap, because the receiver numbers the changes by their
/// position in the delivery.
pub(crate) fn read_behind(
    view: &dyn View,
    to: ArcId,
    number: u64,
    limit: usize,
    bytes_max: usize,
) -> Result<Vec<Delivery>, ReadError> {
    let from = entry_key(to, number.saturating_add(1));
    let end = end_of_prefix(&of_arc(Family::Outbox, to));
    let (mut found, mut bytes) = (Ok(Vec::new()), 0);
    let mut next = number;
    view.scan(&from, &end, false, &mut |key, value| {
        let Ok(deliveries) = &mut found else { return ControlFlow::Break(()) };
        if deliveries.len() == limit || bytes >= bytes_max {
            return ControlFlow::Break(());
        }
        next = next.saturating_add(1);
        if key != entry_key(to, next) {
            return ControlFlow::Break(());
        }
        bytes += value.len();
        match decode_value(value) {
            Ok(delivery) => deliveries.push(delivery),
            Err(error) => found = Err(error),
        }
        ControlFlow::Continue(())
    })?;
    found
}

/// Returns the error for an outbox that lacks an undelivered change.
pub(crate) fn missing(to: ArcId, number: u64) -> ReadError {
    ReadError(format!("the outbox lacks change {number} of the index entries for arc {}", to.0))
}

/// Returns the number of the last change received from an arc.
pub(crate) fn read_received(view: &dyn View, from: ArcId) -> Result<u64, ReadError> {
    let found = view.get(&of_arc(Family::Inbox, from))?;
    found.map_or(Ok(0), |value| decode_value(&value))
}

pub(crate) fn write_received(
    overlay: &mut Overlay<'_>,
    from: ArcId,
    number: u64,
) -> Result<(), ReadError> {
    overlay.put(of_arc(Family::Inbox, from), encode_value(&number)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arcs::outbox::read_delivery_batch;
    use crate::storage::testing::MapStorage;
    use crate::table::identifiers::{IndexNumber, TableId};

    #[test]
    fn a_batch_ends_before_a_gap() {
        let base = MapStorage::default();
        let mut overlay = Overlay::new(&base);
        let delivery = |key: u8| Delivery {
            table: TableId(1),
            index: IndexNumber(0),
            key: vec![key],
            entry: None,
        };
        for number in [1, 2, 4] {
            write(&mut overlay, ArcId(3), number, &delivery(4)).unwrap();
        }
        let mut progress = Progress { last: 5, acknowledged: 0 };
        for (acknowledged, count) in [(0, 2), (1, 1), (3, 1)] {
            progress.acknowledged = acknowledged;
            write_progress(&mut overlay, ArcId(3), progress).unwrap();
            let batch = read_delivery_batch(&overlay, ArcId(0), ArcId(3)).unwrap().unwrap();
            assert_eq!((batch.first, batch.deliveries.len()), (acknowledged + 1, count));
        }
        for (acknowledged, number) in [(2, 3), (4, 5)] {
            progress.acknowledged = acknowledged;
            write_progress(&mut overlay, ArcId(3), progress).unwrap();
            let missing =
                format!("the outbox lacks change {number} of the index entries for arc 3");
            assert_eq!(read_delivery_batch(&overlay, ArcId(0), ArcId(3)), Err(ReadError(missing)));
        }
    }
}
