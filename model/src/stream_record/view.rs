//! A record of a Lambda event that borrows from its JSON. Unusual records are read with `tree`,
//! which reports errors.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Visitor};

use super::{
    EventName, LambdaRecord, RecordError, SequenceNumber, StreamRecord, StreamViewType,
    UserIdentity, decode_lambda_record,
};
use crate::json;
use crate::json::ItemView;
use crate::json::scan::Scanner;

/// A [`LambdaRecord`] that borrows from its JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordView<'t> {
    /// The member of the same name in [`StreamRecord`].
    pub event_id: Cow<'t, str>,
    /// The kind of the change.
    pub event_name: EventName,
    /// The type and the principal of the author of the change, if it was not a user.
    pub user_identity: Option<(Cow<'t, str>, Cow<'t, str>)>,
    /// The member of the same name in [`StreamRecord`].
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
        let mut scanner = Scanner::new(text);
        Self::read_next(&mut scanner).filter(|_| scanner.is_at_end())
    }

    fn read_next(scanner: &mut Scanner<'t>) -> Option<Self> {
        let wire = Wire::read(scanner)?;
        Some(Self {
            event_id: wire.event_id?,
            event_name: EventName::from_text(&wire.event_name?)?,
            user_identity: wire.user_identity.flatten(),
            approximate_creation_seconds: wire.approximate_creation_seconds.flatten(),
            keys: wire.keys?,
            old_image: wire.old_image.flatten(),
            new_image: wire.new_image.flatten(),
            sequence_number: wire
                .sequence_number
                .filter(|digits| SequenceNumber::is_valid(digits))?,
            size_bytes: wire.size_bytes.flatten().unwrap_or(0),
            view_type: StreamViewType::from_text(&wire.view_type?)?,
            event_source_arn: wire.event_source_arn?,
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

/// Returns the records of a Lambda event as raw text; `None` if the event is not in the usual form.
/// This function only finds the ends of the records, so the caller must parse them.
#[must_use]
pub fn split_lambda_event(text: &str) -> Option<Vec<&str>> {
    let mut found = Vec::new();
    each_record(text, |scanner| {
        found.push(scanner.unread()?);
        Some(())
    })?;
    Some(found)
}

/// Calls the callback with each record of a Lambda event as raw text, and with its view if the
/// record is in the usual form. Returns `None` if the event is not in the usual form; the caller
/// must then discard the records that it has already received.
pub fn read_lambda_event<'t>(
    text: &'t str,
    mut record: impl FnMut(&'t str, Option<RecordView<'t>>),
) -> Option<()> {
    each_record(text, |scanner| {
        match scanner.try_read(RecordView::read_next) {
            Some((view, raw)) => record(raw, Some(view)),
            None => record(scanner.unread()?, None),
        }
        Some(())
    })
}

/// Visits each record; returns `None` if the event is not in the usual form.
fn each_record<'t>(
    text: &'t str,
    mut record: impl FnMut(&mut Scanner<'t>) -> Option<()>,
) -> Option<()> {
    let mut scanner = Scanner::new(text);
    let mut has_records = false;
    scanner.object(|scanner, name| match name.as_ref() {
        "Records" if has_records => None,
        "Records" => {
            has_records = true;
            scanner.array(&mut record)
        }
        _ => scanner.raw().map(drop),
    })?;
    (has_records && scanner.is_at_end()).then_some(())
}

/// The members of a partially read record. `Some(None)` is a `null`.
#[derive(Default)]
struct Wire<'t> {
    event_id: Option<Cow<'t, str>>,
    event_name: Option<Cow<'t, str>>,
    user_identity: Option<Option<(Cow<'t, str>, Cow<'t, str>)>>,
    approximate_creation_seconds: Option<Option<u64>>,
    keys: Option<ItemView<'t>>,
    old_image: Option<Option<ItemView<'t>>>,
    new_image: Option<Option<ItemView<'t>>>,
    sequence_number: Option<Cow<'t, str>>,
    size_bytes: Option<Option<u64>>,
    view_type: Option<Cow<'t, str>>,
    event_source_arn: Option<Cow<'t, str>>,
}

/// A member of a record.
#[derive(Clone, Copy)]
enum Member {
    EventId,
    EventName,
    Change,
    UserIdentity,
    EventSourceArn,
    /// A member that is ignored.
    Other,
}

/// A member of a record's change.
#[derive(Clone, Copy)]
pub(super) enum MemberOfChange {
    ApproximateCreationDateTime,
    Keys,
    NewImage,
    OldImage,
    SequenceNumber,
    SizeBytes,
    StreamViewType,
}

/// The member names, in Lambda's order.
const MEMBERS: [(&str, Member); 8] = [
    ("eventID", Member::EventId),
    ("eventName", Member::EventName),
    ("eventVersion", Member::Other),
    ("eventSource", Member::Other),
    ("awsRegion", Member::Other),
    ("dynamodb", Member::Change),
    ("userIdentity", Member::UserIdentity),
    ("eventSourceARN", Member::EventSourceArn),
];
/// The member names, in DynamoDB's order.
pub(super) const MEMBERS_OF_CHANGE: [(&str, MemberOfChange); 7] = [
    ("ApproximateCreationDateTime", MemberOfChange::ApproximateCreationDateTime),
    ("Keys", MemberOfChange::Keys),
    ("NewImage", MemberOfChange::NewImage),
    ("OldImage", MemberOfChange::OldImage),
    ("SequenceNumber", MemberOfChange::SequenceNumber),
    ("SizeBytes", MemberOfChange::SizeBytes),
    ("StreamViewType", MemberOfChange::StreamViewType),
];

impl<'t> Wire<'t> {
    fn read(scanner: &mut Scanner<'t>) -> Option<Self> {
        let mut wire = Self::default();
        let mut has_change = false;
        scanner.usual_object(&MEMBERS, |scanner, member| match member {
            Some(Member::EventId) => set(&mut wire.event_id, scanner.string()?),
            Some(Member::EventName) => set(&mut wire.event_name, scanner.string()?),
            Some(Member::EventSourceArn) => set(&mut wire.event_source_arn, scanner.string()?),
            Some(Member::UserIdentity) => {
                set(&mut wire.user_identity, nullable(scanner, identity)?)
            }
            Some(Member::Change) if has_change => None,
            Some(Member::Change) => {
                has_change = true;
                let read = |scanner: &mut _, member| wire.read_of_change(scanner, member);
                scanner.usual_object(&MEMBERS_OF_CHANGE, read)
            }
            Some(Member::Other) | None => scanner.raw().map(drop),
        })?;
        Some(wire)
    }

    fn read_of_change(
        &mut self,
        scanner: &mut Scanner<'t>,
        member: Option<MemberOfChange>,
    ) -> Option<()> {
        match member {
            Some(MemberOfChange::ApproximateCreationDateTime) => {
                let seconds = match scanner.whole_number() {
                    Some(seconds) => Some(seconds),
                    None => serde_json::from_str::<Option<Seconds>>(scanner.raw()?)
                        .ok()?
                        .and_then(|seconds| seconds.0),
                };
                set(&mut self.approximate_creation_seconds, seconds)
            }
            Some(MemberOfChange::Keys) => set(&mut self.keys, ItemView::read(scanner)?),
            Some(MemberOfChange::OldImage) => {
                set(&mut self.old_image, nullable(scanner, ItemView::read)?)
            }
            Some(MemberOfChange::NewImage) => {
                set(&mut self.new_image, nullable(scanner, ItemView::read)?)
            }
            Some(MemberOfChange::SequenceNumber) => {
                set(&mut self.sequence_number, scanner.string()?)
            }
            Some(MemberOfChange::SizeBytes) => {
                let size = match scanner.whole_number() {
                    Some(size) => Some(size),
                    None => serde_json::from_str(scanner.raw()?).ok()?,
                };
                set(&mut self.size_bytes, size)
            }
            Some(MemberOfChange::StreamViewType) => set(&mut self.view_type, scanner.string()?),
            None => scanner.raw().map(drop),
        }
    }
}

/// Sets a member; returns `None` if the member was already set.
pub(super) fn set<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

fn nullable<'t, T>(
    scanner: &mut Scanner<'t>,
    read: impl Fn(&mut Scanner<'t>) -> Option<T>,
) -> Option<Option<T>> {
    if scanner.null() { Some(None) } else { read(scanner).map(Some) }
}

/// Reads the type and the principal.
fn identity<'t>(scanner: &mut Scanner<'t>) -> Option<(Cow<'t, str>, Cow<'t, str>)> {
    let (mut identity_type, mut principal_id) = (None, None);
    scanner.object(|scanner, name| match name.as_ref() {
        "type" => set(&mut identity_type, scanner.string()?),
        "principalId" => set(&mut principal_id, scanner.string()?),
        _ => scanner.raw().map(drop),
    })?;
    Some((identity_type?, principal_id?))
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
    fn events_are_split_into_raw_records() {
        for (event, records) in [
            (r#"{"Records":[]}"#, Some(&[][..])),
            (r#" {"a":1,"Records":[ {"b":"]}"} , 7 ],"c":[]} "#, Some(&[r#"{"b":"]}"}"#, "7"][..])),
            (r#"{"Records":[{"b":[x]}]}"#, Some(&[r#"{"b":[x]}"#][..])),
            (r#"{"Records":null}"#, None),
            (r#"{"Records":[],"Records":[]}"#, None),
            (r#"{"Records":[{}]"#, None),
            (r#"{"Records":[}"#, None),
            (r#"{"Records":[]} x"#, None),
            ("{}", None),
            ("[]", None),
        ] {
            assert_eq!(split_lambda_event(event).as_deref(), records, "{event}");
            let mut read = Vec::new();
            let whole = read_lambda_event(event, |raw, view| {
                assert_eq!(view, None, "{raw}");
                read.push(raw);
            });
            assert_eq!(whole.map(|()| read).as_deref(), records, "{event}");
        }
    }

    #[test]
    fn records_of_an_event_are_read_in_place() {
        let usual = text("", "");
        let spaced = text("\"SizeBytes\":9", "\"SizeBytes\" : 9");
        let unusual = text("REMOVE", "remove");
        let event = format!(r#"{{"Records":[{usual}, {unusual} ,{spaced}],"more":[1]}}"#);
        let mut read = Vec::new();
        read_lambda_event(&event, |raw, view| {
            assert_eq!(view, RecordView::read(raw), "{raw}");
            read.push((raw, view.is_some()));
        })
        .unwrap();
        assert_eq!(read, [(&*usual, true), (&*unusual, false), (&*spaced, true)]);
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
