//! Runs the text cases of the whole mapping, `testdata/machine/*.txt`.
//!
//! A line of input is one of:
//!
//! ```text
//! settings [batch=N] [window=MS] [retries=N] [age=S] [bisect] [report] [destination] [latest]
//!          [duplicate] [filter=INSERT] [lanes=N] [tumbling=S] [missing=MS] [read=MS] [margin=S]
//!                                          a new mapping; the clocks start at 0
//! at TICK                                  sets the tick clock, then sends a tick
//! time SECONDS                             sets the store's clock, without an input
//! described [disabled] SHARD[<PARENT][!] … a listing; `!` is a closed shard
//! describe-failed | stream-missing         the stream cannot be listed | does not exist
//! arrived                                  records may have arrived
//! saved                                    checkpoints are durable
//! page SHARD [SEQ[@SECONDS][#ITEM][=BYTES][~] …] [end]
//!                                          a page; `~` is a record that does not pass the filter
//! read-failed SHARD expired|trimmed|gone|unavailable
//! ok BATCH [ANSWER]                        the function returned nothing, or JSON
//! ok-large BATCH                           the function returned a state of over 1 MB
//! error BATCH | throttled BATCH            the function failed | was not reached
//! delivered D | refused D                  the failure record was stored | was not stored
//! accept-gap SHARD | stop
//! restart                                  a new mapping from the checkpoints of this one
//! status                                   shows the shards, and if all are drained
//! failure                                  shows the last failure record without its payload
//! ```

use serde_json::{Value, json};

use super::*;

#[test]
fn text_cases() {
    cases::check("machine", || {
        let mut bench = Bench::new(Settings::new("", "", ""));
        move |input: &str| {
            let mut output = String::new();
            for line in input.lines() {
                output.push_str(&bench.run(line));
            }
            output
        }
    });
}

struct Bench {
    mapping: Mapping,
    now: Now,
    failure: Option<Value>,
}

impl Bench {
    fn new(settings: Settings) -> Self {
        let now = Now { time_ms: 0, tick_ms: 0 };
        Self { mapping: Mapping::new(settings, None), now, failure: None }
    }

    fn run(&mut self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let command = words.next().unwrap();
        let words: Vec<&str> = words.collect();
        let input = match command {
            "settings" => {
                *self = Self::new(settings(&words));
                Input::Tick
            }
            "restart" => {
                let checkpoints = self.mapping.checkpoints();
                self.mapping = Mapping::new(self.mapping.settings().clone(), checkpoints);
                Input::Tick
            }
            "at" => {
                self.now.tick_ms = words[0].parse().unwrap();
                Input::Tick
            }
            "time" => {
                self.now.time_ms = words[0].parse::<i64>().unwrap() * 1000;
                return String::new();
            }
            "status" => return status(&self.mapping.status(self.now.time_ms)),
            "failure" => {
                return serde_json::to_string_pretty(self.failure.as_ref().unwrap()).unwrap()
                    + "\n";
            }
            _ => input(command, &words),
        };
        let mut output = String::new();
        let was_gone = self.mapping.gone().is_some();
        for command in self.mapping.step(self.now, input) {
            if let Command::DeliverFailure { object, .. } = &command {
                let mut document: Value = serde_json::from_str(&object.body).unwrap();
                document.as_object_mut().unwrap().remove("payload").unwrap();
                self.failure = Some(document);
            }
            output.push_str(&format!("{command}\n"));
        }
        if !was_gone && let Some(reason) = self.mapping.gone() {
            output.push_str(&format!("gone: {reason}\n"));
        }
        output
    }
}

fn settings(words: &[&str]) -> Settings {
    let mut settings = Settings::new("uuid", "arn:function", "arn:table/t/stream/label");
    settings.pace.retry.spread_percent = 0;
    settings.pace.unreachable.spread_percent = 0;
    for word in words {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match name {
            "batch" => settings.batch_size = value.parse().unwrap(),
            "window" => settings.batching_window_ms = value.parse().unwrap(),
            "retries" => settings.retry_attempts = Some(value.parse().unwrap()),
            "age" => settings.record_age_ms = Some(value.parse::<i64>().unwrap() * 1000),
            "bisect" => settings.bisect_on_function_error = true,
            "report" => settings.report_batch_item_failures = true,
            "destination" => settings.has_failure_destination = true,
            "latest" => settings.starting_position = StartingPosition::Latest,
            "lanes" => settings.parallelization_factor = value.parse().unwrap(),
            "tumbling" => settings.tumbling_window_s = Some(value.parse().unwrap()),
            "missing" => settings.pace.missing_ms = value.parse().unwrap(),
            "read" => settings.pace.read_ms = value.parse().unwrap(),
            "margin" => settings.clock_margin_ms = value.parse::<i64>().unwrap() * 1000,
            "duplicate" => settings.faults.duplicate_delivery = true,
            "filter" => {
                let pattern = json!({ "eventName": [value] }).to_string();
                settings.filter = FilterCriteria::compile(&[pattern]).unwrap();
            }
            other => panic!("unknown setting {other}"),
        }
    }
    settings.check().unwrap();
    settings
}

