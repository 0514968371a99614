//! Publishes editions and rolls back, each with one conditional write of the head.
//!
//! The write checks that the edition is ready, so an edition that is being pruned cannot become
//! current. Its condition contains the current and the previous edition of the head that was read,
//! so one of two concurrent writers is refused. The condition ignores the highest assigned number,
//! so a concurrent `prepare`, which raises this number, causes no refusal. The same transaction
//! records when the previous edition was replaced, so that a prune lets its readers finish.

use aws_sdk_dynamodb::types::{
    AttributeValue as SdkValue, ConditionCheck, Put, TransactWriteItem, Update,
};
use model::Item;
use rules::versions::edition::{
    EDITION_CURRENT, EDITION_HEAD, EDITION_ITEM, EDITION_LATEST, EDITION_LEFT_AT,
    EDITION_PARTITION, EDITION_PREVIOUS, EDITION_REVISION, EDITION_STATE, EditionHead,
    EditionState, PublishRefusal, records_key,
};
use rules::versions::version_text;

use super::{Place, reading};
use client::attribute::to_sdk_item;
use client::contention::{Attempts, NotApplied, why_not_applied};
use client::failure::{Failure, Result, refused};

/// The new head and a message.
type HeadChange = (EditionHead, String);

/// Publishes an edition.
pub(super) async fn publish(place: &Place, number: u64) -> Result<HeadChange> {
    let head = reading::head(place).await?;
    let edition = reading::known_edition(place, number).await?;
    change_head(place, head, head.published(&edition)).await
}

/// Makes the edition `to` current, or the previous edition if `to` is `None`. If `from` is given,
/// changes the head only if the edition `from` is current.
pub(super) async fn roll_back(
    place: &Place,
    from: Option<u64>,
    to: Option<u64>,
) -> Result<HeadChange> {
    let head = reading::head(place).await?;
    if let Some(from) = from.filter(|from| *from != head.current) {
        return not_from(head, from, to);
    }
    let number = match to.map_or_else(|| head.before(), Ok) {
        Ok(number) => number,
        // A repeated rollback succeeds, because the earlier rollback already had this result.
        Err(done @ PublishRefusal::IsRolledBack(..)) => return Ok((head, done.to_string())),
        Err(refusal) => return Err(Failure::Refused(refusal.to_string())),
    };
    let edition = reading::known_edition(place, number).await?;
    change_head(place, head, head.turned_to(&edition)).await
}

/// Returns the result if `from` is not the current edition. The result is a success if an earlier
/// rollback already made the requested edition current; otherwise another process has changed the
/// head.
fn not_from(head: EditionHead, from: u64, to: Option<u64>) -> Result<HeadChange> {
    let is_done = match to {
        Some(to) => to == head.current,
        None => head.before() == Err(PublishRefusal::IsRolledBack(head.current, from)),
    };
    match is_done {
        true => Ok((head, format!("edition {} is already current", head.current))),
        false => Err(refused!(
            "edition {} is current, not edition {from}, so nothing was changed: see `weir editions ls`",
            head.current
        )),
    }
}

async fn change_head(
    place: &Place,
    from: EditionHead,
    to: Result<EditionHead, PublishRefusal>,
) -> Result<HeadChange> {
    let to = match to {
        Ok(to) => to,
        // A repeated command succeeds, because the edition is already current.
        Err(done @ PublishRefusal::IsCurrent(_)) => return Ok((from, done.to_string())),
        Err(refusal) => return Err(Failure::Refused(refusal.to_string())),
    };
    let is_ready = check_state(place, to.current, EditionState::Ready)?;
    let head = turn_head(place, from, to)?;
    let mut request =
        place.client.transact_write_items().transact_items(is_ready).transact_items(head);
    // If an operator has deleted the edition's record, this update must not create it again with
    // a single attribute.
    if from.current > 0 && reading::edition(place, from.current).await?.is_some() {
        request = request.transact_items(leave(place, from.current)?);
    }
    let mut attempts = Attempts::first();
    loop {
        let Err(error) = request.clone().send().await else { return Ok(turned(from, to)) };
        match why_not_applied(&error) {
            NotApplied::Changed => return changed(place, from, to).await,
            why if attempts.after(why).await => {}
            _ => return Err(Failure::from(&error).about("cannot write the head of the set")),
        }
    }
}

/// Returns the new head, and the message that describes the change.
fn turned(from: EditionHead, to: EditionHead) -> HeadChange {
    let said = match from.current {
        0 => format!("edition {} is current", to.current),
        left => format!("edition {} is current, edition {left} is no longer current", to.current),
    };
    (to, said)
}

