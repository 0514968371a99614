//! Stream records on their way to a function, and the event that carries them.
//!
//! Nothing here decides whether, when or how often a record is delivered.

use std::sync::Arc;

use serde_json::Value;

use super::sequence::SequenceNumber;

/// A Lambda event carries at most 6 MB (Lambda quotas, "Invocation payload"), in bytes, inclusive.
pub const EVENT_BYTES_MAX: usize = 6 * 1024 * 1024;

const EVENT_HEAD: &str = r#"{"Records":["#;
const EVENT_TAIL: &str = "]}";

/// One record of a page, as it was read from a shard.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Its place in the shard.
    pub sequence: SequenceNumber,
    /// When the change was made, in whole seconds since 1970 (DynamoDB rounds down);
    /// `None` when the stream did not say, and then the record has no age.
    pub creation_s: Option<i64>,
    /// The record as Lambda hands it to a function, with `eventSourceARN` and all.
    pub event: Value,
}

/// A record that passed the filter: its event is serialized once and kept as text,
/// which takes a fraction of the memory of the parsed form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its place in the shard.
    pub sequence: SequenceNumber,
    /// As [`Record::creation_s`].
    pub creation_s: Option<i64>,
    /// The record as JSON text.
    pub json: Box<str>,
}

impl Delivery {
    /// Serializes a record that passed the filter.
    #[must_use]
    pub fn of(record: Record) -> Self {
        Self {
            sequence: record.sequence,
            creation_s: record.creation_s,
            json: record.event.to_string().into_boxed_str(),
        }
    }

    /// The record's age in milliseconds at `time_ms`; `None` without a creation time.
    #[must_use]
    pub fn age_ms(&self, time_ms: i64) -> Option<i64> {
        self.creation_s.map(|seconds| time_ms.saturating_sub(seconds.saturating_mul(1000)))
    }
}

/// The length in bytes that [`event`] has for records of these JSON lengths.
#[must_use]
pub fn event_bytes(records: usize, json_bytes: usize) -> usize {
    EVENT_HEAD.len() + json_bytes + records.saturating_sub(1) + EVENT_TAIL.len()
}

/// The event of one invocation: `{"Records":[…]}`, in the order given.
#[must_use]
pub fn event(records: &[Arc<Delivery>]) -> String {
    let json_bytes = records.iter().map(|record| record.json.len()).sum();
    let mut text = String::with_capacity(event_bytes(records.len(), json_bytes));
    text.push_str(EVENT_HEAD);
    for (index, record) in records.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&record.json);
    }
    text.push_str(EVENT_TAIL);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn delivery(sequence: &str, event: Value) -> Arc<Delivery> {
        let sequence = SequenceNumber::parse(sequence).unwrap();
        Arc::new(Delivery::of(Record { sequence, creation_s: Some(5), event }))
    }

    #[test]
    fn the_event_is_as_long_as_foretold() {
        let records = [delivery("1", json!({"a": "ü"})), delivery("2", json!({"b": [1, 2]}))];
        for count in 0..=records.len() {
            let some = &records[..count];
            let json_bytes = some.iter().map(|record| record.json.len()).sum();
            let text = event(some);
            assert_eq!(text.len(), event_bytes(count, json_bytes));
            let parsed: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(parsed["Records"].as_array().unwrap().len(), count);
        }
    }

    #[test]
    fn age_is_measured_from_the_whole_second() {
        assert_eq!(delivery("1", json!({})).age_ms(7_250), Some(2_250));
    }
}
