//! The checker of the stream. The stream must contain each committed change of an item exactly
//! once, in the order of the item's changes, with the right images. A write that changes nothing
//! has no record. A delete by TTL is marked as a delete by TTL and concerns an expired item.
//!
//! The checker verifies the entire final stream, and the records that readers saw during the run.

use std::collections::{BTreeMap, BTreeSet};

use model::json::item_to_string;
use model::{EventName, Item, StreamRecord};

use super::linearizability::State;
use super::serializability::Versions;
use crate::history::{Reading, WriteOutcome, state_of};
use crate::request::{EXPIRES_AT, KEY, Shard};

/// A shard with all its records, including trimmed records.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardRecords {
    /// The shard.
    pub shard: Shard,
    /// The records of the shard in read order.
    pub records: Vec<StreamRecord>,
}

/// The known facts that the stream is checked against.
#[derive(Debug)]
pub struct Facts<'a> {
    /// Every write that stores an item: by the id of the write, its key and its outcome.
    pub writes: &'a BTreeMap<u64, (String, WriteOutcome)>,
    /// Every delete that a client requested, by key.
    pub deletes: &'a BTreeMap<String, Vec<(WriteOutcome, State)>>,
    /// The final table, by key.
    pub table: &'a BTreeMap<String, Item>,
    /// The latest store time that any node can have, in epoch seconds.
    pub latest_seconds: u64,
    /// Whether all records come from one log. Sequence numbers are unique only within one log.
    pub has_one_log: bool,
}

/// Checks the entire stream of a table. The stream must have been enabled from the beginning, and
/// no record may have been trimmed.
#[must_use]
pub fn check(shards: &[ShardRecords], facts: &Facts<'_>) -> Vec<String> {
    let mut wrong = check_shards(shards);
    let mut all: Vec<(&Shard, &StreamRecord)> = shards
        .iter()
        .flat_map(|found| found.records.iter().map(move |record| (&found.shard, record)))
        .collect();
    all.sort_by(|(_, a), (_, b)| a.sequence_number.cmp(&b.sequence_number));
    for pair in all.windows(2) {
        if let [(_, a), (_, b)] = pair
            && facts.has_one_log
            && a.sequence_number == b.sequence_number
        {
            wrong.push(format!("two records have the sequence number {}", a.sequence_number));
        }
    }
    wrong.extend(check_replay(shards, &all, facts.table));
    wrong.extend(check_changes(&all, facts));
    wrong.extend(
        all.iter().filter_map(|(_, record)| check_time_to_live(record, facts.latest_seconds)),
    );
    wrong
}

/// Returns the versions of each item, in the order in which they were stored.
#[must_use]
pub fn versions(shards: &[ShardRecords]) -> Versions {
    let mut all: Vec<&StreamRecord> = shards.iter().flat_map(|found| &found.records).collect();
    all.sort_by(|a, b| a.sequence_number.cmp(&b.sequence_number));
    let mut versions = Versions::new();
    for record in all {
        if let Some(id) = state_of(record.new_image.as_ref()) {
            let order = versions.entry(key_of(record)).or_default();
            if order.last() != Some(&id) {
                order.push(id);
            }
        }
    }
    versions
}

/// Checks each shard, and that the shard continues its parent.
fn check_shards(shards: &[ShardRecords]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut seen: BTreeMap<&str, &Shard> = BTreeMap::new();
    for ShardRecords { shard, records } in shards {
        let id = &shard.id;
        if !records.is_sorted_by(|a, b| a.sequence_number < b.sequence_number) {
            wrong.push(format!("shard {id}: the sequence numbers are not ascending"));
        }
        let (first, last) = &shard.range;
        for record in records {
            let number = record.sequence_number.as_str();
            if number < first.as_str() || last.as_ref().is_some_and(|last| number > last.as_str()) {
                let last = last.as_deref().unwrap_or("open");
                wrong.push(format!(
                    "shard {id}: sequence number {number} is outside the shard's range {first} to {last}"
                ));
            }
        }
        if let Some(parent) = &shard.parent {
            match seen.get(parent.as_str()) {
                None => wrong.push(format!("shard {id} is not listed after its parent {parent}")),
                Some(parent) => match &parent.range.1 {
                    None => wrong.push(format!("shard {id} has an open parent: {}", parent.id)),
                    Some(last) if first < last => {
                        wrong.push(format!(
                            "shard {id} begins at {first}, before its parent's end at {last}"
                        ));
                    }
                    Some(_) => {}
                },
            }
        }
        seen.insert(id, shard);
    }
    wrong
}

