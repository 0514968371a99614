//! Owners: the accounts and Regions that have their own tables, in a store that separates them.
//!
//! The names of tables in the store's own account and Region have no prefix for the owner, so that these
//! tables are the same with and without the option.

use partition::{Table, TableName};

/// An account and a Region that are not the store's own.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) account: String,
    pub(super) region: String,
    /// The prefix of the owner's table names in the catalogue.
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

/// Returns the catalogue's name of an owner's table; `None` for an invalid name.
pub(super) fn table_name(owner: Option<&Owner>, name: &str) -> Option<TableName> {
    // A name with a slash could be a name with the prefix of another owner.
    (!name.contains('/')).then(|| TableName::new(prefix(owner), name))
}

/// Returns whether a table belongs to the owner.
pub(super) fn owns(owner: Option<&Owner>, table: &Table) -> bool {
    table.name.owner() == prefix(owner)
}

/// Returns a transaction's token with the owner's prefix, so that equal tokens of two owners differ.
pub(super) fn request_token(owner: Option<&Owner>, token: &str) -> String {
    // Table names have the same form, for the same reason.
    TableName::new(prefix(owner), token).whole().to_owned()
}
