//! What a machine answers to commands.

use model::{Item, KeyValue};
use serde::{Deserialize, Serialize};

use crate::table::Table;
use crate::table::index::IndexWrite;

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The item is as the write wanted it.
    Written(Written),
    /// The condition does not hold; nothing changed.
    ConditionFailed {
        /// The item, if it was asked for and is there.
        item: Option<Item>,
        /// Size of the item that is there or of the one that was to be put, the larger of both, in
        /// bytes.
        bytes: usize,
    },
    /// The write cannot be made on this item or table; nothing changed. DynamoDB's own words.
    Invalid(String),
    /// The write would give the key of an index an empty value; nothing changed. DynamoDB's own
    /// words.
    EmptyIndexKey(String),
    /// The item collection would become too large; nothing changed.
    ItemCollectionTooLarge,
    /// The table as it is now.
    Table(Box<Table>),
    /// There is no such table (any more).
    TableNotFound,
    /// A table of this name is there already.
    TableExists,
    /// Every operation of the transaction was made.
    Transacted {
        /// What each of them did, in their order.
        writes: Vec<Written>,
        /// Whether that was some time ago: this command changed nothing.
        repeated: bool,
    },
    /// Nothing of the transaction was made, for these reasons, one for each operation.
    TransactionCancelled(Vec<CancellationReason>),
    /// The token belongs to another transaction; nothing changed.
    TokenMismatch,
    /// The command was carried out; `more` asks for another of the same.
    Done {
        /// Whether there is more to do.
        more: bool,
    },
    /// A transaction has locked the item; nothing changed.
    Conflict,
    /// The operations of a transaction over several arcs can be made, and their items are locked.
    Prepared {
        /// What each of them will have done, in their order.
        writes: Vec<Written>,
    },
    /// An earlier attempt at the transaction with this token is under way; nothing changed.
    TransactionInProgress,
    /// The transaction is over here, or too old to begin with: no item changed.
    TransactionOver,
    /// The decision that counts.
    Decided {
        /// Whether the transaction is made.
        commit: bool,
    },
    /// How far the changes from the arc that sent them have come.
    Received {
        /// The number of the last of them.
        upto: u64,
    },
}

/// What became of one operation of a transaction that was not made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CancellationReason {
    /// Nothing stands against this one.
    None,
    /// Its condition does not hold.
    ConditionFailed {
        /// The item, if it was asked for and is there.
        item: Option<Item>,
    },
    /// It cannot be made on this item. DynamoDB's own words.
    Invalid(String),
    /// Another transaction has locked its item.
    Conflict,
    /// Its item collection would become too large.
    ItemCollectionTooLarge,
}

/// All items with one partition key, of a table with local indexes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemCollection {
    /// The partition key.
    pub partition: KeyValue,
    /// Bytes of the items and of their entries in local indexes.
    pub bytes: u64,
}

/// What a write did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// The item as it was, if asked for and there.
    pub old: Option<Item>,
    /// The item as it is, if asked for and there.
    pub new: Option<Item>,
    /// Size of the item as it was, in bytes; 0 when it was not there.
    pub old_bytes: usize,
    /// Size of the item as it is, in bytes; 0 when it is not there.
    pub new_bytes: usize,
    /// The item collection as it is, in a table with local indexes.
    pub collection: Option<Box<ItemCollection>>,
    /// The entries of secondary indexes that it changed.
    pub index_writes: Vec<IndexWrite>,
}
