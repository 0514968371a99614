//! Turning the head: publishing an edition and rolling back, each one conditional write.
//!
//! The head is written together with a check that the edition is ready, so an edition that is being
//! pruned cannot become current, and of two who turn at the same time one is told so. What an edition
//! was prepared over never changes, and the head that it is compared with is the one written over.
//! With it, the edition that readers leave says when they did, so that pruning lets them finish.

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::{
    AttributeValue as SdkValue, ConditionCheck, Put, TransactWriteItem, Update,
};
use model::Item;
use rules::versions::edition::{
    EDITION_ITEM, EDITION_LEFT_AT, EDITION_PARTITION, EDITION_REVISION, EDITION_STATE, EditionHead,
    EditionState, PublishRefusal, records_key,
};
use rules::versions::version_text;

use super::{Place, reading};
use crate::load::{error_text, to_sdk_item};

/// The head as it is now with what is said of it, or why turning it was refused.
type Turned = Result<(EditionHead, String), String>;

/// Publishes an edition.
pub(super) async fn publish(place: &Place, number: u64) -> Result<Turned, String> {
    let head = reading::head(place).await?;
    let edition = reading::known_edition(place, number).await?;
    turn(place, head, head.published(&edition)).await
}

/// Makes the previous edition current, or the one with a number.
pub(super) async fn roll_back(place: &Place, to: Option<u64>) -> Result<Turned, String> {
    let head = reading::head(place).await?;
    let number = match to.map_or_else(|| head.before(), Ok) {
        Ok(number) => number,
        // Told twice to go back: it was done.
        Err(done @ PublishRefusal::IsRolledBack(..)) => return Ok(Ok((head, done.to_string()))),
        Err(refusal) => return Ok(Err(refusal.to_string())),
    };
    let edition = reading::known_edition(place, number).await?;
    turn(place, head, head.turned_to(&edition)).await
}

async fn turn(
    place: &Place,
    from: EditionHead,
    to: Result<EditionHead, PublishRefusal>,
) -> Result<Turned, String> {
    let to = match to {
        Ok(to) => to,
        // Told twice to do the same: it is so.
        Err(done @ PublishRefusal::IsCurrent(_)) => return Ok(Ok((from, done.to_string()))),
        Err(refusal) => return Ok(Err(refusal.to_string())),
    };
    let is_ready = check_state(place, to.current, EditionState::Ready)?;
    let head = put_head(place, from, to)?;
    let mut request =
        place.client.transact_write_items().transact_items(is_ready).transact_items(head);
    // A record that somebody deleted by hand must not come back as a stub.
    if from.current > 0 && reading::edition(place, from.current).await?.is_some() {
        request = request.transact_items(leave(place, from.current)?);
    }
    match request.send().await {
        Ok(_) => Ok(Ok((to, format!("edition {} is current", to.current)))),
        Err(error) if is_cancelled(error.code()) => Ok(Err(
            "the head or the edition was changed by somebody else: look with `weir editions ls`"
                .to_owned(),
        )),
        Err(error) => Err(format!("the head was not written: {}", error_text(&error))),
    }
}

pub(super) fn is_cancelled(code: Option<&str>) -> bool {
    matches!(code, Some("TransactionCanceledException" | "TransactionConflictException"))
}

/// That an edition is in a state.
pub(super) fn check_state(
    place: &Place,
    number: u64,
    state: EditionState,
) -> Result<TransactWriteItem, String> {
    let check = ConditionCheck::builder()
        .table_name(&place.table)
        .key(EDITION_PARTITION, SdkValue::S(records_key(&place.set)))
        .key(EDITION_ITEM, SdkValue::S(version_text(number)))
        .condition_expression("#state = :state")
        .expression_attribute_names("#state", EDITION_STATE)
        .expression_attribute_values(":state", SdkValue::S(state.as_str().to_owned()))
        .build()
        .map_err(|error| error.to_string())?;
    Ok(TransactWriteItem::builder().condition_check(check).build())
}

/// That readers leave an edition now.
fn leave(place: &Place, number: u64) -> Result<TransactWriteItem, String> {
    let update = Update::builder()
        .table_name(&place.table)
        .key(EDITION_PARTITION, SdkValue::S(records_key(&place.set)))
        .key(EDITION_ITEM, SdkValue::S(version_text(number)))
        .update_expression("SET #left_at = :now")
        .condition_expression("attribute_exists(#state)")
        .expression_attribute_names("#left_at", EDITION_LEFT_AT)
        .expression_attribute_names("#state", EDITION_STATE)
        .expression_attribute_values(":now", SdkValue::N(place.now.to_string()))
        .build()
        .map_err(|error| error.to_string())?;
    Ok(TransactWriteItem::builder().update(update).build())
}

/// The write of a head over the one that was read.
pub(super) fn put_head(
    place: &Place,
    from: EditionHead,
    to: EditionHead,
) -> Result<TransactWriteItem, String> {
    let item: Item = to.to_item(&place.set);
    let put = Put::builder().table_name(&place.table).set_item(Some(to_sdk_item(&item)));
    let put = put.expression_attribute_names("#revision", EDITION_REVISION);
    let put = if from.revision == 0 {
        put.condition_expression("attribute_not_exists(#revision)")
    } else {
        put.condition_expression("#revision = :revision")
            .expression_attribute_values(":revision", SdkValue::N(from.revision.to_string()))
    };
    let put = put.build().map_err(|error| error.to_string())?;
    Ok(TransactWriteItem::builder().put(put).build())
}
