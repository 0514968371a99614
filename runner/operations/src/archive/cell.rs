//! One value of an archive row: read from an Arrow column, written as JSON, compared exactly.
//!
//! Numbers keep all digits, because no number is converted to a floating-point value.

use std::fmt::{self, Write as _};

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use model::Item;
use model::json::{item_from_str, write_string};

use client::failure::{Result, fatal};

/// The types of archive columns, named as in Athena's SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CellType {
    /// UTF-8 text.
    Text,
    /// 32-bit integer.
    Int,
    /// 64-bit integer.
    Bigint,
    /// Exact decimal number.
    Decimal {
        /// Digits, 1 to 38.
        precision: u8,
        /// Digits after the point.
        scale: i8,
    },
    /// True or false.
    Boolean,
    /// Bytes.
    Binary,
    /// Milliseconds since 1970, UTC.
    Timestamp,
    /// List of strings.
    Texts,
}

impl CellType {
    /// Returns the type of an Arrow column; `None` for a type that archives do not use.
    pub(super) fn of(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Utf8 => Self::Text,
            DataType::Int32 => Self::Int,
            DataType::Int64 => Self::Bigint,
            DataType::Decimal128(precision, scale) => {
                Self::Decimal { precision: *precision, scale: *scale }
            }
            DataType::Boolean => Self::Boolean,
            DataType::Binary => Self::Binary,
            DataType::Timestamp(TimeUnit::Millisecond, _) => Self::Timestamp,
            DataType::List(field) if *field.data_type() == DataType::Utf8 => Self::Texts,
            _ => return None,
        })
    }
}

impl fmt::Display for CellType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("string"),
            Self::Int => f.write_str("int"),
            Self::Bigint => f.write_str("bigint"),
            Self::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            Self::Boolean => f.write_str("boolean"),
            Self::Binary => f.write_str("binary"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Texts => f.write_str("array<string>"),
        }
    }
}

/// One value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// NULL.
    Null,
    /// The value of a text column.
    Text(String),
    /// The value of an integer column.
    Integer(i64),
    /// The value of a decimal column: `unscaled` divided by 10^`scale`.
    Decimal {
        /// The digits.
        unscaled: i128,
        /// Number of digits after the point.
        scale: i8,
    },
    /// The value of a boolean column.
    Boolean(bool),
    /// The value of a binary column.
    Binary(Vec<u8>),
    /// Milliseconds since 1970.
    Time(i64),
    /// A list of strings.
    Texts(Vec<String>),
}

/// A row: pairs of column name and value, in the order of the part (an object or file of the
/// archive).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row(Vec<(String, Cell)>);

/// Returns the rows of a batch.
///
/// # Errors
/// When a column has a type that archives do not use.
pub(super) fn rows_of(batch: &RecordBatch) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> =
        (0..batch.num_rows()).map(|_| Row(Vec::with_capacity(batch.num_columns()))).collect();
    for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
        let cell_type = CellType::of(field.data_type()).ok_or_else(|| {
            fatal!(
                "column `{}` has the type {}, which Weir does not write into archives",
                field.name(),
                field.data_type()
            )
        })?;
        for (position, row) in rows.iter_mut().enumerate() {
            row.0.push((field.name().clone(), cell_of(cell_type, array.as_ref(), position)));
        }
    }
    Ok(rows)
}

/// Returns the value at the index `at`, which must be below the column's length.
fn cell_of(cell_type: CellType, array: &dyn Array, at: usize) -> Cell {
    if array.is_null(at) {
        return Cell::Null;
    }
    match cell_type {
        CellType::Text => Cell::Text(array.as_string::<i32>().value(at).to_owned()),
        CellType::Int => Cell::Integer(array.as_primitive::<Int32Type>().value(at).into()),
        CellType::Bigint => Cell::Integer(array.as_primitive::<Int64Type>().value(at)),
        CellType::Decimal { scale, .. } => {
            Cell::Decimal { unscaled: array.as_primitive::<Decimal128Type>().value(at), scale }
        }
        CellType::Boolean => Cell::Boolean(array.as_boolean().value(at)),
        CellType::Binary => Cell::Binary(array.as_binary::<i32>().value(at).to_vec()),
        CellType::Timestamp => {
            Cell::Time(array.as_primitive::<TimestampMillisecondType>().value(at))
        }
        CellType::Texts => {
            let texts = array.as_list::<i32>().value(at);
            Cell::Texts(texts.as_string::<i32>().iter().flatten().map(str::to_owned).collect())
        }
    }
}

/// Formats a time as `2026-11-21T02:29:59Z`; a time outside the calendar's range as milliseconds.
pub(super) fn time_text(millis: i64) -> String {
    Timestamp::from_millisecond(millis).map_or_else(|_| millis.to_string(), |time| time.to_string())
}

