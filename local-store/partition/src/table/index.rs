//! Secondary indexes: definitions and build status.
//!
//! An entry depends only on the item and the index, so an index can always be rebuilt from the
//! table. `index::refusal` rejects invalid items; `index::upkeep` maintains entries when items
//! change.

use model::{IndexKeySchema, IndexKeyValues, Item, KeyAttribute, KeySchema, PrimaryKey, Token};
use serde::{Deserialize, Serialize};

use crate::table::identifiers::IndexNumber;
use crate::table::placement::ArcId;

/// The kind of an index: whether the index shares the table's partition key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexKind {
    /// An index with the table's partition key and another sort key.
    Local,
    /// An index with any key.
    Global,
}

/// The attributes that an index projects, in addition to the keys of the index and of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexProjection {
    /// No further attributes.
    KeysOnly,
    /// The attributes with the given names.
    Include(Vec<String>),
    /// All attributes.
    All,
}

/// The definition of an index, from a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexDefinition {
    /// The index's name, unique in its table.
    pub name: String,
    /// Whether the index is local or global.
    pub kind: IndexKind,
    /// The key schema. A local index has the table's partition key and exactly one sort key
    /// attribute.
    pub key_schema: IndexKeySchema,
    /// The attributes that the index's entries contain.
    pub projection: IndexProjection,
    /// Read and write capacity units of a global index of a provisioned table.
    pub throughput: Option<(u64, u64)>,
}

/// The status of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexStatus {
    /// The index is being built, and writes already maintain it. Items that are older than the
    /// index have their entries up to the cursor.
    Creating {
        /// The key of the item after which building continues; `None` at the start.
        cursor: Option<Vec<u8>>,
    },
    /// The index has an entry for each item that has the index's key attributes.
    Active,
    /// Writes no longer maintain the index, and its entries are being removed.
    Deleting,
    /// All items have been read, but some entries have not been delivered to other arcs yet.
    Delivering {
        /// For each of these arcs, the number of the last change that it must receive.
        until: Vec<(ArcId, u64)>,
    },
}

impl IndexStatus {
    /// Returns how close the status is to active. The arc with the least progress determines the
    /// status of the index for the entire ring, so an index is not used if any arc is deleting it.
    pub(crate) fn progress(&self) -> u8 {
        match self {
            Self::Deleting => 0,
            Self::Creating { .. } => 1,
            Self::Delivering { .. } => 2,
            Self::Active => 3,
        }
    }
}

/// A secondary index of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondaryIndex {
    /// The index's id, unique in its table. An index that is deleted and recreated has a new id.
    pub number: IndexNumber,
    /// The index's definition.
    pub definition: IndexDefinition,
    /// The index's status.
    pub status: IndexStatus,
}

/// A change of the indexes of an existing table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexChange {
    /// Creates an index, which is then built from the table's items.
    Create(IndexDefinition),
    /// Deletes the index with the given name.
    Delete(String),
    /// Changes the read and write capacity units of an index.
    Throughput(String, (u64, u64)),
}

/// The change of one index entry: a write put, replaced or removed it. If a write changes the index
/// key of an item, it has two changes: one for the removed entry and one for the new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexWrite {
    /// The index.
    pub index: IndexNumber,
    /// The entry's token.
    pub token: Token,
    /// Size of the entry before the write, in bytes; 0 if it did not exist.
    pub old_bytes: usize,
    /// Size of the entry after the write, in bytes; 0 if it does not exist.
    pub new_bytes: usize,
}

/// The keys of one index entry, which are unique in the index and determine the entry's position.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexKey {
    /// The value of the index's key.
    pub index: IndexKeyValues,
    /// The key of the item.
    pub table: PrimaryKey,
}

impl IndexDefinition {
    /// Returns whether the index's entries contain an attribute, given the table's key.
    #[must_use]
    pub fn projects(&self, table: &KeySchema, attribute: &str) -> bool {
        match &self.projection {
            IndexProjection::All => true,
            IndexProjection::KeysOnly => self.is_key(table, attribute),
            IndexProjection::Include(names) => {
                self.is_key(table, attribute) || names.iter().any(|name| name == attribute)
            }
        }
    }

    fn is_key(&self, table: &KeySchema, attribute: &str) -> bool {
        self.key_schema.contains(attribute) || table.contains(attribute)
    }

    /// Returns the key attributes of an entry: the key attributes of the index, then the remaining
    /// key attributes of the table.
    pub fn entry_attributes<'a>(
        &'a self,
        table: &'a KeySchema,
    ) -> impl Iterator<Item = &'a KeyAttribute> {
        let others = |attribute: &&KeyAttribute| !self.key_schema.contains(&attribute.name);
        self.key_schema.attributes().chain(table.attributes().filter(others))
    }

    /// Returns the attributes of an item that the index projects.
    pub(crate) fn project(&self, table: &KeySchema, item: &Item) -> Item {
        let mut entry = item.clone();
        if self.projection != IndexProjection::All {
            entry.retain(|name, _| self.projects(table, name));
        }
        entry
    }

    /// Returns the value of the index's key in an item; `None` if the item has no entry.
    pub(crate) fn key_of(&self, item: &Item) -> Option<IndexKeyValues> {
        self.key_schema.values_of_item(item).ok()
    }
}

impl SecondaryIndex {
    /// Returns whether writes maintain the index.
    #[must_use]
    pub fn is_maintained(&self) -> bool {
        self.status != IndexStatus::Deleting
    }

    /// Returns whether the index is being built. Such an index may lack entries and cannot be read.
    #[must_use]
    pub fn is_being_built(&self) -> bool {
        matches!(self.status, IndexStatus::Creating { .. } | IndexStatus::Delivering { .. })
    }

    /// Returns `CREATING`, `ACTIVE` or `DELETING`.
    #[must_use]
    pub fn status_text(&self) -> &'static str {
        match self.status {
            IndexStatus::Creating { .. } | IndexStatus::Delivering { .. } => "CREATING",
            IndexStatus::Active => "ACTIVE",
            IndexStatus::Deleting => "DELETING",
        }
    }
}
