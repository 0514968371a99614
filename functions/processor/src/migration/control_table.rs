//! Reads and writes the entries of the control table, which the crate `control` describes.
//!
//! An entry that cannot be read is an error that names the entry. The module makes no decisions.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use control::{
    Active, Entry, PARTITION_KEY, Problem, ProblemKind, REVISION, Revised, SHARED, SORT_KEY, State,
    Task,
};

use super::server_date::ServerDate;
use super::throttling::Throttling;
use crate::failure::Failure;
use crate::settings::CONTROL_TABLE;
use crate::tables::dynamodb::request_failure;

/// The control table.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    pub(crate) client: Client,
    table: String,
    date: ServerDate,
    pub(super) throttling: Throttling,
}

impl Control {
    /// Returns the control table. `throttling` is the interceptor of `client`.
    pub(crate) fn new(client: Client, table: String, throttling: Throttling) -> Self {
        Self { client, table, date: ServerDate::default(), throttling }
    }

    /// Returns DynamoDB's time in seconds since 1970; `None` before the first entry was read.
    pub(crate) fn now(&self) -> Option<u64> {
        self.date.seconds()
    }

    /// Returns the table's name.
    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    /// Reads an entry with strong consistency.
    pub(crate) async fn get<E: Entry>(
        &self,
        partition: &str,
        name: &str,
    ) -> Result<Option<E>, Failure> {
        let request = self
            .client
            .get_item()
            .table_name(&self.table)
            .key(PARTITION_KEY, SdkValue::S(partition.to_owned()))
            .key(SORT_KEY, SdkValue::S(name.to_owned()))
            .consistent_read(true);
        // The future is boxed, because the compiler limits the nesting of futures.
        let sending = Box::pin(request.customize().interceptor(self.date.clone()).send());
        let answer = sending
            .await
            .map_err(|error| request_failure("GetItem", &self.table, CONTROL_TABLE, &error))?;
        answer.item.map(decode).transpose()
    }

    /// Reads the current version of an entry that was read before.
    pub(crate) async fn reread<E: Entry>(&self, entry: &E) -> Result<Option<E>, Failure> {
        self.get(&entry.partition(), &entry.name()).await
    }

    /// Reads the state of a migration. If the entry is missing, returns the state of a migration
    /// that was not started.
    pub(crate) async fn state(&self, migration: &str) -> Result<State, Failure> {
        let state = self.get(migration, State::NAME).await?;
        Ok(state.unwrap_or_else(|| State::new(migration)))
    }

    /// Reads which migrations are active. An invocation that reads this entry after a migration
    /// became active applies its batch to that migration. Records that an earlier invocation
    /// ignored were written before the migration became active, and the backfill reads their items.
    pub(crate) async fn active(&self) -> Result<Active, Failure> {
        Ok(self.get(SHARED, Active::NAME).await?.unwrap_or_default())
    }

    /// Reads all tasks of a migration with strong consistency.
    pub(crate) async fn tasks(&self, migration: &str) -> Result<Vec<Task>, Failure> {
        let mut pages = self
            .client
            .query()
            .table_name(&self.table)
            .consistent_read(true)
            .key_condition_expression("#m = :m AND begins_with(#e, :e)")
            .expression_attribute_names("#m", PARTITION_KEY)
            .expression_attribute_names("#e", SORT_KEY)
            .expression_attribute_values(":m", SdkValue::S(migration.to_owned()))
            .expression_attribute_values(":e", SdkValue::S(Task::PREFIX.to_owned()))
            .into_paginator()
            .items()
            .send();
        let mut tasks = Vec::new();
        while let Some(item) = Box::pin(pages.next()).await {
            let item =
                item.map_err(|error| request_failure("Query", &self.table, CONTROL_TABLE, &error))?;
            tasks.push(decode(item)?);
        }
        Ok(tasks)
    }

    /// Writes an entry unconditionally.
    pub(crate) async fn put(&self, entry: &impl Entry) -> Result<(), Failure> {
        let request = self.client.put_item().table_name(&self.table);
        let sent = request.set_item(Some(encode(entry)?)).send().await;
        sent.map(drop)
            .map_err(|error| request_failure("PutItem", &self.table, CONTROL_TABLE, &error))
    }