/// Parses a time: RFC 3339, a day (its first moment in UTC), or seconds since 1970. Returns
/// milliseconds since 1970.
///
/// # Errors
/// When the text has none of these forms.
pub(crate) fn parse_time(text: &str) -> Result<i64> {
    if let Ok(seconds) = text.parse::<i64>() {
        return seconds.checked_mul(1000).ok_or_else(|| fatal!("`{text}` is not a time"));
    }
    let whole = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
    whole.parse::<Timestamp>().map(Timestamp::as_millisecond).map_err(|_| {
        fatal!(
            "`{text}` is not a time: write 2026-11-21T02:30:00Z, 2026-11-21, or seconds since 1970"
        )
    })
}

impl Cell {
    /// Returns the exact decimal text of a number; `None` for other values.
    pub(super) fn number_text(&self) -> Option<String> {
        match self {
            Self::Integer(integer) => Some(integer.to_string()),
            Self::Decimal { unscaled, scale } => Some(decimal_text(*unscaled, *scale)),
            _ => None,
        }
    }

    /// Appends the value as JSON: numbers with all digits, bytes as base64, times as RFC 3339.
    pub(super) fn write_json(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Text(text) => write_string(out, text),
            Self::Integer(_) | Self::Decimal { .. } => {
                out.push_str(&self.number_text().unwrap_or_default());
            }
            Self::Boolean(flag) => out.push_str(if *flag { "true" } else { "false" }),
            Self::Binary(bytes) => write_string(out, &STANDARD.encode(bytes)),
            Self::Time(millis) => write_string(out, &time_text(*millis)),
            Self::Texts(texts) => {
                out.push('[');
                for (position, text) in texts.iter().enumerate() {
                    if position > 0 {
                        out.push(',');
                    }
                    write_string(out, text);
                }
                out.push(']');
            }
        }
    }
}

fn decimal_text(unscaled: i128, scale: i8) -> String {
    let Ok(scale) = usize::try_from(scale) else {
        return format!("{unscaled}{}", "0".repeat(usize::from(scale.unsigned_abs())));
    };
    let sign = if unscaled < 0 { "-" } else { "" };
    let digits = format!("{:0width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{whole}{point}{fraction}")
}

impl Row {
    /// Returns the value of a column; NULL if the part lacks the column.
    pub(super) fn get(&self, column: &str) -> &Cell {
        self.0.iter().find(|(name, _)| name == column).map_or(&Cell::Null, |(_, cell)| cell)
    }

    /// Returns the text in a column; an empty string if the column has no text.
    pub(super) fn text(&self, column: &str) -> &str {
        match self.get(column) {
            Cell::Text(text) => text,
            _ => "",
        }
    }

    /// Returns the time of the delete in milliseconds since 1970.
    pub(super) fn deleted_at(&self) -> i64 {
        match self.get("_deleted_at") {
            Cell::Time(millis) => *millis,
            _ => 0,
        }
    }

    /// Returns the item of the row.
    ///
    /// # Errors
    /// When `_item` is invalid.
    pub(super) fn item(&self) -> Result<Item> {
        item_from_str(self.text("_item")).map_err(|error| fatal!("`_item`: {error}"))
    }

    /// Returns the row as one line of JSON: its columns, and `_item` as an object in DynamoDB JSON.
    pub(super) fn json(&self) -> String {
        let mut out = String::from("{");
        for (position, (name, cell)) in self.0.iter().enumerate() {
            if position > 0 {
                out.push(',');
            }
            write_string(&mut out, name);
            out.push(':');
            // `_item` is JSON already, so it is copied without parsing.
            match cell {
                Cell::Text(item) if name == "_item" => {
                    let _ = write!(out, "{item}");
                }
                _ => cell.write_json(&mut out),
            }
        }
        out.push('}');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        let nines: i128 = "9".repeat(38).parse().unwrap();
        for (unscaled, scale, expected) in [
            (75, 1, "7.5".to_owned()),
            (-5, 2, "-0.05".to_owned()),
            (70, 1, "7".to_owned()),
            (0, 10, "0".to_owned()),
            (7, -2, "700".to_owned()),
            (nines, 0, "9".repeat(38)),
            (-nines, 38, format!("-0.{}", "9".repeat(38))),
        ] {
            assert_eq!(decimal_text(unscaled, scale), expected);
        }
    }

    #[test]
    fn times_are_read_in_three_forms() {
        for (text, expected) in [
            ("1970-01-02", Some(86_400_000)),
            ("1970-01-01T00:00:01.5Z", Some(1_500)),
            ("1970-01-01T01:00:00+01:00", Some(0)),
            ("12", Some(12_000)),
            ("9223372036854775807", None),
            ("yesterday", None),
            ("1970-13-01", None),
        ] {
            assert_eq!(parse_time(text).ok(), expected, "{text}");
        }
        assert_eq!(time_text(86_400_000), "1970-01-02T00:00:00Z");
        assert_eq!(time_text(i64::MAX), i64::MAX.to_string());
    }
}
