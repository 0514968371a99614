//! The live comparison: compares the transformed sources with the targets, while both change.
//!
//! A difference may be a change that is still in flight. Therefore mismatches are checked again
//! several times with pauses. The remaining mismatches are counted, and repaired if the task
//! requests it. The stamp of a repair follows directly after the last stamp in the target's mark.
//! The target is read before the source, so the source item is at least as new as the mark, and any
//! later record replaces the repair. The reconciler of counters works in the same way. Other
//! modules compare documents and parts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use control::Task;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use model::json::item_to_string;
use model::{Item, KeySchema};
use rules::Stamp;
use rules::migration::plan::Direction;
use rules::migration::{
    Document, Keys, MARK, Migration, Register, Registers, SourceItem, Target, is_bare_tombstone,
    key_of, unmarked, visible,
};

use super::tally::Tally;
use super::targets::load_items;
use super::task::Worker;
use super::window::WorkKind;
use super::{PLAN_TABLE, documents, foreign_items, touch};
use crate::back_off::{Deadline, RetryPolicy};
use crate::failure::Failure;
use crate::tables::attribute_value::{to_sdk, to_sdk_item};
use crate::tables::dynamodb::request_failure;

/// Number of checks of a mismatch. The next constant is the pause between two checks. Without lag,
/// a stream function processes a record within a second or two.
const LOOKS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(600);

/// A difference between a target and its sources.
pub(super) struct Difference {
    pub(super) kind: &'static str,
    pub(super) text: String,
    /// The repair; `None` if no repair is possible.
    pub(super) repair: Option<Repair>,
}

/// The repair of a target.
pub(super) enum Repair {
    /// Apply these registers to the target.
    ApplyRegisters(Target, Registers),
    /// Assemble the document from its parts again. The keys are all keys under which the document
    /// has existed.
    Assemble(Document, Keys),
}

impl Difference {
    /// Returns the difference, without a repair, for an item that cannot be transformed.
    pub(super) fn refused(text: String) -> Self {
        Self { kind: "refused", text, repair: None }
    }
}

/// Compares the transformed source items with their targets.
pub(super) async fn sources(
    worker: &Worker<'_>,
    task: &Task,
    items: &[Item],
    tally: &mut Tally,
    deadline: Deadline,
) -> Result<(), Failure> {
    let migration = &worker.migration;
    if migration.documents_of(&task.table).is_some() {
        return documents::parts(worker, task, items, tally, deadline).await;
    }
    let mut suspects: Vec<Item> = Vec::new();
    for item in items {
        match migration.outputs(&task.table, item) {
            Ok(outputs) => {
                if outputs.is_empty() && migration.visible(&task.table, item).is_some() {
                    tally.count("dropped", 1);
                }
                suspects.push(item.clone());
            }
            Err(reason) => {
                let key = migration.source_item(&task.table, item).map_err(Failure::fatal)?;
                tally.sample("refused", &format!("{key}: {reason}"));
            }
        }
        if task.direction == Direction::Forward
            && let Some(inverse) = worker.inverse()
            && let Err(reason) = migration.check_inverse(inverse, &task.table, item)
        {
            tally.sample("not_invertible", &reason.to_string());
        }
    }
    let look = |items: Vec<Item>| async move { differences(worker, task, &items).await }.boxed();
    let found = differences(worker, task, &suspects).await?;
    let found = recheck_mismatches(found, deadline, look).await?;
    report(worker, task, found, tally).await
}

