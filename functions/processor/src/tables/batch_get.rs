//! `BatchGetItem`: reads up to 100 items of one table by their keys, with strong consistency.
//! Source: DynamoDB API reference, "BatchGetItem".
//!
//! Callers decide when to request unprocessed keys again.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::batch_get_item::{BatchGetItemError, BatchGetItemOutput};
use aws_sdk_dynamodb::types::KeysAndAttributes;
use model::Item;
use model::json::{item_from_str, write_item, write_string};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::direct::{exchanged, unreadable};
use crate::failure::Failure;

/// The response to a request. If a key is in neither list, no item has this key.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// The items that exist, in any order.
    pub(crate) items: Vec<Item>,
    /// Keys that were not processed and must be requested again.
    pub(crate) unprocessed: Vec<Item>,
}

#[derive(Deserialize)]
struct Answer<'b> {
    #[serde(borrow, rename = "Responses")]
    responses: BTreeMap<String, Vec<&'b RawValue>>,
    #[serde(borrow, rename = "UnprocessedKeys", default)]
    unprocessed: BTreeMap<String, Unprocessed<'b>>,
}

#[derive(Deserialize)]
struct Unprocessed<'b> {
    #[serde(borrow, rename = "Keys")]
    keys: Vec<&'b RawValue>,
}

/// Reads items by 1 to 100 distinct keys.
///
/// # Errors
/// Returns what `failure` returns for a failed request; [`Failure::Retry`] if the response cannot be decoded.
pub(crate) async fn batch_get(
    client: &Client,
    table: &str,
    keys: impl IntoIterator<Item = &Item>,
    failure: impl FnOnce(&SdkError<BatchGetItemError>) -> Failure,
) -> Result<Batch, Failure> {
    let (direct, answer) =
        exchanged(body_of(table, keys), || BatchGetItemOutput::builder().build());
    // The SDK needs the name of the table, because the endpoint may depend on it. The keys are in
    // the replaced body.
    let none = KeysAndAttributes::builder().set_keys(Some(Vec::new())).build();
    let none = none.map_err(|error| Failure::Fatal(error.to_string()))?;
    let request = client.batch_get_item().request_items(table, none);
    request.customize().interceptor(direct).send().await.map_err(|error| failure(&error))?;
    answer.read(batch_of).ok_or_else(|| unreadable("BatchGetItem", table))
}

fn body_of<'k>(table: &str, keys: impl IntoIterator<Item = &'k Item>) -> String {
    let mut body = String::from(r#"{"RequestItems":{"#);
    write_string(&mut body, table);
    body.push_str(r#":{"ConsistentRead":true,"Keys":["#);
    for (position, key) in keys.into_iter().enumerate() {
        if position > 0 {
            body.push(',');
        }
        write_item(&mut body, key);
    }
    body.push_str("]}}}");
    body
}

fn batch_of(body: &[u8]) -> Option<Batch> {
    let answer: Answer<'_> = serde_json::from_slice(body).ok()?;
    let item = |raw: &RawValue| item_from_str(raw.get()).ok();
    let items = answer.responses.into_values().flatten().map(item);
    let keys = answer.unprocessed.into_values().flat_map(|table| table.keys).map(item);
    Some(Batch { items: items.collect::<Option<_>>()?, unprocessed: keys.collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_ask_for_all_keys_strongly() {
        let keys = [Item::new().with("k", "é"), Item::new().with("k", "2")];
        assert_eq!(
            body_of("a-table", &keys),
            r#"{"RequestItems":{"a-table":{"ConsistentRead":true,"Keys":[{"k":{"S":"é"}},{"k":{"S":"2"}}]}}}"#
        );
    }

    #[test]
    fn answers_bring_items_and_what_is_left() {
        let item = |text| item_from_str(text).unwrap();
        for (body, items, unprocessed) in [
            (
                r#"{"Responses":{"t":[{"k":{"S":"1"},"n":{"N":"1.50"}},{"k":{"S":"2"}}]},"UnprocessedKeys":{}}"#,
                vec![item(r#"{"k":{"S":"1"},"n":{"N":"1.5"}}"#), item(r#"{"k":{"S":"2"}}"#)],
                vec![],
            ),
            (
                r#"{"Responses":{"t":[]},"UnprocessedKeys":{"t":{"ConsistentRead":true,"Keys":[{"k":{"S":"3"}}]}}}"#,
                vec![],
                vec![item(r#"{"k":{"S":"3"}}"#)],
            ),
            (r#"{"Responses":{}}"#, vec![], vec![]),
        ] {
            assert_eq!(batch_of(body.as_bytes()), Some(Batch { items, unprocessed }), "{body}");
        }
        for body in ["", "[]", "{}", r#"{"Responses":{"t":[{"k":{"S":1}}]}}"#] {
            assert_eq!(batch_of(body.as_bytes()), None, "{body}");
        }
    }
}
