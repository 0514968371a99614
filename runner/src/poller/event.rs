//! Turns a record of the Streams API into the record of a Lambda event.
//!
//! Nothing is left out and nothing is judged.

use std::collections::HashMap;

use aws_sdk_dynamodbstreams::types::{self, AttributeValue};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::mapping::{Record, SequenceNumber};

/// A record that the Streams API cannot have meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unreadable stream record: {reason}")]
pub struct UnreadableRecord {
    /// What is wrong.
    pub reason: String,
}

/// The record as Lambda delivers it: names in Lambda's spelling, the creation time as a number
/// with a fraction (recorded on AWS: `1573690399.0`), binaries in Base64.
///
/// # Errors
/// The record has no sequence number, or an attribute of an unknown type.
pub fn record_of(
    record: types::Record,
    stream_arn: &str,
    region: &str,
) -> Result<Record, UnreadableRecord> {
    let change = record.dynamodb.ok_or_else(|| unreadable("it has no change"))?;
    let sequence = change.sequence_number.ok_or_else(|| unreadable("it has no sequence number"))?;
    let sequence =
        SequenceNumber::parse(&sequence).map_err(|error| unreadable(&error.to_string()))?;
    let creation = change.approximate_creation_date_time;
    let mut dynamodb = Map::new();
    if let Some(creation) = creation {
        dynamodb.insert("ApproximateCreationDateTime".to_owned(), json!(creation.as_secs_f64()));
    }
    for (name, item) in
        [("Keys", change.keys), ("NewImage", change.new_image), ("OldImage", change.old_image)]
    {
        if let Some(item) = item {
            dynamodb.insert(name.to_owned(), attributes(item)?);
        }
    }
    dynamodb.insert("SequenceNumber".to_owned(), json!(sequence.as_str()));
    if let Some(size) = change.size_bytes {
        dynamodb.insert("SizeBytes".to_owned(), json!(size));
    }
    if let Some(view_type) = change.stream_view_type {
        dynamodb.insert("StreamViewType".to_owned(), json!(view_type.as_str()));
    }
    let mut event = Map::new();
    let texts = [
        ("eventID", record.event_id),
        ("eventName", record.event_name.map(|name| name.as_str().to_owned())),
        ("eventVersion", Some(record.event_version.unwrap_or_else(|| "1.1".to_owned()))),
        ("eventSource", Some("aws:dynamodb".to_owned())),
        ("awsRegion", Some(record.aws_region.unwrap_or_else(|| region.to_owned()))),
        ("eventSourceARN", Some(stream_arn.to_owned())),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            event.insert(name.to_owned(), Value::String(text));
        }
    }
    event.insert("dynamodb".to_owned(), Value::Object(dynamodb));
    if let Some(identity) = record.user_identity {
        let identity = json!({"type": identity.r#type, "principalId": identity.principal_id});
        event.insert("userIdentity".to_owned(), identity);
    }
    let creation_s = creation.map(|time| time.secs());
    Ok(Record { sequence, creation_s, event: Value::Object(event) })
}

fn unreadable(reason: &str) -> UnreadableRecord {
    UnreadableRecord { reason: reason.to_owned() }
}

fn attributes(item: HashMap<String, AttributeValue>) -> Result<Value, UnreadableRecord> {
    let attributes = item.into_iter().map(|(name, value)| Ok((name, attribute(value)?)));
    attributes.collect::<Result<Map<_, _>, _>>().map(Value::Object)
}

fn attribute(value: AttributeValue) -> Result<Value, UnreadableRecord> {
    let binary = |bytes: aws_sdk_dynamodbstreams::primitives::Blob| STANDARD.encode(bytes);
    Ok(match value {
        AttributeValue::S(text) => json!({ "S": text }),
        AttributeValue::N(number) => json!({ "N": number }),
        AttributeValue::B(bytes) => json!({ "B": binary(bytes) }),
        AttributeValue::Bool(value) => json!({ "BOOL": value }),
        AttributeValue::Null(value) => json!({ "NULL": value }),
        AttributeValue::Ss(texts) => json!({ "SS": texts }),
        AttributeValue::Ns(numbers) => json!({ "NS": numbers }),
        AttributeValue::Bs(set) => {
            json!({ "BS": set.into_iter().map(binary).collect::<Vec<_>>() })
        }
        AttributeValue::L(list) => {
            let list: Result<Vec<_>, _> = list.into_iter().map(attribute).collect();
            json!({ "L": list? })
        }
        AttributeValue::M(map) => json!({ "M": attributes(map)? }),
        _ => return Err(unreadable("an attribute has a type that is not known")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_dynamodbstreams::primitives::{Blob, DateTime};
    use aws_sdk_dynamodbstreams::types::{Identity, OperationType, StreamRecord, StreamViewType};

    const ARN: &str = "arn:aws:dynamodb:eu-west-1:000000000000:table/t/stream/l";

    #[test]
    fn has_the_shape_of_a_lambda_event() {
        let nested = AttributeValue::M(HashMap::from([(
            "l".to_owned(),
            AttributeValue::L(vec![
                AttributeValue::Null(true),
                AttributeValue::Bool(false),
                AttributeValue::B(Blob::new(b"foobar")),
                AttributeValue::Ss(vec!["a".to_owned()]),
                AttributeValue::Ns(vec!["1.10".to_owned()]),
                AttributeValue::Bs(vec![Blob::new([0xff])]),
            ]),
        )]));
        let change = StreamRecord::builder()
            .approximate_creation_date_time(DateTime::from_secs(1_573_690_399))
            .keys("pk", AttributeValue::S("a".to_owned()))
            .old_image("n", AttributeValue::N("00.50".to_owned()))
            .old_image("m", nested)
            .sequence_number("000000000000000000042")
            .size_bytes(58)
            .stream_view_type(StreamViewType::OldImage)
            .build();
        let identity =
            Identity::builder().r#type("Service").principal_id("dynamodb.amazonaws.com").build();
        let record = types::Record::builder()
            .event_id("ab0ed3713569f4655f353e5ef61a88c4")
            .event_name(OperationType::Remove)
            .event_version("1.1")
            .event_source("aws:dynamodb")
            .aws_region("eu-west-1")
            .dynamodb(change)
            .user_identity(identity)
            .build();
        let record = record_of(record, ARN, "eu-west-1").unwrap();
        assert_eq!(record.sequence.as_str(), "000000000000000000042");
        assert_eq!(record.creation_s, Some(1_573_690_399));
        assert_eq!(
            record.event,
            json!({
                "eventID": "ab0ed3713569f4655f353e5ef61a88c4",
                "eventName": "REMOVE",
                "eventVersion": "1.1",
                "eventSource": "aws:dynamodb",
                "awsRegion": "eu-west-1",
                "dynamodb": {
                    "ApproximateCreationDateTime": 1_573_690_399.0,
                    "Keys": {"pk": {"S": "a"}},
                    "OldImage": {
                        "n": {"N": "00.50"},
                        "m": {"M": {"l": {"L": [
                            {"NULL": true}, {"BOOL": false}, {"B": "Zm9vYmFy"},
                            {"SS": ["a"]}, {"NS": ["1.10"]}, {"BS": ["/w=="]},
                        ]}}},
                    },
                    "SequenceNumber": "000000000000000000042",
                    "SizeBytes": 58,
                    "StreamViewType": "OLD_IMAGE",
                },
                "userIdentity": {"type": "Service", "principalId": "dynamodb.amazonaws.com"},
                "eventSourceARN": ARN,
            })
        );
    }

    #[test]
    fn what_is_absent_stays_absent() {
        let change = StreamRecord::builder().sequence_number("7").build();
        let record = types::Record::builder().dynamodb(change).build();
        let record = record_of(record, ARN, "eu-west-1").unwrap();
        assert_eq!(record.creation_s, None);
        for name in ["userIdentity", "eventName", "eventID"] {
            assert!(record.event.get(name).is_none(), "{name}");
        }
        assert_eq!(record.event["awsRegion"], "eu-west-1");
        assert_eq!(record.event["dynamodb"], json!({"SequenceNumber": "7"}));
        let nameless = types::Record::builder().dynamodb(StreamRecord::builder().build()).build();
        assert!(record_of(nameless, ARN, "eu-west-1").is_err());
    }
}
