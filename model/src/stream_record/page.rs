//! A page of `GetRecords`. Its records are converted to the form of Lambda events without decoding:
//! their items are copied as raw text.
//!
//! The records are not validated; their consumer reports invalid records.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use thiserror::Error;

use super::SequenceNumber;
use crate::json::write_string;

/// The approximate size of a Lambda record without its items, in bytes.
const FRAME_LENGTH: usize = 500;

/// The response to a `GetRecords` request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordsPage {
    /// The records in the order of the shard.
    pub records: Vec<PageRecord>,
    /// The iterator for the next page; `None` at the end of the shard.
    pub next_shard_iterator: Option<String>,
}

/// One record of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRecord {
    /// The record's position in the stream.
    pub sequence_number: SequenceNumber,
    /// The time of the change, in whole seconds since 1970, if the record has it.
    pub creation_seconds: Option<i64>,
    /// The item's key in DynamoDB JSON, as raw text.
    pub keys: Option<Box<str>>,
    /// The record in the form of a Lambda event.
    pub lambda_json: Box<str>,
}

/// The error for a body that is not a response to a `GetRecords` request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unreadable page of stream records: {0}")]
pub struct PageError(String);

#[derive(Default, Deserialize)]
struct PageBody<'b> {
    #[serde(borrow, rename = "Records")]
    records: Option<Vec<RecordBody<'b>>>,
    #[serde(rename = "NextShardIterator")]
    next_shard_iterator: Option<String>,
}

