//! Checks of the items that a table with indexes rejects, with DynamoDB's error messages.
//!
//! `index::upkeep` maintains the entries of accepted items.

use expression::{Path, Update};
use model::encoding::EncodingError;
use model::limits::{ITEM_BYTES_MAX, PARTITION_KEY_BYTES_MAX, SORT_KEY_BYTES_MAX};
use model::{AttributeValue, EncodedItem, IndexKeySchema, Item, KeyAttribute};

use crate::table::Table;
use crate::table::index::{IndexDefinition, IndexKind, SecondaryIndex};

/// The reason why an item cannot be written to a table with these indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemRefusal {
    /// The message of a `ValidationException`.
    pub text: String,
    /// Whether the value of an index's key is empty. For an empty value, the entire transaction
    /// request is rejected with a `ValidationException`; any other reason cancels the transaction.
    pub is_empty_key: bool,
}

/// DynamoDB's message for an item that is too large together with its entries in local indexes.
const ITEM_TOO_LARGE: &str = "Item size has exceeded the maximum allowed size";

/// The reason why an item's value cannot be the key of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
enum IndexKeyProblem {
    Type { expected: &'static str, actual: &'static str },
    Empty(&'static str),
    TooLong { is_partition: bool },
}

impl IndexDefinition {
    /// Returns why an item's values cannot be this index's key. Returns `None` if they can, or if
    /// the item lacks a key attribute and therefore has no entry.
    fn problem<'a>(&'a self, item: &Item) -> Option<(&'a str, IndexKeyProblem)> {
        let IndexKeySchema { partition, sort } = &self.key_schema;
        side_problem(partition, item, true).or_else(|| side_problem(sort, item, false))
    }
}

/// Returns the first problem of an index's partition key or sort key: an invalid value, or values
/// that are too large together.
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

/// Checks whether the values of an item to put can be the keys of the table's indexes.
///
/// # Errors
/// DynamoDB's message, and whether a transaction with this item is rejected or cancelled.
pub fn check_put(table: &Table, item: &Item) -> Result<(), ItemRefusal> {
    match first_problem(table, item) {
        Some(problem) => Err(refusal_of(problem)),
        None => check_size_with_local_entries(table, item),
    }
}

/// Does the same as [`check_put`] for an item in its stored form, and decodes as few attributes as
/// possible.
///
/// # Errors
/// When the bytes are damaged.
pub fn check_put_encoded(
    table: &Table,
    item: &EncodedItem,
) -> Result<Result<(), ItemRefusal>, EncodingError> {
    check_put_beside(table, item, |_| false)
}

/// Does the same as [`check_put_encoded`], but skips the indexes for which `gets_entry` is true.
/// The creation of an entry has already validated the key values.
///
/// # Errors
/// When the bytes are damaged.
pub(crate) fn check_put_beside(
    table: &Table,
    item: &EncodedItem,
    gets_entry: impl Fn(&SecondaryIndex) -> bool,
) -> Result<Result<(), ItemRefusal>, EncodingError> {
    for index in &table.indexes {
        if gets_entry(index) || index.definition.key_schema.surely_takes(item)? {
            continue;
        }
        let item = item.decode()?;
        return Ok(check_put(table, &item));
    }
    check_size(table, item)
}

/// Checks only the size of an item together with its entries in local indexes.
///
/// # Errors
/// When the bytes are damaged.
pub(crate) fn check_size(
    table: &Table,
    item: &EncodedItem,
) -> Result<Result<(), ItemRefusal>, EncodingError> {
    if is_small_with_local_entries(table, item.size()?) {
        return Ok(Ok(()));
    }
    Ok(check_size_with_local_entries(table, &item.decode()?))
}

/// Returns DynamoDB's error for a problem of an index's key attribute.
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

/// Checks the size limit of an item, which holds for the item together with its entries in the
/// local indexes (AWS, "Quotas: local secondary indexes").
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

/// Returns whether an item is so small that the limit holds for any entries. No entry is larger
/// than its item, so this cheap check suffices for most items.
fn is_small_with_local_entries(table: &Table, size: usize) -> bool {
    size.saturating_mul(1 + table.indexes_of(IndexKind::Local).count()) <= ITEM_BYTES_MAX
}

/// Returns the attributes that [`check_updated`] reads: all key attributes of each index whose key
/// the update changes.
pub(crate) fn names_looked_at<'t>(
    table: &'t Table,
    update: &Update,
) -> impl Iterator<Item = &'t str> {
    let mut touched: Vec<&str> = update.touched().map(Path::root).collect();
    touched.sort_unstable();
    let names = |index: &'t SecondaryIndex| {
        index.definition.key_schema.attributes().map(|attribute| attribute.name.as_str())
    };
    let is_changed = move |name: &str| touched.binary_search(&name).is_ok();
    let maintained = table.indexes.iter().filter(|index| index.is_maintained());
    maintained.filter(move |index| names(index).any(&is_changed)).flat_map(names)
}

/// Checks whether the values that an update computed can be the keys of indexes, as [`check_put`]
/// does. Accepts an invalid value that the update leaves unchanged: the value was written before
/// the index was created, so the index has no entry for the item. The old and the new item must
/// have only the attributes of [`names_looked_at`].
pub(crate) fn check_updated(
    table: &Table,
    update: &Update,
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
            IndexKeyProblem::Type { .. } if update.computes(name) => {
                "The update expression attempted to update the secondary index key to unsupported type".to_owned()
            }
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
    Ok(())
}

fn first_problem<'a>(table: &'a Table, item: &Item) -> Option<(&'a str, &'a str, IndexKeyProblem)> {
    let maintained = table.indexes.iter().filter(|index| index.is_maintained());
    let problems = maintained.filter_map(|index| {
        let (name, problem) = index.definition.problem(item)?;
        Some((index.definition.name.as_str(), name, problem))
    });
    // If several indexes reject the item, DynamoDB's message contains the index whose name sorts
    // first.
    problems.min_by_key(|(index, ..)| *index)
}
