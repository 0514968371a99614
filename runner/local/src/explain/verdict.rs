//! The verdict of each mapping about one record, from the journal, the stream and the status of `weir up`.
//!
//! The module is pure: it reads no stream and no file.

use std::path::Path;

use serde_json::{Value, json};

use super::{Found, time};
use crate::journal::{Attempt, End, FilterRejection, History, MappingFacts, MappingHistory};
use crate::redrive::log::Redrive;
use crate::status;
use client::output::counted;
use mapping::{FilterCriteria, ItemValues, SequenceNumber};

/// The verdict of one mapping about the record.
pub struct Verdict {
    /// The name of the mapping.
    pub mapping: String,
    /// The function's name.
    pub function: String,
    /// The outcome in a word or two, such as `delivered` or `filtered out`.
    pub outcome: &'static str,
    /// Whether the record is in a failing batch that blocks its shard, according to the status.
    pub is_blocked: bool,
    /// The reason for the outcome, or where the discarded record is stored; may be empty.
    pub detail: String,
    /// The attempts with the record or with a part of its batch.
    pub attempts: Vec<Attempt>,
    /// The argument of `weir streams redrive`, if the discarded record is in a failure object.
    pub failure_object: Option<String>,
    /// The number of records that were discarded together with the record; 0 if it was not discarded.
    pub discarded_together: usize,
    /// For each pattern, why the filter rejects the record.
    pub filter: Vec<String>,
    /// The patterns of the filter, in the order of the template.
    pub patterns: Vec<String>,
    /// The number of the mapping's reports that the journal lacks.
    pub missed: u64,
    /// Whether the mapping is past the record, so that no attempt with the record is still running.
    is_over: bool,
    /// Whether the mapping's `weir up` cannot write the journal.
    is_hindered: bool,
}

impl Verdict {
    /// Returns the result of an attempt as text.
    #[must_use]
    pub fn end(&self, attempt: &Attempt) -> String {
        match &attempt.end {
            // The mapping is past the record, so a missing report will never arrive.
            None if self.is_over
                && attempt.place.is_some()
                && (self.missed > 0 || self.is_hindered) =>
            {
                "the outcome is not in the journal".to_owned()
            }
            None if self.is_over && attempt.place.is_some() => {
                "the outcome is not in the journal yet".to_owned()
            }
            _ => end(attempt),
        }
    }

    /// Returns the verdict as JSON, as in the schema `weir.explain/v1`.
    #[must_use]
    pub fn json(&self) -> Value {
        let attempts = self.attempts.iter().map(|attempt| {
            json!({
                "batch": attempt.batch, "run": attempt.run, "attempt": attempt.attempt,
                "records": attempt.records.len(), "has_record": attempt.place.is_some(),
                "outcome": self.end(attempt), "at_ms": attempt.at_ms,
            })
        });
        json!({
            "mapping": self.mapping, "function": self.function, "outcome": self.outcome,
            "detail": self.detail, "filter": self.filter, "failure_object": self.failure_object,
            "attempts": attempts.collect::<Vec<_>>(), "missed_reports": self.missed,
        })
    }
}

/// The facts for a verdict that are not in the journal.
pub(super) struct Surroundings<'a> {
    pub(super) found: Option<&'a Found>,
    pub(super) status: Option<&'a Value>,
    /// The data folder of `weir up`.
    pub(super) directory: &'a Path,
    pub(super) redrives: &'a [Redrive],
    /// The record's shard, if the journal names it.
    pub(super) shard: Option<&'a str>,
    /// Whether the `weir up` that writes the journal is running.
    pub(super) is_running: bool,
    /// The reason why the `weir up` of the data folder cannot write its files; `None` if it can.
    pub(super) hindered: Option<&'a str>,
}

