//! `weir counters fold`: moves the values of every counter's higher slots into its lower slots.
//!
//! One transaction moves a slot: it deletes the slot, on the condition that the slot is unchanged,
//! and adds its value to the slot `number modulo remaining slots`. The condition ensures that no
//! vote is lost or counted twice. A late vote creates its higher slot again, and the next fold
//! moves it.
//!
//! A slot that cannot be moved is reported, and the other slots are moved. There are several
//! reasons not to move a slot. The sum must be a value that the function can add, because the
//! function would otherwise refuse the target with all its votes. Other attributes of the slot
//! would be lost; marks of loads, which record the counted lines of a file, are dropped only with
//! `--forget-loads`. An expired slot is left to TTL. A moved value expires with its target, at the
//! later of both times.
//!
//! The function sees two changes, in any order, so a total may be off by one slot until both have
//! arrived. Keep the function's own SLOT_COUNT until no client votes into higher slots.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue as SdkValue, CancellationReason, Delete, ReturnValuesOnConditionCheckFailure,
    TransactWriteItem, Update,
};
use futures::{StreamExt, TryStreamExt, stream};
use model::{AttributeValue, Item, Number};
use rules::counters::{Counters, SUMMABLE, room_for};
use rules::time_to_live;

use super::{LOAD_MARK_PREFIX, Place};
use client::attribute::{from_sdk_item, to_sdk_value};
use client::contention::{Attempts, is_contended};
use client::endpoint;
use client::failure::{Context, Failure, Result, fatal};
use client::interruption;
use client::sdk_error::error_text;
use client::table_description::ttl_attribute;

/// Number of slots that are moved concurrently.
const MOVES_AT_ONCE: usize = 16;
/// Maximum number of unmoved slots that the report names.
const LEFT_NAMED_MAX: usize = 10;

/// The result of a fold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) folded: u64,
    pub(super) left: u64,
    /// The first slots that were not moved, each with the reason.
    pub(super) left_named: Vec<String>,
}

/// The result of moving a slot, or of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MoveResult {
    Done,
    /// A vote or another transaction changed a slot at the same time.
    ConcurrentChange,
    /// The slot cannot be moved, for this reason.
    Refused(String),
    /// The slot has expired and no longer counts. TTL deletes it.
    Over,
}

/// The moved content of a slot: its value and its expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    value: Number,
    expiry: Option<Number>,
}

/// The state of a slot that receives the value of another slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Missing,
    There { expiry: Option<Number> },
}

/// The slots and the expiry rules, which all moves of a fold share.
struct Slots<'p> {
    place: &'p Place,
    /// The TTL attribute; `None` if TTL is off.
    ttl: Option<String>,
    /// The time at which the fold started, in seconds since 1970.
    now: u64,
    /// True if slots with marks of loads are moved. Their marks are lost.
    forgets_loads: bool,
}

impl Report {
    fn add(&mut self, moved: MoveResult) {
        match moved {
            MoveResult::Done => self.folded += 1,
            MoveResult::ConcurrentChange => self.left += 1,
            MoveResult::Over => {}
            MoveResult::Refused(reason) => {
                self.left += 1;
                if self.left_named.len() < LEFT_NAMED_MAX {
                    self.left_named.push(reason);
                }
            }
        }
    }
}

/// Moves every slot with a number of at least `to`.
///
/// # Errors
/// When the table cannot be read or written. Slots that were already moved are not moved back.
pub(super) async fn run(place: &Place, to: u32, forgets_loads: bool) -> Result<Report> {
    let progress = interruption::progress_bar(None, "{elapsed} {msg}", "");
    let slots = Slots {
        place,
        ttl: ttl_attribute(&place.client, &place.slots_table).await?,
        now: u64::try_from(endpoint::store_seconds(&place.endpoint, &place.client).await)
            .unwrap_or(0),
        forgets_loads,
    };
    // The rule covers every possible slot, regardless of the configured number of slots.
    let every = Counters { slot_count: rules::counters::SLOT_COUNT_MAX, ..place.rule.clone() };
    let scan = place.client.scan().table_name(&place.slots_table).consistent_read(true);
    let items = scan.into_paginator().items().send();
    let items = stream::unfold(items, async |mut items| Some((items.next().await?, items)));
    let moves = items.map(|item| {
        let (every, slots) = (&every, &slots);
        async move {
            let item = item.map_err(Failure::from).and_then(from_sdk_item);
            let item = item.context(|| "cannot read the slots")?;
            let key = item.get(&place.rule.slot_key).and_then(AttributeValue::as_str);
            let Some(key) = key else { return Ok(None) };
            match every.parse_slot_key(key) {
                Ok((counter, slot)) if slot >= to => {
                    let target = Counters::slot_key_text(counter, Counters::folded_slot(slot, to));
                    slots.move_slot(key, &target).await.map(Some)
                }
                // The item is a lower slot, or not a slot.
                _ => Ok(None),
            }
        }
    });
    let report = moves
        .buffer_unordered(MOVES_AT_ONCE)
        .try_fold(Report::default(), async |mut report, moved: Option<MoveResult>| {
            if let Some(moved) = moved {
                report.add(moved);
            }
            progress.set_message(format!("{} slots folded", report.folded));
            Ok::<_, Failure>(report)
        })
        .await;
    progress.finish_and_clear();
    report
}

