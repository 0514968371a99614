//! The archive: what TTL deletes becomes rows, each standing in the archive exactly once.
//!
//! A REMOVE record that carries TTL's `userIdentity` gives a row. Other deletes give one only when
//! the rule is told to keep them, and then say so: `inferred` when the item had expired, as where a
//! global table copies TTL's deletes without saying whose they are, and `user` otherwise. An item
//! that was restored from the archive and not changed since gives none: the archive has it. Files
//! and their format are not known here; the place of a row in time is: its [`Bucket`].

mod bucket;
mod column;
mod content;
mod discovered;
mod hour;
mod known_schema;
mod known_stream;
mod plain_json;
pub mod restored;
mod row;

pub use bucket::{Bucket, PART_NUMBER_MAX, UtcMinute};
pub use column::{
    Column, ColumnType, ColumnsError, Declaration, PATH_COLUMNS, Path, SYSTEM_COLUMNS, Schema,
    parse_columns,
};
use content::content_of;
pub use discovered::DISCOVERED_MAX;
pub use hour::Hour;
use known_schema::Columns;
pub use known_schema::KnownSchema;
pub use known_stream::KnownStream;
pub use row::{ColumnValue, DeletedBy, Row, Rows, SCHEMA_VERSION};

use std::sync::Arc;

use model::EventName;
use model::arn::StreamArn;
use model::json::{ItemView, ValueView};
use model::stream_record::{LambdaRecord, RecordView};

use crate::effect::Effect;
use crate::rule::{Found, LookAhead, Needs, Refusal, Rule};

/// The archive rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Archive {
    /// Attributes that get a typed column of their own, beside the key attributes.
    pub columns: Arc<[Column]>,
    /// Whether every other attribute gets a column too, as it is found.
    pub discover: bool,
    /// The attribute that holds the time of expiry in seconds, if rows shall tell it.
    pub ttl_attribute: Option<String>,
    /// Whose deletes are kept.
    pub deletes: Deletes,
    /// The columns of the last records.
    pub schema: KnownSchema,
    /// The stream of the last record.
    pub stream: KnownStream,
}

/// Whose deletes the archive keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deletes {
    /// Those of TTL, as the records say.
    #[default]
    TimeToLive,
    /// Those of TTL, and of items that had expired when they were deleted.
    Expired,
    /// All.
    All,
}

impl Rule for Archive {
    fn look_ahead(&self) -> LookAhead {
        LookAhead::Nothing
    }

    fn needs(&self, _records: &[&LambdaRecord]) -> Needs {
        Needs::default()
    }

    fn decide(&self, record: &LambdaRecord, found: &Found) -> Result<Vec<Effect>, Refusal> {
        self.decide_view(RecordView::of(record), found)
    }

    fn decide_view(&self, record: RecordView<'_>, _found: &Found) -> Result<Vec<Effect>, Refusal> {
        let Some(deleted_by) = self.deleted_by(&record) else {
            return Ok(Vec::new());
        };
        if is_as_restored(&record) {
            return Ok(Vec::new());
        }
        let (bucket, row) = self.row_of(&record, deleted_by)?;
        Ok(vec![Effect::Rows { bucket, rows: Rows::from([row]) }])
    }
}

/// Whether the archive of the record's table has the item already. Most items have no mark.
fn is_as_restored(record: &RecordView<'_>) -> bool {
    let marked = record.old_image.as_ref().filter(|item| item.get(restored::RESTORED).is_some());
    let Some(item) = marked else { return false };
    // A record without a stream is refused when its row is made.
    let Ok(stream) = record.event_source_arn.parse::<StreamArn>() else { return false };
    restored::is_as_restored(&item.clone().into_item(), &stream.table.table)
}

impl Archive {
    /// Who deleted the item; `None` if nothing was deleted, or nothing that is kept.
    fn deleted_by(&self, change: &RecordView<'_>) -> Option<DeletedBy> {
        if change.is_time_to_live() {
            return Some(DeletedBy::TimeToLive);
        }
        if change.event_name != EventName::Remove || self.deletes == Deletes::TimeToLive {
            return None;
        }
        let expired_at = change.old_image.as_ref().and_then(|item| self.ttl_of(item));
        let deleted_at =
            change.approximate_creation_seconds.and_then(|seconds| i64::try_from(seconds).ok());
        match (expired_at, deleted_at) {
            (Some(expired_at), Some(deleted_at)) if expired_at <= deleted_at => {
                Some(DeletedBy::Inferred)
            }
            _ => (self.deletes == Deletes::All).then_some(DeletedBy::User),
        }
    }

    fn ttl_of(&self, item: &ItemView<'_>) -> Option<i64> {
        match item.get(self.ttl_attribute.as_ref()?)? {
            ValueView::N(text) => text.parse().ok(),
            _ => None,
        }
    }