pub(super) fn verdicts(
    history: &History,
    place: &Surroundings<'_>,
    sequence: &str,
) -> Vec<Verdict> {
    let touched = |mapping: &MappingHistory| {
        mapping.filter_rejection.is_some() || mapping.attempts.iter().any(|it| it.place.is_some())
    };
    let own_table = place.found.map(|found| found.table.clone()).or_else(|| {
        history.mappings.values().find(|it| touched(it)).map(|it| it.facts.table.clone())
    });
    let ran = history
        .mappings
        .iter()
        .filter(|(_, mapping)| Some(&mapping.facts.table) == own_table.as_ref())
        .filter(|(_, mapping)| mapping.is_current || touched(mapping))
        .map(|(name, mapping)| verdict(name, mapping, place, sequence));
    let mut verdicts: Vec<Verdict> = ran.collect();
    let idle = place.status.map(|status| idle(status, own_table.as_deref())).unwrap_or_default();
    let is_new = |idle: &Verdict| verdicts.iter().all(|other| other.mapping != idle.mapping);
    let idle: Vec<Verdict> = idle.into_iter().filter(is_new).collect();
    verdicts.extend(idle);
    verdicts
}

/// Returns the mappings of a table that are in the running template but do not run.
fn idle(status: &Value, table: Option<&str>) -> Vec<Verdict> {
    let of = |entry: &Value, name: &str| {
        entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let of_table = |name: &'static str| {
        let entries = status::list(status, name).iter();
        entries.filter(|it| table.is_some() && it.get("table").and_then(Value::as_str) == table)
    };
    let verdict = |entry: &Value, detail: String| Verdict {
        mapping: of(entry, "mapping"),
        function: of(entry, "function"),
        outcome: NOT_DELIVERED,
        is_blocked: false,
        detail,
        attempts: Vec::new(),
        failure_object: None,
        discarded_together: 0,
        filter: Vec::new(),
        patterns: Vec::new(),
        missed: 0,
        is_over: false,
        is_hindered: false,
    };
    let disabled = of_table("disabled").map(|entry| verdict(entry, DISABLED.to_owned()));
    let absent = of_table("not_run").map(|entry| {
        verdict(
            entry,
            format!("the mapping's function does not run on this machine: {}", of(entry, "reason")),
        )
    });
    disabled.chain(absent).collect()
}

fn verdict(
    name: &str,
    mapping: &MappingHistory,
    place: &Surroundings<'_>,
    sequence: &str,
) -> Verdict {
    let Surroundings { found, status, directory, redrives, .. } = *place;
    let live = found.zip(FilterCriteria::compile(&mapping.facts.filters).ok());
    let live = live.map(|(found, filter)| {
        let event = found.record.event();
        (filter.verdict(event).matched, filter.explain(event, ItemValues::Quoted))
    });
    // A range of records in the journal belongs to one shard. The stream names the record's shard.
    let is_here = |shard: &str| found.is_none_or(|found| found.shard == shard);
    let passed_over = mapping.filter_rejection.as_ref().filter(|passed_over| match passed_over {
        FilterRejection::Reasons(_) => true,
        FilterRejection::InRange { shard, .. } => is_here(shard),
    });
    let given_up = mapping.discarded.as_ref().filter(|given_up| is_here(&given_up.shard));
    let why = why_not_passed(passed_over, live.as_ref());
    let was_tried = mapping.attempts.iter().any(|attempt| attempt.place.is_some());
    let kept = given_up.and_then(|given_up| given_up.key.as_deref());
    let kept = kept.map(|key| DiscardLocation::new(&mapping.facts, key, directory));
    let waiting = UndeliveredRecord {
        mapping: name,
        sequence,
        shard: found.map(|found| found.shard.as_str()).or(place.shard),
        missed: mapping.missed,
        starts_at: mapping.facts.starting_position.as_deref(),
        is_running: place.is_running,
        hindered: place.hindered,
    };
    let attempts = attempts(mapping, place.is_running);
    let is_over = waiting.is_over(status);
    let (outcome, detail) = if mapping.attempts.iter().any(Attempt::has_done_it) {
        ("delivered", String::new())
    } else if let Some(given_up) = given_up {
        let place = kept.as_ref().map_or_else(|| kept_nowhere(&mapping.facts), |kept| &kept.place);
        let given_up = format!("{}, {place}", given_up.condition);
        discarded(given_up, redriven(redrives, &mapping.facts, sequence))
    } else if was_tried && is_over {
        (END_UNKNOWN, waiting.over(&attempts))
    } else if was_tried && status.is_some_and(|status| status::is_disabled(status, name)) {
        (NOT_DELIVERED, format!("no attempt has succeeded, and {DISABLED}"))
    } else if was_tried {
        (IN_PROGRESS, being_tried(mapping, place.is_running))
    } else if passed_over.is_some() || live.as_ref().is_some_and(|(matched, _)| !matched) {
        ("filtered out", why.join("; "))
    } else {
        (NOT_DELIVERED, waiting.text(status))
    };
    Verdict {
        mapping: name.to_owned(),
        function: mapping.facts.function.clone(),
        outcome,
        is_blocked: outcome == IN_PROGRESS && waiting.is_blocked(status, &attempts),
        detail,
        attempts,
        failure_object: kept.and_then(|kept| kept.object),
        discarded_together: given_up.map_or(0, |given_up| given_up.count),
        filter: why,
        patterns: mapping.facts.filters.clone(),
        missed: mapping.missed,
        is_over,
        is_hindered: place.hindered.is_some(),
    }
}

