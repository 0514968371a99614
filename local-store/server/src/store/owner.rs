//! The owner of the tables that a request refers to, in a store that separates accounts and Regions.
//!
//! Tables of the store's own account and Region have no owner in their names, so that they are the same
//! with and without the option. The listener determines the sender of a request.

use partition::{Table, TableName};

/// An account and a Region other than the store's.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) account: String,
    pub(super) region: String,
    /// The prefix of its tables' names in the catalogue.
    name: String,
}

impl Owner {
    pub(super) fn new(account: &str, region: &str) -> Self {
        let name = format!("{account}/{region}");
        Self { account: account.to_owned(), region: region.to_owned(), name }
    }
}

/// Returns the prefix of the table names of an owner, or of the store itself.
fn prefix(owner: Option<&Owner>) -> &str {
    owner.map_or("", |owner| owner.name.as_str())
}

/// Returns the name of an owner's table; `None` if no table can have this name.
pub(super) fn table_name(owner: Option<&Owner>, name: &str) -> Option<TableName> {
    // Otherwise a client could name another owner's table by writing the prefix itself.
    (!name.contains('/')).then(|| TableName::new(prefix(owner), name))
}

/// Returns whether a table belongs to the owner.
pub(super) fn owns(owner: Option<&Owner>, table: &Table) -> bool {
    table.name.owner() == prefix(owner)
}

/// Returns the token of an owner's transaction, distinct from equal tokens of other owners.
pub(super) fn request_token(owner: Option<&Owner>, token: &str) -> String {
    // The name of a table has the same form, for the same reason.
    TableName::new(prefix(owner), token).whole().to_owned()
}
