//! Archive rows: what is kept of one deleted item, as plain typed values.
//!
//! A row says nothing that its record does not say: no time of archiving, no file name. So the
//! same record always gives the same row.

use std::ops::Range;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ColumnValue<'r> {
    /// No such attribute, or one that does not fit the column.
    Null,
    /// Of a `string` or `json` column.
    Text(&'r str),
    /// Of a `bigint` column.
    Integer(i64),
    /// Of a `decimal` column: the value times 10^scale.
    Decimal(i128),
    /// Of a `boolean` column.
    Boolean(bool),
    /// Of a `binary` column.
    Binary(&'r [u8]),
}

/// A [`ColumnValue`] as a row keeps it, in sixteen bytes: a row has one for each column.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kept {
    Null,
    Text(Span),
    Integer(i64),
    Decimal(i64),
    /// One beyond 64 bits.
    Wide(Box<i128>),
    Boolean(bool),
    /// In the row's bytes.
    Binary(Span),
}

/// A part of a row's texts or bytes.
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

/// One deleted item. Rows order by sequence number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// What was kept of the record and its item. First, as it begins with the sequence number.
    pub(super) content: Content,
    /// `REMOVE`.
    pub event_name: &'static str,
    /// Who deleted the item.
    pub deleted_by: DeletedBy,
    /// When, in milliseconds since 1970, with the record's resolution of one second.
    pub deleted_at_ms: i64,
    /// When the item expired, in milliseconds since 1970.
    pub expires_at_ms: Option<i64>,
    /// The TTL attribute as it stood in the item, if it was an integer that fits.
    pub ttl_raw: Option<i64>,
    /// The item's table.
    pub table: Arc<str>,
    /// The stream that told of the delete.
    pub stream_arn: Arc<str>,
    /// The typed columns.
    pub schema: Arc<Schema>,
    /// Columns whose attribute did not fit, each with what was found; in the schema's order.
    pub coercions: Vec<String>,
}

/// A record's names and its item as one text, with the item's columns. Most texts of columns stand
/// in the item's.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Content {
    /// The sequence number, the event id, the item, and behind it what columns hold that does not
    /// stand there as it is.
    pub(super) texts: Box<str>,
    pub(super) sequence_number: Span,
    pub(super) event_id: Span,
    pub(super) item: Span,
    /// What binary columns hold.
    pub(super) bytes: Box<[u8]>,
    /// In the schema's order.
    pub(super) values: Vec<Kept>,
}

impl Row {
    /// The record's place in its stream, 40 digits.
    #[must_use]
    pub fn sequence_number(&self) -> &str {
        self.content.text(self.content.sequence_number)
    }

    /// The record's event id; identifies the row in its bucket.
    #[must_use]
    pub fn event_id(&self) -> &str {
        self.content.text(self.content.event_id)
    }

    /// The whole item as DynamoDB JSON, lossless.
    #[must_use]
    pub fn item(&self) -> &str {
        self.content.text(self.content.item)
    }

    /// The value of a column, by its place in the schema.
    #[must_use]
    pub fn value(&self, column: usize) -> ColumnValue<'_> {
        self.content.value(column)
    }
}

impl Content {
    pub(super) fn value(&self, column: usize) -> ColumnValue<'_> {
        match self.values.get(column) {
            None | Some(Kept::Null) => ColumnValue::Null,
            Some(Kept::Text(span)) => ColumnValue::Text(self.text(*span)),
            Some(Kept::Integer(integer)) => ColumnValue::Integer(*integer),
            Some(Kept::Decimal(unscaled)) => ColumnValue::Decimal((*unscaled).into()),
            Some(Kept::Wide(unscaled)) => ColumnValue::Decimal(**unscaled),
            Some(Kept::Boolean(flag)) => ColumnValue::Boolean(*flag),
            Some(Kept::Binary(span)) => {
                ColumnValue::Binary(self.bytes.get(span.range()).unwrap_or_default())
            }
        }
    }

    pub(super) fn text(&self, span: Span) -> &str {
        self.texts.get(span.range()).unwrap_or_default()
    }
}

/// A set of rows, each event once, by their places in the stream.
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
    /// Two rows of one event are equal; if they ever should not be, the greater one stays
    /// everywhere alike. Records come in the order of their stream, so most rows go to the end.
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

    /// The event ids.
    pub fn event_ids(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(Row::event_id)
    }

    /// All rows, by their places in the stream.
    pub fn iter(&self) -> impl Iterator<Item = &Row> {
        self.0.iter()
    }

    /// Forgets the rows that `is_kept` says no to.
    pub fn retain(&mut self, is_kept: impl FnMut(&Row) -> bool) {
        self.0.retain(is_kept);
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
