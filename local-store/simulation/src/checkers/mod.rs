//! The checkers. Each checker verifies one guarantee of the store against recorded observations.
//! The checkers depend neither on the implementation of the store nor on the origin of the history.

pub mod expiry;
pub mod leaders;
pub mod linearizability;
pub mod placement;
pub mod predecessors;
pub mod replicas;
pub mod retention;
pub mod serializability;
pub mod stream;
#[cfg(test)]
mod stream_tests;
pub mod totals;

use std::collections::BTreeMap;
use std::fmt;

use model::Item;

use self::linearizability::{Operation, Verdict};
use self::replicas::Dump;
use self::stream::{Facts, ShardRecords};
use crate::history::{Records, state_of};

/// The maximum number of configurations that the search of one register's history visits.
const SEARCH_BUDGET: usize = 2_000_000;
/// The maximum number of violations that are reported for each checker. The first violations are
/// enough for an analysis.
const COMPLAINTS_MAX: usize = 5;

/// A violation of a guarantee of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The checker that found the violation.
    pub checker: &'static str,
    /// The description of the violation.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.checker, self.what)
    }
}

/// The final state, observed after all activity has ended.
#[derive(Debug, Default)]
pub struct End {
    /// The items of the table by key, from consistent reads.
    pub table: BTreeMap<String, Item>,
    /// The shards of the stream, with their records.
    pub shards: Vec<ShardRecords>,
    /// The entries of the index over the attribute `owner`.
    pub index: Vec<Item>,
    /// The entries of the index that was created during the run; `None` if no index was created.
    pub late_index: Option<Vec<Item>>,
    /// For each arc, every replica's state.
    pub replicas: Vec<Vec<(String, Dump)>>,
    /// The number of logs of the table's items. A sequence number is unique only within its log.
    pub logs: usize,
    /// Items that expired before this time, in epoch seconds, must not exist.
    pub expired_before: u64,
    /// The latest store time that any node can have, in epoch seconds.
    pub latest_seconds: u64,
    /// The maximum time in seconds by which a node's clock may have been ahead of the others.
    pub skew_seconds: u64,
}

/// Runs every checker.
#[must_use]
pub fn judge(records: &Records, end: &End) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut say = |checker, complaints: Vec<String>| {
        let kept = complaints.into_iter().take(COMPLAINTS_MAX);
        found.extend(kept.map(|what| Violation { checker, what }));
    };
    say("answers", records.defects.clone());
    for (key, operations) in &records.registers {
        let label = |what: String| format!("{key}: {what}");
        let predecessors = predecessors::check(operations);
        let last = predecessors::check_end(operations, state_of(end.table.get(key)));
        say("durability", last.into_iter().map(label).collect());
        say("predecessors", predecessors.into_iter().map(label).collect());
        say("linearizability", search(operations).into_iter().map(label).collect());
    }
    say("weak reads", check_weak_reads(records));
    say("totals", totals::check_sums(&records.sums, &records.expected_sums));
    for (slot, votes) in &records.votes {
        say("totals", totals::check_votes(slot, votes, end.table.get(slot)));
    }
    say("expiry", expiry::check_gone(&records.missing_expiring, end.skew_seconds));
    say("expiry", expiry::check_left(&end.table, end.expired_before));
    let facts = Facts {
        writes: &records.writes,
        deletes: &records.deletes,
        table: &end.table,
        latest_seconds: end.latest_seconds,
        has_one_log: end.logs <= 1,
    };
    say("stream", stream::check(&end.shards, &facts));
    let versions = stream::versions(&end.shards);
    say("serializability", serializability::check(&records.transactions, &versions));
    let readings = records.readings.iter();
    say(
        "stream readers",
        readings.filter_map(|reading| stream::check_reading(reading, &end.shards)).collect(),
    );
    for replicas in &end.replicas {
        say("replicas", replicas::check_equal(replicas));
    }
    for index in [Some(&end.index), end.late_index.as_ref()].into_iter().flatten() {
        say("index", replicas::check_index(&end.table, index));
    }
    found
}

fn search(operations: &[Operation]) -> Option<String> {
    match linearizability::check(operations, None, SEARCH_BUDGET) {
        Verdict::Linearizable => None,
        Verdict::TooHard => {
            Some("the search exceeded its budget; use fewer clients or shorter runs".to_owned())
        }
        Verdict::Violated => {
            let short = linearizability::shortest_violation(operations, None, SEARCH_BUDGET);
            let lines: Vec<String> = short
                .iter()
                .rev()
                .take(12)
                .rev()
                .map(|o| match o.seen {
                    Some((end, seen)) => {
                        format!("\n    {}..{end} {:?} saw {seen:?}", o.call, o.kind)
                    }
                    None => format!("\n    {}.. {:?}: outcome unknown", o.call, o.kind),
                })
                .collect();
            Some(format!(
                "no order explains the item's {} operations; the shortest prefix without an order has {} operations, the last of them:{}",
                operations.len(),
                short.len(),
                lines.concat()
            ))
        }
    }
}

/// Checks that each read without strong consistency returned a value that was written at some time.
fn check_weak_reads(records: &Records) -> Vec<String> {
    let stored = |key: &str, id: &u64| records.writes.get(id).is_some_and(|(at, _)| at == key);
    records
        .weak_reads
        .iter()
        .filter_map(|(key, state)| {
            let id = state.filter(|id| !stored(key, id))?;
            Some(format!("{key}: a read saw {id}, which no client stored there"))
        })
        .collect()
}