/// Returns the outcome of a discarded record, which was perhaps redriven.
fn discarded(why: String, redriven: Option<(bool, String)>) -> (&'static str, String) {
    match redriven {
        Some((true, at)) => (REDRIVEN, format!("processed at {at}; discarded earlier: {why}")),
        Some((false, at)) => ("discarded", format!("{why}; the redrive at {at} failed")),
        None => ("discarded", why),
    }
}

/// Returns why the filter rejects the record. If the stream still has the record, the filter is
/// evaluated again, because the journal does not store the values of items.
fn why_not_passed(
    passed_over: Option<&FilterRejection>,
    live: Option<&(bool, Vec<String>)>,
) -> Vec<String> {
    match (passed_over, live) {
        (Some(FilterRejection::Reasons(why)), Some((true, _)) | None) => why.clone(),
        (_, Some((_, why))) => why.clone(),
        (Some(FilterRejection::InRange { count, .. }), None) => vec![format!(
            "the filter dropped {count} records of one page, including this record; start `weir up` and run this command again to see the filter clause that did not match"
        )],
        (None, None) => Vec::new(),
    }
}

/// Returns why a record with attempts has not been processed yet.
fn being_tried(mapping: &MappingHistory, is_running: bool) -> String {
    match &mapping.undelivered {
        Some(why) => format!("discarded; its batch waits for the OnFailure destination: {why}"),
        None if is_running => TRIED.to_owned(),
        None => TRIED_BEFORE.to_owned(),
    }
}

/// Returns the attempts. If `weir up` is not running, an attempt without an outcome counts as missed.
fn attempts(mapping: &MappingHistory, is_running: bool) -> Vec<Attempt> {
    let mut attempts = mapping.attempts.clone();
    if !is_running {
        attempts.iter_mut().for_each(|attempt| {
            attempt.end.get_or_insert(End::Missed);
        });
    }
    attempts
}

/// The state of a record with attempts, none of which has succeeded.
pub const IN_PROGRESS: &str = "in progress";
/// The state of a record that was discarded, then processed by `weir streams redrive`.
pub const REDRIVEN: &str = "redriven";
/// The state of an attempted record that the mapping is past, but whose outcome is not in the
/// journal.
const END_UNKNOWN: &str = "end unknown";
const TRIED: &str = "no attempt has succeeded yet";
const TRIED_BEFORE: &str = "no attempt is known to have succeeded; `weir up` is not running, and resumes from the checkpoint when it starts";
const DISABLED: &str = "the mapping is disabled now (`Enabled: false` in the template)";
const NOT_DELIVERED: &str = "not delivered";
const KEPT_NOWHERE: &str = "stored nowhere: the mapping has no OnFailure destination";
const KEPT_TOO_LATE: &str =
    "stored nowhere: the OnFailure destination was unreachable until the records expired";

fn kept_nowhere(facts: &MappingFacts) -> &'static str {
    let has_destination = facts.bucket.is_some() || facts.messages.is_some();
    if has_destination { KEPT_TOO_LATE } else { KEPT_NOWHERE }
}

/// Returns whether a redrive processed the record, and the time of the redrive. This is the first
/// redrive that processed the record, otherwise its last redrive.
fn redriven(redrives: &[Redrive], facts: &MappingFacts, sequence: &str) -> Option<(bool, String)> {
    let own = redrives.iter().filter_map(|redrive| {
        Some((redrive.has_done(&facts.function, &facts.stream, sequence)?, redrive.at_ms))
    });
    let own: Vec<(bool, i64)> = own.collect();
    let (done, at_ms) = own.iter().find(|(done, _)| *done).or(own.last())?;
    Some((*done, time(*at_ms)))
}