/// Checks that every old image equals the new image of the item's previous record, and that the last image
/// equals the item in the table.
fn check_replay(
    shards: &[ShardRecords],
    all: &[(&Shard, &StreamRecord)],
    table: &BTreeMap<String, Item>,
) -> Vec<String> {
    let parents: BTreeMap<&str, Option<&str>> =
        shards.iter().map(|s| (s.shard.id.as_str(), s.shard.parent.as_deref())).collect();
    let descends = |from: &str, to: &str| {
        let mut place = Some(to);
        // The loop is bounded, because a chain of parents is not longer than the number of shards.
        for _ in 0..=shards.len() {
            match place {
                Some(id) if id == from => return true,
                Some(id) => place = parents.get(id).copied().flatten(),
                None => return false,
            }
        }
        false
    };
    let mut wrong = Vec::new();
    let mut items: BTreeMap<String, (Option<Item>, &str)> = BTreeMap::new();
    for (shard, record) in all {
        let key = key_of(record);
        let number = &record.sequence_number;
        let (before, last_shard) =
            items.get(&key).map_or((None, None), |(item, shard)| (item.as_ref(), Some(*shard)));
        if before != record.old_image.as_ref() {
            wrong.push(format!(
                "{key} at {number}: the old image {} differs from the previous record's new image {}",
                show(record.old_image.as_ref()),
                show(before)
            ));
        }
        if record.old_image == record.new_image {
            wrong.push(format!("{key} at {number}: the record's old and new images are equal"));
        }
        let name = match (&record.old_image, &record.new_image) {
            (None, _) => EventName::Insert,
            (Some(_), Some(_)) => EventName::Modify,
            (Some(_), None) => EventName::Remove,
        };
        if record.event_name != name {
            wrong.push(format!(
                "{key} at {number}: the record's event name is {:?}, but its images imply {name:?}",
                record.event_name
            ));
        }
        if last_shard.is_some_and(|last| !descends(last, &shard.id)) {
            wrong.push(format!(
                "{key} at {number}: the record's shard {} does not descend from {last_shard:?}, the shard of the key's previous record",
                shard.id
            ));
        }
        items.insert(key, (record.new_image.clone(), &shard.id));
    }
    let keys: BTreeSet<&String> = items.keys().chain(table.keys()).collect();
    for key in keys {
        let replayed = items.get(key).and_then(|(item, _)| item.as_ref());
        if replayed != table.get(key) {
            wrong.push(format!(
                "{key}: replaying the stream gives {}, but the table has {}",
                show(replayed),
                show(table.get(key))
            ));
        }
    }
    wrong
}

