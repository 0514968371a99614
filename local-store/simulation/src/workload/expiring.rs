//! Clients that write items which expire soon, and sometimes extend their expiry time at the last
//! moment. Each key is used by only one client, so the client knows when its items expire. A write
//! of unknown outcome may be applied at any later time, so the client stops using its key.
//!
//! Every write gives the item a new, unique owner. Therefore an index entry that is wrong because
//! of a late change remains wrong until the check.

use super::{Client, item, number, update, write};
use crate::history::WriteOutcome;
use crate::request::{Answer, Change, EXPIRES_AT, Endpoint, Expression, KEY, OWNER, Request};

/// The number of keys of one client.
const KEYS: usize = 4;
/// The maximum lifetime of an item in seconds. The minimum is 2.
const LIFE_SECONDS: u64 = 9;

/// Runs until the signal to end. `name` is unique to this client.
pub async fn run<E: Endpoint>(mut client: Client<E>, name: &str) {
    // For each position, the number of its key, and the expiry time of the item if it exists.
    let mut keys: Vec<(u64, Option<u64>)> = vec![(0, None); KEYS];
    while client.pause().await {
        let place = client.choose(KEYS - 1);
        let action = client.choose(9);
        let life = 2 + client.random.next_u64() % (LIFE_SECONDS - 1);
        let time = client.endpoint.now_seconds() + life;
        let Some((number, expires)) = keys.get_mut(place) else { return };
        let key = format!("expiring-{name}-{place}-{number}");
        if action >= 7 {
            check_exists(&client, &key, *expires).await;
            continue;
        }
        match store(&client, &key, time, action >= 4).await {
            WriteOutcome::Acknowledged => *expires = Some(time),
            WriteOutcome::NotApplied => {}
            WriteOutcome::Unknown => (*number, *expires) = (*number + 1, None),
        }
    }
}

/// Puts an item with the given expiry time, or extends the time of the existing item.
async fn store<E: Endpoint>(
    client: &Client<E>,
    key: &str,
    time: u64,
    extend: bool,
) -> WriteOutcome {
    let id = client.history.write_id();
    let owner = format!("life-{id}");
    let request = if extend {
        let text = format!(", {EXPIRES_AT} = :t, {OWNER} = :o");
        let change = Expression::new(&text).with(":t", number(time)).with(":o", owner);
        let exists = Expression::new(&format!("attribute_exists({KEY})"));
        update(key, id, &change, Some(exists))
    } else {
        write(key, Change::Put(item(key, id).with(EXPIRES_AT, number(time)).with(OWNER, owner)))
    };
    let fate = match client.send(Request::Write(request)).await {
        Ok(Answer::Written { .. }) => WriteOutcome::Acknowledged,
        Ok(Answer::ConditionFailed(_)) if extend => WriteOutcome::NotApplied,
        Ok(other) => {
            client.record_defect("a write of an expiring item", &other);
            WriteOutcome::Unknown
        }
        Err(fate) => fate,
    };
    client.history.wrote(id, key, fate);
    fate
}

/// Checks whether the item still exists.
async fn check_exists<E: Endpoint>(client: &Client<E>, key: &str, expires: Option<u64>) {
    match client.send(Request::Get { keys: vec![key.to_owned()], strong: true }).await {
        Ok(Answer::Items(items)) => {
            let gone = items.first().is_none_or(Option::is_none);
            if let (true, Some(time)) = (gone, expires) {
                let now = client.endpoint.now_seconds();
                client.history.records().missing_expiring.push((key.to_owned(), time, now));
            }
        }
        Ok(other) => client.record_defect("a read", &other),
        Err(_) => {}
    }
}
