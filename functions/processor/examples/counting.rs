//! Measures votes per second and core, from the JSON of stream records to the total items.
//!
//! Processes batches of 10,000 records as the function `counters` does between two requests. It
//! decodes the records as Lambda delivers them, applies the rule, folds the effects, joins the
//! slots into the totals, and decodes each total item again. Nothing is sent over the network.
//! `--write FILE` writes the batches, to measure other programs with the same input: see
//! `docs/development/benchmarks.md`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measurement may panic and print"
)]

mod measurement;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

use model::Item;
use model::stream_record::lambda_record_from_str;
// Links the crate, because it sets the allocator of the functions.
use processor as _;
use rules::counters::{Counters, Total};
use rules::{Found, Rule, fold};
use serde::Deserialize;
use serde_json::value::RawValue;

const BATCH: u64 = 10_000;
const COUNTERS: u64 = 50;
const SLOTS: u64 = 20;

#[derive(Deserialize)]
struct Event<'t> {
    #[serde(borrow, rename = "Records")]
    records: Vec<&'t RawValue>,
}

/// Returns a batch of votes as one line of JSON.
fn batch(first: u64) -> String {
    let mut text = String::from(r#"{"Records":["#);
    for number in first..first + BATCH {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17;
        let (counter, slot) = (mixed % COUNTERS, mixed / COUNTERS % SLOTS);
        let comma = if number == first { "" } else { "," };
        let key = format!(r#""slot":{{"S":"poll-{counter}#{slot}"}}"#);
        let _ = write!(
            text,
            r#"{comma}{{"eventID":"{number:032x}","eventName":"MODIFY","eventVersion":"1.1","eventSource":"aws:dynamodb","awsRegion":"us-east-1","dynamodb":{{"ApproximateCreationDateTime":{},"Keys":{{{key}}},"NewImage":{{{key},"votes":{{"N":"{}"}}}},"OldImage":{{{key},"votes":{{"N":"{}"}}}},"SequenceNumber":"{:021}","SizeBytes":59,"StreamViewType":"NEW_AND_OLD_IMAGES"}},"eventSourceARN":"arn:aws:dynamodb:us-east-1:000000000000:table/votes/stream/2026-11-21T02:30:00.000"}}"#,
            1_795_228_140 + number / 5_000,
            number + 1,
            number,
            number + 7,
        );
    }
    text.push_str("]}");
    text
}

fn apply(rule: &Counters, totals: &mut BTreeMap<String, Item>, text: &str) -> usize {
    let event: Event<'_> = serde_json::from_str(text).unwrap();
    let records: Vec<_> =
        event.records.iter().map(|raw| lambda_record_from_str(raw.get()).unwrap()).collect();
    let needs = rule.needs(&records.iter().collect::<Vec<_>>());
    let found = needs.into_iter();
    let found = found.filter_map(|counter| {
        let total = Total::from_item(totals.get(&counter)?);
        Some((counter, total))
    });
    let found = Found { inputs: found.collect(), ..Found::default() };
    let effects = records.iter().enumerate().flat_map(|(position, record)| {
        let effects = rule.decide(record, &found).unwrap();
        effects.into_iter().map(move |effect| (position, effect))
    });
    let mut writes = 0;
    for (counter, joined) in fold(effects) {
        let total =
            totals.get(&counter).map_or_else(Total::default, |i| Total::from_item(i).unwrap());
        if let Some(total) = total.joined(&joined.value) {
            totals.insert(counter.clone(), total.to_item("counter", &counter));
            writes += 1;
        }
    }
    writes
}

fn main() {
    measure(measurement::records());
}

fn measure(records: u64) {
    let rule =
        Counters { slot_count: 20, slot_key: "slot".to_owned(), slot_value: "votes".to_owned() };
    let mut file =
        measurement::argument("--write").map(|path| std::fs::File::create(path).unwrap());
    let (mut totals, mut writes, mut busy, mut batches) = (BTreeMap::new(), 0, 0.0, 0);
    for first in (0..records).step_by(usize::try_from(BATCH).unwrap()) {
        let text = batch(first);
        if let Some(file) = &mut file {
            writeln!(file, "{text}").unwrap();
        }
        let started = measurement::busy_seconds();
        writes += apply(&rule, &mut totals, &text);
        busy += measurement::busy_seconds() - started;
        batches += 1;
    }
    let votes = batches * BATCH;
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = votes as f64 / busy;
    println!(
        "{votes} votes in {busy:.2} s: {rate:.0} votes/s on one core, {writes} writes of totals for {batches} batches, peak memory {}",
        measurement::peak_memory()
    );
}
