//! Changes items in place. The item is read and evaluated, and one conditional write changes it.
//! The condition compares everything that the evaluation may have read. If no condition can compare
//! everything, the write returns the previous item. The previous item is then evaluated, and a
//! wrong change is reverted.
//!
//! The rule defines the expected item and the guard, which is the condition of the write. A deleted
//! item stays deleted.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    AttributeValue as SdkValue, ReturnValue, ReturnValuesOnConditionCheckFailure as Return,
};
use control::{ProblemKind, Task};
use futures::FutureExt as _;
use model::Item;
use model::json::item_to_string;
use model::limits::BATCH_GET_KEYS_MAX;
use rules::Joined;
use rules::migration::{Guard, Rewrite, Target, changed};

use super::PLAN_TABLE;
use super::check;
use super::tally::Tally;
use super::targets::{Targets, load_items, outcome};
use super::task::Worker;
use super::window::Window;
use crate::back_off::Deadline;
use crate::failure::Failure;
use crate::frame::{TargetOutcome, in_order};
use crate::sdk::ANSWER_TIME_MAX;
use crate::tables::attribute_value::{from_sdk_item, to_sdk, to_sdk_item};
use crate::tables::dynamodb::request_failure;

/// A conditional change of one item, as DynamoDB expressions.
struct Change {
    update: String,
    condition: String,
    names: HashMap<String, String>,
    values: HashMap<String, SdkValue>,
}

/// The outcome of a change.
#[derive(Debug, PartialEq)]
enum ChangeResult {
    /// The change was made; this is the item before the change.
    Written(Item),
    /// The condition was false; this is the current item.
    GuardFailed(Option<Item>),
    /// DynamoDB permanently refuses the new item, for this reason.
    Refused(String),
}

impl Change {
    /// Returns the change from `before` to `after`, or a deletion if `after` is `None`. The
    /// condition requires the attributes of `before` to be unchanged, and the attributes of
    /// `guard.absent` to be absent.
    fn new(before: &Item, after: Option<&Item>, guard: &Guard, key: &Item) -> Self {
        let none = Item::new();
        let after_or_none = after.unwrap_or(&none);
        let all: BTreeSet<&String> = before
            .keys()
            .chain(after_or_none.keys())
            .chain(&guard.absent)
            .filter(|name| !key.contains_key(*name))
            .collect();
        let (mut names, mut values) = (HashMap::new(), HashMap::new());
        let (mut conditions, mut sets, mut removes) = (Vec::new(), Vec::new(), Vec::new());
        if let Some(name) = key.keys().next() {
            names.insert("#k".to_owned(), name.clone());
            conditions.push("attribute_exists(#k)".to_owned());
        }
        for (number, name) in all.into_iter().enumerate() {
            names.insert(format!("#a{number}"), name.clone());
            match before.get(name) {
                Some(value) => {
                    values.insert(format!(":b{number}"), to_sdk(value));
                    conditions.push(format!("#a{number} = :b{number}"));
                }
                None => conditions.push(format!("attribute_not_exists(#a{number})")),
            }
            match after_or_none.get(name) {
                _ if after.is_none() => {}
                Some(value) if before.get(name) != Some(value) => {
                    values.insert(format!(":c{number}"), to_sdk(value));
                    sets.push(format!("#a{number} = :c{number}"));
                }
                None if before.contains_key(name) => removes.push(format!("#a{number}")),
                _ => {}
            }
        }
        let mut update = String::new();
        for (word, parts) in [("SET ", sets), (" REMOVE ", removes)] {
            if !parts.is_empty() {
                update.push_str(word);
                update.push_str(&parts.join(", "));
            }
        }
        Self { update, condition: conditions.join(" AND "), names, values }
    }

