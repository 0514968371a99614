//! Secondary indexes: what an index is, which entry an item has in it, and keeping the entries in
//! step with the items.
//!
//! An entry is a function of the item and the index alone, so an index can always be built again
//! from the table. Entries that lie in the arc of their item are changed in the batch of its write
//! (see `docs/decisions/0004-global-indexes-follow-in-the-same-batch.md`), others go through the outbox.
//! Building an index of a table that has items already is in `index_build`.

use std::borrow::Cow;

use model::encoding::EncodingError;
use model::limits::{ITEM_BYTES_MAX, PARTITION_KEY_BYTES_MAX, SORT_KEY_BYTES_MAX};
use model::{
    AttributeValue, EncodedItem, IndexKeySchema, IndexKeyValues, Item, KeyAttribute, KeySchema,
    PrimaryKey, Token,
};
use serde::{Deserialize, Serialize};

use crate::image::{Image, damaged};
use crate::keys::index_entry;
use crate::keys::index_statistics;
use crate::keys::statistics::Statistics;
use crate::mutation::{self, Mutation};
use crate::outbox::{self, Delivery};
use crate::placement::ArcId;
use crate::storage::{Overlay, ReadError, View};
use crate::table::Table;

/// An index's number among all indexes that its table ever had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IndexNumber(pub u32);

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

/// An entry: where it is and what it holds, which mostly is what its item does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IndexEntry<'i> {
    pub(crate) key: Vec<u8>,
    pub(crate) item: Cow<'i, EncodedItem>,
    /// Size of what it holds in bytes, as DynamoDB counts it.
    pub(crate) size: usize,
    /// The arc that it lies in: that of the table's items with the token of its partition key.
    pub(crate) arc: ArcId,
}

impl IndexEntry<'_> {
    /// The same, with a copy of what it borrows of its item.
    pub(crate) fn into_owned(self) -> IndexEntry<'static> {
        IndexEntry { item: Cow::Owned(self.item.into_owned()), ..self }
    }
}

/// Why an item cannot be written to a table with these indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemRefusal {
    /// The text of a `ValidationException`.
    pub text: String,
    /// Whether the value of an index's key is empty: a transaction is then refused as a whole,
    /// where any other reason cancels it.
    pub is_empty_key: bool,
}

/// An item that is too large together with its local entries, in DynamoDB's words.
const ITEM_TOO_LARGE: &str = "Item size has exceeded the maximum allowed size";

/// Why an item's value cannot be the key of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
enum IndexKeyProblem {
    Type { expected: &'static str, actual: &'static str },
    Empty(&'static str),
    TooLong { is_partition: bool },
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
    fn project(&self, table: &KeySchema, item: &Item) -> Item {
        let mut entry = item.clone();
        if self.projection != IndexProjection::All {
            entry.retain(|name, _| self.projects(table, name));
        }
        entry
    }

    /// Why an item cannot be written because of its values for this index's key; `None` when it
    /// can, also when it has no such value and therefore no entry.
    fn problem<'a>(&'a self, item: &Item) -> Option<(&'a str, IndexKeyProblem)> {
        let IndexKeySchema { partition, sort } = &self.key_schema;
        side_problem(partition, item, true).or_else(|| side_problem(sort, item, false))
    }

    /// The value of the index's key in an item; `None` when it has no entry.
    fn key_of(&self, item: &Item) -> Option<IndexKeyValues> {
        self.key_schema.values_of_item(item).ok()
    }
}

/// The first problem of the partition key or of the sort key: of one value, or of all together.
fn side_problem<'a>(
    attributes: &'a [KeyAttribute],
    item: &Item,
    is_partition: bool,
) -> Option<(&'a str, IndexKeyProblem)> {
    let mut bytes = 0;
    let bytes_max = if is_partition { PARTITION_KEY_BYTES_MAX } else { SORT_KEY_BYTES_MAX };
    for attribute in attributes {
        let Some(value) = item.get(&attribute.name) else { continue };
        if let Some(problem) = key_problem(attribute, value) {
            return Some((&attribute.name, problem));
        }
        bytes += value.size();
        if bytes > bytes_max {
            return Some((&attribute.name, IndexKeyProblem::TooLong { is_partition }));
        }
    }
    None
}

