//! Reads a table of histories: one history, all heads, or all entries.
//!
//! Reads are strongly consistent. This module writes nothing.

use std::collections::HashMap;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::scan::builders::ScanFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use model::{AttributeValue, Item};
use rules::versions::{
    DamagedHistory, HEAD_VERSION, Head, ITEM_ATTRIBUTE, VERSION_ATTRIBUTE, Version, version_text,
};

use super::{Place, absent};
use client::attribute::{from_sdk_item, to_sdk_item};
use client::failure::{Context, Failure, Result, fatal};
use client::sdk_error::is_not_found;

/// Maximum total size in bytes of the images of one history in memory.
const HISTORY_BYTES_MAX: usize = 256 * 1024 * 1024;

/// An entry of a table of histories.
pub(crate) enum Entry {
    /// The head of an item's history.
    Head(String, Head),
    /// A version of an item.
    Version(String, Version),
    /// An unreadable head or version: its item, the message about the history, and the reason.
    Damaged(String, &'static str, DamagedHistory),
}

/// The message for a history with an unreadable head.
pub(super) const HEAD_DAMAGED: &str = "has a head that cannot be read";
/// The message for a history with an unreadable version.
pub(super) const VERSION_DAMAGED: &str = "has a version that cannot be read";

/// Returns all versions of an item, ordered by number.
///
/// # Errors
/// When the versions cannot be read, or do not fit into memory.
pub async fn versions_of(place: &Place, item: &str) -> Result<Vec<Version>> {
    let stored = stored_versions(place, item).await?;
    stored.map_err(|error| failed(place, fatal!("history of {item}: {error}")))
}

/// Returns all versions of an item, ordered by number. The inner error is the reason why a version
/// is unreadable.
///
/// # Errors
/// When the versions cannot be read, or do not fit into memory.
pub(super) async fn stored_versions(
    place: &Place,
    item: &str,
) -> Result<Result<Vec<Version>, DamagedHistory>> {
    let mut pages = place
        .client
        .query()
        .table_name(&place.history)
        .key_condition_expression("#item = :item AND #version >= :first")
        .expression_attribute_names("#item", ITEM_ATTRIBUTE)
        .expression_attribute_names("#version", VERSION_ATTRIBUTE)
        .expression_attribute_values(":item", SdkValue::S(item.to_owned()))
        .expression_attribute_values(":first", SdkValue::S(version_text(0)))
        .consistent_read(true)
        .into_paginator()
        .items()
        .send();
    let (mut versions, mut bytes) = (Vec::new(), 0);
    while let Some(item) = pages.next().await {
        let item = match item {
            Ok(item) => from_sdk_item(item)?,
            Err(error) => return Err(unread(place, error).await),
        };
        bytes += item.size();
        if bytes > HISTORY_BYTES_MAX {
            return Err(fatal!("the history has more than {HISTORY_BYTES_MAX} bytes"));
        }
        // If TTL deletes a version before the function sets its expiry, an incomplete item without
        // a stamp remains.
        if item.contains_key("stamp") {
            match Version::from_item(&item) {
                Ok(version) => versions.push(version),
                Err(damaged) => return Ok(Err(damaged)),
            }
        }
    }
    Ok(Ok(versions))
}

/// Calls `visit` for every entry of the table, in no particular order, until it returns `false`.
///
/// # Errors
/// When the table cannot be read.
pub(crate) async fn each_entry(place: &Place, visit: impl FnMut(Entry) -> bool) -> Result<()> {
    let scan = place.client.scan().table_name(&place.history).consistent_read(true);
    each_found(place, scan, visit).await
}

/// Calls `visit` for every head, including unreadable ones, until it returns `false`.
///
/// # Errors
/// When the table cannot be read.
pub(crate) async fn each_head(
    place: &Place,
    mut visit: impl FnMut(String, Result<Head, DamagedHistory>) -> bool,
) -> Result<()> {
    let scan = place
        .client
        .scan()
        .table_name(&place.history)
        .filter_expression("#version = :head")
        .expression_attribute_names("#version", VERSION_ATTRIBUTE)
        .expression_attribute_values(":head", SdkValue::S(HEAD_VERSION.to_owned()));
    let visit_head = |entry| match entry {
        Entry::Head(item, head) => visit(item, Ok(head)),
        Entry::Damaged(item, _, reason) => visit(item, Err(reason)),
        Entry::Version(..) => true,
    };
    each_found(place, scan, visit_head).await
}

async fn each_found(
    place: &Place,
    scan: ScanFluentBuilder,
    mut visit: impl FnMut(Entry) -> bool,
) -> Result<()> {
    let mut items = scan.into_paginator().items().send();
    while let Some(item) = items.next().await {
        let item = match item {
            Ok(item) => item,
            Err(error) => return Err(unread(place, error).await),
        };
        let entry = entry_of(item).map_err(|failure| failed(place, failure))?;
        if entry.is_some_and(|entry| !visit(entry)) {
            break;
        }
    }
    Ok(())
}

/// Returns the head of an item's history as it is stored; `None` if the history has no head.
///
/// # Errors
/// When the table cannot be read.
pub(super) async fn stored_head(place: &Place, item: &str) -> Result<Option<Item>> {
    let request = place.client.get_item().table_name(&place.history).consistent_read(true);
    let answer = request
        .key(ITEM_ATTRIBUTE, SdkValue::S(item.to_owned()))
        .key(VERSION_ATTRIBUTE, SdkValue::S(HEAD_VERSION.to_owned()))
        .send()
        .await
        .map_err(|error| failed(place, error.into()))?;
    answer.item.map(from_sdk_item).transpose().map_err(|failure| failed(place, failure))
}

/// Returns the current state of an item of the versioned table.
///
/// # Errors
/// When the table cannot be read.
pub(super) async fn current_item(place: &Place, key: &Item) -> Result<Option<Item>> {
    let doing = || format!("cannot read table `{}`", place.table);
    let request = place.client.get_item().table_name(&place.table).consistent_read(true);
    let answer = request.set_key(Some(to_sdk_item(key))).send().await;
    answer.context(doing)?.item.map(from_sdk_item).transpose().context(doing)
}

fn entry_of(item: HashMap<String, SdkValue>) -> Result<Option<Entry>> {
    let item: Item = from_sdk_item(item)?;
    let text = |name: &str| item.get(name).and_then(AttributeValue::as_str).map(str::to_owned);
    let key =
        text(ITEM_ATTRIBUTE).ok_or("an item of the history table has no key attribute `item`")?;
    if !item.contains_key("stamp") {
        return Ok(None);
    }
    let is_head = text(VERSION_ATTRIBUTE).as_deref() == Some(HEAD_VERSION);
    Ok(Some(match is_head {
        true => match Head::from_item(&item) {
            Ok(head) => Entry::Head(key, head),
            Err(reason) => Entry::Damaged(key, HEAD_DAMAGED, reason),
        },
        false => match Version::from_item(&item) {
            Ok(version) => Entry::Version(key, version),
            Err(reason) => Entry::Damaged(key, VERSION_DAMAGED, reason),
        },
    }))
}

/// Returns why a read failed. For a missing table, the message lists the tables that have versions.
async fn unread<E>(place: &Place, error: SdkError<E>) -> Failure
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
{
    match is_not_found(&error) {
        true => absent::no_table(place, error.into()).await,
        false => failed(place, error.into()),
    }
}

pub(super) fn failed(place: &Place, reason: Failure) -> Failure {
    reason.about(format!("cannot read the histories in table `{}`", place.history))
}
