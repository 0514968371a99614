//! The six fields of an EventBridge `cron(...)` expression, and the next matching minute.
//!
//! All times are in UTC. The caller waits until the time is reached.

use std::{collections::BTreeSet, fmt, ops::RangeInclusive};

use jiff::{
    Timestamp,
    civil::{Date, DateTime, date},
    tz::TimeZone,
};

use super::error::Problem;

const YEARS: RangeInclusive<i16> = 1970..=2199;
const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// A validated cron expression with the fields minutes, hours, day of month, month, day of week and
/// year.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    text: String,
    minutes: BTreeSet<i16>,
    hours: BTreeSet<i16>,
    days: Days,
    months: BTreeSet<i16>,
    years: BTreeSet<i16>,
}

/// The matching days of a month, from the day field that is not `?`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Days {
    OfMonth(BTreeSet<i16>),
    /// `L`: the last day of the month.
    Last,
    /// `LW`: the last weekday (Monday to Friday) of the month.
    LastWeekday,
    /// `15W`: the weekday nearest to the 15th, within the month.
    NearestWeekday(i16),
    /// These weekdays, from 1 (Sunday) to 7 (Saturday).
    OfWeek(BTreeSet<i16>),
    /// `6L`: the last Friday of the month.
    LastOfWeek(i16),
    /// `3#2`: the second Tuesday of the month.
    NthOfWeek(i16, i16),
}

impl Cron {
    /// Parses the string between `cron(` and `)`. An error message describes what to write instead.
    pub(super) fn parse(fields: &str) -> Result<Self, Problem> {
        let parts: Vec<&str> = fields.split_ascii_whitespace().collect();
        let [minutes, hours, day_of_month, month, day_of_week, year] = parts.as_slice() else {
            return Err(Problem::FieldCount(parts.len()));
        };
        let days = match (*day_of_month, *day_of_week) {
            ("?", "?") => return Err(Problem::NoDay),
            (day, "?") => parse_day_of_month(day)?,
            ("?", day) => parse_day_of_week(day)?,
            _ => return Err(Problem::TwoDays),
        };
        Ok(Self {
            text: format!("cron({})", parts.join(" ")),
            minutes: parse_set("minutes", minutes, 0..=59, &[])?,
            hours: parse_set("hours", hours, 0..=23, &[])?,
            days,
            months: parse_set("month", month, 1..=12, &MONTHS)?,
            years: parse_set("year", year, YEARS, &[])?,
        })
    }

    /// Returns the first matching minute strictly after `now_ms`, in milliseconds since 1970.
    /// Returns `None` if no minute matches until the end of the year 2199.
    #[must_use]
    pub fn next_after(&self, now_ms: i64) -> Option<i64> {
        let now = Timestamp::from_millisecond(now_ms).ok()?.to_zoned(TimeZone::UTC).datetime();
        let from_year = now.year().max(*YEARS.start());
        // The loops are bounded, because the year is at most 2199.
        for year in self.years.range(from_year..) {
            for month in &self.months {
                for day in self.days_in(*year, *month) {
                    if let Some(due) = day.and_then(|day| self.minute_of(day, now)) {
                        return Some(
                            due.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond(),
                        );
                    }
                }
            }
        }
        None
    }

    /// Returns the first matching minute on `day` that is after `now`.
    fn minute_of(&self, day: Date, now: DateTime) -> Option<DateTime> {
        if day < now.date() {
            return None;
        }
        let minutes =
            self.hours.iter().flat_map(|hour| self.minutes.iter().map(move |m| (hour, m)));
        minutes
            .filter_map(|(hour, minute)| {
                Some(day.at(i8::try_from(*hour).ok()?, i8::try_from(*minute).ok()?, 0, 0))
            })
            .find(|due| *due > now)
    }