fn key_problem(attribute: &KeyAttribute, value: &AttributeValue) -> Option<IndexKeyProblem> {
    match value {
        _ if value.attribute_type() != attribute.attribute_type.attribute_type() => {
            Some(IndexKeyProblem::Type {
                expected: attribute.attribute_type.descriptor(),
                actual: value.attribute_type().descriptor(),
            })
        }
        AttributeValue::S(text) if text.is_empty() => Some(IndexKeyProblem::Empty("string")),
        AttributeValue::B(bytes) if bytes.is_empty() => Some(IndexKeyProblem::Empty("binary")),
        _ => None,
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

    /// The entry that an item has in this index, if it has one.
    pub(crate) fn entry_of<'i>(
        &self,
        table: &Table,
        primary: &PrimaryKey,
        item: &'i EncodedItem,
    ) -> Result<Option<IndexEntry<'i>>, ReadError> {
        let definition = &self.definition;
        let values = definition.key_schema.values_of_encoded(item).map_err(damaged)?;
        let Some(values) = values else { return Ok(None) };
        let item = match definition.projection {
            IndexProjection::All => Cow::Borrowed(item),
            IndexProjection::KeysOnly | IndexProjection::Include(_) => {
                let part = item.decode_only(|name| definition.projects(&table.key_schema, name));
                Cow::Owned(EncodedItem::from(&part.map_err(damaged)?))
            }
        };
        let (key, token) = index_entry::encode_stored(table.id, self.number, &values, primary);
        Ok(Some(IndexEntry {
            arc: table.placement.arc_of(token),
            key,
            size: item.size().map_err(damaged)?,
            item,
        }))
    }
}

/// Where an item stands on the rings of the table's global indexes that it is in.
#[must_use]
pub fn global_index_tokens(table: &Table, item: &Item) -> Vec<(IndexNumber, Token)> {
    let global = table.indexes_of(IndexKind::Global).filter(|index| index.is_maintained());
    let token =
        |index: &SecondaryIndex| Some((index.number, index.definition.key_of(item)?.token()));
    global.filter_map(token).collect()
}

/// Refuses an item that is to be put, in DynamoDB's words, when one of its values cannot be the
/// key of an index.
///
/// # Errors
/// Why, and whether a transaction is refused as a whole because of it.
pub fn check_put(table: &Table, item: &Item) -> Result<(), ItemRefusal> {
    match first_problem(table, item) {
        Some(problem) => Err(refusal_of(problem)),
        None => check_size_with_local_entries(table, item),
    }
}

/// The same of an item in its stored form, of which little is decoded.
///
/// # Errors
/// When the bytes are damaged.
pub fn check_put_encoded(
    table: &Table,
    item: &EncodedItem,
) -> Result<Result<(), ItemRefusal>, EncodingError> {
    for index in &table.indexes {
        if index.definition.key_schema.surely_takes(item)? {
            continue;
        }
        let item = item.decode()?;
        return Ok(check_put(table, &item));
    }
    if is_small_with_local_entries(table, item.size()?) {
        return Ok(Ok(()));
    }
    Ok(check_size_with_local_entries(table, &item.decode()?))
}

/// A problem in DynamoDB's words, from the name of the index and of the attribute.
fn refusal_of((index, name, problem): (&str, &str, IndexKeyProblem)) -> ItemRefusal {
    let is_empty_key = matches!(problem, IndexKeyProblem::Empty(_));
    let text = match problem {
        IndexKeyProblem::Type { expected, actual } => type_mismatch(index, name, expected, actual),
        IndexKeyProblem::Empty(kind) => format!(
            "One or more parameter values are not valid. A value specified for a secondary index key is not supported. The AttributeValue for a key attribute cannot contain an empty {kind} value. IndexName: {index}, IndexKey: {name}"
        ),
        IndexKeyProblem::TooLong { is_partition: true } => {
            "One or more parameter values were invalid: Size of hashkey has exceeded the maximum size limit of2048 bytes".to_owned()
        }
        IndexKeyProblem::TooLong { is_partition: false } => {
            "One or more parameter values were invalid: Aggregated size of all range keys has exceeded the size limit of 1024 bytes".to_owned()
        }
    };
    ItemRefusal { text, is_empty_key }
}

