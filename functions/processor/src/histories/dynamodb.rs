//! A history table on DynamoDB.
//!
//! The SDK retries single requests; this module interprets its errors.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{BuildError, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue as SdkValue, CancellationReason, Delete, Put, TransactWriteItem, Update,
};
use model::{AttributeValue, Item};
use rules::versions::{
    HEAD_VERSION, ITEM_ATTRIBUTE, Plan, REVISION_ATTRIBUTE, VERSION_ATTRIBUTE, Write,
    is_refused_for_size, version_text,
};

use super::{HistoryTable, PAGE_VERSIONS, PlanOutcome};
use crate::failure::Failure;
use crate::tables::Loaded;
use crate::tables::attribute_value::{from_sdk_item, to_sdk_item};
use crate::tables::batch_get::batch_get;
use crate::tables::dynamodb::{TableName, failure_of};

/// The key that a history table must have, as text for messages.
const KEY: &str = "the string partition key `item` and the string sort key `version`";
/// The reason in a cancelled transaction for an operation whose condition was false.
const GUARD_FAILED: &str = "ConditionalCheckFailed";
/// The reason in a cancelled transaction for an invalid operation.
const REFUSED: &str = "ValidationError";
/// The reason in a cancelled transaction for an operation that did not cause the cancellation.
const NONE: &str = "None";

/// A history table on DynamoDB.
#[derive(Clone, Debug)]
pub struct DynamoDbHistories {
    client: Client,
    table: TableName,
}

#[expect(clippy::needless_pass_by_value, reason = "it is used as a function for map_err")]
fn build(error: BuildError) -> Failure {
    Failure::Fatal(error.to_string())
}

fn key(item: &str, version: &str) -> Item {
    Item::new().with(ITEM_ATTRIBUTE, item).with(VERSION_ATTRIBUTE, version)
}

fn item_of(key: &Item) -> Result<String, Failure> {
    match key.get(ITEM_ATTRIBUTE) {
        Some(AttributeValue::S(text)) => Ok(text.clone()),
        _ => Err(Failure::Fatal(format!(
            "the history table returned an item without its key; the table must have {KEY}"
        ))),
    }
}

impl DynamoDbHistories {
    /// Returns the table `name`. The environment variable `setting` contains the name.
    #[must_use]
    pub fn new(client: Client, name: String, setting: &'static str) -> Self {
        Self { client, table: TableName { name, setting } }
    }

    fn failure<E>(&self, doing: &str, error: &SdkError<E>) -> Failure
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        failure_of(&self.table, doing, KEY, error)
    }

    fn put_head(&self, item: &str, plan: &Plan, found: u64) -> Result<TransactWriteItem, Failure> {
        let put = Put::builder()
            .table_name(&self.table.name)
            .set_item(Some(to_sdk_item(&plan.head.to_item(item))));
        let put = if found == 0 {
            put.condition_expression("attribute_not_exists(#guard)")
                .expression_attribute_names("#guard", ITEM_ATTRIBUTE)
        } else {
            put.condition_expression("#guard = :guard")
                .expression_attribute_names("#guard", REVISION_ATTRIBUTE)
                .expression_attribute_values(":guard", SdkValue::N(found.to_string()))
        };
        Ok(TransactWriteItem::builder().put(put.build().map_err(build)?).build())
    }

    fn operation(&self, item: &str, write: &Write) -> Result<TransactWriteItem, Failure> {
        let operation = TransactWriteItem::builder();
        let name = &self.table.name;
        Ok(match write {
            Write::Put(version) => {
                let put = Put::builder().table_name(name);
                let put = put.set_item(Some(to_sdk_item(&version.to_item(item))));
                operation.put(put.build().map_err(build)?)
            }
            Write::Delete(number) => {
                let delete = Delete::builder().table_name(name);
                let delete = delete.set_key(Some(to_sdk_item(&key(item, &version_text(*number)))));
                operation.delete(delete.build().map_err(build)?)
            }
            Write::Expire { number, at_seconds } => {
                // If TTL deletes the version before this update, the update creates an incomplete
                // item, which expires too.
                let update = Update::builder()
                    .table_name(name)
                    .set_key(Some(to_sdk_item(&key(item, &version_text(*number)))))
                    .update_expression("SET expires_at = :at")
                    .expression_attribute_values(":at", SdkValue::N(at_seconds.to_string()));
                operation.update(update.build().map_err(build)?)
            }
        }
        .build())
    }

    /// Interprets a failed transaction. False conditions, conflicts with other writers and
    /// throttling cancel a transaction. A transaction whose items are too large in total is
    /// rejected before it begins.
    fn cancelled(&self, error: &SdkError<TransactWriteItemsError>) -> Result<PlanOutcome, Failure> {
        let service = error.as_service_error();
        let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) = service else {
            let message = service.and_then(ProvideErrorMetadata::message).unwrap_or_default();
            let is_refused =
                service.and_then(ProvideErrorMetadata::code) == Some("ValidationException");
            if is_refused && is_refused_for_size(message) {
                return Ok(PlanOutcome::TooLarge(message.to_owned()));
            }
            return Err(self.failure("TransactWriteItems", error));
        };
        let reasons = cancelled.cancellation_reasons();
        let codes: Vec<&str> = reasons.iter().filter_map(CancellationReason::code).collect();
        if codes.contains(&GUARD_FAILED) {
            return Ok(PlanOutcome::GuardFailed);
        }
        let mut refused = reasons.iter().filter(|r| r.code() == Some(REFUSED)).peekable();
        if let Some(message) = refused.peek().and_then(|reason| reason.message())
            && refused.all(|reason| reason.message().is_some_and(is_refused_for_size))
        {
            return Ok(PlanOutcome::TooLarge(message.to_owned()));
        }
        let reasons: BTreeSet<&str> = codes.into_iter().filter(|code| *code != NONE).collect();
        let reasons = reasons.into_iter().collect::<Vec<_>>().join(", ");
        if reasons.contains(REFUSED) {
            return Err(Failure::Fatal(format!(
                "a transaction on table=`{}` ({}) was refused: {}; the table must have {KEY}",
                self.table.name,
                self.table.setting,
                cancelled.message().unwrap_or(&reasons)
            )));
        }
        Err(Failure::Retry(format!("a transaction was cancelled: {reasons}")))
    }
}

