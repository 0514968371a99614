//! Failure records for discarded records, in the format and with the object key that Lambda uses
//! for S3. The messages for SQS and SNS are the same, but without the payload.
//!
//! `lane::discard` decides which records are discarded, and the caller stores the object.
//!
//! Source: AWS Lambda guide, "Retain discarded records for a DynamoDB event source"; the values of
//! `condition` and the missing `responseContext` are from LocalStack's tests, recorded on AWS.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use md5::{Digest, Md5};
use serde_json::{Value, json};

use super::id::ShardId;
use super::record::{self, Delivery};
use super::settings::Settings;

/// The reason why records were discarded, as `condition` in failure records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// The number of failed attempts exceeds `MaximumRetryAttempts`.
    RetryAttemptsExhausted,
    /// The records are older than `MaximumRecordAgeInSeconds`, or older than the stream's
    /// retention.
    RecordAgeExceeded,
}

/// The object that is stored in the failure destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureObject {
    /// The object key: `aws/lambda/<mapping>/<shard>/YYYY/MM/DD/YYYY-MM-DDTHH.MM.SS-<UUID>`, in
    /// UTC.
    pub key: String,
    /// The failure record as JSON text. For S3 its `payload` contains the entire event.
    pub body: String,
}

/// Discarded records, with the data about their attempts.
pub(super) struct DiscardedRecords<'a> {
    pub(super) shard: &'a ShardId,
    /// The discarded records, at least one.
    pub(super) records: &'a [Arc<Delivery>],
    pub(super) condition: Condition,
    /// The number of invocations of the function with these records.
    pub(super) invocations: u32,
    /// The `X-Amz-Function-Error` of the last attempt; `None` if the function returned no error.
    pub(super) function_error: Option<&'a str>,
    /// The store's time when the records were discarded, in milliseconds since 1970.
    pub(super) time_ms: i64,
    /// The members of the event other than `Records`, as JSON text.
    pub(super) members: &'a str,
}

impl Condition {
    /// Returns the condition's name in failure records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RetryAttemptsExhausted => "RetryAttemptsExhausted",
            Self::RecordAgeExceeded => "RecordAgeExceeded",
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl DiscardedRecords<'_> {
    /// Returns the failure record of these records, and its object key.
    pub(super) fn object(&self, settings: &Settings) -> FailureObject {
        FailureObject { key: self.key(settings), body: self.document(settings).to_string() }
    }

    fn key(&self, settings: &Settings) -> String {
        let time = utc(self.time_ms);
        format!(
            "aws/lambda/{}/{}/{}-{}",
            settings.mapping_id,
            self.shard,
            time.strftime("%Y/%m/%d/%Y-%m-%dT%H.%M.%S"),
            self.identity(settings, "object")
        )
    }

    fn document(&self, settings: &Settings) -> Value {
        let mut document = json!({
            "requestContext": {
                "requestId": self.identity(settings, "request"),
                "functionArn": settings.function_arn,
                "condition": self.condition.as_str(),
                "approximateInvokeCount": self.invocations,
            },
            "version": "1.0",
            "timestamp": utc(self.time_ms).strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string(),
            "DDBStreamBatchInfo": {
                "shardId": self.shard.as_str(),
                "startSequenceNumber": self.records.first().map(|record| record.sequence.as_str()),
                "endSequenceNumber": self.records.last().map(|record| record.sequence.as_str()),
                "approximateArrivalOfFirstRecord": arrival(self.records.first()),
                "approximateArrivalOfLastRecord": arrival(self.records.last()),
                "batchSize": self.records.len(),
                "streamArn": settings.stream_arn,
            },
        });
        if settings.failure_payload
            && let Some(members) = document.as_object_mut()
        {
            let payload = record::event(self.records, self.members);
            members.insert("payload".to_owned(), Value::String(payload));
        }
        if self.condition == Condition::RetryAttemptsExhausted
            && let Some(members) = document.as_object_mut()
        {
            let response = json!({
                "statusCode": 200,
                "executedVersion": "$LATEST",
                "functionError": self.function_error,
            });
            members.insert("responseContext".to_owned(), response);
        }
        document
    }

