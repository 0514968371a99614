//! `weir counters vote` and `recount`: votes that a voter may change. The ballots are the source of
//! truth.
//!
//! A ballot and the slots that it changes are written in one transaction, on the condition that the
//! ballot has not changed. A recount sums the ballots and compares the sums with the slots. It
//! reads the ballots and the slots twice. A difference is drift if no ballot and no slot changed
//! between both reads; otherwise a vote is in flight. The sums alone do not show this, because
//! several changed votes can have the same sum as before.
//!
//! A vote whose points do not fit into a slot is rejected before it is written. Otherwise the
//! function would refuse the slot with all its votes.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue as SdkValue, CancellationReason, ConditionCheck, Delete, Put, TransactWriteItem,
    Update as UpdateSlot,
};
use model::limits::TRANSACTION_OPERATIONS_MAX;
use model::{AttributeValue, Item, Number};
use rules::counters::ballot::{Ballot, DRAWN, additions, ballot_key, guard_of};
use rules::counters::{Counters, SLOT_COUNT_MAX, SUMMABLE, is_summable, room_for, room_for_change};
use rules::versions::edition::Digest;

use super::Place;
use client::attribute::{from_sdk_item, to_sdk_item, to_sdk_value};
use client::contention::{Attempts, is_contended};
use client::failure::{Context, Failure, Result, fatal};
use client::interruption;
use client::output::say;
use client::sdk_error::error_text;

/// The slot to which a repair adds the difference. Every counter has slot 0, whatever its number of
/// slots is.
const REPAIRED_SLOT: u32 = 0;

/// The message for an item in the table of ballots that is not a ballot.
const NO_BALLOT: &str =
    "the item is not a ballot: `counter`, `counted_in` or `points` is missing or invalid";

/// A table of ballots, and the slots that count them.
pub(crate) struct Ballots<'p> {
    pub(crate) place: &'p Place,
    pub(crate) table: String,
    pub(crate) key: String,
}

/// A counter whose slots differ from its ballots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Drift {
    pub(super) counter: String,
    pub(super) ballots: Number,
    pub(super) slots: Number,
    pub(super) repaired: bool,
}

/// For each counter, the sum of its ballots and the sum of its slots.
#[derive(Debug, Default)]
struct Sums {
    seen: BTreeMap<String, CounterRead>,
    /// The counters with a value that cannot be summed, and the reasons. They are not compared.
    unreadable: BTreeMap<String, BTreeSet<String>>,
    /// Items in the table of ballots that are not ballots and do not name a counter.
    foreign: BTreeSet<String>,
    /// True if a foreign item may be a ballot without the name of its counter. In that case the
    /// slots contain a vote without a ballot.
    is_one_lost: bool,
}

/// The state of a counter in one read: its ballots and its slots, each with its sum.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CounterRead {
    /// Digest of all ballot items of the counter.
    every_ballot: Digest,
    ballots: Number,
    every_slot: BTreeMap<u32, Number>,
    slots: Number,
}

impl CounterRead {
    fn nothing() -> Self {
        Self {
            every_ballot: Digest::default(),
            ballots: Number::ZERO,
            every_slot: BTreeMap::new(),
            slots: Number::ZERO,
        }
    }
}

impl Sums {
    fn of(&mut self, counter: &str) -> &mut CounterRead {
        self.seen.entry(counter.to_owned()).or_insert_with(CounterRead::nothing)
    }

    /// Adds a ballot; `item` is the stored item of the ballot.
    fn add_ballot(&mut self, ballot: &Ballot, item: &Item) {
        let seen = self.of(&ballot.counter);
        seen.every_ballot.add(item);
        let added = add(&mut seen.ballots, ballot.points);
        // A counter with an empty name cannot be compared, because no reader finds its slots.
        let named = if ballot.counter.is_empty() {
            Err(fatal!("the counter's name is empty; withdraw these votes"))
        } else {
            added
        };
        if let Err(why) = named {
            self.leave_out(
                &ballot.counter,
                format!("the ballots of counter `{}`: {why}", ballot.counter),
            );
        }
    }

