//! Requests as bytes, made once; only digits in them change from one to the next.
//!
//! It sends nothing. Bodies are DynamoDB's JSON protocol, and the signature is one that a local
//! store takes and the service does not.

use serde_json::{Value, json};

use client::plain_http;

/// Bytes of an item by DynamoDB's rule: names and values.
#[cfg(test)]
const ITEM_BYTES: usize = 300;
/// Digits of a key.
const KEY_DIGITS: usize = 9;
/// Stands in a body where a key's number goes. No other part of a request has these characters.
const KEY_MARK: &[u8; KEY_DIGITS] = b"@@@@@@@@@";
/// Digits of the attribute that makes each version of an item another one.
const VERSION_DIGITS: usize = 12;
/// Stands in a body where the version goes. It begins with 1 when filled in, because stores drop
/// leading zeros of numbers.
const VERSION_MARK: &[u8; VERSION_DIGITS] = b"~~~~~~~~~~~~";
/// Items of one BatchWriteItem request: DynamoDB takes no more.
pub(super) const BATCH_ITEMS: u64 = 25;
/// Items of one queried partition.
pub(super) const QUERY_ITEMS: u64 = 50;
/// Slots of the sharded counter.
pub(super) const SLOTS: u64 = 20;

/// One request, with the places in it that change.
#[derive(Clone, Debug)]
pub(super) struct Request {
    bytes: Vec<u8>,
    keys: Vec<usize>,
    versions: Vec<usize>,
    /// What may be sent instead, whole.
    others: Vec<Vec<u8>>,
}

impl Request {
    /// A request for the operation `target` (`PutItem`, say).
    pub(super) fn new(authority: &str, target: &str, body: &Value) -> Self {
        Self::of_api(authority, "DynamoDB_20120810", target, body)
    }

    /// A request to the Streams API.
    pub(super) fn to_streams(authority: &str, target: &str, body: &Value) -> Self {
        Self::of_api(authority, "DynamoDBStreams_20120810", target, body)
    }

    /// Requests to the Streams API with one iterator each, of which [`Request::choose`] takes one.
    pub(super) fn any_of_streams(authority: &str, target: &str, iterators: &[String]) -> Self {
        let of =
            |iterator| Self::to_streams(authority, target, &json!({"ShardIterator": iterator}));
        let others: Vec<Vec<u8>> = iterators.iter().map(|iterator| of(iterator).bytes).collect();
        let bytes = others.first().cloned().unwrap_or_default();
        Self { bytes, keys: Vec::new(), versions: Vec::new(), others }
    }

    /// Takes one of the whole requests.
    pub(super) fn choose(&mut self, random: u64) {
        let count = u64::try_from(self.others.len()).unwrap_or(u64::MAX).max(1);
        let chosen = usize::try_from(random % count).ok().and_then(|place| self.others.get(place));
        if let Some(chosen) = chosen {
            self.bytes.clone_from(chosen);
        }
    }

    fn of_api(authority: &str, api: &str, target: &str, body: &Value) -> Self {
        let body = body.to_string();
        let head = plain_http::head(authority, &format!("{api}.{target}"));
        let bytes = format!("{head}{}\r\n\r\n{body}", body.len()).into_bytes();
        let keys = places(&bytes, KEY_MARK);
        let versions = places(&bytes, VERSION_MARK);
        Self { bytes, keys, versions, others: Vec::new() }
    }

    /// A request for a path.
    pub(super) fn get(authority: &str, path: &str) -> Self {
        let bytes = format!("GET {path} HTTP/1.1\r\nhost: {authority}\r\n\r\n").into_bytes();
        Self { bytes, keys: Vec::new(), versions: Vec::new(), others: Vec::new() }
    }

    /// The request as it is sent.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Sets the keys, one for each place in turn, and makes every version `version`.
    pub(super) fn set(&mut self, keys: impl IntoIterator<Item = u64>, version: u64) {
        for (place, key) in self.keys.iter().zip(keys) {
            write_digits(self.bytes.get_mut(*place..*place + KEY_DIGITS), key);
        }
        for place in &self.versions {
            write_digits(self.bytes.get_mut(*place + 1..*place + VERSION_DIGITS), version);
            if let Some(first) = self.bytes.get_mut(*place) {
                *first = b'1';
            }
        }
    }
}

fn places(bytes: &[u8], mark: &[u8]) -> Vec<usize> {
    let windows = bytes.windows(mark.len()).enumerate();
    windows.filter(|(_, window)| *window == mark).map(|(place, _)| place).collect()
}

/// The last decimal digits of a number, as many as there is room for.
fn write_digits(room: Option<&mut [u8]>, mut number: u64) {
    for digit in room.unwrap_or_default().iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
}

fn key_mark() -> &'static str {
    std::str::from_utf8(KEY_MARK).unwrap_or_default()
}

fn version_mark() -> &'static str {
    std::str::from_utf8(VERSION_MARK).unwrap_or_default()
}

