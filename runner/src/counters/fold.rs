//! `weir counters fold`: moves what is in the higher slots of every counter into the lower ones.
//!
//! A slot is moved in one transaction: it is deleted, if it still holds what was read, and its value
//! is added to the slot `number modulo slots left`. So no vote is lost or counted twice, whenever it
//! arrives; a vote that still goes to a higher slot makes that slot anew, and it is moved next time.
//! A slot that cannot be moved is left and named, and the others are moved: the target must be left
//! with a value that the function counts, which would refuse it with everybody's votes in it.
//! The function sees two changes, of which one may come before the other: a total may be off by one
//! slot for as long as the other is on its way, and is right then.
//! The function's own SLOT_COUNT stays as it is until nobody votes into higher slots any more.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue as SdkValue, CancellationReason, Delete, TransactWriteItem, Update,
};
use futures::{StreamExt, TryStreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use model::{AttributeValue, Item, Number};
use rules::counters::{Counters, SUMMABLE, room_for};

use super::Place;
use crate::contention::{Attempts, is_contended};
use crate::load::{error_text, from_sdk_item, to_sdk_value};

/// Slots that are moved at the same time.
const MOVES_AT_ONCE: usize = 16;
/// Slots that are left and named, with the reason, at most.
const LEFT_NAMED_MAX: usize = 10;

/// What was found and done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) folded: u64,
    pub(super) left: u64,
    /// The first slots that were left, and why.
    pub(super) left_named: Vec<String>,
}

/// What became of a slot, or of an attempt to move it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Move {
    Done,
    /// Somebody voted in between, or another transaction is at these slots.
    Disturbed,
    /// It cannot be moved, however often that is tried, and why.
    Refused(String),
}

impl Report {
    fn add(&mut self, moved: Move) {
        match moved {
            Move::Done => self.folded += 1,
            Move::Disturbed => self.left += 1,
            Move::Refused(reason) => {
                self.left += 1;
                if self.left_named.len() < LEFT_NAMED_MAX {
                    self.left_named.push(reason);
                }
            }
        }
    }
}

