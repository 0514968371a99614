//! Tests of the API against recorded responses: `testdata/api/<operation>.txt`, one file for each
//! operation.
//!
//! Goal: every response and every error message of the API can be proofread. Method: the test sends the
//! requests of each file to a new store. Each block is a request and, below `----`, the expected status
//! and JSON. `UPDATE=1 cargo test -p server api` records the responses again.
//!
//! Another test sends the same requests to a store of four arcs that enforces throughput. The responses
//! must be the same, except those that `testdata/four_arcs.txt` lists with a reason.
//!
//! A request is an operation's name and its JSON, or one of `raw <target> <body>`, `freeze`, `advance
//! <milliseconds>`, `count` and `enforce` (throughput), `limit-collections <bytes>` and `tick`. In a request, `${a*5}`
//! stands for `aaaaa`. `${Name}` stands for the value of the first string member with this name, in the
//! latest response that has such a member. In a response, values that differ between runs are numbered in
//! the order of their appearance (`SHARD-1`), times are 0, and 40 or more equal characters are written as
//! in a request.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::{call, config, handle};
use crate::api::describe_endpoints::describe_endpoints;
use crate::store::{Config, Store, ticks};
use crate::traffic::Throughput;

/// Sends the requests of a file to a store, and replaces the responses in the file by the actual ones.
struct Player {
    store: Store,
    /// Whether the store's clock moves only here, by a second before each request. A second fills the
    /// buckets of all partitions, so that no response depends on the speed of the machine.
    moves_clock: bool,
    captured: BTreeMap<String, String>,
    /// The values that differ between runs, by kind. The number of a value is its position.
    numbered: BTreeMap<&'static str, Vec<String>>,
}

