//! Owners: accounts and Regions with their own tables, in a store with the option `--separate-tables`.
//!
//! In the catalogue, the names of an owner's tables have a prefix. Tables of the store's own account and
//! Region have no prefix, so that they can be used with and without the option.

use partition::{Table, TableName};

/// An account and a Region other than those of the store.
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

/// Returns the name of an owner's table in the catalogue; `None` for an invalid name.
pub(super) fn table_name(owner: Option<&Owner>, name: &str) -> Option<TableName> {
    // A name with a slash could be mistaken for the prefixed name of another owner's table.
    (!name.contains('/')).then(|| TableName::new(prefix(owner), name))
}

/// Returns whether a table belongs to the owner.
pub(super) fn owns(owner: Option<&Owner>, table: &Table) -> bool {
    table.name.owner() == prefix(owner)
}

/// Adds the owner's prefix to the token of a transaction, so that equal tokens of two owners differ.
pub(super) fn request_token(owner: Option<&Owner>, token: &str) -> String {
    // Tokens get the same prefix as table names, so that two owners cannot have equal tokens.
    TableName::new(prefix(owner), token).whole().to_owned()
}