    /// Records that an operator must check an item. `key` is the item's key as DynamoDB JSON. A
    /// comparison without a difference removes all problems that were recorded before it.
    pub(crate) async fn note_problem(
        &self,
        kind: ProblemKind,
        migration: &str,
        table: &str,
        key: &str,
        reason: &str,
    ) -> Result<(), Failure> {
        let (migration, table) = (migration.to_owned(), table.to_owned());
        let (key, reason, at) = (key.to_owned(), reason.to_owned(), self.now());
        self.put(&Problem { migration, kind, table, key, reason, at }).await
    }

    /// Writes an entry with the next revision if the table still has the entry's current revision.
    /// Returns the new entry; `None` if another process has changed the entry.
    pub(crate) async fn replace<E: Revised>(&self, entry: E) -> Result<Option<E>, Failure> {
        let (revision, next) = (entry.revision(), entry.next());
        let request = self.client.put_item().table_name(&self.table);
        let request = request.set_item(Some(encode(&next)?));
        let request = match revision {
            0 => request.condition_expression("attribute_not_exists(#guard)"),
            _ => request
                .condition_expression("#guard = :guard")
                .expression_attribute_values(":guard", SdkValue::N(revision.to_string())),
        };
        match request.expression_attribute_names("#guard", REVISION).send().await {
            Ok(_) => Ok(Some(next)),
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(|error| error.is_conditional_check_failed_exception()) =>
            {
                Ok(None)
            }
            Err(error) => Err(request_failure("PutItem", &self.table, CONTROL_TABLE, &error)),
        }
    }
}

/// Returns the item of an entry.
pub(super) fn encode(entry: &impl Entry) -> Result<HashMap<String, SdkValue>, Failure> {
    let (partition, name) = (entry.partition(), entry.name());
    let mut item: HashMap<String, SdkValue> = serde_dynamo::to_item(entry).map_err(|error| {
        Failure::Fatal(format!("cannot encode `{name}` of `{partition}`: {error}"))
    })?;
    item.insert(PARTITION_KEY.to_owned(), SdkValue::S(partition));
    item.insert(SORT_KEY.to_owned(), SdkValue::S(name));
    Ok(item)
}

/// Decodes an entry from its item. An entry whose attributes contradict the item's key is damaged
/// too, because a later write would create another item.
pub(super) fn decode<E: Entry>(item: HashMap<String, SdkValue>) -> Result<E, Failure> {
    let text = |name: &str| item.get(name)?.as_s().ok().cloned();
    let (partition, name) =
        (text(PARTITION_KEY).unwrap_or_default(), text(SORT_KEY).unwrap_or_default());
    let damaged = |reason: String| {
        Failure::Fatal(format!(
            "`{name}` of `{partition}` is damaged in the control table: {reason}"
        ))
    };
    let entry: E = serde_dynamo::from_item(item).map_err(|error| damaged(error.to_string()))?;
    match (entry.partition(), entry.name()) == (partition.clone(), name.clone()) {
        true => Ok(entry),
        false => Err(damaged(format!("it has the attributes of `{}`", entry.name()))),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use model::json::{item_from_str, item_to_string};
    use serde_json::{Value, json};

    use super::*;
    use crate::tables::attribute_value::{from_sdk_item, to_sdk_item};

    /// Returns the DynamoDB JSON of an entry.
    pub(crate) fn json_of(entry: &impl Entry) -> Value {
        let item = from_sdk_item(encode(entry).unwrap()).unwrap();
        serde_json::from_str(&item_to_string(&item)).unwrap()
    }

    /// Decodes an entry from its DynamoDB JSON.
    pub(crate) fn entry_of<E: Entry>(json: &Value) -> Result<E, Failure> {
        decode(to_sdk_item(&item_from_str(&json.to_string()).unwrap()))
    }

    #[test]
    fn a_damaged_entry_is_named_with_the_reason() {
        let item = json_of(&State { run: 3, ..State::new("shop") });
        assert_eq!(entry_of::<State>(&item).unwrap().run, 3);
        for (attribute, value, reason) in [
            ("phase", json!({"S": "flying"}), "unknown variant `flying`"),
            ("run", json!({"S": "3"}), "Expected num"),
            ("entry", json!({"S": "STATES"}), "it has the attributes of `STATE`"),
        ] {
            let mut damaged = item.clone();
            damaged[attribute] = value;
            let Err(Failure::Fatal(told)) = entry_of::<State>(&damaged) else {
                panic!("{damaged}")
            };
            assert!(told.contains("of `shop` is damaged in the control table: "), "{told}");
            assert!(told.starts_with("`STATE") && told.contains(reason), "{told}");
        }
    }
}