    async fn send(self, client: &Client, table: &str, key: &Item) -> Result<ChangeResult, Failure> {
        let values = (!self.values.is_empty()).then_some(self.values);
        if self.update.is_empty() {
            let request = client
                .delete_item()
                .table_name(table)
                .set_key(Some(to_sdk_item(key)))
                .condition_expression(self.condition)
                .set_expression_attribute_names(Some(self.names))
                .set_expression_attribute_values(values)
                .return_values(ReturnValue::AllOld)
                .return_values_on_condition_check_failure(Return::AllOld);
            let failed = |error: &DeleteItemError| match error {
                DeleteItemError::ConditionalCheckFailedException(failed) => {
                    Some(failed.item().cloned())
                }
                _ => None,
            };
            return match request.send().await {
                Ok(answer) => written(answer.attributes),
                Err(error) => not_written("DeleteItem", table, &error, failed),
            };
        }
        let request = client
            .update_item()
            .table_name(table)
            .set_key(Some(to_sdk_item(key)))
            .update_expression(self.update)
            .condition_expression(self.condition)
            .set_expression_attribute_names(Some(self.names))
            .set_expression_attribute_values(values)
            .return_values(ReturnValue::AllOld)
            .return_values_on_condition_check_failure(Return::AllOld);
        let failed = |error: &UpdateItemError| match error {
            UpdateItemError::ConditionalCheckFailedException(failed) => {
                Some(failed.item().cloned())
            }
            _ => None,
        };
        match request.send().await {
            Ok(answer) => written(answer.attributes),
            Err(error) => not_written("UpdateItem", table, &error, failed),
        }
    }
}

/// Restores an item that a change deleted, unless a client has put another item with the same key
/// meanwhile.
async fn put_back(
    client: &Client,
    table: &str,
    key: &Item,
    item: &Item,
) -> Result<ChangeResult, Failure> {
    let request = client
        .put_item()
        .table_name(table)
        .set_item(Some(to_sdk_item(item)))
        .condition_expression("attribute_not_exists(#k)")
        .set_expression_attribute_names(
            key.keys().next().map(|name| HashMap::from([("#k".to_owned(), name.clone())])),
        )
        .return_values_on_condition_check_failure(Return::AllOld);
    let failed = |error: &PutItemError| match error {
        PutItemError::ConditionalCheckFailedException(failed) => Some(failed.item().cloned()),
        _ => None,
    };
    match request.send().await {
        Ok(_) => Ok(ChangeResult::Written(Item::new())),
        Err(error) => not_written("PutItem", table, &error, failed),
    }
}

/// Returns the failure for a write whose response must be evaluated but may arrive too late. If the
/// invocation ended before the response, a wrong write could not be reverted.
fn no_time_for_an_answer() -> Failure {
    let reason =
        "the time left in this invocation may be too short to evaluate the response to the write";
    Failure::Retry(reason.to_owned())
}

/// Returns the outcome of a change that was made. `old` is the item before the change.
fn written(old: Option<HashMap<String, SdkValue>>) -> Result<ChangeResult, Failure> {
    from_sdk_item(old.unwrap_or_default()).map(ChangeResult::Written)
}

/// Interprets the failure of a conditional change. If the failure contains no item, the item does
/// not exist.
fn not_written<E>(
    doing: &str,
    table: &str,
    error: &SdkError<E>,
    failed: impl Fn(&E) -> Option<Option<HashMap<String, SdkValue>>>,
) -> Result<ChangeResult, Failure>
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let service = error.as_service_error();
    if let Some(stands) = service.and_then(failed) {
        return stands.map(from_sdk_item).transpose().map(ChangeResult::GuardFailed);
    }
    if service.and_then(ProvideErrorMetadata::code) == Some("ValidationException") {
        let message = service.and_then(ProvideErrorMetadata::message).unwrap_or_default();
        return Ok(ChangeResult::Refused(message.to_owned()));
    }
    Err(request_failure(doing, table, PLAN_TABLE, error))
}

/// Returns the part of the change from `before` to `after` that must still be reverted: the
/// attributes that still have the new values. The first item of the result has their new values,
/// the second item their previous values.
fn left_to_take_back(before: &Item, after: &Item, stands: &Item) -> (Item, Item) {
    let (mut made, mut were) = (Item::new(), Item::new());
    for name in before.keys().chain(after.keys()) {
        let (was, is) = (before.get(name), after.get(name));
        if was == is || stands.get(name) != is {
            continue;
        }
        made.extend(is.map(|value| (name.clone(), value.clone())));
        were.extend(was.map(|value| (name.clone(), value.clone())));
    }
    (made, were)
}

