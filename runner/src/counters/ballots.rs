//! `weir counters vote` and `recount`: votes that a voter may change, with the ballots as the truth.
//!
//! A ballot and the slots that it changes are written in one transaction that is guarded by what
//! the ballot was. A recount adds the ballots up and compares them with the slots: what is off
//! twice by the same amount is drift, everything else is a vote on its way.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::{
    AttributeValue as SdkValue, Delete, Put, TransactWriteItem, Update as UpdateSlot,
};
use model::{AttributeValue, Item, Number};
use rules::counters::ballot::{Ballot, additions, guard_of, slot_of_voter};
use rules::counters::{Counters, SLOT_COUNT_MAX};

use super::Place;
use crate::load::{error_text, from_sdk_item, to_sdk_item, to_sdk_value};

/// Attempts at a ballot or slot that others write at the same time.
const ATTEMPTS_MAX: u32 = 50;
/// Longest wait between two of them.
const WAIT_MAX: Duration = Duration::from_millis(200);

/// Ballots and what they are counted in.
pub(crate) struct Ballots<'p> {
    pub(crate) place: &'p Place,
    pub(crate) table: String,
    pub(crate) key: String,
}

/// A counter whose slots are not what its ballots say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Drift {
    pub(super) counter: String,
    pub(super) ballots: Number,
    pub(super) slots: Number,
    pub(super) repaired: bool,
}

/// What a recount found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recount {
    pub(super) ballots: u64,
    pub(super) counters: usize,
    pub(super) drifted: Vec<Drift>,
}

