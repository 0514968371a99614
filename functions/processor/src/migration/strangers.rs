//! Items that stand among the parts of a document and that the migration did not write.
//!
//! Whatever stands in the partition of a document is part of it once readers and writers use the parts:
//! it would be written back into the document, or be in the way of the way back. So before the cut-over
//! it is a difference. Nothing repairs that: what the migration did not write, it does not remove.

use std::collections::BTreeSet;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use model::json::item_to_string;
use model::{Item, KeyValue};
use rules::migration::plan::Direction;
use rules::migration::{Migration, Registers, SourceItem, key_of, visible};

use super::check::unknown;
use super::control::{Tally, Task};
use super::targets::{WRITES_AT_ONCE, load_items};
use super::task::Worker;
use crate::back_off::RetryPolicy;
use crate::failure::Failure;

/// Why it is a difference, and what to do.
const WHY: &str = "it stands among the parts of a document, and the migration did not write it: after a cut-over it would be part of the document; delete or move it, or choose another table or key";

/// Counts and notes those of a page that stand among the parts of documents; gives the others, which
/// are part of nothing. After the cut-over writers make parts without marks, and those are as they
/// should be.
pub(super) async fn tell<'i>(
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
    let is_part = |item: &&Item| partition(item).is_some_and(|key| documents.contains(&key));
    let (strangers, others): (Vec<&Item>, Vec<&Item>) = items.into_iter().partition(is_part);
    let keys: Vec<String> =
        strangers.into_iter().map(|item| item_to_string(&key_of(item, schema))).collect();
    for key in &keys {
        tally.sample("occupied", &format!("{} {key}: {WHY}", task.table));
    }
    let note = |key: String| async move {
        let name = worker.migration.name();
        worker.control.note_problem(name, "foreign", &task.table, &key, WHY).await
    };
    // A page has a few hundred items.
    let notes: Vec<_> = keys.into_iter().map(note).collect();
    stream::iter(notes).buffer_unordered(WRITES_AT_ONCE).try_collect::<()>().await?;
    Ok(others)
}

/// Whether an item with these marks is there because one of a migration's sources says so.
pub(super) fn is_of(migration: &Migration, registers: &Registers) -> bool {
    let is_source =
        |text: &str| text.parse::<SourceItem>().is_ok_and(|source| migration.reads(&source.table));
    registers.live().any(|(source, _)| is_source(source))
}

/// Those of some partitions in which a document stands that the migration has split. Who is deleted
/// meanwhile has no profile any more.
async fn documents(
    worker: &Worker<'_>,
    back: &Migration,
    parts: &str,
    partitions: &BTreeSet<KeyValue>,
) -> Result<BTreeSet<KeyValue>, Failure> {
    let schema = back.schema(parts).ok_or_else(|| unknown(parts))?;
    let keys = partitions.iter().filter_map(|partition| back.profile_key(parts, partition));
    let client = &worker.control.client;
    let found = load_items(client, parts, schema, keys, RetryPolicy::CONTENDED).await?;
    let is_document = |item: &&Item| {
        visible(item, schema).is_some()
            && Registers::from_item(item).is_ok_and(|marks| is_of(&worker.migration, &marks))
    };
    let profiles = found.values().filter(is_document);
    Ok(profiles.filter_map(|item| schema.key_of_item(item).ok()).map(|key| key.partition).collect())
}
