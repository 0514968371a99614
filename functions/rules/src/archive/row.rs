//! Archive rows: what is kept of one deleted item, as plain typed values.
//!
//! A row says nothing that its record does not say: no time of archiving, no file name. So the
//! same record always gives the same row.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::column::Schema;
use crate::effect::Join;

/// Version of the columns and their meaning.
pub const SCHEMA_VERSION: i32 = 1;

/// Who deleted the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeletedBy {
    /// TTL, says the record's `userIdentity`.
    TimeToLive,
    /// TTL probably: the item had expired, but the record does not say who deleted it.
    Inferred,
    /// Somebody else.
    User,
}

impl DeletedBy {
    /// The text in the column `_deleted_by`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TimeToLive => "ttl",
            Self::Inferred => "inferred",
            Self::User => "user",
        }
    }
}

/// The value of one typed column.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ColumnValue {
    /// No such attribute, or one that does not fit the column.
    Null,
    /// Of a `string` or `json` column.
    Text(String),
    /// Of a `bigint` column.
    Integer(i64),
    /// Of a `decimal` column: the value times 10^scale.
    Decimal(i128),
    /// Of a `boolean` column.
    Boolean(bool),
    /// Of a `binary` column.
    Binary(Vec<u8>),
}

/// One deleted item. Rows order by sequence number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The record's place in its stream, 40 digits.
    pub sequence_number: String,
    /// The record's event id; identifies the row in its bucket.
    pub event_id: String,
    /// `REMOVE`.
    pub event_name: &'static str,
    /// Who deleted the item.
    pub deleted_by: DeletedBy,
    /// When, in milliseconds since 1970, with the record's resolution of one second.
    pub deleted_at_ms: i64,
    /// When the item expired, in milliseconds since 1970.
    pub expires_at_ms: Option<i64>,
    /// The TTL attribute as it stood in the item, if it was an integer.
    pub ttl_raw: Option<i64>,
    /// The item's table.
    pub table: Arc<str>,
    /// The stream that told of the delete.
    pub stream_arn: Arc<str>,
    /// The whole item as DynamoDB JSON, lossless.
    pub item: String,
    /// The typed columns.
    pub schema: Arc<Schema>,
    /// Their values, in the schema's order.
    pub values: Vec<ColumnValue>,
    /// Columns whose attribute did not fit, each with what was found; in the schema's order.
    pub coercions: Vec<String>,
}

/// A set of rows, each event id once. Rows are large, and most sets have one: hence the boxes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows(BTreeMap<String, Box<Row>>);

impl<const N: usize> From<[Row; N]> for Rows {
    fn from(rows: [Row; N]) -> Self {
        let mut set = Self::default();
        for row in rows {
            set.insert(Box::new(row));
        }
        set
    }
}

impl Join for Rows {
    fn join(&mut self, other: Self) {
        for row in other.0.into_values() {
            self.insert(row);
        }
    }
}

impl Rows {
    /// Two rows of one event are equal; if they ever should not be, the greater one stays
    /// everywhere alike.
    fn insert(&mut self, row: Box<Row>) {
        match self.0.get_mut(&row.event_id) {
            Some(known) if *known >= row => {}
            Some(known) => *known = row,
            None => {
                self.0.insert(row.event_id.clone(), row);
            }
        }
    }

    /// The event ids.
    pub fn event_ids(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// All rows, by event id.
    pub fn iter(&self) -> impl Iterator<Item = &Row> {
        self.0.values().map(Box::as_ref)
    }

    /// Takes the rows out, by event id.
    pub fn into_rows(self) -> impl Iterator<Item = Row> {
        self.0.into_values().map(|row| *row)
    }

    /// Forgets the row of an event, if it is here.
    pub fn remove(&mut self, event_id: &str) {
        self.0.remove(event_id);
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