/// Checks mismatches again, because they may be changes in flight. Returns the mismatches that
/// remain after the last check. Stops early enough to leave time for their repair. Each check reads
/// the items again. The future is boxed, because the compiler limits the nesting of futures.
pub(super) async fn recheck_mismatches<'l, S, D>(
    mut found: Vec<(S, D)>,
    deadline: Deadline,
    look: impl Fn(Vec<S>) -> BoxFuture<'l, Result<Vec<(S, D)>, Failure>>,
) -> Result<Vec<(S, D)>, Failure> {
    let mut took = Duration::ZERO;
    for _ in 1..LOOKS {
        // A page that is interrupted at its deadline would lose the mismatches found so far.
        if found.is_empty() || deadline.remaining() < PAUSE + PAUSE + 2 * took {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        let begun = Instant::now();
        found = look(found.into_iter().map(|(suspect, _)| suspect).collect()).await?;
        took = begun.elapsed();
    }
    Ok(found)
}

/// Reads items again and returns those that still exist. The check of the targets finds the targets
/// of a deleted item.
pub(super) async fn reread(
    worker: &Worker<'_>,
    table: &str,
    items: &[Item],
) -> Result<Vec<Item>, Failure> {
    let schema = worker.migration.schema(table).ok_or_else(|| unknown(table))?;
    let keys = items.iter().map(|item| key_of(item, schema));
    let client = &worker.control.client;
    let found = load_items(client, table, schema, keys, RetryPolicy::CONTENDED).await?;
    Ok(found.into_values().collect())
}

/// Returns the differences of the items, each with its repair. The targets are read before the
/// sources, because the stamp of a repair depends on this order.
async fn differences(
    worker: &Worker<'_>,
    task: &Task,
    items: &[Item],
) -> Result<Vec<(Item, Difference)>, Failure> {
    let migration = &worker.migration;
    let standing = load_targets(worker, task, items).await?;
    let mut found = Vec::new();
    for item in reread(worker, &task.table, items).await? {
        let source = migration.source_item(&task.table, &item).map_err(Failure::fatal)?.to_string();
        let outputs = match migration.outputs(&task.table, &item) {
            Ok(outputs) => outputs,
            Err(reason) => {
                // The item was changed after the page was read, and can no longer be transformed.
                found.push((item.clone(), Difference::refused(format!("{source}: {reason}"))));
                continue;
            }
        };
        for (target, expected) in outputs {
            let schema = migration.schema(&target.table).ok_or_else(|| unknown(&target.table))?;
            let key = item_to_string(&target.key.to_item(schema));
            // If several sources produce one target, the target is compared with each source.
            let stands = standing.get(&target.table).and_then(|items| items.get(&key));
            let seen = stands.and_then(|item| visible(item, schema));
            let known = stands.map(Registers::from_item);
            // In the reverse direction, an item without a mark is an item from before the
            // migration, so it is not foreign.
            let is_foreign = matches!(known, Some(Err(_))) && !target.adopts;
            // A foreign item is a difference even if it currently equals its source, because the
            // migration does not propagate later changes to it.
            if seen.as_ref() == Some(&expected) && !is_foreign {
                continue;
            }
            let stamp = match &known {
                Some(Ok(registers)) => {
                    registers.get(&source).map_or_else(Stamp::lowest, |said| said.stamp.clone())
                }
                _ => Stamp::lowest(),
            };
            let kind = match seen {
                _ if is_foreign => "occupied",
                None => "missing",
                Some(_) => "different",
            };
            let text = format!("{} {key}, from {source}", target.table);
            let register = Register { stamp: stamp.reconciled(task.run), item: Some(expected) };
            let repair =
                Some(Repair::ApplyRegisters(target, Registers::of(source.clone(), register)));
            found.push((item.clone(), Difference { kind, text, repair }));
        }
    }
    Ok(found)
}

async fn load_targets(
    worker: &Worker<'_>,
    task: &Task,
    items: &[Item],
) -> Result<BTreeMap<String, BTreeMap<String, Item>>, Failure> {
    let migration = &worker.migration;
    let mut wanted: BTreeMap<String, Vec<Item>> = BTreeMap::new();
    for target in
        items.iter().filter_map(|item| migration.outputs(&task.table, item).ok()).flatten()
    {
        let (target, _) = target;
        let schema = migration.schema(&target.table).ok_or_else(|| unknown(&target.table))?;
        wanted.entry(target.table).or_default().push(target.key.to_item(schema));
    }
    let mut standing = BTreeMap::new();
    for (table, keys) in wanted {
        let schema = migration.schema(&table).ok_or_else(|| unknown(&table))?;
        let client = &worker.control.client;
        let items = load_items(client, &table, schema, keys, RetryPolicy::CONTENDED).await?;
        standing.insert(table, items);
    }
    Ok(standing)
}

/// Finds target items that their sources, according to the marks, no longer produce.
pub(super) async fn targets(
    worker: &Worker<'_>,
    task: &Task,
    items: &[Item],
    tally: &mut Tally,
    deadline: Deadline,
) -> Result<(), Failure> {
    let schema = worker.migration.schema(&task.table).ok_or_else(|| unknown(&task.table))?;
    let (mut suspects, mut foreign): (Vec<Item>, Vec<&Item>) = (Vec::new(), Vec::new());
    for item in items {
        match Registers::from_item(item) {
            Ok(registers) if registers.is_tombstone() && is_bare_tombstone(item, schema) => {
                tally.count("tombstones", 1);
            }
            Ok(registers) if registers.is_tombstone() => foreign.push(item),
            Ok(registers) => {
                // Another migration may write to the same table, so the page may contain its items.
                if !foreign_items::is_of(&worker.migration, &registers) {
                    foreign.push(item);
                }
                suspects.push(item.clone());
            }
            // The item existed before the migration. The check verifies that the targets that the
            // forward migration produced from it still exist.
            Err(_) if task.direction == Direction::Reverse && !item.contains_key(MARK) => {
                suspects.push(item.clone());
            }
            Err(_) => foreign.push(item),
        }
    }
    for item in foreign_items::count(worker, task, foreign, tally).await? {
        let why = match Registers::from_item(item) {
            Ok(registers) if registers.is_tombstone() => {
                "another writer put the item in place of a tombstone".to_owned()
            }
            // The item belongs to the other migration.
            Ok(_) => continue,
            Err(error) => error.to_string(),
        };
        let key = item_to_string(&key_of(item, schema));
        tally.sample("foreign", &format!("{} {key}: {why}", task.table));
    }
    if let Some(parts) = worker.migration.parts_of(&task.table) {
        return documents::left_behind(worker, task, parts, &suspects, tally, deadline).await;
    }
    let look = |items: Vec<Item>| {
        async move { extras(worker, task, &reread(worker, &task.table, &items).await?).await }
            .boxed()
    };
    let found = extras(worker, task, &suspects).await?;
    let found = recheck_mismatches(found, deadline, look).await?;
    report(worker, task, found, tally).await
}

async fn extras(
    worker: &Worker<'_>,
    task: &Task,
    items: &[Item],
) -> Result<Vec<(Item, Difference)>, Failure> {
    let migration = &worker.migration;
    let schema = migration.schema(&task.table).ok_or_else(|| unknown(&task.table))?;
    let (claims, unsaid) = claims(migration, items);
    let mut sources: BTreeMap<String, Item> = BTreeMap::new();
    let mut keys: BTreeMap<String, BTreeMap<String, Item>> = BTreeMap::new();
    for (_, source, _) in &claims {
        let by_text = keys.entry(source.table.clone()).or_default();
        by_text.insert(source.to_string(), source.key.clone());
    }
    for (table, keys) in keys {
        let schema = migration.schema(&table).ok_or_else(|| unknown(&table))?;
        let client = &worker.control.client;
        let wanted = keys.into_values();
        let items = load_items(client, &table, schema, wanted, RetryPolicy::CONTENDED).await?;
        for item in items.into_values() {
            let source = migration.source_item(&table, &item).map_err(Failure::fatal)?;
            sources.insert(source.to_string(), item);
        }
    }
    let mut found = Vec::new();
    for (item, source, register) in claims {
        let text = source.to_string();
        let key = item_to_string(&key_of(item, schema));
        let place = format!("{} {key}, from {text}", task.table);
        let outputs = match sources.get(&text).map(|item| migration.outputs(&source.table, item)) {
            None => BTreeMap::new(),
            Some(Ok(outputs)) => outputs,
            // An earlier version of the source produced this target. Whether the next version will
            // produce it is unknown, so the target cannot be repaired. The reason is reported here,
            // because the source may be deleted before its own page is compared.
            Some(Err(reason)) => {
                found.push((item.clone(), Difference::refused(format!("{place}: {reason}"))));
                continue;
            }
        };
        let key = schema.key_of_item(item).map_err(|error| Failure::Fatal(error.to_string()))?;
        let target = Target {
            migration: migration.name().to_owned(),
            table: task.table.clone(),
            key,
            adopts: task.direction == Direction::Reverse,
        };
        if outputs.contains_key(&target) {
            continue;
        }
        let repair = Register { stamp: register.stamp.reconciled(task.run), item: None };
        let repair = Some(Repair::ApplyRegisters(target, Registers::of(text, repair)));
        found.push((item.clone(), Difference { kind: "extra", text: place, repair }));
    }
    if task.direction == Direction::Reverse
        && let Some(forward) = worker.inverse()
    {
        found.extend(left_behind(worker, task, forward, &unsaid).await?);
    }
    Ok(found)
}

/// Finds, in the reverse direction, items that should have been deleted. These items have not
/// changed since the cut-over, and none of their derived items produces them now: a deletion or
/// change of the derived items was not propagated.
async fn left_behind(
    worker: &Worker<'_>,
    task: &Task,
    forward: &Migration,
    unsaid: &[&Item],
) -> Result<Vec<(Item, Difference)>, Failure> {
    let schema = forward.schema(&task.table).ok_or_else(|| unknown(&task.table))?;
    // An item that cannot be transformed produces no derived items.
    let became =
        |item| Some((item, forward.outputs(&task.table, item).ok()?.into_keys().collect()));
    let became: Vec<(&Item, Vec<Target>)> = unsaid.iter().copied().filter_map(became).collect();
    let there = readable(worker, forward, became.iter().flat_map(|(_, targets)| targets)).await?;
    let mut found = Vec::new();
    for (item, targets) in &became {
        let Some(first) = targets.first() else { continue };
        let key = schema.key_of_item(item).map_err(|error| Failure::Fatal(error.to_string()))?;
        let target = Target {
            migration: forward.name().to_owned(),
            table: task.table.clone(),
            key,
            adopts: true,
        };
        let mut refused = None;
        let mut makes = |origin: &Target| match there.get(origin) {
            None => false,
            Some(stands) => match worker.migration.outputs(&origin.table, stands) {
                Ok(back) => back.contains_key(&target),
                Err(reason) => {
                    refused = Some(reason);
                    false
                }
            },
        };
        if targets.iter().any(&mut makes) {
            continue;
        }
        let origin = forward.schema(&first.table).ok_or_else(|| unknown(&first.table))?;
        let origin = SourceItem { table: first.table.clone(), key: first.key.to_item(origin) };
        let key = item_to_string(&key_of(item, schema));
        let text = format!("{} {key}, from {origin}", task.table);
        // The reason is reported here too, because the derived item may be deleted before its own
        // page is compared.
        if let Some(reason) = refused {
            found.push(((*item).clone(), Difference::refused(format!("{text}: {reason}"))));
            continue;
        }
        let register = Register { stamp: Stamp::lowest().reconciled(task.run), item: None };
        let repair =
            Some(Repair::ApplyRegisters(target, Registers::of(origin.to_string(), register)));
        found.push(((*item).clone(), Difference { kind: "extra", text, repair }));
    }
    Ok(found)
}

/// Returns the targets that exist for readers, without tombstones, each with its item.
async fn readable<'t>(
    worker: &Worker<'_>,
    migration: &Migration,
    targets: impl Iterator<Item = &'t Target>,
) -> Result<BTreeMap<&'t Target, Item>, Failure> {
    let mut wanted: BTreeMap<&str, Vec<&Target>> = BTreeMap::new();
    for target in targets {
        wanted.entry(&target.table).or_default().push(target);
    }
    let mut seen = BTreeMap::new();
    for (table, targets) in wanted {
        let schema = migration.schema(table).ok_or_else(|| unknown(table))?;
        let keys = targets.iter().map(|target| target.key.to_item(schema));
        let client = &worker.control.client;
        let items = load_items(client, table, schema, keys, RetryPolicy::CONTENDED).await?;
        seen.extend(targets.into_iter().filter_map(|target| {
            let item = items.get(&item_to_string(&target.key.to_item(schema)))?;
            Some((target, visible(item, schema)?))
        }));
    }
    Ok(seen)
}

