//! Requests that are built once. Only digits in their bodies change from one request to the next.
//!
//! Bodies follow DynamoDB's JSON protocol. The signature is a placeholder: a store without
//! `--access-keys` accepts it, but AWS rejects it.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, InvalidHeaderValue};
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::Full;
use serde_json::{Value, json};

/// The size of an item in bytes, as DynamoDB counts it: names and values.
const ITEM_BYTES: usize = 300;
/// The number of digits of a key.
const KEY_DIGITS: usize = 9;
/// The placeholder for a key's number in a body. No other part of a body contains the placeholder's
/// characters.
const KEY_MARK: &str = "@@@@@@@@@";
/// The number of digits of the attribute that differs in each version of an item.
const VERSION_DIGITS: usize = 12;
/// The placeholder for the version in a body. The value begins with 1, because stores drop leading
/// zeros of numbers.
const VERSION_MARK: &str = "~~~~~~~~~~~~";
/// The number of items in one BatchWriteItem request: DynamoDB's maximum.
pub(crate) const BATCH_ITEMS: u64 = 25;
/// The number of slots of the sharded counter.
pub(crate) const SLOTS: u64 = 20;

const PLACEHOLDER: &str = "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/dynamodb/aws4_request, \
    SignedHeaders=content-type;host;x-amz-date;x-amz-target, \
    Signature=0000000000000000000000000000000000000000000000000000000000000000";

/// One request, with the positions in its body that change.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    headers: HeaderMap,
    body: Vec<u8>,
    keys: Vec<usize>,
    versions: Vec<usize>,
}

impl Request {
    /// Returns a request for the operation `target` (such as `PutItem`).
    ///
    /// # Errors
    /// When the authority is not a valid header value.
    pub(crate) fn new(
        authority: &str,
        target: &str,
        body: &Value,
    ) -> Result<Self, InvalidHeaderValue> {
        let target = format!("DynamoDB_20120810.{target}");
        let headers = HeaderMap::from_iter([
            (HOST, HeaderValue::from_str(authority)?),
            (CONTENT_TYPE, HeaderValue::from_static("application/x-amz-json-1.0")),
            (AUTHORIZATION, HeaderValue::from_static(PLACEHOLDER)),
            (HeaderName::from_static("x-amz-date"), HeaderValue::from_static("20260101T000000Z")),
            (HeaderName::from_static("x-amz-target"), HeaderValue::from_str(&target)?),
        ]);
        let body = body.to_string().into_bytes();
        let (keys, versions) = (places(&body, KEY_MARK), places(&body, VERSION_MARK));
        Ok(Self { headers, body, keys, versions })
    }

    /// Returns the request to send.
    pub(crate) fn to_http(&self) -> http::Request<Full<Bytes>> {
        let mut request = http::Request::new(Full::new(Bytes::copy_from_slice(&self.body)));
        *request.method_mut() = Method::POST;
        request.headers_mut().clone_from(&self.headers);
        request
    }

    /// Sets the keys in the order of their positions, and sets every version to `version`.
    pub(crate) fn set(&mut self, keys: impl IntoIterator<Item = u64>, version: u64) {
        for (place, key) in self.keys.iter().zip(keys) {
            write_digits(self.body.get_mut(*place..*place + KEY_DIGITS), key);
        }
        for place in &self.versions {
            write_digits(self.body.get_mut(*place + 1..*place + VERSION_DIGITS), version);
            if let Some(first) = self.body.get_mut(*place) {
                *first = b'1';
            }
        }
    }
}

fn places(bytes: &[u8], mark: &str) -> Vec<usize> {
    let windows = bytes.windows(mark.len()).enumerate();
    windows.filter(|(_, window)| *window == mark.as_bytes()).map(|(place, _)| place).collect()
}

/// Writes the last decimal digits of a number, as many as fit into `room`.
fn write_digits(room: Option<&mut [u8]>, mut number: u64) {
    for digit in room.unwrap_or_default().iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
}

/// Returns an item of [`ITEM_BYTES`]: with the keys `k…` and `s`, or `p…` in a queried partition.
fn item(partition: &str, sort: &str) -> Value {
    // The size of the item in bytes without the value of `title`. The number takes 1 + 12/2 bytes.
    let taken = 2 + partition.len() + 2 + sort.len() + 7 + 7 + 5;
    json!({
        "pk": {"S": partition},
        "sk": {"S": sort},
        "version": {"N": VERSION_MARK},
        "title": {"S": "x".repeat(ITEM_BYTES.saturating_sub(taken))},
    })
}

fn loose_key() -> (String, &'static str) {
    (format!("k{KEY_MARK}"), "s")
}

/// Returns the body of a PutItem of one single item.
pub(crate) fn put_body(table: &str) -> Value {
    let (partition, sort) = loose_key();
    json!({"TableName": table, "Item": item(&partition, sort)})
}

/// Returns the body of a strongly consistent GetItem of one single item.
pub(crate) fn get_body(table: &str) -> Value {
    let (partition, sort) = loose_key();
    let key = json!({"pk": {"S": partition}, "sk": {"S": sort}});
    json!({"TableName": table, "Key": key, "ConsistentRead": true})
}

