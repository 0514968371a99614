//! A record of a Lambda event that borrows from its JSON. Unusual records are read with `tree`,
//! which reports errors.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};

use super::{
    EventName, LambdaRecord, RecordError, SequenceNumber, StreamRecord, StreamViewType,
    UserIdentity, decode_lambda_record,
};
use crate::json;
use crate::json::ItemView;

/// A [`LambdaRecord`] that borrows from its JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordView<'t> {
    /// See the member of the same name in [`StreamRecord`].
    pub event_id: Cow<'t, str>,
    /// The kind of the change.
    pub event_name: EventName,
    /// The type and the principal of the author of the change, if it was not a user.
    pub user_identity: Option<(Cow<'t, str>, Cow<'t, str>)>,
    /// See the member of the same name in [`StreamRecord`].
    pub approximate_creation_seconds: Option<u64>,
    /// The item's key.
    pub keys: ItemView<'t>,
    /// The item before the change, if the view type has it and the item existed.
    pub old_image: Option<ItemView<'t>>,
    /// The item after the change, if the view type has it and the item exists.
    pub new_image: Option<ItemView<'t>>,
    /// The digits of a [`SequenceNumber`].
    pub sequence_number: Cow<'t, str>,
    /// The size of the keys and images in bytes.
    pub size_bytes: u64,
    /// The view type of the stream.
    pub view_type: StreamViewType,
    /// The ARN of the record's stream.
    pub event_source_arn: Cow<'t, str>,
}

impl<'t> RecordView<'t> {
    /// Creates the view of a record.
    #[must_use]
    pub fn of(record: &'t LambdaRecord) -> Self {
        let LambdaRecord { record, event_source_arn } = record;
        let borrowed = |text: &'t str| Cow::Borrowed(text);
        let identity = record.user_identity.as_ref();
        Self {
            event_id: borrowed(&record.event_id),
            event_name: record.event_name,
            user_identity: identity.map(|identity| {
                (borrowed(&identity.identity_type), borrowed(&identity.principal_id))
            }),
            approximate_creation_seconds: record.approximate_creation_seconds,
            keys: ItemView::of(&record.keys),
            old_image: record.old_image.as_ref().map(ItemView::of),
            new_image: record.new_image.as_ref().map(ItemView::of),
            sequence_number: borrowed(record.sequence_number.as_str()),
            size_bytes: record.size_bytes,
            view_type: record.view_type,
            event_source_arn: borrowed(event_source_arn),
        }
    }

