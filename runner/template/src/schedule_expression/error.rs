//! The error of a schedule expression, with advice on what to write instead.

use crate::diagnostic::counted;

/// An invalid schedule expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("schedule expression=`{expression}` is not valid: {problem}")]
pub struct Error {
    /// The invalid expression.
    pub expression: String,
    /// The problem.
    #[source]
    pub problem: Problem,
}

/// A problem of a schedule expression. Its message says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// An expression that is neither a rate nor a cron expression.
    #[error("write rate(5 minutes) or cron(0 10 * * ? *)")]
    UnknownForm,
    /// A rate that is not a whole number and a unit.
    #[error("write a whole number and a unit, for example rate(1 minute) or rate(5 minutes)")]
    RateForm,
    /// A rate with a value that is too large.
    #[error("value=`{0}` is too large")]
    TooLarge(String),
    /// A rate with the value 0.
    #[error("the value must be 1 or more")]
    Zero,
    /// A rate with an unknown unit.
    #[error("unit=`{0}` is not minute(s), hour(s) or day(s)")]
    UnknownUnit(String),
    /// A rate whose unit has the wrong number.
    #[error(
        "the unit is singular for the value 1 and plural for any other value: write rate({value} {expected})"
    )]
    Plural {
        /// The value.
        value: i64,
        /// The right unit.
        expected: String,
    },
    /// A cron expression with this number of fields.
    #[error(
        "found {}, write six: minutes hours day-of-month month day-of-week year, for example cron(0 10 * * ? *)",
        counted(*.0, "field", "fields")
    )]
    FieldCount(usize),
    /// A cron expression in which both day fields are `?`.
    #[error("only one of day-of-month and day-of-week may be ?")]
    NoDay,
    /// A cron expression in which no day field is `?`.
    #[error("one of day-of-month and day-of-week must be ?, for example cron(0 10 * * ? *)")]
    TwoDays,
    /// A range of years that runs backwards.
    #[error("{field}=`{range}` runs backwards; write the earlier year first")]
    Backwards {
        /// The name of the field.
        field: String,
        /// The range.
        range: String,
    },
    /// A value of a cron expression that is out of bounds.
    #[error("{field}=`{value}` is not between {first} and {last}")]
    OutOfBounds {
        /// The name of the field.
        field: String,
        /// The value.
        value: String,
        /// The smallest value of the field.
        first: i16,
        /// The largest value of the field.
        last: i16,
    },
}
