//! The executor of migrations: applies a batch's effects on a target item in one write that is
//! conditional on the item's mark.
//!
//! The rule defines registers and how they join. The location of a tombstone is recorded before the
//! tombstone is written. Collisions and foreign items are reported to operators and not changed.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::types::{AttributeValue as SdkValue, ReturnValuesOnConditionCheckFailure};
use control::{ProblemKind, Tombstone};
use model::json::item_to_string;
use model::limits::BATCH_GET_KEYS_MAX;
use model::{Item, KeySchema};
use rules::migration::{
    Direction, Folded, MARK, MARK_AT, MARK_FROM, MARK_MORE, Migration, Register, Registers, Target,
    key_of, said_by_all,
};
use rules::{Found, Needs, Stamp};

use super::PLAN_TABLE;
use super::control_table::Control;
use super::window::{Window, WorkKind};
use crate::back_off::{Deadline, RetryPolicy};
use crate::failure::Failure;
use crate::frame::{Executor, TargetOutcome, in_order};
use crate::tables::attribute_value::{from_sdk_item, to_sdk, to_sdk_item};
use crate::tables::batch_get::batch_get;
use crate::tables::dynamodb::request_failure;

/// Maximum number of targets that are written concurrently: enough to fill a group commit of the
/// local store and to hide the latency of a write on AWS, and few enough that items of 400 KB fit
/// into memory.
pub(super) const WRITES_AT_ONCE: usize = 64;
/// The condition of a first write: the target does not exist, or its mark has the same source and
/// an earlier stamp.
const NEWER: &str = "attribute_not_exists(#key) OR (#mark.#from = :source AND #mark.#at < :stamp AND attribute_not_exists(#mark.#more))";

/// The executor for the targets of the active migrations.
#[derive(Clone, Debug)]
pub(crate) struct Targets {
    pub(super) client: Client,
    pub(super) control: Control,
    /// The migrations by name.
    migrations: BTreeMap<String, Arc<Migration>>,
    /// The forward directions of reverse migrations, by name.
    forward_migrations: BTreeMap<String, Arc<Migration>>,
    schemas: BTreeMap<String, KeySchema>,
    pub(super) retry: RetryPolicy,
}

/// The outcome of a write.
pub(super) enum TargetPut {
    Written,
    /// The condition was false; this is the current item.
    GuardFailed(Option<Item>),
    /// DynamoDB permanently refuses the item, for example because an attribute does not have the
    /// type of an index key.
    Refused(String),
}

impl Targets {
    /// Returns the executor for the targets of these migrations.
    pub(crate) fn new(control: Control, migrations: &[Arc<Migration>], retry: RetryPolicy) -> Self {
        let schemas = migrations.iter().flat_map(|migration| migration.schemas().clone()).collect();
        let migrations = migrations
            .iter()
            .map(|migration| (migration.name().to_owned(), Arc::clone(migration)))
            .collect();
        let forward_migrations = BTreeMap::new();
        Self {
            client: control.client.clone(),
            control,
            migrations,
            forward_migrations,
            schemas,
            retry,
        }
    }

    /// Sets the forward directions of the reverse migrations.
    pub(crate) fn with_ways_there(self, ways_there: &[Arc<Migration>]) -> Self {
        let by_name = |there: &Arc<Migration>| (there.name().to_owned(), Arc::clone(there));
        Self { forward_migrations: ways_there.iter().map(by_name).collect(), ..self }
    }

    pub(super) fn migration(&self, name: &str) -> Result<&Migration, Failure> {
        let migration = self.migrations.get(name).map(Arc::as_ref);
        migration.ok_or_else(|| Failure::Fatal(format!("migration `{name}` is not active")))
    }

    pub(super) fn key(&self, target: &Target) -> Result<Item, Failure> {
        Ok(target.key.to_item(self.schema(target)?))
    }

    pub(super) fn schema(&self, target: &Target) -> Result<&KeySchema, Failure> {
        self.schemas.get(&target.table).ok_or_else(|| {
            Failure::Fatal(format!("the key schema of table `{}` is unknown", target.table))
        })
    }