fn type_mismatch(index: &str, name: &str, expected: &str, actual: &str) -> String {
    format!(
        "One or more parameter values were invalid: Type mismatch for Index Key {name} Expected: {expected} Actual: {actual} IndexName: {index}"
    )
}

/// The limit of an item's size holds for the item together with its entries in the local indexes
/// (AWS, "Quotas: local secondary indexes").
fn check_size_with_local_entries(table: &Table, item: &Item) -> Result<(), ItemRefusal> {
    let size = item.size();
    if is_small_with_local_entries(table, size) {
        return Ok(());
    }
    let locals = table.indexes_of(IndexKind::Local);
    let entries = locals.filter(|index| index.definition.key_of(item).is_some());
    let projected = entries.map(|index| index.definition.project(&table.key_schema, item).size());
    if size + projected.sum::<usize>() <= ITEM_BYTES_MAX {
        return Ok(());
    }
    Err(ItemRefusal { text: ITEM_TOO_LARGE.to_owned(), is_empty_key: false })
}

/// No entry is larger than its item, so most items need no further look.
fn is_small_with_local_entries(table: &Table, size: usize) -> bool {
    size.saturating_mul(1 + table.indexes_of(IndexKind::Local).count()) <= ITEM_BYTES_MAX
}

/// Refuses the item that an update made; see [`check_put`]. A value that the update left as it was
/// is no reason: the index was created behind it and does without the item.
pub(crate) fn check_updated(
    table: &Table,
    old: Option<&Item>,
    new: &Item,
) -> Result<(), ItemRefusal> {
    let mut maintained: Vec<&SecondaryIndex> =
        table.indexes.iter().filter(|index| index.is_maintained()).collect();
    maintained.sort_by_key(|index| &index.definition.name);
    for index in maintained {
        let Some((name, problem)) = index.definition.problem(new) else {
            continue;
        };
        if old.and_then(|old| old.get(name)) == new.get(name) {
            continue;
        }
        let is_empty_key = matches!(problem, IndexKeyProblem::Empty(_));
        let text = match problem {
            IndexKeyProblem::Type { expected, actual } => {
                type_mismatch(&index.definition.name, name, expected, actual)
            }
            IndexKeyProblem::Empty(kind) => format!(
                "One or more parameter values are not valid. The update expression attempted to update a secondary index key to a value that is not supported. The AttributeValue for a key attribute cannot contain an empty {kind} value."
            ),
            IndexKeyProblem::TooLong { .. } => {
                "The update expression attempted to update the secondary index key beyond allowed size limits".to_owned()
            }
        };
        return Err(ItemRefusal { text, is_empty_key });
    }
    check_size_with_local_entries(table, new)
}

fn first_problem<'a>(table: &'a Table, item: &Item) -> Option<(&'a str, &'a str, IndexKeyProblem)> {
    let maintained = table.indexes.iter().filter(|index| index.is_maintained());
    let problems = maintained.filter_map(|index| {
        let (name, problem) = index.definition.problem(item)?;
        Some((index.definition.name.as_str(), name, problem))
    });
    // The service names the index that comes first by its name.
    problems.min_by_key(|(index, ..)| *index)
}

/// Keeps every index of a table in step with a write. Gives which entries it changed.
pub(crate) fn update_entries<'i>(
    overlay: &mut Overlay<'_>,
    table: &Table,
    primary: &PrimaryKey,
    old: Option<&'i Image>,
    new: Option<&'i Image>,
) -> Result<Vec<IndexWrite>, ReadError> {
    let mut writes = Vec::new();
    if table.indexes.is_empty() {
        return Ok(writes);
    }
    if new.is_none() && mutation::is_active(Mutation::SkipIndexEntries) {
        return Ok(writes);
    }
    // An item and its entries in local indexes are always in one arc.
    let here = table.placement.arc_of(primary.token());
    for index in table.indexes.iter().filter(|index| index.is_maintained()) {
        let entry = |image: Option<&'i Image>| match image {
            Some(image) => index.entry_of(table, primary, image.encoded()),
            None => Ok(None),
        };
        let (mut before, after) = (entry(old)?, entry(new)?);
        if before == after {
            continue;
        }
        // An index that is being built does not have the entries of all items yet. What it has of
        // this one elsewhere is not known here; there, removing what is not there changes nothing.
        if matches!(index.status, IndexStatus::Creating { .. })
            && let Some(entry) = before.as_ref().filter(|entry| entry.arc == here)
            && overlay.get(&entry.key)?.is_none()
        {
            before = None;
        }
        writes.extend(replace_entry(overlay, table, index, here, before, after)?);
    }
    Ok(writes)
}

