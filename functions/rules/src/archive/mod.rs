//! The archive: each item that TTL deletes becomes one row, and each row is archived exactly once.
//!
//! A REMOVE record with TTL's `userIdentity` produces a row. Other deletes produce a row only if
//! the rule keeps them. If the item had expired, such a row is marked `inferred`: a global table,
//! for example, replicates TTL's deletes without `userIdentity`. All other rows are marked `user`.
//! An unchanged item that was restored from this archive produces no row: its row exists, or was
//! erased and must not be archived again. An item that was restored from another archive produces a
//! row.
//!
//! A row belongs to a [`Bucket`]. The caller writes the files.

mod bucket;
mod column;
mod content;
mod discovered;
mod hour;
mod known_schema;
mod known_stream;
mod misfit;
mod plain_json;
mod row;

pub use bucket::{Bucket, PART_NUMBER_MAX, UtcMinute};
pub use column::{
    Column, ColumnType, ColumnsError, Declaration, PATH_COLUMNS, Path, SYSTEM_COLUMNS, Schema,
    parse_columns,
};
use content::content_of;
pub use discovered::{DISCOVERED_MAX, discovered_column, is_discovered};
pub use hour::Hour;
use known_schema::Columns;
pub use known_schema::KnownSchema;
pub use known_stream::KnownStream;
pub use misfit::{misfit_of, ttl_misfits_of};
pub use row::{ColumnValue, DeletedBy, Row, Rows, SCHEMA_VERSION};

use std::convert::Infallible;
use std::ops::RangeInclusive;
use std::sync::Arc;

use model::arn::StreamArn;
use model::json::{ItemView, ValueView};
use model::stream_record::{LambdaRecord, RecordView};
use model::{AttributeType, EventName};

use crate::effect::Effect;
use crate::marks::migration::{MARK, is_bare_tombstone_of};
use crate::marks::{restored, stripped};
use crate::rule::{Found, LookAhead, Refusal, Rule};
use crate::time_to_live;

/// The seconds since 1970 of the years 1 to 9999: the range of timestamps in Athena, DuckDB and Python.
const EXPIRY_SECONDS: RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// The column that holds the number of the TTL attribute.
pub const TTL_RAW: &str = "_ttl_raw";

/// The archive rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Archive {
    /// The attributes that get a typed column, in addition to the key attributes.
    pub columns: Arc<[Column]>,
    /// Whether every attribute that is not in `columns` also gets a column when it first occurs.
    pub discover: bool,
    /// The attribute that holds the time of expiry in seconds; `None` if rows contain no time of
    /// expiry.
    pub ttl_attribute: Option<String>,
    /// The deletes that are archived.
    pub deletes: Deletes,
    /// The archive that receives the rows, as returned by [`restored::archive_name`]. Without it,
    /// every restored item that expires produces a row.
    pub archive: Option<String>,
    /// The cached columns of recent records.
    pub schema: KnownSchema,
    /// The cached stream of the last record.
    pub stream: KnownStream,
}

/// The deletes that the archive keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deletes {
    /// Deletes that the records attribute to TTL.
    #[default]
    TimeToLive,
    /// Deletes by TTL, and deletes of items that had expired.
    Expired,
    /// All deletes.
    All,
}

impl Rule for Archive {
    type Input = Infallible;
    type Effect = Effect<Bucket, Rows>;

    fn look_ahead(&self) -> LookAhead {
        LookAhead::Nothing
    }

    fn decide(
        &self,
        record: &LambdaRecord,
        found: &Found<Infallible>,
    ) -> Result<Vec<Self::Effect>, Refusal> {
        self.decide_view(RecordView::of(record), found)
    }

    fn decide_view(
        &self,
        record: RecordView<'_>,
        _found: &Found<Infallible>,
    ) -> Result<Vec<Self::Effect>, Refusal> {
        let Some(deleted_by) = self.deleted_by(&record) else {
            return Ok(Vec::new());
        };
        // A delete by a user produces a row even if the archive already has a row of the item.
        let is_over = deleted_by != DeletedBy::User;
        if is_over && self.was_restored_from_here(&record) || is_tombstone(&record) {
            return Ok(Vec::new());
        }
        let (bucket, row) = self.row_of(&record, deleted_by)?;
        Ok(vec![Effect { target: bucket, statement: Rows::from([row]) }])
    }
}

/// Returns the time of expiry in milliseconds since 1970. Returns `None` for a time outside of the
/// years 1 to 9999, because query engines fail on such a time. An attribute in microseconds is an
/// example.
fn expires_at_ms(seconds: i64) -> Option<i64> {
    EXPIRY_SECONDS.contains(&seconds).then(|| seconds.saturating_mul(1000))
}

