//! Stream records before delivery, and the event that contains them.
//!
//! `lane` decides when a record is delivered.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::back_off;
use super::sequence::SequenceNumber;

/// The maximum size of a Lambda event in bytes, inclusive: 6 MB (Lambda quotas, "Invocation
/// payload").
pub const EVENT_BYTES_MAX: usize = 6 * 1024 * 1024;

/// The time for which a DynamoDB stream keeps a record, in milliseconds.
pub const RETENTION_MS: i64 = 24 * 60 * 60 * 1000;

const EVENT_HEAD: &str = r#"{"Records":["#;
const LIST_END: &str = "]";
const EVENT_END: &str = "}";

/// One record of a page from a shard.
#[derive(Debug, Clone)]
pub struct Record {
    /// The record's sequence number in the shard.
    pub sequence: SequenceNumber,
    /// The time of the change, in whole seconds since 1970 (DynamoDB rounds down). `None` if the
    /// stream did not return the time. A record without this time never expires by age.
    pub creation_s: Option<i64>,
    keys: Option<Box<str>>,
    json: Box<str>,
    parsed: OnceLock<Value>,
}

/// A record that passed the filter, as JSON text. The text needs only a fraction of the memory of
/// the parsed record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The record's sequence number in the shard.
    pub sequence: SequenceNumber,
    /// The creation time, as in [`Record::creation_s`].
    pub creation_s: Option<i64>,
    /// The item's key in DynamoDB JSON. It is used only to choose the lane, and is `None` after
    /// this choice.
    pub keys: Option<Box<str>>,
    /// The record as JSON text.
    pub json: Box<str>,
}

impl Record {
    /// Returns a record. `json` is the JSON text that Lambda delivers, including `eventSourceARN`.
    /// `keys` is the JSON text of the item's key.
    #[must_use]
    pub fn new(
        sequence: SequenceNumber,
        creation_s: Option<i64>,
        keys: Option<Box<str>>,
        json: Box<str>,
    ) -> Self {
        Self { sequence, creation_s, keys, json, parsed: OnceLock::new() }
    }

    /// Creates a record from its JSON in a Lambda event. `creation_s` is in seconds since 1970.
    #[must_use]
    pub fn of_event(sequence: SequenceNumber, creation_s: Option<i64>, event: &Value) -> Self {
        let keys = event.pointer("/dynamodb/Keys").map(|keys| text_of(keys).into_boxed_str());
        Self::new(sequence, creation_s, keys, text_of(event).into_boxed_str())
    }

    /// Returns the record as JSON text.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Returns the parsed record, or null if its nesting exceeds DynamoDB's limit. The record is
    /// parsed on demand, because most mappings never need the parsed form.
    #[must_use]
    pub fn event(&self) -> &Value {
        self.parsed.get_or_init(|| serde_json::from_str(&self.json).unwrap_or_default())
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        (&self.sequence, self.creation_s, &self.json)
            == (&other.sequence, other.creation_s, &other.json)
    }
}

impl From<Record> for Delivery {
    fn from(record: Record) -> Self {
        let Record { sequence, creation_s, keys, json, .. } = record;
        Self { sequence, creation_s, keys, json }
    }
}

impl Delivery {
    /// Returns a hash of the item's key, independent of the order of the key attributes. All
    /// records of an item have the same hash. All records without keys count as one item. A mapping
    /// with one lane does not need the hash.
    #[must_use]
    pub fn item(&self) -> u64 {
        let keys = self.keys.as_deref().and_then(|keys| serde_json::from_str::<Value>(keys).ok());
        // The order of the attributes does not change the sum.
        keys.iter().filter_map(Value::as_object).flatten().fold(0, |sum, (name, value)| {
            let text = format!("{name}\0{}", text_of(value));
            sum.wrapping_add(back_off::mix(back_off::seed_of(&text)))
        })
    }

    /// Returns the record's age in milliseconds at `time_ms`; `None` if the record has no creation
    /// time.
    #[must_use]
    pub fn age_ms(&self, time_ms: i64) -> Option<i64> {
        self.creation_s.map(|seconds| time_ms.saturating_sub(seconds.saturating_mul(1000)))
    }
}

