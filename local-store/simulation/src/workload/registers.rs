//! Clients that concurrently read, replace, conditionally replace and delete a few items. Every write stores
//! a unique number, and its answer contains the number that it replaced.

use std::collections::BTreeMap;

use super::{Client, item, number, write};
use crate::checkers::linearizability::{Kind, Operation, State};
use crate::history::{WriteOutcome, state_of};
use crate::request::{
    Answer, Change, Endpoint, Expression, Failure, KEY, OWNER, Request, WRITE_ID, Write,
};

/// The number of owners. With several owners, index entries move.
const OWNERS: usize = 5;
/// The number of items to which one request adds a number.
const RAISED: usize = 4;
/// The number of bits of the random number to be added. With this number of bits the sums are
/// unique, and thousands of numbers can be added before the sum overflows.
const RAISE_BITS: u32 = 48;

/// Runs until the signal to end.
pub async fn run<E: Endpoint>(mut client: Client<E>, keys: Vec<String>) {
    let mut known: BTreeMap<String, State> = BTreeMap::new();
    while client.pause().await {
        let Some(key) = keys.get(client.choose(keys.len().saturating_sub(1))).cloned() else {
            return;
        };
        match client.choose(99) {
            0..30 => read(&client, &key, &mut known).await,
            30..40 => read_weakly(&client, &key).await,
            40..60 => put(&mut client, &key, None, &mut known).await,
            60..80 => {
                let expected = known.get(&key).copied().unwrap_or_default();
                put(&mut client, &key, Some(expected), &mut known).await;
            }
            80..90 => delete(&client, &key, &mut known).await,
            90..95 => raise_each(&mut client, &mut known).await,
            _ => touch(&client, &key).await,
        }
    }
}

async fn read<E: Endpoint>(client: &Client<E>, key: &str, known: &mut BTreeMap<String, State>) {
    let call = client.history.tick();
    let answer = client.send(Request::Get { keys: vec![key.to_owned()], strong: true }).await;
    let end = client.history.tick();
    match answer {
        Ok(Answer::Items(items)) => {
            let seen = items.first().and_then(|item| state_of(item.as_ref()));
            known.insert(key.to_owned(), seen);
            let operation = Operation { call, seen: Some((end, seen)), kind: Kind::Read };
            client.history.register(key, operation);
        }
        Ok(other) => client.record_defect("a read", &other),
        Err(_) => {}
    }
}

async fn read_weakly<E: Endpoint>(client: &Client<E>, key: &str) {
    match client.send(Request::Get { keys: vec![key.to_owned()], strong: false }).await {
        Ok(Answer::Items(items)) => {
            let seen = items.first().and_then(|item| state_of(item.as_ref()));
            client.history.records().weak_reads.push((key.to_owned(), seen));
        }
        Ok(other) => client.record_defect("a read", &other),
        Err(_) => {}
    }
}

/// Replaces the item. If `expected` is given, the write has the condition that the item is in this
/// state.
async fn put<E: Endpoint>(
    client: &mut Client<E>,
    key: &str,
    expected: Option<State>,
    known: &mut BTreeMap<String, State>,
) {
    let id = client.history.write_id();
    let owner = format!("o{}", client.choose(OWNERS - 1));
    let condition = expected.map(|expected| match expected {
        Some(value) => Expression::new("w = :e").with(":e", number(value)),
        None => Expression::new("attribute_not_exists(p)"),
    });
    let change = Change::Put(item(key, id).with(OWNER, owner));
    let request = Request::Write(Write { key: key.to_owned(), change, condition });
    let kind = expected.map_or(Kind::Write(id), |expected| Kind::WriteIf(expected, id));
    let call = client.history.tick();
    let answer = client.send(request).await;
    let end = client.history.tick();
    let (operation, fate) = match answer {
        Ok(Answer::Written { old, .. }) => {
            let seen = Some((end, state_of(old.as_ref())));
            known.insert(key.to_owned(), Some(id));
            (Operation { call, seen, kind }, WriteOutcome::Acknowledged)
        }
        Ok(Answer::ConditionFailed(found)) if expected.is_some() => {
            let state = state_of(found.as_ref());
            if Some(state) == expected {
                let what = format!("{key}: the condition {expected:?} failed, although it holds");
                client.history.records().defects.push(what);
            }
            known.insert(key.to_owned(), state);
            // A conditional write whose condition failed counts as a read.
            (
                Operation { call, seen: Some((end, state)), kind: Kind::Read },
                WriteOutcome::NotApplied,
            )
        }
        Ok(other) => return client.record_defect("a put", &other),
        Err(fate) => (Operation { call, seen: None, kind }, fate),
    };
    if operation.seen.is_some() || fate == WriteOutcome::Unknown {
        client.history.register(key, operation);
    }
    client.history.wrote(id, key, fate);
}

