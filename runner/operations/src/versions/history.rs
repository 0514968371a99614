//! Reads histories for programs that display them, such as the console. The module prints nothing.

use aws_sdk_dynamodb::Client;
pub use rules::versions::Version;

pub use super::difference::Difference;
use super::{Place, absent, difference, kept, missing, numbered, reading};
use client::failure::Result;
use client::item_key;

/// The history of an item.
#[derive(Clone, Debug)]
pub struct History {
    /// The versions that have not expired, by number.
    pub versions: Vec<Version>,
    /// The places at which a change is missing, described for operators.
    pub missing: Vec<String>,
}

/// Returns a table of items with its default table of histories.
#[must_use]
pub fn place(client: &Client, endpoint: &str, table: &str) -> Place {
    Place {
        client: client.clone(),
        endpoint: endpoint.to_owned(),
        table: table.to_owned(),
        history: super::history_of(table),
    }
}

/// Returns the tables that have histories under the default name.
///
/// # Errors
/// When the tables cannot be listed.
pub async fn versioned_tables(client: &Client) -> Result<Vec<String>> {
    let names = absent::table_names(client).await?;
    Ok(absent::versioned(&names).cloned().collect())
}

/// Returns the keys of up to `at_most` items that have a history, as DynamoDB JSON, in no
/// particular order.
///
/// # Errors
/// When the table of histories cannot be read.
pub async fn some_items(place: &Place, at_most: usize) -> Result<Vec<String>> {
    let mut items = Vec::new();
    if at_most == 0 {
        return Ok(items);
    }
    reading::each_head(place, |item, _| {
        items.push(item);
        items.len() < at_most
    })
    .await?;
    Ok(items)
}

/// Returns the history of an item; `key` is in plain JSON or DynamoDB JSON.
///
/// # Errors
/// When the key is malformed, the item has no history, or the history cannot be read.
pub async fn history(place: &Place, key: &str) -> Result<History> {
    let versions = kept(place, &item_key::parse(key)?).await?;
    let missing = missing(&versions);
    Ok(History { versions, missing })
}

/// Returns the differences between version `from` and version `to`, or the current version if `to`
/// is `None`.
///
/// # Errors
/// When the history does not have one of the versions.
pub fn difference(history: &History, from: u64, to: Option<u64>) -> Result<Vec<Difference>> {
    let earlier = numbered(&history.versions, Some(from))?;
    let later = numbered(&history.versions, to)?;
    Ok(difference::between(earlier.image.as_ref(), later.image.as_ref()))
}