impl Ballots<'_> {
    /// Makes the voter's vote in a poll be `points` for a counter; without points, no vote at all.
    /// Answers whether that changed anything. A ballot is named by poll and voter, so a voter has
    /// one vote in each poll, whichever counter it is for.
    ///
    /// # Errors
    /// When the tables cannot be read or written. The vote then counts once or not at all; sending
    /// it again is safe.
    pub(crate) async fn vote(
        &self,
        poll: &str,
        voter: &str,
        vote: Option<(&str, Number)>,
    ) -> Result<bool, String> {
        let key = format!("{poll}#{voter}");
        let after = vote.map(|(counter, points)| Ballot {
            counter: counter.to_owned(),
            slot: slot_of_voter(voter, self.place.rule.slot_count),
            points,
        });
        let mut wait = Duration::from_millis(2);
        for _ in 0..ATTEMPTS_MAX {
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
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(WAIT_MAX);
        }
        Err(format!("ballot `{key}`: others write it or its slot all the time; vote again"))
    }

    async fn ballot(&self, key: &str) -> Result<Option<Ballot>, String> {
        let request = self.place.client.get_item().table_name(&self.table).consistent_read(true);
        let answer = request.key(&self.key, SdkValue::S(key.to_owned())).send().await;
        let answer = answer.map_err(|error| format!("ballot `{key}`: {}", error_text(&error)))?;
        let Some(item) = answer.item else { return Ok(None) };
        let ballot = Ballot::from_item(&from_sdk_item(item)?);
        ballot.map(Some).ok_or_else(|| {
            format!("ballot `{key}` has no `counter`, `counted_in` and `points`; it is no ballot")
        })
    }

    /// One transaction; `false` when the ballot changed meanwhile, or another one is at its slot.
    async fn try_to_change(
        &self,
        key: &str,
        before: Option<&Ballot>,
        after: Option<&Ballot>,
    ) -> Result<bool, String> {
        let mut request = self.place.client.transact_write_items();
        request = request.transact_items(self.change_of_ballot(key, before, after)?);
        let additions = additions(before, after).map_err(|error| error.to_string())?;
        for (slot, points) in additions {
            let update = UpdateSlot::builder()
                .table_name(&self.place.slots_table)
                .key(&self.place.rule.slot_key, SdkValue::S(slot))
                .update_expression("ADD #value :points")
                .expression_attribute_names("#value", &self.place.rule.slot_value)
                .expression_attribute_values(":points", to_sdk_value(&AttributeValue::N(points)))
                .build()
                .map_err(|error| error.to_string())?;
            request = request.transact_items(TransactWriteItem::builder().update(update).build());
        }
        match request.send().await {
            Ok(_) => Ok(true),
            Err(error)
                if matches!(
                    error.code(),
                    Some("TransactionCanceledException" | "TransactionConflictException")
                ) && !error_text(&error).contains("ValidationError") =>
            {
                Ok(false)
            }
            Err(error) => Err(format!("ballot `{key}`: {}", error_text(&error))),
        }
    }

    fn change_of_ballot(
        &self,
        key: &str,
        before: Option<&Ballot>,
        after: Option<&Ballot>,
    ) -> Result<TransactWriteItem, String> {
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
                let ballot = to_sdk_item(&after.to_item().with(&self.key, key));
                let put = Put::builder()
                    .table_name(&self.table)
                    .set_item(Some(ballot))
                    .condition_expression(condition)
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .build();
                item.put(put.map_err(|error| error.to_string())?).build()
            }
            None => {
                let delete = Delete::builder()
                    .table_name(&self.table)
                    .key(&self.key, SdkValue::S(key.to_owned()))
                    .condition_expression(condition)
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .build();
                item.delete(delete.map_err(|error| error.to_string())?).build()
            }
        })
    }

    /// Adds all ballots up and compares them with the slots of the counters that they are for; what
    /// differs is looked at again after a grace, and is drift if nothing of it changed meanwhile.
    ///
    /// # Errors
    /// When a table cannot be read or written.
    pub(super) async fn recount(&self, grace: Duration, repair: bool) -> Result<Recount, String> {
        let (mut recount, first) = self.look().await?;
        if first.is_empty() {
            return Ok(recount);
        }
        tokio::time::sleep(grace).await;
        let (_, second) = self.look().await?;
        for (counter, (ballots, slots)) in second {
            if first.get(&counter) != Some(&(ballots, slots)) {
                // It is being voted in: what was seen may be a vote between two reads.
                continue;
            }
            let missing = ballots.checked_sub(slots).map_err(|error| error.to_string())?;
            let repaired = repair && self.repair(&counter, missing).await?;
            recount.drifted.push(Drift { counter, ballots, slots, repaired });
        }
        Ok(recount)
    }

    /// The counters that differ: what the ballots say, and what the slots do.
    async fn look(&self) -> Result<(Recount, BTreeMap<String, (Number, Number)>), String> {
        let mut recount = Recount::default();
        let mut ballots: BTreeMap<String, Number> = BTreeMap::new();
        let mut failed = None;
        self.scan(&self.table, |item| match Ballot::from_item(&item) {
            Some(ballot) => {
                recount.ballots += 1;
                let sum = ballots.entry(ballot.counter).or_insert(Number::ZERO);
                match sum.checked_add(ballot.points) {
                    Ok(more) => *sum = more,
                    Err(error) => failed = Some(error.to_string()),
                }
            }
            None => failed = Some(format!("table `{}` holds what is no ballot", self.table)),
        })
        .await?;
        let mut slots: BTreeMap<String, Number> = BTreeMap::new();
        let rule = Counters { slot_count: SLOT_COUNT_MAX, ..self.place.rule.clone() };
        self.scan(&self.place.slots_table, |item| {
            let key = item.get(&rule.slot_key).and_then(AttributeValue::as_str);
            let counter = key.and_then(|key| Some(rule.parse_slot_key(key).ok()?.0));
            // Other counters of the table are not counted by ballots.
            let Some(counter) = counter.filter(|counter| ballots.contains_key(*counter)) else {
                return;
            };
            let sum = slots.entry(counter.to_owned()).or_insert(Number::ZERO);
            match rule.value_of_slot(&item).map(|value| sum.checked_add(value)) {
                Ok(Ok(more)) => *sum = more,
                Ok(Err(error)) => failed = Some(error.to_string()),
                Err(refusal) => failed = Some(refusal.to_string()),
            }
        })
        .await?;
        if let Some(reason) = failed {
            return Err(reason);
        }
        recount.counters = ballots.len();
        let differing = ballots.into_iter().map(|(counter, sum)| {
            let slots = slots.get(&counter).copied().unwrap_or(Number::ZERO);
            (counter, (sum, slots))
        });
        Ok((recount, differing.filter(|(_, (ballots, slots))| ballots != slots).collect()))
    }

    async fn scan(&self, table: &str, mut visit: impl FnMut(Item)) -> Result<(), String> {
        let scan = self.place.client.scan().table_name(table).consistent_read(true);
        let mut items = scan.into_paginator().items().send();
        while let Some(item) = items.next().await {
            let item = item.map_err(|error| error_text(&error)).and_then(from_sdk_item);
            visit(item.map_err(|error| format!("cannot read table `{table}`: {error}"))?);
        }
        Ok(())
    }

    /// Adds to slot 0 what is missing, if the slot is still what is read now: an answer that is lost
    /// does not add twice.
    async fn repair(&self, counter: &str, missing: Number) -> Result<bool, String> {
        let place = self.place;
        let key = SdkValue::S(Counters::slot_key_text(counter, 0));
        let failed = |reason: String| format!("cannot repair counter `{counter}`: {reason}");
        let request = place.client.get_item().table_name(&place.slots_table).consistent_read(true);
        let found = request.key(&place.rule.slot_key, key.clone()).send().await;
        let found = found.map_err(|error| failed(error_text(&error)))?.item;
        let found = found.map(from_sdk_item).transpose()?;
        let value = found.as_ref().map(|item| place.rule.value_of_slot(item)).transpose();
        let value = value.map_err(|refusal| failed(refusal.to_string()))?;
        let sum = value.unwrap_or(Number::ZERO).checked_add(missing);
        let sum = AttributeValue::N(sum.map_err(|error| failed(error.to_string()))?);
        let request = place
            .client
            .update_item()
            .table_name(&place.slots_table)
            .key(&place.rule.slot_key, key)
            .update_expression("SET #value = :sum")
            .expression_attribute_names("#value", &place.rule.slot_value)
            .expression_attribute_values(":sum", to_sdk_value(&sum));
        let request = match value {
            None => request.condition_expression("attribute_not_exists(#value)"),
            Some(value) => request
                .condition_expression("#value = :found")
                .expression_attribute_values(":found", to_sdk_value(&AttributeValue::N(value))),
        };
        match request.send().await {
            Ok(_) => Ok(true),
            Err(error) if error.code() == Some("ConditionalCheckFailedException") => Ok(false),
            Err(error) => Err(failed(error_text(&error))),
        }
    }
}
