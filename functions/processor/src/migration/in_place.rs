//! Items that are changed where they stand: one conditional write, guarded by everything that the
//! transform may have looked at.
//!
//! What an item has to look like is the rule's. An item that is gone stays gone.

use std::collections::{BTreeSet, HashMap};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    AttributeValue as SdkValue, ReturnValuesOnConditionCheckFailure as Return,
};
use futures::FutureExt as _;
use model::Item;
use rules::migration::{Rewrite, Target};

use super::check;
use super::control::{Tally, Task};
use super::targets::{Put, Targets};
use super::task::Worker;
use crate::back_off::Deadline;
use crate::failure::Failure;
use crate::settings::CONTROL_TABLE;
use crate::tables::attribute_value::{from_sdk_item, to_sdk, to_sdk_item};
use crate::tables::dynamodb::request_failure;

/// A guarded change of one item, in the words of DynamoDB.
struct Change {
    update: String,
    condition: String,
    names: HashMap<String, String>,
    values: HashMap<String, SdkValue>,
}

impl Change {
    /// From `before` to `after`, or to nothing; `before` must still stand there.
    fn new(before: &Item, after: Option<&Item>, key: &Item) -> Self {
        let none = Item::new();
        let after_or_none = after.unwrap_or(&none);
        let all: BTreeSet<&String> = before
            .keys()
            .chain(after_or_none.keys())
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
                None => removes.push(format!("#a{number}")),
                Some(value) if before.get(name) != Some(value) => {
                    values.insert(format!(":c{number}"), to_sdk(value));
                    sets.push(format!("#a{number} = :c{number}"));
                }
                Some(_) => {}
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

    async fn send(self, client: &Client, table: &str, key: &Item) -> Result<Put, Failure> {
        let values = (!self.values.is_empty()).then_some(self.values);
        if self.update.is_empty() {
            let request = client
                .delete_item()
                .table_name(table)
                .set_key(Some(to_sdk_item(key)))
                .condition_expression(self.condition)
                .set_expression_attribute_names(Some(self.names))
                .set_expression_attribute_values(values)
                .return_values_on_condition_check_failure(Return::AllOld);
            let sent = request.send().await;
            let failed = |error: &DeleteItemError| match error {
                DeleteItemError::ConditionalCheckFailedException(failed) => {
                    Some(failed.item().cloned())
                }
                _ => None,
            };
            return sent
                .map_or_else(|e| outcome("DeleteItem", table, &e, failed), |_| Ok(Put::Written));
        }
        let request = client
            .update_item()
            .table_name(table)
            .set_key(Some(to_sdk_item(key)))
            .update_expression(self.update)
            .condition_expression(self.condition)
            .set_expression_attribute_names(Some(self.names))
            .set_expression_attribute_values(values)
            .return_values_on_condition_check_failure(Return::AllOld);
        let sent = request.send().await;
        let failed = |error: &UpdateItemError| match error {
            UpdateItemError::ConditionalCheckFailedException(failed) => {
                Some(failed.item().cloned())
            }
            _ => None,
        };
        sent.map_or_else(|e| outcome("UpdateItem", table, &e, failed), |_| Ok(Put::Written))
    }
}

/// What the failure of a guarded change means. An item that is not handed back is not there.
fn outcome<E>(
    doing: &str,
    table: &str,
    error: &SdkError<E>,
    failed: impl Fn(&E) -> Option<Option<HashMap<String, SdkValue>>>,
) -> Result<Put, Failure>
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let service = error.as_service_error();
    if let Some(stands) = service.and_then(failed) {
        return stands.map(from_sdk_item).transpose().map(Put::Stands);
    }
    if service.and_then(ProvideErrorMetadata::code) == Some("ValidationException") {
        let message = service.and_then(ProvideErrorMetadata::message).unwrap_or_default();
        return Ok(Put::Refused(message.to_owned()));
    }
    Err(request_failure(doing, table, CONTROL_TABLE, error))
}

