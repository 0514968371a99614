//! The report of a model check, as text for a terminal and as JSON.

use serde_json::{Value, json};
use template::diagnostic::{Diagnostics, counted};

use crate::capacity::GB;
use crate::data_model::{AccessPattern, DataModel};
use crate::estimate::{Estimate, Part, TableEstimate};
use crate::prices::Prices;
use crate::trial::Outcome;

/// The length of the longest bar in characters.
const BAR: f64 = 30.0;
/// The maximum number of characters of a response that the report shows.
const ANSWER_CHARS_MAX: usize = 100;

/// The input of a report.
#[derive(Clone, Copy, Debug)]
pub struct Report<'r> {
    /// The model.
    pub model: &'r DataModel,
    /// The outcomes of the model's access patterns.
    pub trial: &'r [Option<Outcome>],
    /// The estimate of the model.
    pub estimate: &'r Estimate,
    /// The findings about the model.
    pub findings: &'r Diagnostics,
    /// The prices of the estimate.
    pub prices: &'r Prices,
}

impl Report<'_> {
    /// Returns the report as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.patterns();
        for table in &self.estimate.tables {
            text.push_str(&table_text(table));
        }
        if !self.findings.shown.is_empty() {
            text.push_str(&format!("\n{}\n", self.findings));
        }
        let count = self.findings.shown.len() + self.findings.more;
        text.push_str(&format!(
            "\n{}, {}; {}\n",
            counted(self.model.patterns.len(), "access pattern", "access patterns"),
            counted(count, "finding", "findings"),
            self.price(),
        ));
        text
    }

    /// Returns the monthly price, or the reason why the model has no price.
    fn price(&self) -> String {
        if self.model.patterns.is_empty() {
            return "no access patterns: add them, with rates (docs/models.md)".to_owned();
        }
        if self.model.patterns.iter().all(|pattern| pattern.rates().is_none()) {
            return "no price: no access pattern states a rate (docs/models.md)".to_owned();
        }
        let Prices { region, of, .. } = self.prices;
        match self.estimate.on_demand_dollars.zip(self.estimate.provisioned_dollars) {
            Some((on_demand, provisioned)) => format!(
                "{} a month on demand, or {} provisioned for the peak ({region}, prices of {of})",
                dollars(on_demand),
                amount(provisioned)
            ),
            None => {
                let parts = self.estimate.tables.iter().flat_map(|table| {
                    table.parts.iter().filter_map(|part| missing(owner(table, part), part))
                });
                format!("no price: {} (docs/models.md)", parts.collect::<Vec<_>>().join("; "))
            }
        }
    }

    fn patterns(&self) -> String {
        let headings = ["pattern", "operation", "index", "read", "returned", "RCU", "WCU"];
        let mut rows = vec![headings.map(str::to_owned)];
        rows.extend(self.model.patterns.iter().zip(self.trial).map(row));
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..headings.len()).map(width).collect();
        let mut text = String::new();
        let answers = std::iter::once(None).chain(self.trial.iter().map(Option::as_ref));
        for (row, outcome) in rows.iter().zip(answers) {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
            if let Some(outcome) = outcome {
                text.push_str(&format!("    {}\n", answer(outcome)));
            }
        }
        text
    }

    /// Returns the report as JSON. `findings` are the findings as JSON objects.
    #[must_use]
    pub fn json(&self, findings: &[Value]) -> Value {
        let patterns = self.model.patterns.iter().zip(self.trial);
        json!({
            "schema": "weir.model/v1",
            "patterns": patterns.map(pattern_json).collect::<Vec<_>>(),
            "tables": self.estimate.tables,
            "on_demand_dollars": self.estimate.on_demand_dollars,
            "provisioned_dollars": self.estimate.provisioned_dollars,
            "prices_of": self.prices.of,
            "prices_region": self.prices.region,
            "findings": findings,
            "findings_count": self.findings.shown.len() + self.findings.more,
        })
    }
}

fn pattern_json((pattern, outcome): (&AccessPattern, &Option<Outcome>)) -> Value {
    let command = pattern.command.as_ref();
    let consumed = outcome.iter().flat_map(|outcome| &outcome.consumed).map(|part| {
        json!({"table": part.table, "index": part.index, "read_units": part.reads, "write_units": part.writes})
    });
    json!({
        "pattern": pattern.pattern,
        "description": pattern.description,
        "reason": pattern.reason,
        "operation": command.map(|command| command.operation.name()),
        "tables": command.map(|command| command.tables()),
        "index": command.and_then(|command| command.index()),
        "items_read": outcome.as_ref().map(|outcome| outcome.read),
        "items_returned": outcome.as_ref().map(|outcome| outcome.returned),
        "consumed": consumed.collect::<Vec<_>>(),
        "answer": outcome.as_ref().map(|outcome| &outcome.answer),
        "error": outcome.as_ref().and_then(|outcome| outcome.refusal.as_ref()),
    })
}

fn row((pattern, outcome): (&AccessPattern, &Option<Outcome>)) -> [String; 7] {
    let dash = || "-".to_owned();
    let (Some(command), Some(outcome)) = (&pattern.command, outcome) else {
        let operation = if pattern.reason.is_some() { "elsewhere" } else { "none" };
        let name = pattern.pattern.clone();
        return [name, operation.to_owned(), dash(), dash(), dash(), dash(), dash()];
    };
    let (reads, writes) = outcome.units();
    [
        pattern.pattern.clone(),
        command.operation.name().to_owned(),
        command.index().map_or_else(dash, str::to_owned),
        outcome.read.to_string(),
        outcome.returned.to_string(),
        if reads > 0.0 { number(reads) } else { dash() },
        if writes > 0.0 { number(writes) } else { dash() },
    ]
}

