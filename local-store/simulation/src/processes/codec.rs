//! The encoding of requests as DynamoDB's JSON, and the decoding of answers.

use model::json::{item_from_str, item_to_string};
use model::{EventName, Item, StreamRecord, StreamViewType, UserIdentity};
use serde_json::{Map, Value, json};

use crate::request::{Change, Expression, Failure, KEY, Shard, TABLE, Write};

/// Encodes an item as a JSON value.
pub(crate) fn from_item(item: &Item) -> Value {
    serde_json::from_str(&item_to_string(item)).unwrap_or_default()
}

/// Decodes an item from a JSON value.
pub(crate) fn to_item(value: &Value) -> Result<Item, Failure> {
    item_from_str(&value.to_string()).map_err(|error| Failure::Defect(error.to_string()))
}

/// Decodes the optional item under a member of a JSON object.
pub(crate) fn member(value: &Value, name: &str) -> Result<Option<Item>, Failure> {
    value.get(name).map(to_item).transpose()
}

/// Encodes the key of an item.
pub(crate) fn key(name: &str) -> Value {
    json!({KEY: {"S": name}})
}

/// Returns the operation of a single write, the name of such a write in a transaction, and the
/// request's parameters.
pub(crate) fn write(write: &Write) -> (&'static str, &'static str, Map<String, Value>) {
    let mut request = Map::new();
    let mut values = Map::new();
    request.insert("TableName".to_owned(), TABLE.into());
    let (operation, member) = match &write.change {
        Change::Put(item) => {
            request.insert("Item".to_owned(), from_item(item));
            ("PutItem", "Put")
        }
        Change::Delete => ("DeleteItem", "Delete"),
        Change::Check => ("", "ConditionCheck"),
        Change::Update(update) => {
            request.insert("UpdateExpression".to_owned(), update.text.clone().into());
            add_values(&mut values, update);
            ("UpdateItem", "Update")
        }
    };
    if operation != "PutItem" {
        request.insert("Key".to_owned(), key(&write.key));
    }
    if let Some(condition) = &write.condition {
        request.insert("ConditionExpression".to_owned(), condition.text.clone().into());
        add_values(&mut values, condition);
    }
    if !values.is_empty() {
        request.insert("ExpressionAttributeValues".to_owned(), values.into());
    }
    (operation, member, request)
}

fn add_values(values: &mut Map<String, Value>, expression: &Expression) {
    let all: Item = expression.values.clone().into_iter().collect();
    if let Value::Object(members) = from_item(&all) {
        values.extend(members);
    }
}

/// Decodes a shard of `DescribeStream`.
pub(crate) fn shard(value: &Value) -> Option<Shard> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let range = value.get("SequenceNumberRange")?;
    Some(Shard {
        id: text(value.get("ShardId")?)?,
        parent: value.get("ParentShardId").and_then(text),
        range: (
            text(range.get("StartingSequenceNumber")?)?,
            range.get("EndingSequenceNumber").and_then(text),
        ),
    })
}

/// Decodes a record of `GetRecords`.
pub(crate) fn record(value: &Value) -> Result<StreamRecord, Failure> {
    let missing = || Failure::Defect(format!("a stream record lacks a required field: {value}"));
    let text =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let change = value.get("dynamodb").ok_or_else(missing)?;
    let identity = value.get("userIdentity").map(|identity| UserIdentity {
        identity_type: text(identity, "Type").unwrap_or_default(),
        principal_id: text(identity, "PrincipalId").unwrap_or_default(),
    });
    let number = text(change, "SequenceNumber").ok_or_else(missing)?;
    let seconds = change.get("ApproximateCreationDateTime").and_then(Value::as_f64);
    Ok(StreamRecord {
        event_id: text(value, "eventID").ok_or_else(missing)?,
        event_name: text(value, "eventName")
            .and_then(|name| EventName::from_text(&name))
            .ok_or_else(missing)?,
        user_identity: identity,
        approximate_creation_seconds: seconds.map(whole_seconds),
        keys: member(change, "Keys")?.ok_or_else(missing)?,
        old_image: member(change, "OldImage")?,
        new_image: member(change, "NewImage")?,
        sequence_number: number.parse().map_err(|_| missing())?,
        size_bytes: change.get("SizeBytes").and_then(Value::as_u64).unwrap_or_default(),
        view_type: text(change, "StreamViewType")
            .and_then(|name| StreamViewType::from_text(&name))
            .ok_or_else(missing)?,
    })
}

#[expect(clippy::cast_possible_truncation, reason = "seconds of this century fit exactly")]
fn whole_seconds(seconds: f64) -> u64 {
    seconds as u64
}