/// Returns the whole seconds of a number, without the fraction, as TTL does.
fn whole_seconds(number: &str) -> Option<i64> {
    number.split('.').next().and_then(|whole| whole.parse().ok())
}

/// Returns whether the deleted item is the tombstone of a migration, which has only a key. The item
/// itself was deleted earlier. If that delete had to produce a row, the row already exists.
fn is_tombstone(change: &RecordView<'_>) -> bool {
    let marked = change.old_image.as_ref().filter(|item| item.get(MARK).is_some());
    marked.is_some_and(|item| {
        let is_key = |name: &str| change.keys.get(name).is_some();
        is_bare_tombstone_of(&item.clone().into_item(), is_key)
    })
}

impl Archive {
    /// Returns whether the item was restored from its own table's rows in this archive and is
    /// unchanged.
    fn was_restored_from_here(&self, change: &RecordView<'_>) -> bool {
        let marked =
            change.old_image.as_ref().filter(|item| item.get(restored::RESTORED).is_some());
        let (Some(item), Some(archive)) = (marked, &self.archive) else { return false };
        // A record without a stream ARN is refused later, when its row is created.
        let Ok(stream) = change.event_source_arn.parse::<StreamArn>() else { return false };
        let is_key = |name: &str| change.keys.get(name).is_some();
        restored::is_in_archive(&item.clone().into_item(), archive, &stream.table.table, is_key)
    }

    /// Returns who deleted the item. Returns `None` if the record is not a delete, or if the rule
    /// does not keep deletes of this kind.
    fn deleted_by(&self, change: &RecordView<'_>) -> Option<DeletedBy> {
        if change.is_time_to_live() {
            return Some(DeletedBy::TimeToLive);
        }
        if change.event_name != EventName::Remove || self.deletes == Deletes::TimeToLive {
            return None;
        }
        let ttl = change.old_image.as_ref().and_then(|item| self.ttl_of(item));
        let is_over = ttl
            .and_then(time_to_live::expiry_of)
            .zip(change.approximate_creation_seconds)
            .is_some_and(|(expiry, deleted_at)| time_to_live::is_over(expiry, deleted_at));
        if is_over {
            return Some(DeletedBy::Inferred);
        }
        (self.deletes == Deletes::All).then_some(DeletedBy::User)
    }