    /// Returns an identifier in the form of a UUID, derived from the records and the purpose.
    fn identity(&self, settings: &Settings, purpose: &str) -> String {
        let mut hash = Md5::new();
        let sequences = self.records.iter().map(|record| record.sequence.as_str());
        let parts = [purpose, &settings.mapping_id, &settings.stream_arn, self.shard.as_str()];
        for part in parts.into_iter().chain([self.condition.as_str()]).chain(sequences) {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut uuid = String::with_capacity(36);
        for (index, digit) in hex.chars().enumerate() {
            if matches!(index, 8 | 12 | 16 | 20) {
                uuid.push('-');
            }
            uuid.push(digit);
        }
        uuid
    }
}

/// Returns a record's creation time with a resolution of one second, in the format that Lambda uses
/// for DynamoDB.
fn arrival(record: Option<&Arc<Delivery>>) -> Option<String> {
    let seconds = record?.creation_s?;
    let time = utc(seconds.saturating_mul(1000));
    Some(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Converts milliseconds since 1970 to a date and time in UTC. A time outside the calendar becomes
/// 1970, so that the failure record is not lost.
fn utc(time_ms: i64) -> jiff::Zoned {
    Timestamp::from_millisecond(time_ms).unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(TimeZone::UTC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Record, SequenceNumber};

    fn two_records() -> Vec<Arc<Delivery>> {
        ["800000000003126276362", "800000000003126276363"]
            .map(|text| {
                let sequence = SequenceNumber::parse(text).unwrap();
                let event = json!({"eventName": "INSERT"});
                Arc::new(Record::of_event(sequence, Some(1_573_690_399), &event).into())
            })
            .to_vec()
    }

    #[test]
    fn has_the_documented_shape() {
        let records = two_records();
        let settings = Settings::new("uuid", "arn:function", "arn:table/t/stream/l");
        let shard = ShardId::new("shardId-00000001573689847184-864758bb");
        let given_up = |settings: &Settings, condition, function_error| {
            DiscardedRecords {
                shard: &shard,
                records: &records,
                condition,
                invocations: 4,
                function_error,
                time_ms: 1_573_690_429_717,
                members: "",
            }
            .object(settings)
        };
        let object = given_up(&settings, Condition::RetryAttemptsExhausted, Some("Unhandled"));
        let (prefix, uuid) = object.key.split_at(object.key.len() - 36);
        assert_eq!(
            prefix,
            "aws/lambda/uuid/shardId-00000001573689847184-864758bb/2019/11/14/\
             2019-11-14T00.13.49-"
        );
        assert!(uuid.match_indices('-').map(|(index, _)| index).eq([8, 13, 18, 23]));
        let mut document: Value = serde_json::from_str(&object.body).unwrap();
        let request_id = document["requestContext"]["requestId"].take();
        assert_eq!(request_id.as_str().unwrap().len(), 36);
        assert_eq!(
            document,
            json!({
                "requestContext": {
                    "requestId": null,
                    "functionArn": "arn:function",
                    "condition": "RetryAttemptsExhausted",
                    "approximateInvokeCount": 4,
                },
                "responseContext": {
                    "statusCode": 200,
                    "executedVersion": "$LATEST",
                    "functionError": "Unhandled",
                },
                "version": "1.0",
                "timestamp": "2019-11-14T00:13:49.717Z",
                "DDBStreamBatchInfo": {
                    "shardId": "shardId-00000001573689847184-864758bb",
                    "startSequenceNumber": "800000000003126276362",
                    "endSequenceNumber": "800000000003126276363",
                    "approximateArrivalOfFirstRecord": "2019-11-14T00:13:19Z",
                    "approximateArrivalOfLastRecord": "2019-11-14T00:13:19Z",
                    "batchSize": 2,
                    "streamArn": "arn:table/t/stream/l",
                },
                "payload": r#"{"Records":[{"eventName":"INSERT"},{"eventName":"INSERT"}]}"#,
            })
        );
        let aged = given_up(&settings, Condition::RecordAgeExceeded, Some("Unhandled"));
        let document: Value = serde_json::from_str(&aged.body).unwrap();
        assert_eq!(document["requestContext"]["condition"], "RecordAgeExceeded");
        assert!(document.get("responseContext").is_none());
        assert_eq!(
            given_up(&settings, Condition::RetryAttemptsExhausted, Some("Unhandled")),
            object
        );
        let queue = Settings { failure_payload: false, ..settings.clone() };
        let without = given_up(&queue, Condition::RecordAgeExceeded, None);
        assert!(!without.body.contains("payload"));
    }
}