    /// Reads one record of a Lambda event in the usual form. If the result is `None`,
    /// [`lambda_record_from_str`] may be able to read the record.
    #[must_use]
    pub fn read(text: &'t str) -> Option<Self> {
        let wire: Wire<'t> = serde_json::from_str(text).ok()?;
        let change = wire.dynamodb;
        Some(Self {
            event_id: wire.event_id,
            event_name: EventName::from_text(&wire.event_name)?,
            user_identity: wire
                .user_identity
                .map(|identity| (identity.r#type, identity.principal_id)),
            approximate_creation_seconds: change
                .approximate_creation_date_time
                .and_then(|Seconds(seconds)| seconds),
            keys: change.keys,
            old_image: change.old_image,
            new_image: change.new_image,
            sequence_number: Some(change.sequence_number)
                .filter(|digits| SequenceNumber::is_valid(digits))?,
            size_bytes: change.size_bytes.unwrap_or(0),
            view_type: StreamViewType::from_text(&change.stream_view_type)?,
            event_source_arn: wire.event_source_arn,
        })
    }

    /// Does the same as [`StreamRecord::is_time_to_live`].
    #[must_use]
    pub fn is_time_to_live(&self) -> bool {
        let identity = UserIdentity::TIME_TO_LIVE;
        self.event_name == EventName::Remove
            && self.user_identity.as_ref().is_some_and(|(identity_type, principal_id)| {
                (identity_type.as_ref(), principal_id.as_ref()) == identity
            })
    }

    /// Does the same as [`SequenceNumber::padded`].
    #[must_use]
    pub fn padded_sequence_number(&self) -> String {
        super::padded(&self.sequence_number)
    }

    /// Converts the view to a record.
    #[must_use]
    pub fn into_record(self) -> LambdaRecord {
        let user_identity = self.user_identity.map(|(identity_type, principal_id)| UserIdentity {
            identity_type: identity_type.into_owned(),
            principal_id: principal_id.into_owned(),
        });
        let record = StreamRecord {
            event_id: self.event_id.into_owned(),
            event_name: self.event_name,
            user_identity,
            approximate_creation_seconds: self.approximate_creation_seconds,
            keys: self.keys.into_item(),
            old_image: self.old_image.map(ItemView::into_item),
            new_image: self.new_image.map(ItemView::into_item),
            sequence_number: SequenceNumber(self.sequence_number.into_owned()),
            size_bytes: self.size_bytes,
            view_type: self.view_type,
        };
        LambdaRecord { record, event_source_arn: self.event_source_arn.into_owned() }
    }
}

/// Reads one record of a Lambda event.
///
/// # Errors
/// When the text is not JSON, or a member is missing or invalid. The error contains the sequence
/// number if the record has a valid one.
pub fn lambda_record_from_str(text: &str) -> Result<LambdaRecord, RecordError> {
    if let Some(view) = RecordView::read(text) {
        return Ok(view.into_record());
    }
    match json::parse(text.as_bytes()) {
        Ok(json) => decode_lambda_record(&json),
        Err(error) => Err(RecordError { sequence_number: None, reason: error.to_string() }),
    }
}

/// A record in the JSON form of a Lambda event.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'t> {
    #[serde(borrow, rename = "eventID")]
    event_id: Cow<'t, str>,
    #[serde(borrow)]
    event_name: Cow<'t, str>,
    #[serde(borrow)]
    dynamodb: WireChange<'t>,
    #[serde(borrow)]
    user_identity: Option<WireIdentity<'t>>,
    #[serde(borrow, rename = "eventSourceARN")]
    event_source_arn: Cow<'t, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WireChange<'t> {
    approximate_creation_date_time: Option<Seconds>,
    #[serde(borrow)]
    keys: ItemView<'t>,
    #[serde(borrow)]
    old_image: Option<ItemView<'t>>,
    #[serde(borrow)]
    new_image: Option<ItemView<'t>>,
    #[serde(borrow)]
    sequence_number: Cow<'t, str>,
    size_bytes: Option<u64>,
    #[serde(borrow)]
    stream_view_type: Cow<'t, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireIdentity<'t> {
    #[serde(borrow)]
    r#type: Cow<'t, str>,
    #[serde(borrow)]
    principal_id: Cow<'t, str>,
}

/// A time in seconds since 1970, rounded down. Lambda writes it as an integer or as a decimal
/// number.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a record with `part` replaced.
    fn text(part: &str, instead: &str) -> String {
        let whole = r#"{"eventID":"e1","eventName":"REMOVE","eventVersion":"1.1","dynamodb":{"ApproximateCreationDateTime":1795000000,"Keys":{"pk":{"S":"a"}},"OldImage":{"pk":{"S":"a"},"n":{"N":"1.50"}},"SequenceNumber":"100000000000000000001","SizeBytes":9,"StreamViewType":"NEW_AND_OLD_IMAGES"},"userIdentity":{"principalId":"dynamodb.amazonaws.com","type":"Service"},"eventSourceARN":"arn:x"}"#;
        assert!(whole.contains(part), "{part}");
        whole.replacen(part, instead, 1)
    }

    fn read(text: &str) -> Option<LambdaRecord> {
        let view = RecordView::read(text)?;
        let record = view.clone().into_record();
        assert_eq!(RecordView::of(&record), view);
        assert_eq!(record.record.is_time_to_live(), view.is_time_to_live());
        Some(record)
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
            // Names in another order, unknown names after the known names, or white space around
            // names.
            (r#""eventID":"e1","eventName":"REMOVE""#, r#""eventName":"REMOVE","eventID":"e1""#),
            (r#""Keys":{"pk":{"S":"a"}},"#, r#""SizeBytes2":{},"Keys":{"pk":{"S":"a"}},"#),
            (r#""eventVersion":"1.1","#, r#""eventVersion2":"1.1","eventSource" : "x","#),
            (r#""dynamodb":{"#, r#" "dynamodb" : { "#),
            ("REMOVE", "INSERT"),
            ("NEW_AND_OLD_IMAGES", "OLD_IMAGE"),
        ] {
            let text = text(part, instead);
            assert_eq!(read(&text), through_the_tree(&text).ok(), "{text}");
            assert!(read(&text).is_some(), "{text}");
        }
    }

    #[test]
    fn unusual_records_are_read_or_refused_by_the_tree() {
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
