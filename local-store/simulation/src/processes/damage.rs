//! Damage of a file of a node that is down, like a disk that flips a bit, and reads that find the
//! damage.
//!
//! The clients of the checkers write so little data that a node writes none of it to files.
//! Therefore the store gets a second table, whose large items are in files of every node. Each read
//! of this table is checked.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use locks::Mutex;
use serde_json::{Value, json};

use super::cluster::{Cluster, LOOK};
use super::wire::WireEndpoint;
use crate::error::HarnessError;

/// The name of the table with large items.
const LARGE: &str = "large";
/// The number of the table's items for each arc. [`ITEM_BYTES`] is their size in bytes. A state has
/// up to 16 MB in memory, and each item counts twice because of its stream record.
const ITEMS_PER_ARC: usize = 40;
const ITEM_BYTES: usize = 300_000;
/// The maximum number of times that a write is sent.
const TRIES: usize = 10;
/// The maximum time until a node has written its files, and until damage is found.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The kind of files in which a bit flips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Files {
    /// The files of items.
    Tables,
    /// The files of stream records.
    Queues,
}

impl Files {
    /// Returns the name of the folder in the directory of a state.
    #[must_use]
    pub fn folder(self) -> &'static str {
        match self {
            Self::Tables => "tables",
            Self::Queues => "queues",
        }
    }
}

/// Returns the value of an item. It is incompressible, so that it needs its full size on disk.
fn value(item: usize) -> String {
    let mut state = item as u64 + 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + u8::try_from((state >> 33) % 26).unwrap_or_default())
    };
    (0..ITEM_BYTES).map(|_| next()).collect()
}

/// Creates the table of large items, and writes them.
///
/// # Errors
/// A request was not accepted.
pub async fn fill(endpoint: &WireEndpoint, arcs: usize) -> Result<(), HarnessError> {
    let create = json!({
        "TableName": LARGE, "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "N"}],
        "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
        "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "NEW_IMAGE"},
    });
    send(endpoint, "CreateTable", &create).await?;
    for item in 0..ITEMS_PER_ARC * arcs {
        let item = json!({"p": {"N": item.to_string()}, "v": {"S": value(item)}});
        send(endpoint, "PutItem", &json!({"TableName": LARGE, "Item": item})).await?;
    }
    Ok(())
}

/// Sends a request until it is accepted. The requests are idempotent, except that a second `CreateTable` is
/// refused.
async fn send(
    endpoint: &WireEndpoint,
    operation: &str,
    request: &Value,
) -> Result<(), HarnessError> {
    let mut last = String::new();
    for _ in 0..TRIES {
        match endpoint.send(&format!("DynamoDB_20120810.{operation}"), request).await {
            Ok((200, _)) => return Ok(()),
            Ok((400, answer)) if answer.to_string().contains("ResourceInUseException") => {
                return Ok(());
            }
            other => last = format!("{other:?}"),
        }
        tokio::time::sleep(10 * LOOK).await;
    }
    Err(format!("{operation} of the table `{LARGE}`: {last}").into())
}

/// Returns the largest file of a kind in the newest states of a node, if a large item fits into it.
fn largest_file(node: &Path, files: Files) -> Option<PathBuf> {
    let below = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
    };
    let number = |path: &PathBuf, prefix: &str| -> Option<u64> {
        path.file_name()?.to_str()?.strip_prefix(prefix)?.parse().ok()
    };
    let newest = |arc: &PathBuf| {
        let states = below(arc).into_iter().filter(|path| number(path, "state-").is_some());
        states.max_by_key(|path| number(path, "state-"))
    };
    let arcs = below(node).into_iter().filter(|path| number(path, "arc-").is_some());
    let states = arcs.collect::<Vec<_>>().iter().filter_map(newest).collect::<Vec<_>>();
    let found = states.iter().flat_map(|state| below(&state.join(files.folder())));
    let sized = found.filter_map(|path| Some((fs::metadata(&path).ok()?.len(), path)));
    let (size, path) = sized.max()?;
    (size > ITEM_BYTES as u64).then_some(path)
}

