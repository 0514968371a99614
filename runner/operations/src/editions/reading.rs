//! Reading editions: the head once, then items of the edition that it names.
//!
//! That is the whole pattern for readers. An edition's items never change after it is ready, so
//! whatever is published meanwhile, what a reader sees is of one edition. Only an edition that was
//! pruned under a slow reader makes it begin anew. Nothing is written.

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
use client::sdk_error::error_text;
use client::sdk_error::is_not_found;

/// Editions that may be pruned under one read before it gives up.
const ATTEMPTS_MAX: u32 = 5;

async fn get(place: &Place, partition: &str, item: &str) -> Result<Option<Item>, String> {
    let request = place.client.get_item().table_name(&place.table).consistent_read(true);
    let request = request
        .key(EDITION_PARTITION, SdkValue::S(partition.to_owned()))
        .key(EDITION_ITEM, SdkValue::S(item.to_owned()));
    let answer = request.send().await;
    let answer =
        answer.map_err(|error| unread(place, is_not_found(&error), &error_text(&error)))?;
    answer.item.map(from_sdk_item).transpose()
}

/// Why the table could not be read; how it is made if it is not there.
fn unread(place: &Place, is_missing: bool, reason: &str) -> String {
    let table = &place.table;
    match is_missing {
        true => format!(
            "there is no table `{table}`: make it with the partition key `{EDITION_PARTITION}` and the sort key `{EDITION_ITEM}`, both strings, or name another one with --table"
        ),
        false => format!("cannot read table `{table}`: {reason}"),
    }
}

/// The head; a set that has none yet has no current edition.
pub(super) async fn head(place: &Place) -> Result<EditionHead, String> {
    let found = get(place, &records_key(&place.set), EDITION_HEAD).await?;
    let head = found.as_ref().map(EditionHead::from_item).transpose();
    Ok(head.map_err(|error| error.to_string())?.unwrap_or_default())
}

/// The number of the current edition.
pub(super) async fn current(place: &Place) -> Result<u64, String> {
    match head(place).await?.current {
        0 => Err(format!("set `{}` has no current edition: publish one", place.set)),
        number => Ok(number),
    }
}

/// What is known of an edition.
pub(super) async fn edition(place: &Place, number: u64) -> Result<Option<Edition>, String> {
    let found = get(place, &records_key(&place.set), &version_text(number)).await?;
    found.as_ref().map(Edition::from_item).transpose().map_err(|error| error.to_string())
}

/// An edition that must be there.
pub(super) async fn known_edition(place: &Place, number: u64) -> Result<Edition, String> {
    edition(place, number)
        .await?
        .ok_or_else(|| format!("set `{}` has no edition {number}", place.set))
}

/// That an edition is whole, so that what is read of it from now on is all that it has.
pub(super) async fn is_whole(place: &Place, number: u64) -> Result<(), String> {
    match known_edition(place, number).await?.state {
        EditionState::Ready => Ok(()),
        state => Err(format!(
            "edition {number} is {}, so not whole: name one that is ready, `weir editions ls` shows them",
            state.as_str()
        )),
    }
}

/// All editions, by number.
pub(super) async fn editions(place: &Place) -> Result<Vec<Edition>, String> {
    let mut editions = Vec::new();
    each_of_partition(place, &records_key(&place.set), |item| {
        let sort_key = item.get(EDITION_ITEM).and_then(AttributeValue::as_str);
        if sort_key != Some(EDITION_HEAD) {
            editions.push(Edition::from_item(&item).map_err(|error| error.to_string())?);
        }
        Ok(())
    })
    .await?;
    Ok(editions)
}

/// An item of an edition.
async fn item(place: &Place, number: u64, key: &str) -> Result<Option<Item>, String> {
    let found = get(place, &part_key(&place.set, number, part_of(key)), key).await?;
    found.as_ref().map(image_of).transpose().map_err(|error| error.to_string())
}

/// An item of an edition that must be whole: of another one nobody knows whether it has the key. What
/// is found was in it, also when it was pruned meanwhile.
pub(super) async fn item_of(place: &Place, number: u64, key: &str) -> Result<Option<Item>, String> {
    is_whole(place, number).await?;
    let found = item(place, number, key).await?;
    if found.is_none() {
        was_there(place, number).await?;
    }
    Ok(found)
}

/// An item of the current edition. What is not found in an edition that was pruned meanwhile is
/// looked for in the one that is current then.
pub(super) async fn current_item(place: &Place, key: &str) -> Result<Option<Item>, String> {
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
    Err("editions are pruned faster than they can be read: prune with more --days".to_owned())
}

/// Shows every item of an edition with its key, part by part, by key. The edition must be whole, and
/// is looked at once more in the end: one that was pruned meanwhile was not seen whole.
pub(super) async fn each(
    place: &Place,
    number: u64,
    mut visit: impl FnMut(String, Item) -> Result<(), String>,
) -> Result<(), String> {
    is_whole(place, number).await?;
    for part in 0..EDITION_PARTS {
        each_of_part(place, number, part, &mut visit).await?;
    }
    was_there(place, number).await
}

/// That an edition is whole after it was read: otherwise what was read of it may not be all.
pub(super) async fn was_there(place: &Place, number: u64) -> Result<(), String> {
    match edition(place, number).await?.map(|edition| edition.state) {
        Some(EditionState::Ready) => Ok(()),
        Some(EditionState::Preparing) => Err(format!(
            "edition {number} is preparing, so what was read of it may not be all: begin anew when it is ready"
        )),
        // Pruning removes the record in the end.
        Some(EditionState::Pruned) | None => {
            Err(format!("edition {number} was pruned while it was read: begin anew"))
        }
    }
}

/// Shows the items of one part of an edition with their keys, by key.
pub(super) async fn each_of_part(
    place: &Place,
    number: u64,
    part: u64,
    visit: &mut impl FnMut(String, Item) -> Result<(), String>,
) -> Result<(), String> {
    each_of_partition(place, &part_key(&place.set, number, part), |item| {
        let key = item.get(EDITION_ITEM).and_then(AttributeValue::as_str).unwrap_or_default();
        let image = image_of(&item).map_err(|error| error.to_string())?;
        visit(key.to_owned(), image)
    })
    .await
}

/// The keys of the items of one part of an edition: their images are not sent.
pub(super) async fn keys_of_part(
    place: &Place,
    number: u64,
    part: u64,
) -> Result<Vec<String>, String> {
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
    visit: impl FnMut(Item) -> Result<(), String>,
) -> Result<(), String> {
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
    mut visit: impl FnMut(Item) -> Result<(), String>,
) -> Result<(), String> {
    let mut items = query.into_paginator().items().send();
    while let Some(item) = items.next().await {
        let item =
            item.map_err(|error| unread(place, is_not_found(&error), &error_text(&error)))?;
        visit(from_sdk_item(item).map_err(|error| unread(place, false, &error))?)?;
    }
    Ok(())
}