/// Returns the source items that the targets' marks name, and the targets whose marks name no
/// source item. A source in a table that the migration does not read is ignored, because it belongs
/// to another plan.
fn claims<'i>(
    migration: &Migration,
    items: &'i [Item],
) -> (Vec<(&'i Item, SourceItem, Register)>, Vec<&'i Item>) {
    let (mut claims, mut unsaid) = (Vec::new(), Vec::new());
    for item in items {
        let known = claims.len();
        let registers = Registers::from_item(item).unwrap_or_default();
        for (source, register) in registers.iter().filter(|(_, said)| said.item.is_some()) {
            if let Ok(source) = source.parse::<SourceItem>()
                && migration.reads(&source.table)
            {
                claims.push((item, source, register.clone()));
            }
        }
        if claims.len() == known {
            unsaid.push(item);
        }
    }
    (claims, unsaid)
}

/// Counts the differences, and repairs them if the task requests it.
pub(super) async fn report<S>(
    worker: &Worker<'_>,
    task: &Task,
    found: Vec<(S, Difference)>,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let alone = worker.targets.window(WorkKind::One);
    for (_, Difference { kind, text, repair }) in found {
        tally.sample(kind, &text);
        let written = match repair.filter(|_| task.repairs) {
            Some(Repair::ApplyRegisters(target, said)) => {
                worker.targets.join(&target, &said, &alone).await?
            }
            Some(Repair::Assemble(document, keys)) => {
                worker.targets.assemble(&document, &keys, &alone).await?
            }
            None => false,
        };
        tally.count("repaired", usize::from(written));
    }
    Ok(())
}

/// Removes the marks of this migration. Marks of other migrations that write to the same table
/// stay. In a table that the migration reads, only marks of touches belong to this migration. If a
/// tombstone of this migration remains, its location is recorded for the clean-up. Such a tombstone
/// is from an earlier, abandoned run, because this run's tombstones have already been removed.
pub(super) async fn unmark(
    worker: &Worker<'_>,
    task: &Task,
    items: &[Item],
    tally: &mut Tally,
) -> Result<(), Failure> {
    let schema = worker.migration.schema(&task.table).ok_or_else(|| unknown(&task.table))?;
    touch::clear_left(worker, task, items, tally).await?;
    if worker.migration.reads(&task.table) {
        return Ok(());
    }
    let mut marked = Vec::new();
    for item in items {
        let Ok(registers) = Registers::from_item(item) else { continue };
        if !is_own(&worker.migration, &registers) {
            continue;
        }
        // If a user's update has turned a tombstone into an item, only its mark is removed.
        if registers.is_tombstone() && is_bare_tombstone(item, schema) {
            note_left_over(worker, task, schema, item, &registers).await?;
        } else {
            marked.push(item);
        }
    }
    let requests = marked.into_iter().map(|item| take_mark_off(worker, task, schema, item));
    for done in futures::future::join_all(requests).await {
        if done? {
            tally.count("unmarked", 1);
        }
    }
    Ok(())
}

/// Returns whether all sources of an item, or all former sources of a tombstone, are in tables that
/// the migration reads.
fn is_own(migration: &Migration, registers: &Registers) -> bool {
    let is_tombstone = registers.is_tombstone();
    let mut speakers = registers.iter().filter(|(_, said)| is_tombstone || said.item.is_some());
    speakers.all(|(source, _)| {
        source.parse::<SourceItem>().is_ok_and(|source| migration.reads(&source.table))
    })
}

async fn note_left_over(
    worker: &Worker<'_>,
    task: &Task,
    schema: &KeySchema,
    item: &Item,
    registers: &Registers,
) -> Result<(), Failure> {
    let Some(stamp) = registers.iter().map(|(_, register)| &register.stamp).max() else {
        return Ok(());
    };
    let key = schema.key_of_item(item).map_err(|error| Failure::Fatal(error.to_string()))?;
    let target = Target {
        migration: worker.migration.name().to_owned(),
        table: task.table.clone(),
        key,
        adopts: false,
    };
    worker.targets.note_tombstone(&target, &key_of(item, schema), stamp).await
}

/// Removes an item's mark if the mark is unchanged since it was read. Returns whether it was
/// removed.
async fn take_mark_off(
    worker: &Worker<'_>,
    task: &Task,
    schema: &KeySchema,
    item: &Item,
) -> Result<bool, Failure> {
    let mark = item.get(MARK).map(to_sdk);
    let request = worker
        .control
        .client
        .update_item()
        .table_name(&task.table)
        .set_key(Some(to_sdk_item(&key_of(&unmarked(item), schema))))
        .update_expression("REMOVE #mark")
        .condition_expression("#mark = :mark")
        .expression_attribute_names("#mark", MARK)
        .set_expression_attribute_values(mark.map(|mark| [(":mark".to_owned(), mark)].into()));
    match request.send().await {
        Ok(_) => Ok(true),
        Err(error)
            if error
                .as_service_error()
                .is_some_and(|error| error.is_conditional_check_failed_exception()) =>
        {
            Ok(false)
        }
        Err(error) => Err(request_failure("UpdateItem", &task.table, PLAN_TABLE, &error)),
    }
}

pub(super) fn unknown(table: &str) -> Failure {
    Failure::Fatal(format!("the key schema of table `{table}` is unknown"))
}