/// Checks that the stream contains exactly the changes by clients and by TTL.
fn check_changes(all: &[(&Shard, &StreamRecord)], facts: &Facts<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut stored: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut deletes = facts.deletes.clone();
    for (_, record) in all {
        let key = key_of(record);
        let number = &record.sequence_number;
        let (old, new) = (state_of(record.old_image.as_ref()), state_of(record.new_image.as_ref()));
        match new {
            Some(id) if old != new => {
                let second = record.approximate_creation_seconds.unwrap_or_default();
                stored.entry(id).or_default().push(format!("{number} in second {second}"));
                match facts.writes.get(&id) {
                    None => wrong.push(format!("{key} at {number}: no client wrote {id}")),
                    Some((_, WriteOutcome::NotApplied)) => {
                        wrong.push(format!("{key} at {number}: the store rejected the write {id}"));
                    }
                    Some((written, _)) if *written != key => {
                        wrong.push(format!("{key} at {number}: the write {id} went to {written}"));
                    }
                    Some(_) => {}
                }
            }
            None if !record.is_time_to_live() && record.new_image.is_none() => {
                let asked = deletes.entry(key.clone()).or_default();
                let known = asked.iter().position(|d| *d == (WriteOutcome::Acknowledged, old));
                match known.or_else(|| asked.iter().position(|(fate, _)| *fate == WriteOutcome::Unknown)) {
                    Some(place) => drop(asked.swap_remove(place)),
                    None => wrong.push(format!(
                        "{key} at {number}: {old:?} was removed, but neither TTL nor a client deleted it"
                    )),
                }
            }
            _ => {}
        }
    }
    for (id, (key, fate)) in facts.writes {
        let places = stored.get(id).map(Vec::as_slice).unwrap_or_default();
        if places.len() > 1 {
            let (times, places) = (places.len(), places.join(", "));
            wrong.push(format!("{key}: the write {id} is in the stream {times} times: {places}"));
        } else if places.is_empty() && *fate == WriteOutcome::Acknowledged {
            wrong.push(format!("{key}: the acknowledged write {id} is not in the stream"));
        }
    }
    for (key, left) in deletes {
        for (fate, seen) in left {
            if fate == WriteOutcome::Acknowledged && seen.is_some() {
                wrong.push(format!(
                    "{key}: the acknowledged delete of {seen:?} is not in the stream"
                ));
            }
        }
    }
    wrong
}

/// Checks that a record of a delete by TTL concerns an expired item.
fn check_time_to_live(record: &StreamRecord, latest_seconds: u64) -> Option<String> {
    let (key, number) = (key_of(record), &record.sequence_number);
    let created = record.approximate_creation_seconds?;
    if created > latest_seconds {
        return Some(format!(
            "{key} at {number}: the record was created at {created}, after the latest time {latest_seconds}"
        ));
    }
    record.user_identity.as_ref()?;
    if !record.is_time_to_live() {
        return Some(format!("{key} at {number}: a record of TTL must be a delete"));
    }
    let expires_at =
        record.old_image.as_ref()?.get(EXPIRES_AT).and_then(|value| value.as_number()?.to_u64());
    match expires_at {
        Some(time) if time < created => None,
        other => Some(format!(
            "{key} at {number}: TTL removed at {created} an item that expires at {other:?}"
        )),
    }
}

/// Checks that a reader read a contiguous part of a shard's records.
#[must_use]
pub fn check_reading(reading: &Reading, shards: &[ShardRecords]) -> Option<String> {
    let Some(found) = shards.iter().find(|found| found.shard.id == reading.shard) else {
        return Some(format!(
            "a reader read the shard {}, which is not in the final list of shards",
            reading.shard
        ));
    };
    let first = reading.records.first()?;
    let place = found.records.iter().position(|r| r.sequence_number == first.sequence_number);
    let start = match place {
        None => {
            return Some(format!(
                "shard {}: a reader read the record {}, which is no longer in the shard",
                reading.shard, first.sequence_number
            ));
        }
        Some(place) if place > 0 && reading.from_beginning => {
            return Some(format!(
                "shard {}: a reader that started at the beginning missed {place} records",
                reading.shard
            ));
        }
        Some(place) => place,
    };
    let mut taken = found.records.iter().skip(start);
    for record in &reading.records {
        match taken.next() {
            Some(there) if there == record => {}
            there => {
                return Some(format!(
                    "shard {}: a reader read the record {}, but the shard has {:?} at this position",
                    reading.shard,
                    record.sequence_number,
                    there.map(|record| record.sequence_number.as_str())
                ));
            }
        }
    }
    None
}

fn key_of(record: &StreamRecord) -> String {
    record.keys.get(KEY).and_then(|value| value.as_str()).unwrap_or_default().to_owned()
}

fn show(item: Option<&Item>) -> String {
    item.map_or_else(|| "nothing".to_owned(), item_to_string)
}