    /// Adds an item that is not a ballot. If the item names a counter, it may be a vote for this
    /// counter, which is then not compared. If the item names no counter, only its key shows
    /// whether it may be a vote.
    fn add_foreign(&mut self, table: &str, key: &str, item: &Item, prefix: Option<&str>) {
        let what = format!("item `{key}` of table `{table}`: {NO_BALLOT}");
        match item.get("counter").and_then(AttributeValue::as_str) {
            Some(counter) if is_meant(counter, prefix) => self.leave_out(counter, what),
            Some(_) => {}
            None if key.contains('#') => {
                self.is_one_lost = true;
                self.foreign.insert(what);
            }
            None if prefix.is_none() => {
                self.foreign.insert(what);
            }
            None => {}
        }
    }

    fn leave_out(&mut self, counter: &str, what: String) {
        self.unreadable.entry(counter.to_owned()).or_default().insert(what);
    }

    /// Returns true if a counter is compared: its name begins with `prefix` or, without a prefix,
    /// it has ballots. The votes for all other counters have no ballots.
    fn compares(&self, counter: &str, prefix: Option<&str>) -> bool {
        match prefix {
            Some(prefix) => counter.starts_with(prefix),
            None => self.seen.contains_key(counter),
        }
    }

    /// Adds a slot's value, or the reason why the slot has none.
    fn add_slot(&mut self, counter: &str, slot: u32, value: Result<Number>) {
        let added = value.and_then(|value| {
            let seen = self.of(counter);
            seen.every_slot.insert(slot, value);
            add(&mut seen.slots, value)
        });
        if let Err(why) = added {
            let key = Counters::slot_key_text(counter, slot);
            self.leave_out(counter, format!("slot `{key}`: {why}"));
        }
    }

    /// Returns the counters whose ballots and slots have different sums, without the counters that
    /// cannot be summed.
    fn differing(mut self) -> BTreeMap<String, CounterRead> {
        self.seen.retain(|counter, seen| {
            seen.ballots != seen.slots && !self.unreadable.contains_key(counter)
        });
        self.seen
    }
}

/// Returns true if the recount covers the counter: there is no prefix, or the counter's name begins
/// with `prefix`.
fn is_meant(counter: &str, prefix: Option<&str>) -> bool {
    prefix.is_none_or(|prefix| counter.starts_with(prefix))
}

fn add(sum: &mut Number, more: Number) -> Result<()> {
    *sum = sum.checked_add(more).map_err(Failure::fatal)?;
    Ok(())
}

/// The result of a recount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recount {
    pub(super) ballots: u64,
    pub(super) counters: usize,
    /// Number of slots whose counter has no ballot. They are not compared.
    pub(super) without_ballots: u64,
    pub(super) drifted: Vec<Drift>,
    /// Slots or counters that cannot be summed, with the reasons. These counters are not compared.
    pub(super) unreadable: Vec<String>,
    /// True if the recount repairs nothing, because a ballot may lack the name of its counter.
    pub(super) is_unrepairable: bool,
}

