//! The operations of this store, by their names in requests.

use expression::partiql::StatementText;
use model::json;

use super::parameters::Parameters;

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
    /// Returns whether a request is a read. A request with statements is a read if every statement is a
    /// `SELECT`.
    pub(super) fn is_read(self, parameters: Parameters<'_>) -> bool {
        let statements = match self {
            Self::BatchGetItem
            | Self::DescribeStream
            | Self::DescribeTable
            | Self::GetItem
            | Self::GetRecords
            | Self::GetShardIterator
            | Self::Query
            | Self::Scan
            | Self::TransactGetItems => return true,
            Self::ExecuteStatement => Ok(Some(vec![parameters])),
            Self::BatchExecuteStatement => {
                parameters.structures("Statements", "BatchStatementRequest")
            }
            Self::ExecuteTransaction => {
                parameters.structures("TransactStatements", "ParameterizedStatement")
            }
            _ => return false,
        };
        let is_select = |statement: &Parameters<'_>| match statement.string("Statement") {
            Ok(Some(text)) => StatementText::new(text).is_ok_and(|text| text.is_select()),
            _ => false,
        };
        statements.is_ok_and(|found| found.is_some_and(|found| found.iter().all(is_select)))
    }

    /// Returns whether a request may change items or tables.
    pub(super) fn is_change(self, parameters: Parameters<'_>) -> bool {
        match self {
            Self::DescribeContinuousBackups
            | Self::DescribeLimits
            | Self::DescribeTimeToLive
            | Self::GetResourcePolicy
            | Self::ListStreams
            | Self::ListTables
            | Self::ListTagsOfResource => false,
            _ => !self.is_read(parameters),
        }
    }

    /// Returns the path of member names to the items in a request that are to be written.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a request that failed on a damaged disk is retried only if it is a read.
    #[test]
    fn a_request_is_a_read_only_if_each_of_its_statements_is() {
        let one = |text: &str| format!(r#"{{"Statement":"{text}"}}"#);
        let (read, write) = (one("/* */ select * FROM t"), one("DELETE FROM t WHERE k=1"));
        for (operation, body, expected) in [
            ("ExecuteStatement", read.clone(), true),
            ("ExecuteStatement", write.clone(), false),
            ("ExecuteStatement", one("-- SELECT"), false),
            ("ExecuteStatement", one("'no end"), false),
            ("ExecuteStatement", "{}".to_owned(), false),
            ("BatchExecuteStatement", format!(r#"{{"Statements":[{read},{read}]}}"#), true),
            ("BatchExecuteStatement", format!(r#"{{"Statements":[{read},{write}]}}"#), false),
            ("BatchExecuteStatement", format!(r#"{{"Statements":{read}}}"#), false),
            ("ExecuteTransaction", format!(r#"{{"TransactStatements":[{read}]}}"#), true),
            ("ExecuteTransaction", format!(r#"{{"TransactStatements":[{write},{read}]}}"#), false),
            ("ExecuteTransaction", format!(r#"{{"Statements":[{read}]}}"#), false),
            ("Scan", "{}".to_owned(), true),
            ("PutItem", "{}".to_owned(), false),
            ("CreateTable", "{}".to_owned(), false),
        ] {
            let found = Operation::from_target(&format!("DynamoDB_20120810.{operation}")).unwrap();
            let json = json::parse_with_items(body.as_bytes(), &[]).unwrap();
            let parameters = Parameters::of_body(&json).unwrap();
            assert_eq!(found.is_read(parameters), expected, "{operation} {body}");
        }
    }
}
