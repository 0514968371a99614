//! The AWS CLI command of an access pattern, parsed into a DynamoDB request.
//!
//! `words` splits the command as a shell does, `options` builds the request, and `place` locates a
//! mistake in the file. This module runs nothing.

mod error;
mod expressions;
mod operation;
mod options;
mod place;
mod words;

use serde_json::{Map, Value};

pub use self::error::CommandError;
pub use self::expressions::{Attributes, attributes, key_condition, placeholder_mistakes, updated};
pub use self::operation::Operation;
pub use self::place::place_of;

/// A request, with the number of pages or items to read.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// The operation.
    pub operation: Operation,
    /// The parameters of the request.
    pub request: Map<String, Value>,
    /// Whether all pages of a query or scan are read. The AWS CLI reads all pages, except with
    /// `--limit`, `--exclusive-start-key` or `--no-paginate`.
    pub reads_all_pages: bool,
    /// The number of items after which the AWS CLI stops.
    pub items_max: Option<u64>,
}

/// A part of a request that acts on the items of one table: the request itself, or a member of a batch or of a
/// transaction.
#[derive(Clone, Copy, Debug)]
pub struct Action<'c> {
    /// The table.
    pub table: &'c str,
    /// The parameters of the request or of the member.
    pub parameters: &'c Map<String, Value>,
}

impl Command {
    /// Parses a command such as `aws dynamodb query --table-name films …`.
    ///
    /// # Errors
    /// The text is not a single AWS CLI command that reads or writes items.
    pub fn parse(text: &str) -> Result<Self, CommandError> {
        options::command(&words::split(text)?)
    }

    /// Returns the index that the request names.
    #[must_use]
    pub fn index(&self) -> Option<&str> {
        self.request.get("IndexName").and_then(Value::as_str)
    }

    /// Returns the parts of the request, in its order.
    #[must_use]
    pub fn actions(&self) -> Vec<Action<'_>> {
        let own = self.request.get("TableName").and_then(Value::as_str);
        let mut actions: Vec<Action<'_>> =
            own.map(|table| Action { table, parameters: &self.request }).into_iter().collect();
        let members = self.request.get("TransactItems").and_then(Value::as_array);
        for member in members.into_iter().flatten().filter_map(Value::as_object) {
            actions.extend(member.values().filter_map(Value::as_object).filter_map(|parameters| {
                Some(Action { table: parameters.get("TableName")?.as_str()?, parameters })
            }));
        }
        let tables = self.request.get("RequestItems").and_then(Value::as_object);
        for (table, requests) in tables.into_iter().flatten() {
            match requests {
                Value::Object(parameters) => actions.push(Action { table, parameters }),
                Value::Array(writes) => {
                    let writes = writes.iter().filter_map(Value::as_object);
                    let writes =
                        writes.flat_map(|write| write.values().filter_map(Value::as_object));
                    actions.extend(writes.map(|parameters| Action { table, parameters }));
                }
                _ => {}
            }
        }
        actions
    }

    /// Returns the distinct tables of the request, in its order.
    #[must_use]
    pub fn tables(&self) -> Vec<&str> {
        let mut tables: Vec<&str> = Vec::new();
        for action in self.actions() {
            if !tables.contains(&action.table) {
                tables.push(action.table);
            }
        }
        tables
    }

    /// Returns the number of items that the request names: the number of keys for a batch read,
    /// otherwise one for each action.
    #[must_use]
    pub fn named_items(&self) -> usize {
        let keys = |action: &Action<'_>| action.parameters.get("Keys")?.as_array().map(Vec::len);
        self.actions().iter().map(|action| keys(action).unwrap_or(1)).sum()
    }

    /// Returns the cost of reading 4 KB in half read units: two for a strongly consistent read,
    /// four in a transaction, otherwise one.
    #[must_use]
    pub fn read_halves(&self) -> f64 {
        let is_consistent = |parameters: &Map<String, Value>| {
            parameters.get("ConsistentRead").and_then(Value::as_bool).unwrap_or(false)
        };
        match self.operation {
            Operation::TransactGetItems => 4.0,
            _ if self.actions().iter().any(|action| is_consistent(action.parameters)) => 2.0,
            _ => 1.0,
        }
    }
}