/// Returns the response of an access pattern on one line, truncated to [`ANSWER_CHARS_MAX`].
fn answer(outcome: &Outcome) -> String {
    if let Some(error) = &outcome.refusal {
        return error.clone();
    }
    let parts = ["Items", "Item", "Responses", "Attributes"];
    let shown = parts.iter().find_map(|part| outcome.answer.get(part));
    let (reads, _) = outcome.units();
    let nothing = if reads > 0.0 { "no item" } else { "done" };
    let text = shown.map_or_else(|| nothing.to_owned(), Value::to_string);
    match text.char_indices().nth(ANSWER_CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// Formats a number with at most two decimal places, and commas between thousands.
pub(crate) fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    grouped(text.trim_end_matches('0').trim_end_matches('.'))
}

/// Formats an amount of dollars with its unit.
pub(crate) fn dollars(value: f64) -> String {
    format!("{} dollars", amount(value))
}

/// Formats an amount of dollars without its unit.
fn amount(value: f64) -> String {
    match value > 0.0 && value < 0.01 {
        true => "less than 0.01".to_owned(),
        false => grouped(&format!("{value:.2}")),
    }
}

/// Inserts commas between thousands into a number of at least 0.
fn grouped(text: &str) -> String {
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::with_capacity(text.len() + whole.len() / 3);
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

/// Returns the entries to add to the model so that all patterns of a part have a price; `None` if
/// they all have one. `owner` is the name of the table or index.
fn missing(owner: &str, part: &Part) -> Option<String> {
    let entry = part.unpriced.first()?.missing;
    let patterns: Vec<&str> = part.unpriced.iter().map(|found| found.pattern.as_str()).collect();
    let (subject, verb) = match patterns.as_slice() {
        [only] => (format!("pattern {only}"), "reads"),
        all => (format!("patterns {}", all.join(", ")), "read"),
    };
    Some(format!(
        "{subject} {verb} all items of `{owner}`: state its `{entry}` in `workload`, or `items_per_request`"
    ))
}

/// Returns the estimate of a table as a bar chart; empty if the table has no load and its size is
/// unknown.
fn table_text(table: &TableEstimate) -> String {
    let most = table.parts.iter().flat_map(|part| [part.reads.peak, part.writes.peak]);
    let most = most.fold(0.0, f64::max);
    let is_stored = table.parts.iter().any(|part| part.bytes.is_some());
    if most <= 0.0 && !is_stored {
        return String::new();
    }
    let amplification =
        table.write_amplification.filter(|times| *times > 1.0).map_or(String::new(), |times| {
            format!(
                ", write amplification {}: write units with indexes ÷ write units without indexes",
                number(times)
            )
        });
    let class = match table.is_priced_as_standard {
        true => ", priced as Standard although it is Standard-IA",
        false => "",
    };
    let mut text = format!("\n{}{amplification}{class}\n", table.table);
    let name = |part: &Part| part.index.clone().unwrap_or_else(|| "table".to_owned());
    let widest = table.parts.iter().map(|part| name(part).chars().count()).max().unwrap_or(0);
    for part in &table.parts {
        let name = name(part);
        let mut label = format!("  {name:<widest$}");
        for (rate, unit) in [(part.writes, "WCU"), (part.reads, "RCU")] {
            if rate.peak > 0.0 {
                let (average, peak) = (number(rate.average), number(rate.peak));
                text.push_str(&format!(
                    "{label}  {} {peak} {unit}, {average} on average\n",
                    bar(rate.peak, most)
                ));
                label = " ".repeat(widest + 2);
            }
        }
        text.push_str(&format!("{label}  {}\n", stored(owner(table, part), part)));
    }
    text
}

/// Returns a bar whose length is in proportion to `most`, the value of the longest bar.
fn bar(value: f64, most: f64) -> String {
    let length = (value / most * BAR).ceil().clamp(1.0, BAR);
    let cells = (1_u32..=30).filter(|cell| f64::from(*cell) <= length);
    cells.map(|_| '█').collect()
}

/// Returns the size, the partitions and the price of a table or an index. `owner` is its name.
fn stored(owner: &str, part: &Part) -> String {
    let mut texts = Vec::new();
    if let Some(bytes) = part.bytes {
        texts.push(format!("{} GB", number(bytes / GB)));
    }
    if let Some(partitions) = part.partitions {
        texts.push(format!(
            "{}, each with {} RCU and {} WCU at the peak, and with {} RCU and {} WCU unused, if the load is even",
            counted(number(partitions.count), "partition", "partitions"),
            number(partitions.reads_each),
            number(partitions.writes_each),
            number(partitions.reads_left),
            number(partitions.writes_left),
        ));
    }
    let has_load = part.reads.peak + part.writes.peak > 0.0;
    match missing(owner, part) {
        Some(missing) => texts.push(format!("no price: {missing}")),
        None if has_load => texts.push(format!(
            "{} a month on demand, {} provisioned",
            dollars(part.on_demand_dollars + part.storage_dollars),
            amount(part.provisioned_dollars + part.storage_dollars)
        )),
        None if part.storage_dollars > 0.0 => {
            texts.push(format!("{} a month for storage", dollars(part.storage_dollars)));
        }
        None => {}
    }
    match texts.is_empty() {
        true => "no load".to_owned(),
        false => texts.join("; "),
    }
}

/// Returns the name of the index of a part, or the name of its table.
fn owner<'e>(table: &'e TableEstimate, part: &'e Part) -> &'e str {
    part.index.as_deref().unwrap_or(&table.table)
}
