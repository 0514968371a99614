//! The live comparison of a split in the reverse direction: compares the documents that the parts
//! of a partition form with the documents that exist.
//!
//! A document is checked together with its profile, which is the item with all attributes that are
//! in no part. A document without a profile is checked by its own key. Parts without a profile are
//! reported. Documents that differ from their parts are assembled again, as after a stream record
//! of a part. The rule defines how parts form a document.

use std::collections::{BTreeMap, BTreeSet};

use control::Task;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use model::{Item, KeySchema, KeyValue, PrimaryKey};
use rules::migration::{Document, Keys, MARK, key_of, visible};

use super::check::{Difference, Repair, recheck_mismatches, report, unknown};
use super::tally::Tally;
use super::targets::load_items;
use super::task::Worker;
use crate::back_off::{Deadline, RetryPolicy};
use crate::failure::Failure;

/// Maximum number of partitions that are read concurrently: few, because a partition may have
/// megabytes.
const READ_AT_ONCE: usize = 16;

/// A partition of parts to check, and the keys of existing documents whose profile is missing in
/// the partition.
type Suspect = (Document, Keys);

/// Compares the documents that the parts of a page form with the documents that exist.
pub(super) async fn parts(
    worker: &Worker<'_>,
    task: &Task,
    items: &[Item],
    tally: &mut Tally,
    deadline: Deadline,
) -> Result<(), Failure> {
    let migration = &worker.migration;
    let schema = migration.schema(&task.table).ok_or_else(|| unknown(&task.table))?;
    let (mut looked_at, mut others) = (BTreeSet::new(), BTreeSet::new());
    for item in items.iter().filter_map(|item| visible(item, schema)) {
        let partition = key(schema, &item)?.partition;
        if migration.is_profile(&task.table, &item) {
            looked_at.insert(partition);
        } else {
            others.insert(partition);
        }
    }
    // A partition whose profile is on another page is checked with that page.
    others.retain(|partition| !looked_at.contains(partition));
    let elsewhere = profiles(worker, &task.table, &others).await?;
    looked_at.extend(others.into_iter().filter(|partition| !elsewhere.contains_key(partition)));
    let suspects = looked_at.into_iter().map(|partition| {
        let (migration, parts) = (migration.name().to_owned(), task.table.clone());
        (Document { migration, parts, partition }, Keys::default())
    });
    compare(worker, task, suspects.collect(), tally, deadline).await
}

/// Finds documents that exist although the parts in the table `parts` do not form them.
pub(super) async fn left_behind(
    worker: &Worker<'_>,
    task: &Task,
    parts: &str,
    items: &[Item],
    tally: &mut Tally,
    deadline: Deadline,
) -> Result<(), Failure> {
    let migration = &worker.migration;
    let schema = migration.schema(&task.table).ok_or_else(|| unknown(&task.table))?;
    let mut by_partition: BTreeMap<KeyValue, Vec<&Item>> = BTreeMap::new();
    for item in items {
        let partition = migration.partition_of(parts, &key_of(item, schema));
        by_partition.entry(partition.map_err(Failure::fatal)?).or_default().push(item);
    }
    let partitions = by_partition.keys().cloned().collect();
    let profiles = profiles(worker, parts, &partitions).await?;
    // A document that cannot be split has no parts, so none of its parts can be missing.
    let became_something = |item: &Item| {
        let forward = worker.inverse();
        item.contains_key(MARK)
            || forward.is_some_and(|forward| forward.outputs(&task.table, item).is_ok())
    };
    let mut suspects: Vec<Suspect> = Vec::new();
    for (partition, items) in by_partition {
        let profile = profiles.get(&partition).and_then(|item| schema.key_of_item(item).ok());
        let mut keys = Keys::default();
        for item in items {
            let key = key(schema, item)?;
            if profile.as_ref() != Some(&key) && became_something(item) {
                keys.0.insert(key);
            }
        }
        if !keys.0.is_empty() {
            let (migration, parts) = (migration.name().to_owned(), parts.to_owned());
            suspects.push((Document { migration, parts, partition }, keys));
        }
    }
    compare(worker, task, suspects, tally, deadline).await
}

