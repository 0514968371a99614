//! Stream records: one change of one item, as in the Streams API and in Lambda events.
//!
//! A record has two JSON forms: the form of the Streams API (`GetRecords`) and the form of a Lambda
//! event. They differ in the spelling of `userIdentity` and in Lambda's `eventSourceARN`. Source:
//! AWS API reference, `Record`, `StreamRecord`, `Identity`; Lambda guide, `with-ddb`.

mod page;
mod view;

pub use page::{PageError, PageRecord, RecordsPage};
pub use view::{RecordView, lambda_record_from_str};

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::encoded_item::EncodedItem;
use crate::encoding::EncodingError;
use crate::item::Item;
use crate::json::{self, Json};

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EventName {
    /// The item was created.
    Insert,
    /// The item existed and has changed.
    Modify,
    /// The item was deleted.
    Remove,
}

impl EventName {
    /// Returns `INSERT`, `MODIFY` or `REMOVE`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Insert => "INSERT",
            Self::Modify => "MODIFY",
            Self::Remove => "REMOVE",
        }
    }

    /// Returns the event with this name.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        [Self::Insert, Self::Modify, Self::Remove].into_iter().find(|name| name.as_str() == text)
    }
}

/// The images that a stream's records contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StreamViewType {
    /// Only the keys.
    KeysOnly,
    /// The item after the change.
    NewImage,
    /// The item before the change.
    OldImage,
    /// Both images.
    NewAndOldImages,
}

impl StreamViewType {
    /// Every view type, in the order in which DynamoDB's messages list them.
    pub const ALL: [Self; 4] =
        [Self::OldImage, Self::KeysOnly, Self::NewAndOldImages, Self::NewImage];

    /// Returns the name in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KeysOnly => "KEYS_ONLY",
            Self::NewImage => "NEW_IMAGE",
            Self::OldImage => "OLD_IMAGE",
            Self::NewAndOldImages => "NEW_AND_OLD_IMAGES",
        }
    }

    /// Returns the view type with this name.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|view| view.as_str() == text)
    }

    /// Returns whether records contain the item after the change.
    #[must_use]
    pub fn has_new_image(self) -> bool {
        matches!(self, Self::NewImage | Self::NewAndOldImages)
    }

    /// Returns whether records contain the item before the change.
    #[must_use]
    pub fn has_old_image(self) -> bool {
        matches!(self, Self::OldImage | Self::NewAndOldImages)
    }
}

/// The number of digits to which a sequence number is padded, so that strings sort in stream order.
pub const SEQUENCE_NUMBER_DIGITS: usize = 40;

/// A stream record's position in its stream: up to 40 decimal digits, compared as a number. A
/// sequence number does not always fit into a DynamoDB number, so it is stored as a string.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SequenceNumber(String);

/// The error for a string that is not a sequence number.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid sequence number: expected 1 to 40 decimal digits, got=`{0}`")]
pub struct SequenceNumberError(String);

impl SequenceNumber {
    /// Returns whether a string is a sequence number.
    #[must_use]
    pub fn is_valid(text: &str) -> bool {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        digits && (1..=SEQUENCE_NUMBER_DIGITS).contains(&text.len())
    }

    /// Returns the digits as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the digits, padded with zeros to 40.
    #[must_use]
    pub fn padded(&self) -> String {
        padded(&self.0)
    }
}

/// Returns digits padded with leading zeros.
fn padded(digits: &str) -> String {
    const ZEROS: &str = "0000000000000000000000000000000000000000";
    let mut text = String::with_capacity(SEQUENCE_NUMBER_DIGITS);
    text.push_str(ZEROS.get(digits.len()..).unwrap_or_default());
    text.push_str(digits);
    text
}

impl FromStr for SequenceNumber {
    type Err = SequenceNumberError;

    fn from_str(text: &str) -> Result<Self, SequenceNumberError> {
        if Self::is_valid(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(SequenceNumberError(text.chars().take(64).collect()))
        }
    }
}

impl fmt::Display for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Ord for SequenceNumber {
    fn cmp(&self, other: &Self) -> Ordering {
        let (left, right) = (self.0.trim_start_matches('0'), other.0.trim_start_matches('0'));
        left.len()
            .cmp(&right.len())
            .then_with(|| left.cmp(right))
            .then_with(|| self.0.len().cmp(&other.0.len()))
    }
}

impl PartialOrd for SequenceNumber {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The author of a change, if it was not a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserIdentity {
    /// `Service` for TTL.
    pub identity_type: String,
    /// `dynamodb.amazonaws.com` for TTL.
    pub principal_id: String,
}

impl UserIdentity {
    /// The type and the principal on the records of TTL deletes.
    const TIME_TO_LIVE: (&str, &str) = ("Service", "dynamodb.amazonaws.com");