    /// Returns a window for processing targets.
    pub(super) fn window(&self, extent: WorkKind) -> Window<'_> {
        Window::new(&self.control.throttling, extent)
    }

    /// Applies `registers` to a target. Returns whether a write was necessary.
    pub(super) async fn join(
        &self,
        target: &Target,
        registers: &Registers,
        window: &Window<'_>,
    ) -> Result<bool, Failure> {
        let key = self.key(target)?;
        let mut failure = "other writers keep changing this item".to_owned();
        let mut attempts = self.retry.attempts();
        // The current item, as the first request returns it; the outer `None` before that.
        let mut standing: Option<Option<Item>> = None;
        let mut reads_first = window.reads_first();
        while attempts.next().await {
            let throttled = window.throttled();
            let put = match &standing {
                None => match registers.only().filter(|_| !reads_first) {
                    Some((source, register)) => {
                        self.put_newer(target, &key, registers, source, register).await
                    }
                    None => self.read(target, &key).await.map(TargetPut::GuardFailed),
                },
                Some(found) => match self.replace(target, &key, registers, found.as_ref()).await {
                    Ok(None) => return Ok(false),
                    Ok(Some(put)) => Ok(put),
                    Err(failure) => Err(failure),
                },
            };
            match put {
                Ok(TargetPut::Written) => return Ok(true),
                Ok(TargetPut::Refused(reason)) => {
                    self.note_problem(ProblemKind::Refused, target, &key, &reason).await?;
                    return Ok(false);
                }
                Ok(TargetPut::GuardFailed(found)) => {
                    // The first response contained the current item. This does not count as a
                    // failed attempt.
                    if standing.is_none() {
                        attempts.restart();
                        if !reads_first {
                            window.record_existing_target();
                        }
                    }
                    standing = Some(found);
                }
                Err(Failure::Retry(reason)) => {
                    failure = reason;
                    window.wait_for_capacity(&mut attempts, throttled);
                    // The table may have write capacity although it has no read capacity.
                    reads_first = false;
                }
                Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
            }
        }
        Err(Failure::Retry(failure))
    }

    /// Handles the usual case in one request: the target does not exist, or its mark has the same
    /// source and an earlier stamp.
    async fn put_newer(
        &self,
        target: &Target,
        key: &Item,
        registers: &Registers,
        source: &str,
        register: &Register,
    ) -> Result<TargetPut, Failure> {
        if register.item.is_none() {
            self.note_tombstone(target, key, &register.stamp).await?;
        }
        let names = [
            ("#key", self.partition_attribute(target)),
            ("#mark", MARK),
            ("#from", MARK_FROM),
            ("#at", MARK_AT),
            ("#more", MARK_MORE),
        ];
        let values = [
            (":source", SdkValue::S(source.to_owned())),
            (":stamp", SdkValue::S(register.stamp.to_string())),
        ];
        self.put(target, key, registers, NEWER, &names, &values).await
    }

    /// Joins registers with the current item, and writes the result if the item is unchanged.
    /// Returns `None` if the item already contains all of these registers, or must not be changed.
    async fn replace(
        &self,
        target: &Target,
        key: &Item,
        registers: &Registers,
        found: Option<&Item>,
    ) -> Result<Option<TargetPut>, Failure> {
        let known = match found {
            None => Registers::default(),
            Some(item) => match Registers::from_item(item) {
                Ok(registers) => registers,
                Err(_) if target.adopts && !item.contains_key(MARK) => {
                    self.adopted(target, registers, item).await?
                }
                Err(error) => {
                    if !self.is_writers(target).await? {
                        self.note_problem(ProblemKind::Foreign, target, key, &error.to_string())
                            .await?;
                    }
                    return Ok(None);
                }
            },
        };
        let Some(joined) = known.joined(registers) else {
            return Ok(None);
        };
        if joined.live().count() > 1 {
            let sources: Vec<&str> = joined.live().map(|(source, _)| source).collect();
            let reason = format!("{} become this item", sources.join(" and "));
            self.note_problem(ProblemKind::Collision, target, key, &reason).await?;
        }
        if joined.is_tombstone()
            && let Some(stamp) = joined.iter().map(|(_, register)| &register.stamp).max()
        {
            self.note_tombstone(target, key, stamp).await?;
        }
        self.put_over(target, key, &joined, found).await.map(Some)
    }

    /// Returns true if the application's writers own the target after the switch, so that the
    /// current item is correct. All effects from before the switch have been applied, so any later
    /// effect is a redelivery.
    async fn is_writers(&self, target: &Target) -> Result<bool, Failure> {
        let way = if target.adopts { Direction::Reverse } else { Direction::Forward };
        Ok(self.control.state(&target.migration).await?.phase.is_past_repair(way))
    }

    /// Returns the registers of an item without a mark, in the reverse direction. They are built
    /// from the existing derived items, except the items that `registers` covers.
    async fn adopted(
        &self,
        target: &Target,
        registers: &Registers,
        item: &Item,
    ) -> Result<Registers, Failure> {
        let migration = self.migration(&target.migration)?;
        let Some(there) = self.forward_migrations.get(&target.migration) else {
            return Ok(Registers::default());
        };
        let mut known = Vec::new();
        for origin in migration.origins(there, target, item) {
            if migration.origin_text(&origin).is_some_and(|text| registers.get(&text).is_some()) {
                continue;
            }
            if let Some(stands) = self.read(&origin, &self.key(&origin)?).await? {
                known.push(migration.adopted(target, &origin, &stands));
            }
        }
        Ok(said_by_all(known))
    }

    /// Puts an item, on the condition that the current item is unchanged.
    pub(super) async fn put_over(
        &self,
        target: &Target,
        key: &Item,
        registers: &Registers,
        found: Option<&Item>,
    ) -> Result<TargetPut, Failure> {
        let names = [("#key", self.partition_attribute(target)), ("#mark", MARK)];
        let (condition, names, values) = match (found, found.and_then(|item| item.get(MARK))) {
            (_, Some(mark)) => ("#mark = :mark", &names[1..], vec![(":mark", to_sdk(mark))]),
            (Some(_), None) => {
                ("attribute_exists(#key) AND attribute_not_exists(#mark)", &names[..], Vec::new())
            }
            (None, None) => ("attribute_not_exists(#key)", &names[..1], Vec::new()),
        };
        self.put(target, key, registers, condition, names, &values).await
    }

    pub(super) fn partition_attribute(&self, target: &Target) -> &str {
        self.schemas.get(&target.table).map_or("", |schema| schema.partition.name.as_str())
    }

    pub(super) async fn put(
        &self,
        target: &Target,
        key: &Item,
        registers: &Registers,
        condition: &str,
        names: &[(&str, &str)],
        values: &[(&str, SdkValue)],
    ) -> Result<TargetPut, Failure> {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let values: HashMap<_, _> =
            values.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let request = self
            .client
            .put_item()
            .table_name(&target.table)
            .set_item(Some(to_sdk_item(&registers.to_item(key))))
            .condition_expression(condition)
            .set_expression_attribute_names(Some(names.iter().map(own).collect()))
            .set_expression_attribute_values((!values.is_empty()).then_some(values))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let Err(error) = request.send().await else {
            return Ok(TargetPut::Written);
        };
        if let Some(PutItemError::ConditionalCheckFailedException(failed)) =
            error.as_service_error()
        {
            // A store may not return the item with the failure. In that case, the item is read.
            return match failed.item() {
                Some(item) => {
                    from_sdk_item(item.clone()).map(|item| TargetPut::GuardFailed(Some(item)))
                }
                None => self.read(target, key).await.map(TargetPut::GuardFailed),
            };
        }
        let service = error.as_service_error();
        if service.and_then(ProvideErrorMetadata::code) == Some("ValidationException") {
            let message = service.and_then(ProvideErrorMetadata::message).unwrap_or_default();
            return Ok(TargetPut::Refused(message.to_owned()));
        }
        Err(request_failure("PutItem", &target.table, PLAN_TABLE, &error))
    }

    pub(super) async fn read(&self, target: &Target, key: &Item) -> Result<Option<Item>, Failure> {
        let answer = self
            .client
            .get_item()
            .table_name(&target.table)
            .set_key(Some(to_sdk_item(key)))
            .consistent_read(true)
            .send()
            .await
            .map_err(|error| request_failure("GetItem", &target.table, PLAN_TABLE, &error))?;
        answer.item.map(from_sdk_item).transpose()
    }

    /// Records the location of a tombstone. Must be called before the tombstone is written.
    pub(super) async fn note_tombstone(
        &self,
        target: &Target,
        key: &Item,
        stamp: &Stamp,
    ) -> Result<(), Failure> {
        let (migration, table, key) = (&target.migration, &target.table, item_to_string(key));
        self.control.put(&Tombstone::new(migration, table, &key, stamp.as_str())).await
    }

    /// Records that an operator must check a target.
    pub(super) async fn note_problem(
        &self,
        kind: ProblemKind,
        target: &Target,
        key: &Item,
        reason: &str,
    ) -> Result<(), Failure> {
        let key = item_to_string(key);
        self.control.note_problem(kind, &target.migration, &target.table, &key, reason).await
    }

    /// Applies the effects of every target. Returns one outcome per target.
    ///
    /// The kinds of targets are processed one after the other. Each kind except the last has half
    /// of the remaining time, so that a slow table does not block the other tables.
    pub(super) async fn join_all(
        &self,
        folded: Folded,
        extent: WorkKind,
        deadline: Deadline,
    ) -> Vec<TargetOutcome> {
        let Folded { registers, rewrites, assemblies } = folded;
        let window = &self.window(extent);
        let share = |is_last: bool| if is_last { deadline } else { deadline.half_way() };
        // Rewrites come first, because a rewrite may need time to evaluate its response.
        let own = share(registers.is_empty() && assemblies.is_empty());
        let mut outcomes = self.settle_all(rewrites, window, own).await;
        let own = share(assemblies.is_empty());
        let joins = in_order(registers).into_iter().map(|(target, joined)| async move {
            let written = own.limit(self.join(&target, &joined.value, window)).await;
            outcome(&target.table, &target.key, joined.records, written)
        });
        outcomes.extend(window.run(joins).await);
        let documents = in_order(assemblies).into_iter();
        let assemblies = documents.map(|(document, joined)| async move {
            let written = deadline.limit(self.assemble(&document, &joined.value, window)).await;
            outcome(&document.parts, &document.partition, joined.records, written)
        });
        outcomes.extend(window.run(assemblies).await);
        outcomes
    }
}