/// Returns the body of a BatchWriteItem of 25 single items.
pub(crate) fn batch_body(table: &str) -> Value {
    let (partition, sort) = loose_key();
    let put = json!({"PutRequest": {"Item": item(&partition, sort)}});
    let puts: Vec<_> = (0..BATCH_ITEMS).map(|_| put.clone()).collect();
    json!({"RequestItems": {table: puts}})
}

/// Returns the body of a BatchWriteItem of the 25 items from `first` on (0 or 25) in one queried
/// partition.
pub(crate) fn partition_body(table: &str, first: u64) -> Value {
    let partition = format!("p{KEY_MARK}");
    let put = |sort| json!({"PutRequest": {"Item": item(&partition, &format!("{sort:04}"))}});
    let puts: Vec<_> = (first..first + BATCH_ITEMS).map(put).collect();
    json!({"RequestItems": {table: puts}})
}

/// Returns the body of a Query of all 50 items of one partition.
pub(crate) fn query_body(table: &str) -> Value {
    json!({
        "TableName": table,
        "KeyConditionExpression": "pk = :pk",
        "ExpressionAttributeValues": {":pk": {"S": format!("p{KEY_MARK}")}},
    })
}

/// Returns the body of an UpdateItem that adds 1 to a slot.
pub(crate) fn update_body(table: &str) -> Value {
    json!({
        "TableName": table,
        "Key": {"pk": {"S": format!("slot{KEY_MARK}")}},
        "UpdateExpression": "ADD votes :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    })
}

/// Returns the body of a strongly consistent GetItem of a slot.
pub(crate) fn slot_body(table: &str) -> Value {
    let key = json!({"pk": {"S": format!("slot{KEY_MARK}")}});
    json!({"TableName": table, "Key": key, "ConsistentRead": true})
}

/// Returns the body of the CreateTable for the items. The index, if any, has a sort key that each
/// put changes, so that a put removes an index entry and adds another.
pub(crate) fn create_items_body(table: &str, has_index: bool, has_stream: bool) -> Value {
    let mut definitions = vec![definition("pk", "S"), definition("sk", "S")];
    let mut body = create_body(table, &json!([hash("pk"), range("sk")]), has_stream);
    if has_index {
        definitions.push(definition("version", "N"));
        set(
            &mut body,
            "GlobalSecondaryIndexes",
            json!([{
                "IndexName": "by-version",
                "KeySchema": [hash("pk"), range("version")],
                "Projection": {"ProjectionType": "ALL"},
            }]),
        );
    }
    set(&mut body, "AttributeDefinitions", definitions.into());
    body
}

/// Returns the body of the CreateTable for the slots.
pub(crate) fn create_slots_body(table: &str, has_stream: bool) -> Value {
    let mut body = create_body(table, &json!([hash("pk")]), has_stream);
    set(&mut body, "AttributeDefinitions", json!([definition("pk", "S")]));
    body
}

fn create_body(table: &str, schema: &Value, has_stream: bool) -> Value {
    let mut body =
        json!({"TableName": table, "KeySchema": schema, "BillingMode": "PAY_PER_REQUEST"});
    if has_stream {
        let stream = json!({"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"});
        set(&mut body, "StreamSpecification", stream);
    }
    body
}

fn hash(name: &str) -> Value {
    json!({"AttributeName": name, "KeyType": "HASH"})
}

fn range(name: &str) -> Value {
    json!({"AttributeName": name, "KeyType": "RANGE"})
}

fn definition(name: &str, kind: &str) -> Value {
    json!({"AttributeName": name, "AttributeType": kind})
}

fn set(object: &mut Value, name: &str, value: Value) {
    if let Some(members) = object.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use model::json::item_from_str;

    use super::*;

    fn filled(body: &Value, keys: impl IntoIterator<Item = u64>, version: u64) -> Value {
        let mut request = Request::new("h:1", "X", body).unwrap();
        request.set(keys, version);
        serde_json::from_slice(&request.body).unwrap()
    }

    #[test]
    fn items_have_300_bytes() {
        for (body, count) in
            [(put_body("t"), 1), (batch_body("t"), 25), (partition_body("t", 25), 25)]
        {
            let made = filled(&body, 700..725, 123_456_789_012);
            let batch = made["RequestItems"]["t"].as_array().into_iter().flatten();
            let found: Vec<Value> = batch
                .map(|put| put["PutRequest"]["Item"].clone())
                .chain(made.get("Item").cloned())
                .collect();
            assert_eq!(found.len(), count);
            for item in found {
                let item = item_from_str(&item.to_string()).unwrap();
                assert_eq!(item.size(), ITEM_BYTES, "{item:?}");
            }
        }
    }

    #[test]
    fn every_key_of_a_batch_is_set() {
        let made = filled(&batch_body("t"), 10..35, 7);
        for (put, key) in made["RequestItems"]["t"].as_array().unwrap().iter().zip(10..) {
            let item = &put["PutRequest"]["Item"];
            assert_eq!(item["pk"]["S"], format!("k{key:09}"));
            assert_eq!(item["version"]["N"], "100000000007");
        }
    }

    #[test]
    fn keys_of_the_other_operations() {
        for (body, expected) in [
            (get_body("t"), "k000000042"),
            (query_body("t"), "p000000042"),
            (update_body("t"), "slot000000042"),
            (slot_body("t"), "slot000000042"),
        ] {
            let made = filled(&body, [42], 0).to_string();
            assert!(made.contains(expected) && !made.contains("@@"), "{made}");
        }
    }
}