    /// Returns the identity on the records of TTL deletes (AWS, "DynamoDB Streams and Time to
    /// Live").
    #[must_use]
    pub fn time_to_live() -> Self {
        let (identity_type, principal_id) = Self::TIME_TO_LIVE;
        Self { identity_type: identity_type.to_owned(), principal_id: principal_id.to_owned() }
    }
}

/// One change of one item. Its images are items, or their stored form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRecord<I = Item> {
    /// The unique id of the record in its stream: 32 hexadecimal digits.
    pub event_id: String,
    /// The kind of the change.
    pub event_name: EventName,
    /// The author of the change, if it was not a user.
    pub user_identity: Option<UserIdentity>,
    /// The time of the change in seconds since 1970, rounded down. Some DynamoDB records lack it.
    /// It is too coarse for sorting records.
    pub approximate_creation_seconds: Option<u64>,
    /// The item's key.
    pub keys: Item,
    /// The item before the change, if the view type has it and the item existed.
    pub old_image: Option<I>,
    /// The item after the change, if the view type has it and the item exists.
    pub new_image: Option<I>,
    /// The record's position in the stream.
    pub sequence_number: SequenceNumber,
    /// The size of the keys and images in bytes.
    pub size_bytes: u64,
    /// The view type of the stream.
    pub view_type: StreamViewType,
}

/// A stream record in a Lambda event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LambdaRecord {
    /// The change.
    pub record: StreamRecord,
    /// The ARN of the record's stream.
    pub event_source_arn: String,
}

/// The error for a record of a Lambda event that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unreadable stream record: {reason}")]
pub struct RecordError {
    /// The sequence number of the record, if the record has a valid one.
    pub sequence_number: Option<SequenceNumber>,
    /// The problem of the record.
    pub reason: String,
}

impl StreamRecord {
    /// Returns whether this is the record of a TTL delete.
    #[must_use]
    pub fn is_time_to_live(&self) -> bool {
        self.event_name == EventName::Remove
            && self.user_identity.as_ref() == Some(&UserIdentity::time_to_live())
    }
}

impl StreamRecord<EncodedItem> {
    /// Returns the record with its images decoded.
    ///
    /// # Errors
    /// When an image is damaged.
    pub fn decode(self) -> Result<StreamRecord, EncodingError> {
        let image = |image: Option<EncodedItem>| image.map(|image| image.decode()).transpose();
        Ok(StreamRecord {
            event_id: self.event_id,
            event_name: self.event_name,
            user_identity: self.user_identity,
            approximate_creation_seconds: self.approximate_creation_seconds,
            keys: self.keys,
            old_image: image(self.old_image)?,
            new_image: image(self.new_image)?,
            sequence_number: self.sequence_number,
            size_bytes: self.size_bytes,
            view_type: self.view_type,
        })
    }

    /// Appends the record in the form of `GetRecords`, without decoding images.
    ///
    /// # Errors
    /// When an image is damaged. The appended text is then not valid JSON.
    pub fn write_streams_json(&self, out: &mut String, region: &str) -> Result<(), EncodingError> {
        use std::fmt::Write as _;
        // The parts are appended without `write!`, which is several times slower. A page may have a
        // thousand records.
        out.push_str("{\"eventID\":\"");
        out.push_str(&self.event_id);
        out.push_str("\",\"eventName\":\"");
        out.push_str(self.event_name.as_str());
        out.push('"');
        out.push_str(",\"eventVersion\":\"1.1\",\"eventSource\":\"aws:dynamodb\",\"awsRegion\":");
        json::write_string(out, region);
        out.push_str(",\"dynamodb\":{");
        if let Some(seconds) = self.approximate_creation_seconds {
            out.push_str("\"ApproximateCreationDateTime\":");
            let _ = write!(out, "{seconds},");
        }
        out.push_str("\"Keys\":");
        json::write_item(out, &self.keys);
        for (name, image) in
            [(",\"NewImage\":", &self.new_image), (",\"OldImage\":", &self.old_image)]
        {
            if let Some(image) = image {
                out.push_str(name);
                json::write_encoded_item(out, image.as_bytes())?;
            }
        }
        out.push_str(",\"SequenceNumber\":\"");
        out.push_str(self.sequence_number.as_str());
        out.push_str("\",\"SizeBytes\":");
        let _ = write!(out, "{}", self.size_bytes);
        out.push_str(",\"StreamViewType\":\"");
        out.push_str(self.view_type.as_str());
        out.push_str("\"}");
        if let Some(identity) = &self.user_identity {
            out.push_str(",\"userIdentity\":{\"PrincipalId\":");
            json::write_string(out, &identity.principal_id);
            out.push_str(",\"Type\":");
            json::write_string(out, &identity.identity_type);
            out.push('}');
        }
        out.push('}');
        Ok(())
    }
}

