//! The reasons why a table's settings cannot be changed.

use thiserror::Error;

use crate::table::name::TableName;

/// The error message for a policy that differs from the policy that the request expected.
pub const POLICY_CHANGED: &str = "the resource policy differs from the expected policy";

/// The reason why a change of a table is rejected. `Display` is the text of the reply; for a change
/// that DynamoDB also rejects, it is DynamoDB's error message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum TableRefusal {
    /// A stream cannot be enabled, because the table already has one.
    #[error("Table already has an enabled stream: TableName: {0}")]
    StreamEnabled(TableName),
    /// There is no stream to disable.
    #[error("Table has no stream to disable: TableName: {0}")]
    NoStream(TableName),
    /// The table already has an index with the name of the new index.
    #[error("One or more parameter values were invalid: Duplicate index name: {0}")]
    DuplicateIndex(String),
    /// The table has no index with this name.
    #[error("The table does not have the specified index: {0}")]
    UnknownIndex(String),
    /// The resource policy is not the policy that the request expected.
    #[error("{}", POLICY_CHANGED)]
    PolicyChanged,
    /// TTL uses this attribute, but the request names another one.
    #[error("TimeToLive is active on a different AttributeName: current AttributeName is {0}")]
    OtherTimeToLive(String),
    /// TTL is already enabled.
    #[error("TimeToLive is already enabled")]
    TimeToLiveEnabled,
    /// TTL is already disabled.
    #[error("TimeToLive is already disabled")]
    TimeToLiveDisabled,
    /// An earlier change of TTL is in progress.
    #[error("Time to live has been modified multiple times within a fixed interval")]
    TimeToLiveChanging,
    /// A partition cannot be split.
    #[error("partition {partition} of {table}: {why}")]
    Split {
        /// The number of the partition.
        partition: u32,
        /// The table of the partition.
        table: TableName,
        /// The reason why the partition cannot be split.
        #[source]
        why: SplitRefusal,
    },
}

/// The reason why a partition cannot be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum SplitRefusal {
    /// The partition does not exist.
    #[error("it does not exist, or has been split")]
    Unknown,
    /// The partition has only one token.
    #[error("it has only one token")]
    OneToken,
    /// The table has the maximum number of partitions.
    #[error("the table already has the maximum number of partitions")]
    TooMany,
    /// The upper part cannot begin at the requested token.
    #[error("the token is outside the partition, or is its first token")]
    InvalidToken,
    /// An earlier split is in progress.
    #[error("it is already being split")]
    InProgress,
}
