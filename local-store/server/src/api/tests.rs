//! The API's tests as text: `testdata/api/<operation>.txt`, one file for each operation.
//!
//! Goal: every answer and every error text of the API can be proofread. Method: each file is
//! played against a new store; each block is a request and, below `----`, the status and the JSON
//! that it is answered with. `UPDATE=1 cargo test -p server api` writes the answers anew.
//!
//! A request is an operation's name and its JSON, or one of `raw <target> <body>`, `freeze`,
//! `advance <milliseconds>` and `tick`. In a request, `${a*5}` stands for `aaaaa`, and `${Name}`
//! for the string that the last answer with a member of that name had there first. In an answer,
//! what differs from run to run is numbered in the order of its appearance (`SHARD-1`), times are
//! 0, and 40 or more equal characters are written as in a request.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Response, handle};
use crate::store::{Config, Store};
use crate::ticks;

fn open_store(directory: &Path) -> Store {
    let config = Config {
        directory: directory.to_path_buf(),
        region: "us-east-1".to_owned(),
        account: "000000000000".to_owned(),
    };
    Store::open(config, Box::new(|reason| panic!("{reason}"))).unwrap()
}

/// Calls an operation of either API.
async fn call(store: &Store, operation: &str, body: &str) -> Response {
    let streams = ["ListStreams", "DescribeStream", "GetShardIterator", "GetRecords"];
    let api = if streams.contains(&operation) { "DynamoDBStreams" } else { "DynamoDB" };
    handle(store, &format!("{api}_20120810.{operation}"), body.as_bytes()).await
}

/// Plays one file and gives it back as it should be.
struct Player {
    store: Store,
    captured: BTreeMap<String, String>,
    /// What was numbered, by kind.
    numbered: BTreeMap<&'static str, Vec<String>>,
}

impl Player {
    async fn play(&mut self, text: &str) -> String {
        let mut out = Vec::new();
        for block in text.split("\n\n").map(str::trim).filter(|block| !block.is_empty()) {
            let request = block.split("\n----").next().unwrap();
            let command: Vec<&str> =
                request.lines().filter(|line| !line.starts_with('#')).collect();
            if command.is_empty() {
                out.push(request.to_owned());
                continue;
            }
            let answer = self.answer(&command.join("\n")).await;
            out.push(format!("{request}\n----\n{answer}"));
        }
        out.join("\n\n") + "\n"
    }

    async fn answer(&mut self, command: &str) -> String {
        let expanded = self.expand(command);
        let (name, rest) = expanded.split_once(char::is_whitespace).unwrap_or((&expanded, ""));
        let response = match name {
            "freeze" => return format!("frozen {}", self.store.clock().freeze() > Default::default()),
            "advance" => {
                self.store.clock().advance(rest.trim().parse().unwrap());
                return "advanced".to_owned();
            }
            "tick" => {
                ticks::tick(&self.store).await.unwrap();
                return "ticked".to_owned();
            }
            "raw" => {
                let (target, body) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                handle(&self.store, target, body.as_bytes()).await
            }
            operation => call(&self.store, operation, rest).await,
        };
        let mut body: Value = serde_json::from_str(&response.body).unwrap();
        let mut seen = BTreeMap::new();
        self.normalise("", &mut body, &mut seen);
        self.captured.extend(seen);
        compress(&format!("{} {body}", response.status))
    }

    fn expand(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (name, after) = after.split_once('}').unwrap();
            out.push_str(before);
            match name.split_once('*') {
                Some((unit, count)) => out.push_str(&unit.repeat(count.parse().unwrap())),
                None => out.push_str(&self.captured[name]),
            }
            rest = after;
        }
        out + rest
    }

    /// Numbers what differs from run to run, and remembers strings by their member's name.
    fn normalise(&mut self, name: &str, value: &mut Value, seen: &mut BTreeMap<String, String>) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    self.normalise(name, member, seen);
                }
            }
            Value::Array(members) => {
                members.iter_mut().for_each(|member| self.normalise(name, member, seen));
            }
            Value::String(text) => {
                seen.entry(name.to_owned()).or_insert_with(|| text.clone());
                *text = self.normalise_text(name, text);
            }
            Value::Number(_) if name.ends_with("DateTime") => *value = 0.into(),
            Value::Number(_) | Value::Bool(_) | Value::Null => {}
        }
    }

    fn normalise_text(&mut self, name: &str, text: &str) -> String {
        if name.ends_with("ShardIterator") {
            return "ITERATOR".to_owned();
        }
        if name == "eventID" {
            assert_eq!(text.len(), 32);
            return "EVENT".to_owned();
        }
        if name.ends_with("SequenceNumber") {
            return self.number("SEQUENCE", text);
        }
        let mut text = text.to_owned();
        for (kind, start, length) in [("LABEL", "20", 23), ("SHARD", "shardId-", 37)] {
            while let Some(at) = text.match_indices(start).map(|(at, _)| at).find(|at| {
                text.get(*at..at + length).is_some_and(|found| {
                    kind == "SHARD" || found.ends_with(|c: char| c.is_ascii_digit()) && found.contains('T') && found.contains(':')
                })
            }) {
                let found = text[at..at + length].to_owned();
                text = text.replace(&found, &self.number(kind, &found));
            }
        }
        text
    }

    fn number(&mut self, kind: &'static str, text: &str) -> String {
        let known = self.numbered.entry(kind).or_default();
        let position = known.iter().position(|k| k == text).unwrap_or_else(|| {
            known.push(text.to_owned());
            known.len() - 1
        });
        format!("{kind}-{}", position + 1)
    }
}

/// Writes long runs of one character as `${a*100}`.
fn compress(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| c != first).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        let count = run.chars().count();
        if count < 40 {
            out.push_str(run);
        } else {
            let _ = write!(out, "${{{first}*{count}}}");
        }
        rest = after;
    }
    out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_as_recorded() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/api");
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 15, "{files:?}");
    let mut different = String::new();
    for file in files {
        let recorded = fs::read_to_string(&file).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let store = open_store(directory.path());
        let mut player =
            Player { store, captured: BTreeMap::new(), numbered: BTreeMap::new() };
        let played = player.play(&recorded).await;
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&file, played).unwrap();
            continue;
        }
        for (expected, got) in recorded.lines().zip(played.lines()) {
            if expected != got {
                let _ = writeln!(different, "{}\n- {expected}\n+ {got}", file.display());
            }
        }
        assert_eq!(recorded.lines().count(), played.lines().count(), "{}", file.display());
    }
    assert!(different.is_empty(), "{different}");
}