/// An item of [`ITEM_BYTES`]: with the keys `k…` and `s`, or of a queried partition with `p…`.
fn item(partition: &str, sort: &str) -> Value {
    // What the other names and values do not take: the number takes 1 + 12/2 bytes.
    let taken = 2 + partition.len() + 2 + sort.len() + 7 + 7 + 5;
    json!({
        "pk": {"S": partition},
        "sk": {"S": sort},
        "version": {"N": version_mark()},
        "title": {"S": "x".repeat(300_usize.saturating_sub(taken))},
    })
}

fn loose_key() -> (String, &'static str) {
    (format!("k{}", key_mark()), "s")
}

/// PutItem of one loose item.
pub(super) fn put_body(table: &str) -> Value {
    let (partition, sort) = loose_key();
    json!({"TableName": table, "Item": item(&partition, sort)})
}

/// GetItem of one loose item.
pub(super) fn get_body(table: &str, consistent: bool) -> Value {
    let (partition, sort) = loose_key();
    let key = json!({"pk": {"S": partition}, "sk": {"S": sort}});
    json!({"TableName": table, "Key": key, "ConsistentRead": consistent})
}

/// BatchWriteItem of 25 loose items.
pub(super) fn batch_body(table: &str) -> Value {
    let (partition, sort) = loose_key();
    let put = json!({"PutRequest": {"Item": item(&partition, sort)}});
    let puts: Vec<_> = (0..BATCH_ITEMS).map(|_| put.clone()).collect();
    json!({"RequestItems": {table: puts}})
}

/// BatchWriteItem of the 25 items from `first` (0 or 25) of one queried partition.
pub(super) fn partition_body(table: &str, first: u64) -> Value {
    let partition = format!("p{}", key_mark());
    let put = |sort| json!({"PutRequest": {"Item": item(&partition, &format!("{sort:04}"))}});
    let puts: Vec<_> = (first..first + BATCH_ITEMS).map(put).collect();
    json!({"RequestItems": {table: puts}})
}

/// Query of all 50 items of one partition.
pub(super) fn query_body(table: &str) -> Value {
    json!({
        "TableName": table,
        "KeyConditionExpression": "pk = :pk",
        "ExpressionAttributeValues": {":pk": {"S": format!("p{}", key_mark())}},
    })
}

/// The name of the global index, and of its key.
const INDEX: (&str, &str) = ("by-group", "group");

/// The object with one more member.
fn with(mut object: Value, name: &str, value: Value) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
    object
}

/// TransactWriteItems of `count` puts of loose items.
pub(super) fn transact_body(table: &str, count: u64) -> Value {
    let (partition, sort) = loose_key();
    let put = json!({"Put": {"TableName": table, "Item": item(&partition, sort)}});
    let puts: Vec<_> = (0..count).map(|_| put.clone()).collect();
    json!({"TransactItems": puts})
}

/// Scan from behind a loose item on.
pub(super) fn scan_body(table: &str) -> Value {
    let (partition, sort) = loose_key();
    let key = json!({"pk": {"S": partition}, "sk": {"S": sort}});
    json!({"TableName": table, "ExclusiveStartKey": key})
}

/// BatchWriteItem of the 25 items from `first` (0 or 25) of one group of the global index.
pub(super) fn group_body(table: &str, first: u64) -> Value {
    let put = |number| {
        let item = item(&format!("k{}", key_mark()), &format!("{number:04}"));
        let group = json!({"S": format!("p{}", key_mark())});
        json!({"PutRequest": {"Item": with(item, INDEX.1, group)}})
    };
    let puts: Vec<_> = (first..first + BATCH_ITEMS).map(put).collect();
    json!({"RequestItems": {table: puts}})
}

/// Query of all 50 items of one group in the global index.
pub(super) fn query_index_body(table: &str) -> Value {
    json!({
        "TableName": table,
        "IndexName": INDEX.0,
        "KeyConditionExpression": "#group = :pk",
        "ExpressionAttributeNames": {"#group": INDEX.1},
        "ExpressionAttributeValues": {":pk": {"S": format!("p{}", key_mark())}},
    })
}

