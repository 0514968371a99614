//! The operations that answer access patterns, with their names in the API and in the AWS CLI.

/// An operation on items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads the items of a partition key.
    Query,
    /// Reads all items of a table or an index.
    Scan,
    /// Reads an item.
    GetItem,
    /// Writes an item.
    PutItem,
    /// Updates an item.
    UpdateItem,
    /// Deletes an item.
    DeleteItem,
    /// Reads several items.
    BatchGetItem,
    /// Writes or deletes several items.
    BatchWriteItem,
    /// Reads several items in a transaction.
    TransactGetItems,
    /// Writes several items in a transaction.
    TransactWriteItems,
}

impl Operation {
    /// All operations, each with its name in the API, its name in the AWS CLI, and its required
    /// options.
    const TABLE: [(Self, &'static str, &'static str, &'static [&'static str]); 10] = [
        (Self::Query, "Query", "query", &["table-name", "key-condition-expression"]),
        (Self::Scan, "Scan", "scan", &["table-name"]),
        (Self::GetItem, "GetItem", "get-item", &["table-name", "key"]),
        (Self::PutItem, "PutItem", "put-item", &["table-name", "item"]),
        (Self::UpdateItem, "UpdateItem", "update-item", &["table-name", "key"]),
        (Self::DeleteItem, "DeleteItem", "delete-item", &["table-name", "key"]),
        (Self::BatchGetItem, "BatchGetItem", "batch-get-item", &["request-items"]),
        (Self::BatchWriteItem, "BatchWriteItem", "batch-write-item", &["request-items"]),
        (Self::TransactGetItems, "TransactGetItems", "transact-get-items", &["transact-items"]),
        (
            Self::TransactWriteItems,
            "TransactWriteItems",
            "transact-write-items",
            &["transact-items"],
        ),
    ];

    /// Returns the names of all operations in the API.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::TABLE.iter().map(|(_, name, ..)| *name)
    }

    /// Returns the names of all operations in the AWS CLI.
    pub fn commands() -> impl Iterator<Item = &'static str> {
        Self::TABLE.iter().map(|(_, _, command, _)| *command)
    }

    /// Returns the operation with this name in the API.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Returns the operation with this name in the AWS CLI.
    #[must_use]
    pub fn from_command(command: &str) -> Option<Self> {
        Self::TABLE.iter().find(|row| row.2 == command).map(|row| row.0)
    }

    fn row(self) -> Option<&'static (Self, &'static str, &'static str, &'static [&'static str])> {
        Self::TABLE.iter().find(|row| row.0 == self)
    }

    /// Returns the name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().map_or("", |row| row.1)
    }

    /// Returns the name in the AWS CLI.
    #[must_use]
    pub fn command(self) -> &'static str {
        self.row().map_or("", |row| row.2)
    }

    /// Returns the options that the AWS CLI requires.
    pub(super) fn required(self) -> &'static [&'static str] {
        self.row().map_or(&[], |row| row.3)
    }

    /// Returns true if the operation only reads.
    #[must_use]
    pub fn is_read(self) -> bool {
        matches!(
            self,
            Self::Query | Self::Scan | Self::GetItem | Self::BatchGetItem | Self::TransactGetItems
        )
    }

    /// Returns true if the operation reads a range of items. DynamoDB rounds up the sum of their
    /// bytes, not each item.
    #[must_use]
    pub fn reads_range(self) -> bool {
        matches!(self, Self::Query | Self::Scan)
    }
}
