//! Removes editions that are no longer visible.
//!
//! First a transaction sets the edition's state to `pruned`. The transaction checks that the head does not
//! name the edition, and that the edition has not become current again since it was read. A pruned edition
//! cannot be published. Next its items are removed, and last its record. If the prune is interrupted, the
//! next prune continues. If another process is still preparing the edition, that process finds the edition
//! pruned when it finishes, and removes its late items.

use aws_sdk_dynamodb::types::{
    AttributeValue as SdkValue, ConditionCheck, DeleteRequest, TransactWriteItem, Update,
    WriteRequest,
};
use futures::{StreamExt, TryStreamExt, stream};
use indicatif::ProgressBar;
use rules::versions::edition::{
    EDITION_CURRENT, EDITION_HEAD, EDITION_ITEM, EDITION_LEFT_AT, EDITION_PARTITION, EDITION_PARTS,
    EDITION_PREVIOUS, EDITION_STATE, Edition, EditionState, part_key, records_key,
};
use rules::versions::version_text;

use super::prepare::BATCHES_AT_ONCE;
use super::{Place, reading};
use crate::batches::write_batch;
use client::contention::{Attempts, NotApplied, why_not_applied};
use client::failure::{Context, Failure, Result};
use client::interruption;
use client::output::say;

const DAY_SECONDS: u64 = 86_400;
/// Maximum number of deletes in a request, set by DynamoDB.
const BATCH_DELETES: usize = 25;

/// Removes old editions. Returns the number of each removed edition, and the number of its items.
///
/// # Errors
/// When the table cannot be read or written. Items that were already removed are not restored.
pub(super) async fn run(place: &Place, keep: usize, days: u64) -> Result<Vec<(u64, u64)>> {
    let head = reading::head(place).await?;
    let editions = reading::editions(place).await?;
    // With zero days, every edition that was begun or replaced up to now is old enough.
    let before = place.now.saturating_sub(days.saturating_mul(DAY_SECONDS));
    let before = if days == 0 { u64::MAX } else { before };
    let mut pruned = Vec::new();
    for number in head.prunable(&editions, keep, before) {
        let Some(edition) = editions.iter().find(|edition| edition.number == number) else {
            continue;
        };
        if mark(place, edition).await? {
            pruned.push((number, remove(place, number).await?));
        } else {
            say(&format!(
                "edition {number} is kept: the edition was current since this run began, another process pruned it, or the set has no head"
            ));
        }
    }
    Ok(pruned)
}

/// Marks an edition as pruned. Returns `false` if the edition may be visible or no longer exists. If the
/// edition has been current again since it was read, the time at which it was replaced differs.
async fn mark(place: &Place, edition: &Edition) -> Result<bool> {
    let number = edition.number;
    let records = SdkValue::S(records_key(&place.set));
    let check = ConditionCheck::builder()
        .table_name(&place.table)
        .key(EDITION_PARTITION, records.clone())
        .key(EDITION_ITEM, SdkValue::S(EDITION_HEAD.to_owned()))
        .condition_expression(
            "attribute_exists(#current) AND #current <> :number AND #previous <> :number",
        )
        .expression_attribute_names("#current", EDITION_CURRENT)
        .expression_attribute_names("#previous", EDITION_PREVIOUS)
        .expression_attribute_values(":number", SdkValue::N(number.to_string()))
        .build()?;
    let update = Update::builder()
        .table_name(&place.table)
        .key(EDITION_PARTITION, records)
        .key(EDITION_ITEM, SdkValue::S(version_text(number)))
        .update_expression("SET #state = :pruned")
        .expression_attribute_names("#state", EDITION_STATE)
        .expression_attribute_names("#left_at", EDITION_LEFT_AT)
        .expression_attribute_values(
            ":pruned",
            SdkValue::S(EditionState::Pruned.as_str().to_owned()),
        );
    let update = match edition.left_at {
        None => update
            .condition_expression("attribute_exists(#state) AND attribute_not_exists(#left_at)"),
        Some(left) => update
            .condition_expression("attribute_exists(#state) AND #left_at = :left_at")
            .expression_attribute_values(":left_at", SdkValue::N(left.to_string())),
    };
    let update = update.build()?;
    let request = place
        .client
        .transact_write_items()
        .transact_items(TransactWriteItem::builder().condition_check(check).build())
        .transact_items(TransactWriteItem::builder().update(update).build());
    let mut attempts = Attempts::first();
    loop {
        let Err(error) = request.clone().send().await else { return Ok(true) };
        match why_not_applied(&error) {
            NotApplied::Changed => return Ok(false),
            why if attempts.after(why).await => {}
            _ => return Err(Failure::from(&error).about(format!("cannot prune edition {number}"))),
        }
    }
}

/// Removes the items and then the record.
pub(super) async fn remove(place: &Place, number: u64) -> Result<u64> {
    let removed = remove_items(place, number).await?;
    let request = place.client.delete_item().table_name(&place.table);
    let request = request
        .key(EDITION_PARTITION, SdkValue::S(records_key(&place.set)))
        .key(EDITION_ITEM, SdkValue::S(version_text(number)));
    request.send().await.context(|| format!("cannot prune edition {number}"))?;
    Ok(removed)
}

