//! A record of a Lambda event read straight from its text. What cannot be read so is read through
//! the tree, which says what is wrong with it.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Visitor};

use super::{
    EventName, LambdaRecord, RecordError, StreamRecord, StreamViewType, UserIdentity,
    decode_lambda_record,
};
use crate::json;
use crate::json::direct::DirectItem;

#[derive(serde::Deserialize)]
struct Wire<'t> {
    #[serde(borrow, rename = "eventID")]
    event_id: Cow<'t, str>,
    #[serde(borrow, rename = "eventName")]
    event_name: Cow<'t, str>,
    #[serde(borrow, rename = "dynamodb")]
    change: WireChange<'t>,
    #[serde(borrow, rename = "userIdentity")]
    user_identity: Option<WireIdentity<'t>>,
    #[serde(borrow, rename = "eventSourceARN")]
    event_source_arn: Cow<'t, str>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WireChange<'t> {
    approximate_creation_date_time: Option<Seconds>,
    keys: DirectItem,
    old_image: Option<DirectItem>,
    new_image: Option<DirectItem>,
    #[serde(borrow)]
    sequence_number: Cow<'t, str>,
    size_bytes: Option<u64>,
    #[serde(borrow)]
    stream_view_type: Cow<'t, str>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireIdentity<'t> {
    #[serde(borrow)]
    principal_id: Cow<'t, str>,
    #[serde(borrow, rename = "type")]
    identity_type: Cow<'t, str>,
}

/// Seconds since 1970, rounded down; Lambda writes them as a whole or as a decimal number.
struct Seconds(Option<u64>);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SecondsVisitor)
    }
}

struct SecondsVisitor;

impl Visitor<'_> for SecondsVisitor {
    type Value = Seconds;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("seconds since 1970")
    }

    fn visit_u64<E>(self, seconds: u64) -> Result<Seconds, E> {
        Ok(Seconds(Some(seconds)))
    }

    fn visit_f64<E>(self, seconds: f64) -> Result<Seconds, E> {
        Ok(Seconds(super::whole_seconds(seconds)))
    }
}

/// Reads one record of a Lambda event.
///
/// # Errors
/// What is missing or wrong, with the sequence number if that can be read; or text that is not JSON.
pub fn lambda_record_from_str(text: &str) -> Result<LambdaRecord, RecordError> {
    if let Some(record) = read(text) {
        return Ok(record);
    }
    match json::parse(text.as_bytes()) {
        Ok(json) => decode_lambda_record(&json),
        Err(error) => Err(RecordError { sequence_number: None, reason: error.to_string() }),
    }
}

/// The record, if nothing about it is unusual.
fn read(text: &str) -> Option<LambdaRecord> {
    let wire: Wire<'_> = serde_json::from_str(text).ok()?;
    let change = wire.change;
    let user_identity = wire.user_identity.map(|identity| UserIdentity {
        identity_type: identity.identity_type.into_owned(),
        principal_id: identity.principal_id.into_owned(),
    });
    let record = StreamRecord {
        event_id: wire.event_id.into_owned(),
        event_name: EventName::from_text(&wire.event_name)?,
        user_identity,
        approximate_creation_seconds: change
            .approximate_creation_date_time
            .and_then(|seconds| seconds.0),
        keys: change.keys.0,
        old_image: change.old_image.map(|image| image.0),
        new_image: change.new_image.map(|image| image.0),
        sequence_number: change.sequence_number.parse().ok()?,
        size_bytes: change.size_bytes.unwrap_or(0),
        view_type: StreamViewType::from_text(&change.stream_view_type)?,
    };
    Some(LambdaRecord { record, event_source_arn: wire.event_source_arn.into_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record with one part written differently.
    fn text(part: &str, instead: &str) -> String {
        let whole = r#"{"eventID":"e1","eventName":"REMOVE","eventVersion":"1.1","dynamodb":{"ApproximateCreationDateTime":1795000000,"Keys":{"pk":{"S":"a"}},"OldImage":{"pk":{"S":"a"},"n":{"N":"1.50"}},"SequenceNumber":"100000000000000000001","SizeBytes":9,"StreamViewType":"NEW_AND_OLD_IMAGES"},"userIdentity":{"principalId":"dynamodb.amazonaws.com","type":"Service"},"eventSourceARN":"arn:x"}"#;
        assert!(whole.contains(part), "{part}");
        whole.replacen(part, instead, 1)
    }

    fn through_the_tree(text: &str) -> Result<LambdaRecord, RecordError> {
        decode_lambda_record(&json::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn records_are_read_as_through_the_tree() {
        let time = r#""ApproximateCreationDateTime":1795000000,"#;
        let identity =
            r#""userIdentity":{"principalId":"dynamodb.amazonaws.com","type":"Service"},"#;
        for (part, instead) in [
            ("", ""),
            (time, ""),
            ("1795000000", "1795000000.75"),
            ("1795000000", "1.795E9"),
            ("1795000000", "null"),
            ("1795000000", "-1.5"),
            ("\"SizeBytes\":9,", ""),
            (identity, ""),
            (identity, "\"userIdentity\":null,"),
            ("\"eventVersion\":\"1.1\",", "\"more\":{\"a\":[1,null]},"),
            ("arn:x", "arn:\\u0078"),
            ("REMOVE", "INSERT"),
            ("NEW_AND_OLD_IMAGES", "OLD_IMAGE"),
        ] {
            let text = text(part, instead);
            assert_eq!(read(&text), through_the_tree(&text).ok(), "{text}");
            assert!(read(&text).is_some(), "{text}");
        }
    }

    #[test]
    fn what_is_unusual_is_read_or_refused_by_the_tree() {
        for (part, instead) in [
            ("1795000000", "-5"),
            ("1795000000", "\"now\""),
            ("\"SizeBytes\":9", "\"SizeBytes\":-9"),
            ("\"eventID\":\"e1\"", "\"eventID\":\"e1\",\"eventID\":\"e2\""),
            ("{\"S\":\"a\"}", "{\"S\":\"a\",\"N\":null}"),
            ("{\"S\":\"a\"}", "{\"N\":\"a\"}"),
            ("REMOVE", "remove"),
            ("100000000000000000001", "-1"),
            ("NEW_AND_OLD_IMAGES", "IMAGES"),
            ("\"Keys\"", "\"keys\""),
        ] {
            let text = text(part, instead);
            assert_eq!(read(&text), None, "{text}");
            assert_eq!(lambda_record_from_str(&text), through_the_tree(&text), "{text}");
        }
        let not_json = lambda_record_from_str("{").unwrap_err();
        assert!(not_json.reason.contains("not JSON"), "{not_json}");
    }
}
