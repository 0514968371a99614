//! Dates and times in UTC: jq's broken-down time, and the formats that have the same result with
//! every C library.

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::strtime;

use super::arithmetic::float;
use super::builtin::Builtin;
use super::paths::described;
use super::stop::{Flow, Stop};
use super::value::Val;

const ISO_8601: &str = "%Y-%m-%dT%H:%M:%SZ";
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
/// The directives of `strftime`.
const DIRECTIVES: &str = "YCymdeHIpMSjuwaAbhBFTRD%";
/// The years that have four digits.
const YEARS: std::ops::RangeInclusive<i16> = 1000..=9999;
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Returns the time from its year, month, day, hour, minute and second. Months count from 1. Returns
/// `None` if the time does not exist, or its year does not have four digits.
fn time_of(fields: [i64; 6]) -> Option<DateTime> {
    let [year, rest @ ..] = fields;
    let [month, day, hour, minute, second] = rest.map(|field| i8::try_from(field).ok());
    let year = i16::try_from(year).ok().filter(|year| YEARS.contains(year))?;
    DateTime::new(year, month?, day?, hour?, minute?, second?, 0).ok()
}

/// Returns the weekday from Sunday, and the day of the year. Both count from 0.
fn derived(time: DateTime) -> [i64; 2] {
    let weekday = time.weekday().to_sunday_zero_offset();
    [i64::from(weekday), i64::from(time.day_of_year() - 1)]
}

/// Returns jq's broken-down time, with a fraction of the second.
fn broken_down(time: DateTime, fraction: f64) -> Val {
    let [year, month, day] = [time.year(), i16::from(time.month()) - 1, time.day().into()];
    let [hour, minute] = [time.hour(), time.minute()].map(f64::from);
    let [weekday, year_day] = derived(time).map(|number| number as f64);
    let second = f64::from(time.second()) + fraction;
    let [year, month, day] = [year, month, day].map(f64::from);
    let numbers = [year, month, day, hour, minute, second, weekday, year_day];
    numbers.into_iter().map(Val::from).collect()
}

/// Returns the result of a time filter without arguments.
pub(super) fn of(builtin: Builtin, value: &Val) -> Flow<Val> {
    match builtin {
        Builtin::Mktime => make_time(value),
        Builtin::Gmtime => {
            let (time, fraction) =
                of_number(value)?.ok_or_else(|| Stop::error("gmtime() requires a number"))?;
            Ok(broken_down(time, fraction))
        }
        Builtin::Fromdate | Builtin::Fromdateiso8601 => {
            make_time(&with(Builtin::Strptime, value, &Val::from(ISO_8601))?)
        }
        _ => with(Builtin::Strftime, value, &Val::from(ISO_8601)),
    }
}

/// Returns the result of `strftime` and `strptime`.
pub(super) fn with(builtin: Builtin, value: &Val, format: &Val) -> Flow<Val> {
    if builtin == Builtin::Strptime {
        let (Val::Str(text), Val::Str(format)) = (value, format) else {
            return Err(Stop::error("strptime/1 requires string inputs and arguments"));
        };
        return parse(text, format);
    }
    let time = match of_number(value)? {
        Some((time, _)) => time,
        None => of_array(value)?
            .ok_or_else(|| Stop::error("strftime/1 requires parsed datetime inputs"))?,
    };
    let Val::Str(format) = format else {
        return Err(Stop::error("strftime/1 requires a string format"));
    };
    write(time, format)
}

/// Returns the time for a number of seconds since 1970, with the fraction of the second. Returns
/// `None` if the value is not a number.
fn of_number(value: &Val) -> Flow<Option<(DateTime, f64)>> {
    let Val::Num(number) = value else { return Ok(None) };
    let seconds = number.exact().unwrap_or(f64::NAN);
    #[expect(clippy::cast_possible_truncation, reason = "a number out of range is refused below")]
    let whole = SignedDuration::from_secs(seconds.floor() as i64);
    match EPOCH.checked_add(whole) {
        Ok(time) if YEARS.contains(&time.year()) && !seconds.is_nan() => {
            Ok(Some((time, seconds - seconds.floor())))
        }
        _ => {
            let reason = format!("{} is not a time in the years 1000 to 9999", described(value));
            Err(Stop::Refused(reason))
        }
    }
}

/// Returns the numbers of a broken-down time, truncated to integers. Returns `None` if the value is
/// not a broken-down time.
fn numbers(value: &Val) -> Flow<Option<Vec<i64>>> {
    let Val::Arr(array) = value else { return Ok(None) };
    let mut numbers = Vec::new();
    for member in array.members() {
        let Val::Num(number) = member else { return Ok(None) };
        let number = float(number)?;
        if number.is_nan() || number.abs() > 1e9 {
            return Err(Stop::refused("a number of the broken-down time is out of range"));
        }
        #[expect(clippy::cast_possible_truncation, reason = "it is in range")]
        numbers.push(number.trunc() as i64);
    }
    Ok(Some(numbers))
}