    /// Returns the matching days of a month, in ascending order.
    fn days_in(&self, year: i16, month: i16) -> impl Iterator<Item = Option<Date>> + '_ {
        let first = date(year, i8::try_from(month).unwrap_or(1), 1);
        let last = i16::from(first.days_in_month());
        (1..=last)
            .filter(move |day| self.days.name(first, *day, last))
            .map(move |day| on(first, day))
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Days {
    /// Returns true if `day` matches. `first` is the first day of the month. `last` is the number
    /// of days in the month.
    fn name(&self, first: Date, day: i16, last: i16) -> bool {
        let weekday =
            |day| on(first, day).map_or(0, |date| i16::from(date.weekday().to_sunday_one_offset()));
        match self {
            Self::OfMonth(days) => days.contains(&day),
            Self::Last => day == last,
            Self::LastWeekday => nearest_weekday(last, last, weekday) == Some(day),
            Self::NearestWeekday(wanted) => nearest_weekday(*wanted, last, weekday) == Some(day),
            Self::OfWeek(days) => days.contains(&weekday(day)),
            Self::LastOfWeek(wanted) => weekday(day) == *wanted && day + 7 > last,
            Self::NthOfWeek(wanted, nth) => weekday(day) == *wanted && (day - 1) / 7 + 1 == *nth,
        }
    }
}

fn on(first: Date, day: i16) -> Option<Date> {
    first.with().day(i8::try_from(day).ok()?).build().ok()
}

/// Returns the weekday (Monday to Friday) nearest to the day `wanted`, within the same month.
/// Returns `None` if the month has no such day.
fn nearest_weekday(wanted: i16, last: i16, weekday: impl Fn(i16) -> i16) -> Option<i16> {
    if wanted > last {
        return None;
    }
    Some(match weekday(wanted) {
        7 if wanted == 1 => 3,
        7 => wanted - 1,
        1 if wanted == last => wanted - 2,
        1 => wanted + 1,
        _ => wanted,
    })
}

fn parse_day_of_month(field: &str) -> Result<Days, Problem> {
    match field {
        "L" => Ok(Days::Last),
        "LW" => Ok(Days::LastWeekday),
        _ => match field.strip_suffix('W') {
            Some(day) => {
                Ok(Days::NearestWeekday(parse_value("day-of-month", day, &(1..=31), &[])?))
            }
            None => Ok(Days::OfMonth(parse_set("day-of-month", field, 1..=31, &[])?)),
        },
    }
}

fn parse_day_of_week(field: &str) -> Result<Days, Problem> {
    let value = |text| parse_value("day-of-week", text, &(1..=7), &WEEKDAYS);
    if field == "L" {
        // `L` in the day-of-week field means Saturday.
        return Ok(Days::OfWeek(BTreeSet::from([7])));
    }
    if let Some(day) = field.strip_suffix('L') {
        return Ok(Days::LastOfWeek(value(day)?));
    }
    if let Some((day, nth)) = field.split_once('#') {
        let nth = parse_value("day-of-week", nth, &(1..=5), &[])?;
        return Ok(Days::NthOfWeek(value(day)?, nth));
    }
    Ok(Days::OfWeek(parse_set("day-of-week", field, 1..=7, &WEEKDAYS)?))
}

/// Parses a list of values, ranges and steps: `*`, `5`, `1,2,5-8`, `0/15`, `10-40/5`.
fn parse_set(
    name: &str,
    field: &str,
    bounds: RangeInclusive<i16>,
    names: &[&str],
) -> Result<BTreeSet<i16>, Problem> {
    let mut set = BTreeSet::new();
    for part in field.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => {
                (range, Some(parse_value(name, step, &(1..=*bounds.end()), &[])?))
            }
            None => (part, None),
        };
        let (first, last) = match (range, range.split_once('-')) {
            ("*", _) => (*bounds.start(), *bounds.end()),
            (_, Some((first, last))) => (
                parse_value(name, first, &bounds, names)?,
                parse_value(name, last, &bounds, names)?,
            ),
            (value, None) => {
                let value = parse_value(name, value, &bounds, names)?;
                (value, if step.is_some() { *bounds.end() } else { value })
            }
        };
        let step = usize::try_from(step.unwrap_or(1)).unwrap_or(1);
        if first <= last {
            set.extend((first..=last).step_by(step));
        } else if bounds == YEARS {
            return Err(Problem::Backwards { field: name.to_owned(), range: part.to_owned() });
        } else {
            // A range such as the hours 20-2 passes midnight. It continues from the start of the
            // bounds after their end.
            let span = bounds.end() - bounds.start() + 1;
            let wrap = |value| if value > *bounds.end() { value - span } else { value };
            set.extend((first..=last + span).step_by(step).map(wrap));
        }
    }
    Ok(set)
}