/// A record, with its strings and items as raw JSON.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordBody<'b> {
    #[serde(borrow, default, deserialize_with = "raw", rename = "eventID")]
    event_id: Option<&'b str>,
    #[serde(borrow, default, deserialize_with = "raw")]
    event_name: Option<&'b str>,
    #[serde(borrow, default, deserialize_with = "raw")]
    event_version: Option<&'b str>,
    #[serde(borrow, default, deserialize_with = "raw")]
    aws_region: Option<&'b str>,
    #[serde(borrow)]
    dynamodb: ChangeBody<'b>,
    #[serde(borrow)]
    user_identity: Option<IdentityBody<'b>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ChangeBody<'b> {
    approximate_creation_date_time: Option<f64>,
    #[serde(borrow, default, deserialize_with = "raw")]
    keys: Option<&'b str>,
    #[serde(borrow, default, deserialize_with = "raw")]
    new_image: Option<&'b str>,
    #[serde(borrow, default, deserialize_with = "raw")]
    old_image: Option<&'b str>,
    #[serde(borrow)]
    sequence_number: Cow<'b, str>,
    size_bytes: Option<i64>,
    #[serde(borrow, default, deserialize_with = "raw")]
    stream_view_type: Option<&'b str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct IdentityBody<'b> {
    #[serde(borrow, default, deserialize_with = "raw")]
    principal_id: Option<&'b str>,
    #[serde(borrow, default, deserialize_with = "raw", rename = "Type")]
    identity_type: Option<&'b str>,
}

/// Reads a value as raw text; `None` for `null`.
fn raw<'de: 'b, 'b, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'b str>, D::Error> {
    Ok(Option::<&RawValue>::deserialize(deserializer)?.map(RawValue::get))
}

impl RecordsPage {
    /// Parses the body of a `GetRecords` response for a stream.
    ///
    /// # Errors
    /// When the body is not JSON, or is not a `GetRecords` response.
    pub fn read(body: &[u8], stream_arn: &str, region: &str) -> Result<Self, PageError> {
        let text = std::str::from_utf8(body).map_err(|error| PageError(error.to_string()))?;
        let page: PageBody<'_> =
            serde_json::from_str(text).map_err(|error| PageError(error.to_string()))?;
        let [arn, region] = [stream_arn, region].map(|text| {
            let mut json = String::new();
            write_string(&mut json, text);
            json
        });
        let records = page.records.unwrap_or_default().into_iter();
        let records = records.map(|record| record.into_page_record(&arn, &region));
        let next_shard_iterator = page.next_shard_iterator;
        Ok(Self { records: records.collect::<Result<_, _>>()?, next_shard_iterator })
    }
}

impl<'b> RecordBody<'b> {
    /// Converts the record; `arn` and `region` are JSON strings.
    fn into_page_record(self, arn: &str, region: &str) -> Result<PageRecord, PageError> {
        let change = &self.dynamodb;
        let wrong = |what: &str| PageError(format!("record {}: {what}", change.sequence_number));
        let sequence_number = change.sequence_number.parse();
        let sequence_number = sequence_number.map_err(|_| wrong("invalid sequence number"))?;
        let begins = |raw: Option<&str>, with| raw.is_none_or(|raw| raw.starts_with(with));
        let texts = [self.event_id, self.event_name, self.event_version, self.aws_region];
        if !texts.into_iter().all(|text| begins(text, '"')) {
            return Err(wrong(
                "`eventID`, `eventName`, `eventVersion` or `awsRegion` is not a string",
            ));
        }
        if !change.items().into_iter().all(|(_, item)| begins(item, '{')) {
            return Err(wrong("`Keys`, `NewImage` or `OldImage` is not an object"));
        }
        Ok(PageRecord {
            sequence_number,
            creation_seconds: change.approximate_creation_date_time.map(rounded_down),
            keys: change.keys.map(Into::into),
            lambda_json: self.lambda_json(arn, region).into_boxed_str(),
        })
    }

    fn lambda_json(&self, arn: &str, region: &str) -> String {
        let items = self.dynamodb.items().into_iter().filter_map(|(_, item)| item);
        let length = items.map(str::len).sum::<usize>() + FRAME_LENGTH;
        let mut out = String::with_capacity(length);
        let mut record = Object::begin(&mut out);
        record.member("eventID", self.event_id);
        record.member("eventName", self.event_name);
        record.text("eventVersion", self.event_version.unwrap_or("\"1.1\""));
        record.text("eventSource", "\"aws:dynamodb\"");
        record.text("awsRegion", self.aws_region.unwrap_or(region));
        self.dynamodb.write(record.name("dynamodb"));
        if let Some(identity) = &self.user_identity {
            let mut object = Object::begin(record.name("userIdentity"));
            object.text("principalId", identity.principal_id.unwrap_or("null"));
            object.text("type", identity.identity_type.unwrap_or("null"));
            object.end();
        }
        record.text("eventSourceARN", arn);
        record.end();
        out
    }
}

impl<'b> ChangeBody<'b> {
    fn items(&self) -> [(&'static str, Option<&'b str>); 3] {
        [("Keys", self.keys), ("NewImage", self.new_image), ("OldImage", self.old_image)]
    }

    fn write(&self, out: &mut String) {
        let mut change = Object::begin(out);
        if let Some(seconds) = self.approximate_creation_date_time {
            // The time is written with a fraction, as by AWS: `1573690399.0`.
            let _ = write!(change.name("ApproximateCreationDateTime"), "{seconds:?}");
        }
        for (name, item) in self.items() {
            change.member(name, item);
        }
        let _ = write!(change.name("SequenceNumber"), "\"{}\"", self.sequence_number);
        if let Some(size) = self.size_bytes {
            let _ = write!(change.name("SizeBytes"), "{size}");
        }
        change.member("StreamViewType", self.stream_view_type);
        change.end();
    }
}

/// A writer of a JSON object whose names contain no character that must be escaped.
struct Object<'o> {
    out: &'o mut String,
    between: char,
}

impl<'o> Object<'o> {
    fn begin(out: &'o mut String) -> Self {
        Self { out, between: '{' }
    }

    /// Writes the name of a member. The caller must write its value next.
    fn name(&mut self, name: &str) -> &mut String {
        self.out.push(std::mem::replace(&mut self.between, ','));
        self.out.push('"');
        self.out.push_str(name);
        self.out.push_str("\":");
        self.out
    }

    fn text(&mut self, name: &str, json: &str) {
        self.name(name).push_str(json);
    }