fn of_array(value: &Val) -> Flow<Option<DateTime>> {
    let Some(numbers) = numbers(value)? else { return Ok(None) };
    let [year, month, day, hour, minute, second, rest @ ..] = numbers.as_slice() else {
        return Err(Stop::refused("a broken-down time needs at least six numbers"));
    };
    let time = time_of([*year, month + 1, *day, *hour, *minute, *second]);
    let is_known = |time: &DateTime| derived(*time).starts_with(rest.get(..2).unwrap_or(rest));
    let invalid = || Stop::refused(format!("{} is not a valid date and time", described(value)));
    time.filter(is_known).ok_or_else(invalid).map(Some)
}

fn make_time(value: &Val) -> Flow<Val> {
    if !matches!(value, Val::Arr(_)) {
        return Err(Stop::error("mktime requires array inputs"));
    }
    let time = of_array(value)?;
    let time = time.ok_or_else(|| Stop::error("mktime requires parsed datetime inputs"))?;
    Ok(Val::from(time.duration_since(EPOCH).as_secs() as f64))
}

fn not_available(directive: Option<char>) -> Stop {
    let directive = directive.map(String::from).unwrap_or_default();
    Stop::refused(format!("`%{directive}` is not available in time formats"))
}

fn write(time: DateTime, format: &str) -> Flow<Val> {
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        let directive = if character == '%' { characters.next() } else { continue };
        if !directive.is_some_and(|directive| DIRECTIVES.contains(directive)) {
            return Err(not_available(directive));
        }
    }
    let text = strtime::format(format, time);
    text.map(Val::from).map_err(|error| Stop::refused(error.to_string()))
}

/// Parses a string in a format. The format must contain year, month and day.
fn parse(text: &str, format: &str) -> Flow<Val> {
    let mismatch = || Stop::error(format!("date \"{text}\" does not match format \"{format}\""));
    let incomplete = || Stop::Refused(format!("`{text}` is not a complete and valid date"));
    let format_of = format.replace("%F", "%Y-%m-%d").replace("%T", "%H:%M:%S");
    // The year, month, day, hour, minute and second.
    let mut fields = [None, None, None, Some(0), Some(0), Some(0)];
    let (mut weekday, mut rest) = (None, text);
    let mut characters = format_of.chars();
    while let Some(character) = characters.next() {
        if character.is_ascii_whitespace() {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace());
            continue;
        }
        if character != '%' {
            rest = rest.strip_prefix(character).ok_or_else(mismatch)?;
            continue;
        }
        let directive = characters.next();
        let (least, most, digits, field) = match directive {
            Some('Y') => (0, 9999, 4, &mut fields[0]),
            Some('m') => (1, 12, 2, &mut fields[1]),
            Some('d' | 'e') => (1, 31, 2, &mut fields[2]),
            Some('H') => (0, 23, 2, &mut fields[3]),
            Some('M') => (0, 59, 2, &mut fields[4]),
            Some('S') => (0, 61, 2, &mut fields[5]),
            Some('b' | 'B' | 'h') => {
                fields[1] = Some(named(&MONTHS, &mut rest).ok_or_else(mismatch)? + 1);
                continue;
            }
            Some('a' | 'A') => {
                weekday = Some(named(&WEEKDAYS, &mut rest).ok_or_else(mismatch)?);
                continue;
            }
            Some('%') => {
                rest = rest.strip_prefix('%').ok_or_else(mismatch)?;
                continue;
            }
            directive => return Err(not_available(directive)),
        };
        let found = number(&mut rest, digits).filter(|n| (least..=most).contains(n));
        *field = Some(found.ok_or_else(mismatch)?);
    }
    if !rest.is_empty() {
        return Err(mismatch());
    }
    let [Some(year), Some(month), Some(day), hour, minute, second] = fields else {
        return Err(incomplete());
    };
    let clock = [hour, minute, second].map(Option::unwrap_or_default);
    let time = time_of([year, month, day, clock[0], clock[1], clock[2]]);
    let is_of_weekday = |time: &DateTime| weekday.is_none_or(|known| known == derived(*time)[0]);
    let time = time.filter(is_of_weekday).ok_or_else(incomplete)?;
    Ok(broken_down(time, 0.0))
}

/// Parses a number of at most this many digits, after spaces.
fn number(rest: &mut &str, digits: usize) -> Option<i64> {
    let trimmed = rest.trim_start_matches(' ');
    let end = trimmed.bytes().take(digits).take_while(u8::is_ascii_digit).count();
    let (number, tail) = trimmed.split_at_checked(end)?;
    *rest = tail;
    number.parse().ok()
}

/// Parses a name of a list and returns its position. The name may be complete or abbreviated to
/// three letters, in upper or lower case.
fn named(names: &[&str], rest: &mut &str) -> Option<i64> {
    let starts =
        |name: &str| rest.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    for (place, name) in names.iter().enumerate() {
        for form in [*name, name.get(..3)?] {
            if starts(form) {
                *rest = rest.get(form.len()..)?;
                return i64::try_from(place).ok();
            }
        }
    }
    None
}
