//! The quarantine: stores records that fail in every retry, each with the reason.
//!
//! `<prefix><function>/<table>/<stream label>/<sequence number>-<event id>.json`. The name of the
//! object is derived from the record, so a redelivered record is stored once. The name contains the
//! event id, because sequence numbers are unique only within a shard, not within a stream.

use bytes::Bytes;
use model::arn::StreamArn;
use model::json;
use xxhash_rust::xxh3::xxh3_64;

use crate::back_off::RetryPolicy;
use crate::event::BatchRecord;
use crate::failure::Failure;
use crate::object_store::{ObjectStore, PutOutcome};

/// Upper bound of a component of the name in bytes. The longest valid component is a table name.
const NAME_BYTES_MAX: usize = 255;

/// The quarantine of one function.
#[derive(Clone, Debug)]
pub struct Quarantine<O> {
    store: O,
    prefix: String,
    function: &'static str,
    retry: RetryPolicy,
}

impl<O: ObjectStore> Quarantine<O> {
    /// Returns the quarantine of `function` under `prefix` of `store`.
    pub fn new(store: O, prefix: String, function: &'static str, retry: RetryPolicy) -> Self {
        Self { store, prefix, function, retry }
    }

    /// Quarantines a record. Returns the name of its object.
    ///
    /// # Errors
    /// When the record could not be written. The record must then be delivered again.
    pub async fn put(&self, record: &BatchRecord<'_>, reason: &str) -> Result<String, Failure> {
        let (name, content) = self.object_of(record, reason);
        let content = Bytes::from(content);
        let mut attempts = self.retry.attempts();
        let mut failure = String::new();
        while attempts.next().await {
            let put = self.store.put_if_absent(&name, content.clone(), "application/json");
            match put.await {
                Ok(PutOutcome::Created { .. } | PutOutcome::Exists) => return Ok(name),
                Ok(PutOutcome::Contended) => {
                    "another writer is writing the same object".clone_into(&mut failure);
                }
                Err(Failure::Retry(reason)) => failure = reason,
                Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
            }
        }
        Err(Failure::Retry(format!("could not put `{name}` into quarantine: {failure}")))
    }

    fn object_of(&self, delivered: &BatchRecord<'_>, reason: &str) -> (String, String) {
        let json = json::parse(delivered.raw.as_bytes()).ok();
        let text =
            |name| json.as_ref().and_then(|json| json.get(name)).and_then(json::Json::as_str);
        let source = text("eventSourceARN");
        let stream = source.and_then(|arn| arn.parse::<StreamArn>().ok());
        let table = stream.as_ref().map(|stream| stream.table.table.as_str());
        let label = stream.as_ref().map(|stream| stream.label.as_str());
        let sequence = delivered.sequence_number();
        let hash = format!("{:016x}", xxh3_64(delivered.raw.as_bytes()));
        let name = format!(
            "{}{}/{}/{}/{}-{}.json",
            self.prefix,
            self.function,
            table.filter(|name| is_safe(name)).unwrap_or("unknown-table"),
            label.filter(|name| is_safe(name)).unwrap_or("unknown-stream"),
            sequence.unwrap_or("unknown"),
            text("eventID").filter(|name| is_safe(name)).unwrap_or(&hash),
        );
        let mut content = String::with_capacity(delivered.raw.len() + 512);
        content.push_str("{\"version\":1");
        for (name, value) in [
            ("function", Some(self.function)),
            ("reason", Some(reason)),
            ("streamArn", source),
            ("sequenceNumber", sequence),
        ] {
            content.push_str(",\"");
            content.push_str(name);
            content.push_str("\":");
            match value {
                Some(value) => json::write_string(&mut content, value),
                None => content.push_str("null"),
            }
        }
        content.push_str(",\"record\":");
        content.push_str(delivered.raw);
        content.push_str("}\n");
        (name, content)
    }
}

/// Returns whether a string from a record may be part of an object's name. Object names may be used
/// as file paths.
fn is_safe(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte))
        && text.bytes().any(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, decode};
    use crate::object_store::in_memory::{Faults, InMemoryObjectStore};

    const NAMED: &str = r#"{"eventID":"c4ca","dynamodb":{"SequenceNumber":"12"},"eventSourceARN":"arn:aws:dynamodb:r:a:table/votes/stream/2026-11-21T02:00:00.123"}"#;

    async fn put_all(store: &std::sync::Arc<InMemoryObjectStore>, payload: &str) -> Vec<String> {
        let policy = RetryPolicy {
            attempts_max: 30,
            delay_base: std::time::Duration::ZERO,
            ..RetryPolicy::CONTENDED
        };
        let quarantine =
            Quarantine::new(store.clone(), "quarantine/".to_owned(), "counters", policy);
        let Ok(Event::Batch(records)) = decode(payload) else { panic!("a batch") };
        let mut names = Vec::new();
        for record in &records {
            names.push(quarantine.put(record, "because \"it\" is so").await.unwrap());
        }
        names
    }

    #[tokio::test]
    async fn records_are_kept_whole_and_once() {
        let faults = Faults { lost: 20, unanswered: 20, contended: 20, ..Faults::default() };
        let store = std::sync::Arc::new(InMemoryObjectStore::with_faults(7, faults));
        let payload = format!(
            r#"{{"Records":[{NAMED},{NAMED},7,{{"eventSourceARN":"arn:aws:dynamodb:r:a:table/../stream/.."}}]}}"#
        );
        let names = put_all(&store, &payload).await;
        assert_eq!(names[0], "quarantine/counters/votes/2026-11-21T02:00:00.123/12-c4ca.json");
        assert_eq!(names[0], names[1]);
        for name in &names[2..] {
            assert!(name.starts_with("quarantine/counters/unknown-table/unknown-stream/unknown-"));
        }
        assert_eq!(put_all(&store, &payload).await, names);
        let objects = store.objects();
        assert_eq!(objects.len(), 3);
        let content: serde_json::Value = serde_json::from_slice(&objects[&names[0]]).unwrap();
        assert_eq!(content["reason"], "because \"it\" is so");
        assert_eq!(content["sequenceNumber"], "12");
        assert_eq!(content["record"]["eventID"], "c4ca");
        let content: serde_json::Value = serde_json::from_slice(&objects[&names[2]]).unwrap();
        assert_eq!(
            (&content["record"], &content["streamArn"]),
            (&7.into(), &serde_json::Value::Null)
        );
    }
}
