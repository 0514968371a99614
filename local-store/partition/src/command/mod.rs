//! The commands of a machine.
//!
//! A command is complete: it carries names and labels, and its log entry carries the time, so applying
//! it needs nothing but the state. Requests are validated before. What only the state can decide (a
//! condition, the type of an operand) comes back as a reply.

pub(crate) mod encoding;
pub(crate) mod reply;
#[cfg(test)]
mod tests;

use expression::{Condition, Update};
use model::{EncodedItem, EpochMillis, Item, KeySchema, PrimaryKey, StreamViewType};
use serde::{Deserialize, Serialize};

use crate::arcs::delivery::DeliveryBatch;
use crate::table::Table;
use crate::table::billing::Billing;
use crate::table::identifiers::{PartitionNumber, TableId};
use crate::table::index::{IndexChange, IndexDefinition};
use crate::table::name::TableName;
use crate::table::options::OptionChange;
use crate::table::partition::SplitPoint;
use crate::table::placement::{ArcId, Placement};
use crate::transaction::state::TransactionId;

/// One thing to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Make a table.
    CreateTable(Box<CreateTable>),
    /// Change a table's settings.
    UpdateTable(Box<UpdateTable>),
    /// Remove a table and, step by step, everything in it.
    DeleteTable {
        /// Which.
        table: TableId,
    },
    /// Change the TTL setting.
    UpdateTimeToLive {
        /// Of which table.
        table: TableId,
        /// To what.
        change: TimeToLiveChange,
    },
    /// Change one item.
    Write(Box<Write>),
    /// Delete an item, if it still expires at this time and that time has come.
    Expire {
        /// The table.
        table: TableId,
        /// The item.
        key: Box<PrimaryKey>,
        /// The time, in epoch seconds, under which it was found.
        expires_at: u64,
    },
    /// Index or un-index the next items for TTL.
    StepTimeToLive {
        /// Which table.
        table: TableId,
    },
    /// Build or remove the next entries of an index.
    StepIndexes {
        /// Of which table.
        table: TableId,
    },
    /// Close the stream shards that are old enough and open their children.
    RotateShards {
        /// Of which table.
        table: TableId,
    },
    /// Remove stream records older than 24 hours.
    TrimStreams {
        /// Of which table.
        table: TableId,
    },
    /// Remove the next entries of a deleted table.
    PurgeTable {
        /// Which.
        table: TableId,
    },
    /// Change several items, or none.
    Transaction(Box<Transaction>),
    /// Forget the next client request tokens whose time has come.
    ForgetTokens,
    /// Begin to split a partition in two.
    SplitPartition {
        /// Of which table.
        table: TableId,
        /// Which.
        partition: PartitionNumber,
        /// Where.
        at: SplitPoint,
    },
    /// Go on with the splits of a table that have begun.
    StepSplits {
        /// Which table.
        table: TableId,
    },
    /// Know a table as the first arc of the ring has it.
    AdoptTable {
        /// The table, as it is there.
        table: Box<Table>,
        /// Where its parts are, and the version of all that.
        placement: Placement,
    },
    /// Remove a table that the first arc has deleted.
    DropTable {
        /// Which.
        table: TableId,
    },
    /// Take in changes of index entries from another arc.
    Receive(Box<DeliveryBatch>),
    /// Forget changes that another arc has acknowledged.
    TrimOutbox {
        /// Which arc.
        to: ArcId,
        /// The number of the last of them.
        upto: u64,
    },
    /// Lock the items of a transaction over several arcs and see whether it can be made.
    Prepare(Box<Prepare>),
    /// Decide about a transaction over several arcs.
    Decide(Box<Decide>),
    /// Carry out what was decided.
    Finish(Finish),
    /// Every arc has carried out what was decided about a transaction.
    Settle {
        /// Which.
        id: TransactionId,
        /// When it began.
        began: EpochMillis,
    },
    /// Forget the next transactions that are over and old.
    ForgetTransactions,
    /// Change how many bytes an item collection may have.
    LimitItemCollections {
        /// Inclusive.
        bytes_max: u64,
    },
}

impl Command {
    /// How many positions the command takes in its entry: one for each change that a stream may
    /// have to tell about.
    #[must_use]
    pub fn positions(&self) -> usize {
        match self {
            Self::Transaction(transaction) => transaction.operations.len().max(1),
            Self::Finish(finish) => usize::try_from(finish.operations).unwrap_or(1).max(1),
            _ => 1,
        }
    }

