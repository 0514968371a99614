//! Results as a table for people, as TSV, and as JSON.
//!
//! It rounds only for people, and computes ratios between rows of one run.

use std::fmt::Write as _;

use clap::ValueEnum;
use serde_json::{Value, json};

use super::measurement::Outcome;

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns, for people
    Text,
    /// One line for each row, values separated by tabs
    Tsv,
    /// One object
    Json,
}

/// One measurement's result.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// What was measured: `store`, or the name of a ceiling.
    pub(super) target: String,
    pub(super) operation: String,
    pub(super) connections: u32,
    pub(super) requests: u64,
    pub(super) requests_per_second: f64,
    /// Latencies in microseconds.
    pub(super) p50_micros: f64,
    pub(super) p99_micros: f64,
    pub(super) max_micros: f64,
    pub(super) errors: u64,
    /// The server's CPU time for one request, if its process is known.
    pub(super) cpu_micros: Option<f64>,
    pub(super) resident_bytes: Option<u64>,
    /// Acknowledged requests that shared one sync of each log, where a server says its syncs.
    pub(super) requests_per_sync: Option<f64>,
}

/// The name of a row's target when it is the endpoint.
pub(super) const STORE: &str = "store";

#[expect(clippy::cast_precision_loss, reason = "counts and nanoseconds of one run are below 2^53")]
fn real(number: u64) -> f64 {
    number as f64
}

/// One count divided by another, which is not 0.
pub(super) fn ratio(count: u64, by: u64) -> f64 {
    real(count) / real(by)
}

impl Row {
    /// The row of an outcome that was measured for `seconds`.
    pub(super) fn new(
        target: &str,
        operation: &str,
        connections: u32,
        seconds: f64,
        outcome: &Outcome,
    ) -> Self {
        let latency = &outcome.latency;
        let requests = latency.total();
        let micros = |nanos: u64| real(nanos) / 1000.0;
        let cpu = outcome.server.filter(|_| requests > 0);
        Self {
            target: target.to_owned(),
            operation: operation.to_owned(),
            connections,
            requests,
            requests_per_second: real(requests) / seconds,
            p50_micros: micros(latency.quantile(500)),
            p99_micros: micros(latency.quantile(990)),
            max_micros: micros(latency.max()),
            errors: outcome.errors,
            cpu_micros: cpu.map(|usage| real(usage.cpu_micros) / real(requests)),
            resident_bytes: outcome.server.map(|usage| usage.resident_bytes),
            requests_per_sync: None,
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "target": self.target, "operation": self.operation, "connections": self.connections,
            "requests": self.requests, "requests_per_second": self.requests_per_second,
            "p50_us": self.p50_micros, "p99_us": self.p99_micros, "max_us": self.max_micros,
            "errors": self.errors, "server_cpu_us_per_request": self.cpu_micros,
            "server_rss_bytes": self.resident_bytes, "requests_per_sync": self.requests_per_sync,
        })
    }

    /// The row's cells, as in [`COLUMNS`].
    fn cells(&self) -> [String; 12] {
        let known =
            |number: Option<f64>| number.map_or(String::new(), |value| format!("{value:.1}"));
        let mebibytes = self.resident_bytes.map(|bytes| real(bytes) / (1024.0 * 1024.0));
        [
            self.target.clone(),
            self.operation.clone(),
            self.connections.to_string(),
            self.requests.to_string(),
            format!("{:.0}", self.requests_per_second),
            format!("{:.0}", self.p50_micros),
            format!("{:.0}", self.p99_micros),
            format!("{:.0}", self.max_micros),
            self.errors.to_string(),
            known(self.cpu_micros),
            known(mebibytes),
            known(self.requests_per_sync),
        ]
    }
}

const COLUMNS: [&str; 12] = [
    "target",
    "operation",
    "connections",
    "requests",
    "req_s",
    "p50_us",
    "p99_us",
    "max_us",
    "errors",
    "cpu_us_req",
    "rss_mib",
    "req_sync",
];
/// The columns that are words and begin at the left.
const WORD_COLUMNS: usize = 2;

/// The check after the updates: what the slots hold now more than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SumCheck {
    pub(super) acknowledged: u64,
    /// Updates of which nobody knows whether they were carried out.
    pub(super) unknown: u64,
    pub(super) sum: u64,
}

impl SumCheck {
    /// Whether every acknowledged update was counted once, and no other but an unknown one.
    pub(super) fn holds(self) -> bool {
        let most = self.acknowledged.saturating_add(self.unknown);
        (self.acknowledged..=most).contains(&self.sum)
    }

    fn to_text(self) -> String {
        let Self { acknowledged, unknown, sum } = self;
        let verdict = if self.holds() { "exact" } else { "WRONG" };
        format!(
            "sum of the 20 slots: {sum}; acknowledged {acknowledged}, unknown {unknown}: {verdict}"
        )
    }
}