/// Returns the profiles that exist for readers in these partitions.
async fn profiles(
    worker: &Worker<'_>,
    parts: &str,
    partitions: &BTreeSet<KeyValue>,
) -> Result<BTreeMap<KeyValue, Item>, Failure> {
    let migration = &worker.migration;
    let schema = migration.schema(parts).ok_or_else(|| unknown(parts))?;
    let keys = partitions.iter().filter_map(|partition| migration.profile_key(parts, partition));
    let client = &worker.control.client;
    let found = load_items(client, parts, schema, keys, RetryPolicy::CONTENDED).await?;
    let seen = found.values().filter_map(|item| visible(item, schema));
    seen.map(|item| Ok((key(schema, &item)?.partition, item))).collect()
}

fn key(schema: &KeySchema, item: &Item) -> Result<PrimaryKey, Failure> {
    schema.key_of_item(item).map_err(|error| Failure::Fatal(error.to_string()))
}

async fn compare(
    worker: &Worker<'_>,
    task: &Task,
    suspects: Vec<Suspect>,
    tally: &mut Tally,
    deadline: Deadline,
) -> Result<(), Failure> {
    let look = |suspects: Vec<Suspect>| async move { differences(worker, suspects).await }.boxed();
    let found = recheck_mismatches(look(suspects).await?, deadline, look).await?;
    report(worker, task, found, tally).await
}

/// Returns the first difference of each partition that has a difference.
async fn differences(
    worker: &Worker<'_>,
    suspects: Vec<Suspect>,
) -> Result<Vec<(Suspect, Difference)>, Failure> {
    let looks = suspects.into_iter().map(|(document, keys)| async move {
        let found = difference(worker, &document, &keys).await?;
        Ok::<_, Failure>(found.map(|difference| ((document, keys), difference)))
    });
    // Collecting the futures takes little memory: a page has at most a few hundred partitions.
    let looks: Vec<_> = looks.collect();
    let found = stream::iter(looks).buffer_unordered(READ_AT_ONCE);
    found.try_filter_map(|found| async move { Ok(found) }).try_collect().await
}

/// Returns the first difference between the document that is assembled from a partition and the
/// stored one; `None` if they are equal. If `keys` is not empty, compares only documents with these
/// keys.
async fn difference(
    worker: &Worker<'_>,
    document: &Document,
    keys: &Keys,
) -> Result<Option<Difference>, Failure> {
    let migration = &worker.migration;
    let items = worker.targets.partition(migration, document).await?;
    let assembled = migration.assembled(document, &items, keys).map_err(Failure::fatal)?;
    let place =
        format!("{} {}", document.parts, worker.targets.partition_text(migration, document));
    if let Some(reason) = assembled.refused.filter(|_| keys.0.is_empty()) {
        return Ok(Some(Difference::refused(format!("{place}: {reason}"))));
    }
    for (target, expected) in assembled.targets {
        // This document has a profile, so it is checked together with the profile.
        if !keys.0.is_empty() && expected.is_some() {
            continue;
        }
        let schema = migration.schema(&target.table).ok_or_else(|| unknown(&target.table))?;
        let key = worker.targets.key(&target)?;
        let stands = worker.targets.read(&target, &key).await?;
        let seen = stands.and_then(|item| visible(&item, schema));
        let kind = match (&seen, &expected) {
            _ if seen == expected => continue,
            (None, _) => "missing",
            (_, None) => "extra",
            _ => "different",
        };
        let text = format!(
            "{} {}, from {place}",
            target.table,
            migration.key_text(&target.table, &target.key)
        );
        let repair = Some(Repair::Assemble(document.clone(), keys.clone()));
        return Ok(Some(Difference { kind, text, repair }));
    }
    Ok(None)
}