/// Removes the items of an edition and returns their number.
pub(super) async fn remove_items(place: &Place, number: u64) -> Result<u64> {
    let template = "{spinner} {msg}: {pos} items, {per_sec}";
    let progress = interruption::progress_bar(None, template, "items");
    progress.set_message(format!("removing edition {number}"));
    let parts = stream::iter(0..EDITION_PARTS).map(Ok);
    let removed = parts.try_for_each(|part| remove_part(place, number, part, &progress)).await;
    progress.finish_and_clear();
    removed.map(|()| progress.position())
}

async fn remove_part(place: &Place, number: u64, part: u64, progress: &ProgressBar) -> Result<()> {
    let partition = part_key(&place.set, number, part);
    let keys = reading::keys_of_part(place, number, part).await?;
    let batches = keys.chunks(BATCH_DELETES).map(|some| {
        let deletes = some.iter().map(|key| {
            let delete = DeleteRequest::builder()
                .key(EDITION_PARTITION, SdkValue::S(partition.clone()))
                .key(EDITION_ITEM, SdkValue::S(key.clone()))
                .build();
            let delete = delete?;
            Ok(WriteRequest::builder().delete_request(delete).build())
        });
        deletes.collect::<Result<Vec<_>>>()
    });
    stream::iter(batches)
        .map_ok(|batch| async move {
            let count = batch.len() as u64;
            write_batch(&place.client, &place.table, batch).await?;
            progress.inc(count);
            Ok(())
        })
        .try_buffer_unordered(BATCHES_AT_ONCE)
        .try_collect::<()>()
        .await
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::store_tests::{items, listening, of_file, place};
    use super::super::{head_change, prepare};
    use super::*;
    use crate::counters::testing::serve;
    use testing::store::TestStore;

    /// The prune reads the editions and the head, and then other processes change the head.
    #[tokio::test]
    async fn only_an_edition_that_was_turned_to_meanwhile_is_left() {
        let store = TestStore::open().await;
        let (place, items) = (place(&store).await, items(1));
        for number in 1..=5 {
            prepare::run(&place, &of_file(&items)).await.unwrap();
            head_change::publish(&place, number).await.unwrap();
        }
        let editions = reading::editions(&place).await.unwrap();
        let [one, two, three, four, five] = editions.as_slice() else { panic!("{editions:?}") };
        // A number is reserved, and edition 2 becomes current and is replaced again.
        prepare::run(&place, &of_file(&items)).await.unwrap();
        for number in [2, 4, 5] {
            head_change::roll_back(&Place { now: place.now + 1, ..at(&place) }, None, Some(number))
                .await
                .unwrap();
        }
        assert_eq!(mark(&place, one).await, Ok(true));
        assert_eq!(mark(&place, two).await, Ok(false), "edition two was replaced at another time");
        assert_eq!(mark(&place, three).await, Ok(true));
        assert_eq!(mark(&place, four).await, Ok(false), "edition four was current before");
        assert_eq!(mark(&place, five).await, Ok(false), "it is current");
        let states: Vec<EditionState> =
            reading::editions(&place).await.unwrap().iter().map(|edition| edition.state).collect();
        let (ready, pruned) = (EditionState::Ready, EditionState::Pruned);
        assert_eq!(states, [pruned, ready, pruned, ready, ready, ready]);
    }

    fn at(place: &Place) -> Place {
        let Place { client, table, set, now } = place;
        Place { client: client.clone(), table: table.clone(), set: set.clone(), now: *now }
    }

    #[tokio::test]
    async fn only_keys_are_read_of_what_is_removed() {
        let (listener, place) = listening().await;
        let some = r#"{"Items":[{"item":{"S":"a"}},{"item":{"S":"b"}}],"Count":2}"#;
        let mut answers = vec![(200, some, false), (200, "{}", false)];
        answers.extend((1..EDITION_PARTS).map(|_| (200, r#"{"Items":[],"Count":0}"#, false)));
        let (requests, removed) = tokio::join!(serve(listener, &answers), remove_items(&place, 2));
        assert_eq!(removed, Ok(2));
        let body = |request: &String| -> Value {
            serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap()
        };
        for (number, request) in requests.iter().enumerate() {
            let body = body(request);
            if number == 1 {
                let deletes = body["RequestItems"]["editions"].as_array().unwrap();
                assert_eq!(deletes[1]["DeleteRequest"]["Key"]["item"]["S"], "b");
            } else {
                assert_eq!(body["ProjectionExpression"], "#item");
                assert_eq!(body["ExpressionAttributeNames"]["#item"], "item");
            }
        }
    }

    #[tokio::test]
    async fn every_item_of_a_large_edition_is_removed() {
        let store = TestStore::open().await;
        let (place, items) = (place(&store).await, items(1_000));
        prepare::run(&place, &of_file(&items)).await.unwrap();
        assert_eq!(remove_items(&place, 1).await, Ok(1_000));
        let left = place.client.scan().table_name(&place.table).send().await.unwrap().count();
        assert_eq!(left, 2, "the head and the record");
    }
}