/// Moves every slot from `to` on.
///
/// # Errors
/// When the table cannot be read or written. What was moved before stays moved.
pub(super) async fn run(place: &Place, to: u32) -> Result<Report, String> {
    let progress = ProgressBar::new_spinner().with_style(
        ProgressStyle::with_template("{elapsed} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    // Every slot there may be, whatever the configured number.
    let every = Counters { slot_count: rules::counters::SLOT_COUNT_MAX, ..place.rule.clone() };
    let scan = place.client.scan().table_name(&place.slots_table).consistent_read(true);
    let items = scan.into_paginator().items().send();
    let items = stream::unfold(items, async |mut items| Some((items.next().await?, items)));
    let moves = items.map(|item| {
        let every = &every;
        async move {
            let item = item.map_err(|error| error_text(&error)).and_then(from_sdk_item);
            let item = item.map_err(|error| format!("cannot read the slots: {error}"))?;
            let key = item.get(&place.rule.slot_key).and_then(AttributeValue::as_str);
            let Some(key) = key else { return Ok(None) };
            match every.parse_slot_key(key) {
                Ok((counter, slot)) if slot >= to => {
                    let target = Counters::slot_key_text(counter, Counters::folded_slot(slot, to));
                    move_slot(place, key, &target).await.map(Some)
                }
                // A lower slot, or an item that is no slot.
                _ => Ok(None),
            }
        }
    });
    let report = moves
        .buffer_unordered(MOVES_AT_ONCE)
        .try_fold(Report::default(), async |mut report, moved: Option<Move>| {
            if let Some(moved) = moved {
                report.add(moved);
            }
            progress.set_message(format!("{} slots folded", report.folded));
            Ok::<_, String>(report)
        })
        .await;
    progress.finish_and_clear();
    report
}

/// Moves a slot, as often as somebody else is at it.
async fn move_slot(place: &Place, key: &str, target: &str) -> Result<Move, String> {
    let mut attempts = Attempts::first();
    loop {
        let Some(item) = read_slot(place, key).await? else { return Ok(Move::Done) };
        let value = match place.rule.value_of_slot(&item) {
            Ok(value) => value,
            Err(refusal) => return Ok(Move::Refused(format!("slot `{key}`: {refusal}"))),
        };
        // The condition of the transaction sees no decimal places.
        if !is_sound(place, target).await? {
            return Ok(without_room(key, target));
        }
        let moved = try_to_move(place, key, target, value).await?;
        if moved != Move::Disturbed || !attempts.next().await {
            return Ok(moved);
        }
    }
}

async fn read_slot(place: &Place, key: &str) -> Result<Option<Item>, String> {
    let request = place.client.get_item().table_name(&place.slots_table).consistent_read(true);
    let request = request.key(&place.rule.slot_key, SdkValue::S(key.to_owned()));
    let answer = request.send().await.map_err(|e| format!("slot `{key}`: {}", error_text(&e)))?;
    answer.item.map(from_sdk_item).transpose()
}

/// Whether a slot has a value that the function counts, or none yet.
async fn is_sound(place: &Place, key: &str) -> Result<bool, String> {
    let Some(item) = read_slot(place, key).await? else { return Ok(true) };
    let has_value = item.contains_key(place.rule.slot_value.as_str());
    Ok(!has_value || place.rule.value_of_slot(&item).is_ok())
}

/// One transaction.
async fn try_to_move(
    place: &Place,
    key: &str,
    target: &str,
    value: Number,
) -> Result<Move, String> {
    let Some((low, high)) = room_for(value) else { return Ok(without_room(key, target)) };
    let (name, slot_key) = (&place.rule.slot_value, &place.rule.slot_key);
    let number = |number: Number| to_sdk_value(&AttributeValue::N(number));
    let value = number(value);
    let delete = Delete::builder()
        .table_name(&place.slots_table)
        .key(slot_key, SdkValue::S(key.to_owned()))
        .condition_expression("#value = :value")
        .expression_attribute_names("#value", name)
        .expression_attribute_values(":value", value.clone())
        .build()
        .map_err(|error| error.to_string())?;
    let add = Update::builder()
        .table_name(&place.slots_table)
        .key(slot_key, SdkValue::S(target.to_owned()))
        .update_expression("ADD #value :value")
        .condition_expression("attribute_not_exists(#value) OR #value BETWEEN :low AND :high")
        .expression_attribute_names("#value", name)
        .expression_attribute_values(":value", value)
        .expression_attribute_values(":low", number(low))
        .expression_attribute_values(":high", number(high))
        .build()
        .map_err(|error| error.to_string())?;
    let request = place
        .client
        .transact_write_items()
        .transact_items(TransactWriteItem::builder().delete(delete).build())
        .transact_items(TransactWriteItem::builder().update(add).build());
    let Err(error) = request.send().await else { return Ok(Move::Done) };
    if let Some(refused) = refusal(&error, key, target) {
        return Ok(refused);
    }
    if is_contended(error.code(), &error_text(&error)) {
        return Ok(Move::Disturbed);
    }
    Err(format!("cannot move slot `{key}` into `{target}`: {}", error_text(&error)))
}

fn without_room(key: &str, target: &str) -> Move {
    Move::Refused(format!(
        "slot `{key}` cannot be moved: slot `{target}` holds what is no number, or would be outside of what totals hold exactly ({SUMMABLE}); correct slot `{target}`"
    ))
}

/// Why a transaction was cancelled, if it will be again: its parts are the deletion of the slot,
/// which fails if somebody voted in between, and the addition to the target.
fn refusal(error: &SdkError<TransactWriteItemsError>, key: &str, target: &str) -> Option<Move> {
    let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) =
        error.as_service_error()
    else {
        return None;
    };
    let [deletion, addition] = cancelled.cancellation_reasons() else { return None };
    let is = |reason: &CancellationReason, code: &str| reason.code() == Some(code);
    for (reason, slot) in [(addition, target), (deletion, key)] {
        if is(reason, "ValidationError") {
            let why = reason.message().unwrap_or("DynamoDB does not say why");
            return Some(Move::Refused(format!(
                "slot `{key}` cannot be moved, because slot `{slot}` is refused: {why}"
            )));
        }
    }
    // The value that was read is the slot's still, so that was not why.
    let is_unchanged = matches!(deletion.code(), None | Some("None"));
    (is_unchanged && is(addition, "ConditionalCheckFailed")).then(|| without_room(key, target))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::testing::place;
    use super::*;
    use crate::test_store::TestStore;

    #[tokio::test]
    async fn a_slot_is_left_where_its_target_has_no_room_for_it_and_the_others_are_moved() {
        let store = TestStore::open().await;
        store.table("votes").await;
        let mut place = place(&store.url);
        place.rule.slot_key = "p".to_owned();
        let number = |text: &str| SdkValue::N(text.to_owned());
        let full = "9000000000000000000000000000";
        for (slot, value) in [
            ("F#0", number(full)),
            ("F#2", number(full)),
            ("G#0", SdkValue::S("many".to_owned())),
            ("G#2", number("3")),
            ("H#1", number("1")),
            ("H#3", number("4")),
            ("H#2", number("5")),
            ("K#2", number("0.0000001")),
            ("L#0", number("0.0000001")),
            ("L#2", number("6")),
        ] {
            let put = store.client.put_item().table_name("votes");
            let put = put.item("p", SdkValue::S(slot.to_owned())).item("votes", value);
            put.send().await.unwrap();
        }
        let report = run(&place, 2).await.unwrap();
        assert_eq!((report.folded, report.left), (2, 4));
        let mut named = report.left_named;
        named.sort();
        for (reason, expected) in named.iter().zip([
            "slot `F#2` cannot be moved: slot `F#0` holds what is no number, or would be outside",
            "slot `G#2` cannot be moved: slot `G#0` holds what is no number",
            "slot `K#2`: slot value `votes`=",
            "slot `L#2` cannot be moved: slot `L#0` holds what is no number",
        ]) {
            assert!(reason.starts_with(expected), "{reason}");
        }
        assert_eq!(named.len(), 4);
        let items = store.client.scan().table_name("votes").send().await.unwrap().items.unwrap();
        let text = |value: &SdkValue| value.as_s().or(value.as_n()).unwrap().clone();
        let slots: BTreeMap<String, String> =
            items.iter().map(|item| (text(&item["p"]), text(&item["votes"]))).collect();
        let slot = |key: &str| slots.get(key).map(String::as_str);
        assert_eq!((slot("F#0"), slot("F#2")), (Some(full), Some(full)));
        assert_eq!((slot("G#0"), slot("G#2")), (Some("many"), Some("3")));
        assert_eq!((slot("H#0"), slot("H#1")), (Some("5"), Some("5")));
        assert_eq!((slot("H#2"), slot("H#3")), (None, None));
        assert_eq!(slot("L#2"), Some("6"));
    }
}