async fn delete<E: Endpoint>(client: &Client<E>, key: &str, known: &mut BTreeMap<String, State>) {
    let call = client.history.tick();
    let answer = client.send(Request::Write(write(key, Change::Delete))).await;
    let end = client.history.tick();
    let (seen, fate) = match answer {
        Ok(Answer::Written { old, .. }) => {
            known.insert(key.to_owned(), None);
            (Some((end, state_of(old.as_ref()))), WriteOutcome::Acknowledged)
        }
        Ok(other) => return client.record_defect("a delete", &other),
        Err(WriteOutcome::NotApplied) => return,
        Err(fate) => (None, fate),
    };
    client.history.register(key, Operation { call, seen, kind: Kind::Delete });
    client.history.deleted(key, fate, seen.and_then(|(_, state)| state));
}

/// Adds the same number to several items in one request, on condition that they have their known
/// numbers. The log stores the common part of these writes only once, as a delta encoding, which
/// this request tests.
async fn raise_each<E: Endpoint>(client: &mut Client<E>, known: &mut BTreeMap<String, State>) {
    let by = client.random.next_u64() >> (u64::BITS - RAISE_BITS) | 1;
    let held = known.iter().filter_map(|(key, state)| Some((key.clone(), (*state)?)));
    let mut expected: Vec<(String, u64)> = held.collect();
    let first = client.choose(expected.len().saturating_sub(1));
    expected.rotate_left(first);
    expected.truncate(RAISED);
    if expected.is_empty() {
        return;
    }
    let request = Request::RaiseEach { by, expected: expected.clone() };
    let call = client.history.tick();
    let answer = client.send(request).await;
    let end = client.history.tick();
    let fates: Vec<WriteOutcome> = match answer {
        Ok(Answer::Each(made)) if made.len() == expected.len() => {
            made.into_iter().map(|made| fate_of(client, made)).collect()
        }
        Ok(other) => return client.record_defect("raises", &other),
        Err(fate) => vec![fate; expected.len()],
    };
    for ((key, from), fate) in expected.into_iter().zip(fates) {
        let id = from + by;
        let seen = (fate == WriteOutcome::Acknowledged).then_some((end, Some(from)));
        if fate != WriteOutcome::NotApplied {
            let kind = Kind::WriteIf(Some(from), id);
            client.history.register(&key, Operation { call, seen, kind });
        }
        client.history.wrote(id, &key, fate);
        if fate == WriteOutcome::Acknowledged {
            known.insert(key, Some(id));
        } else {
            // The answer does not contain the current state of the item.
            known.remove(&key);
        }
    }
}

/// Returns the outcome of one of several writes.
fn fate_of<E: Endpoint>(client: &Client<E>, made: Result<bool, Failure>) -> WriteOutcome {
    match made {
        Ok(true) => WriteOutcome::Acknowledged,
        Ok(false) | Err(Failure::Refused(_)) => WriteOutcome::NotApplied,
        Err(Failure::Unknown(_)) => WriteOutcome::Unknown,
        Err(Failure::Defect(what)) => {
            client.history.records().defects.push(what);
            WriteOutcome::Unknown
        }
    }
}

/// Stores the current value again. The item does not change, so there must be no stream record.
async fn touch<E: Endpoint>(client: &Client<E>, key: &str) {
    let change = Change::Update(Expression::new(&format!("SET {WRITE_ID} = {WRITE_ID}")));
    let condition = Some(Expression::new(&format!("attribute_exists({KEY})")));
    let call = client.history.tick();
    let answer =
        client.send(Request::Write(Write { key: key.to_owned(), change, condition })).await;
    let end = client.history.tick();
    let seen = match answer {
        Ok(Answer::Written { new, .. }) => state_of(new.as_ref()),
        Ok(Answer::ConditionFailed(found)) => state_of(found.as_ref()),
        Ok(other) => return client.record_defect("an update", &other),
        Err(_) => return,
    };
    let operation = Operation { call, seen: Some((end, seen)), kind: Kind::Read };
    client.history.register(key, operation);
}
