//! Reads editions: the head once, then items of the edition that the head names.
//!
//! An application can read in the same way. The items of a ready edition never change, so a reader
//! sees one consistent edition even while other editions are published. Only a reader whose edition
//! is pruned during the read has to start again. This module writes nothing.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use model::{AttributeValue, Item};
use rules::versions::edition::{
    EDITION_HEAD, EDITION_ITEM, EDITION_PARTITION, EDITION_PARTS, Edition, EditionHead,
    EditionState, image_of, part_key, part_of, records_key,
};
use rules::versions::version_text;

use super::Place;
use client::attribute::from_sdk_item;
use client::failure::{Context, Failure, Result, fatal};
use client::sdk_error::is_not_found;

/// Maximum number of retries after an edition was pruned during a read.
const ATTEMPTS_MAX: u32 = 5;

async fn get(place: &Place, partition: &str, item: &str) -> Result<Option<Item>> {
    let request = place.client.get_item().table_name(&place.table).consistent_read(true);
    let request = request
        .key(EDITION_PARTITION, SdkValue::S(partition.to_owned()))
        .key(EDITION_ITEM, SdkValue::S(item.to_owned()));
    let answer = request.send().await.map_err(|error| unread(place, &error))?;
    answer.item.map(from_sdk_item).transpose()
}

/// Returns why the table could not be read, and how to create it if it does not exist.
fn unread<E>(place: &Place, error: &SdkError<E>) -> Failure
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
{
    let table = &place.table;
    match is_not_found(error) {
        true => fatal!(
            "no table `{table}`: create it with the partition key `{EDITION_PARTITION}` and the sort key `{EDITION_ITEM}`, both strings, or name another table with --table"
        ),
        false => Failure::from(error).about(format!("cannot read table `{table}`")),
    }
}

/// Reads the head of the set. A set without a head has no current edition.
pub(super) async fn head(place: &Place) -> Result<EditionHead> {
    let found = get(place, &records_key(&place.set), EDITION_HEAD).await?;
    let head = found.as_ref().map(EditionHead::from_item).transpose();
    Ok(head.map_err(Failure::fatal)?.unwrap_or_default())
}

/// Returns the number of the current edition.
pub(super) async fn current(place: &Place) -> Result<u64> {
    match head(place).await?.current {
        0 => Err(fatal!("set `{}` has no current edition: run `weir editions publish`", place.set)),
        number => Ok(number),
    }
}

/// Reads the record of an edition.
pub(super) async fn edition(place: &Place, number: u64) -> Result<Option<Edition>> {
    let found = get(place, &records_key(&place.set), &version_text(number)).await?;
    found.as_ref().map(Edition::from_item).transpose().map_err(Failure::fatal)
}

/// Reads the record of an edition that must exist.
pub(super) async fn known_edition(place: &Place, number: u64) -> Result<Edition> {
    edition(place, number)
        .await?
        .ok_or_else(|| fatal!("set `{}` has no edition {number}", place.set))
}

/// Checks that an edition is complete, before its items are read.
pub(super) async fn is_whole(place: &Place, number: u64) -> Result<()> {
    match known_edition(place, number).await?.state {
        EditionState::Ready => Ok(()),
        state => Err(fatal!(
            "edition {number} is {}, so it is not complete: name an edition that is ready (`weir editions ls`)",
            state.as_str()
        )),
    }
}

/// Returns all editions, by number.
pub(super) async fn editions(place: &Place) -> Result<Vec<Edition>> {
    let mut editions = Vec::new();
    each_of_partition(place, &records_key(&place.set), |item| {
        let sort_key = item.get(EDITION_ITEM).and_then(AttributeValue::as_str);
        if sort_key != Some(EDITION_HEAD) {
            editions.push(Edition::from_item(&item).map_err(Failure::fatal)?);
        }
        Ok(())
    })
    .await?;
    Ok(editions)
}

/// Reads an item of an edition.
async fn item(place: &Place, number: u64, key: &str) -> Result<Option<Item>> {
    let found = get(place, &part_key(&place.set, number, part_of(key)), key).await?;
    found.as_ref().map(image_of).transpose().map_err(Failure::fatal)
}