/// The place where discarded records are stored.
struct DiscardLocation {
    /// The description of the location, for users.
    place: String,
    /// The argument of `weir streams redrive`; `None` if it is unknown.
    object: Option<String>,
}

impl DiscardLocation {
    fn new(facts: &MappingFacts, key: &str, directory: &Path) -> Self {
        let MappingFacts { bucket, messages, .. } = facts;
        if let Some(bucket) = bucket {
            let place = format!("stored in s3://{bucket}/{key}");
            return Self { place, object: Some(key.to_owned()) };
        }
        if let Some(messages) = messages {
            let file = messages.file(directory, key).display().to_string();
            return Self { place: format!("stored in {file}"), object: Some(file) };
        }
        // Journals of older versions lack the names of queues and topics, so the folder is not known.
        let name = key.rsplit('/').next().unwrap_or(key);
        let folder = directory.join("destinations");
        let place = format!("stored below {}, in a file `{name}.json`", folder.display());
        Self { place, object: None }
    }
}

/// A record that passes the filter but was not delivered.
pub(super) struct UndeliveredRecord<'a> {
    pub(super) mapping: &'a str,
    pub(super) sequence: &'a str,
    /// The record's shard, if it is known.
    pub(super) shard: Option<&'a str>,
    /// The number of the mapping's reports that the journal lacks.
    pub(super) missed: u64,
    /// The mapping's `StartingPosition`; older journals lack it.
    pub(super) starts_at: Option<&'a str>,
    /// Whether the mapping's `weir up` is running.
    pub(super) is_running: bool,
    /// The reason why the `weir up` of the data folder cannot write its files; `None` if it can.
    pub(super) hindered: Option<&'a str>,
}