    /// Whether it writes or deletes an item, and does and reads nothing else. Behind those, rows of
    /// stream records stay open for the next ones, so the answers are what they are for ever.
    #[must_use]
    pub fn only_writes(&self) -> bool {
        matches!(self, Self::Write(_) | Self::Expire { .. })
    }
}

/// Several operations on different items, all made or none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Transaction {
    /// Within ten minutes of success, another transaction with this token is not made again.
    pub token: Option<String>,
    /// The operations; the requester has made sure that no two are on one item. What they return
    /// of items when they succeed is not asked for.
    pub operations: Vec<Write>,
}

/// The operations of a transaction in one arc.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prepare {
    /// Of which transaction.
    pub id: TransactionId,
    /// The arc that decides.
    pub home: ArcId,
    /// When the transaction began, by its coordinator's clock.
    pub began: EpochMillis,
    /// What is to be done in this arc.
    pub operations: Vec<Write>,
    /// Whether the reply carries the items as they are.
    pub return_items: bool,
}

/// What is to be decided.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Decide {
    /// About which transaction.
    pub id: TransactionId,
    /// When it began.
    pub began: EpochMillis,
    /// To make it, or not to.
    pub commit: bool,
    /// The client's token and the fingerprint of all operations, if it sent one.
    pub token: Option<(String, u128)>,
    /// For each operation of the transaction: bytes of the item before and after.
    pub sizes: Vec<(usize, usize)>,
    /// The arcs that have prepared, each with the number of its operations.
    pub participants: Vec<(ArcId, u32)>,
}

/// The end of a transaction in one arc.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Finish {
    /// Of which transaction.
    pub id: TransactionId,
    /// When it began.
    pub began: EpochMillis,
    /// Whether it is made.
    pub commit: bool,
    /// How many operations it has in this arc.
    pub operations: u32,
}

/// Make a table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateTable {
    /// Its name, checked.
    pub name: TableName,
    /// Its key.
    pub key_schema: KeySchema,
    /// Its billing mode.
    pub billing: Billing,
    /// Whether it is protected from deletion.
    pub deletion_protection: bool,
    /// Its stream, if it begins with one.
    pub stream: Option<(StreamViewType, String)>,
    /// Its indexes, with names that differ.
    pub indexes: Vec<IndexDefinition>,
    /// Its options, in this order.
    pub options: Vec<OptionChange>,
}

/// Change a table's settings; what is `None` stays.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UpdateTable {
    /// Which table.
    pub table: TableId,
    /// Its billing mode.
    pub billing: Option<Billing>,
    /// Whether it is protected from deletion.
    pub deletion_protection: Option<bool>,
    /// Its stream: `Some(Some(..))` enables one with this view type and label, `Some(None)` disables it.
    pub stream: Option<Option<(StreamViewType, String)>>,
    /// Its indexes, in this order.
    pub indexes: Vec<IndexChange>,
    /// Its options, in this order.
    pub options: Vec<OptionChange>,
}

impl UpdateTable {
    /// An update that changes nothing but options.
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
    /// Expire by this attribute.
    Enable(String),
    /// Do not expire by this attribute any more.
    Disable(String),
}

/// Change one item.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Write {
    /// Of which table.
    pub table: TableId,
    /// Which item.
    pub key: PrimaryKey,
    /// How.
    pub action: WriteAction,
    /// Only if this holds for the item as it is.
    pub condition: Option<Box<Condition>>,
    /// Whether the reply carries the item as it was.
    pub return_old: bool,
    /// Whether the reply carries the item as it is.
    pub return_new: bool,
    /// Whether a failed condition's reply carries the item.
    pub return_on_failure: bool,
}

/// How an item changes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum WriteAction {
    /// It is replaced by this item, whose size and key were checked.
    Put(EncodedItem),
    /// It is removed.
    Delete,
    /// These updates are made; an item that is not there begins with its key alone.
    Update(Update),
    /// It stays as it is; only the condition matters.
    Check,
}

impl WriteAction {
    /// Replaces what is there by an item.
    #[must_use]
    pub fn put(item: &Item) -> Self {
        Self::Put(item.into())
    }
}
