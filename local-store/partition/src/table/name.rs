//! Table names: the name that the owner sees, and the unique name in the catalogue.
//!
//! A store may separate the tables of several accounts and Regions. Two owners may therefore have
//! tables of the same name, so the catalogue prefixes a name with its owner. The server determines
//! owners and authorises requests.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

/// The separator between an owner and a name. It cannot occur in either of them.
const SEPARATOR: char = '/';

/// The name of a table. It dereferences to the name without the owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TableName(String);

impl TableName {
    /// Creates the table name `name` of an owner. If `owner` is empty, the store itself owns the
    /// table.
    #[must_use]
    pub fn new(owner: &str, name: &str) -> Self {
        if owner.is_empty() { Self(name.to_owned()) } else { Self(format!("{owner}/{name}")) }
    }

    /// Returns the name that is unique in the catalogue: the owner and the name. A name that the
    /// store itself owns has no prefix.
    #[must_use]
    pub fn whole(&self) -> &str {
        &self.0
    }

    /// Returns the owner of the table; an empty string for the store itself.
    #[must_use]
    pub fn owner(&self) -> &str {
        self.0.rsplit_once(SEPARATOR).map_or("", |(owner, _)| owner)
    }

    /// Returns the name without the owner, as the owner sees it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.rsplit_once(SEPARATOR).map_or(&self.0, |(_, name)| name)
    }
}

impl Deref for TableName {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl From<&str> for TableName {
    /// Creates a name that the store itself owns.
    fn from(name: &str) -> Self {
        Self::new("", name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_dereferences_to_the_name_for_its_owner() {
        for (owner, whole) in [("", "votes"), ("1/eu", "1/eu/votes")] {
            let name = TableName::new(owner, "votes");
            assert_eq!((name.owner(), &*name, name.whole()), (owner, "votes", whole));
            assert_eq!(name.to_string(), "votes");
            let stored = postcard::to_stdvec(&name).unwrap();
            assert_eq!(stored, postcard::to_stdvec(whole).unwrap(), "stored as a string");
        }
    }
}
