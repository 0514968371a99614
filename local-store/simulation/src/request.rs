//! Requests of clients and their answers, modelled on DynamoDB's API. They do not depend on the
//! endpoint, so the same workloads run against a simulated cluster and against real processes.
//!
//! There is one table, whose partition key is the string attribute `p`.

use std::collections::BTreeMap;
use std::future::Future;

use model::{AttributeValue, Item, StreamRecord};
use server::store::Unavailable;
use thiserror::Error;

/// The name of the table of every workload.
pub const TABLE: &str = "items";
/// The partition key of the table.
pub const KEY: &str = "p";
/// The attribute with the number of the write that stored the item. Each write has its own number.
pub const WRITE_ID: &str = "w";
/// The attribute with the expiry time of an item, in epoch seconds.
pub const EXPIRES_AT: &str = "expires";
/// The partition key of the table's global indexes.
pub const OWNER: &str = "holder";
/// The table's global index over [`OWNER`]. It projects all attributes.
pub const INDEX: &str = "by-owner";

/// A second index over [`OWNER`]. It is created while the table is in use.
pub const LATE_INDEX: &str = "by-owner-late";

/// An expression and the values of its placeholders. The expression has no placeholders for names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expression {
    /// The expression in DynamoDB's syntax.
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

    /// Adds the value of a placeholder.
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
    /// Checks a condition without a change. Occurs only in transactions.
    Check,
}

/// A write of one item.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The key of the item.
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
    /// At the given sequence number.
    At(String),
    /// After the given sequence number.
    After(String),
    /// At the position of an iterator of the API.
    Iterator(String),
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Changes one item; the answer has the item before and after.
    Write(Write),
    /// Changes several items atomically. With a token, the transaction is idempotent for ten
    /// minutes.
    Transact(Option<String>, Vec<Write>),
    /// Adds the same number to several items. Each item is changed only if its number equals the
    /// expected number. Each write succeeds or fails independently, like the statements of
    /// `BatchExecuteStatement`.
    RaiseEach {
        /// The number to add.
        by: u64,
        /// The keys of the items, all different, and their expected numbers.
        expected: Vec<(String, u64)>,
    },
    /// Reads items. A strong read uses one snapshot, like `TransactGetItems`.
    Get {
        /// The keys of the items.
        keys: Vec<String>,
        /// Whether the read must see all acknowledged writes.
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
        /// The maximum number of records.
        limit: usize,
    },
}

/// A shard of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The id of the shard.
    pub id: String,
    /// The id of the parent shard, whose records precede the records of this shard.
    pub parent: Option<String>,
    /// The range of sequence numbers: the first number, and the last number if the shard is closed.
    pub range: (String, Option<String>),
}

/// An answer to a client.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The write was applied. Contains the item before and after.
    Written {
        /// The item before the write; `None` if it did not exist.
        old: Option<Item>,
        /// The item after the write; `None` if the item does not exist, or after a put, whose
        /// answer does not contain the item.
        new: Option<Item>,
    },
    /// The condition did not hold for this item.
    ConditionFailed(Option<Item>),
    /// All writes of the transaction were applied, by this request or by an earlier one with its token.
    Transacted,
    /// No write was applied, because a condition did not hold.
    Cancelled,
    /// For each of several writes: true if the write was applied, false if its condition did not
    /// hold.
    Each(Vec<Result<bool, Failure>>),
    /// Items in the order of the requested keys.
    Items(Vec<Option<Item>>),
    /// Shards, parents first.
    Shards(Vec<Shard>),
    /// The records in order, and the position after the last record. If there are no records, it is
    /// the position at which the read began.
    Records(Vec<StreamRecord>, Option<Start>),
}

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// The request was not applied, and never will be.
    #[error("refused: {0}")]
    Refused(String),
    /// The request may have been applied already, or may be applied later.
    #[error("outcome unknown: {0}")]
    Unknown(String),
    /// The store returned an answer that it must never return.
    #[error("defect: {0}")]
    Defect(String),
}

impl From<Unavailable> for Failure {
    fn from(error: Unavailable) -> Self {
        match error {
            Unavailable::NotDone(reason) => Self::Refused(reason),
            Unavailable::Unknown(reason) => Self::Unknown(reason),
        }
    }
}

/// An endpoint that answers requests.
pub trait Endpoint: Clone + Send + Sync + 'static {
    /// Sends a request, and waits for the answer or for a time-out.
    fn call(&self, request: Request) -> impl Future<Output = Result<Answer, Failure>> + Send;

    /// Returns the store time in epoch seconds, without the clock skew of any node.
    fn now_seconds(&self) -> u64;
}