impl UndeliveredRecord<'_> {
    /// Returns why the record was not delivered, according to the mapping's status. Only sequence numbers of
    /// the same shard are compared.
    pub(super) fn text(&self, status: Option<&Value>) -> String {
        let Some(status) = status else {
            if self.is_running {
                return "`weir up` is running, but its status is unknown".to_owned();
            }
            return "`weir up` is not running; it resumes from the checkpoint when it starts"
                .to_owned();
        };
        if status::is_disabled(status, self.mapping) {
            return DISABLED.to_owned();
        }
        let Some(mapping) = self.own(status) else {
            return "the mapping is not running: it is disabled, or its stream no longer exists"
                .to_owned();
        };
        if mapping.get("ended") == Some(&json!(true)) {
            let why = mapping.get("end").and_then(Value::as_str).unwrap_or("unknown reason");
            return format!("the mapping has ended: {why}; restart `weir up`");
        }
        match self.its_shard(mapping) {
            Some(shard) => self.in_shard(shard),
            None => "its shard has not been read yet, or is closed".to_owned(),
        }
    }

    /// Returns whether the mapping is past the record, according to the mapping's status.
    fn is_over(&self, status: Option<&Value>) -> bool {
        let mapping = status.and_then(|status| self.own(status));
        let shard = mapping.and_then(|mapping| self.its_shard(mapping));
        shard.is_some_and(|shard| self.is_past(shard))
    }

    /// Returns whether an attempt with the record has failed, and the shard retries the batch.
    fn is_blocked(&self, status: Option<&Value>, attempts: &[Attempt]) -> bool {
        let mapping = status.and_then(|status| self.own(status));
        let shard = mapping.and_then(|mapping| self.its_shard(mapping));
        let failed = shard.and_then(|shard| shard.get("failed_attempts")).and_then(Value::as_u64);
        self.is_running
            && failed.is_some_and(|failed| failed > 0)
            && attempts.iter().any(|attempt| {
                attempt.place.is_some() && matches!(attempt.end, Some(End::Failed { .. }))
            })
    }

    /// Returns the text about an attempted record that the mapping is past, but whose outcome is
    /// not in the journal. A kill of `weir up` interrupts only the last attempt of its run.
    fn over(&self, attempts: &[Attempt]) -> String {
        let last = attempts.iter().rfind(|attempt| attempt.place.is_some());
        let why = match (self.missed, self.hindered) {
            (0, _) if last.is_some_and(|last| last.end == Some(End::Missed)) => {
                ": `weir up` was killed during the attempt".to_owned()
            }
            (_, Some(why)) => format!(": {why}"),
            (0, None) => " yet; run this command again".to_owned(),
            (missed, None) => format!(": it lacks {}", reports(missed)),
        };
        format!(
            "the checkpoint is past the record, so it was processed or discarded; the journal does not have the outcome{why}"
        )
    }

    fn own<'s>(&self, status: &'s Value) -> Option<&'s Value> {
        let mut mappings = status::list(status, "mappings").iter();
        mappings.find(|it| it.get("mapping").and_then(Value::as_str) == Some(self.mapping))
    }

    fn its_shard<'s>(&self, mapping: &'s Value) -> Option<&'s Value> {
        let mut shards = status::list(mapping, "shards").iter();
        shards.find(|it| it.get("id").and_then(Value::as_str) == self.shard)
    }

    /// Returns whether the record is at or before the shard's checkpoint. A shard that has ended has no
    /// checkpoint.
    fn is_past(&self, shard: &Value) -> bool {
        shard.get("state").and_then(Value::as_str) == Some("done")
            || self.is_behind(shard, "checkpoint")
    }

    fn is_behind(&self, shard: &Value, mark: &str) -> bool {
        let parse = |text: &str| SequenceNumber::parse(text).ok();
        let mark = shard.get(mark).and_then(Value::as_str).and_then(parse);
        mark.zip(parse(self.sequence)).is_some_and(|(mark, own)| own <= mark)
    }

    fn in_shard(&self, shard: &Value) -> String {
        let text = |name: &str| shard.get(name).and_then(Value::as_str);
        if self.is_past(shard) {
            return match (self.missed, self.hindered) {
                (0, _) if self.starts_at == Some(LATEST) => {
                    format!(
                        "{BEFORE_THE_START}, or it was processed and the journal no longer has the outcome"
                    )
                }
                (_, Some(why)) => {
                    format!(
                        "it was processed or discarded, but the journal does not have the outcome: {why}"
                    )
                }
                (0, None) => {
                    "it was processed or discarded, but the journal no longer has the outcome"
                        .to_owned()
                }
                (missed, None) => {
                    format!("it was processed or discarded; the journal lacks {}", reports(missed))
                }
            };
        }
        match text("state") {
            Some("gap") => {
                "its shard is blocked at a gap: records were trimmed before they were read"
                    .to_owned()
            }
            Some("retrying") => "it waits behind a failing batch".to_owned(),
            Some("unreachable") => "its shard cannot be read; the read is retried".to_owned(),
            Some("waits for its parent") => {
                "its shard waits until the parent shard is done".to_owned()
            }
            _ if self.is_behind(shard, "last_read") => {
                "it was read and waits for its batch".to_owned()
            }
            Some("caught up") if self.starts_at == Some(LATEST) => {
                format!("{BEFORE_THE_START}, or it was written just now and has not been read yet")
            }
            _ => "it has not been read yet".to_owned(),
        }
    }
}

/// The starting position of a mapping that ignores all records from before its start.
const LATEST: &str = "LATEST";
const BEFORE_THE_START: &str =
    "it was written before the mapping started (`StartingPosition: LATEST`)";

pub(super) fn reports(count: u64) -> String {
    counted(count, "report", "reports")
}

/// Shortens a reason to one line. The last line of a program's output usually has the cause.
fn in_a_line(reason: &str) -> String {
    let mut lines = reason.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    match lines.next_back() {
        None => first.to_owned(),
        Some(last) => format!("{first} … {last}"),
    }
}

fn end(attempt: &Attempt) -> String {
    match &attempt.end {
        Some(End::Succeeded { took_ms }) => format!("ok {took_ms} ms"),
        Some(End::Failed { took_ms, done, reason }) => {
            let done = if *done > 0 { format!(", {done} done") } else { String::new() };
            format!("error{done} after {took_ms} ms: {}", in_a_line(reason))
        }
        Some(End::Missed) => {
            "the outcome is not in the journal: `weir up` was killed or `--chaos` crashed the poller during the attempt, or the report was dropped because the queue of reports was full; the function may have processed the record"
                .to_owned()
        }
        None => "running".to_owned(),
    }
}
