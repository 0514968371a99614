//! Foreign items: items among the parts of a document that the migration did not write.
//!
//! After the cut-over, every item in a document's partition is part of the document. A foreign item
//! would be written back into the document, or block the reverse direction. Therefore it is a
//! difference before the cut-over. There is no repair, because the migration does not remove items
//! that it did not write. If a foreign item has the key of a document's part, the comparison of the
//! sources counts the item, so this module does not count it.

use std::collections::{BTreeMap, BTreeSet};

use control::{ProblemKind, Task};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use model::json::item_to_string;
use model::{Item, KeySchema, KeyValue, PrimaryKey};
use rules::migration::plan::Direction;
use rules::migration::{Migration, Registers, SourceItem, key_of, visible};

use super::check::unknown;
use super::tally::Tally;
use super::targets::{WRITES_AT_ONCE, load_items};
use super::task::Worker;
use crate::back_off::RetryPolicy;
use crate::failure::Failure;

/// Tells operators why a foreign item is a difference, and what to do about it.
const WHY: &str = "the migration did not write this item, but it is among the parts of a document and would become part of the document at the cut-over; delete or move the item, or choose another table or key";

/// Counts and records the foreign items of a page that are in a document's partition. Returns all
/// other items. Does nothing after the cut-over: parts without marks are then correct items of the
/// writers.
pub(super) async fn count<'i>(
    worker: &Worker<'_>,
    task: &Task,
    items: Vec<&'i Item>,
    tally: &mut Tally,
) -> Result<Vec<&'i Item>, Failure> {
    let back = worker.inverse().filter(|back| {
        task.direction == Direction::Forward && back.documents_of(&task.table).is_some()
    });
    let Some(back) = back.filter(|_| !items.is_empty()) else { return Ok(items) };
    let schema = back.schema(&task.table).ok_or_else(|| unknown(&task.table))?;
    let partition = |item: &Item| schema.key_of_item(item).ok().map(|key| key.partition);
    let partitions = items.iter().filter_map(|item| partition(item)).collect();
    let documents = documents(worker, back, &task.table, &partitions).await?;
    let is_part = |item: &&Item| partition(item).is_some_and(|key| documents.contains_key(&key));
    let (foreign, others): (Vec<&Item>, Vec<&Item>) = items.into_iter().partition(is_part);
    let of_foreign = foreign.iter().filter_map(|item| documents.get(&partition(item)?));
    let parts = parts_of(worker, &task.table, of_foreign.flatten()).await?;
    let key_text = |item: &Item| item_to_string(&key_of(item, schema));
    for item in foreign.iter().filter(|item| !is_in_place_of(item, schema, &parts)) {
        tally.sample("occupied", &format!("{} {}: {WHY}", task.table, key_text(item)));
    }
    let keys = foreign.into_iter().map(key_text);
    let note = |key: String| async move {
        let name = worker.migration.name();
        worker.control.note_problem(ProblemKind::Foreign, name, &task.table, &key, WHY).await
    };
    // Collecting the futures takes little memory: a page has at most a few hundred items.
    let notes: Vec<_> = keys.map(note).collect();
    stream::iter(notes).buffer_unordered(WRITES_AT_ONCE).try_collect::<()>().await?;
    Ok(others)
}

/// Returns the parts that documents currently produce in the table `parts`, by their keys.
async fn parts_of(
    worker: &Worker<'_>,
    parts: &str,
    documents: impl Iterator<Item = &SourceItem>,
) -> Result<BTreeMap<PrimaryKey, Item>, Failure> {
    let migration = &worker.migration;
    let mut keys: BTreeMap<&str, BTreeMap<String, Item>> = BTreeMap::new();
    for source in documents {
        keys.entry(&source.table).or_default().insert(source.to_string(), source.key.clone());
    }
    let mut found = BTreeMap::new();
    for (table, keys) in keys {
        let schema = migration.schema(table).ok_or_else(|| unknown(table))?;
        let (client, keys) = (&worker.control.client, keys.into_values());
        let items = load_items(client, table, schema, keys, RetryPolicy::CONTENDED).await?;
        // A document that cannot be split is counted by the comparison of the sources.
        let made = items.values().filter_map(|item| migration.outputs(table, item).ok()).flatten();
        let made = made.filter(|(target, _)| target.table == parts);
        found.extend(made.map(|(target, part)| (target.key, part)));
    }
    Ok(found)
}

/// Returns whether an item has the key of a document's part but is not that part: it has no mark,
/// or its content differs. The comparison of the sources counts this item.
fn is_in_place_of(item: &Item, schema: &KeySchema, parts: &BTreeMap<PrimaryKey, Item>) -> bool {
    let key = schema.key_of_item(item).ok();
    key.and_then(|key| parts.get(&key)).is_some_and(|part| {
        Registers::from_item(item).is_err() || visible(item, schema).as_ref() != Some(part)
    })
}

/// Returns the sources of the documents in these partitions that the migration has split, by
/// partition. A document that is deleted meanwhile is left out, because it has no profile.
async fn documents(
    worker: &Worker<'_>,
    back: &Migration,
    parts: &str,
    partitions: &BTreeSet<KeyValue>,
) -> Result<BTreeMap<KeyValue, Vec<SourceItem>>, Failure> {
    let schema = back.schema(parts).ok_or_else(|| unknown(parts))?;
    let keys = partitions.iter().filter_map(|partition| back.profile_key(parts, partition));
    let client = &worker.control.client;
    let found = load_items(client, parts, schema, keys, RetryPolicy::CONTENDED).await?;
    let of_document = |item: &Item| {
        visible(item, schema)?;
        let sources = sources_of(&worker.migration, &Registers::from_item(item).ok()?);
        let partition = schema.key_of_item(item).ok()?.partition;
        (!sources.is_empty()).then_some((partition, sources))
    };
    Ok(found.values().filter_map(of_document).collect())
}

/// Returns the sources that produce the item according to its mark, if they belong to the
/// migration.
fn sources_of(migration: &Migration, registers: &Registers) -> Vec<SourceItem> {
    let sources = registers.live().filter_map(|(source, _)| source.parse::<SourceItem>().ok());
    sources.filter(|source| migration.reads(&source.table)).collect()
}

/// Returns whether a source of the migration produces the item, according to the item's mark.
pub(super) fn is_of(migration: &Migration, registers: &Registers) -> bool {
    !sources_of(migration, registers).is_empty()
}
