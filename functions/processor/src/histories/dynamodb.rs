//! A table of histories on DynamoDB.
//!
//! Retries of single requests are the SDK's; what its errors mean for us is decided here.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{BuildError, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue as SdkValue, CancellationReason, Delete, Put, TransactWriteItem, Update,
};
use model::{AttributeValue, Item};
use rules::versions::{
    HEAD_VERSION, ITEM_ATTRIBUTE, Plan, REVISION_ATTRIBUTE, VERSION_ATTRIBUTE, Write, version_text,
};

use super::{HistoryTable, PAGE_VERSIONS};
use crate::failure::Failure;
use crate::tables::attribute_value::{from_sdk_item, to_sdk_item};
use crate::tables::batch_get::batch_get;
use crate::tables::dynamodb::{TableName, failure_of};
use crate::tables::{Loaded, WriteOutcome};

/// The key that such a table must have, for messages.
const KEY: &str = "the string partition key `item` and the string sort key `version`";
/// The reason of a cancelled transaction whose guard did not hold.
const GUARD_FAILED: &str = "ConditionalCheckFailed";
/// The reason of an operation that was not at fault.
const NONE: &str = "None";

/// One table.
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
        _ => Err(Failure::Fatal(format!("a history without its key; its table must have {KEY}"))),
    }
}

impl DynamoDbHistories {
    /// The table `name`, which the environment variable `setting` names.
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
                // TTL may have deleted it in between; then this leaves a stub that expires as well.
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

    /// A transaction is also cancelled because of others at the same items, or throttling.
    fn cancelled(
        &self,
        error: &SdkError<TransactWriteItemsError>,
    ) -> Result<WriteOutcome, Failure> {
        let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) =
            error.as_service_error()
        else {
            return Err(self.failure("TransactWriteItems", error));
        };
        let codes: Vec<&str> =
            cancelled.cancellation_reasons().iter().filter_map(CancellationReason::code).collect();
        if codes.contains(&GUARD_FAILED) {
            return Ok(WriteOutcome::GuardFailed);
        }
        let reasons: BTreeSet<&str> = codes.into_iter().filter(|code| *code != NONE).collect();
        let reasons = reasons.into_iter().collect::<Vec<_>>().join(", ");
        if reasons.contains("ValidationError") {
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
        // A stub without a stamp is what is left of a version that TTL deleted before it was told
        // to expire.
        let items = answer.items.unwrap_or_default().into_iter();
        items.filter(|item| item.contains_key("stamp")).map(from_sdk_item).collect()
    }

    async fn write(&self, item: &str, plan: &Plan, found: u64) -> Result<WriteOutcome, Failure> {
        let mut request =
            self.client.transact_write_items().transact_items(self.put_head(item, plan, found)?);
        for write in &plan.writes {
            request = request.transact_items(self.operation(item, write)?);
        }
        match request.send().await {
            Ok(_) => Ok(WriteOutcome::Written),
            Err(error) => self.cancelled(&error),
        }
    }
}
