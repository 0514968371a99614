//! The operations of this store, by their names in requests.

use model::json;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    BatchGetItem,
    BatchExecuteStatement,
    BatchWriteItem,
    CreateTable,
    DeleteItem,
    DeleteResourcePolicy,
    DeleteTable,
    DescribeContinuousBackups,
    DescribeLimits,
    DescribeStream,
    DescribeTable,
    DescribeTimeToLive,
    ExecuteStatement,
    ExecuteTransaction,
    GetItem,
    GetRecords,
    GetResourcePolicy,
    GetShardIterator,
    ListStreams,
    ListTables,
    ListTagsOfResource,
    PutItem,
    PutResourcePolicy,
    Query,
    Scan,
    TagResource,
    TransactGetItems,
    TransactWriteItems,
    UntagResource,
    UpdateContinuousBackups,
    UpdateItem,
    UpdateTable,
    UpdateTimeToLive,
}

impl Operation {
    /// Returns whether the operation never changes anything. Operations that execute statements
    /// count as writes, because a statement can write.
    pub(super) fn is_read(self) -> bool {
        matches!(
            self,
            Self::BatchGetItem
                | Self::DescribeStream
                | Self::DescribeTable
                | Self::GetItem
                | Self::GetRecords
                | Self::GetShardIterator
                | Self::Query
                | Self::Scan
                | Self::TransactGetItems
        )
    }

    /// Returns the path of member names to the items to be put in a request.
    pub(super) fn items_at(self) -> &'static [&'static str] {
        match self {
            Self::PutItem => &["Item"],
            Self::BatchWriteItem => &["RequestItems", json::ANY_NAME, "PutRequest", "Item"],
            _ => &[],
        }
    }

    pub(super) fn from_target(target: &str) -> Option<Self> {
        let operation = match target.split_once('.')? {
            ("DynamoDB_20120810", operation) => match operation {
                "BatchGetItem" => Self::BatchGetItem,
                "BatchExecuteStatement" => Self::BatchExecuteStatement,
                "BatchWriteItem" => Self::BatchWriteItem,
                "CreateTable" => Self::CreateTable,
                "DeleteItem" => Self::DeleteItem,
                "DeleteResourcePolicy" => Self::DeleteResourcePolicy,
                "DeleteTable" => Self::DeleteTable,
                "DescribeContinuousBackups" => Self::DescribeContinuousBackups,
                "DescribeLimits" => Self::DescribeLimits,
                "DescribeTable" => Self::DescribeTable,
                "DescribeTimeToLive" => Self::DescribeTimeToLive,
                "ExecuteStatement" => Self::ExecuteStatement,
                "ExecuteTransaction" => Self::ExecuteTransaction,
                "GetItem" => Self::GetItem,
                "GetResourcePolicy" => Self::GetResourcePolicy,
                "ListTables" => Self::ListTables,
                "ListTagsOfResource" => Self::ListTagsOfResource,
                "PutItem" => Self::PutItem,
                "PutResourcePolicy" => Self::PutResourcePolicy,
                "Query" => Self::Query,
                "Scan" => Self::Scan,
                "TagResource" => Self::TagResource,
                "TransactGetItems" => Self::TransactGetItems,
                "TransactWriteItems" => Self::TransactWriteItems,
                "UntagResource" => Self::UntagResource,
                "UpdateContinuousBackups" => Self::UpdateContinuousBackups,
                "UpdateItem" => Self::UpdateItem,
                "UpdateTable" => Self::UpdateTable,
                "UpdateTimeToLive" => Self::UpdateTimeToLive,
                _ => return None,
            },
            ("DynamoDBStreams_20120810", operation) => match operation {
                "DescribeStream" => Self::DescribeStream,
                "GetRecords" => Self::GetRecords,
                "GetShardIterator" => Self::GetShardIterator,
                "ListStreams" => Self::ListStreams,
                _ => return None,
            },
            _ => return None,
        };
        Some(operation)
    }
}
