//! `weir counters vote` and `recount`: votes that a voter may change, with the ballots as the truth.
//!
//! A ballot and the slots that it changes are written in one transaction that is guarded by what
//! the ballot was. A recount adds the ballots up and compares them with the slots: what is off
//! twice by the same amount is drift, everything else is a vote on its way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::{
    AttributeValue as SdkValue, Delete, Put, TransactWriteItem, Update as UpdateSlot,
};
use model::{AttributeValue, Item, Number};
use rules::counters::ballot::{Ballot, additions, guard_of, slot_of_voter};
use rules::counters::{Counters, SLOT_COUNT_MAX};

use super::Place;
use super::contention::{Attempts, is_contended};
use crate::load::{error_text, from_sdk_item, to_sdk_item, to_sdk_value};

/// The slot that what is missing is added to. Every counter has it, whatever the number of slots.
const REPAIRED_SLOT: u32 = 0;

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

/// What counters hold, by the ballots and by the slots.
#[derive(Debug, Default)]
struct Sums {
    ballots: BTreeMap<String, Number>,
    slots: BTreeMap<String, Number>,
    /// What is in slot 0 of those counters that have one.
    repaired_in: BTreeMap<String, Number>,
}

/// What was seen of a counter: the sum of its ballots, that of its slots, and slot 0 if it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    ballots: Number,
    slots: Number,
    repaired_in: Option<Number>,
}

impl Sums {
    fn add_ballot(&mut self, ballot: Ballot) -> Result<(), String> {
        add(self.ballots.entry(ballot.counter).or_insert(Number::ZERO), ballot.points)
    }

    /// Whether a counter is compared: it has ballots, or must have had them if it holds anything.
    /// Other counters of the table are not counted by ballots.
    fn compares(&self, counter: &str, prefix: Option<&str>) -> bool {
        self.ballots.contains_key(counter) || prefix.is_some_and(|p| counter.starts_with(p))
    }

    fn add_slot(&mut self, counter: &str, slot: u32, value: Number) -> Result<(), String> {
        if slot == REPAIRED_SLOT {
            self.repaired_in.insert(counter.to_owned(), value);
        }
        add(self.slots.entry(counter.to_owned()).or_insert(Number::ZERO), value)
    }

    /// Number of counters, and those that differ.
    fn differing(&self) -> (usize, BTreeMap<String, Seen>) {
        let every: BTreeSet<&String> = self.ballots.keys().chain(self.slots.keys()).collect();
        let count = every.len();
        let seen = every.into_iter().map(|counter| {
            let sum = |sums: &BTreeMap<String, Number>| sums.get(counter).copied();
            let seen = Seen {
                ballots: sum(&self.ballots).unwrap_or(Number::ZERO),
                slots: sum(&self.slots).unwrap_or(Number::ZERO),
                repaired_in: sum(&self.repaired_in),
            };
            (counter.clone(), seen)
        });
        (count, seen.filter(|(_, seen)| seen.ballots != seen.slots).collect())
    }
}

