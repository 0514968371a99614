//! Tests of the entire pipeline under faults from outside: a missing bucket, and a restart during
//! processing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::process::{Up, wait_for, weir};

const LIMIT: Duration = Duration::from_secs(90);

fn parquet_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => parquet_files(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|ending| ending == "parquet"))
        .collect()
}

#[test]
fn a_missing_bucket_delays_the_archive_and_loses_nothing() {
    let up = Up::start(&[]);
    let bucket = fs::read_dir(up.path("s3"))
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().contains("archive"))
        })
        .unwrap();
    fs::remove_dir_all(&bucket).unwrap();
    let item =
        json!({"year": {"N": "2026"}, "title": {"S": "Late"}, "expires_at": {"N": "1800000000"}});
    up.store.ok("PutItem", &json!({"TableName": "movies", "Item": item}));
    up.store.advance_clock(1000 * 24 * 60 * 60 * 1000);
    wait_for("the item to expire", LIMIT, || up.store.scan("movies").is_empty().then_some(()));
    wait_for("the missing bucket to be named", LIMIT, || {
        let logs = fs::read_to_string(up.path("logs/ArchiveFunction.log")).unwrap_or_default();
        (up.process.log() + &logs).contains("bucket").then_some(())
    });
    assert_eq!(parquet_files(&bucket).len(), 0);
    fs::create_dir(&bucket).unwrap();
    let files = wait_for("the archive", LIMIT, || {
        let files = parquet_files(&bucket);
        (!files.is_empty()).then_some(files)
    });
    assert_eq!(files.len(), 1);
    assert!(files[0].display().to_string().contains("/table=movies/dt="), "{files:?}");
}

/// Returns the totals by counter, from the table `totals`.
fn totals(up: &Up) -> BTreeMap<String, String> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let items = up.store.scan("totals");
    items.iter().map(|item| (text(&item["counter"]["S"]), text(&item["total"]["N"]))).collect()
}

fn expected(votes: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("poll".to_owned(), votes.to_owned())])
}

fn vote(up: &Up, slot: u32) {
    let request = json!({
        "TableName": "votes", "Key": {"slot": {"S": format!("poll#{slot}")}},
        "UpdateExpression": "ADD votes :one", "ExpressionAttributeValues": {":one": {"N": "1"}},
    });
    up.store.ok("UpdateItem", &request);
}

#[test]
fn shards_that_rotate_while_votes_arrive_lose_none() {
    let up = Up::start(&["--duplicate-deliveries"]);
    for round in 1..=4u64 {
        (0..20).for_each(|slot| vote(&up, slot));
        // The store closes shards after four hours, and each closed shard gets children.
        up.store.advance_clock(5 * 60 * 60 * 1000);
        let rotated = usize::try_from(4 * (round + 1)).unwrap();
        wait_for("the shards to rotate", LIMIT, || (shards(&up).len() == rotated).then_some(()));
        let votes = (round * 20).to_string();
        wait_for("the votes", LIMIT, || (totals(&up) == expected(&votes)).then_some(()));
    }
    assert_eq!(shards(&up).iter().filter(|shard| shard["open"] == true).count(), 4);
}

/// Splits the partition with the most tokens in its middle.
fn split_widest(up: &Up) {
    let answer = up.store.request("GET", "/_weir/partitions/votes", "", b"").unwrap().body;
    let token = |partition: &serde_json::Value, name: &str| -> u64 {
        partition[name].as_str().unwrap().parse().unwrap()
    };
    let width = |p: &serde_json::Value| token(p, "last_token") - token(p, "first_token");
    let partitions = answer["partitions"].as_array().unwrap();
    let widest = partitions.iter().max_by_key(|p| width(p)).unwrap();
    let at = token(widest, "first_token") + width(widest) / 2;
    let body = json!({"partition": widest["number"], "at": at.to_string()}).to_string();
    let path = "/_weir/partitions/votes/split";
    let split = up.store.request("POST", path, "", body.as_bytes()).unwrap();
    // The injected faults may have split the same partition just before.
    assert!([200, 409].contains(&split.status), "{}", split.body);
}

#[test]
fn partitions_that_split_while_votes_arrive_lose_none() {
    let up = Up::start(&["--chaos", "20261121"]);
    for round in 1..=6u64 {
        (0..20).for_each(|slot| vote(&up, slot));
        split_widest(&up);
        (0..20).for_each(|slot| vote(&up, slot));
        let votes = (round * 40).to_string();
        wait_for("the votes", LIMIT, || (totals(&up) == expected(&votes)).then_some(()));
    }
    let shards = shards(&up);
    let closed = shards.iter().filter(|shard| shard["open"] == false).count();
    // The injected faults split further partitions.
    assert!(closed >= 5, "{shards:?}");
    assert_eq!(shards.len(), 4 + 2 * closed, "each split closed one and opened two");
}

/// Returns the shards of the votes' stream from the admin endpoint.
fn shards(up: &Up) -> Vec<serde_json::Value> {
    let body = up.store.request("GET", "/_weir/streams/votes", "", b"").unwrap().body;
    body["shards"].as_array().unwrap().clone()
}

#[test]
fn a_second_up_finds_the_data_and_resumes() {
    let mut up = Up::start(&["--duplicate-deliveries"]);
    (0..20).for_each(|slot| vote(&up, slot));
    wait_for("20 votes", LIMIT, || (totals(&up) == expected("20")).then_some(()));
    assert!(up.process.interrupt(), "Ctrl-C ends it well");
    assert!(!up.folder.path().join(".weir/running.json").exists());
    drop(up.process);

    let mut up = Up::start_in(up.folder, &[]);
    assert_eq!(totals(&up), expected("20"));
    (0..5).for_each(|slot| vote(&up, slot));
    wait_for("25 votes", LIMIT, || (totals(&up) == expected("25")).then_some(()));
    // The second process of `weir up` is killed with `kill -9`; the third process continues its
    // work.
    (5..10).for_each(|slot| vote(&up, slot));
    let old = up.process.id();
    let functions = wait_for("a running function", LIMIT, || {
        Some(instances(&up)).filter(|processes| !processes.is_empty())
    });
    up.process.kill();
    drop(up.process);
    // The status file of the killed process reports no problem, but `weir status` must not trust
    // this file.
    let status = weir(up.folder.path(), &["status", "--exit-code"]);
    let said = String::from_utf8_lossy(&status.stderr).into_owned();
    assert_eq!(status.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("(process {old}) was killed or crashed")), "{said}");
    wait_for("the functions to end by themselves", LIMIT, || {
        functions.iter().all(|process| !is_running(process)).then_some(())
    });
    let up = Up::start_in(up.folder, &[]);
    assert_ne!(up.process.id(), old);
    wait_for("30 votes", LIMIT, || (totals(&up) == expected("30")).then_some(()));
}

/// Returns the process ids of the function `counters`, from its log.
fn instances(up: &Up) -> BTreeSet<String> {
    let log = fs::read_to_string(up.path("logs/CountersFunction.log")).unwrap_or_default();
    let processes = log.lines().filter_map(|line| line.split_once("\tProcess: "));
    let processes: BTreeSet<_> = processes.map(|(_, process)| process.trim().to_owned()).collect();
    processes.into_iter().filter(|process| is_running(process)).collect()
}

/// Returns whether a process with this id runs the function; returns false for a zombie.
fn is_running(process: &str) -> bool {
    let asked = Command::new("ps").args(["-o", "stat=,comm=", "-p", process]).output().unwrap();
    let text = String::from_utf8_lossy(&asked.stdout).into_owned();
    text.contains("counters") && !text.trim_start().starts_with('Z')
}
