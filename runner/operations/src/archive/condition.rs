//! `--where`: one comparison of a column with a value of the column's type.
//!
//! The syntax is not SQL: it has no functions and no `or`; a row must meet all conditions.
//! NULL equals nothing. If a column is NULL because the value does not fit it, the value in `_item`
//! is compared. `dt`, the day in a part's name, is compared once per part.

use std::cmp::Ordering;

use model::{AttributeValue, Number, json};
use rules::archive::{TTL_RAW, misfit_of, ttl_misfits_of};

use super::cell::{Cell, CellType, Row, parse_time};
use super::is_day;
use super::schema::Union;
use super::source::{Part, Source};
use client::failure::{Context, Result, fatal};

/// The partition column of engine tables. It is the UTC day in the names of parts, and no part has
/// such a column.
pub(super) const DAY: &str = "dt";

/// The operators as written. Longer operators come first, so that `<=` is not parsed as `<`.
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
    /// A day, which is compared with the day of a part, not with the part's rows.
    Day(String),
}

/// A comparison as written, before its column's type is known.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Comparison {
    /// The comparison as written, for messages.
    text: String,
    /// The column's name.
    column: String,
    comparator: Comparator,
    value: String,
}

/// A comparison with a typed value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    column: String,
    /// The attribute's path, if the column contains an attribute of the table.
    path: Option<String>,
    comparator: Comparator,
    literal: Literal,
}

impl Comparison {
    /// Parses `COLUMN OPERATOR VALUE`. Spaces around the operator and quotes around the value are
    /// optional.
    ///
    /// # Errors
    /// When the text has another form, or a day is not valid.
    fn read(text: &str) -> Result<Self> {
        let form = || {
            fatal!(
                "--where `{text}`: write COLUMN OPERATOR VALUE, for example `year >= 2000`; operators are = != < <= > >="
            )
        };
        let at = text.find(['=', '!', '<', '>']).ok_or_else(form)?;
        let (column, rest) = text.split_at(at);
        let found = COMPARATORS
            .iter()
            .find_map(|(spelling, comparator)| Some((*comparator, rest.strip_prefix(spelling)?)));
        let (comparator, value) = found.ok_or_else(form)?;
        let (column, value) = (column.trim().to_owned(), unquoted(value.trim()).to_owned());
        if column == DAY && !is_day(&value) {
            return Err(fatal!(
                "--where `{text}`: `{value}` is not a day: write, for example, 2026-11-21"
            ));
        }
        Ok(Self { text: text.to_owned(), column, comparator, value })
    }

    /// Converts the value to the type of the column.
    ///
    /// # Errors
    /// When the column is unknown, or the value does not have its type.
    fn typed(&self, union: &Union) -> Result<Condition> {
        let Self { text, column, value, .. } = self;
        let of = |path, literal| Condition {
            column: column.clone(),
            path,
            comparator: self.comparator,
            literal,
        };
        if column == DAY {
            return Ok(of(None, Literal::Day(value.clone())));
        }
        let known = union.column(column).ok_or_else(|| {
            fatal!("--where `{text}`: unknown column `{column}`; {}", union.names_like(column))
        })?;
        let cell_type = known
            .only_type()
            .ok_or_else(|| fatal!("--where `{text}`: {}", known.conflict().unwrap_or_default()))?;
        let literal = self.literal(cell_type);
        let literal = literal.context(|| format!("--where `{text}`"))?;
        Ok(of(known.path.clone(), literal))
    }

    fn literal(&self, cell_type: CellType) -> Result<Literal> {
        let Self { column, value, .. } = self;
        Ok(match cell_type {
            CellType::Text => Literal::Text(value.clone()),
            CellType::Int | CellType::Bigint | CellType::Decimal { .. } => {
                Literal::Number(value.parse().map_err(|_| {
                    fatal!("`{column}` is {cell_type}, and `{value}` is not a number")
                })?)
            }
            CellType::Boolean => Literal::Boolean(
                value.parse().map_err(|_| fatal!("`{column}` is boolean: write true or false"))?,
            ),
            CellType::Timestamp => Literal::Time(parse_time(value)?),
            CellType::Binary | CellType::Texts => {
                return Err(fatal!("`{column}` is {cell_type}, which cannot be compared"));
            }
        })
    }
}

