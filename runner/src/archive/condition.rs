//! `--where`: one comparison of a column with a value, typed by the column.
//!
//! No SQL, no functions, no `or`: several conditions hold together. NULL compares with nothing.

use std::cmp::Ordering;

use model::Number;

use super::cell::{Cell, CellType, Row, parse_time};
use super::schema::Union;

/// Longer spellings first, so that `<=` is not read as `<`.
const COMPARATORS: [(&str, Comparator); 6] = [
    ("!=", Comparator::NotEqual),
    ("<=", Comparator::AtMost),
    (">=", Comparator::AtLeast),
    ("=", Comparator::Equal),
    ("<", Comparator::Below),
    (">", Comparator::Above),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparator {
    Equal,
    NotEqual,
    Below,
    AtMost,
    Above,
    AtLeast,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Literal {
    Text(String),
    Number(Number),
    Boolean(bool),
    Time(i64),
}

/// One comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    column: String,
    comparator: Comparator,
    literal: Literal,
}

impl Condition {
    /// Reads `COLUMN OPERATOR VALUE`; spaces around the operator and quotes around the value may
    /// be left out.
    ///
    /// # Errors
    /// Text of another form, an unknown column, or a value that is not of the column's type.
    pub(super) fn parse(text: &str, union: &Union) -> Result<Self, String> {
        let form = || {
            format!(
                "--where `{text}`: write COLUMN OPERATOR VALUE, such as `year >= 2000`; operators are = != < <= > >="
            )
        };
        let at = text.find(['=', '!', '<', '>']).ok_or_else(form)?;
        let (column, rest) = text.split_at(at);
        let found = COMPARATORS
            .iter()
            .find_map(|(spelling, comparator)| Some((*comparator, rest.strip_prefix(spelling)?)));
        let (comparator, value) = found.ok_or_else(form)?;
        let (column, value) = (column.trim(), unquoted(value.trim()));
        let known = union.column(column).ok_or_else(|| {
            format!(
                "--where `{text}`: there is no column `{column}`; columns are {}",
                union.names()
            )
        })?;
        let cell_type = known
            .only_type()
            .ok_or_else(|| format!("--where `{text}`: {}", known.conflict().unwrap_or_default()))?;
        let not_of_type = |reason: String| format!("--where `{text}`: {reason}");
        let literal = match cell_type {
            CellType::Text => Literal::Text(value.to_owned()),
            CellType::Int | CellType::Bigint | CellType::Decimal { .. } => {
                Literal::Number(value.parse().map_err(|_| {
                    not_of_type(format!("`{column}` is {cell_type}, and `{value}` is not a number"))
                })?)
            }
            CellType::Boolean => {
                Literal::Boolean(value.parse().map_err(|_| {
                    not_of_type(format!("`{column}` is boolean: write true or false"))
                })?)
            }
            CellType::Timestamp => Literal::Time(parse_time(value).map_err(not_of_type)?),
            CellType::Binary | CellType::Texts => {
                return Err(not_of_type(format!(
                    "`{column}` is {cell_type}, which is not compared"
                )));
            }
        };
        Ok(Self { column: column.to_owned(), comparator, literal })
    }

    /// Whether a row meets the condition.
    pub(super) fn holds(&self, row: &Row) -> bool {
        let cell = row.get(&self.column);
        let ordering = match (&self.literal, cell) {
            (Literal::Text(literal), Cell::Text(text)) => Some(text.as_str().cmp(literal)),
            (Literal::Boolean(literal), Cell::Boolean(flag)) => Some(flag.cmp(literal)),
            (Literal::Time(literal), Cell::Time(millis)) => Some(millis.cmp(literal)),
            (Literal::Number(literal), number) => number
                .number_text()
                .and_then(|text| text.parse::<Number>().ok())
                .map(|number| number.cmp(literal)),
            _ => None,
        };
        ordering.is_some_and(|ordering| match self.comparator {
            Comparator::Equal => ordering == Ordering::Equal,
            Comparator::NotEqual => ordering != Ordering::Equal,
            Comparator::Below => ordering == Ordering::Less,
            Comparator::AtMost => ordering != Ordering::Greater,
            Comparator::Above => ordering == Ordering::Greater,
            Comparator::AtLeast => ordering != Ordering::Less,
        })
    }
}

/// The value without the single or double quotes around it.
fn unquoted(value: &str) -> &str {
    ['\'', '"']
        .iter()
        .find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote))
        .unwrap_or(value)
}
