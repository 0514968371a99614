//! Metrics of one invocation, as one JSON line in CloudWatch's embedded metric format. CloudWatch
//! extracts the metrics from the line, and keeps the line as a log entry.
//!
//! This module only formats and prints the numbers. Lambda reads the line from standard output.
//! Source: Amazon CloudWatch user guide, "Specification: Embedded metric format".

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use crate::archive_sink::compaction::CompactionReport;
use crate::copies::SelfCheckReport;
use crate::event::BatchRecord;
use crate::frame::Summary;
use crate::reconcile::ReconcileReport;

/// Namespace of all metrics of the functions.
pub const NAMESPACE: &str = "Weir";
/// The only dimension: the function's name on AWS, as in Lambda's own metrics.
pub const DIMENSION: &str = "FunctionName";

/// The CloudWatch units of the functions' metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Count,
    Seconds,
    Milliseconds,
}

impl Unit {
    fn text(self) -> &'static str {
        match self {
            Self::Count => "Count",
            Self::Seconds => "Seconds",
            Self::Milliseconds => "Milliseconds",
        }
    }
}

/// The metrics of one invocation.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics {
    values: Vec<(&'static str, Unit, u64)>,
}

impl Metrics {
    /// Returns a batch's metrics. `lag` is the age of the batch's oldest record when the function
    /// received it; `None` if no record contains its time.
    #[must_use]
    pub fn of_batch(summary: Summary, lag: Option<Duration>, duration: Duration) -> Self {
        let mut values = vec![
            count("RecordsSeen", summary.records),
            count("RecordsIgnored", summary.ignored),
            count("RecordsApplied", summary.applied),
            count("RecordsAlreadyApplied", summary.already_applied),
            count("RecordsRefused", summary.refused),
            count("RecordsRetried", summary.retried),
        ];
        values.extend(lag.map(|lag| ("Lag", Unit::Seconds, lag.as_secs())));
        values.push(milliseconds("BatchDuration", duration));
        Self { values }
    }

    /// Returns a reconciliation's metrics.
    #[must_use]
    pub fn of_reconciliation(report: &ReconcileReport, duration: Duration) -> Self {
        let values = vec![
            count("CountersChecked", report.counters),
            count("SlotsDrifted", report.drifted_slots),
            count("TotalsRepaired", report.repaired_totals),
            count("TotalsPostponed", report.postponed_totals),
            count("TotalsDamaged", report.damaged_totals),
            count("SlotsUnreadable", report.unreadable_slots),
            count("ReconciliationsIncomplete", usize::from(!report.complete)),
            milliseconds("ReconciliationDuration", duration),
        ];
        Self { values }
    }

    /// Returns the metrics of a self-check of copies.
    #[must_use]
    pub fn of_self_check(report: &SelfCheckReport, duration: Duration) -> Self {
        let values = vec![
            count("CopiesChecked", report.copies),
            count("CopiesRepaired", report.repaired),
            count("CopiesPostponed", report.postponed),
            count("CopiesRefused", report.refused),
            milliseconds("SelfCheckDuration", duration),
        ];
        Self { values }
    }

    /// Returns the metrics of a compaction.
    #[must_use]
    pub fn of_compaction(report: &CompactionReport, duration: Duration) -> Self {
        let values = vec![
            count("PartsReplaced", report.parts_replaced),
            count("HoursPostponed", report.postponed_hours),
            count("CompactionsIncomplete", usize::from(!report.complete)),
            milliseconds("CompactionDuration", duration),
        ];
        Self { values }
    }

    /// Returns the JSON document: the values at its root, and their definitions below `_aws`.
    #[must_use]
    pub fn document(&self, function_name: &str, now: SystemTime) -> Value {
        let definitions: Vec<Value> = self
            .values
            .iter()
            .map(|(name, unit, _)| json!({"Name": name, "Unit": unit.text()}))
            .collect();
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let directive = json!({
            "Namespace": NAMESPACE,
            "Dimensions": [[DIMENSION]],
            "Metrics": definitions,
        });
        let mut root = Map::new();
        root.insert(
            "_aws".to_owned(),
            json!({"Timestamp": millis(since), "CloudWatchMetrics": [directive]}),
        );
        root.insert(DIMENSION.to_owned(), function_name.into());
        for (name, _, value) in &self.values {
            root.insert((*name).to_owned(), (*value).into());
        }
        Value::Object(root)
    }

    /// Writes the document as one line.
    pub fn write(&self, function_name: &str, now: SystemTime) {
        let mut line = self.document(function_name, now).to_string();
        line.push('\n');
        // A failure to write metrics must not fail a batch that succeeded.
        let _ = io::stdout().lock().write_all(line.as_bytes());
    }
}