impl HistoryTable for DynamoDbHistories {
    async fn load_heads(&self, items: &BTreeSet<String>) -> Result<Loaded, Failure> {
        if items.is_empty() {
            return Ok(Loaded::default());
        }
        let keys: Vec<Item> = items.iter().map(|item| key(item, HEAD_VERSION)).collect();
        let failure = |error: &_| self.failure("BatchGetItem", error);
        let batch = batch_get(&self.client, &self.table.name, &keys, failure).await?;
        let mut items = BTreeMap::new();
        for item in batch.items {
            items.insert(item_of(&item)?, item);
        }
        let unprocessed = batch.unprocessed.iter().map(item_of).collect::<Result<_, _>>()?;
        Ok(Loaded { items, unprocessed })
    }

    async fn versions_below(&self, item: &str, below: u64) -> Result<Vec<Item>, Failure> {
        let answer = self
            .client
            .query()
            .table_name(&self.table.name)
            .key_condition_expression("#item = :item AND #version BETWEEN :first AND :last")
            .expression_attribute_names("#item", ITEM_ATTRIBUTE)
            .expression_attribute_names("#version", VERSION_ATTRIBUTE)
            .expression_attribute_values(":item", SdkValue::S(item.to_owned()))
            .expression_attribute_values(":first", SdkValue::S(version_text(0)))
            .expression_attribute_values(
                ":last",
                SdkValue::S(version_text(below.saturating_sub(1))),
            )
            .scan_index_forward(false)
            .consistent_read(true)
            .limit(i32::try_from(PAGE_VERSIONS).unwrap_or(i32::MAX))
            .send()
            .await
            .map_err(|error| self.failure("Query", &error))?;
        // An item without a stamp is incomplete: TTL deleted the version before its expiry was set.
        let items = answer.items.unwrap_or_default().into_iter();
        items.filter(|item| item.contains_key("stamp")).map(from_sdk_item).collect()
    }

    async fn write(&self, item: &str, plan: &Plan, found: u64) -> Result<PlanOutcome, Failure> {
        let mut request =
            self.client.transact_write_items().transact_items(self.put_head(item, plan, found)?);
        for write in &plan.writes {
            request = request.transact_items(self.operation(item, write)?);
        }
        match request.send().await {
            Ok(_) => Ok(PlanOutcome::Written),
            Err(error) => self.cancelled(&error),
        }
    }
}

#[cfg(test)]
mod tests {
    use rules::versions::{Head, Version};

    use super::*;
    use crate::tables::scripted::{endpoint, serve};

    /// DynamoDB reports a too large item and a misconfigured table in several forms. In every form,
    /// the two errors lead to different outcomes.
    #[tokio::test]
    async fn a_too_large_version_differs_from_a_wrong_table() {
        let cancelled = |reasons: &str| {
            format!(
                r#"{{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","Message":"Transaction cancelled","CancellationReasons":[{reasons}]}}"#
            )
        };
        let refused = |message: &str| {
            format!(
                r#"{{"__type":"com.amazon.coral.validate#ValidationException","message":"{message}"}}"#
            )
        };
        let none = r#"{"Code":"None"}"#;
        let of = |message: &str| format!(r#"{{"Code":"ValidationError","Message":"{message}"}}"#);
        let large = of("Item size to update has exceeded the maximum allowed size");
        for (body, expected) in [
            (cancelled(&format!("{none},{large}")), "too large"),
            (cancelled(&format!("{large},{}", of("Type mismatch for key"))), "fatal"),
            (cancelled(&format!("{none},{}", of("Type mismatch for key"))), "fatal"),
            (cancelled(&format!(r#"{{"Code":"ConditionalCheckFailed"}},{large}"#)), "overtaken"),
            (cancelled(&format!(r#"{none},{{"Code":"TransactionConflict"}}"#)), "retry"),
            (
                refused(
                    "1 validation error detected: Item size has exceeded the maximum allowed size",
                ),
                "too large",
            ),
            (refused("Nesting Levels have exceeded supported limits"), "too large"),
            (refused("One of the required keys was not given a value"), "fatal"),
        ] {
            let (listener, client) = endpoint().await;
            let table = DynamoDbHistories::new(client, "h".to_owned(), "HISTORY_TABLE");
            let plan = Plan {
                head: Head::of_base(),
                writes: vec![Write::Put(Version::base(Item::new().with("a", "b")))],
            };
            let answers = [("400 Bad Request", body.as_str())];
            let (answered, _) = tokio::join!(table.write("k", &plan, 0), serve(listener, &answers));
            let found = match answered {
                Ok(PlanOutcome::Written) => "written",
                Ok(PlanOutcome::GuardFailed) => "overtaken",
                Ok(PlanOutcome::TooLarge(_)) => "too large",
                Err(Failure::Retry(_)) => "retry",
                Err(Failure::Fatal(_)) => "fatal",
            };
            assert_eq!(found, expected, "{body}");
        }
    }
}