impl Targets {
    /// Changes items as the plan requires. Reads the current items, because their content at the
    /// time of the effect does not matter.
    pub(super) async fn settle_all(
        &self,
        rewrites: BTreeMap<Target, Joined<()>>,
        window: &Window<'_>,
        deadline: Deadline,
    ) -> Vec<TargetOutcome> {
        let (mut outcomes, mut rewrites) = (Vec::new(), in_order(rewrites).into_iter());
        loop {
            let some = rewrites.by_ref().take(window.concurrency().clamp(1, BATCH_GET_KEYS_MAX));
            let some: Vec<(Target, Joined<()>)> = some.collect();
            if some.is_empty() {
                return outcomes;
            }
            let targets = some.iter().map(|(target, _)| target);
            let standing = deadline.limit(self.standing(targets)).await;
            let standing = &standing;
            let settles = some.into_iter().map(|(target, joined)| async move {
                let settled = match standing {
                    Err(failure) => Err(failure.clone()),
                    Ok(standing) => match self.key(&target).map(|key| item_to_string(&key)) {
                        Err(failure) => Err(failure),
                        Ok(key) => match standing.get(&(target.table.clone(), key)) {
                            Some(item) => self.apply_rewrite(&target, item, deadline).await,
                            None => Ok(false),
                        },
                    },
                };
                outcome(&target.table, &target.key, joined.records, settled)
            });
            outcomes.extend(window.run(settles).await);
        }
    }

    /// Returns the items that exist, by their tables and the JSON of their keys.
    async fn standing(
        &self,
        targets: impl Iterator<Item = &Target>,
    ) -> Result<BTreeMap<(String, String), Item>, Failure> {
        let mut keys: BTreeMap<&str, (&Target, Vec<Item>)> = BTreeMap::new();
        for target in targets {
            let (_, keys) = keys.entry(&target.table).or_insert_with(|| (target, Vec::new()));
            keys.push(self.key(target)?);
        }
        let mut standing = BTreeMap::new();
        for (table, (target, keys)) in keys {
            let schema = self.schema(target)?;
            let items = load_items(&self.client, table, schema, keys, self.retry).await?;
            let of_table = |(key, item)| ((table.to_owned(), key), item);
            standing.extend(items.into_iter().map(of_table));
        }
        Ok(standing)
    }

    /// Changes an item as the plan requires. `seen` is the item as it was just read. Returns
    /// whether a write was necessary.
    pub(super) async fn apply_rewrite(
        &self,
        target: &Target,
        seen: &Item,
        deadline: Deadline,
    ) -> Result<bool, Failure> {
        let migration = self.migration(&target.migration)?;
        let (table, key) = (&target.table, self.key(target)?);
        let mut failure = "other writers keep changing this item".to_owned();
        let mut attempts = self.retry.attempts();
        let mut standing = seen.clone();
        while deadline.limit(attempts.next().map(Ok)).await? {
            let after = match migration.rewrite(table, &standing) {
                Ok(Rewrite::Keep) => return Ok(false),
                Ok(Rewrite::Delete) => None,
                Ok(Rewrite::Change(after)) => Some(after),
                Err(error) => {
                    let reason = error.to_string();
                    self.note_problem(ProblemKind::Refused, target, &key, &reason).await?;
                    return Ok(false);
                }
            };
            let after = after.as_ref();
            let guard = migration.guard(table, &standing, after);
            if !guard.is_complete && !deadline.has_time_for(ANSWER_TIME_MAX) {
                return Err(no_time_for_an_answer());
            }
            let sending =
                Change::new(&standing, after, &guard, &key).send(&self.client, table, &key);
            // If the guard does not compare everything that the evaluation may have read, the
            // response must be evaluated, because it contains the item before the change.
            // Therefore this request is not interrupted.
            let sent = match guard.is_complete {
                true => deadline.limit(sending).await,
                false => sending.await,
            };
            match sent {
                Ok(ChangeResult::Written(met)) => {
                    if !migration.is_misjudged(table, &standing, after, &met) {
                        return Ok(true);
                    }
                    let back = self.take_back(target, &key, (&standing, after), met).await?;
                    let Some(item) = back else { return Ok(true) };
                    standing = item;
                }
                Ok(ChangeResult::Refused(reason)) => {
                    self.note_problem(ProblemKind::Refused, target, &key, &reason).await?;
                    return Ok(false);
                }
                Ok(ChangeResult::GuardFailed(None)) => return Ok(false),
                Ok(ChangeResult::GuardFailed(Some(item))) => standing = item,
                Err(Failure::Retry(reason)) => failure = reason,
                Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
            }
        }
        Err(Failure::Retry(failure))
    }