/// Returns the age of a batch: the age of its first readable record, because records of a shard
/// arrive in order. Returns 0 if the record's time is in the future.
#[must_use]
pub fn lag(batch: &[BatchRecord<'_>], now: SystemTime) -> Option<Duration> {
    let seconds = batch.iter().find_map(|delivered| {
        delivered.with_decoded(|record| record.ok()?.approximate_creation_seconds)
    });
    let written = Duration::from_secs(seconds?);
    Some(now.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(written))
}

fn count(name: &'static str, number: usize) -> (&'static str, Unit, u64) {
    (name, Unit::Count, u64::try_from(number).unwrap_or(u64::MAX))
}

fn milliseconds(name: &'static str, duration: Duration) -> (&'static str, Unit, u64) {
    (name, Unit::Milliseconds, millis(duration))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, decode};

    const SUMMARY: Summary =
        Summary { records: 10, ignored: 1, applied: 4, already_applied: 2, refused: 1, retried: 2 };

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_batch_is_one_document_of_the_specification() {
        let metrics = Metrics::of_batch(
            SUMMARY,
            Some(Duration::from_millis(2_900)),
            Duration::from_millis(31),
        );
        let expected = r#"{"BatchDuration":31,"FunctionName":"weir-ArchiveFunction-1X","Lag":2,"RecordsAlreadyApplied":2,"RecordsApplied":4,"RecordsIgnored":1,"RecordsRefused":1,"RecordsRetried":2,"RecordsSeen":10,"_aws":{"CloudWatchMetrics":[{"Dimensions":[["FunctionName"]],"Metrics":[{"Name":"RecordsSeen","Unit":"Count"},{"Name":"RecordsIgnored","Unit":"Count"},{"Name":"RecordsApplied","Unit":"Count"},{"Name":"RecordsAlreadyApplied","Unit":"Count"},{"Name":"RecordsRefused","Unit":"Count"},{"Name":"RecordsRetried","Unit":"Count"},{"Name":"Lag","Unit":"Seconds"},{"Name":"BatchDuration","Unit":"Milliseconds"}],"Namespace":"Weir"}],"Timestamp":1795000000000}}"#;
        let document = metrics.document("weir-ArchiveFunction-1X", at(1_795_000_000));
        assert_eq!(document, serde_json::from_str::<Value>(expected).unwrap());
        assert!(!document.to_string().contains('\n'));
    }

    /// CloudWatch silently drops a document that breaks its rules: every metric has one definition
    /// and a number at the root, and every dimension has a string at the root.
    #[test]
    fn every_document_keeps_the_rules_of_the_format() {
        let report = ReconcileReport { counters: 3, complete: true, ..ReconcileReport::default() };
        for metrics in [
            Metrics::of_batch(Summary::default(), None, Duration::ZERO),
            Metrics::of_batch(SUMMARY, Some(Duration::MAX), Duration::MAX),
            Metrics::of_reconciliation(&report, Duration::from_secs(1)),
            Metrics::of_compaction(&CompactionReport::default(), Duration::ZERO),
        ] {
            let document = metrics.document("f", at(7));
            assert_eq!(document["_aws"]["Timestamp"], 7_000);
            let directives = document["_aws"]["CloudWatchMetrics"].as_array().unwrap();
            assert_eq!(directives.len(), 1);
            let directive = &directives[0];
            assert_eq!(directive["Namespace"], NAMESPACE);
            assert_eq!(directive["Dimensions"], json!([[DIMENSION]]));
            assert!(document[DIMENSION].is_string());
            let definitions = directive["Metrics"].as_array().unwrap();
            assert!(definitions.len() <= 100, "a directive has at most 100 metrics");
            let mut names = std::collections::BTreeSet::new();
            for definition in definitions {
                let name = definition["Name"].as_str().unwrap();
                assert!(document[name].is_u64(), "{name}");
                assert!(
                    ["Count", "Seconds", "Milliseconds"]
                        .contains(&definition["Unit"].as_str().unwrap())
                );
                assert!(names.insert(name), "{name} twice");
            }
            // The root contains only `_aws`, the dimension and the metrics.
            assert_eq!(document.as_object().unwrap().len(), definitions.len() + 2);
        }
    }

    #[test]
    fn the_lag_is_the_age_of_the_oldest_record_with_a_time() {
        let record = |time: &str| {
            format!(
                r#"{{"eventID":"e","eventName":"REMOVE","dynamodb":{{{time}"SequenceNumber":"13","Keys":{{"k":{{"S":"v"}}}},"StreamViewType":"KEYS_ONLY"}},"eventSourceARN":"arn:x"}}"#
            )
        };
        let [early, late, silent] =
            [r#""ApproximateCreationDateTime":100,"#, r#""ApproximateCreationDateTime":160,"#, ""]
                .map(record);
        for (records, expected) in [
            (format!("{early},{late},7,{silent}"), Some(900)),
            (format!("7,{silent},{late},{early}"), Some(840)),
            (format!("{silent},7"), None),
            (record(r#""ApproximateCreationDateTime":5000,"#), Some(0)),
            (String::new(), None),
        ] {
            let payload = format!(r#"{{"Records":[{records}]}}"#);
            let Ok(Event::Batch(batch)) = decode(&payload) else { panic!("a batch") };
            assert_eq!(lag(&batch, at(1_000)).map(|lag| lag.as_secs()), expected, "{payload}");
        }
    }
}
