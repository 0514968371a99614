//! Requests of clients and their answers, in DynamoDB's terms, independent of the endpoint: a
//! simulated cluster or real processes. So the same workloads run against both.
//!
//! There is one table, whose partition key is the string attribute `p`.

use std::collections::BTreeMap;
use std::future::Future;

use model::{AttributeValue, Item, StreamRecord};
use thiserror::Error;

/// The name of the table of every workload.
pub const TABLE: &str = "items";
/// Its partition key.
pub const KEY: &str = "p";
/// The attribute with the number of the write that stored the item; numbers are unique.
pub const WRITE_ID: &str = "w";
/// The attribute that expires items, in epoch seconds.
pub const EXPIRES_AT: &str = "expires";
/// The partition key of the table's global index.
pub const OWNER: &str = "holder";
/// The table's global index over [`OWNER`], which holds whole items.
pub const INDEX: &str = "by-owner";

/// A second index of the same kind, which is created while the table is in use.
pub const LATE_INDEX: &str = "by-owner-late";

/// An expression and the values of its placeholders. There are no `#names`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expression {
    /// As in DynamoDB.
    pub text: String,
    /// The value of each `:value`.
    pub values: BTreeMap<String, AttributeValue>,
}

impl Expression {
    /// Creates an expression without placeholders.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self { text: text.to_owned(), values: BTreeMap::new() }
    }

    /// Adds a value.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<AttributeValue>) -> Self {
        self.values.insert(name.to_owned(), value.into());
        self
    }
}

/// A change of an item.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Replaces the item.
    Put(Item),
    /// Deletes the item.
    Delete,
    /// Updates the item.
    Update(Expression),
    /// Changes nothing; only the condition matters. Only in transactions.
    Check,
}

/// A write of one item.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// Its key.
    pub key: String,
    /// The change.
    pub change: Change,
    /// The condition, if there is one.
    pub condition: Option<Expression>,
}

/// The position at which to begin to read a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the oldest record.
    TrimHorizon,
    /// After the newest record.
    Latest,
    /// At this sequence number.
    At(String),
    /// After this sequence number.
    After(String),
    /// At the position of an iterator of the API.
    Iterator(String),
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Changes one item; the answer has the item before and after.
    Write(Write),
    /// Changes several items atomically; within ten minutes, once for each token.
    Transact(Option<String>, Vec<Write>),
    /// Adds the same number to several items, to each only if its number is the expected one. Each
    /// of these writes succeeds or fails alone, like those of `BatchExecuteStatement`.
    RaiseEach {
        /// The number to add.
        by: u64,
        /// Keys of items, all different, and their expected numbers.
        expected: Vec<(String, u64)>,
    },
    /// Reads items, in one snapshot like `TransactGetItems` if strong.
    Get {
        /// The keys of the items.
        keys: Vec<String>,
        /// Whether the read must see every acknowledged write.
        strong: bool,
    },
    /// Lists the shards of the table's stream.
    Shards,
    /// Reads the next records of a shard.
    Records {
        /// The id of the shard.
        shard: String,
        /// The position.
        start: Start,
        /// The most records.
        limit: usize,
    },
}

/// A shard of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Its id.
    pub id: String,
    /// The id of the parent, whose records precede its own.
    pub parent: Option<String>,
    /// Its range of sequence numbers: the first, and the last one if it is closed.
    pub range: (String, Option<String>),
}

/// An answer to a client.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The write was applied: the item before and after.
    Written {
        /// `None` if it did not exist.
        old: Option<Item>,
        /// `None` if it does not exist; not returned after a put.
        new: Option<Item>,
    },
    /// The condition does not hold for this item.
    ConditionFailed(Option<Item>),
    /// All writes of the transaction were applied, now or by the first request with its token.
    Transacted,
    /// No write was applied, because of a condition.
    Cancelled,
    /// For each of several writes, whether it was applied; false if its condition failed.
    Each(Vec<Result<bool, Failure>>),
    /// Items in the order of the requested keys.
    Items(Vec<Option<Item>>),
    /// Shards, parents first.
    Shards(Vec<Shard>),
    /// Records in order, and the position after the last one, or that of `Latest`.
    Records(Vec<StreamRecord>, Option<Start>),
}

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// The request was certainly not applied.
    #[error("refused: {0}")]
    Refused(String),
    /// The request may have been applied, or may still be.
    #[error("outcome unknown: {0}")]
    Unknown(String),
    /// The answer is one that the store must never give.
    #[error("defect: {0}")]
    Defect(String),
}

/// An endpoint that answers requests.
pub trait Endpoint: Clone + Send + Sync + 'static {
    /// Sends a request, and waits for the answer or for a time-out.
    fn call(&self, request: Request) -> impl Future<Output = Result<Answer, Failure>> + Send;

    /// Returns store time in epoch seconds, as an outside observer knows it.
    fn now_seconds(&self) -> u64;
}