/// Waits until a node has a file of this kind that is large enough.
///
/// # Errors
/// The node writes no such file in time, so no bit could be flipped.
pub async fn wait_for_file(node: &Path, files: Files) -> Result<(), HarnessError> {
    let begun = Instant::now();
    while largest_file(node, files).is_none() {
        if begun.elapsed() > WAIT_MAX {
            let (node, folder) = (node.display(), files.folder());
            return Err(
                format!("no large file in `{folder}` of {node}: no bit can be flipped").into()
            );
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Flips a bit in the middle of the largest file of a node that does not run. The background
/// verification of the node becomes due, as if the last verification were a day old.
///
/// # Errors
/// There is no such file, or it cannot be changed.
pub fn flip_a_bit(node: &Path, files: Files) -> Result<(), HarnessError> {
    let path =
        largest_file(node, files).ok_or("the node has no file in which a bit can be flipped")?;
    let fail = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut file = OpenOptions::new().read(true).write(true).open(&path).map_err(fail)?;
    flip_middle(&mut file).map_err(fail)?;
    if let Some(arc) = path.ancestors().nth(3) {
        // A process that ran only for a short time has stored no progress yet.
        match fs::remove_file(arc.join("scrub")) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(fail(error).into()),
            _ => {}
        }
    }
    Ok(())
}

fn flip_middle(file: &mut File) -> std::io::Result<()> {
    let middle = SeekFrom::Start(file.metadata()?.len() / 2);
    let mut byte = [0];
    file.seek(middle)?;
    file.read_exact(&mut byte)?;
    file.seek(middle)?;
    file.write_all(&byte.map(|byte| byte ^ 1))?;
    file.sync_all()
}

/// Reads the large items or their stream records from a node until the node was set aside.
///
/// # Errors
/// The damage was not found in time, or a read returned a wrong value.
pub async fn read_until_set_aside(
    cluster: &Cluster,
    victim: usize,
    files: Files,
) -> Result<(), HarnessError> {
    let begun = Instant::now();
    while !cluster.has_set_aside(victim) {
        if begun.elapsed() > WAIT_MAX {
            return Err(
                format!("the store did not detect the damage in `{}`", files.folder()).into()
            );
        }
        cluster.find_addresses();
        if let Some(address) = cluster.address(victim) {
            read(address, files).await?;
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Reads all large items or records, until the node fails, and checks the answers.
async fn read(address: SocketAddr, files: Files) -> Result<(), HarnessError> {
    let only = Arc::new(Mutex::new(vec![Some(address)]));
    let endpoint = WireEndpoint::new(&only, 0);
    match files {
        Files::Tables => read_items(&endpoint).await,
        Files::Queues => read_records(&endpoint).await,
    }
}

/// Returns the answer to a request, or `None` if the node failed.
async fn ask(endpoint: &WireEndpoint, target: &str, request: &Value) -> Option<Value> {
    match endpoint.send(target, request).await {
        Ok((200, answer)) => Some(answer),
        _ => None,
    }
}

async fn read_items(endpoint: &WireEndpoint) -> Result<(), HarnessError> {
    let mut request = json!({"TableName": LARGE});
    while let Some(answer) = ask(endpoint, "DynamoDB_20120810.Scan", &request).await {
        list(&answer, "/Items").try_for_each(check)?;
        let Some(last) = answer.get("LastEvaluatedKey") else { break };
        request = json!({"TableName": LARGE, "ExclusiveStartKey": last});
    }
    Ok(())
}

async fn read_records(endpoint: &WireEndpoint) -> Result<(), HarnessError> {
    let streams = async |operation: &str, request: Value| {
        ask(endpoint, &format!("DynamoDBStreams_20120810.{operation}"), &request).await
    };
    let Some(found) = streams("ListStreams", json!({"TableName": LARGE})).await else {
        return Ok(());
    };
    let arn = found.pointer("/Streams/0/StreamArn").cloned().unwrap_or_default();
    let Some(stream) = streams("DescribeStream", json!({"StreamArn": arn})).await else {
        return Ok(());
    };
    for shard in list(&stream, "/StreamDescription/Shards") {
        let place = json!({
            "StreamArn": arn, "ShardId": shard.get("ShardId"), "ShardIteratorType": "TRIM_HORIZON",
        });
        let Some(mut next) = streams("GetShardIterator", place).await else { return Ok(()) };
        let mut name = "ShardIterator";
        while let Some(iterator) = next.get(name).cloned() {
            let request = json!({"ShardIterator": iterator});
            let Some(page) = streams("GetRecords", request).await else { return Ok(()) };
            let records = list(&page, "/Records");
            records
                .filter_map(|record| record.pointer("/dynamodb/NewImage"))
                .try_for_each(check)?;
            if list(&page, "/Records").next().is_none() {
                break;
            }
            (next, name) = (page, "NextShardIterator");
        }
    }
    Ok(())
}

fn list<'a>(answer: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    answer.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// Checks that an item has the value that was written.
fn check(item: &Value) -> Result<(), HarnessError> {
    let text = |pointer: &str| item.pointer(pointer).and_then(Value::as_str);
    let key = text("/p/N").and_then(|key| key.parse().ok());
    match key {
        Some(key) if text("/v/S") == Some(&*value(key)) => Ok(()),
        _ => Err(format!("a read of the large item {key:?} returned a wrong value").into()),
    }
}