impl Slots<'_> {
    /// Moves a slot, and retries on conflicts.
    async fn move_slot(&self, key: &str, target: &str) -> Result<MoveResult> {
        let mut attempts = Attempts::first();
        loop {
            let Some(item) = self.read(key).await? else { return Ok(MoveResult::Done) };
            if self.is_over(&item) {
                return Ok(MoveResult::Over);
            }
            let slot = match self.slot(&item) {
                Ok(slot) => slot,
                Err(why) => return Ok(MoveResult::Refused(format!("slot `{key}`: {why}"))),
            };
            let into = match self.target(key, target).await? {
                Ok(into) => into,
                Err(refused) => return Ok(refused),
            };
            let moved = self.try_to_move(key, slot, target, into).await?;
            if moved != MoveResult::ConcurrentChange || !attempts.next().await {
                return Ok(moved);
            }
        }
    }

    async fn read(&self, key: &str) -> Result<Option<Item>> {
        let place = self.place;
        let request = place.client.get_item().table_name(&place.slots_table).consistent_read(true);
        let request = request.key(&place.rule.slot_key, SdkValue::S(key.to_owned()));
        let answer = request.send().await;
        let answer = answer.context(|| format!("slot `{key}`"))?;
        answer.item.map(from_sdk_item).transpose()
    }

    /// Returns the time at which TTL deletes an item.
    fn expiry(&self, item: &Item) -> Option<Number> {
        item.get(self.ttl.as_deref()?)?.as_number()
    }

    fn is_over(&self, item: &Item) -> bool {
        let expiry = self.expiry(item).and_then(|n| time_to_live::expiry_of(&n.to_string()));
        expiry.is_some_and(|expiry| time_to_live::is_over(expiry, self.now))
    }

    /// Returns the value and expiry of an item, which must have no other attributes.
    fn slot(&self, item: &Item) -> Result<Slot> {
        let rule = &self.place.rule;
        let value = rule.value_of_slot(item).map_err(Failure::fatal)?;
        let expiry = self.expiry(item);
        let is_moved = |name: &str| {
            let is_expiry = expiry.is_some() && self.ttl.as_deref() == Some(name);
            let is_forgotten = self.forgets_loads && name.starts_with(LOAD_MARK_PREFIX);
            is_expiry
                || is_forgotten
                || [&rule.slot_key, &rule.slot_value].iter().any(|own| *own == name)
        };
        match item.keys().find(|name| !is_moved(name)) {
            Some(name) if name.starts_with(LOAD_MARK_PREFIX) => Err(fatal!(
                "this slot records the lines counted by `weir load --count-into`, and a move would let a repeated load count them twice; to move the slot anyway, add --forget-loads"
            )),
            Some(name) => Err(fatal!(
                "a move would lose the slot's attribute `{name}`; remove the attribute, or move the slot yourself"
            )),
            None => Ok(Slot { value, expiry }),
        }
    }

    /// Returns the state of the slot `target`, which receives the value of the slot `key`, or why
    /// it cannot receive a value.
    async fn target(&self, key: &str, target: &str) -> Result<Result<Target, MoveResult>> {
        let Some(item) = self.read(target).await? else { return Ok(Ok(Target::Missing)) };
        if self.is_over(&item) {
            return Ok(Err(MoveResult::Refused(format!(
                "slot `{key}` cannot be moved yet: slot `{target}` has expired, and TTL deletes it with its value; run `weir counters fold` again after that"
            ))));
        }
        // The transaction's condition cannot detect decimal places, so the value is checked here.
        let has_value = item.contains_key(self.place.rule.slot_value.as_str());
        if has_value && self.place.rule.value_of_slot(&item).is_err() {
            return Ok(Err(without_room(key, target)));
        }
        Ok(Ok(Target::There { expiry: self.expiry(&item) }))
    }

    /// Runs one transaction that moves a slot.
    async fn try_to_move(
        &self,
        key: &str,
        slot: Slot,
        target: &str,
        into: Target,
    ) -> Result<MoveResult> {
        let Some(room) = room_for(slot.value) else { return Ok(without_room(key, target)) };
        let Ok(expiry) = expiry_together(slot.expiry, into) else {
            return Ok(MoveResult::Refused(format!(
                "slot `{key}` cannot be moved: only one of this slot and slot `{target}` expires; set `{}` in both slots, or in neither",
                self.ttl.as_deref().unwrap_or_default()
            )));
        };
        let request = self
            .place
            .client
            .transact_write_items()
            .transact_items(self.deletion(key, slot)?)
            .transact_items(self.addition(target, slot.value, room, into, expiry)?);
        let Err(error) = request.send().await else { return Ok(MoveResult::Done) };
        let name = &self.place.rule.slot_value;
        if let Some(refused) = refusal(&error, (key, target), name, room) {
            return Ok(refused);
        }
        if is_contended(error.code(), &error_text(&error)) {
            return Ok(MoveResult::ConcurrentChange);
        }
        Err(error).context(|| format!("cannot move slot `{key}` into `{target}`"))
    }

    /// Returns the deletion of a slot, on the condition that the slot is unchanged.
    fn deletion(&self, key: &str, slot: Slot) -> Result<TransactWriteItem> {
        let mut delete = Delete::builder()
            .table_name(&self.place.slots_table)
            .key(&self.place.rule.slot_key, SdkValue::S(key.to_owned()))
            .expression_attribute_names("#value", &self.place.rule.slot_value)
            .expression_attribute_values(":value", number(slot.value));
        let mut condition = "#value = :value".to_owned();
        if let Some(ttl) = &self.ttl {
            delete = delete.expression_attribute_names("#ttl", ttl);
            condition += guard_of_expiry(slot.expiry);
            if let Some(expiry) = slot.expiry {
                delete = delete.expression_attribute_values(":was", number(expiry));
            }
        }
        let delete = delete.condition_expression(condition).build();
        let delete = delete?;
        Ok(TransactWriteItem::builder().delete(delete).build())
    }

    /// Returns the update that adds the value to the target and sets their common expiry.
    fn addition(
        &self,
        target: &str,
        value: Number,
        (low, high): (Number, Number),
        into: Target,
        expiry: Option<Number>,
    ) -> Result<TransactWriteItem> {
        let mut update = Update::builder()
            .table_name(&self.place.slots_table)
            .key(&self.place.rule.slot_key, SdkValue::S(target.to_owned()))
            .expression_attribute_names("#value", &self.place.rule.slot_value)
            .expression_attribute_values(":value", number(value))
            .expression_attribute_values(":low", number(low))
            .expression_attribute_values(":high", number(high))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let mut condition =
            "(attribute_not_exists(#value) OR #value BETWEEN :low AND :high)".to_owned();
        let mut change = "ADD #value :value".to_owned();
        if let Some(ttl) = &self.ttl {
            update = update.expression_attribute_names("#ttl", ttl);
            let was = match into {
                Target::Missing => None,
                Target::There { expiry } => expiry,
            };
            condition += guard_of_expiry(was);
            if let Some(was) = was {
                update = update.expression_attribute_values(":was", number(was));
            }
            if let Some(expiry) = expiry.filter(|expiry| Some(*expiry) != was) {
                change = format!("SET #ttl = :expiry {change}");
                update = update.expression_attribute_values(":expiry", number(expiry));
                if into == Target::Missing {
                    // A vote may create the target in the meantime, as an item without an expiry.
                    condition += " AND attribute_not_exists(#value)";
                }
            }
        }
        let update = update.condition_expression(condition).update_expression(change).build();
        let update = update?;
        Ok(TransactWriteItem::builder().update(update).build())
    }
}

