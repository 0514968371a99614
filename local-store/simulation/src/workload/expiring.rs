//! Items that expire soon, whose time is sometimes extended at the last moment. Each key has one
//! client, which therefore knows which times it may have.

use super::{Client, item, number, update, write};
use crate::history::Fate;
use crate::request::{Answer, Change, EXPIRES_AT, Endpoint, Expression, KEY, Request};

/// Keys of one client.
const KEYS: usize = 4;
/// An item lives for 2 to this many seconds.
const LIFE_SECONDS: u64 = 9;

/// Runs until the end is signalled. `name` is of this client only.
pub async fn run<E: Endpoint>(mut client: Client<E>, name: &str) {
    // Of each key the times that it may have now, if it is there.
    let mut times: Vec<Vec<u64>> = vec![Vec::new(); KEYS];
    while client.think().await {
        let place = client.choose(KEYS - 1);
        let key = format!("expiring-{name}-{place}");
        let action = client.choose(9);
        let life = 2 + client.random.next_u64() % (LIFE_SECONDS - 1);
        let time = client.endpoint.now_seconds() + life;
        let Some(known) = times.get_mut(place) else { return };
        match action {
            0..4 => store(&client, &key, time, known, false).await,
            4..7 => store(&client, &key, time, known, true).await,
            _ => look(&client, &key, known).await,
        }
    }
}

/// Puts the item, or extends it if it is there, with this time.
async fn store<E: Endpoint>(
    client: &Client<E>,
    key: &str,
    time: u64,
    known: &mut Vec<u64>,
    extend: bool,
) {
    let id = client.history.write_id();
    let request = if extend {
        let text = format!(", {EXPIRES_AT} = :t");
        let change = Expression::new(&text).with(":t", number(time));
        let exists = Expression::new(&format!("attribute_exists({KEY})"));
        update(key, id, &change, Some(exists))
    } else {
        write(key, Change::Put(item(key, id).with(EXPIRES_AT, number(time))))
    };
    let fate = match client.ask(Request::Write(request)).await {
        Ok(Answer::Written { .. }) => {
            known.clear();
            known.push(time);
            Fate::Acknowledged
        }
        Ok(Answer::ConditionFailed(_)) if extend => Fate::NotMade,
        Ok(other) => return client.strange("a write of an expiring item", &other),
        Err(fate) => fate,
    };
    // What is not there is not extended.
    if fate == Fate::Unknown && !(extend && known.is_empty()) {
        known.push(time);
    }
    client.history.wrote(id, key, fate);
}

/// Looks whether the item is there still. One that is gone may have had any of the times.
async fn look<E: Endpoint>(client: &Client<E>, key: &str, known: &[u64]) {
    match client.ask(Request::Get { keys: vec![key.to_owned()], strong: true }).await {
        Ok(Answer::Items(items)) => {
            let gone = items.first().is_none_or(Option::is_none);
            if let (true, Some(time)) = (gone, known.iter().min()) {
                let now = client.endpoint.now_seconds();
                client.history.records().gone.push((key.to_owned(), *time, now));
            }
        }
        Ok(other) => client.strange("a read", &other),
        Err(_) => {}
    }
}