impl Targets {
    /// Makes an item what the plan wants it to be; `seen` is how it was seen last. Answers whether
    /// anything had to be written.
    pub(super) async fn settle(&self, target: &Target, seen: &Item) -> Result<bool, Failure> {
        let migration = self.migration(&target.migration)?;
        let key = self.key(target)?;
        let mut failure = "others write this item all the time".to_owned();
        let mut attempts = self.retry.attempts();
        let mut standing = seen.clone();
        let mut is_first = true;
        while attempts.next().await {
            let after = match migration.rewrite(&target.table, &standing) {
                Ok(Rewrite::Keep) => return Ok(false),
                Ok(Rewrite::Delete) => None,
                Ok(Rewrite::Change(after)) => Some(after),
                Err(reason) => {
                    self.note_problem("refused", target, &key, &reason).await?;
                    return Ok(false);
                }
            };
            let change = Change::new(&standing, after.as_ref(), &key);
            match change.send(&self.client, &target.table, &key).await {
                Ok(Put::Written) => return Ok(true),
                Ok(Put::Refused(reason)) => {
                    self.note_problem("refused", target, &key, &reason).await?;
                    return Ok(false);
                }
                Ok(Put::Stands(None)) => return Ok(false),
                Ok(Put::Stands(Some(item))) => {
                    // The first answer only tells what is there; it is no failed attempt.
                    if std::mem::take(&mut is_first) {
                        attempts.restart();
                    }
                    standing = item;
                }
                Err(Failure::Retry(reason)) => failure = reason,
                Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
            }
        }
        Err(Failure::Retry(failure))
    }
}

/// Looks for items that are not as the plan wants them.
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
                let key = migration.source_item(&task.table, item).map_err(Failure::Fatal)?;
                tally.sample("refused", &format!("{key}: {reason}"));
            }
        }
        if let Some(inverse) = worker.inverse()
            && let Err(reason) = migration.comes_back(inverse, &task.table, item)
        {
            tally.sample("not_invertible", &reason);
        }
    }
    let schema = migration.schema(&task.table).ok_or_else(|| check::unknown(&task.table))?;
    let look =
        |suspects: Vec<Item>| async move { still_wrong(worker, task, &suspects).await }.boxed();
    let suspects = suspects.into_iter().map(|item| (item, ())).collect();
    let suspects = check::look_again(suspects, deadline, look).await?;
    for (item, ()) in suspects {
        let key = migration.source_item(&task.table, &item).map_err(Failure::Fatal)?;
        tally.sample("different", &key.to_string());
        let target = Target {
            migration: migration.name().to_owned(),
            table: task.table.clone(),
            key: schema.key_of_item(&item).map_err(|error| Failure::Fatal(error.to_string()))?,
            adopts: false,
        };
        if task.repairs && worker.targets.settle(&target, &item).await? {
            tally.count("repaired", 1);
        }
    }
    Ok(())
}

/// Those of some items that are there and not as the plan wants them.
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
mod tests {
    use model::json::item_from_str;

    use super::*;

    #[test]
    fn changes_are_guarded_by_every_attribute() {
        let item = |text: &str| item_from_str(text).unwrap();
        let key = item(r#"{"id":{"S":"1"}}"#);
        let before = item(r#"{"id":{"S":"1"},"a":{"S":"x"},"b":{"N":"1"},"c":{"NULL":true}}"#);
        let after = item(r#"{"id":{"S":"1"},"b":{"N":"2"},"c":{"NULL":true},"d":{"S":"y"}}"#);
        let change = Change::new(&before, Some(&after), &key);
        assert_eq!(change.update, "SET #a1 = :c1, #a3 = :c3 REMOVE #a0");
        assert_eq!(
            change.condition,
            "attribute_exists(#k) AND #a0 = :b0 AND #a1 = :b1 AND #a2 = :b2 AND attribute_not_exists(#a3)"
        );
        assert_eq!(change.names["#a3"], "d");
        assert_eq!(change.values[":c1"], SdkValue::N("2".to_owned()));
        let change = Change::new(&before, None, &key);
        assert_eq!(change.update, "");
        assert!(change.condition.ends_with("#a2 = :b2"), "{}", change.condition);
    }
}