impl Player {
    async fn play(&mut self, text: &str) -> String {
        let mut out = Vec::new();
        for block in blocks(text) {
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
        // With several arcs, global indexes are updated after their table.
        self.store.indexes_settled().await.unwrap();
        if self.moves_clock {
            self.store.clock().advance(1000);
        }
        let expanded = self.expand(command);
        let (name, rest) = expanded.split_once(char::is_whitespace).unwrap_or((&expanded, ""));
        let response = match name {
            "freeze" => {
                return format!("frozen {}", self.store.clock().freeze() > Default::default());
            }
            "advance" => {
                self.store.clock().advance(rest.trim().parse().unwrap());
                return "advanced".to_owned();
            }
            "count" => {
                self.store.traffic().set_throughput(Throughput::Count);
                return "counted".to_owned();
            }
            "enforce" => {
                self.store.traffic().set_throughput(Throughput::Enforce);
                return "enforced".to_owned();
            }
            "limit-collections" => {
                let bytes_max = rest.trim().parse().unwrap();
                let limit = partition::Command::LimitItemCollections { bytes_max };
                self.store.submit(vec![limit]).await.unwrap();
                return "limited".to_owned();
            }
            "tick" => {
                ticks::tick(&self.store).await.unwrap();
                return "ticked".to_owned();
            }
            "raw" => {
                let (target, body) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                handle(&self.store, target, body.as_bytes()).await
            }
            "DescribeEndpoints" => describe_endpoints("localhost:8000", rest.as_bytes()),
            operation => call(&self.store, operation, rest).await,
        };
        // A few operations have responses without a body.
        let mut body = match response.body.as_str() {
            "" => Value::Null,
            text => serde_json::from_str(text).unwrap(),
        };
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

    /// Replaces the values that differ between runs by numbers. Adds string members to `seen`.
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
        if name == "NextToken" {
            return "TOKEN".to_owned();
        }
        if name == "eventID" {
            assert_eq!(text.len(), 32);
            return "EVENT".to_owned();
        }
        if name.ends_with("SequenceNumber") {
            return self.number("SEQUENCE", text);
        }
        if name == "RevisionId" {
            return self.number("REVISION", text);
        }
        let mut text = text.to_owned();
        for (position, known) in self.numbered.get("REVISION").into_iter().flatten().enumerate() {
            text = text.replace(known, &format!("REVISION-{}", position + 1));
        }
        for (kind, start, length) in [("LABEL", "20", 23), ("SHARD", "shardId-", 37)] {
            while let Some(at) = text.match_indices(start).map(|(at, _)| at).find(|at| {
                text.get(*at..at + length).is_some_and(|found| {
                    kind == "SHARD"
                        || found.ends_with(|c: char| c.is_ascii_digit())
                            && found.contains('T')
                            && found.contains(':')
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

/// Splits a file at empty lines.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    text.split("\n\n").map(str::trim).filter(|block| !block.is_empty())
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

/// Returns the recorded files, in the order of their names.
fn recorded_files() -> Vec<PathBuf> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/api");
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 15, "{files:?}");
    files
}

/// Sends the requests of a file to a new store with the given number of arcs. The store does its
/// periodic work only for the request `tick`.
async fn play(recorded: &str, arcs: u32, throughput: Throughput) -> String {
    let directory = tempfile::tempdir().unwrap();
    let config = Config { arcs, ..config(directory.path()) };
    let on_fatal = Box::new(|reason: &str| panic!("{reason}"));
    let store = Store::open_without_ticks(config, on_fatal).await.unwrap();
    store.traffic().set_throughput(throughput);
    let moves_clock = throughput == Throughput::Enforce && !recorded.contains("\nfreeze\n");
    if moves_clock {
        store.clock().freeze();
    }
    let (captured, numbered) = (BTreeMap::new(), BTreeMap::new());
    Player { store, moves_clock, captured, numbered }.play(recorded).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_as_recorded() {
    let mut different = String::new();
    for file in recorded_files() {
        let recorded = fs::read_to_string(&file).unwrap();
        let played = play(&recorded, 1, Throughput::Count).await;
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

/// Goal: several arcs and enforced throughput change a response only for a listed reason. The list has
/// exactly the requests whose responses differ, each with its file and its occurrence in the file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_arcs_answer_as_one_does() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/four_arcs.txt");
    let listed = fs::read_to_string(&path).unwrap();
    // A reason in the list applies to the blocks below that reason.
    let (mut expected, mut reason) = (BTreeMap::new(), "");
    for block in blocks(&listed) {
        if block.starts_with('#') {
            reason = block;
        } else {
            let (request, answer) = block.split_once("\n----\n").unwrap();
            expected.insert(request.to_owned(), (reason, answer));
        }
    }
    let mut different = String::new();
    for file in recorded_files() {
        let recorded = fs::read_to_string(&file).unwrap();
        let played = play(&recorded, 4, Throughput::Enforce).await;
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(blocks(&recorded).count(), blocks(&played).count(), "{name}");
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (one, four) in blocks(&recorded).zip(blocks(&played)) {
            let Some((request, answer)) = four.split_once("\n----\n") else { continue };
            let count = counts.entry(request).or_default();
            *count += 1;
            let request = format!("{name} {count}\n{request}");
            let as_listed = expected.remove(&request);
            let as_one = one.split_once("\n----\n").is_some_and(|(_, known)| known == answer);
            match as_listed {
                None if as_one => {}
                Some(("", _)) => panic!("{request}: no reason above it"),
                Some((_, listed)) if !as_one && listed == answer => {}
                _ => {
                    let _ = writeln!(different, "{request}\n----\n{answer}\n");
                }
            }
        }
    }
    assert!(different.is_empty(), "{}: not listed so:\n\n{different}", path.display());
    assert!(expected.is_empty(), "{}: not played: {:?}", path.display(), expected.keys());
}

/// Goal: every operation has a file, so that its responses can be proofread.
#[test]
fn each_operation_has_a_file_that_asks_for_it() {
    let source = include_str!("../operation.rs");
    let (_, names) = source.split_once("enum Operation {").unwrap();
    let (names, _) = names.split_once('}').unwrap();
    let names = names.split([',', '\n', ' ']).filter(|name| !name.is_empty());
    let names: Vec<&str> = names.chain(["DescribeEndpoints"]).collect();
    assert_eq!(names.len(), 34, "{names:?}");
    for name in names {
        let mut file = String::new();
        for letter in name.chars() {
            if letter.is_uppercase() && !file.is_empty() {
                file.push('_');
            }
            file.extend(letter.to_lowercase());
        }
        let path = format!("{}/testdata/api/{file}.txt", env!("CARGO_MANIFEST_DIR"));
        let recorded = fs::read_to_string(&path).unwrap_or_default();
        let answers = recorded.split("\n\n").filter(|block| {
            let mut lines = block.lines().filter(|line| !line.starts_with('#'));
            lines.next().is_some_and(|line| line.split(' ').next() == Some(name))
        });
        let answers: Vec<&str> = answers
            .filter_map(|block| block.split_once("----\n"))
            .map(|(_, answer)| answer)
            .collect();
        for status in ["200 ", "400 "] {
            assert!(answers.iter().any(|answer| answer.starts_with(status)), "{path}: {status}");
        }
    }
}
