//! The export of a run's history in Jepsen's format, for checkers of other projects.
//!
//! `docs/development/simulation.md` defines the files. This module judges nothing, and omits nothing that the
//! checkers of registers and of transactions see.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, create_dir_all};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::{Value, json};

use crate::checkers::linearizability::{Kind, Operation};
use crate::checkers::serializability::Transaction;
use crate::history::Records;

/// One request of a client.
struct Entry {
    /// The time when the request was sent.
    call: u64,
    /// The name of the operation in Jepsen's format.
    function: &'static str,
    /// The value of the line `invoke`.
    invocation: Value,
    completion: Completion,
}

/// The end of a request.
enum Completion {
    /// The request was applied: the time of the answer, and the value with everything that the answer contains.
    Ok(u64, Value),
    /// The request was not applied, and never will be: the time of the answer.
    Fail(u64),
    /// The outcome is unknown.
    Info,
}

impl Completion {
    fn time(&self) -> Option<u64> {
        match self {
            Self::Ok(time, _) | Self::Fail(time) => Some(*time),
            Self::Info => None,
        }
    }
}

/// Writes the histories of a run into `folder`: one file for each register, and one for the transactions.
/// Creates the folder, and replaces files of an earlier export.
///
/// # Errors
/// A file or a folder cannot be written; the message contains its path.
pub fn write(folder: &Path, records: &Records) -> io::Result<()> {
    let registers = folder.join("registers");
    create_dir_all(&registers).map_err(|error| with_path(&registers, &error))?;
    for (key, operations) in &records.registers {
        let entries: Vec<Entry> = operations.iter().map(register_entry).collect();
        write_lines(&registers.join(format!("{key}.jsonl")), &entries)?;
    }
    let applied =
        records.transactions.iter().map(|transaction| transaction_entry(transaction, true));
    let cancelled =
        records.cancelled.iter().map(|transaction| transaction_entry(transaction, false));
    let entries: Vec<Entry> = applied.chain(cancelled).collect();
    write_lines(&folder.join("transactions.jsonl"), &entries)
}

fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn write_lines(path: &Path, entries: &[Entry]) -> io::Result<()> {
    let write_all = || {
        let mut file = BufWriter::new(File::create(path)?);
        for line in lines(entries) {
            writeln!(file, "{line}")?;
        }
        file.flush()
    };
    write_all().map_err(|error| with_path(path, &error))
}

/// Returns the entry of an operation on a register. An answered write contains the state that it replaced, so
/// it is a successful `cas`: a checker then verifies this state too.
fn register_entry(operation: &Operation) -> Entry {
    let Operation { call, seen, kind } = operation;
    let (function, invocation) = match (kind, seen) {
        (Kind::Read, _) => ("read", Value::Null),
        (Kind::WriteIf(expected, value), _) => ("cas", json!([expected, value])),
        (Kind::Write(value), Some((_, found))) => ("cas", json!([found, value])),
        (Kind::Write(value), None) => ("write", json!(value)),
        (Kind::Delete, Some((_, found))) => ("cas", json!([found, null])),
        (Kind::Delete, None) => ("write", Value::Null),
    };
    let completion = match (kind, seen) {
        (Kind::Read, Some((end, found))) => Completion::Ok(*end, json!(found)),
        (_, Some((end, _))) => Completion::Ok(*end, invocation.clone()),
        (_, None) => Completion::Info,
    };
    Entry { call: *call, function, invocation, completion }
}

/// Returns the entry of a transaction. Its reads are known only if it was acknowledged.
fn transaction_entry(transaction: &Transaction, is_applied: bool) -> Entry {
    let Transaction { call, end, reads, writes } = transaction;
    let value = |is_read: bool| {
        let reads = reads.iter().map(|(key, seen)| json!(["r", key, seen.filter(|_| is_read)]));
        let writes = writes.iter().map(|(key, id)| json!(["w", key, id]));
        reads.chain(writes).collect()
    };
    let completion = match end {
        Some(end) if is_applied => Completion::Ok(*end, value(true)),
        Some(end) => Completion::Fail(*end),
        None => Completion::Info,
    };
    Entry { call: *call, function: "txn", invocation: value(false), completion }
}