fn add(sum: &mut Number, more: Number) -> Result<(), String> {
    *sum = sum.checked_add(more).map_err(|error| error.to_string())?;
    Ok(())
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
                return Err(format!(
                    "ballot `{key}`: others write it or its slot all the time; vote again"
                ));
            }
        }
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
        let additions = additions(before, after, self.place.rule.slot_count);
        let additions = additions.map_err(|error| error.to_string())?;
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
            Err(error) if is_contended(error.code(), &error_text(&error)) => Ok(false),
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

    /// Adds all ballots up and compares them with the slots of the counters that they are for, and
    /// of those whose names begin with `prefix`; what differs is looked at again after a grace, and
    /// is drift if nothing of it changed meanwhile.
    ///
    /// # Errors
    /// When a table cannot be read or written.
    pub(super) async fn recount(
        &self,
        prefix: Option<&str>,
        grace: Duration,
        repair: bool,
    ) -> Result<Recount, String> {
        let (mut recount, first) = self.look(prefix).await?;
        if first.is_empty() {
            return Ok(recount);
        }
        tokio::time::sleep(grace).await;
        let (_, second) = self.look(prefix).await?;
        for (counter, seen) in second {
            if first.get(&counter) != Some(&seen) {
                // It is being voted in: what was seen may be a vote between two reads.
                continue;
            }
            let repaired = repair && self.repair(&counter, seen).await?;
            let Seen { ballots, slots, .. } = seen;
            recount.drifted.push(Drift { counter, ballots, slots, repaired });
        }
        Ok(recount)
    }

    async fn look(
        &self,
        prefix: Option<&str>,
    ) -> Result<(Recount, BTreeMap<String, Seen>), String> {
        let mut recount = Recount::default();
        let mut sums = Sums::default();
        let mut failed = None;
        self.scan(&self.table, |item| {
            let added = match Ballot::from_item(&item) {
                Some(ballot) => sums.add_ballot(ballot),
                None => Err(format!("table `{}` holds what is no ballot", self.table)),
            };
            recount.ballots += 1;
            failed = failed.take().or(added.err());
        })
        .await?;
        let rule = Counters { slot_count: SLOT_COUNT_MAX, ..self.place.rule.clone() };
        self.scan(&self.place.slots_table, |item| {
            let key = item.get(&rule.slot_key).and_then(AttributeValue::as_str);
            let slot = key.and_then(|key| rule.parse_slot_key(key).ok());
            let Some((counter, slot)) = slot.filter(|(counter, _)| sums.compares(counter, prefix))
            else {
                return;
            };
            let value = rule.value_of_slot(&item).map_err(|refusal| refusal.to_string());
            let added = value.and_then(|value| sums.add_slot(counter, slot, value));
            failed = failed.take().or(added.err());
        })
        .await?;
        if let Some(reason) = failed {
            return Err(reason);
        }
        let (counters, differing) = sums.differing();
        recount.counters = counters;
        Ok((recount, differing))
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

    /// Adds to slot 0 what is missing, if the slot still holds what was seen: neither an answer that
    /// is lost nor another recount at the same time adds twice.
    async fn repair(&self, counter: &str, seen: Seen) -> Result<bool, String> {
        let place = self.place;
        let failed = |reason: String| format!("cannot repair counter `{counter}`: {reason}");
        let missing = seen.ballots.checked_sub(seen.slots);
        let sum = missing.and_then(|n| seen.repaired_in.unwrap_or(Number::ZERO).checked_add(n));
        let sum = AttributeValue::N(sum.map_err(|error| failed(error.to_string()))?);
        let request = place
            .client
            .update_item()
            .table_name(&place.slots_table)
            .key(&place.rule.slot_key, SdkValue::S(Counters::slot_key_text(counter, REPAIRED_SLOT)))
            .update_expression("SET #value = :sum")
            .expression_attribute_names("#value", &place.rule.slot_value)
            .expression_attribute_values(":sum", to_sdk_value(&sum));
        let request = match seen.repaired_in {
            None => request.condition_expression("attribute_not_exists(#value)"),
            Some(value) => request
                .condition_expression("#value = :seen")
                .expression_attribute_values(":seen", to_sdk_value(&AttributeValue::N(value))),
        };
        let Err(error) = request.send().await else { return Ok(true) };
        let reason = error_text(&error);
        let is_changed = error.code() == Some("ConditionalCheckFailedException");
        // The next recount repairs it.
        if is_changed || is_contended(error.code(), &reason) {
            return Ok(false);
        }
        Err(failed(reason))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tokio::net::TcpListener;

    use super::super::testing::{place, serve};
    use super::*;

    /// Another recount has repaired the counter after this one looked: the slot is not what was
    /// seen, and nothing is added once more.
    #[tokio::test]
    async fn a_repair_is_guarded_by_what_was_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = place(&format!("http://{}", listener.local_addr().unwrap()));
        let ballots = Ballots { place: &place, table: "b".to_owned(), key: "ballot".to_owned() };
        let seen = Seen {
            ballots: Number::from(9_i64),
            slots: Number::from(7_i64),
            repaired_in: Some(Number::from(3_i64)),
        };
        let changed = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"The conditional request failed"}"#;
        let answers = [(200, "{}", false), (400, changed, false)];
        let repairs = async {
            assert_eq!(ballots.repair("A", seen).await, Ok(true));
            assert_eq!(ballots.repair("A", seen).await, Ok(false));
        };
        let (requests, ()) = tokio::join!(serve(listener, &answers), repairs);
        for request in requests {
            let body: Value =
                serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
            assert_eq!(body["ConditionExpression"], "#value = :seen");
            let values = serde_json::json!({":seen": {"N": "3"}, ":sum": {"N": "5"}});
            assert_eq!(body["ExpressionAttributeValues"], values);
        }
    }

    #[test]
    fn a_counter_that_lost_all_its_ballots_is_compared_when_it_is_named() {
        let sums = |prefix: Option<&str>| {
            let mut sums = Sums::default();
            for (counter, points) in [("2026-blue", 2_i64), ("2026-blue", -1), ("2026-gold", 4)] {
                let ballot =
                    Ballot { counter: counter.to_owned(), slot: 0, points: Number::from(points) };
                sums.add_ballot(ballot).unwrap();
            }
            for (counter, slot, value) in [
                ("2026-blue", 0, 3_i64),
                ("2026-blue", 4, -2),
                ("2026-red", 2, 1),
                ("clicks", 0, 7),
            ] {
                if sums.compares(counter, prefix) {
                    sums.add_slot(counter, slot, Number::from(value)).unwrap();
                }
            }
            let (count, differing) = sums.differing();
            let differing = differing.into_iter();
            let texts = differing.map(|(counter, seen)| {
                format!("{counter}: {} by ballots, {} in slots", seen.ballots, seen.slots)
            });
            (count, texts.collect::<Vec<_>>())
        };
        let gold = "2026-gold: 4 by ballots, 0 in slots".to_owned();
        let red = "2026-red: 0 by ballots, 1 in slots".to_owned();
        assert_eq!(sums(None), (2, vec![gold.clone()]));
        assert_eq!(sums(Some("2026-")), (3, vec![gold, red]));
        assert_eq!(sums(Some("")).0, 4);
    }
}