impl Condition {
    /// Returns true if the parts of a day may have matching rows.
    pub(super) fn takes_day(&self, date: &str) -> bool {
        match &self.literal {
            Literal::Day(day) => self.comparator.takes(date.cmp(day.as_str())),
            _ => true,
        }
    }

    /// Returns true if a row matches.
    ///
    /// # Errors
    /// When the comparison needs a row's `_item`, and `_item` is malformed.
    fn holds(&self, row: &Row) -> Result<bool> {
        let ordering = match (&self.literal, row.get(&self.column)) {
            // The day was already compared for the whole part.
            (Literal::Day(_), _) => return Ok(true),
            (_, Cell::Null) => return self.holds_in_item(row),
            (Literal::Text(literal), Cell::Text(text)) => Some(text.as_str().cmp(literal)),
            (Literal::Boolean(literal), Cell::Boolean(flag)) => Some(flag.cmp(literal)),
            (Literal::Time(literal), Cell::Time(millis)) => Some(millis.cmp(literal)),
            (Literal::Number(literal), number) => number
                .number_text()
                .and_then(|text| text.parse::<Number>().ok())
                .map(|number| number.cmp(literal)),
            _ => None,
        };
        Ok(ordering.is_some_and(|ordering| self.comparator.takes(ordering)))
    }

    /// Compares the item's original value, which does not fit the column, and returns true if it
    /// matches. A value of another type is unequal, and neither less nor greater, as in DynamoDB.
    fn holds_in_item(&self, row: &Row) -> Result<bool> {
        let Cell::Texts(coercions) = row.get("_coercions") else { return Ok(false) };
        // In most rows every value fits its column, so their items need not be parsed.
        if coercions.is_empty() || (self.path.is_none() && self.column != TTL_RAW) {
            return Ok(false);
        }
        let item = json::item_from_str(row.text("_item")).map_err(|error| {
            fatal!("cannot parse `_item` of event `{}`: {error}", row.text("_event_id"))
        })?;
        let Some(path) = &self.path else {
            let expires_at = match row.get("_expires_at") {
                Cell::Time(millis) => Some(*millis),
                _ => None,
            };
            let mut numbers = ttl_misfits_of(&item, expires_at, coercions).into_iter();
            return Ok(numbers.any(|number| self.takes(&AttributeValue::N(number))));
        };
        let value = misfit_of(&item, &self.column, path, coercions);
        Ok(value.is_some_and(|value| self.takes(value)))
    }

    fn takes(&self, value: &AttributeValue) -> bool {
        match (&self.literal, value) {
            (Literal::Number(literal), AttributeValue::N(number)) => {
                self.comparator.takes(number.cmp(literal))
            }
            _ => self.comparator == Comparator::NotEqual,
        }
    }
}

/// Parses conditions for the columns of all parts.
///
/// # Errors
/// When a condition is invalid (see [`Comparison::read`] and [`Comparison::typed`]), or a part
/// cannot be read.
pub(super) async fn read_all(
    source: &Source,
    parts: &[Part],
    texts: &[String],
) -> Result<Vec<Condition>> {
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    let comparisons = texts.iter().map(|text| Comparison::read(text));
    let comparisons = comparisons.collect::<Result<Vec<_>, _>>()?;
    let union = Union::read(source, parts).await?;
    comparisons.iter().map(|known| known.typed(&union)).collect()
}

/// Returns true if a row matches all conditions.
///
/// # Errors
/// When the comparison needs a row's `_item`, and `_item` is malformed.
pub(super) fn are_met_by(conditions: &[Condition], row: &Row) -> Result<bool> {
    for condition in conditions {
        if !condition.holds(row)? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Comparator {
    /// Returns true if this operator accepts a value whose ordering relative to the literal is
    /// `ordering`.
    fn takes(self, ordering: Ordering) -> bool {
        match self {
            Self::Equal => ordering == Ordering::Equal,
            Self::NotEqual => ordering != Ordering::Equal,
            Self::Below => ordering == Ordering::Less,
            Self::AtMost => ordering != Ordering::Greater,
            Self::Above => ordering == Ordering::Greater,
            Self::AtLeast => ordering != Ordering::Less,
        }
    }
}

/// Removes single or double quotes around a value.
fn unquoted(value: &str) -> &str {
    ['\'', '"']
        .iter()
        .find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote))
        .unwrap_or(value)
}