    fn row_of(
        &self,
        change: &RecordView<'_>,
        deleted_by: DeletedBy,
    ) -> Result<(Bucket, Row), Refusal> {
        let item = change.old_image.as_ref().ok_or_else(|| {
            Refusal(format!(
                "the record has no old image: the stream's view type is {}, the archive needs OLD_IMAGE or NEW_AND_OLD_IMAGES",
                change.view_type.as_str()
            ))
        })?;
        // Absent times are decoded as 0 by some senders; either way the minute is not known, and
        // the row must not land in 1970.
        let seconds = change
            .approximate_creation_seconds
            .filter(|seconds| *seconds > 0)
            .ok_or_else(|| Refusal("the record has no ApproximateCreationDateTime".to_owned()))?;
        let minute = UtcMinute::of_seconds(seconds).ok_or_else(|| {
            Refusal(format!("ApproximateCreationDateTime=`{seconds}` is after the year 9999"))
        })?;
        let (stream_arn, bucket) = self.stream.of(&change.event_source_arn, minute)?;

        let Columns { schema, places, notes } =
            self.schema.of(&change.keys, &self.columns, item, self.discover);
        let mut coercions = notes.to_vec();
        let names = (&*change.padded_sequence_number(), &*change.event_id);
        let content = content_of(names, item, (&schema, &places), &mut coercions);
        let ttl_raw = self.ttl_of(item);
        let row = Row {
            content,
            event_name: EventName::Remove.as_str(),
            deleted_by,
            deleted_at_ms: minute.millis_of_second(seconds),
            expires_at_ms: ttl_raw.and_then(|seconds| seconds.checked_mul(1000)),
            ttl_raw,
            table: Arc::clone(&bucket.table),
            stream_arn,
            schema,
            coercions,
        };
        Ok((bucket, row))
    }
}

#[cfg(test)]
mod row_tests;

#[cfg(test)]
mod tests {
    use model::json;

    use super::*;
    use crate::rule::testing::check_decisions;

    #[test]
    fn decisions() {
        let rule = Archive {
            columns: parse_columns("info.rating:decimal(3,1),title:string,info:json")
                .unwrap()
                .into(),
            ttl_attribute: Some("expires".to_owned()),
            ..Archive::default()
        };
        check_decisions(&rule, &Found::default(), include_str!("../../testdata/archive.txt"));
    }

    #[test]
    fn other_deletes_are_kept_when_that_is_asked_for() {
        let record = |ttl: bool, expires: &str| {
            let text = include_str!("../../testdata/archive.txt").lines().nth(1).unwrap();
            let mut record =
                model::stream_record::decode_lambda_record(&json::parse(text.as_bytes()).unwrap())
                    .unwrap();
            if !ttl {
                record.record.user_identity = None;
            }
            let image = record.record.old_image.as_mut().unwrap();
            image.insert("expires".to_owned(), model::AttributeValue::N(expires.parse().unwrap()));
            record
        };
        // The record is of second 1795228199.
        for (deletes, ttl, expires, expected) in [
            (Deletes::TimeToLive, true, "1795228100", Some("ttl")),
            (Deletes::TimeToLive, false, "1795228100", None),
            (Deletes::Expired, true, "1795228100", Some("ttl")),
            (Deletes::Expired, false, "1795228199", Some("inferred")),
            (Deletes::Expired, false, "1795228200", None),
            (Deletes::All, false, "1795228199", Some("inferred")),
            (Deletes::All, false, "1795228200", Some("user")),
        ] {
            let ttl_attribute = Some("expires".to_owned());
            let rule = Archive { ttl_attribute, deletes, ..Archive::default() };
            let mut record = record(ttl, expires);
            let found = rule.decide(&record, &Found::default()).unwrap();
            let kept = found.first().map(|effect| match effect {
                Effect::Rows { rows, .. } => rows.iter().next().unwrap().deleted_by.as_str(),
                other => panic!("{other:?}"),
            });
            assert_eq!(kept, expected, "{deletes:?} {ttl} {expires}");

            let table = record.event_source_arn.parse::<StreamArn>().unwrap().table.table;
            for (table, rows) in [(&*table, 0), ("another", usize::from(expected.is_some()))] {
                let image = record.record.old_image.as_mut().unwrap();
                let origin = restored::Origin { table, event_id: "e", stamp: "s" };
                let mark = restored::mark(image, origin, Some("expires"));
                image.insert(restored::RESTORED.to_owned(), mark);
                let found = rule.decide(&record, &Found::default()).unwrap();
                assert_eq!(found.len(), rows, "{deletes:?} {ttl} {expires} {table}");
            }
        }
    }
}