/// Returns the lines of a history in the order of their times. Requests of unknown outcome complete after all
/// others, and their processes send nothing more.
///
/// The history does not contain which client sent a request. So each request gets the smallest process number
/// that is free, which is as correct: a process sends a request only after the answer to its previous one.
fn lines(entries: &[Entry]) -> Vec<Value> {
    let times = entries.iter().flat_map(|entry| [Some(entry.call), entry.completion.time()]);
    let after_all = times.flatten().max().unwrap_or_default() + 1;
    let mut moments: Vec<(u64, usize, bool)> = Vec::new();
    for (place, entry) in entries.iter().enumerate() {
        moments.push((entry.call, place, false));
        moments.push((entry.completion.time().unwrap_or(after_all), place, true));
    }
    moments.sort_unstable();
    let (mut free, mut busy) = (BTreeSet::new(), BTreeMap::new());
    let mut processes = 0;
    let mut lines = Vec::new();
    for (time, place, is_completion) in moments {
        let Some(entry) = entries.get(place) else { continue };
        let (kind, value, process) = if is_completion {
            let process = busy.remove(&place);
            match &entry.completion {
                Completion::Ok(_, value) => {
                    free.extend(process);
                    ("ok", value, process)
                }
                Completion::Fail(_) => {
                    free.extend(process);
                    ("fail", &entry.invocation, process)
                }
                Completion::Info => ("info", &entry.invocation, process),
            }
        } else {
            let process = free.pop_first().unwrap_or(processes);
            processes = processes.max(process + 1);
            busy.insert(place, process);
            ("invoke", &entry.invocation, Some(process))
        };
        lines.push(json!({
            "index": lines.len(), "time": time, "process": process, "type": kind,
            "f": entry.function, "value": value,
        }));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines in a short form: process, type, operation and value.
    fn short(entries: &[Entry]) -> Vec<String> {
        let text = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
        let lines = lines(entries);
        for (place, pair) in lines.windows(2).enumerate() {
            assert_eq!(pair[0]["index"], place, "{lines:?}");
            assert!(pair[0]["time"].as_u64() <= pair[1]["time"].as_u64(), "{lines:?}");
        }
        let shorten = |line: &Value| {
            let (kind, function) = (text(line, "type"), text(line, "f"));
            format!("{} {kind} {function} {}", line["process"], line["value"])
        };
        lines.iter().map(shorten).collect()
    }

    #[test]
    fn an_answered_write_of_a_register_is_a_compare_and_set() {
        let done = |call, end, seen, kind| Operation { call, seen: Some((end, seen)), kind };
        let unknown = |call, kind| Operation { call, seen: None, kind };
        let operations = [
            done(1, 4, None, Kind::Write(7)),
            unknown(2, Kind::Write(8)),
            done(3, 6, Some(7), Kind::Read),
            unknown(5, Kind::WriteIf(Some(7), 9)),
            done(7, 8, Some(7), Kind::Delete),
            unknown(9, Kind::Delete),
        ];
        let entries: Vec<Entry> = operations.iter().map(register_entry).collect();
        let expected = [
            "0 invoke cas [null,7]",
            "1 invoke write 8",
            "2 invoke read null",
            "0 ok cas [null,7]",
            "0 invoke cas [7,9]",
            "2 ok read 7",
            "2 invoke cas [7,null]",
            "2 ok cas [7,null]",
            "2 invoke write null",
            "1 info write 8",
            "0 info cas [7,9]",
            "2 info write null",
        ];
        assert_eq!(short(&entries), expected);
    }

    /// Goal: a conditional write that the store applied to another state is visible as a violation.
    #[test]
    fn a_conditional_write_keeps_its_condition() {
        let operation =
            Operation { call: 1, seen: Some((2, Some(3))), kind: Kind::WriteIf(Some(4), 5) };
        assert_eq!(short(&[register_entry(&operation)])[1], "0 ok cas [4,5]");
    }

    #[test]
    fn only_an_acknowledged_transaction_shows_its_reads() {
        let transaction = |call, end| Transaction {
            call,
            end,
            reads: vec![("a".to_owned(), Some(3)), ("b".to_owned(), None)],
            writes: vec![("a".to_owned(), call)],
        };
        let entries = [
            transaction_entry(&transaction(4, Some(5)), true),
            transaction_entry(&transaction(6, Some(7)), false),
            transaction_entry(&transaction(8, None), true),
        ];
        let expected = [
            r#"0 invoke txn [["r","a",null],["r","b",null],["w","a",4]]"#,
            r#"0 ok txn [["r","a",3],["r","b",null],["w","a",4]]"#,
            r#"0 invoke txn [["r","a",null],["r","b",null],["w","a",6]]"#,
            r#"0 fail txn [["r","a",null],["r","b",null],["w","a",6]]"#,
            r#"0 invoke txn [["r","a",null],["r","b",null],["w","a",8]]"#,
            r#"0 info txn [["r","a",null],["r","b",null],["w","a",8]]"#,
        ];
        assert_eq!(short(&entries), expected);
    }
}
