//! A table on DynamoDB.
//!
//! The SDK retries single requests; this module interprets its errors.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use model::{AttributeValue, Item};

use super::attribute_value::{from_sdk_item, to_sdk, to_sdk_item};
use super::batch_get::batch_get;
use super::{Guard, KeyPage, Loaded, Table, WriteOutcome};
use crate::failure::Failure;

/// A table on DynamoDB.
#[derive(Clone, Debug)]
pub struct DynamoDbTable {
    client: Client,
    name: String,
    key_attribute: String,
    setting: &'static str,
}

/// The name of a table, and the environment variable that contains it.
#[derive(Clone, Debug)]
pub(crate) struct TableName {
    pub(crate) name: String,
    pub(crate) setting: &'static str,
}

/// Converts an error of a request on a table to a failure. `key` describes the key that the table
/// must have.
pub(crate) fn failure_of<E>(
    table: &TableName,
    doing: &str,
    key: &str,
    error: &SdkError<E>,
) -> Failure
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    match request_failure(doing, &table.name, table.setting, error) {
        Failure::Fatal(reason) if code_of(error) == Some("ValidationException") => {
            Failure::Fatal(format!("{reason}; the table must have {key}"))
        }
        failure => failure,
    }
}

fn code_of<E: ProvideErrorMetadata>(error: &SdkError<E>) -> Option<&str> {
    error.as_service_error().and_then(ProvideErrorMetadata::code)
}

/// Converts an error of a request on a table to a failure. `setting` is the source of the table's
/// name: an environment variable or a description.
pub(crate) fn request_failure<E>(
    doing: &str,
    table: &str,
    setting: &str,
    error: &SdkError<E>,
) -> Failure
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    match code_of(error) {
        Some("ResourceNotFoundException") => Failure::Fatal(format!(
            "table=`{table}` does not exist; create it, or correct {setting}"
        )),
        Some(
            code @ ("AccessDeniedException"
            | "UnrecognizedClientException"
            | "InvalidSignatureException"),
        ) => Failure::Fatal(format!(
            "{doing} on table=`{table}` ({setting}) is not allowed: {code}; check the function's role and its region"
        )),
        Some("ValidationException") => {
            let service = error.as_service_error();
            let message = service.and_then(ProvideErrorMetadata::message).unwrap_or_default();
            Failure::Fatal(format!("{doing} on table=`{table}` ({setting}) was refused: {message}"))
        }
        _ => Failure::Retry(format!(
            "{doing} on table=`{table}` failed: {}",
            DisplayErrorContext(error)
        )),
    }
}

impl DynamoDbTable {
    /// Returns the table `name`. The environment variable `setting` contains the name.
    /// `key_attribute` is the partition key, of type string.
    #[must_use]
    pub fn new(client: Client, name: String, key_attribute: String, setting: &'static str) -> Self {
        Self { client, name, key_attribute, setting }
    }

    fn failure<E>(&self, doing: &str, error: &SdkError<E>) -> Failure
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let key = format!("the string partition key `{}` and no sort key", self.key_attribute);
        let table = TableName { name: self.name.clone(), setting: self.setting };
        failure_of(&table, doing, &key, error)
    }

    fn key(&self, text: &str) -> Item {
        Item::new().with(&self.key_attribute, text)
    }

    fn key_text(&self, item: &Item) -> Result<String, Failure> {
        match item.get(&self.key_attribute) {
            Some(AttributeValue::S(text)) => Ok(text.clone()),
            _ => Err(Failure::Fatal(format!(
                "table=`{}` ({}) has an item without the string attribute `{}`; the table must have it as its only key",
                self.name, self.setting, self.key_attribute
            ))),
        }
    }
}

impl Table for DynamoDbTable {
    async fn load_some(&self, keys: &BTreeSet<String>) -> Result<Loaded, Failure> {
        if keys.is_empty() {
            return Ok(Loaded::default());
        }
        let keys: Vec<Item> = keys.iter().map(|key| self.key(key)).collect();
        let failure = |error: &_| self.failure("BatchGetItem", error);
        let batch = batch_get(&self.client, &self.name, &keys, failure).await?;
        let mut items = BTreeMap::new();
        for item in batch.items {
            items.insert(self.key_text(&item)?, item);
        }
        let unprocessed = batch.unprocessed.iter().map(|key| self.key_text(key));
        Ok(Loaded { items, unprocessed: unprocessed.collect::<Result<_, _>>()? })
    }

    async fn put(&self, item: &Item, guard: &Guard) -> Result<WriteOutcome, Failure> {
        let request =
            self.client.put_item().table_name(&self.name).set_item(Some(to_sdk_item(item)));
        let request = match guard {
            Guard::Absent => request
                .condition_expression("attribute_not_exists(#guard)")
                .expression_attribute_names("#guard", &self.key_attribute),
            Guard::Equals { attribute, value } => request
                .condition_expression("#guard = :guard")
                .expression_attribute_names("#guard", *attribute)
                .expression_attribute_values(":guard", to_sdk(value)),
        };
        match request.send().await {
            Ok(_) => Ok(WriteOutcome::Written),
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(|error| error.is_conditional_check_failed_exception()) =>
            {
                Ok(WriteOutcome::GuardFailed)
            }
            Err(error) => Err(self.failure("PutItem", &error)),
        }
    }

    async fn scan_keys(&self, after: Option<&str>) -> Result<KeyPage, Failure> {
        let answer = self
            .client
            .scan()
            .table_name(&self.name)
            .projection_expression("#key")
            .expression_attribute_names("#key", &self.key_attribute)
            .set_exclusive_start_key(after.map(|key| to_sdk_item(&self.key(key))))
            .send()
            .await
            .map_err(|error| self.failure("Scan", &error))?;
        let text = |item| self.key_text(&from_sdk_item(item)?);
        let items = answer.items.unwrap_or_default().into_iter();
        let keys = items.map(text).collect::<Result<_, _>>()?;
        let next = answer.last_evaluated_key.map(text).transpose()?;
        Ok(KeyPage { keys, next })
    }
}