impl Ballots<'_> {
    /// Sets a voter's vote in a poll to `points` for a counter; `None` withdraws the vote. Returns
    /// whether the vote changed. A ballot's key is the poll and the voter, so a voter has one vote
    /// per poll.
    ///
    /// # Errors
    /// When the vote cannot be counted, or a table cannot be read or written. The vote is then
    /// counted once or not at all; a retry is safe.
    pub(crate) async fn vote(
        &self,
        poll: &str,
        voter: &str,
        vote: Option<(&str, Number)>,
    ) -> Result<bool> {
        let key = ballot_key(poll, voter).map_err(Failure::fatal)?;
        let after =
            vote.map(|(counter, points)| Ballot::cast(&self.place.rule, voter, counter, points));
        let after = after.transpose().map_err(Failure::fatal)?;
        let mut attempts = Attempts::first();
        loop {
            let before = self.ballot(&key).await?;
            let is_same = match (&before, &after) {
                (Some(before), Some(after)) => before.is_same_vote(after),
                (None, None) => true,
                _ => false,
            };
            if is_same {
                return Ok(false);
            }
            if self.try_to_change(&key, before.as_ref(), after.as_ref()).await? {
                return Ok(true);
            }
            if !attempts.next().await {
                return Err(Failure::Retry(format!(
                    "ballot `{key}`: nothing was counted, because of concurrent writes to the ballot or its slot; run the command again"
                )));
            }
        }
    }

    async fn ballot(&self, key: &str) -> Result<Option<Ballot>> {
        let request = self.place.client.get_item().table_name(&self.table).consistent_read(true);
        let answer = request.key(&self.key, SdkValue::S(key.to_owned())).send().await;
        let answer = answer.map_err(|error| self.unread(&self.table, error));
        let answer = answer.context(|| format!("ballot `{key}`"))?;
        let Some(item) = answer.item else { return Ok(None) };
        let ballot = Ballot::from_item(&from_sdk_item(item)?);
        ballot.map(Some).ok_or_else(|| fatal!("ballot `{key}`: {NO_BALLOT}"))
    }

    /// Runs one transaction. Returns `false` if the ballot changed since it was read, or if another
    /// transaction uses its slot.
    async fn try_to_change(
        &self,
        key: &str,
        before: Option<&Ballot>,
        after: Option<&Ballot>,
    ) -> Result<bool> {
        let mut request = self.place.client.transact_write_items();
        request = request.transact_items(self.change_of_ballot(key, before, after)?);
        let additions = additions(before, after, self.place.rule.slot_count);
        let additions = additions.map_err(Failure::fatal)?;
        let slots: Vec<String> = additions.keys().cloned().collect();
        // A stored ballot may have points that do not fit into a slot. Its slot is unreadable until
        // that vote is withdrawn.
        let is_counted = before.is_none_or(|before| is_summable(&before.points));
        for (slot, points) in additions {
            let room = if is_counted { room_for_change(points) } else { room_for(points) };
            request = request.transact_items(self.addition(slot, points, room)?);
        }
        let Err(error) = request.send().await else { return Ok(true) };
        if let Some(slot) = slot_without_room(&error, &slots) {
            return Err(fatal!(
                "ballot `{key}`: nothing was counted, because slot `{slot}` is not a number, or would leave the range that totals hold exactly ({SUMMABLE}); check it with `weir counters recount`"
            ));
        }
        if is_contended(error.code(), &error_text(&error)) {
            return Ok(false);
        }
        Err(error).context(|| format!("ballot `{key}`"))
    }

    /// Returns the update that adds points to a slot if the slot's current value is within `room`.
    fn addition(
        &self,
        slot: String,
        points: Number,
        room: Option<(Number, Number)>,
    ) -> Result<TransactWriteItem> {
        let number = |number: Number| to_sdk_value(&AttributeValue::N(number));
        let update = UpdateSlot::builder()
            .table_name(&self.place.slots_table)
            .key(&self.place.rule.slot_key, SdkValue::S(slot))
            .update_expression("ADD #value :points")
            .expression_attribute_names("#value", &self.place.rule.slot_value)
            .expression_attribute_values(":points", number(points));
        let update = match room {
            Some((low, high)) => update
                // The points become the value of a slot that does not exist yet.
                .condition_expression(match is_summable(&points) {
                    true => "attribute_not_exists(#value) OR #value BETWEEN :low AND :high",
                    false => "#value BETWEEN :low AND :high",
                })
                .expression_attribute_values(":low", number(low))
                .expression_attribute_values(":high", number(high)),
            None => update,
        };
        let update = update.build()?;
        Ok(TransactWriteItem::builder().update(update).build())
    }

    fn change_of_ballot(
        &self,
        key: &str,
        before: Option<&Ballot>,
        after: Option<&Ballot>,
    ) -> Result<TransactWriteItem> {
        let (mut names, mut values) = (BTreeMap::new(), BTreeMap::new());
        let condition = match before {
            None => {
                names.insert("#key".to_owned(), self.key.clone());
                "attribute_not_exists(#key)".to_owned()
            }
            Some(before) => {
                let mut parts = Vec::new();
                for (number, (name, value)) in guard_of(before).into_iter().enumerate() {
                    names.insert(format!("#n{number}"), name.to_owned());
                    values.insert(format!(":v{number}"), to_sdk_value(&value));
                    parts.push(format!("#n{number} = :v{number}"));
                }
                parts.join(" AND ")
            }
        };
        let values = (!values.is_empty()).then(|| values.into_iter().collect());
        let names = Some(names.into_iter().collect());
        let item = TransactWriteItem::builder();
        Ok(match after {
            Some(after) => {
                // A random value lets a recount detect a vote that was changed and changed back.
                // Without this value, the recount would report the slots' state between the two
                // changes as drift.
                let drawn = RandomState::new().hash_one(0_u8);
                let ballot = after.to_item().with(DRAWN, Number::from(drawn));
                let ballot = to_sdk_item(&ballot.with(&self.key, key));
                let put = Put::builder()
                    .table_name(&self.table)
                    .set_item(Some(ballot))
                    .condition_expression(condition)
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .build();
                item.put(put?).build()
            }
            None => {
                let delete = Delete::builder()
                    .table_name(&self.table)
                    .key(&self.key, SdkValue::S(key.to_owned()))
                    .condition_expression(condition)
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .build();
                item.delete(delete?).build()
            }
        })
    }

    /// Sums all ballots and compares the sums with the slots of their counters, or of all counters
    /// whose names begin with `prefix`. Counters that differ are compared again after a grace
    /// period. A difference is drift if none of the counter's ballots and slots changed between the
    /// two comparisons.
    ///
    /// # Errors
    /// When a table cannot be read or written.
    pub(super) async fn recount(
        &self,
        prefix: Option<&str>,
        grace: Duration,
        repair: bool,
    ) -> Result<Recount> {
        let (mut recount, first) = self.look(prefix).await?;
        if first.is_empty() {
            return Ok(recount);
        }
        tokio::time::sleep(grace).await;
        let (again, second) = self.look(prefix).await?;
        recount.unreadable = again.unreadable;
        recount.is_unrepairable |= again.is_unrepairable;
        for (counter, seen) in second {
            if first.get(&counter) != Some(&seen) {
                // Voting continues, so the difference may be a vote that arrived between two reads.
                continue;
            }
            let may_repair = repair && !recount.is_unrepairable;
            let repaired = may_repair && self.repair(&counter, &seen).await?;
            let drifted = recount.drifted.len() + 1;
            interruption::reached(format!(
                "counters compared up to `{counter}`: {drifted} differ from their ballots"
            ));
            let CounterRead { ballots, slots, .. } = seen;
            recount.drifted.push(Drift { counter, ballots, slots, repaired });
        }
        Ok(recount)
    }

    async fn look(&self, prefix: Option<&str>) -> Result<(Recount, BTreeMap<String, CounterRead>)> {
        let mut recount = Recount::default();
        let mut sums = Sums::default();
        self.scan(&self.table, |item| match Ballot::from_item(&item) {
            Some(ballot) if is_meant(&ballot.counter, prefix) => {
                sums.add_ballot(&ballot, &item);
                recount.ballots += 1;
            }
            Some(_) => {}
            None => {
                let key = item.get(&self.key).and_then(AttributeValue::as_str).unwrap_or_default();
                sums.add_foreign(&self.table, key, &item, prefix);
            }
        })
        .await?;
        let rule = Counters { slot_count: SLOT_COUNT_MAX, ..self.place.rule.clone() };
        let mut without_ballots = 0;
        self.scan(&self.place.slots_table, |item| {
            let key = item.get(&rule.slot_key).and_then(AttributeValue::as_str);
            let slot = key.and_then(|key| rule.parse_slot_key(key).ok());
            let Some((counter, slot)) = slot else { return };
            if !sums.compares(counter, prefix) {
                without_ballots += u64::from(prefix.is_none());
                return;
            }
            let value = rule.value_of_slot(&item).map_err(Failure::fatal);
            sums.add_slot(counter, slot, value);
        })
        .await?;
        recount.counters = sums.seen.len();
        recount.without_ballots = without_ballots;
        let unreadable = sums.unreadable.values().flatten().chain(&sums.foreign);
        recount.unreadable = unreadable.cloned().collect();
        recount.is_unrepairable = sums.is_one_lost;
        Ok((recount, sums.differing()))
    }

    async fn scan(&self, table: &str, mut visit: impl FnMut(Item)) -> Result<()> {
        let scan = self.place.client.scan().table_name(table).consistent_read(true);
        let mut items = scan.into_paginator().items().send();
        let mut read = 0_u64;
        while let Some(item) = items.next().await {
            let item = item.map_err(|error| self.unread(table, error)).and_then(from_sdk_item);
            read += 1;
            interruption::reached(format!("{read} items of `{table}` read"));
            visit(item.context(|| format!("cannot read table `{table}`"))?);
        }
        Ok(())
    }

    /// Adds the difference to slot 0, on the condition that every slot is unchanged. Without the
    /// condition, the repair could count the difference a second time after a concurrent recount or
    /// a vote in flight. If the response is lost, the SDK retries with the same token, so the
    /// transaction runs once.
    async fn repair(&self, counter: &str, seen: &CounterRead) -> Result<bool> {
        let slot = Counters::slot_key_text(counter, REPAIRED_SLOT);
        let held = seen.every_slot.get(&REPAIRED_SLOT).copied();
        let missing = seen.ballots.checked_sub(seen.slots);
        let sum = missing.and_then(|n| held.unwrap_or(Number::ZERO).checked_add(n));
        let Some(sum) = sum.ok().filter(is_summable) else {
            // After the repair, the function would refuse the slot.
            say(&format!(
                "counter `{counter}` is not repaired: slot `{slot}` would leave the range that totals hold exactly ({SUMMABLE}); withdraw the votes that are outside it"
            ));
            return Ok(false);
        };
        let others = seen.every_slot.iter().filter(|(slot, _)| **slot != REPAIRED_SLOT);
        let checks = others.map(|(slot, value)| self.check_of_slot(counter, *slot, *value));
        let mut parts = checks.collect::<Result<Vec<_>, _>>()?;
        if parts.len() >= TRANSACTION_OPERATIONS_MAX {
            say(&format!(
                "counter `{counter}` is not repaired: it has {} slots, and a transaction can check only {TRANSACTION_OPERATIONS_MAX}; fold it into fewer slots first (`weir counters fold`)",
                seen.every_slot.len()
            ));
            return Ok(false);
        }
        parts.push(self.repair_of_slot(slot, held, sum)?);
        let request = self.place.client.transact_write_items().set_transact_items(Some(parts));
        let Err(error) = request.send().await else { return Ok(true) };
        // The transaction was cancelled without effect; the next recount repairs the difference.
        if is_contended(error.code(), &error_text(&error)) {
            return Ok(false);
        }
        Err(error).context(|| format!("cannot repair counter `{counter}`"))
    }

    /// Returns the update of a slot to `sum`, on the condition that the slot is unchanged.
    fn repair_of_slot(
        &self,
        slot: String,
        held: Option<Number>,
        sum: Number,
    ) -> Result<TransactWriteItem> {
        let number = |number: Number| to_sdk_value(&AttributeValue::N(number));
        let update = UpdateSlot::builder()
            .table_name(&self.place.slots_table)
            .key(&self.place.rule.slot_key, SdkValue::S(slot))
            .update_expression("SET #value = :sum")
            .expression_attribute_names("#value", &self.place.rule.slot_value)
            .expression_attribute_values(":sum", number(sum));
        let update = match held {
            None => update.condition_expression("attribute_not_exists(#value)"),
            Some(held) => update
                .condition_expression("#value = :seen")
                .expression_attribute_values(":seen", number(held)),
        };
        let update = update.build()?;
        Ok(TransactWriteItem::builder().update(update).build())
    }

    /// Returns the condition check that a slot is unchanged.
    fn check_of_slot(&self, counter: &str, slot: u32, value: Number) -> Result<TransactWriteItem> {
        let key = SdkValue::S(Counters::slot_key_text(counter, slot));
        let check = ConditionCheck::builder()
            .table_name(&self.place.slots_table)
            .key(&self.place.rule.slot_key, key)
            .condition_expression("#value = :seen")
            .expression_attribute_names("#value", &self.place.rule.slot_value)
            .expression_attribute_values(":seen", to_sdk_value(&AttributeValue::N(value)))
            .build()?;
        Ok(TransactWriteItem::builder().condition_check(check).build())
    }
}

/// Returns the slot whose value would leave the valid range, if the transaction was cancelled for
/// this reason. The first item of the transaction is the ballot, which a concurrent write may have
/// changed; the other items are slots.
fn slot_without_room<'s>(
    error: &SdkError<TransactWriteItemsError>,
    slots: &'s [String],
) -> Option<&'s String> {
    let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) =
        error.as_service_error()
    else {
        return None;
    };
    let is_failed = |reason: &CancellationReason| reason.code() == Some("ConditionalCheckFailed");
    let (ballot, others) = cancelled.cancellation_reasons().split_first()?;
    let failed = others.iter().position(is_failed).filter(|_| !is_failed(ballot))?;
    slots.get(failed)
}

#[cfg(test)]
mod tests;