/// Reads an item of a complete edition. If no item is found, checks that the edition was not pruned
/// during the read, because a prune removes items. An item that is found belongs to the edition in
/// any case.
pub(super) async fn item_of(place: &Place, number: u64, key: &str) -> Result<Option<Item>> {
    is_whole(place, number).await?;
    let found = item(place, number, key).await?;
    if found.is_none() {
        was_there(place, number).await?;
    }
    Ok(found)
}

/// Reads an item of the current edition. If the item is missing because the edition was pruned
/// during the read, the read is repeated with the new current edition.
pub(super) async fn current_item(place: &Place, key: &str) -> Result<Option<Item>> {
    for _ in 0..ATTEMPTS_MAX {
        let number = current(place).await?;
        if let Some(found) = item(place, number, key).await? {
            return Ok(Some(found));
        }
        let is_whole = edition(place, number).await?.map(|edition| edition.state);
        if is_whole == Some(EditionState::Ready) {
            return Ok(None);
        }
    }
    Err(fatal!("editions are pruned faster than they can be read: prune with a larger --days"))
}

/// Visits every item of a complete edition with its key, part by part, ordered by key. At the end,
/// checks that the edition was not pruned during the read, which would have removed items.
pub(super) async fn each(
    place: &Place,
    number: u64,
    mut visit: impl FnMut(String, Item) -> Result<()>,
) -> Result<()> {
    is_whole(place, number).await?;
    for part in 0..EDITION_PARTS {
        each_of_part(place, number, part, &mut visit).await?;
    }
    was_there(place, number).await
}

/// Checks that an edition is still complete after its items were read.
pub(super) async fn was_there(place: &Place, number: u64) -> Result<()> {
    match edition(place, number).await?.map(|edition| edition.state) {
        Some(EditionState::Ready) => Ok(()),
        Some(EditionState::Preparing) => Err(fatal!(
            "edition {number} is still being prepared, so its items may be incomplete: run the command again when the edition is ready"
        )),
        // The record is removed last, so a missing record means that the edition was pruned.
        Some(EditionState::Pruned) | None => {
            Err(fatal!("edition {number} was pruned while it was read: run the command again"))
        }
    }
}

/// Visits the items of one part of an edition with their keys, ordered by key.
pub(super) async fn each_of_part(
    place: &Place,
    number: u64,
    part: u64,
    visit: &mut impl FnMut(String, Item) -> Result<()>,
) -> Result<()> {
    each_of_partition(place, &part_key(&place.set, number, part), |item| {
        let key = item.get(EDITION_ITEM).and_then(AttributeValue::as_str).unwrap_or_default();
        let image = image_of(&item).map_err(Failure::fatal)?;
        visit(key.to_owned(), image)
    })
    .await
}

/// Returns the keys of the items of one part of an edition, without their images.
pub(super) async fn keys_of_part(place: &Place, number: u64, part: u64) -> Result<Vec<String>> {
    let query = of_partition(place, &part_key(&place.set, number, part));
    let query =
        query.projection_expression("#item").expression_attribute_names("#item", EDITION_ITEM);
    let mut keys = Vec::new();
    each_found(place, query, |item| {
        let key = item.get(EDITION_ITEM).and_then(AttributeValue::as_str);
        keys.extend(key.map(str::to_owned));
        Ok(())
    })
    .await?;
    Ok(keys)
}

async fn each_of_partition(
    place: &Place,
    partition: &str,
    visit: impl FnMut(Item) -> Result<()>,
) -> Result<()> {
    each_found(place, of_partition(place, partition), visit).await
}

fn of_partition(place: &Place, partition: &str) -> QueryFluentBuilder {
    place
        .client
        .query()
        .table_name(&place.table)
        .key_condition_expression("#edition = :edition")
        .expression_attribute_names("#edition", EDITION_PARTITION)
        .expression_attribute_values(":edition", SdkValue::S(partition.to_owned()))
        .consistent_read(true)
}

async fn each_found(
    place: &Place,
    query: QueryFluentBuilder,
    mut visit: impl FnMut(Item) -> Result<()>,
) -> Result<()> {
    let mut items = query.into_paginator().items().send();
    while let Some(item) = items.next().await {
        let item = item.map_err(|error| unread(place, &error))?;
        let item = from_sdk_item(item);
        visit(item.context(|| format!("cannot read table `{}`", place.table))?)?;
    }
    Ok(())
}
