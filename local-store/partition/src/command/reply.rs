//! The replies of the partition state machine to commands.

use model::{Item, KeyValue};
use serde::{Deserialize, Serialize};

use crate::ring::Ring;
use crate::table::Table;
use crate::table::index::IndexWrite;

/// The outcome of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The write was applied.
    Written(Written),
    /// The condition does not hold; nothing changed.
    ConditionFailed {
        /// The item, if it was requested and exists.
        item: Option<Item>,
        /// The size of the item in bytes, whether it was requested or not; 0 if it does not exist.
        bytes: usize,
    },
    /// The write is invalid for this item or table; nothing changed. Contains DynamoDB's error
    /// message.
    Invalid(String),
    /// The write would give an index key an empty value; nothing changed. Contains DynamoDB's error
    /// message.
    EmptyIndexKey(String),
    /// The item collection would become too large; nothing changed.
    ItemCollectionTooLarge,
    /// The current definition of the table.
    Table(Box<Table>),
    /// The table does not exist.
    TableNotFound,
    /// A table with the requested name exists already.
    TableExists,
    /// Every operation of the transaction was applied.
    Transacted {
        /// The result of each operation, in order.
        writes: Vec<Written>,
        /// Whether an earlier command with the same token applied the transaction, so that this
        /// command changed nothing.
        repeated: bool,
    },
    /// The transaction was cancelled and changed nothing. Contains one reason for each operation.
    TransactionCancelled(Vec<CancellationReason>),
    /// The token belongs to another transaction; nothing changed.
    TokenMismatch,
    /// The command was applied; while `more` is true, the caller must send the command again.
    Done {
        /// Whether another command of this kind must be sent to finish the work.
        more: bool,
    },
    /// A transaction has locked the item; nothing changed.
    Conflict,
    /// The operations of a transaction over several arcs can be applied, and their items are locked.
    Prepared {
        /// The result that each operation will have, in order.
        writes: Vec<Written>,
    },
    /// An earlier attempt at the transaction with the same token has not finished; nothing changed.
    TransactionInProgress,
    /// The transaction has already ended in this arc, or is too old; no item changed.
    TransactionOver,
    /// The decision about the transaction.
    Decided {
        /// Whether the transaction commits.
        commit: bool,
    },
    /// The changes of another arc were received.
    Received {
        /// The number of the last change received from that arc.
        upto: u64,
    },
    /// The ring after the change.
    Ring(Box<Ring>),
}

/// The reason why a transaction was cancelled, for one of its operations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CancellationReason {
    /// The operation did not cause the cancellation.
    None,
    /// The operation's condition does not hold.
    ConditionFailed {
        /// The item, if it was requested and exists.
        item: Option<Item>,
    },
    /// The operation is invalid for this item. Contains DynamoDB's error message.
    Invalid(String),
    /// Another transaction has locked the operation's item.
    Conflict,
    /// The operation's item collection would become too large.
    ItemCollectionTooLarge,
}

/// All items with one partition key in a table with local indexes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemCollection {
    /// The partition key.
    pub partition: KeyValue,
    /// The total size of the items and of their entries in local indexes, in bytes.
    pub bytes: u64,
}

/// The result of a write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// The item before the write, if it was requested and existed.
    pub old: Option<Item>,
    /// The item after the write, if it was requested and exists.
    pub new: Option<Item>,
    /// Size of the item before the write in bytes; 0 if it did not exist.
    pub old_bytes: usize,
    /// Size of the item after the write in bytes; 0 if it does not exist.
    pub new_bytes: usize,
    /// The item collection after the write, in a table with local indexes.
    pub collection: Option<Box<ItemCollection>>,
    /// The entries of secondary indexes that the write changed.
    pub index_writes: Vec<IndexWrite>,
}