/// Everything that one run has found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Report {
    pub(super) rows: Vec<Row>,
    pub(super) sum: Option<SumCheck>,
    /// What went wrong or is to be known, a sentence each.
    pub(super) notes: Vec<String>,
}

impl Report {
    /// Throughput of the store's puts in percent of each ceiling at the same number of connections.
    fn ratios(&self) -> Vec<(u32, String, f64)> {
        let puts = self.rows.iter().filter(|row| row.target == STORE && row.operation == "put");
        puts.flat_map(|put| {
            let same = |row: &&Row| row.target != STORE && row.connections == put.connections;
            self.rows.iter().filter(same).filter(|row| row.requests > 0).map(|row| {
                let percent = 100.0 * put.requests_per_second / row.requests_per_second;
                (put.connections, row.target.clone(), percent)
            })
        })
        .collect()
    }

    /// Writes the report.
    pub(super) fn write(&self, format: Format) -> String {
        match format {
            Format::Text => self.to_text(),
            Format::Tsv => self.to_tsv(),
            Format::Json => self.to_json(),
        }
    }

    fn to_tsv(&self) -> String {
        let mut text = COLUMNS.join("\t") + "\n";
        for row in &self.rows {
            text.push_str(&row.cells().join("\t"));
            text.push('\n');
        }
        text
    }

    fn to_json(&self) -> String {
        let ratios = self.ratios().into_iter().map(|(connections, ceiling, percent)| {
            json!({"connections": connections, "ceiling": ceiling, "put_percent": percent})
        });
        let sum = self.sum.map(|check| {
            json!({
                "sum": check.sum, "acknowledged": check.acknowledged, "unknown": check.unknown,
                "exact": check.holds(),
            })
        });
        let rows: Vec<_> = self.rows.iter().map(Row::to_json).collect();
        let report = json!({
            "rows": rows, "ratios": ratios.collect::<Vec<_>>(), "sum": sum, "notes": self.notes,
        });
        format!("{report:#}\n")
    }

    fn to_text(&self) -> String {
        let header = COLUMNS.map(str::to_owned);
        let lines: Vec<_> =
            std::iter::once(header).chain(self.rows.iter().map(Row::cells)).collect();
        let width = |column: usize| {
            lines.iter().filter_map(|line| line.get(column)).map(String::len).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..COLUMNS.len()).map(width).collect();
        let mut text = String::new();
        for line in &lines {
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                // Writing to a string cannot fail.
                let _ = if column < WORD_COLUMNS {
                    write!(text, "{cell:<width$}  ")
                } else {
                    write!(text, "{cell:>width$}  ")
                };
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        for (connections, ceiling, percent) in self.ratios() {
            let _ = writeln!(text, "put at {connections} connections: {percent:.1} % of {ceiling}");
        }
        if let Some(sum) = self.sum {
            text.push_str(&sum.to_text());
            text.push('\n');
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::process::Usage;

    fn report() -> Report {
        let mut outcome = Outcome::default();
        for nanos in [50_000, 100_000] {
            outcome.latency.record(nanos);
        }
        outcome.server = Some(Usage { cpu_micros: 60, resident_bytes: 3 << 20 });
        let store = Row::new(STORE, "put", 16, 2.0, &outcome);
        outcome.server = None;
        let ceiling = Row::new("log-1", "put", 16, 1.0, &outcome);
        let sum = Some(SumCheck { acknowledged: 5, unknown: 0, sum: 5 });
        Report { rows: vec![store, ceiling], sum, notes: vec!["a note".to_owned()] }
    }

    #[test]
    fn text_is_aligned() {
        let expected = "\
target  operation  connections  requests  req_s  p50_us  p99_us  max_us  errors  cpu_us_req  rss_mib  req_sync
store   put                 16         2      1      50     100     100       0        30.0      3.0
log-1   put                 16         2      2      50     100     100       0
put at 16 connections: 50.0 % of log-1
sum of the 20 slots: 5; acknowledged 5, unknown 0: exact
note: a note
";
        assert_eq!(report().write(Format::Text), expected);
    }

    #[test]
    fn tsv_has_a_cell_for_every_column() {
        let text = report().write(Format::Tsv);
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().all(|line| line.split('\t').count() == COLUMNS.len()), "{text}");
    }

    #[test]
    fn json_has_rows_and_ratios() {
        let json: Value = serde_json::from_str(&report().write(Format::Json)).unwrap();
        assert_eq!(json["rows"][0]["server_cpu_us_per_request"], 30.0);
        assert_eq!(json["rows"][1]["server_cpu_us_per_request"], Value::Null);
        assert_eq!(json["ratios"][0]["put_percent"], 50.0);
        assert_eq!(json["sum"]["exact"], true);
    }

    #[test]
    fn sums() {
        for (acknowledged, unknown, sum, holds) in
            [(5, 0, 5, true), (5, 0, 4, false), (5, 0, 6, false), (5, 2, 7, true), (5, 2, 8, false)]
        {
            assert_eq!(SumCheck { acknowledged, unknown, sum }.holds(), holds, "{sum}");
        }
    }
}