/// Returns the outcome of one target. All of its records count as applied if a write was necessary.
pub(super) fn outcome(
    table: &str,
    key: &impl Debug,
    records: Vec<usize>,
    written: Result<bool, Failure>,
) -> TargetOutcome {
    let result = written.map(|written| if written { records.len() } else { 0 });
    TargetOutcome::new(format!("{table} {key:?}"), records, result)
}

impl Executor for Targets {
    type Rule = Vec<Arc<Migration>>;

    async fn load(&self, _: Needs) -> Result<Found<Infallible>, Failure> {
        Ok(Found::default())
    }

    async fn apply(
        &self,
        folded: Folded,
        _: &Found<Infallible>,
        deadline: Deadline,
    ) -> Vec<TargetOutcome> {
        self.join_all(folded, WorkKind::Batch, deadline).await
    }
}

/// Reads items of a table with strong consistency. Returns them by the JSON of their keys.
pub(crate) async fn load_items(
    client: &Client,
    table: &str,
    schema: &KeySchema,
    keys: impl IntoIterator<Item = Item>,
    retry: RetryPolicy,
) -> Result<BTreeMap<String, Item>, Failure> {
    let unique: BTreeMap<String, Item> =
        keys.into_iter().map(|key| (item_to_string(&key), key)).collect();
    let mut missing: Vec<Item> = unique.into_values().collect();
    let mut items = BTreeMap::new();
    let mut attempts = retry.attempts();
    let mut failure = "keys remain unprocessed; the table is throttled".to_owned();
    while !missing.is_empty() {
        if !attempts.next().await {
            return Err(Failure::Retry(failure));
        }
        let some = missing.split_off(missing.len().saturating_sub(BATCH_GET_KEYS_MAX));
        let refused = |error: &_| request_failure("BatchGetItem", table, PLAN_TABLE, error);
        match batch_get(client, table, &some, refused).await {
            Ok(batch) => {
                if batch.unprocessed.len() < some.len() {
                    attempts.restart();
                }
                missing.extend(batch.unprocessed);
                for item in batch.items {
                    items.insert(item_to_string(&key_of(&item, schema)), item);
                }
            }
            Err(Failure::Retry(reason)) => {
                missing.extend(some);
                failure = reason;
            }
            Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
        }
    }
    Ok(items)
}

#[cfg(test)]
mod tests;