    /// Returns the number in the item's TTL attribute.
    fn ttl_of<'i>(&self, item: &'i ItemView<'_>) -> Option<&'i str> {
        match item.get(self.ttl_attribute.as_ref()?)? {
            ValueView::N(text) => Some(text),
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
                "the record has no old image: the stream's view type is {}, but the archive needs OLD_IMAGE or NEW_AND_OLD_IMAGES",
                change.view_type.as_str()
            ))
        })?;
        // The row contains only the user's attributes, because Weir's marks have no meaning outside of
        // the table.
        let stripped = stripped(item);
        let stripped = stripped.as_ref().map(ItemView::of);
        let item = stripped.as_ref().unwrap_or(item);
        // Some senders write 0 for an absent time. A row without a known minute must not be
        // archived under 1970.
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
        let ttl = self.ttl_of(item);
        let ttl_raw = ttl.and_then(|number| number.parse().ok());
        if ttl.is_some() && ttl_raw.is_none() {
            coercions.push(misfit::note_of(TTL_RAW, ColumnType::Bigint, AttributeType::N));
        }
        let row = Row {
            content,
            event_name: EventName::Remove.as_str(),
            deleted_by,
            deleted_at_ms: minute.millis_of_second(seconds),
            expires_at_ms: ttl.and_then(whole_seconds).and_then(expires_at_ms),
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
    use std::fmt::Write as _;

    use model::json;

    use super::*;
    use crate::rule::testing::check_decisions;

    fn describe(effect: &Effect<Bucket, Rows>) -> String {
        let mut text = effect.target.prefix("archive/");
        for row in effect.statement.iter() {
            let _ = write!(
                text,
                "\nrow {} {} {}",
                row.event_id(),
                row.event_name,
                row.deleted_by.as_str()
            );
            let _ = write!(
                text,
                " at {}, expired {:?} from {:?}",
                row.deleted_at_ms, row.expires_at_ms, row.ttl_raw
            );
            for (place, column) in row.schema.columns().enumerate() {
                let value = row.value(place);
                let _ = write!(text, "\n{} {}: {value:?}", column.name, column.column_type);
            }
            let _ = write!(text, "\nitem {}\ncoercions {:?}", row.item(), row.coercions);
        }
        text
    }

    #[test]
    fn decisions() {
        let rule = Archive {
            columns: parse_columns("info.rating:decimal(3,1),title:string,info:json")
                .unwrap()
                .into(),
            ttl_attribute: Some("expires".to_owned()),
            ..Archive::default()
        };
        let cases = include_str!("../../testdata/archive.txt");
        check_decisions(&rule, &Found::default(), describe, cases);
    }

    /// Goal: neither a column nor `_item` contains a mark, and all of the user's attributes are kept.
    #[test]
    fn marks_of_an_item_are_no_part_of_its_row() {
        use crate::marks::tests::{OWN, marked};

        let rule = Archive { discover: true, ..Archive::default() };
        let line = include_str!("../../testdata/archive.txt").lines().nth(1).unwrap();
        let row = |item: model::Item| {
            let tree = json::parse(line.as_bytes()).unwrap();
            let mut record = model::stream_record::decode_lambda_record(&tree).unwrap();
            record.record.keys.clone_from(&item);
            record.record.keys.retain(|name, _| name == "id");
            record.record.old_image = Some(item);
            let effect = rule.decide(&record, &Found::default()).unwrap().pop().unwrap();
            effect.statement.iter().next().unwrap().clone()
        };
        let own = row(json::item_from_str(OWN).unwrap());
        assert_eq!(own.item(), OWN);
        assert_eq!(own.schema.columns().count(), 6);
        assert_eq!(row(marked(OWN)), own);
    }

    #[test]
    fn other_deletes_are_kept_if_configured() {
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
        // The time of the record is second 1795228199.
        for (deletes, ttl, expires, expected) in [
            (Deletes::TimeToLive, true, "1795228100", Some("ttl")),
            (Deletes::TimeToLive, false, "1795228100", None),
            (Deletes::Expired, true, "1795228100", Some("ttl")),
            (Deletes::Expired, false, "1795228198", Some("inferred")),
            (Deletes::Expired, false, "1795228198.75", Some("inferred")),
            (Deletes::Expired, false, "1795228199", None),
            (Deletes::All, false, "1795228198", Some("inferred")),
            (Deletes::All, false, "1795228199", Some("user")),
            // The first expiry is just within TTL's limit of five years. TTL ignores the other
            // expiries.
            (Deletes::Expired, false, "1637548199", Some("inferred")),
            (Deletes::Expired, false, "1637548198", None),
            (Deletes::Expired, false, "0", None),
            (Deletes::All, false, "-1795228100", Some("user")),
        ] {
            let ttl_attribute = Some("expires".to_owned());
            let rule = Archive { ttl_attribute, deletes, ..Archive::default() };
            let record = record(ttl, expires);
            let found = rule.decide(&record, &Found::default()).unwrap();
            let kept = found
                .first()
                .map(|effect| effect.statement.iter().next().unwrap().deleted_by.as_str());
            assert_eq!(kept, expected, "{deletes:?} {ttl} {expires}");
        }
    }

    /// Goal: only items that this archive already contains produce no row.
    #[test]
    fn an_unchanged_restored_item_gives_no_row_when_it_expires() {
        let text = include_str!("../../testdata/archive.txt").lines().nth(1).unwrap();
        let plain = model::stream_record::lambda_record_from_str(text).unwrap();
        let table = plain.event_source_arn.parse::<StreamArn>().unwrap().table.table;
        let (own, other) = (Some("bucket/archive/"), Some("other/archive/"));
        for (writes_to, archive, from, without, is_changed, rows) in [
            (own, own, &*table, None, false, 0),
            (own, own, &*table, Some("table"), false, 0),
            (own, other, &*table, None, false, 1),
            (other, own, &*table, None, false, 1),
            (own, None, &*table, None, false, 1),
            // These items have marks of an earlier release, which do not name the archive.
            (own, None, &*table, Some("table"), false, 1),
            (None, own, &*table, None, false, 1),
            (None, None, &*table, None, false, 1),
            (own, own, "another", None, false, 1),
            (own, own, &*table, None, true, 1),
            (own, own, &*table, Some("fingerprint"), false, 1),
        ] {
            // A user's delete before the expiry always produces a row. The time of the record is
            // second 1795228199.
            for (deletes, by_ttl, expires, rows) in [
                (Deletes::TimeToLive, true, "1795228100", rows),
                (Deletes::All, true, "1795228100", rows),
                (Deletes::All, false, "1795228100", rows),
                (Deletes::All, false, "1795228199", 1),
            ] {
                let rule = Archive {
                    archive: writes_to.map(str::to_owned),
                    ttl_attribute: Some("expires".to_owned()),
                    deletes,
                    ..Archive::default()
                };
                let mut record = plain.clone();
                if !by_ttl {
                    record.record.user_identity = None;
                }
                let image = record.record.old_image.as_mut().unwrap();
                let expiry = model::AttributeValue::N(expires.parse().unwrap());
                image.insert("expires".to_owned(), expiry);
                let image = record.record.old_image.as_mut().unwrap();
                let origin = restored::Origin { archive, table: from, event_id: "e", stamp: "s" };
                let mut mark = restored::mark(image, origin, Some("expires"));
                if let (Some(part), model::AttributeValue::M(mark)) = (without, &mut mark) {
                    mark.remove(part);
                }
                if is_changed {
                    image.insert("new".to_owned(), model::AttributeValue::Null);
                }
                image.insert(restored::RESTORED.to_owned(), mark);
                let decided = rule.decide(&record, &Found::default()).unwrap();
                let case = format!("{writes_to:?} {archive:?} {from} {without:?} {is_changed}");
                assert_eq!(decided.len(), rows, "{case} {deletes:?} {by_ttl} {expires}");
            }
        }
    }

    #[test]
    fn a_tombstone_gives_no_row_but_a_later_item_at_its_key_does() {
        let text = include_str!("../../testdata/archive.txt").lines().nth(1).unwrap();
        let plain = model::stream_record::lambda_record_from_str(text).unwrap();
        let rule = Archive { deletes: Deletes::All, ..Archive::default() };
        let gone = r#"{"_weir":{"M":{"at":{"S":"x"},"gone":{"BOOL":true}}}}"#;
        let live = r#"{"_weir":{"M":{"at":{"S":"x"}}}}"#;
        for (mark, more, rows) in [
            (gone, "{}", 0),
            (gone, r#"{"_weir_touch":{"S":"x"}}"#, 0),
            (gone, r#"{"n":{"N":"1"}}"#, 1),
            (live, "{}", 1),
        ] {
            let mut record = plain.clone();
            let mut image = record.record.keys.clone();
            image.extend(json::item_from_str(mark).unwrap());
            image.extend(json::item_from_str(more).unwrap());
            record.record.old_image = Some(image);
            for user in [None, record.record.user_identity.clone()] {
                record.record.user_identity = user;
                let decided = rule.decide(&record, &Found::default()).unwrap();
                assert_eq!(decided.len(), rows, "{mark} {more}");
            }
        }
    }

    /// Goal: an item with another key is another item, so the archive has no row for it.
    #[test]
    fn an_item_restored_under_another_key_gives_a_row() {
        let text = include_str!("../../testdata/archive.txt").lines().nth(1).unwrap();
        let plain = model::stream_record::lambda_record_from_str(text).unwrap();
        let rule = Archive { archive: Some("b/archive/".to_owned()), ..Archive::default() };
        for (ttl_attribute, rows) in [(Some("year"), 1), (Some("expires"), 0)] {
            let mut record = plain.clone();
            let image = record.record.old_image.as_mut().unwrap();
            let archive = rule.archive.as_deref();
            let origin = restored::Origin { archive, table: "movies", event_id: "e", stamp: "s" };
            let mark = restored::mark(image, origin, ttl_attribute);
            let renewed = ttl_attribute.unwrap().to_owned();
            image.insert(renewed, model::AttributeValue::N("1795228111".parse().unwrap()));
            image.insert(restored::RESTORED.to_owned(), mark);
            let decided = rule.decide(&record, &Found::default()).unwrap();
            assert_eq!(decided.len(), rows, "{ttl_attribute:?}");
        }
    }

    #[test]
    fn an_expiry_outside_of_the_calendar_is_null() {
        for (seconds, expected) in [
            (1_795_228_100, Some(1_795_228_100_000)),
            (0, Some(0)),
            (-62_135_596_800, Some(-62_135_596_800_000)),
            (-62_135_596_801, None),
            (253_402_300_799, Some(253_402_300_799_000)),
            (253_402_300_800, None),
            // These are times of 2026 in milliseconds and microseconds, which are read as seconds.
            (1_795_228_100_000, None),
            (1_795_228_100_000_000, None),
            (i64::MAX, None),
            (i64::MIN, None),
        ] {
            assert_eq!(expires_at_ms(seconds), expected, "{seconds}");
        }
    }
}