/// Parses one number within `bounds` (both inclusive), or one of `names`. The first name has the
/// value 1.
fn parse_value(
    name: &str,
    text: &str,
    bounds: &RangeInclusive<i16>,
    names: &[&str],
) -> Result<i16, Problem> {
    let named = names.iter().position(|candidate| candidate.eq_ignore_ascii_case(text));
    let number = match named {
        Some(index) => i16::try_from(index + 1).ok(),
        None if text.bytes().all(|digit| digit.is_ascii_digit()) => text.parse().ok(),
        None => None,
    };
    number.filter(|number| bounds.contains(number)).ok_or_else(|| Problem::OutOfBounds {
        field: name.to_owned(),
        value: text.to_owned(),
        first: *bounds.start(),
        last: *bounds.end(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(fields: &str, now: &str) -> Option<String> {
        let now: Timestamp = now.parse().unwrap();
        let due = Cron::parse(fields).unwrap().next_after(now.as_millisecond())?;
        Some(Timestamp::from_millisecond(due).unwrap().to_string())
    }

    #[test]
    fn the_next_time_is_the_one_that_eventbridge_documents() {
        let cases = [
            // Examples from the EventBridge user guide.
            ("0 10 * * ? *", "2024-01-01T10:00:00Z", "2024-01-02T10:00:00Z"),
            ("15 12 * * ? *", "2024-01-01T12:14:59.999Z", "2024-01-01T12:15:00Z"),
            ("0 18 ? * MON-FRI *", "2024-03-01T18:00:00Z", "2024-03-04T18:00:00Z"),
            ("0 8 1 * ? *", "2024-01-31T00:00:00Z", "2024-02-01T08:00:00Z"),
            ("0/15 * * * ? *", "2024-01-01T23:45:00Z", "2024-01-02T00:00:00Z"),
            ("0/10 * ? * MON-FRI *", "2024-03-01T23:55:00Z", "2024-03-04T00:00:00Z"),
            ("0/5 8-17 ? * MON-FRI *", "2024-03-04T17:55:00Z", "2024-03-05T08:00:00Z"),
            ("0/30 20-2 ? * MON-FRI *", "2024-03-04T02:30:00Z", "2024-03-04T20:00:00Z"),
            ("0/30 20-2 ? * MON-FRI *", "2024-03-04T23:30:00Z", "2024-03-05T00:00:00Z"),
            ("0 0 ? * FRI-SUN *", "2024-03-03T00:00:00Z", "2024-03-08T00:00:00Z"),
            ("15 10 ? * 6L 2022-2023", "2022-01-01T00:00:00Z", "2022-01-28T10:15:00Z"),
            // Cases for the last day of a month, the nearest weekday, and the nth weekday.
            ("0 0 L * ? *", "2024-02-01T00:00:00Z", "2024-02-29T00:00:00Z"),
            ("0 0 L * ? *", "2023-02-01T00:00:00Z", "2023-02-28T00:00:00Z"),
            ("0 0 LW * ? *", "2024-03-01T00:00:00Z", "2024-03-29T00:00:00Z"),
            ("0 0 3W * ? *", "2024-02-01T00:00:00Z", "2024-02-02T00:00:00Z"),
            ("0 0 1W * ? *", "2024-06-01T12:00:00Z", "2024-06-03T00:00:00Z"),
            ("0 0 31W * ? *", "2024-03-01T00:00:00Z", "2024-03-29T00:00:00Z"),
            ("0 0 31W * ? *", "2024-04-01T00:00:00Z", "2024-05-31T00:00:00Z"),
            ("0 0 ? * 3#2 *", "2024-01-01T00:00:00Z", "2024-01-09T00:00:00Z"),
            ("0 0 ? * SUN#5 *", "2024-01-01T00:00:00Z", "2024-03-31T00:00:00Z"),
            ("0 0 ? * L *", "2024-01-01T00:00:00Z", "2024-01-06T00:00:00Z"),
            ("0 0 ? * 1 *", "2024-01-01T00:00:00Z", "2024-01-07T00:00:00Z"),
            // Cases for lists, names in upper and lower case, and steps with a start and an end.
            ("0 12 ? jan,Dec mon *", "2024-02-01T00:00:00Z", "2024-12-02T12:00:00Z"),
            ("10-40/15 0 1 1 ? *", "2024-01-01T00:40:00Z", "2025-01-01T00:10:00Z"),
            ("0 0 29 2 ? *", "2024-02-29T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 0 1 1 ? 2199", "1960-01-01T00:00:00Z", "2199-01-01T00:00:00Z"),
        ];
        for (fields, now, due) in cases {
            assert_eq!(next(fields, now).as_deref(), Some(due), "{fields} after {now}");
        }
    }

    #[test]
    fn an_expression_that_is_past_or_impossible_is_never_due() {
        assert_eq!(next("0 0 1 1 ? 2020", "2020-01-01T00:00:00Z"), None);
        assert_eq!(next("0 0 31 2 ? *", "2024-01-01T00:00:00Z"), None);
        assert_eq!(Cron::parse("0 0 1 1 ? *").unwrap().next_after(i64::MAX), None);
    }

    #[test]
    fn an_invalid_expression_is_reported_with_a_remedy() {
        let cases = [
            ("0 10 * * *", "found 5 fields"),
            ("0 10 * * * *", "must be ?"),
            ("0 10 ? * ? *", "only one"),
            ("0 10 1 * MON *", "must be ?"),
            ("60 10 * * ? *", "minutes=`60` is not between 0 and 59"),
            ("0 24 * * ? *", "hours=`24`"),
            ("0 0 32 * ? *", "day-of-month=`32`"),
            ("0 0 0 * ? *", "day-of-month=`0`"),
            ("0 0 1 FOO ? *", "month=`FOO`"),
            ("0 0 ? * 8 *", "day-of-week=`8`"),
            ("0 0 ? * 2#6 *", "day-of-week=`6` is not between 1 and 5"),
            ("0 0 W * ? *", "day-of-month=``"),
            ("0 0 1 1 ? 1969", "year=`1969` is not between 1970 and 2199"),
            ("0 0 1 1 ? 2024-2023", "runs backwards"),
            ("0/0 0 1 1 ? *", "minutes=`0` is not between 1 and 59"),
            ("+5 0 1 1 ? *", "minutes=`+5`"),
            (", 0 1 1 ? *", "minutes=``"),
            ("1-2-3 0 1 1 ? *", "minutes=`2-3`"),
        ];
        for (fields, part) in cases {
            let error = Cron::parse(fields).unwrap_err().to_string();
            assert!(error.contains(part), "{fields}: {error}");
        }
    }
}
