//! The archive: what TTL deletes becomes rows, each standing in the archive exactly once.
//!
//! Only a REMOVE record that carries TTL's `userIdentity` gives a row; what users delete gives
//! none. Whether an item had expired is never guessed here. Files and their format are not known
//! here; the place of a row in time is: its [`Bucket`].

mod bucket;
mod column;
mod plain_json;
mod row;

pub use bucket::{Bucket, PART_NUMBER_MAX, UtcMinute};
pub use column::{
    Column, ColumnType, ColumnsError, PATH_COLUMNS, Path, SYSTEM_COLUMNS, Schema, parse_columns,
};
pub use row::{ColumnValue, DeletedBy, Row, Rows, SCHEMA_VERSION};

use std::sync::Arc;

use model::stream_record::LambdaRecord;
use model::{AttributeValue, EventName, json};

use crate::effect::Effect;
use crate::rule::{Found, Needs, Refusal, Rule, stream_of};

/// The archive rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Archive {
    /// Attributes that get a typed column of their own, beside the key attributes.
    pub columns: Vec<Column>,
    /// The attribute that holds the time of expiry in seconds, if rows shall tell it.
    pub ttl_attribute: Option<String>,
}

impl Rule for Archive {
    fn needs(&self, _records: &[&LambdaRecord]) -> Needs {
        Needs::default()
    }

    fn decide(&self, record: &LambdaRecord, _found: &Found) -> Result<Vec<Effect>, Refusal> {
        if !record.record.is_time_to_live() {
            return Ok(Vec::new());
        }
        let (bucket, row) = self.row_of(record)?;
        Ok(vec![Effect::Rows { bucket, rows: Rows::from([row]) }])
    }
}

impl Archive {
    fn row_of(&self, record: &LambdaRecord) -> Result<(Bucket, Row), Refusal> {
        let stream = stream_of(record)?;
        let change = &record.record;
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
        let bucket = Bucket::new(&stream.table.table, &stream.label, minute)?;

        let schema = Schema::of(&change.keys, &self.columns);
        let mut coercions = Vec::new();
        let values = schema.columns().map(|column| column.value_in(item, &mut coercions)).collect();
        let ttl_raw = self
            .ttl_attribute
            .as_ref()
            .and_then(|name| item.get(name))
            .and_then(AttributeValue::as_number)
            .and_then(|number| number.to_i64());
        let row = Row {
            sequence_number: change.sequence_number.padded(),
            event_id: change.event_id.clone(),
            event_name: EventName::Remove.as_str(),
            deleted_by: DeletedBy::TimeToLive,
            deleted_at_ms: minute.millis_of_second(seconds),
            expires_at_ms: ttl_raw.and_then(|seconds| seconds.checked_mul(1000)),
            ttl_raw,
            table: stream.table.table,
            stream_arn: record.event_source_arn.clone(),
            item: json::item_to_string(item),
            schema: Arc::new(schema),
            values,
            coercions,
        };
        Ok((bucket, row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::testing::check_decisions;

    #[test]
    fn decisions() {
        let rule = Archive {
            columns: parse_columns("info.rating:decimal(3,1),title:string,info:json").unwrap(),
            ttl_attribute: Some("expires".to_owned()),
        };
        check_decisions(&rule, &Found::default(), include_str!("../../testdata/archive.txt"));
    }
}