/// Puts `after` where `before` is, and counts both: at once what lies in this arc, and through the
/// outbox what lies elsewhere.
pub(crate) fn replace_entry<'i>(
    overlay: &mut Overlay<'_>,
    table: &Table,
    index: &SecondaryIndex,
    here: ArcId,
    before: Option<IndexEntry<'i>>,
    after: Option<IndexEntry<'i>>,
) -> Result<Vec<IndexWrite>, ReadError> {
    let writes = describe_change(index, before.as_ref(), after.as_ref());
    let is_same_place = before.as_ref().map(|entry| &entry.key) == after.as_ref().map(|e| &e.key);
    let apart = |entry: Option<IndexEntry<'i>>| match entry {
        Some(entry) if entry.arc == here => (Some(entry), None),
        entry => (None, entry),
    };
    let ((old_here, old_there), (new_here, new_there)) = (apart(before), apart(after));
    if old_here.is_some() || new_here.is_some() {
        replace_here(overlay, table, index, old_here, new_here)?;
    }
    let delivery = |key, entry| Delivery { table: table.id, index: index.number, key, entry };
    if let Some(old_there) = old_there.filter(|_| !is_same_place) {
        outbox::push(overlay, old_there.arc, &delivery(old_there.key, None))?;
    }
    if let Some(new_there) = new_there {
        let value = new_there.item.as_bytes().to_vec();
        outbox::push(overlay, new_there.arc, &delivery(new_there.key, Some(value)))?;
    }
    Ok(writes)
}

/// The entries that a change puts, replaces or removes.
fn describe_change(
    index: &SecondaryIndex,
    before: Option<&IndexEntry<'_>>,
    after: Option<&IndexEntry<'_>>,
) -> Vec<IndexWrite> {
    let write = |entry: &IndexEntry<'_>, old_bytes, new_bytes| IndexWrite {
        index: index.number,
        token: index_entry::token_of(&entry.key),
        old_bytes,
        new_bytes,
    };
    match (before, after) {
        (Some(before), Some(after)) if before.key == after.key => {
            vec![write(after, before.size, after.size)]
        }
        (before, after) => {
            let removed = before.map(|entry| write(entry, entry.size, 0));
            removed.into_iter().chain(after.map(|entry| write(entry, 0, entry.size))).collect()
        }
    }
}

fn replace_here(
    overlay: &mut Overlay<'_>,
    table: &Table,
    index: &SecondaryIndex,
    before: Option<IndexEntry<'_>>,
    after: Option<IndexEntry<'_>>,
) -> Result<(), ReadError> {
    let of = |entry: &Option<IndexEntry<'_>>| {
        let size = |entry: &IndexEntry<'_>| u64::try_from(entry.size).unwrap_or(u64::MAX);
        Statistics::of_one(entry.as_ref().map(size))
    };
    let (old, new) = (of(&before), of(&after));
    if old != new {
        let statistics = index_statistics::read(overlay, table.id, index.number)?;
        let statistics = statistics.with_replaced(old, new);
        index_statistics::write(overlay, table.id, index.number, &statistics)?;
    }
    // An item has one entry in an index that has all of them: where it was before.
    let is_new = index.status == IndexStatus::Active
        && before.as_ref().map(|entry| &entry.key) != after.as_ref().map(|entry| &entry.key);
    if let Some(before) = before {
        overlay.delete(before.key);
    }
    match after {
        Some(after) if is_new => overlay.insert(after.key, after.item.to_shared()),
        Some(after) => overlay.put(after.key, after.item.to_shared()),
        None => {}
    }
    Ok(())
}