/// Decodes one record of a Lambda event.
///
/// # Errors
/// When a member is missing or invalid. The error contains the sequence number if the record has a
/// valid one.
pub fn decode_lambda_record(json: &Json<'_>) -> Result<LambdaRecord, RecordError> {
    let change = json.get("dynamodb");
    let sequence_number = change
        .and_then(|change| change.get("SequenceNumber"))
        .and_then(Json::as_str)
        .and_then(|text| text.parse().ok());
    let error = |reason: String| RecordError { sequence_number: sequence_number.clone(), reason };
    let missing =
        |name: &str| error(format!("the member `{name}` is missing or has the wrong type"));
    let change = change.ok_or_else(|| missing("dynamodb"))?;
    let text = |parent: &Json<'_>, name: &str| {
        parent.get(name).and_then(Json::as_str).map(str::to_owned).ok_or_else(|| missing(name))
    };
    let item = |name: &str| match change.get(name) {
        None | Some(Json::Null) => Ok(None),
        Some(json) => {
            json::decode_item(json).map(Some).map_err(|reason| error(format!("`{name}`: {reason}")))
        }
    };
    let user_identity = match json.get("userIdentity") {
        None | Some(Json::Null) => None,
        Some(identity) => Some(UserIdentity {
            identity_type: text(identity, "type")?,
            principal_id: text(identity, "principalId")?,
        }),
    };
    let record = StreamRecord {
        event_id: text(json, "eventID")?,
        event_name: EventName::from_text(&text(json, "eventName")?)
            .ok_or_else(|| missing("eventName"))?,
        user_identity,
        approximate_creation_seconds: creation_seconds(change.get("ApproximateCreationDateTime")),
        keys: item("Keys")?.ok_or_else(|| missing("Keys"))?,
        old_image: item("OldImage")?,
        new_image: item("NewImage")?,
        size_bytes: match change.get("SizeBytes") {
            Some(Json::Integer(size)) => u64::try_from(*size).unwrap_or(0),
            _ => 0,
        },
        view_type: StreamViewType::from_text(&text(change, "StreamViewType")?)
            .ok_or_else(|| missing("StreamViewType"))?,
        sequence_number: sequence_number.clone().ok_or_else(|| missing("SequenceNumber"))?,
    };
    Ok(LambdaRecord { record, event_source_arn: text(json, "eventSourceARN")? })
}

/// Returns seconds since 1970; Lambda writes them as an integer or as a decimal number.
fn creation_seconds(json: Option<&Json<'_>>) -> Option<u64> {
    match json {
        Some(Json::Integer(seconds)) => u64::try_from(*seconds).ok(),
        Some(Json::Float(seconds)) => whole_seconds(*seconds),
        _ => None,
    }
}

/// Returns the seconds, rounded down; `None` for a time before 1970 or a time that does not fit
/// into 64 bits.
fn whole_seconds(seconds: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked before"
    )]
    (0.0..1e15).contains(&seconds).then_some(seconds as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> StreamRecord {
        let item = |text: &str| json::item_from_str(text).unwrap();
        StreamRecord {
            event_id: "00000000000000000000000000000001".to_owned(),
            event_name: EventName::Remove,
            user_identity: Some(UserIdentity::time_to_live()),
            approximate_creation_seconds: Some(1_795_000_000),
            keys: item(r#"{"pk":{"S":"a"}}"#),
            old_image: Some(item(r#"{"pk":{"S":"a"},"n":{"N":"1"}}"#)),
            new_image: None,
            sequence_number: "100000000000000000001".parse().unwrap(),
            size_bytes: 9,
            view_type: StreamViewType::NewAndOldImages,
        }
    }

    #[test]
    fn lambda_records_are_read() {
        let text = r#"{"eventID":"00000000000000000000000000000001","eventName":"REMOVE","eventVersion":"1.1","eventSource":"aws:dynamodb","awsRegion":"us-east-1","dynamodb":{"ApproximateCreationDateTime":1795000000,"Keys":{"pk":{"S":"a"}},"OldImage":{"n":{"N":"1"},"pk":{"S":"a"}},"SequenceNumber":"100000000000000000001","SizeBytes":9,"StreamViewType":"NEW_AND_OLD_IMAGES"},"userIdentity":{"principalId":"dynamodb.amazonaws.com","type":"Service"},"eventSourceARN":"arn:x"}"#;
        let decoded = decode_lambda_record(&json::parse(text.as_bytes()).unwrap()).unwrap();
        assert_eq!(
            decoded,
            LambdaRecord { record: sample(), event_source_arn: "arn:x".to_owned() }
        );
        assert!(decoded.record.is_time_to_live());
    }

    #[test]
    fn unreadable_records_keep_their_sequence_number() {
        let error =
            |text: &str| decode_lambda_record(&json::parse(text.as_bytes()).unwrap()).unwrap_err();
        let half = error(
            r#"{"eventID":"1","eventName":"REMOVE","dynamodb":{"SequenceNumber":"7","Keys":{"a":{"N":"x"}}}}"#,
        );
        assert_eq!(half.sequence_number, Some("7".parse().unwrap()));
        assert!(half.reason.contains("`Keys`"), "{}", half.reason);
        assert_eq!(error("{}").reason, "the member `dynamodb` is missing or has the wrong type");
    }

    #[test]
    fn sequence_numbers_compare_as_numbers() {
        let number = |text: &str| text.parse::<SequenceNumber>().unwrap();
        assert!(number("9") < number("10"));
        assert!(number("100000000000000000001") < number("200000000000000000000"));
        assert_eq!(number("7").padded().len(), 40);
        assert!(number("10").padded() > number("9").padded());
        for wrong in ["", "-1", "1a", &"1".repeat(41)] {
            assert!(wrong.parse::<SequenceNumber>().is_err());
        }
    }
}
