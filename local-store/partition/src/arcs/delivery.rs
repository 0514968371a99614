//! Changes of index entries on their way to another arc.
//!
//! How they are sent and received is in `outbox`.

use serde::{Deserialize, Serialize};

use crate::table::identifiers::{IndexNumber, TableId};
use crate::table::placement::ArcId;

/// What becomes of one entry of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Of which table.
    pub table: TableId,
    /// Of which index.
    pub index: IndexNumber,
    /// Where the entry is: its key in the storage.
    pub key: Vec<u8>,
    /// What it holds now; `None` when it is gone.
    pub entry: Option<Vec<u8>>,
}

/// Changes of index entries from one arc for another, numbered without gaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryBatch {
    /// Where they come from.
    pub from: ArcId,
    /// The number of the first of them; the others follow it without gaps.
    pub first: u64,
    /// In their order.
    pub deliveries: Vec<Delivery>,
}

impl DeliveryBatch {
    /// The number of the last change in it.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.first.saturating_add(self.deliveries.len() as u64).saturating_sub(1)
    }
}
