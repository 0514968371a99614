//! Clients that read the stream. They begin at a random position, pause, and continue.

use super::Client;
use crate::history::Reading;
use crate::request::{Answer, Endpoint, Request, Shard, Start};

/// The maximum number of pages of a shard that a reader reads before it chooses another shard.
const PAGES_MAX: usize = 12;
/// The maximum number of records of a page.
const PAGE_MAX: usize = 20;

/// Runs until the signal to end.
pub async fn run<E: Endpoint>(mut client: Client<E>) {
    while client.pause().await {
        let shards = match client.send(Request::Shards).await {
            Ok(Answer::Shards(shards)) => shards,
            Ok(other) => {
                client.record_defect("a listing of shards", &other);
                continue;
            }
            Err(_) => continue,
        };
        let chosen = client.choose(shards.len().saturating_sub(1));
        if let Some(shard) = shards.get(chosen) {
            let reading = read(&mut client, shard).await;
            client.history.records().readings.push(reading);
        }
    }
}

/// Reads some pages of a shard, with pauses in between.
async fn read<E: Endpoint>(client: &mut Client<E>, shard: &Shard) -> Reading {
    let from_beginning = client.choose(2) > 0;
    let mut start = if from_beginning { Start::TrimHorizon } else { Start::Latest };
    let mut reading = Reading { shard: shard.id.clone(), from_beginning, records: Vec::new() };
    let pages = 1 + client.choose(PAGES_MAX - 1);
    for _ in 0..pages {
        let limit = 1 + client.choose(PAGE_MAX - 1);
        let request = Request::Records { shard: shard.id.clone(), start: start.clone(), limit };
        match client.send(request).await {
            Ok(Answer::Records(mut records, next)) => {
                // A position `At` a record is inclusive, so the page contains this record again.
                if matches!(start, Start::At(_))
                    && records.first() == reading.records.last()
                    && !records.is_empty()
                    && !reading.records.is_empty()
                {
                    records.remove(0);
                }
                reading.records.extend(records);
                start = next.unwrap_or(start);
            }
            Ok(other) => client.record_defect("a read of a shard", &other),
            // After an error, the reader retries from the same position.
            Err(_) => {}
        }
        if let Some(last) = reading.records.last()
            && client.choose(3) == 0
        {
            start = Start::At(last.sequence_number.as_str().to_owned());
        }
        if !client.pause().await {
            break;
        }
    }
    reading
}