/// Returns a value as JSON text. This function is about twice as fast as `Display`, which writes
/// many small pieces.
fn text_of(value: &Value) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| value.to_string())
}

/// Returns the length in bytes of an [`event`] with this number of records and this total length of
/// their JSON. Further members of the event are not included.
#[must_use]
pub fn event_bytes(records: usize, json_bytes: usize) -> usize {
    let frame = EVENT_HEAD.len() + LIST_END.len() + EVENT_END.len();
    frame + json_bytes + records.saturating_sub(1)
}

/// Returns the event of one invocation: `{"Records":[…]}`, in the given order. `members` is the
/// JSON text of the [window's members](super::WindowInvocation::members), which follows the list.
/// It is empty without a window.
#[must_use]
pub fn event(records: &[Arc<Delivery>], members: &str) -> String {
    let json_bytes = records.iter().map(|record| record.json.len()).sum();
    let length = event_bytes(records.len(), json_bytes) + members.len();
    let mut text = String::with_capacity(length);
    text.push_str(EVENT_HEAD);
    for (index, record) in records.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&record.json);
    }
    text.push_str(LIST_END);
    text.push_str(members);
    text.push_str(EVENT_END);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn delivery(sequence: &str, event: &Value) -> Arc<Delivery> {
        let sequence = SequenceNumber::parse(sequence).unwrap();
        Arc::new(Record::of_event(sequence, Some(5), event).into())
    }

    #[test]
    fn the_event_is_as_long_as_foretold() {
        let records = [delivery("1", &json!({"a": "ü"})), delivery("2", &json!({"b": [1, 2]}))];
        for count in 0..=records.len() {
            let some = &records[..count];
            let json_bytes = some.iter().map(|record| record.json.len()).sum();
            let text = event(some, "");
            assert_eq!(text.len(), event_bytes(count, json_bytes));
            let parsed: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(parsed["Records"].as_array().unwrap().len(), count);
        }
    }

    #[test]
    fn an_item_is_its_partition_and_sort_key() {
        let item = |keys: Value| delivery("1", &json!({"dynamodb": {"Keys": keys}})).item();
        let one = item(json!({"pk": {"S": "a"}, "sk": {"N": "1"}}));
        assert_eq!(one, item(json!({"sk": {"N": "1"}, "pk": {"S": "a"}})));
        assert_ne!(one, item(json!({"pk": {"S": "a"}, "sk": {"N": "2"}})));
        assert_ne!(one, item(json!({"pk": {"N": "1"}, "sk": {"S": "a"}})));
        assert_ne!(one, item(json!({"pk": {"S": "a"}})));
    }

    #[test]
    fn items_spread_evenly_over_lanes() {
        let mut lanes = [0_u32; 10];
        for number in 0..1_000 {
            let keys = json!({"pk": {"S": "a"}, "sk": {"N": number.to_string()}});
            let item = delivery("1", &json!({"dynamodb": {"Keys": keys}})).item();
            lanes[usize::try_from(item % 10).unwrap()] += 1;
        }
        assert!(lanes.iter().all(|count| (70..130).contains(count)), "{lanes:?}");
    }

    #[test]
    fn a_record_is_its_text_and_parsed_on_demand() {
        let record = |text: &str| {
            let sequence = SequenceNumber::parse("7").unwrap();
            Record::new(sequence, None, Some(r#"{ "a" : {"N":"1"} }"#.into()), text.into())
        };
        let spaced = record(r#"{ "eventName" : "INSERT" }"#);
        assert_eq!(spaced.event(), &json!({"eventName": "INSERT"}));
        let deep = record(&format!("{}1{}", "[".repeat(500), "]".repeat(500)));
        assert_eq!(deep.event(), &Value::Null);
        let delivery = Delivery::from(spaced.clone());
        assert_eq!(&*delivery.json, spaced.json());
        let same = self::delivery("8", &json!({"dynamodb": {"Keys": {"a": {"N": "1"}}}}));
        assert_eq!(delivery.item(), same.item());
    }

    #[test]
    fn age_is_measured_from_the_whole_second() {
        assert_eq!(delivery("1", &json!({})).age_ms(7_250), Some(2_250));
    }
}
