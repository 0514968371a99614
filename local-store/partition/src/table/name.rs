//! The name of a table: as its owner calls it, and as the catalogue of all tables does.
//!
//! A store may keep the tables of several accounts and Regions apart. Then several of them may have
//! a table of the same name, and in the catalogue the owner stands before the name. Who an owner is,
//! and who may ask for what, is not decided here.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

/// Between an owner and a name; DynamoDB allows it in neither.
const SEPARATOR: char = '/';

/// The name of a table. It reads as the name that its owner calls it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TableName(String);

impl TableName {
    /// The name `name` of an owner; an empty owner is the store's own.
    #[must_use]
    pub fn new(owner: &str, name: &str) -> Self {
        if owner.is_empty() { Self(name.to_owned()) } else { Self(format!("{owner}/{name}")) }
    }

    /// The name that is unique in the catalogue: behind the owner, if that is not the store's own.
    #[must_use]
    pub fn whole(&self) -> &str {
        &self.0
    }

    /// The owner; empty for the store's own.
    #[must_use]
    pub fn owner(&self) -> &str {
        self.0.rsplit_once(SEPARATOR).map_or("", |(owner, _)| owner)
    }

    /// The name as its owner calls it.
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
    /// A name of the store's own owner.
    fn from(name: &str) -> Self {
        Self::new("", name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_as_its_owner_calls_it() {
        for (owner, whole) in [("", "votes"), ("1/eu", "1/eu/votes")] {
            let name = TableName::new(owner, "votes");
            assert_eq!((name.owner(), &*name, name.whole()), (owner, "votes", whole));
            assert_eq!(name.to_string(), "votes");
            let stored = postcard::to_stdvec(&name).unwrap();
            assert_eq!(stored, postcard::to_stdvec(whole).unwrap(), "stored as a text");
        }
    }
}
