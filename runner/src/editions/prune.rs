//! Removing editions that nobody may see any more.
//!
//! First the edition becomes `pruned`, while the head is checked not to name it; from then on it
//! cannot be published. Then its items go, then its record. Whoever dies in between leaves an
//! edition that is pruned next time. Whoever still prepares it finds that out in the end, and removes
//! what was written since.

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::{
    AttributeValue as SdkValue, ConditionCheck, DeleteRequest, TransactWriteItem, Update,
    WriteRequest,
};
use rules::versions::edition::{
    EDITION_HEAD, EDITION_ITEM, EDITION_PARTITION, EDITION_PARTS, EDITION_REVISION, EDITION_STATE,
    EditionState, part_key, records_key,
};
use rules::versions::version_text;

use super::prepare::write_batch;
use super::turn::is_cancelled;
use super::{Place, reading};
use crate::load::error_text;

const DAY_SECONDS: u64 = 86_400;
/// Deletes in one request, as DynamoDB takes them.
const BATCH_DELETES: usize = 25;

/// Removes what may go; gives the numbers, with how many items each had.
///
/// # Errors
/// When the table cannot be read or written; what was removed stays so.
pub(super) async fn run(place: &Place, keep: usize, days: u64) -> Result<Vec<(u64, u64)>, String> {
    let head = reading::head(place).await?;
    let editions = reading::editions(place).await?;
    // Zero days mean: everything that was begun or left until now.
    let before = place.now.saturating_sub(days.saturating_mul(DAY_SECONDS));
    let before = if days == 0 { u64::MAX } else { before };
    let mut pruned = Vec::new();
    for number in head.prunable(&editions, keep, before) {
        if !mark(place, number, head.revision).await? {
            return Err(format!(
                "the head was changed while edition {number} was to be pruned: run it again"
            ));
        }
        pruned.push((number, remove(place, number).await?));
    }
    Ok(pruned)
}

async fn mark(place: &Place, number: u64, revision: u64) -> Result<bool, String> {
    let records = SdkValue::S(records_key(&place.set));
    let check = ConditionCheck::builder()
        .table_name(&place.table)
        .key(EDITION_PARTITION, records.clone())
        .key(EDITION_ITEM, SdkValue::S(EDITION_HEAD.to_owned()))
        .condition_expression("#revision = :revision")
        .expression_attribute_names("#revision", EDITION_REVISION)
        .expression_attribute_values(":revision", SdkValue::N(revision.to_string()))
        .build()
        .map_err(|error| error.to_string())?;
    let update = Update::builder()
        .table_name(&place.table)
        .key(EDITION_PARTITION, records)
        .key(EDITION_ITEM, SdkValue::S(version_text(number)))
        .update_expression("SET #state = :pruned")
        .condition_expression("attribute_exists(#state)")
        .expression_attribute_names("#state", EDITION_STATE)
        .expression_attribute_values(
            ":pruned",
            SdkValue::S(EditionState::Pruned.as_str().to_owned()),
        )
        .build()
        .map_err(|error| error.to_string())?;
    let request = place
        .client
        .transact_write_items()
        .transact_items(TransactWriteItem::builder().condition_check(check).build())
        .transact_items(TransactWriteItem::builder().update(update).build());
    match request.send().await {
        Ok(_) => Ok(true),
        Err(error) if is_cancelled(error.code()) => Ok(false),
        Err(error) => Err(format!("edition {number}: {}", error_text(&error))),
    }
}

/// Removes the items and then the record.
pub(super) async fn remove(place: &Place, number: u64) -> Result<u64, String> {
    let removed = remove_items(place, number).await?;
    let request = place.client.delete_item().table_name(&place.table);
    let request = request
        .key(EDITION_PARTITION, SdkValue::S(records_key(&place.set)))
        .key(EDITION_ITEM, SdkValue::S(version_text(number)));
    request.send().await.map_err(|error| format!("edition {number}: {}", error_text(&error)))?;
    Ok(removed)
}

/// Removes the items of an edition; gives how many there were.
pub(super) async fn remove_items(place: &Place, number: u64) -> Result<u64, String> {
    let mut removed = 0;
    for part in 0..EDITION_PARTS {
        let partition = part_key(&place.set, number, part);
        let mut keys = Vec::new();
        reading::each_of_part(place, number, part, &mut |key, _| {
            keys.push(key);
            Ok(())
        })
        .await?;
        for some in keys.chunks(BATCH_DELETES) {
            let deletes = some.iter().map(|key| {
                let delete = DeleteRequest::builder()
                    .key(EDITION_PARTITION, SdkValue::S(partition.clone()))
                    .key(EDITION_ITEM, SdkValue::S(key.clone()))
                    .build();
                let delete = delete.map_err(|error| error.to_string())?;
                Ok(WriteRequest::builder().delete_request(delete).build())
            });
            write_batch(place, deletes.collect::<Result<_, String>>()?).await?;
            removed += some.len() as u64;
        }
    }
    Ok(removed)
}