fn number(number: Number) -> SdkValue {
    to_sdk_value(&AttributeValue::N(number))
}

/// Returns the condition that a slot's expiry is unchanged.
fn guard_of_expiry(was: Option<Number>) -> &'static str {
    match was {
        Some(_) => " AND #ttl = :was",
        None => " AND attribute_not_exists(#ttl)",
    }
}

/// Returns the common expiry of two slots: the later time, so that no value expires early.
///
/// # Errors
/// When only one of the slots expires, so that the common expiry is not defined.
fn expiry_together(slot: Option<Number>, into: Target) -> Result<Option<Number>, ()> {
    match (slot, into) {
        (slot, Target::Missing) => Ok(slot),
        (Some(slot), Target::There { expiry: Some(target) }) => Ok(Some(slot.max(target))),
        (None, Target::There { expiry: None }) => Ok(None),
        (Some(_), Target::There { expiry: None }) | (None, Target::There { expiry: Some(_) }) => {
            Err(())
        }
    }
}

fn without_room(key: &str, target: &str) -> MoveResult {
    MoveResult::Refused(format!(
        "slot `{key}` cannot be moved: slot `{target}` is not a number, or would leave the range that totals hold exactly ({SUMMABLE}); correct slot `{target}`"
    ))
}

/// Returns why a transaction was cancelled, if a retry would fail too. The transaction's first
/// operation is the deletion of the slot, which fails after a vote. The second operation is the
/// addition to the target, which also fails if the target's expiry changed.
fn refusal(
    error: &SdkError<TransactWriteItemsError>,
    (key, target): (&str, &str),
    name: &str,
    (low, high): (Number, Number),
) -> Option<MoveResult> {
    let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) =
        error.as_service_error()
    else {
        return None;
    };
    let [deletion, addition] = cancelled.cancellation_reasons() else { return None };
    let is = |reason: &CancellationReason, code: &str| reason.code() == Some(code);
    for (reason, slot) in [(addition, target), (deletion, key)] {
        if is(reason, "ValidationError") {
            let why = reason.message().unwrap_or("DynamoDB gave no reason");
            return Some(MoveResult::Refused(format!(
                "slot `{key}` cannot be moved, because DynamoDB refused slot `{slot}`: {why}"
            )));
        }
    }
    let target_item = addition.item().cloned().and_then(|item| from_sdk_item(item).ok());
    // A target that was deleted in the meantime can take any valid value.
    let has_room = target_item.is_none_or(|item| match item.get(name) {
        None => true,
        Some(AttributeValue::N(value)) => (low..=high).contains(value),
        Some(_) => false,
    });
    // The slot's value is unchanged, so the deletion did not fail.
    let is_unchanged = matches!(deletion.code(), None | Some("None"));
    let is_full = is_unchanged && is(addition, "ConditionalCheckFailed") && !has_room;
    is_full.then(|| without_room(key, target))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::testing::place;
    use super::*;
    use testing::store::TestStore;

    async fn put(store: &TestStore, slot: &str, attributes: &[(&str, SdkValue)]) {
        let put = store.client.put_item().table_name("votes");
        let put = put.item("p", SdkValue::S(slot.to_owned()));
        let put = attributes.iter().fold(put, |put, (name, value)| put.item(*name, value.clone()));
        put.send().await.unwrap();
    }

    /// Returns all slots as strings, without their keys.
    async fn slots(store: &TestStore) -> BTreeMap<String, String> {
        let items = store.client.scan().table_name("votes").send().await.unwrap().items.unwrap();
        let items = items.into_iter().map(|item| from_sdk_item(item).unwrap());
        let text = |mut item: Item| {
            let key = item.remove("p").unwrap().as_str().unwrap().to_owned();
            (key, model::json::item_to_string(&item))
        };
        items.map(text).collect()
    }

    #[tokio::test]
    async fn expiring_slots_expire_with_their_target_and_nothing_else_is_lost() {
        let store = TestStore::without_ticks().await;
        store.table("votes").await;
        store.expire_by("votes", "until").await;
        let mut place = place(&store.url);
        place.rule.slot_key = "p".to_owned();
        let now = endpoint::store_seconds(&store.url, &store.client).await;
        let number = |number: i64| SdkValue::N(number.to_string());
        let (over, soon, late) = (number(now - 60), number(now + 3_600), number(now + 7_200));
        let votes = |votes: i64| ("votes", number(votes));
        let until = |time: &SdkValue| ("until", time.clone());
        let text = ("until", SdkValue::S("soon".to_owned()));
        let note = ("note", SdkValue::S("x".to_owned()));
        for (slot, attributes) in [
            // The target is missing, or has another expiry.
            ("A#2", vec![votes(3), until(&soon)]),
            ("B#0", vec![votes(1), until(&soon)]),
            ("B#2", vec![votes(3), until(&late)]),
            ("B#4", vec![votes(5), until(&soon)]),
            // Only one of the two slots expires.
            ("C#0", vec![votes(1)]),
            ("C#2", vec![votes(3), until(&soon)]),
            ("D#0", vec![votes(1), until(&soon)]),
            ("D#2", vec![votes(3)]),
            // An expired slot no longer counts: it is not moved, and no value is moved into it.
            ("E#0", vec![votes(1)]),
            ("E#2", vec![votes(3), until(&over)]),
            ("F#0", vec![votes(1), until(&over)]),
            ("F#2", vec![votes(3), until(&soon)]),
            // These slots have more attributes than a value and an expiry.
            ("G#2", vec![votes(3), until(&soon), note.clone()]),
            ("H#2", vec![votes(3), text]),
            ("I#0", vec![votes(1), note]),
            ("I#2", vec![votes(3)]),
        ] {
            put(&store, slot, &attributes).await;
        }
        let mut expected = slots(&store).await;
        let report = run(&place, 2, false).await.unwrap();
        assert_eq!((report.folded, report.left), (4, 5), "{report:?}");
        for slot in ["A#2", "B#2", "B#4", "I#2"] {
            expected.remove(slot).unwrap();
        }
        let (soon, late) = (soon.as_n().unwrap(), late.as_n().unwrap());
        for (slot, text) in [
            ("A#0", format!(r#"{{"until":{{"N":"{soon}"}},"votes":{{"N":"3"}}}}"#)),
            ("B#0", format!(r#"{{"until":{{"N":"{late}"}},"votes":{{"N":"9"}}}}"#)),
            ("I#0", r#"{"note":{"S":"x"},"votes":{"N":"4"}}"#.to_owned()),
        ] {
            expected.insert(slot.to_owned(), text);
        }
        assert_eq!(slots(&store).await, expected);
        let mut named = report.left_named;
        named.sort();
        for (reason, expected) in named.iter().zip([
            "slot `C#2` cannot be moved: only one of this slot and slot `C#0` expires",
            "slot `D#2` cannot be moved: only one of this slot and slot `D#0` expires",
            "slot `F#2` cannot be moved yet: slot `F#0` has expired",
            "slot `G#2`: a move would lose the slot's attribute `note`",
            "slot `H#2`: a move would lose the slot's attribute `until`",
        ]) {
            assert!(reason.starts_with(expected), "{reason}");
        }
    }

    /// Between the read of the target and the transaction, the target was created or its expiry
    /// changed.
    #[tokio::test]
    async fn a_target_whose_time_was_changed_meanwhile_is_read_again() {
        let store = TestStore::open().await;
        store.table("votes").await;
        let mut place = place(&store.url);
        place.rule.slot_key = "p".to_owned();
        let slots =
            Slots { place: &place, ttl: Some("until".to_owned()), now: 0, forgets_loads: false };
        let n = |number: u64| SdkValue::N(number.to_string());
        put(&store, "A#0", &[("votes", n(1)), ("until", n(8))]).await;
        put(&store, "A#2", &[("votes", n(3)), ("until", n(9))]).await;
        let slot = Slot { value: Number::from(3_u64), expiry: Some(Number::from(9_u64)) };
        for into in [Target::Missing, Target::There { expiry: Some(Number::from(7_u64)) }] {
            let moved = slots.try_to_move("A#2", slot, "A#0", into).await;
            assert_eq!(moved, Ok(MoveResult::ConcurrentChange), "{into:?}");
        }
        let other = Slot { expiry: Some(Number::from(10_u64)), ..slot };
        let into = Target::There { expiry: Some(Number::from(8_u64)) };
        assert_eq!(
            slots.try_to_move("A#2", other, "A#0", into).await,
            Ok(MoveResult::ConcurrentChange)
        );
        assert_eq!(slots.move_slot("A#2", "A#0").await, Ok(MoveResult::Done));
    }

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
        let report = run(&place, 2, false).await.unwrap();
        assert_eq!((report.folded, report.left), (2, 4));
        let mut named = report.left_named;
        named.sort();
        for (reason, expected) in named.iter().zip([
            "slot `F#2` cannot be moved: slot `F#0` is not a number, or would leave the range",
            "slot `G#2` cannot be moved: slot `G#0` is not a number",
            "slot `K#2`: slot value `votes`=",
            "slot `L#2` cannot be moved: slot `L#0` is not a number",
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