    /// Reverts a change that was made to an unexpected version of the item. Preserves later writes
    /// of other clients. Returns the current item; `None` if it is deleted.
    async fn take_back(
        &self,
        target: &Target,
        key: &Item,
        (before, after): (&Item, Option<&Item>),
        met: Item,
    ) -> Result<Option<Item>, Failure> {
        let (client, table) = (&self.client, &target.table);
        let mut failure = String::new();
        let mut attempts = self.retry.attempts();
        let mut stands = after.map(|after| changed(before, after, &met));
        while attempts.next().await {
            let sent = match (&stands, after) {
                (Some(item), Some(after)) => {
                    let (made, were) = left_to_take_back(before, after, item);
                    if made.is_empty() && were.is_empty() {
                        return Ok(stands);
                    }
                    let change = Change::new(&made, Some(&were), &Guard::default(), key);
                    let sent = change.send(client, table, key).await;
                    let back = |met: &Item| changed(&made, &were, met);
                    sent.map(|sent| match sent {
                        ChangeResult::Written(met) => ChangeResult::GuardFailed(Some(back(&met))),
                        other => other,
                    })
                }
                (None, Some(_)) => return Ok(None),
                (_, None) => put_back(client, table, key, &met).await,
            };
            match sent {
                Ok(ChangeResult::Written(_)) => return Ok(Some(met)),
                // A later write takes precedence over restoring the deleted item.
                Ok(ChangeResult::GuardFailed(found)) if after.is_none() => return Ok(found),
                Ok(ChangeResult::GuardFailed(found)) => stands = found,
                Ok(ChangeResult::Refused(reason))
                | Err(Failure::Retry(reason) | Failure::Fatal(reason)) => {
                    failure = reason;
                }
            }
        }
        let item = item_to_string(&met);
        tracing::error!(function = "migration", table, item, reason = %failure, "an item that was changed by mistake could not be restored; `item` is its previous value");
        self.note_problem(
            ProblemKind::Refused,
            target,
            key,
            &format!("the item could not be restored: {failure}"),
        )
        .await?;
        Err(Failure::Retry(failure))
    }
}

/// Counts the items that are not as the plan requires, and repairs them if the task requests it.
pub(super) async fn check(
    worker: &Worker<'_>,
    task: &Task,
    items: &[Item],
    tally: &mut Tally,
    deadline: Deadline,
) -> Result<(), Failure> {
    let migration = &worker.migration;
    let mut suspects = Vec::new();
    for item in items {
        match migration.rewrite(&task.table, item) {
            Ok(Rewrite::Keep) => {}
            Ok(_) => suspects.push(item.clone()),
            Err(reason) => {
                let key = migration.source_item(&task.table, item).map_err(Failure::fatal)?;
                tally.sample("refused", &format!("{key}: {reason}"));
            }
        }
        if let Some(inverse) = worker.inverse()
            && let Err(reason) = migration.check_inverse(inverse, &task.table, item)
        {
            tally.sample("not_invertible", &reason.to_string());
        }
    }
    let schema = migration.schema(&task.table).ok_or_else(|| check::unknown(&task.table))?;
    let look =
        |suspects: Vec<Item>| async move { still_wrong(worker, task, &suspects).await }.boxed();
    let suspects = suspects.into_iter().map(|item| (item, ())).collect();
    // The repairs come after the checks, and a repair may need time to evaluate its response.
    let suspects = check::recheck_mismatches(suspects, deadline.part_way(33), look).await?;
    for (item, ()) in suspects {
        let key = migration.source_item(&task.table, &item).map_err(Failure::fatal)?;
        tally.sample("different", &key.to_string());
        let target = Target {
            migration: migration.name().to_owned(),
            table: task.table.clone(),
            key: schema.key_of_item(&item).map_err(|error| Failure::Fatal(error.to_string()))?,
            adopts: false,
        };
        if task.repairs && worker.targets.apply_rewrite(&target, &item, deadline).await? {
            tally.count("repaired", 1);
        }
    }
    Ok(())
}

/// Reads items again. Returns the existing items that are not as the plan requires.
async fn still_wrong(
    worker: &Worker<'_>,
    task: &Task,
    suspects: &[Item],
) -> Result<Vec<(Item, ())>, Failure> {
    let items = check::reread(worker, &task.table, suspects).await?;
    let is_wrong = |item: &Item| worker.migration.rewrite(&task.table, item) != Ok(Rewrite::Keep);
    Ok(items.into_iter().filter(is_wrong).map(|item| (item, ())).collect())
}

#[cfg(test)]
mod tests;
