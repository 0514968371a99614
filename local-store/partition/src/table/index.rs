//! Secondary indexes: what an index is, and how far it has come.
//!
//! An entry is a function of the item and the index alone, so an index can always be built again
//! from the table. Which items an index refuses is in `index::refusal`, how its entries follow the
//! items in `index::upkeep`.

use model::{IndexKeySchema, IndexKeyValues, Item, KeyAttribute, KeySchema, PrimaryKey, Token};
use serde::{Deserialize, Serialize};

use crate::table::identifiers::IndexNumber;
use crate::table::placement::ArcId;

/// Whether an index shares the table's partition key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexKind {
    /// The table's partition key and another sort key.
    Local,
    /// Any key.
    Global,
}

/// Which attributes an index's entries hold beside the keys of the index and of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexProjection {
    /// None.
    KeysOnly,
    /// These.
    Include(Vec<String>),
    /// All.
    All,
}

/// What a request says about an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexDefinition {
    /// Its name, unique in its table.
    pub name: String,
    /// Local or global.
    pub kind: IndexKind,
    /// Its key. A local index has the table's partition key, and always a sort key of one attribute.
    pub key_schema: IndexKeySchema,
    /// What its entries hold.
    pub projection: IndexProjection,
    /// Read and write capacity units of a global index of a provisioned table.
    pub throughput: Option<(u64, u64)>,
}

/// How far an index has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexStatus {
    /// New writes are indexed; older items up to the cursor are too.
    Creating {
        /// The item key after which building goes on; `None` at the start.
        cursor: Option<Vec<u8>>,
    },
    /// It has an entry for each item that has its keys.
    Active,
    /// It is not kept in step any more, and its entries are being removed.
    Deleting,
    /// Every item was looked at; some entries are on their way to other arcs.
    Delivering {
        /// For each of these arcs, the number of the last change that has to arrive there.
        until: Vec<(ArcId, u64)>,
    },
}

impl IndexStatus {
    /// How far an index with this status is from being of use: of the arcs of a ring, the one that
    /// is the least far along says what the index is. One that is to go anywhere is not used.
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
    /// Its number. An index that is deleted and created again has another.
    pub number: IndexNumber,
    /// What was asked for.
    pub definition: IndexDefinition,
    /// How far it has come.
    pub status: IndexStatus,
}

/// A change of the indexes of a table that is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexChange {
    /// A new index, to be built from the items.
    Create(IndexDefinition),
    /// No index of this name any more.
    Delete(String),
    /// Other read and write capacity units.
    Throughput(String, (u64, u64)),
}

/// One entry of an index that a write put, replaced or removed. An item whose index key changed
/// gives two: one removed, one put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexWrite {
    /// Of which index.
    pub index: IndexNumber,
    /// Where on the index's ring.
    pub token: Token,
    /// Size of the entry as it was, in bytes; 0 when it was not there.
    pub old_bytes: usize,
    /// Size of the entry as it is, in bytes; 0 when it is not there.
    pub new_bytes: usize,
}

/// The keys of one entry, which tell its place: no two entries of an index have the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexKey {
    /// The value of the index's key.
    pub index: IndexKeyValues,
    /// The key of the item.
    pub table: PrimaryKey,
}

impl IndexDefinition {
    /// Whether entries hold an attribute, given the table's key.
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

    /// The key attributes of an entry: the index's, then those of the table that are not among them.
    pub fn entry_attributes<'a>(
        &'a self,
        table: &'a KeySchema,
    ) -> impl Iterator<Item = &'a KeyAttribute> {
        let others = |attribute: &&KeyAttribute| !self.key_schema.contains(&attribute.name);
        self.key_schema.attributes().chain(table.attributes().filter(others))
    }

    /// The part of an item that an entry holds.
    pub(crate) fn project(&self, table: &KeySchema, item: &Item) -> Item {
        let mut entry = item.clone();
        if self.projection != IndexProjection::All {
            entry.retain(|name, _| self.projects(table, name));
        }
        entry
    }

    /// The value of the index's key in an item; `None` when it has no entry.
    pub(crate) fn key_of(&self, item: &Item) -> Option<IndexKeyValues> {
        self.key_schema.values_of_item(item).ok()
    }
}

impl SecondaryIndex {
    /// Whether writes keep it in step.
    #[must_use]
    pub fn is_maintained(&self) -> bool {
        self.status != IndexStatus::Deleting
    }

    /// Whether it does not have an entry for each item yet: then it answers no question.
    #[must_use]
    pub fn is_being_built(&self) -> bool {
        matches!(self.status, IndexStatus::Creating { .. } | IndexStatus::Delivering { .. })
    }

    /// `CREATING`, `ACTIVE` or `DELETING`.
    #[must_use]
    pub fn status_text(&self) -> &'static str {
        match self.status {
            IndexStatus::Creating { .. } | IndexStatus::Delivering { .. } => "CREATING",
            IndexStatus::Active => "ACTIVE",
            IndexStatus::Deleting => "DELETING",
        }
    }
}
