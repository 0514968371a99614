//! Reads through each node after all activity has ended. Every node must return the final state, whichever arcs
//! it has.
//!
//! Clients may read old values during a run. These reads find a node that returns them for ever, and reads whose
//! results are incomplete.

use std::time::Duration;

use model::{Item, StreamRecord};

use crate::checkers::End;
use crate::checkers::stream::ShardRecords;
use crate::error::HarnessError;
use crate::request::{Answer, EXPIRES_AT, Failure, Request, Start};
use crate::world::cluster::Cluster;
use crate::world::replica::Replica;
use crate::world::translation::serve;

/// The maximum number of attempts of one read. [`RETRY`] is the pause between two attempts. A node that has just
/// lost a leader answers after a few of them.
const ATTEMPTS_MAX: usize = 10;
const RETRY: Duration = Duration::from_millis(200);
/// The number of records of a page. A shard has several pages, and a page has more bytes than a node fetches
/// from another node at first.
const PAGE: usize = 300;

/// Reads the table and the stream through each node, and compares them with the final state.
pub async fn check(cluster: &Cluster, end: &End) -> Vec<String> {
    let mut wrong = Vec::new();
    for node in cluster.nodes().filter(|node| cluster.is_member(*node)) {
        let Some(replica) = cluster.replica(node) else {
            wrong.push(format!("node {node} is not running"));
            continue;
        };
        for strong in [false, true] {
            let found = check_items(&*replica, end, strong).await;
            wrong.extend(
                found
                    .err()
                    .map(|HarnessError(what)| format!("node {node}, strong {strong}: {what}")),
            );
        }
        for shard in &end.shards {
            let found = check_shard(&*replica, shard).await;
            wrong.extend(found.err().map(|HarnessError(what)| format!("node {node}: {what}")));
        }
    }
    wrong
}

async fn ask(replica: &dyn Replica, request: Request) -> Result<Answer, HarnessError> {
    let mut last = None;
    for _ in 0..ATTEMPTS_MAX {
        match serve(replica, request.clone()).await {
            Ok(answer) => return Ok(answer),
            Err(Failure::Defect(what)) => return Err(HarnessError(what)),
            Err(failure) => last = Some(failure),
        }
        tokio::time::sleep(RETRY).await;
    }
    Err(HarnessError(last.map(|failure| failure.to_string()).unwrap_or_default()))
}

/// Compares the items that never expire. The others may be removed at any time.
async fn check_items(replica: &dyn Replica, end: &End, strong: bool) -> Result<(), HarnessError> {
    let stays = |(_, item): &(&String, &Item)| !item.contains_key(EXPIRES_AT);
    let (keys, expected): (Vec<String>, Vec<Option<Item>>) =
        end.table.iter().filter(stays).map(|(key, item)| (key.clone(), Some(item.clone()))).unzip();
    let Answer::Items(found) = ask(replica, Request::Get { keys: keys.clone(), strong }).await?
    else {
        return Err("unexpected answer to a read of items".into());
    };
    let mut pairs = keys.iter().zip(expected.iter().zip(&found));
    match pairs.find(|(_, (expected, found))| expected != found) {
        Some((key, (expected, found))) => {
            Err(format!("{key} is {found:?} instead of {expected:?}").into())
        }
        None => Ok(()),
    }
}

/// Compares the records of a shard. TTL may have added records since the final state.
async fn check_shard(replica: &dyn Replica, expected: &ShardRecords) -> Result<(), HarnessError> {
    let id = &expected.shard.id;
    let (mut start, mut found) = (Start::TrimHorizon, Vec::<StreamRecord>::new());
    while found.len() < expected.records.len() {
        let request = Request::Records { shard: id.clone(), start: start.clone(), limit: PAGE };
        match ask(replica, request).await? {
            Answer::Records(records, Some(next)) if !records.is_empty() => {
                found.extend(records);
                start = next;
            }
            _ => break,
        }
    }
    found.truncate(expected.records.len());
    if found == expected.records {
        return Ok(());
    }
    let (read, all) = (found.len(), expected.records.len());
    let what =
        format!("shard {id}: the node returns {read} records that differ from the {all} records");
    Err(what.into())
}
