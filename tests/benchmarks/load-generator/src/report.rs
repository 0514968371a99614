//! Formatting of results as lines of tab-separated values, and ratios between rows of one run.

use crate::measurement::Outcome;

/// One measurement's result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// The measured target: `store`, or the name of a ceiling.
    pub(crate) target: String,
    pub(crate) operation: String,
    pub(crate) connections: u32,
    pub(crate) requests: u64,
    pub(crate) requests_per_second: f64,
    /// The median latency in microseconds.
    pub(crate) p50_micros: f64,
    pub(crate) p99_micros: f64,
    pub(crate) max_micros: f64,
    pub(crate) errors: u64,
    /// The server's CPU time per request, if its process is known.
    pub(crate) cpu_micros: Option<f64>,
    pub(crate) resident_bytes: Option<u64>,
    /// Acknowledged requests per sync of each log, if the server reports its syncs.
    pub(crate) requests_per_sync: Option<f64>,
}

/// The target of a row that measured the endpoint.
pub(crate) const STORE: &str = "store";

#[expect(clippy::cast_precision_loss, reason = "counts and nanoseconds of one run are below 2^53")]
fn real(number: u64) -> f64 {
    number as f64
}

/// Returns `count` divided by `by`, which must not be 0.
pub(crate) fn ratio(count: u64, by: u64) -> f64 {
    real(count) / real(by)
}

impl Row {
    /// Returns the row of an outcome that was measured for `seconds`.
    pub(crate) fn new(
        target: &str,
        operation: &str,
        connections: u32,
        seconds: f64,
        outcome: &Outcome,
    ) -> Self {
        let latency = &outcome.latency;
        let requests = latency.len();
        let micros = |nanos: u64| real(nanos) / 1000.0;
        let cpu = outcome.server.filter(|_| requests > 0);
        Self {
            target: target.to_owned(),
            operation: operation.to_owned(),
            connections,
            requests,
            requests_per_second: real(requests) / seconds,
            p50_micros: micros(latency.value_at_quantile(0.5)),
            p99_micros: micros(latency.value_at_quantile(0.99)),
            max_micros: micros(latency.max()),
            errors: outcome.errors,
            cpu_micros: cpu.map(|usage| real(usage.cpu_micros) / real(requests)),
            resident_bytes: outcome.server.map(|usage| usage.resident_bytes),
            requests_per_sync: None,
        }
    }

    /// Returns the row as a line, with the columns of [`HEADER`].
    pub(crate) fn line(&self) -> String {
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
        .join("\t")
    }
}

/// The header line.
pub(crate) const HEADER: &str = "target\toperation\tconnections\trequests\treq_s\tp50_us\tp99_us\tmax_us\terrors\tcpu_us_req\trss_mib\treq_sync";

/// The check of the counter after the updates: compares the increase of the slots with the number
/// of updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SumCheck {
    pub(crate) acknowledged: u64,
    /// The number of updates whose outcome is unknown.
    pub(crate) unknown: u64,
    pub(crate) sum: u64,
}

impl SumCheck {
    /// Returns whether the increase contains every acknowledged update once, and in addition at
    /// most the updates of unknown outcome.
    pub(crate) fn holds(self) -> bool {
        let most = self.acknowledged.saturating_add(self.unknown);
        (self.acknowledged..=most).contains(&self.sum)
    }

    /// Returns the check as text.
    pub(crate) fn text(self) -> String {
        let Self { acknowledged, unknown, sum } = self;
        let verdict = if self.holds() { "exact" } else { "WRONG" };
        format!(
            "sum of the 20 slots: {sum}; acknowledged {acknowledged}, unknown {unknown}: {verdict}"
        )
    }
}

/// Returns the throughput of the store's puts in percent of each ceiling with the same number of
/// connections, one line each.
pub(crate) fn ratios(rows: &[Row]) -> Vec<String> {
    let puts = rows.iter().filter(|row| row.target == STORE && row.operation == "put");
    puts.flat_map(|put| {
        let same = |row: &&Row| row.target != STORE && row.connections == put.connections;
        rows.iter().filter(same).filter(|row| row.requests > 0).map(|row| {
            let percent = 100.0 * put.requests_per_second / row.requests_per_second;
            format!("put at {} connections: {percent:.1} % of {}", put.connections, row.target)
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Usage;

    #[test]
    fn a_line_has_a_cell_for_every_column() {
        let mut outcome = Outcome::new().unwrap();
        for nanos in [50_000, 100_000] {
            outcome.latency.record(nanos).unwrap();
        }
        let ceiling = Row::new("log-1", "put", 16, 1.0, &outcome);
        outcome.server = Some(Usage { cpu_micros: 60, resident_bytes: 3 << 20 });
        let mut store = Row::new(STORE, "put", 16, 2.0, &outcome);
        store.requests_per_sync = Some(ratio(7, 2));
        assert_eq!(store.line(), "store\tput\t16\t2\t1\t50\t100\t100\t0\t30.0\t3.0\t3.5");
        for line in [store.line(), ceiling.line()] {
            assert_eq!(line.split('\t').count(), HEADER.split('\t').count(), "{line}");
        }
        assert_eq!(ratios(&[store, ceiling]), ["put at 16 connections: 50.0 % of log-1"]);
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