/// Returns the result if the head or the edition has changed. Either the write succeeded and its
/// response was lost, or another process changed the head.
async fn changed(place: &Place, from: EditionHead, to: EditionHead) -> Result<HeadChange> {
    let now = reading::head(place).await?;
    if (now.current, now.previous) == (to.current, to.previous) {
        return Ok(turned(from, now));
    }
    Err(refused!("another process changed the head or the edition: see `weir editions ls`"))
}

/// Returns the condition check that an edition is in this state.
pub(super) fn check_state(
    place: &Place,
    number: u64,
    state: EditionState,
) -> Result<TransactWriteItem> {
    let check = ConditionCheck::builder()
        .table_name(&place.table)
        .key(EDITION_PARTITION, SdkValue::S(records_key(&place.set)))
        .key(EDITION_ITEM, SdkValue::S(version_text(number)))
        .condition_expression("#state = :state")
        .expression_attribute_names("#state", EDITION_STATE)
        .expression_attribute_values(":state", SdkValue::S(state.as_str().to_owned()))
        .build()?;
    Ok(TransactWriteItem::builder().condition_check(check).build())
}

/// Returns the update that records the current time as the time at which an edition was replaced.
fn leave(place: &Place, number: u64) -> Result<TransactWriteItem> {
    let update = Update::builder()
        .table_name(&place.table)
        .key(EDITION_PARTITION, SdkValue::S(records_key(&place.set)))
        .key(EDITION_ITEM, SdkValue::S(version_text(number)))
        .update_expression("SET #left_at = :now")
        .condition_expression("attribute_exists(#state)")
        .expression_attribute_names("#left_at", EDITION_LEFT_AT)
        .expression_attribute_names("#state", EDITION_STATE)
        .expression_attribute_values(":now", SdkValue::N(place.now.to_string()))
        .build()?;
    Ok(TransactWriteItem::builder().update(update).build())
}

/// Returns the write of a head, on the condition that the stored head still names the editions that
/// were read. Numbers that other processes reserve in the meantime remain reserved.
fn turn_head(place: &Place, from: EditionHead, to: EditionHead) -> Result<TransactWriteItem> {
    let number = |number: u64| SdkValue::N(number.to_string());
    let update = Update::builder()
        .table_name(&place.table)
        .key(EDITION_PARTITION, SdkValue::S(records_key(&place.set)))
        .key(EDITION_ITEM, SdkValue::S(EDITION_HEAD.to_owned()))
        .update_expression(
            "SET #current = :current, #previous = :previous, #latest = if_not_exists(#latest, :latest) ADD #revision :one",
        )
        .expression_attribute_names("#current", EDITION_CURRENT)
        .expression_attribute_names("#previous", EDITION_PREVIOUS)
        .expression_attribute_names("#latest", EDITION_LATEST)
        .expression_attribute_names("#revision", EDITION_REVISION)
        .expression_attribute_values(":current", number(to.current))
        .expression_attribute_values(":previous", number(to.previous))
        .expression_attribute_values(":latest", number(to.latest))
        .expression_attribute_values(":one", number(1));
    let update = if from.revision == 0 {
        update.condition_expression("attribute_not_exists(#revision)")
    } else {
        update
            .condition_expression("#current = :from AND #previous = :before")
            .expression_attribute_values(":from", number(from.current))
            .expression_attribute_values(":before", number(from.previous))
    };
    let update = update.build()?;
    Ok(TransactWriteItem::builder().update(update).build())
}

