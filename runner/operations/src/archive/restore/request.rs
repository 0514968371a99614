//! The request of a program that restores without the command line.

use super::super::table_argument::TableArgument;
use super::RestoreArguments;

/// A program's request to restore items, with the same fields as the flags of
/// `weir archive restore`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestoreRequest {
    /// The archived table.
    pub table: String,
    /// The key of the items, in plain JSON or DynamoDB JSON.
    pub key: Option<String>,
    /// A condition, such as `year >= 2000`.
    pub condition: Option<String>,
    /// The UTC day of the deletes.
    pub day: Option<String>,
    /// The time up to which deletes are considered, as in `--as-of`.
    pub as_of: Option<String>,
    /// True if all items are selected when the request has no other condition.
    pub all: bool,
    /// The time to live of restored items: `strip`, or seconds from now.
    pub ttl: String,
}

impl RestoreArguments {
    /// Returns the arguments of a program's request, for the store at this endpoint.
    pub(in super::super) fn of(request: &RestoreRequest, endpoint: &str, dry_run: bool) -> Self {
        Self {
            table: TableArgument::of(&request.table),
            into: None,
            whole_key: false,
            key: request.key.clone(),
            conditions: request.condition.iter().cloned().collect(),
            begins_with: None,
            dt: request.day.clone(),
            as_of: request.as_of.clone(),
            all: request.all,
            ttl: request.ttl.clone(),
            dry_run,
            endpoint: Some(endpoint.to_owned()),
        }
    }
}
