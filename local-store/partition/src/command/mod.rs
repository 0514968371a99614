//! The commands of the partition state machine.
//!
//! A command is self-contained: it carries names and labels, and its log entry carries the time, so
//! applying it needs only the state. The server validates requests before it sends commands. The
//! reply reports results that depend on the state, for example whether a condition holds or an
//! operand has the right type.

pub(crate) mod encoding;
pub(crate) mod reply;
#[cfg(test)]
mod tests;

use expression::{Condition, Update};
use model::{EncodedItem, EpochMillis, Item, KeySchema, PrimaryKey, StreamViewType};
use serde::{Deserialize, Serialize};

use crate::arcs::delivery::DeliveryBatch;
use crate::ring::change::RingChange;
use crate::table::Table;
use crate::table::billing::Billing;
use crate::table::identifiers::{PartitionNumber, TableId};
use crate::table::index::{IndexChange, IndexDefinition};
use crate::table::name::TableName;
use crate::table::options::OptionChange;
use crate::table::partition::SplitPoint;
use crate::table::placement::{ArcId, Placement};
use crate::transaction::state::TransactionId;

/// One operation of the state machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Creates a table.
    CreateTable(Box<CreateTable>),
    /// Changes a table's settings.
    UpdateTable(Box<UpdateTable>),
    /// Deletes a table and, step by step, everything in it.
    DeleteTable {
        /// The table.
        table: TableId,
    },
    /// Changes the TTL setting.
    UpdateTimeToLive {
        /// The table.
        table: TableId,
        /// The new setting.
        change: TimeToLiveChange,
    },
    /// Changes one item.
    Write(Box<Write>),
    /// Deletes an item if its expiry time is still `expires_at` and has passed.
    Expire {
        /// The table.
        table: TableId,
        /// The item.
        key: Box<PrimaryKey>,
        /// The expiry time, in epoch seconds, from the item's expiry entry.
        expires_at: u64,
    },
    /// Adds or removes the expiry entries of the next items.
    StepTimeToLive {
        /// The table.
        table: TableId,
    },
    /// Builds or removes the next entries of an index.
    StepIndexes {
        /// The table.
        table: TableId,
    },
    /// Closes the stream shards that have been open for about four hours, and opens their children.
    RotateShards {
        /// The table.
        table: TableId,
    },
    /// Removes stream records older than 24 hours.
    TrimStreams {
        /// The table.
        table: TableId,
    },
    /// Removes the next entries of a deleted table.
    PurgeTable {
        /// The table.
        table: TableId,
    },
    /// Changes several items atomically.
    Transaction(Box<Transaction>),
    /// Deletes the next expired client request tokens.
    ForgetTokens,
    /// Begins to split a partition in two.
    SplitPartition {
        /// The table.
        table: TableId,
        /// The partition.
        partition: PartitionNumber,
        /// The token at which to split the partition.
        at: SplitPoint,
    },
    /// Runs the next step of a table's unfinished splits.
    StepSplits {
        /// The table.
        table: TableId,
    },
    /// Adopts the definition of a table from the first arc of the ring.
    AdoptTable {
        /// The table's definition in the first arc.
        table: Box<Table>,
        /// The arcs of the table's parts, and the version of the definition.
        placement: Placement,
    },
    /// Removes a table that the first arc has deleted.
    DropTable {
        /// The table.
        table: TableId,
    },
    /// Receives changes of index entries from another arc.
    Receive(Box<DeliveryBatch>),
    /// Removes changes that another arc has acknowledged.
    TrimOutbox {
        /// The other arc.
        to: ArcId,
        /// The number of the last acknowledged change.
        upto: u64,
    },
    /// Locks the items of a transaction over several arcs, and checks whether its operations can be
    /// applied.
    Prepare(Box<Prepare>),
    /// Decides a transaction over several arcs.
    Decide(Box<Decide>),
    /// Applies the decision about a transaction in this arc, and releases the transaction's locks.
    Finish(Finish),
    /// Records that every arc has applied the decision about a transaction.
    CompleteTransaction {
        /// The transaction.
        id: TransactionId,
        /// The time at which the transaction began.
        began: EpochMillis,
    },
    /// Deletes the records of the next transactions that ended and began more than a minute ago.
    ForgetTransactions,
    /// Changes the size limit of item collections.
    LimitItemCollections {
        /// The limit in bytes, inclusive.
        bytes_max: u64,
    },
    /// Changes the nodes of the cluster, and with them the placement of its arcs. Only the first
    /// arc has the ring.
    ChangeRing(Box<RingChange>),
}

impl Command {
    /// Returns the number of positions that the command takes within its entry: one for each change
    /// that may become a stream record. Each position is one sequence number.
    #[must_use]
    pub fn positions(&self) -> usize {
        match self {
            Self::Transaction(transaction) => transaction.operations.len().max(1),
            Self::Finish(finish) => usize::try_from(finish.operations).unwrap_or(1).max(1),
            _ => 1,
        }
    }

