//! What an arc stores of transactions over several arcs.
//!
//! The steps that make and change it are in `two_phase_commit`.

use model::{EncodedItem, EpochMillis, PrimaryKey};
use serde::{Deserialize, Serialize};

use crate::table::identifiers::TableId;
use crate::table::placement::ArcId;

/// Identifies one attempt at a transaction; never used again. Half of it is drawn at random by its
/// coordinator, the other half follows from the client's token if there is one, so that a lock tells
/// whether the same request holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransactionId(pub u128);

impl TransactionId {
    /// The id of an attempt, from two numbers that were drawn for it.
    #[must_use]
    pub fn new(drawn: [u64; 2], token: Option<&str>) -> Self {
        let [high, low] = drawn;
        let low = token.map_or(low, |token| xxhash_rust::xxh3::xxh3_64(token.as_bytes()));
        Self(u128::from(high) << 64 | u128::from(low))
    }

    /// Whether both are attempts at the request with one token. Two without a token are so with the
    /// probability of two equal random numbers of 64 bits.
    pub(crate) fn has_token_of(self, other: Self) -> bool {
        let low = |id: Self| id.0 & u128::from(u64::MAX);
        low(self) == low(other)
    }

    /// Whether it is an attempt at the request with this token. Another one may be taken for it with
    /// the probability of two equal hashes of 64 bits.
    #[must_use]
    pub fn is_attempt_at(self, token: &str) -> bool {
        self.has_token_of(Self::new([0, 0], Some(token)))
    }
}

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// When the transaction began.
    pub began: EpochMillis,
    /// Whether it is made.
    pub commit: bool,
    /// The arcs that have to finish it, each with the number of its operations.
    pub participants: Vec<(ArcId, u32)>,
}

/// An item that a transaction has locked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Locked {
    /// Of which table.
    pub table: TableId,
    /// Which.
    pub key: PrimaryKey,
    /// What becomes of it.
    pub fate: Fate,
}

/// What becomes of a locked item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fate {
    /// Nothing: it was only looked at.
    Stays,
    /// It will be this, or not be there.
    Becomes(Option<EncodedItem>),
}

/// What a transaction has prepared in an arc. In the storage it begins as [`PreparedHead`] does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// When it began.
    pub began: EpochMillis,
    /// The arc that decides.
    pub home: ArcId,
    /// Its items, in the order of its operations.
    pub items: Vec<Locked>,
}

/// What has to be known of a transaction to end it, without its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedHead {
    /// When it began.
    pub began: EpochMillis,
    /// The arc that decides.
    pub home: ArcId,
    /// How many operations it has in this arc.
    pub operations: u32,
}
