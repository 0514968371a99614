//! What a client asks and hears, in DynamoDB's terms, whoever answers: a simulated cluster or real
//! processes. So the same workloads run against both.
//!
//! There is one table, whose partition key is the string attribute `p`.

use std::collections::BTreeMap;
use std::future::Future;

use model::{AttributeValue, Item, StreamRecord};
use thiserror::Error;

/// The table of every workload.
pub const TABLE: &str = "items";
/// Its partition key.
pub const KEY: &str = "p";
/// The number that a write gives what it stores; no two writes give the same.
pub const WRITE_ID: &str = "w";
/// The attribute that expires items, in epoch seconds.
pub const EXPIRES_AT: &str = "expires";
/// The partition key of the table's global index.
pub const OWNER: &str = "holder";
/// The table's global index over [`OWNER`], which holds whole items.
pub const INDEX: &str = "by-owner";

/// A second index of the same kind, which is made while the table is in use.
pub const LATE_INDEX: &str = "by-owner-late";

/// An expression and what its placeholders stand for. There are no `#names`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expression {
    /// As in DynamoDB.
    pub text: String,
    /// What each `:value` stands for.
    pub values: BTreeMap<String, AttributeValue>,
}

impl Expression {
    /// An expression without placeholders.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self { text: text.to_owned(), values: BTreeMap::new() }
    }

    /// The same with one more value.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<AttributeValue>) -> Self {
        self.values.insert(name.to_owned(), value.into());
        self
    }
}

/// How an item is changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// It is replaced.
    Put(Item),
    /// It is removed.
    Delete,
    /// It is updated.
    Update(Expression),
    /// It stays; only the condition matters. In transactions only.
    Check,
}

/// A change of one item.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// Its key.
    pub key: String,
    /// How.
    pub change: Change,
    /// Only if this holds.
    pub condition: Option<Expression>,
}

/// Where to begin to read a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the oldest record there is.
    TrimHorizon,
    /// Behind the newest record.
    Latest,
    /// At this sequence number.
    At(String),
    /// Behind this sequence number.
    After(String),
    /// Where an iterator of the API stands.
    Iterator(String),
}

/// What a client asks.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Changes one item; the answer says what it was and what it is.
    Write(Write),
    /// Changes several items or none; within ten minutes, once for each token.
    Transact(Option<String>, Vec<Write>),
    /// Adds the same to the numbers of several items, to each of them only if its number is this one.
    /// Each of these writes succeeds or fails by itself, as those of `BatchExecuteStatement` do.
    RaiseEach {
        /// What is added.
        by: u64,
        /// Keys of items, no two the same, and the numbers that they must have.
        expected: Vec<(String, u64)>,
    },
    /// Reads items, all as of one moment, as `TransactGetItems` does when strong.
    Get {
        /// Which.
        keys: Vec<String>,
        /// Whether every acknowledged write has to be seen.
        strong: bool,
    },
    /// The shards of the table's stream.
    Shards,
    /// The next records of a shard.
    Records {
        /// Which shard.
        shard: String,
        /// From where.
        start: Start,
        /// How many at most.
        limit: usize,
    },
}

/// A shard of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Its id.
    pub id: String,
    /// Whose records come before its own.
    pub parent: Option<String>,
    /// Its range of sequence numbers: the first, and the last one when it is closed.
    pub range: (String, Option<String>),
}

/// What a client hears.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The write was made: the item as it was and as it is.
    Written {
        /// `None` when it was not there.
        old: Option<Item>,
        /// `None` when it is not there; not told after a put.
        new: Option<Item>,
    },
    /// The condition does not hold for the item, which is this.
    ConditionFailed(Option<Item>),
    /// All writes of the transaction were made, now or when its token was seen first.
    Transacted,
    /// None was made, because of a condition.
    Cancelled,
    /// Whether each of several writes was made, or its condition did not hold.
    Each(Vec<Result<bool, Failure>>),
    /// Items in the order of their keys in the request.
    Items(Vec<Option<Item>>),
    /// Shards, parents first.
    Shards(Vec<Shard>),
    /// Records in their order, and where to go on behind the last one, or where `Latest` was.
    Records(Vec<StreamRecord>, Option<Start>),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// It was certainly not carried out.
    #[error("refused: {0}")]
    Refused(String),
    /// It may have been carried out, or still be.
    #[error("outcome unknown: {0}")]
    Unknown(String),
    /// The store said something that it must never say.
    #[error("defect: {0}")]
    Defect(String),
}

/// Who answers requests.
pub trait Endpoint: Clone + Send + Sync + 'static {
    /// Asks, and waits for the answer or for a time-out.
    fn call(&self, request: Request) -> impl Future<Output = Result<Answer, Failure>> + Send;

    /// Store time in epoch seconds, as somebody outside knows it.
    fn now_seconds(&self) -> u64;
}
