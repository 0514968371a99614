//! Archive rows: the archived data of one deleted item, as plain typed values.
//!
//! A row depends only on its record: it contains no time of archiving and no file name. The same
//! record therefore always produces the same row.

use std::ops::Range;
use std::sync::Arc;

use super::column::Schema;
use crate::effect::Join;

/// The version of the row format: the columns and their meaning.
pub const SCHEMA_VERSION: i32 = 1;

/// The author of a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeletedBy {
    /// TTL, according to the record's `userIdentity`.
    TimeToLive,
    /// Probably TTL: the item had expired, but the record does not name the author of the delete.
    Inferred,
    /// A client, not TTL.
    User,
}

impl DeletedBy {
    /// Returns the value of the column `_deleted_by`.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ColumnValue<'r> {
    /// The attribute is absent or does not fit the column.
    Null,
    /// The value of a `string` or `json` column.
    Text(&'r str),
    /// The value of a `bigint` column.
    Integer(i64),
    /// The value of a `decimal` column, times 10^scale.
    Decimal(i128),
    /// The value of a `boolean` column.
    Boolean(bool),
    /// The value of a `binary` column.
    Binary(&'r [u8]),
}

/// A [`ColumnValue`] in the compact form of a row: sixteen bytes, because a row has one for each column.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CompactValue {
    Null,
    Text(Span),
    Integer(i64),
    Decimal(i64),
    /// A decimal beyond 64 bits.
    Wide(Box<i128>),
    Boolean(bool),
    /// A binary value: a range of the row's `bytes`.
    Binary(Span),
}

/// A range of a row's `texts` or `bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl Span {
    fn range(self) -> Range<usize> {
        let place = |at: u32| usize::try_from(at).unwrap_or(usize::MAX);
        place(self.start)..place(self.end)
    }
}

/// One deleted item. Rows are ordered by sequence number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The strings and column values of the record and its item. This is the first field because
    /// the derived order compares it first, and it begins with the sequence number.
    pub(super) content: Content,
    /// The kind of the record: always `REMOVE`.
    pub event_name: &'static str,
    /// The author of the delete.
    pub deleted_by: DeletedBy,
    /// The time of the delete in milliseconds since 1970, with the record's resolution of one second.
    pub deleted_at_ms: i64,
    /// The time of expiry in milliseconds since 1970.
    pub expires_at_ms: Option<i64>,
    /// The number in the item's TTL attribute, if it is an integer that fits.
    pub ttl_raw: Option<i64>,
    /// The table of the item.
    pub table: Arc<str>,
    /// The stream of the record.
    pub stream_arn: Arc<str>,
    /// The typed columns.
    pub schema: Arc<Schema>,
    /// The columns whose attribute did not fit, each with the found type, in the order of the schema.
    pub coercions: Vec<String>,
}

/// The strings of a record and its item, joined to one string, and the item's column values. Most
/// column values are substrings of the item's JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Content {
    /// The sequence number, the event id, the item, and the column values that do not occur
    /// literally in the item.
    pub(super) texts: Box<str>,
    pub(super) sequence_number: Span,
    pub(super) event_id: Span,
    pub(super) item: Span,
    /// The values of binary columns.
    pub(super) bytes: Box<[u8]>,
    /// The column values, in the order of the schema.
    pub(super) values: Vec<CompactValue>,
}

impl Row {
    /// Returns the sequence number of the record in 40 digits.
    #[must_use]
    pub fn sequence_number(&self) -> &str {
        self.content.text(self.content.sequence_number)
    }

    /// Returns the record's event id, which identifies the row in its bucket.
    #[must_use]
    pub fn event_id(&self) -> &str {
        self.content.text(self.content.event_id)
    }

    /// Returns the complete item as lossless DynamoDB JSON.
    #[must_use]
    pub fn item(&self) -> &str {
        self.content.text(self.content.item)
    }

    /// Returns the value of a column. `column` is its position in the schema.
    #[must_use]
    pub fn value(&self, column: usize) -> ColumnValue<'_> {
        self.content.value(column)
    }
}

impl Content {
    pub(super) fn value(&self, column: usize) -> ColumnValue<'_> {
        match self.values.get(column) {
            None | Some(CompactValue::Null) => ColumnValue::Null,
            Some(CompactValue::Text(span)) => ColumnValue::Text(self.text(*span)),
            Some(CompactValue::Integer(integer)) => ColumnValue::Integer(*integer),
            Some(CompactValue::Decimal(unscaled)) => ColumnValue::Decimal((*unscaled).into()),
            Some(CompactValue::Wide(unscaled)) => ColumnValue::Decimal(**unscaled),
            Some(CompactValue::Boolean(flag)) => ColumnValue::Boolean(*flag),
            Some(CompactValue::Binary(span)) => {
                ColumnValue::Binary(self.bytes.get(span.range()).unwrap_or_default())
            }
        }
    }

    pub(super) fn text(&self, span: Span) -> &str {
        self.texts.get(span.range()).unwrap_or_default()
    }
}

/// A set of rows with one row for each event, in the order of the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows(Vec<Row>);

impl<const N: usize> From<[Row; N]> for Rows {
    fn from(rows: [Row; N]) -> Self {
        let mut set = Self(Vec::with_capacity(N));
        rows.into_iter().for_each(|row| set.insert(row));
        set
    }
}

impl Join for Rows {
    fn join(&mut self, other: Self) {
        for row in other.0 {
            self.insert(row);
        }
    }
}

impl Rows {
    /// Adds a row. Two rows of one event should be equal. If they differ, the greater row is kept,
    /// so that the result is deterministic. Records arrive in the order of their stream, so most
    /// rows are appended.
    fn insert(&mut self, row: Row) {
        fn place(row: &Row) -> (&str, &str) {
            (row.sequence_number(), row.event_id())
        }
        if self.0.last().is_none_or(|last| place(last) < place(&row)) {
            self.0.push(row);
            return;
        }
        match self.0.binary_search_by(|known| place(known).cmp(&place(&row))) {
            Ok(at) => match self.0.get_mut(at) {
                Some(known) if *known < row => *known = row,
                _ => {}
            },
            Err(at) => self.0.insert(at, row),
        }
    }

    /// Returns the event ids.
    pub fn event_ids(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(Row::event_id)
    }

    /// Returns all rows in the order of the stream.
    pub fn iter(&self) -> impl Iterator<Item = &Row> {
        self.0.iter()
    }

    /// Removes the rows for which `is_kept` returns false.
    pub fn retain(&mut self, is_kept: impl FnMut(&Row) -> bool) {
        self.0.retain(is_kept);
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
