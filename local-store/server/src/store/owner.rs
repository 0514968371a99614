//! Whose tables a request means, in a store that keeps accounts and Regions apart.
//!
//! Tables of the store's own account and Region have no owner in their names, so that they are the
//! same with and without the option. Who a request is from is found out by the listener.

use partition::{Table, TableName};

/// An account and a Region that are not the store's own.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) account: String,
    pub(super) region: String,
    /// What stands before its tables' names in the catalogue.
    name: String,
}

impl Owner {
    pub(super) fn new(account: &str, region: &str) -> Self {
        let name = format!("{account}/{region}");
        Self { account: account.to_owned(), region: region.to_owned(), name }
    }
}

/// What stands before the tables' names of an owner, or of the store's own.
fn prefix(owner: Option<&Owner>) -> &str {
    owner.map_or("", |owner| owner.name.as_str())
}

/// The name of an owner's table; `None` when no table can be called so.
pub(super) fn table_name(owner: Option<&Owner>, name: &str) -> Option<TableName> {
    // Nobody names a table of somebody else by writing the owner himself.
    (!name.contains('/')).then(|| TableName::new(prefix(owner), name))
}

/// Whether a table is the owner's.
pub(super) fn owns(owner: Option<&Owner>, table: &Table) -> bool {
    table.name.owner() == prefix(owner)
}

/// A token that an owner gave a transaction, so that another one's token is another one.
pub(super) fn request_token(owner: Option<&Owner>, token: &str) -> String {
    // A table's name has the same form, and the same reason.
    TableName::new(prefix(owner), token).whole().to_owned()
}
