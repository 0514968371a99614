//! Measures how many records a mapping delivers to a function that does nothing, on one core.
//!
//! `cargo run --release -p mapping --example throughput -- [RECORDS] [LANES] [BATCH]` (1,000,000
//! records, 1 lane, batches of 100). The measurement covers pages, the filter, batches, the JSON of
//! events, and checkpoints. It uses no network, no disk and no other process.

#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock and its arguments")]

use std::collections::VecDeque;
use std::io::Write as _;
use std::time::Instant;

use mapping::{
    Command, FilterCriteria, Input, InvokeOutcome, Mapping, Now, Record, SequenceNumber, Settings,
    ShardDescription, ShardId, event,
};
use serde_json::json;

/// Number of records in one page of `GetRecords`.
const PAGE: u64 = 1_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<u64> =
        std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    let argument = |place, default| arguments.get(place).copied().unwrap_or(default);
    let records = argument(0, 1_000_000);
    let settings = settings(usize::try_from(argument(1, 1))?, usize::try_from(argument(2, 100))?)?;
    let started = Instant::now();
    let (events, event_bytes) = run(Mapping::new(settings, None), records)?;
    let seconds = started.elapsed().as_secs_f64();
    let mut output = std::io::stdout();
    writeln!(output, "{records} records in {seconds:.2} s")?;
    writeln!(output, "{:.0} records/s on one core", records as f64 / seconds)?;
    writeln!(output, "{events} invocations, {event_bytes} bytes of events")?;
    if let Some(peak) = peak_memory() {
        writeln!(output, "peak memory {peak}")?;
    }
    Ok(())
}

fn settings(lanes: usize, batch: usize) -> Result<Settings, Box<dyn std::error::Error>> {
    let arn = "arn:aws:dynamodb:eu-west-1:000000000000:table/t/stream/2026-11-21T00:00:00.000";
    let mut settings = Settings::new("mapping", "arn:function", arn);
    settings.parallelization_factor = lanes;
    settings.batch_size = batch;
    settings.report_batch_item_failures = true;
    settings.filter = FilterCriteria::compile(&[r#"{"eventName":["INSERT","MODIFY"]}"#])?;
    settings.check()?;
    Ok(settings)
}

/// Simulates the stream and the function; returns the number of events and their bytes.
fn run(mut mapping: Mapping, records: u64) -> Result<(u64, usize), Box<dyn std::error::Error>> {
    let shard = ShardId::new("shardId-00000001795228140000-00000000");
    let (mut next, mut events, mut event_bytes) = (0, 0, 0);
    let mut now = Now { time_ms: 1_795_228_140_000, tick_ms: 0 };
    let mut inputs = VecDeque::from([Input::Tick]);
    while let Some(input) = inputs.pop_front() {
        for command in mapping.step(now, input) {
            match command {
                Command::Describe => {
                    let description =
                        ShardDescription { id: shard.clone(), parent: None, closed: true };
                    inputs
                        .push_back(Input::Described { enabled: false, shards: vec![description] });
                }
                Command::Read { .. } => {
                    let page_end = records.min(next + PAGE);
                    let page = (next..page_end).map(record).collect::<Result<_, _>>()?;
                    next = page_end;
                    let end = next == records;
                    inputs.push_back(Input::Page { shard: shard.clone(), records: page, end });
                }
                Command::Invoke { batch, records, .. } => {
                    event_bytes += event(&records, "").len();
                    events += 1;
                    let outcome = InvokeOutcome::Ok(b"{}".to_vec().into());
                    inputs.push_back(Input::Invoked { batch, outcome });
                }
                _ => {}
            }
        }
        now.tick_ms += 1;
    }
    if mapping.is_over() {
        Ok((events, event_bytes))
    } else {
        Err("the mapping has stopped".into())
    }
}

fn record(number: u64) -> Result<Record, Box<dyn std::error::Error>> {
    let sequence = format!("{:021}", number + 1);
    let partition_key = json!({ "S": format!("customer-{}", number % 10_000) });
    let sort_key = json!({ "S": format!("order-{number}") });
    let image = json!({
        "pk": partition_key,
        "sk": sort_key,
        "amount": { "N": number.to_string() },
        "note": { "S": "a hundred bytes of text or so, as an item may well have in one of its attributes" },
    });
    let event = json!({
        "eventID": format!("{number:032x}"),
        "eventName": "INSERT",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "eu-west-1",
        "dynamodb": {
            "ApproximateCreationDateTime": 1_795_228_140,
            "Keys": { "pk": partition_key, "sk": sort_key },
            "NewImage": image,
            "SequenceNumber": sequence,
            "SizeBytes": 200,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
    });
    let sequence = SequenceNumber::parse(&sequence)?;
    let keys = json!({ "pk": partition_key, "sk": sort_key }).to_string();
    let event = event.to_string().into_boxed_str();
    Ok(Record::new(sequence, Some(1_795_228_140), Some(keys.into_boxed_str()), event))
}

/// Returns the peak memory of this process (`VmHWM` of Linux); `None` on other systems.
fn peak_memory() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.trim_start_matches("VmHWM:").trim().to_owned())
}
