//! Changes of index entries that one arc sends to another.
//!
//! `outbox` sends and receives them.

use serde::{Deserialize, Serialize};

use crate::table::identifiers::{IndexNumber, TableId};
use crate::table::placement::ArcId;

/// A change of one index entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// The table.
    pub table: TableId,
    /// The index of that table.
    pub index: IndexNumber,
    /// The entry's key in the storage.
    pub key: Vec<u8>,
    /// The entry's new value; `None` to delete it.
    pub entry: Option<Vec<u8>>,
}

/// Changes of index entries from one arc for another, numbered consecutively.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryBatch {
    /// The arc that sends the changes.
    pub from: ArcId,
    /// The number of the first change. Each further change has the next number.
    pub first: u64,
    /// The changes, in order.
    pub deliveries: Vec<Delivery>,
}

impl DeliveryBatch {
    /// Returns the number of the last change.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.first.saturating_add(self.deliveries.len() as u64).saturating_sub(1)
    }
}