/// Returns the write of a head that reserves a number, on the condition that its revision is
/// unchanged.
pub(super) fn put_head(
    place: &Place,
    from: EditionHead,
    to: EditionHead,
) -> Result<TransactWriteItem> {
    let item: Item = to.to_item(&place.set);
    let put = Put::builder().table_name(&place.table).set_item(Some(to_sdk_item(&item)));
    let put = put.expression_attribute_names("#revision", EDITION_REVISION);
    let put = if from.revision == 0 {
        put.condition_expression("attribute_not_exists(#revision)")
    } else {
        put.condition_expression("#revision = :revision")
            .expression_attribute_values(":revision", SdkValue::N(from.revision.to_string()))
    };
    let put = put.build()?;
    Ok(TransactWriteItem::builder().put(put).build())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::super::prepare;
    use super::super::store_tests::{items, listening, of_file, place};
    use super::*;
    use crate::counters::testing::serve;
    use testing::store::TestStore;

    fn is_refused(failure: &Failure, words: &str) -> bool {
        matches!(failure, Failure::Refused(why) if why.contains(words))
    }

    #[tokio::test]
    async fn a_concurrent_reservation_does_not_stop_a_publication() {
        let store = TestStore::open().await;
        let (place, items) = (place(&store).await, items(1));
        let prepare = async || prepare::run(&place, &of_file(&items)).await.unwrap();
        let (one, two) = (prepare().await, prepare().await);
        let head = reading::head(&place).await.unwrap();
        prepare().await;
        let (shown, said) = change_head(&place, head, head.published(&one)).await.unwrap();
        assert_eq!((shown.current, said.as_str()), (1, "edition 1 is current"));
        let now = reading::head(&place).await.unwrap();
        assert_eq!((now.current, now.previous, now.latest), (1, 0, 3));
        assert!(now.revision > shown.revision, "preparations detect the change");
        // Another process has published since the head was read.
        let refused = change_head(&place, head, head.published(&two)).await.unwrap_err();
        assert!(is_refused(&refused, "another process changed the head"), "{refused:?}");
        assert_eq!(prepare().await.number, 4);
    }

    #[tokio::test]
    async fn the_rest_is_reported_and_may_be_named() {
        let store = TestStore::open().await;
        let (place, items) = (place(&store).await, items(1));
        for _ in 0..3 {
            let number = prepare::run(&place, &of_file(&items)).await.unwrap().number;
            publish(&place, number).await.unwrap();
        }
        let back = async |from, to| match roll_back(&place, from, to).await {
            Ok((_, said)) => said,
            Err(Failure::Refused(why)) => format!("refused: {why}"),
            Err(failure) => panic!("{failure:?}"),
        };
        for (from, to, expected) in [
            // The caller rolls back from edition 2, but another process has already replaced it by
            // edition 3.
            (Some(2), None, "refused: edition 3 is current, not edition 2, so nothing was changed"),
            (Some(2), Some(1), "refused: edition 3 is current, not edition 2"),
            (Some(3), None, "edition 2 is current, edition 3 is no longer current"),
            (Some(3), None, "edition 2 is already current"),
            (Some(3), Some(2), "edition 2 is already current"),
            (Some(3), Some(1), "refused: edition 2 is current, not edition 3"),
            (None, None, "edition 2 has been current since edition 3 was rolled back"),
            (Some(2), Some(1), "edition 1 is current, edition 2 is no longer current"),
        ] {
            let said = back(from, to).await;
            assert!(said.starts_with(expected), "{from:?} {to:?}: {said}");
        }
    }

    const DONE: (u16, &str, bool) = (200, "{}", false);

    fn cancelled(code: &str) -> String {
        format!(
            r#"{{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","message":"x","CancellationReasons":[{{"Code":"{code}"}},{{"Code":"None"}}]}}"#
        )
    }

    /// Publishes the first edition with these responses to its requests.
    async fn published(answers: &[(u16, &str, bool)]) -> Result<HeadChange> {
        let (listener, place): (TcpListener, Place) = listening().await;
        let from = EditionHead { latest: 1, revision: 1, ..EditionHead::default() };
        let to = EditionHead { current: 1, revision: 2, ..from };
        tokio::join!(serve(listener, answers), change_head(&place, from, Ok(to))).1
    }

    #[tokio::test]
    async fn only_a_failed_condition_is_a_change() {
        let (conflict, throttled) =
            (cancelled("TransactionConflict"), cancelled("ThrottlingError"));
        let busy = [(400, conflict.as_str(), false), (400, throttled.as_str(), false), DONE];
        let (_, said) = published(&busy).await.unwrap();
        assert_eq!(said, "edition 1 is current");
        let changed = cancelled("ConditionalCheckFailed");
        let head = |current: u64| {
            let head = EditionHead { current, latest: 2, revision: 5, ..EditionHead::default() };
            format!(r#"{{"Item":{}}}"#, model::json::item_to_string(&head.to_item("main")))
        };
        // Either the write succeeded and its response was lost, or another process published
        // another edition.
        for (current, is_done) in [(1, true), (2, false)] {
            let head = head(current);
            let answers = [(400, changed.as_str(), false), (200, head.as_str(), false)];
            let ended = published(&answers).await;
            assert!(if is_done {
                ended.is_ok()
            } else {
                ended.is_err_and(|failure| is_refused(&failure, ""))
            });
        }
        let wrong = cancelled("ValidationError");
        let said = published(&[(400, wrong.as_str(), false)]).await.unwrap_err().to_string();
        assert!(said.starts_with("cannot write the head of the set: "), "{said}");
    }
}