fn input(command: &str, words: &[&str]) -> Input {
    let number = |text: &str| text[1..].parse::<u64>().unwrap();
    match command {
        "described" => Input::Described {
            enabled: !words.contains(&"disabled"),
            shards: words
                .iter()
                .filter(|word| **word != "disabled")
                .map(|word| shard(word))
                .collect(),
        },
        "stream-missing" => Input::StreamMissing { reason: "no such stream".to_owned() },
        "arrived" => Input::Arrived,
        "saved" => Input::Saved,
        "describe-failed" => Input::DescribeFailed { reason: "refused".to_owned() },
        "page" => Input::Page {
            shard: ShardId::new(words[0]),
            records: words[1..]
                .iter()
                .filter(|word| **word != "end")
                .map(|word| record(word))
                .collect(),
            end: words.contains(&"end"),
        },
        "read-failed" => Input::ReadFailed {
            shard: ShardId::new(words[0]),
            failure: match words[1] {
                "expired" => ReadFailure::IteratorExpired,
                "trimmed" => ReadFailure::Trimmed { reason: "trimmed".to_owned() },
                "gone" => ReadFailure::ShardGone { reason: "gone".to_owned() },
                _ => ReadFailure::Unavailable { reason: "refused".to_owned() },
            },
        },
        "ok" | "error" | "throttled" => {
            let payload = words[1..].join(" ").into_bytes().into();
            let outcome = match command {
                "ok" => InvokeOutcome::Ok(payload),
                "error" => InvokeOutcome::FunctionError {
                    kind: "Unhandled".to_owned(),
                    message: "oops".to_owned(),
                    payload,
                },
                _ => InvokeOutcome::NotInvoked("throttled".to_owned()),
            };
            Input::Invoked { batch: BatchId(number(words[0])), outcome }
        }
        "ok-large" => {
            let state = json!({ "state": { "large": "x".repeat(STATE_BYTES_MAX) } });
            let outcome = InvokeOutcome::Ok(state.to_string().into());
            Input::Invoked { batch: BatchId(number(words[0])), outcome }
        }
        "delivered" => Input::FailureDelivered { delivery: DeliveryId(number(words[0])) },
        "refused" => Input::FailureNotDelivered {
            delivery: DeliveryId(number(words[0])),
            reason: "no such bucket".to_owned(),
        },
        "accept-gap" => Input::AcceptGap { shard: ShardId::new(words[0]) },
        "stop" => Input::Stop,
        other => panic!("unknown line {other}"),
    }
}

fn shard(word: &str) -> ShardDescription {
    let (word, closed) = word.strip_suffix('!').map_or((word, false), |word| (word, true));
    let (id, parent) = word.split_once('<').map_or((word, None), |(id, parent)| (id, Some(parent)));
    ShardDescription { id: ShardId::new(id), parent: parent.map(ShardId::new), closed }
}

fn record(word: &str) -> Record {
    let (word, passes) = word.strip_suffix('~').map_or((word, true), |word| (word, false));
    let (word, bytes) = word.split_once('=').unwrap_or((word, "0"));
    let (word, item) = word.split_once('#').unwrap_or((word, ""));
    let (sequence, seconds) = word.split_once('@').unwrap_or((word, "0"));
    let event_name = if passes { "INSERT" } else { "REMOVE" };
    let event = json!({ "eventName": event_name, "dynamodb": {
        "Keys": { "pk": { "S": "p" }, "sk": { "S": item } },
        "NewImage": { "text": { "S": "x".repeat(bytes.parse().unwrap()) } },
        "SequenceNumber": sequence,
    } });
    let sequence = SequenceNumber::parse(sequence).unwrap();
    Record::of_event(sequence, Some(seconds.parse().unwrap()), &event)
}

fn status(status: &Status) -> String {
    let mut output = String::new();
    for shard in &status.shards {
        let phase = match shard.phase {
            Phase::Waiting => "waiting",
            Phase::Reading => "reading",
            Phase::Done { .. } => "done",
            Phase::Gap => "gap",
        };
        let text = |sequence: &Option<SequenceNumber>| {
            sequence.as_ref().map_or("-".to_owned(), ToString::to_string)
        };
        output.push_str(&format!(
            "{} {phase} read {} checkpoint {} tip {} waiting {} in flight {} failed {} lag {}\n",
            shard.id,
            text(&shard.last_read),
            text(&shard.checkpoint),
            shard.at_tip,
            shard.waiting,
            shard.in_flight,
            shard.failed_attempts,
            shard.lag_ms,
        ));
    }
    output.push_str(&format!("drained {}\n", status.is_drained_after(0)));
    if status.unsaved {
        output.push_str("unsaved\n");
    }
    output
}
