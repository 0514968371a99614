//! `/tables/NAME/item?key=…`: a complete item, and the form to change it.
//!
//! Without a key, the page is the form for a new item.

mod fault;
mod html;
mod view;

use aws_sdk_dynamodb::Client;
use client::attribute::{from_sdk_item, to_sdk_item};
use client::sdk_error::{error_text, is_not_found};
use model::{Item, json};
use sha2::{Digest, Sha256};

pub(crate) use self::fault::read_item;
pub(crate) use self::html::html;
pub(crate) use self::view::View;

use self::view::Found;
use crate::context::{Context, Writes};
use crate::error::PageError;
use crate::item_json::ItemJson;
use crate::query::Query;
use crate::table_shape::TableShape;

/// Collects the data of the page of an item.
///
/// # Errors
/// The table or the item does not exist, the key is wrong, or the store does not answer.
pub(crate) async fn view(context: &Context, table: &str, query: &Query) -> Result<View, PageError> {
    let table = TableShape::read(context.dynamodb(), table).await?;
    let found = match query.get("key") {
        None => None,
        Some(text) => {
            let key = read_key(&table, text)?;
            let item = get(context.dynamodb(), &table.name, &key).await?;
            let item = item.ok_or_else(|| no_item(&table.name, &key))?;
            let (bytes, read) = (item.size(), fingerprint(&item));
            Some(Found { key: ItemJson(key), item: ItemJson(item), bytes, read })
        }
    };
    Ok(View {
        schema: "weir.console.item/v1",
        keys: table.keys.all().cloned().collect(),
        table: table.name,
        found,
        first: query.get("first").and_then(|first| first.parse().ok()).unwrap_or_default(),
        allow_writes: matches!(context.writes(), Writes::Allowed(_)),
    })
}

/// Parses the key of an item from the query string or a form.
///
/// # Errors
/// The string is not DynamoDB JSON, or not a key of the table.
pub(crate) fn read_key(table: &TableShape, text: &str) -> Result<Item, PageError> {
    let instead = || {
        let member = |key: &model::KeyAttribute| {
            format!("\"{}\":{{\"{}\":\"…\"}}", key.name, key.attribute_type.descriptor())
        };
        format!("{{{}}}", table.keys.all().map(member).collect::<Vec<_>>().join(","))
    };
    let key = json::item_from_str(text)
        .map_err(|error| PageError::bad_input("the key", error.to_string(), instead()))?;
    let is_right = key.len() == table.keys.all().count()
        && table.keys.all().all(|attribute| {
            key.get(&attribute.name).is_some_and(|value| {
                value.attribute_type() == attribute.attribute_type.attribute_type()
            })
        });
    match is_right {
        true => Ok(key),
        false => Err(PageError::bad_input("the key", "not a key of the table", instead())),
    }
}

/// Reads an item with a strongly consistent read; `None` if the item does not exist.
///
/// # Errors
/// The table does not exist, or the store does not answer.
pub(crate) async fn get(
    client: &Client,
    table: &str,
    key: &Item,
) -> Result<Option<Item>, PageError> {
    let request = client.get_item().table_name(table).set_key(Some(to_sdk_item(key)));
    let answer = request.consistent_read(true).send().await;
    let answer = answer.map_err(|error| match is_not_found(&error) {
        true => PageError::NotFound { what: format!("table `{table}`") },
        false => PageError::Store(error_text(&error)),
    })?;
    answer.item.map(from_sdk_item).transpose().map_err(PageError::from)
}

/// Returns the error of an item that does not exist.
pub(crate) fn no_item(table: &str, key: &Item) -> PageError {
    PageError::NotFound {
        what: format!("the item {} of table `{table}`", json::item_to_string(key)),
    }
}

/// Returns a fingerprint of an item. Equal items have equal fingerprints, regardless of the order
/// of attributes and of members of sets.
pub(crate) fn fingerprint(item: &Item) -> String {
    let digest = Sha256::digest(json::item_to_string(item).as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
