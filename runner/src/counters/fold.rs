//! `weir counters fold`: moves what is in the higher slots of every counter into the lower ones.
//!
//! A slot is moved in one transaction: it is deleted, if it still holds what was read, and its value
//! is added to the slot `number modulo slots left`. So no vote is lost or counted twice, whenever it
//! arrives; a vote that still goes to a higher slot makes that slot anew, and it is moved next time.
//! The function sees two changes, of which one may come before the other: a total may be off by one
//! slot for as long as the other is on its way, and is right then.
//! The function's own SLOT_COUNT stays as it is until nobody votes into higher slots any more.

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::{AttributeValue as SdkValue, Delete, TransactWriteItem, Update};
use futures::{StreamExt, TryStreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use model::{AttributeValue, Number};
use rules::counters::Counters;

use super::Place;
use super::contention::{Attempts, is_contended};
use crate::load::{error_text, from_sdk_item, to_sdk_value};

/// Slots that are moved at the same time.
const MOVES_AT_ONCE: usize = 16;

/// What was found and done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) folded: u64,
    pub(super) left: u64,
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
        .try_fold(Report::default(), async |mut report, moved: Option<bool>| {
            report.folded += u64::from(moved == Some(true));
            report.left += u64::from(moved == Some(false));
            progress.set_message(format!("{} slots folded", report.folded));
            Ok::<_, String>(report)
        })
        .await;
    progress.finish_and_clear();
    report
}

/// Moves a slot; answers whether it is gone.
async fn move_slot(place: &Place, key: &str, target: &str) -> Result<bool, String> {
    let mut attempts = Attempts::first();
    loop {
        let request = place.client.get_item().table_name(&place.slots_table).consistent_read(true);
        let request = request.key(&place.rule.slot_key, SdkValue::S(key.to_owned()));
        let answer =
            request.send().await.map_err(|e| format!("slot `{key}`: {}", error_text(&e)))?;
        let Some(item) = answer.item else { return Ok(true) };
        let Ok(value) = place.rule.value_of_slot(&from_sdk_item(item)?) else { return Ok(false) };
        if try_to_move(place, key, target, value).await? {
            return Ok(true);
        }
        if !attempts.next().await {
            return Ok(false);
        }
    }
}

/// One transaction. `false`: somebody voted in between, or another transaction is at these slots.
async fn try_to_move(
    place: &Place,
    key: &str,
    target: &str,
    value: Number,
) -> Result<bool, String> {
    let (name, slot_key) = (&place.rule.slot_value, &place.rule.slot_key);
    let value = to_sdk_value(&AttributeValue::N(value));
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
        .expression_attribute_names("#value", name)
        .expression_attribute_values(":value", value)
        .build()
        .map_err(|error| error.to_string())?;
    let request = place
        .client
        .transact_write_items()
        .transact_items(TransactWriteItem::builder().delete(delete).build())
        .transact_items(TransactWriteItem::builder().update(add).build());
    match request.send().await {
        Ok(_) => Ok(true),
        Err(error) if is_contended(error.code(), &error_text(&error)) => Ok(false),
        Err(error) => Err(format!("slot `{key}`: {}", error_text(&error))),
    }
}