/// CreateTable with the global index.
pub(super) fn create_indexed_body(table: &str) -> Value {
    let mut body = create_table_body(table, &[("pk", "HASH"), ("sk", "RANGE")]);
    let definitions = body.get_mut("AttributeDefinitions").and_then(Value::as_array_mut);
    if let Some(definitions) = definitions {
        definitions.push(json!({"AttributeName": INDEX.1, "AttributeType": "S"}));
    }
    let index = json!({
        "IndexName": INDEX.0,
        "KeySchema": [
            {"AttributeName": INDEX.1, "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
        "Projection": {"ProjectionType": "ALL"},
    });
    with(body, "GlobalSecondaryIndexes", json!([index]))
}

/// CreateTable with a stream of both images.
pub(super) fn create_streamed_body(table: &str) -> Value {
    with_stream(create_table_body(table, &[("pk", "HASH"), ("sk", "RANGE")]))
}

/// The same CreateTable, and a stream of both images.
pub(super) fn with_stream(create: Value) -> Value {
    let stream = json!({"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"});
    with(create, "StreamSpecification", stream)
}

/// The same CreateTable of a table of items, and a global index whose sort key is another one after
/// each put, so that each takes an entry away and makes one.
pub(super) fn with_moving_index(mut create: Value) -> Value {
    let definitions = create.get_mut("AttributeDefinitions").and_then(Value::as_array_mut);
    if let Some(definitions) = definitions {
        definitions.push(json!({"AttributeName": "version", "AttributeType": "N"}));
    }
    let index = json!({
        "IndexName": "by-version",
        "KeySchema": [
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "version", "KeyType": "RANGE"},
        ],
        "Projection": {"ProjectionType": "ALL"},
    });
    with(create, "GlobalSecondaryIndexes", json!([index]))
}

/// UpdateItem that adds 1 to a slot.
pub(super) fn update_body(table: &str) -> Value {
    json!({
        "TableName": table,
        "Key": {"pk": {"S": format!("slot{}", key_mark())}},
        "UpdateExpression": "ADD votes :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    })
}

/// GetItem of a slot, consistent.
pub(super) fn slot_body(table: &str) -> Value {
    let key = json!({"pk": {"S": format!("slot{}", key_mark())}});
    json!({"TableName": table, "Key": key, "ConsistentRead": true})
}

/// CreateTable with these key attributes, all strings.
pub(super) fn create_table_body(table: &str, keys: &[(&str, &str)]) -> Value {
    let schema: Vec<_> =
        keys.iter().map(|(name, kind)| json!({"AttributeName": name, "KeyType": kind})).collect();
    let definitions: Vec<_> =
        keys.iter().map(|(name, _)| json!({"AttributeName": name, "AttributeType": "S"})).collect();
    json!({
        "TableName": table,
        "KeySchema": schema,
        "AttributeDefinitions": definitions,
        "BillingMode": "PAY_PER_REQUEST",
    })
}

#[cfg(test)]
mod tests {
    use model::json::item_from_str;

    use super::*;

    fn body(request: &Request) -> Value {
        let text = std::str::from_utf8(request.bytes()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
        serde_json::from_str(body).unwrap()
    }

    #[test]
    fn items_have_300_bytes() {
        for (target, mut made, items) in [
            ("PutItem", put_body("t"), 1),
            ("BatchWriteItem", batch_body("t"), 25),
            ("BatchWriteItem", partition_body("t", 25), 25),
            ("TransactWriteItems", transact_body("t", 2), 2),
        ] {
            let mut request = Request::new("h:1", target, &made);
            request.set((0..25).map(|key| 700 + key), 123_456_789_012);
            made = body(&request);
            let batch = made["RequestItems"]["t"].as_array().into_iter().flatten();
            let transaction = made["TransactItems"].as_array().into_iter().flatten();
            let found: Vec<Value> = batch
                .map(|put| put["PutRequest"]["Item"].clone())
                .chain(transaction.map(|put| put["Put"]["Item"].clone()))
                .chain(made.get("Item").cloned())
                .collect();
            assert_eq!(found.len(), items);
            for item in found {
                let item = item_from_str(&item.to_string()).unwrap();
                assert_eq!(item.size(), ITEM_BYTES, "{item:?}");
            }
        }
    }

    #[test]
    fn every_key_of_a_batch_is_set() {
        let mut request = Request::new("h:1", "BatchWriteItem", &batch_body("t"));
        request.set(10..35, 7);
        let made = body(&request);
        for (put, key) in made["RequestItems"]["t"].as_array().unwrap().iter().zip(10..) {
            let item = &put["PutRequest"]["Item"];
            assert_eq!(item["pk"]["S"], format!("k{key:09}"));
            assert_eq!(item["version"]["N"], "100000000007");
        }
    }

    #[test]
    fn keys_of_the_other_operations() {
        let cases = [
            ("GetItem", get_body("t", true), "k000000042"),
            ("Query", query_body("t"), "p000000042"),
            ("UpdateItem", update_body("t"), "slot000000042"),
            ("Query", query_index_body("t"), "p000000042"),
            ("Scan", scan_body("t"), "k000000042"),
            ("GetItem", slot_body("t"), "slot000000042"),
        ];
        for (target, made, expected) in cases {
            let mut request = Request::new("h:1", target, &made);
            request.set([42], 0);
            assert!(body(&request).to_string().contains(expected), "{target}");
            let text = String::from_utf8_lossy(request.bytes()).into_owned();
            assert!(text.contains(&format!("DynamoDB_20120810.{target}\r\n")), "{text}");
            assert!(!text.contains("@@"), "{text}");
        }
    }
}