    fn member(&mut self, name: &str, raw: Option<&str>) {
        if let Some(raw) = raw {
            self.text(name, raw);
        }
    }

    /// Ends the object, which has at least one member.
    fn end(self) {
        self.out.push('}');
    }
}

/// Rounds seconds down.
fn rounded_down(seconds: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "times beyond 64 bits are truncated")]
    let whole = seconds.floor() as i64;
    whole
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::encoded_item::EncodedItem;
    use crate::json::item_from_str;
    use crate::stream_record::{
        EventName, StreamRecord, StreamViewType, UserIdentity, lambda_record_from_str,
    };

    const ARN: &str = "arn:aws:dynamodb:eu-west-1:000000000000:table/t/stream/l";

    fn read(body: &str) -> Result<RecordsPage, PageError> {
        RecordsPage::read(body.as_bytes(), ARN, "eu-west-1")
    }

    /// Returns one record, with `part` replaced.
    fn body(part: &str, instead: &str) -> String {
        let whole = r#"{"Records":[{"awsRegion":"eu-west-1","dynamodb":{"ApproximateCreationDateTime":1573690399,"Keys":{"pk":{"S":"a"}},"OldImage":{"n":{"N":"00.50"},"m":{"M":{"l":{"L":[{"NULL":true},{"B":"/w=="},{"S":"\u00e9\"}]"}]}}}},"SequenceNumber":"000000000000000000042","SizeBytes":58,"StreamViewType":"OLD_IMAGE"},"eventID":"ab0e","eventName":"REMOVE","eventSource":"aws:dynamodb","eventVersion":"1.1","userIdentity":{"PrincipalId":"dynamodb.amazonaws.com","Type":"Service"}}],"NextShardIterator":"i\"2"}"#;
        assert!(whole.contains(part), "{part}");
        whole.replacen(part, instead, 1)
    }

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn records_have_the_shape_of_a_lambda_event() {
        let page = read(&body("", "")).unwrap();
        assert_eq!(page.next_shard_iterator.as_deref(), Some("i\"2"));
        let [record] = &page.records[..] else { panic!("{page:?}") };
        assert_eq!(record.sequence_number.as_str(), "000000000000000000042");
        assert_eq!(record.creation_seconds, Some(1_573_690_399));
        assert_eq!(record.keys.as_deref(), Some(r#"{"pk":{"S":"a"}}"#));
        let expected = json!({
            "eventID": "ab0e",
            "eventName": "REMOVE",
            "eventVersion": "1.1",
            "eventSource": "aws:dynamodb",
            "awsRegion": "eu-west-1",
            "dynamodb": {
                "ApproximateCreationDateTime": 1_573_690_399.0,
                "Keys": {"pk": {"S": "a"}},
                "OldImage": {
                    "n": {"N": "00.50"},
                    "m": {"M": {"l": {"L": [{"NULL": true}, {"B": "/w=="}, {"S": "é\"}]"}]}}},
                },
                "SequenceNumber": "000000000000000000042",
                "SizeBytes": 58,
                "StreamViewType": "OLD_IMAGE",
            },
            "userIdentity": {"type": "Service", "principalId": "dynamodb.amazonaws.com"},
            "eventSourceARN": ARN,
        });
        assert_eq!(parsed(&record.lambda_json), expected);
        // The fraction is kept, because filters compare numbers as strings.
        assert!(record.lambda_json.contains(":1573690399.0,"), "{}", record.lambda_json);
    }

    #[test]
    fn missing_members_stay_absent() {
        let page = read(r#"{"Records":[{"dynamodb":{"SequenceNumber":"7"},"more":[1]}]}"#).unwrap();
        let [record] = &page.records[..] else { panic!("{page:?}") };
        let expected = json!({
            "eventVersion": "1.1",
            "eventSource": "aws:dynamodb",
            "awsRegion": "eu-west-1",
            "dynamodb": {"SequenceNumber": "7"},
            "eventSourceARN": ARN,
        });
        assert_eq!(parsed(&record.lambda_json), expected);
        assert_eq!((record.creation_seconds, &record.keys), (None, &None));
        for empty in ["{}", r#"{"Records":null}"#, r#"{"Records":[]}"#] {
            let none = RecordsPage { records: Vec::new(), next_shard_iterator: None };
            assert_eq!(read(empty), Ok(none));
        }
    }

    #[test]
    fn a_time_is_rounded_down() {
        for (text, expected) in [("1.573690399E9", 1_573_690_399), ("7.75", 7), ("-0.5", -1)] {
            let page = read(&body("1573690399", text)).unwrap();
            assert_eq!(page.records[0].creation_seconds, Some(expected), "{text}");
        }
    }

    #[test]
    fn invalid_pages_are_refused() {
        for (part, instead) in [
            ("\"dynamodb\"", "\"dynamo\""),
            ("\"SequenceNumber\":\"000000000000000000042\",", ""),
            ("000000000000000000042", "x"),
            ("000000000000000000042", ""),
            ("1573690399", "\"now\""),
            ("{\"pk\":{\"S\":\"a\"}}", "[]"),
            ("\"ab0e\"", "7"),
            ("\"REMOVE\"", "{}"),
            ("58", "\"58\""),
            ("}],", "}"),
        ] {
            assert!(read(&body(part, instead)).is_err(), "{part} {instead}");
        }
        for wrong in ["", "[]", r#"{"Records":[7]}"#, r#"{"Records":{}}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(
            RecordsPage::read(b"{\"Records\":[],\"NextShardIterator\":\"\xff\"}", ARN, "").is_err()
        );
    }

    #[test]
    fn members_in_unusual_forms_are_read() {
        for (part, instead) in [
            ("1573690399", "1.573690399E9"),
            ("1573690399", "null"),
            ("58", "-58"),
            ("\"REMOVE\"", "null"),
            ("{\"pk\":{\"S\":\"a\"}}", "null"),
            ("\"SizeBytes\":58", "\"size\":{\"x\":[1,null]}"),
            ("\"ab0e\"", " \"a\\u0062\\\"\" "),
            ("000000000000000000042", "\\u0034\\u0032"),
            ("\"Type\":\"Service\"", "\"Other\":7"),
            ("\"i\\\"2\"", "null"),
        ] {
            assert!(read(&body(part, instead)).is_ok(), "{part} {instead}");
        }
        for (part, instead) in [
            ("\"SizeBytes\"", "\"SequenceNumber\":\"7\",\"SizeBytes\""),
            ("\"eventID\"", "\"eventID\":\"7\",\"eventID\""),
            ("58", "5.8e1"),
            ("58", "9223372036854775808"),
        ] {
            assert!(read(&body(part, instead)).is_err(), "{instead}");
        }
    }

    /// Goal: a record of a converted page equals the same record encoded directly for Lambda.
    #[test]
    fn page_records_equal_lambda_records() {
        let item = |text: &str| item_from_str(text).unwrap();
        let record = StreamRecord {
            event_id: "00000000000000000000000000000001".to_owned(),
            event_name: EventName::Remove,
            user_identity: Some(UserIdentity::time_to_live()),
            approximate_creation_seconds: Some(1_795_000_000),
            keys: item(r#"{"pk":{"S":"a\"\\\n"}}"#),
            old_image: Some(EncodedItem::from(&item(
                r#"{"pk":{"S":"a\"\\\n"},"s":{"NS":["1","2"]},"b":{"BOOL":false}}"#,
            ))),
            new_image: None,
            sequence_number: "100000000000000000001".parse().unwrap(),
            size_bytes: 9,
            view_type: StreamViewType::NewAndOldImages,
        };
        let mut body = String::from("{\"Records\":[");
        record.write_streams_json(&mut body, "eu-west-1").unwrap();
        body.push_str("]}");
        let page = read(&body).unwrap();
        let read = lambda_record_from_str(&page.records[0].lambda_json).unwrap();
        assert_eq!(read.event_source_arn, ARN);
        assert_eq!(Ok(read.record), record.decode());
    }
}