    /// Returns whether the command only writes or deletes an item. After such a command, rows of
    /// stream records stay open for further records. The result is therefore part of an entry's
    /// effect, and must never change for an existing command.
    #[must_use]
    pub fn only_writes(&self) -> bool {
        matches!(self, Self::Write(_) | Self::Expire { .. })
    }
}

/// Several operations on different items, applied atomically.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Transaction {
    /// The client request token. For ten minutes after a transaction succeeded, another transaction
    /// with its token is not applied.
    pub token: Option<String>,
    /// The operations; the server ensures that each is on a different item. The reply to a
    /// successful transaction carries no items.
    pub operations: Vec<Write>,
}

/// The operations of a transaction in one arc.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prepare {
    /// The transaction.
    pub id: TransactionId,
    /// The arc that decides whether the transaction commits.
    pub deciding_arc: ArcId,
    /// The time at which the transaction began, by its coordinator's clock.
    pub began: EpochMillis,
    /// The operations on items in the arc that executes the command.
    pub operations: Vec<Write>,
    /// Whether the reply contains the current items.
    pub return_items: bool,
}

/// A decision about a transaction, to record in the deciding arc.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Decide {
    /// The transaction.
    pub id: TransactionId,
    /// The time at which the transaction began.
    pub began: EpochMillis,
    /// Whether to commit the transaction.
    pub commit: bool,
    /// The client's token and the fingerprint of all operations, if the client sent a token.
    pub token: Option<(String, u128)>,
    /// For each operation of the transaction: the size of the item in bytes before and after.
    pub sizes: Vec<(usize, usize)>,
    /// The arcs that have prepared, each with the number of its operations.
    pub participants: Vec<(ArcId, u32)>,
}

/// A command that ends a transaction in one arc.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Finish {
    /// The transaction.
    pub id: TransactionId,
    /// The time at which the transaction began.
    pub began: EpochMillis,
    /// Whether the transaction was committed.
    pub commit: bool,
    /// The number of the transaction's operations in this arc.
    pub operations: u32,
}

/// A table to create.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateTable {
    /// The table's validated name.
    pub name: TableName,
    /// The table's key schema.
    pub key_schema: KeySchema,
    /// The table's billing mode.
    pub billing: Billing,
    /// Whether the table is protected from deletion.
    pub deletion_protection: bool,
    /// The view type and label of the table's stream, if the table has a stream.
    pub stream: Option<(StreamViewType, String)>,
    /// The table's indexes, whose names are unique.
    pub indexes: Vec<IndexDefinition>,
    /// The options to set, in order of application.
    pub options: Vec<OptionChange>,
}

/// A change of a table's settings. `None` leaves a setting unchanged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UpdateTable {
    /// The table.
    pub table: TableId,
    /// The table's billing mode.
    pub billing: Option<Billing>,
    /// Whether the table is protected from deletion.
    pub deletion_protection: Option<bool>,
    /// The change of the table's stream: `Some(Some(..))` enables a stream with this view type and label,
    /// `Some(None)` disables the stream.
    pub stream: Option<Option<(StreamViewType, String)>>,
    /// Changes of the table's indexes, in order of application.
    pub indexes: Vec<IndexChange>,
    /// Changes of the table's options, in order of application.
    pub options: Vec<OptionChange>,
}

impl UpdateTable {
    /// Creates an update that changes only options.
    #[must_use]
    pub fn of_options(table: TableId, options: Vec<OptionChange>) -> Self {
        Self {
            table,
            billing: None,
            deletion_protection: None,
            stream: None,
            indexes: Vec::new(),
            options,
        }
    }
}

/// A new TTL setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeToLiveChange {
    /// Enable TTL, with the given attribute as the expiry time.
    Enable(String),
    /// Disable TTL. The string is the attribute that TTL uses now.
    Disable(String),
}

/// A change of one item.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Write {
    /// The table.
    pub table: TableId,
    /// The key of the item.
    pub key: PrimaryKey,
    /// The change.
    pub action: WriteAction,
    /// The condition that the item must meet before the change.
    pub condition: Option<Box<Condition>>,
    /// Whether the reply contains the item before the write.
    pub return_old: bool,
    /// Whether the reply contains the item after the write.
    pub return_new: bool,
    /// Whether the reply to a failed condition contains the item.
    pub return_on_failure: bool,
}

/// The change that a write makes to an item.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum WriteAction {
    /// Replace the item with the given item, whose size and key were validated.
    Put(EncodedItem),
    /// Delete the item.
    Delete,
    /// Apply this update. If the item does not exist, the update starts from an item with only the
    /// key attributes.
    Update(Update),
    /// Check the condition without a change.
    Check,
}

impl WriteAction {
    /// Creates an action that replaces the item.
    #[must_use]
    pub fn put(item: &Item) -> Self {
        Self::Put(item.into())
    }
}
