//! The status of a running system: the progress of each mapping, shard by shard.
//!
//! `weir up` writes the status to a small file. `weir status` and the console read only this file,
//! so they add no load to the system. This module prints nothing.

pub mod hindrance;
mod targets;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::poller::tick_ms;
use crate::redrive::log::{self, Redriven};
use crate::system::System;
use client::failure::Result;
use mapping::{Phase, ShardStatus, UnknownName};
use template::Absent;
use template::diagnostic::similar;

/// The interval at which `weir up` writes the status file.
pub const PERIOD: Duration = Duration::from_millis(500);
/// The time in milliseconds for which a shard counts as caught up after a read reached its end. If
/// no later read succeeds within this time, reads are probably blocked. An idle shard on AWS is
/// read twenty times in this period; the local store is read more often.
const TIP_MS_MAX: u64 = 5_000;

/// The name of the status file in the data folder.
const FILE: &str = "status.json";

/// Writes the status file of one running system.
pub struct StatusFile<'a> {
    system: &'a System,
    path: PathBuf,
    /// Whether the last write failed, and the failure was logged.
    is_failing: bool,
}

impl<'a> StatusFile<'a> {
    /// Writes the first status, so that commands can read it as soon as they find the system. A failed
    /// write is logged, and repeated by [`Self::keep`].
    pub async fn create(system: &'a System, directory: &Path) -> Self {
        let mut file = Self { system, path: directory.join(FILE), is_failing: false };
        // The status of an earlier run must not stay if the write fails.
        let _ = tokio::fs::remove_file(&file.path).await;
        file.write().await;
        file
    }

    /// Writes the status every [`PERIOD`]. Never returns.
    pub async fn keep(mut self) {
        loop {
            tokio::time::sleep(PERIOD).await;
            self.write().await;
        }
    }

    async fn write(&mut self) {
        let text = format!("{}\n", describe(self.system));
        let part = self.path.with_extension("json.part");
        // Renaming replaces the file atomically.
        let written = match tokio::fs::write(&part, &text).await {
            Ok(()) => tokio::fs::rename(&part, &self.path).await,
            failed => failed,
        };
        if let Err(error) = &written
            && !self.is_failing
        {
            tracing::warn!(
                "cannot write `{}`: {error}; until a write succeeds, `weir status` and `weir streams explain` show an old state",
                self.path.display()
            );
        }
        self.is_failing = written.is_err();
    }
}

/// Returns milliseconds since 1970 by the machine's clock.
pub fn machine_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn describe(system: &System) -> Value {
    // `taken_ms` is determined first, so no value of the status is older than it.
    let taken_ms = machine_ms();
    let (statuses, tick_ms) = (system.statuses(), tick_ms());
    let mappings = statuses.into_iter().map(|(name, function, end, status)| {
        let totals = &status.totals;
        // An ended mapping reads nothing, so its tick does not matter.
        let tick_ms = if end.is_some() { 0 } else { tick_ms };
        json!({
            "mapping": name,
            "function": function,
            "stream": status.stream_arn,
            "table": table_of(&status.stream_arn),
            "failures_to": targets::of_failures(system.stack(), &name),
            "described": status.described,
            "unavailable": status.unavailable,
            "unsaved": status.unsaved,
            "ended": end.is_some(),
            "end": end,
            "totals": {
                "read": totals.read, "filtered": totals.filtered, "done": totals.done,
                "invocations": totals.invocations, "failures": totals.failures,
                "discarded": totals.discarded, "gaps": totals.gaps,
            },
            "filter_lacks": status.unknown_name.as_ref().map(unknown_name),
            "shards": status.shards.iter().map(|it| shard(it, tick_ms)).collect::<Vec<_>>(),
        })
    });
    let stack = system.stack();
    let disabled = stack.mappings.iter().filter(|mapping| !mapping.enabled).map(|mapping| {
        json!({
            "mapping": mapping.logical_id, "function": mapping.function,
            "table": stack.table_of(&mapping.stream),
        })
    });
    let not_run = stack.not_run.iter().filter(|absent| absent.what == Absent::Mapping);
    let not_run = not_run.map(|absent| {
        json!({
            "mapping": absent.resource, "function": absent.function, "reason": absent.reason,
            "accepted": absent.accepted,
            "table": absent.stream.as_ref().and_then(|stream| stack.table_of(stream)),
        })
    });
    json!({
        "schema": "weir.status/v1",
        "taken_ms": taken_ms,
        "tick_ms": tick_ms,
        "journal_fault": system.journal_fault(),
        "mappings": mappings.collect::<Vec<_>>(),
        "disabled": disabled.collect::<Vec<_>>(),
        "not_run": not_run.collect::<Vec<_>>(),
        "functions": targets::of_functions(stack),
    })
}

