//! Clients that read several items in one request, and then replace some of them on condition that
//! the other items are unchanged. The checker sees an isolation anomaly as a cycle of dependencies.

use std::collections::BTreeMap;

use super::{Client, item, number, write};
use crate::checkers::linearizability::State;
use crate::checkers::serializability::Transaction;
use crate::history::{WriteOutcome, state_of};
use crate::request::{Answer, Change, Endpoint, Expression, KEY, Request, Write};

/// The number of items. It is small, so that transactions conflict. Items are never deleted.
const ITEMS: usize = 6;
/// The maximum number of items of one transaction.
const ITEMS_MAX: usize = 4;

fn name(place: usize) -> String {
    format!("shared-{place}")
}

/// Runs until the signal to end.
pub async fn run<E: Endpoint>(mut client: Client<E>) {
    let mut known: BTreeMap<String, State> = BTreeMap::new();
    while client.pause().await {
        let keys = choose(&mut client);
        match client.choose(9) {
            0..3 => read(&client, keys, &mut known).await,
            3..8 => transact(&mut client, keys, &mut known).await,
            _ => replace(&client, keys, &mut known).await,
        }
    }
}

/// Returns some of the items, in random order.
fn choose<E: Endpoint>(client: &mut Client<E>) -> Vec<String> {
    let count = 2 + client.choose(ITEMS_MAX - 2);
    let (mut place, step) = (client.choose(ITEMS - 1), 1 + 4 * client.choose(1));
    let mut keys = Vec::new();
    for _ in 0..count {
        keys.push(name(place));
        // Both possible steps, 1 and 5, are coprime to 6, so no item occurs twice.
        place = (place + step) % ITEMS;
    }
    keys
}

async fn read<E: Endpoint>(
    client: &Client<E>,
    keys: Vec<String>,
    known: &mut BTreeMap<String, State>,
) {
    let call = client.history.tick();
    match client.send(Request::Get { keys: keys.clone(), strong: true }).await {
        Ok(Answer::Items(items)) => {
            let states = items.iter().map(|item| state_of(item.as_ref()));
            let reads: Vec<(String, State)> = keys.into_iter().zip(states).collect();
            known.extend(reads.iter().cloned());
            let end = Some(client.history.tick());
            let transaction = Transaction { call, end, reads, writes: Vec::new() };
            client.history.transacted(transaction, WriteOutcome::Acknowledged);
        }
        Ok(other) => client.record_defect("a read of several items", &other),
        Err(_) => {}
    }
}

fn still(state: State) -> Expression {
    match state {
        Some(value) => Expression::new("w = :e").with(":e", number(value)),
        None => Expression::new(&format!("attribute_not_exists({KEY})")),
    }
}

/// Replaces the last items and checks the other items. Each operation has the condition that its item is
/// unchanged since it was read.
async fn transact<E: Endpoint>(
    client: &mut Client<E>,
    keys: Vec<String>,
    known: &mut BTreeMap<String, State>,
) {
    let checked = client.choose(keys.len() - 1);
    let (mut writes, mut reads, mut stored) = (Vec::new(), Vec::new(), Vec::new());
    for (place, key) in keys.into_iter().enumerate() {
        let state = known.get(&key).copied();
        let change = if place < checked {
            Change::Check
        } else {
            let id = client.history.write_id();
            stored.push((key.clone(), id));
            Change::Put(item(&key, id))
        };
        // An item whose state is unknown is replaced without a condition. Some other items, chosen
        // at random, are also replaced without a condition.
        let is_asked = place < checked || (state.is_some() && client.choose(3) > 0);
        let condition = is_asked.then(|| still(state.unwrap_or_default()));
        if is_asked {
            reads.push((key.clone(), state.unwrap_or_default()));
        }
        writes.push(Write { key, change, condition });
    }
    let call = client.history.tick();
    let token = stored.first().map(|(_, id)| format!("shared-{id}"));
    let fate = match token.filter(|_| client.choose(2) == 0) {
        Some(token) => client.retry_transaction(token, writes).await,
        None => match client.send(Request::Transact(None, writes)).await {
            Ok(Answer::Transacted) => WriteOutcome::Acknowledged,
            Ok(Answer::Cancelled) => WriteOutcome::NotApplied,
            Ok(other) => return client.record_defect("a transaction", &other),
            Err(fate) => fate,
        },
    };
    let end = Some(client.history.tick());
    for (key, id) in &stored {
        client.history.wrote(*id, key, fate);
        match fate {
            WriteOutcome::Acknowledged => drop(known.insert(key.clone(), Some(*id))),
            // The current state is unknown now, so the client must read it again.
            WriteOutcome::NotApplied | WriteOutcome::Unknown => drop(known.remove(key)),
        }
    }
    client.history.transacted(Transaction { call, end, reads, writes: stored }, fate);
}

/// Replaces one item. The answer contains its previous value.
async fn replace<E: Endpoint>(
    client: &Client<E>,
    keys: Vec<String>,
    known: &mut BTreeMap<String, State>,
) {
    let Some(key) = keys.into_iter().next() else { return };
    let id = client.history.write_id();
    let call = client.history.tick();
    let answer = client.send(Request::Write(write(&key, Change::Put(item(&key, id))))).await;
    let end = Some(client.history.tick());
    let (reads, fate) = match answer {
        Ok(Answer::Written { old, .. }) => {
            known.insert(key.clone(), Some(id));
            (vec![(key.clone(), state_of(old.as_ref()))], WriteOutcome::Acknowledged)
        }
        Ok(other) => return client.record_defect("a put", &other),
        Err(fate) => (Vec::new(), fate),
    };
    client.history.wrote(id, &key, fate);
    let writes = vec![(key, id)];
    client.history.transacted(Transaction { call, end, reads, writes }, fate);
}
