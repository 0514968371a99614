//! Schedule expressions of EventBridge rules, `rate(...)` and `cron(...)`: they determine the times
//! at which a function is invoked.
//!
//! The current time is a parameter. The caller has the clock, waits, and invokes the function.
//! Times are milliseconds since 1970-01-01T00:00:00Z. Schedules run in UTC, like EventBridge rules.

mod cron;
mod error;
mod event;

use std::{fmt, str::FromStr};

pub use cron::Cron;
pub use error::{Error, Problem};
pub use event::{EventSource, scheduled_event};

const MINUTE_MS: i64 = 60_000;

/// A valid schedule expression.
///
/// Source of the rules: Amazon EventBridge user guide, "Setting a schedule pattern for scheduled
/// rules", and "Using cron and rate expressions".
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    /// `rate(5 minutes)`: due at multiples of `period_ms` after the start of the schedule.
    Rate {
        /// The period in milliseconds, at least one minute.
        period_ms: i64,
    },
    /// `cron(0 10 * * ? *)`: due at the minutes that match the six fields.
    Cron(Box<Cron>),
}

impl Schedule {
    /// Returns the first time strictly after `now_ms` at which the schedule is due. Returns `None`
    /// if the schedule is never due after `now_ms`, because all years of a cron expression have
    /// passed.
    ///
    /// `start_ms` is the start of the schedule. It determines the times of a rate expression. A
    /// cron expression ignores it.
    #[must_use]
    pub fn next_after(&self, start_ms: i64, now_ms: i64) -> Option<i64> {
        match self {
            Self::Rate { period_ms } => {
                let elapsed_ms = now_ms.checked_sub(start_ms)?;
                let periods = elapsed_ms.div_euclid(*period_ms).checked_add(1)?;
                // If the current time is before the start, the schedule is first due one period
                // after the start.
                start_ms.checked_add(periods.max(1).checked_mul(*period_ms)?)
            }
            Self::Cron(cron) => cron.next_after(now_ms),
        }
    }
}

impl FromStr for Schedule {
    type Err = Error;

    fn from_str(expression: &str) -> Result<Self, Error> {
        let parsed = if let Some(fields) = enclosed(expression, "rate") {
            rate(fields)
        } else if let Some(fields) = enclosed(expression, "cron") {
            Cron::parse(fields).map(|cron| Self::Cron(Box::new(cron)))
        } else {
            Err(Problem::UnknownForm)
        };
        parsed.map_err(|problem| Error { expression: expression.to_owned(), problem })
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate { period_ms } => match period_ms / MINUTE_MS {
                1 => write!(f, "rate(1 minute)"),
                minutes => write!(f, "rate({minutes} minutes)"),
            },
            Self::Cron(cron) => write!(f, "{cron}"),
        }
    }
}

/// Returns the string between `name(` and `)`; `None` if the expression has a different form.
fn enclosed<'a>(expression: &'a str, name: &str) -> Option<&'a str> {
    expression.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')
}

fn rate(fields: &str) -> Result<Schedule, Problem> {
    let (number, unit) = fields.split_once(' ').ok_or(Problem::RateForm)?;
    if number.is_empty() || !number.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(Problem::RateForm);
    }
    let too_large = || Problem::TooLarge(number.to_owned());
    let value: i64 = number.parse().map_err(|_| too_large())?;
    if value == 0 {
        return Err(Problem::Zero);
    }
    let (singular, minutes) = match unit {
        "minute" | "minutes" => ("minute", 1),
        "hour" | "hours" => ("hour", 60),
        "day" | "days" => ("day", 24 * 60),
        _ => return Err(Problem::UnknownUnit(unit.to_owned())),
    };
    let expected = if value == 1 { singular.to_owned() } else { format!("{singular}s") };
    if unit != expected {
        return Err(Problem::Plural { value, expected });
    }
    let period_ms = value
        .checked_mul(minutes)
        .and_then(|minutes| minutes.checked_mul(MINUTE_MS))
        .ok_or_else(too_large)?;
    Ok(Schedule::Rate { period_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_parse_as_eventbridge_parses_them() {
        let cases: &[(&str, Result<i64, &str>)] = &[
            ("rate(1 minute)", Ok(60_000)),
            ("rate(5 minutes)", Ok(300_000)),
            ("rate(1 hour)", Ok(3_600_000)),
            ("rate(12 hours)", Ok(43_200_000)),
            ("rate(1 day)", Ok(86_400_000)),
            ("rate(7 days)", Ok(604_800_000)),
            ("rate(1 minutes)", Err("write rate(1 minute)")),
            ("rate(5 minute)", Err("write rate(5 minutes)")),
            ("rate(1 days)", Err("write rate(1 day)")),
            ("rate(0 minutes)", Err("1 or more")),
            ("rate(-1 minutes)", Err("whole number")),
            ("rate(1.5 hours)", Err("whole number")),
            ("rate(+5 minutes)", Err("whole number")),
            ("rate( 5 minutes)", Err("whole number")),
            ("rate(5  minutes)", Err("unit=` minutes`")),
            ("rate(5 seconds)", Err("unit=`seconds`")),
            ("rate(5)", Err("whole number")),
            ("rate()", Err("whole number")),
            ("rate(99999999999999999999 days)", Err("too large")),
            ("rate(9223372036854775807 days)", Err("too large")),
            ("rate(5 minutes", Err("rate(5 minutes) or cron")),
            ("Rate(5 minutes)", Err("rate(5 minutes) or cron")),
            ("every 5 minutes", Err("rate(5 minutes) or cron")),
            ("", Err("rate(5 minutes) or cron")),
        ];
        for (expression, expected) in cases {
            match (expression.parse::<Schedule>(), expected) {
                (Ok(schedule), Ok(period_ms)) => {
                    assert_eq!(schedule, Schedule::Rate { period_ms: *period_ms }, "{expression}");
                }
                (Err(error), Err(part)) => {
                    assert!(error.to_string().contains(part), "{expression}: {error}");
                }
                (parsed, _) => panic!("{expression}: {parsed:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn a_rate_counts_from_its_start_and_never_returns_now() {
        let rate: Schedule = "rate(1 minute)".parse().unwrap();
        let cases =
            [(0, 0, 60_000), (0, 59_999, 60_000), (0, 60_000, 120_000), (500, 60_000, 60_500)];
        for (start_ms, now_ms, next_ms) in cases {
            assert_eq!(rate.next_after(start_ms, now_ms), Some(next_ms));
        }
        assert_eq!(rate.next_after(600_000, 0), Some(660_000), "a clock before the start");
        assert_eq!(rate.next_after(0, i64::MAX), None);
        assert_eq!(rate.next_after(i64::MIN, i64::MAX), None);
    }

    #[test]
    fn a_schedule_prints_as_an_expression_that_reads_back() {
        for expression in
            ["rate(1 minute)", "rate(90 minutes)", "rate(2 days)", "cron(15 10 ? * 6L 2022-2023)"]
        {
            let schedule: Schedule = expression.parse().unwrap();
            assert_eq!(schedule.to_string().parse::<Schedule>().unwrap(), schedule);
        }
    }
}