/// Describes an attribute name in a filter that no item has, with the most similar existing name.
fn unknown_name(unknown: &UnknownName) -> String {
    let meant = similar(&unknown.name, unknown.known.iter().map(String::as_str));
    let meant = meant.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
    format!("the first record has no `{}`{meant}", unknown.path)
}

/// Returns the name of the table in a stream's ARN.
fn table_of(stream_arn: &str) -> Option<&str> {
    stream_arn.split_once(":table/").and_then(|(_, rest)| rest.split('/').next())
}

fn shard(shard: &ShardStatus, tick_ms: u64) -> Value {
    json!({
        "id": shard.id.as_str(),
        "state": state(shard, tick_ms),
        "waiting": shard.waiting,
        "in_flight": shard.in_flight,
        "lag_ms": shard.lag_ms,
        "failed_attempts": shard.failed_attempts,
        "tip_tick_ms": shard.tip_tick_ms,
        "lacks_child": shard.lacks_child,
        "last_read": shard.last_read.as_ref().map(|sequence| sequence.as_str()),
        "checkpoint": shard.checkpoint.as_ref().map(|sequence| sequence.as_str()),
    })
}

fn state(shard: &ShardStatus, tick_ms: u64) -> &'static str {
    let is_read = shard.tip_tick_ms.is_none_or(|tip| tick_ms.saturating_sub(tip) <= TIP_MS_MAX);
    match shard.phase {
        Phase::Waiting => "waits for its parent",
        Phase::Done { .. } => "done",
        Phase::Gap => "gap",
        Phase::Reading if shard.unreachable => "unreachable",
        Phase::Reading if shard.failed_attempts > 0 => "retrying",
        Phase::Reading if shard.waiting == 0 && shard.at_tip && !is_read => "waits for an answer",
        Phase::Reading if shard.waiting == 0 && shard.at_tip => "caught up",
        Phase::Reading => "working",
    }
}

/// Returns the number of waiting records in the status file, for each mapping with waiting records.
pub fn waiting(directory: &Path) -> Vec<(String, u64)> {
    let status = read(directory).unwrap_or_default();
    let of_shard = |shard: &Value| {
        let count = |name: &str| shard.get(name).and_then(Value::as_u64).unwrap_or(0);
        count("waiting") + count("in_flight")
    };
    let of_mapping = |mapping: &Value| {
        let name = mapping.get("mapping").and_then(Value::as_str).unwrap_or_default();
        (name.to_owned(), list(mapping, "shards").iter().map(of_shard).sum::<u64>())
    };
    list(&status, "mappings").iter().map(of_mapping).filter(|(_, count)| *count > 0).collect()
}

/// Returns the last status in the file, of a running or ended system.
pub fn read(directory: &Path) -> Option<Value> {
    let text = std::fs::read_to_string(directory.join(FILE)).ok()?;
    serde_json::from_str(&text).ok()
}

/// Returns whether a mapping is disabled in the running system.
#[must_use]
pub fn is_disabled(status: &Value, mapping: &str) -> bool {
    let is_it = |it: &Value| it.get("mapping").and_then(Value::as_str) == Some(mapping);
    list(status, "disabled").iter().any(is_it)
}

/// Returns the last status of a running system, with the number of redriven records.
///
/// # Errors
/// The system has not written a status yet.
pub fn last(directory: &Path) -> Result<Value> {
    let mut status = read(directory).ok_or_else(|| {
        let why = hindrance::now(directory);
        why.unwrap_or_else(|| "`weir up` has not written its status yet".to_owned())
    })?;
    note_redrives(&mut status, || log::since_the_start(directory));
    Ok(status)
}

/// Adds to the status the number of each mapping's discarded records that were redriven.
pub fn note_redrives(status: &mut Value, count: impl FnOnce() -> BTreeMap<String, Redriven>) {
    let discarded = |it: &Value| it.pointer("/totals/discarded").and_then(Value::as_u64);
    if list(status, "mappings").iter().all(|mapping| discarded(mapping).unwrap_or(0) == 0) {
        return;
    }
    let redriven = count();
    let mappings = status.get_mut("mappings").and_then(Value::as_array_mut);
    for mapping in mappings.into_iter().flatten() {
        let own = mapping.get("mapping").and_then(Value::as_str);
        let own = own.and_then(|name| redriven.get(name)).copied().unwrap_or_default();
        // If the journal lacks some discarded records, the number of redriven records is unknown
        // and counts as 0.
        let has_all = discarded(mapping) == Some(own.discarded);
        let done = if has_all { own.done } else { 0 };
        if let Some(Value::Object(totals)) = mapping.get_mut("totals") {
            totals.insert("redriven".to_owned(), json!(done));
        }
    }
}

/// Returns the array member with this name; an empty array if there is no such member.
#[must_use]
pub fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
