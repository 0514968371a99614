//! The stored state of transactions over several arcs.
//!
//! The steps that create and change this state are in `two_phase_commit`.

use model::{EncodedItem, EpochMillis, PrimaryKey};
use serde::{Deserialize, Serialize};

use crate::table::identifiers::TableId;
use crate::table::placement::ArcId;

/// The unique id of one attempt at a transaction. The coordinator draws one half at random. The
/// other half is derived from the client's token, if there is one. Therefore a lock shows whether
/// an attempt at the same request holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransactionId(pub u128);

impl TransactionId {
    /// Creates the id of an attempt from two random numbers.
    #[must_use]
    pub fn new(drawn: [u64; 2], token: Option<&str>) -> Self {
        let [high, low] = drawn;
        let low = token.map_or(low, |token| xxhash_rust::xxh3::xxh3_64(token.as_bytes()));
        Self(u128::from(high) << 64 | u128::from(low))
    }

    /// Returns whether both ids belong to attempts at the same request, which has a token. For two
    /// ids without a token, the result is wrongly true if two random 64-bit numbers are equal.
    pub(crate) fn has_token_of(self, other: Self) -> bool {
        let low = |id: Self| id.0 & u128::from(u64::MAX);
        low(self) == low(other)
    }

    /// Returns whether this id belongs to an attempt at the request with the given token. The
    /// result is wrongly true if two 64-bit hashes are equal.
    #[must_use]
    pub fn is_attempt_at(self, token: &str) -> bool {
        self.has_token_of(Self::new([0, 0], Some(token)))
    }
}

/// The decision about a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The time at which the transaction began.
    pub began: EpochMillis,
    /// Whether the transaction is committed.
    pub commit: bool,
    /// The arcs that must finish the transaction, each with the number of its operations.
    pub participants: Vec<(ArcId, u32)>,
}

/// An item that a transaction has locked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockedItem {
    /// The table.
    pub table: TableId,
    /// The key of the item.
    pub key: PrimaryKey,
    /// The change of the item when the transaction commits.
    pub change: LockedChange,
}

/// The change of a locked item when its transaction commits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LockedChange {
    /// The item does not change: the transaction only checks a condition on it.
    Unchanged,
    /// The item is replaced with the given item; `None` deletes it.
    Replaced(Option<EncodedItem>),
}

/// The operations that a transaction has prepared in an arc. The encoding begins with the fields of
/// [`PreparedHead`], which can be decoded separately.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// The time at which the transaction began.
    pub began: EpochMillis,
    /// The arc that decides whether the transaction commits.
    pub deciding_arc: ArcId,
    /// The locked items, in the order of the operations.
    pub items: Vec<LockedItem>,
}

/// The part of [`Prepared`] that is needed to end a transaction, without the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedHead {
    /// The time at which the transaction began.
    pub began: EpochMillis,
    /// The arc that decides whether the transaction commits.
    pub deciding_arc: ArcId,
    /// The number of the transaction's operations in this arc.
    pub operations: u32,
}
