//! Dates and times in UTC: jq's broken-down time, and the formats that have the same result with
//! every C library.

use super::arithmetic::float;
use super::builtin::Builtin;
use super::paths::described;
use super::stop::{Flow, Stop};
use super::value::Val;

const DAY: i64 = 86_400;
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
/// The years that have four digits.
const YEARS: std::ops::RangeInclusive<i64> = 1000..=9999;

/// A time, from the year to the second. Months count from 1.
#[derive(Clone, Copy, Debug, Default)]
struct Time {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

impl Time {
    /// Returns the number of days from 1970-01-01 to the first day of a month.
    fn days_to(year: i64, month: i64) -> i64 {
        // In this calculation, a year begins in March, so that the leap day is its last day.
        let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let era = year.div_euclid(400);
        let of_era = year.rem_euclid(400);
        let of_year = (153 * month + 2) / 5;
        era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
    }

    fn of_seconds(seconds: i64) -> Self {
        let (days, rest) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
        let mut year = 1970 + days.div_euclid(366);
        while Self::days_to(year + 1, 1) <= days {
            year += 1;
        }
        let month = (1..=12).rev().find(|month| Self::days_to(year, *month) <= days).unwrap_or(1);
        let day = days - Self::days_to(year, month) + 1;
        let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
        Self { year, month, day, hour, minute, second }
    }

    fn days(&self) -> i64 {
        Self::days_to(self.year, self.month) + self.day - 1
    }

    fn seconds(&self) -> i64 {
        self.days() * DAY + self.hour * 3600 + self.minute * 60 + self.second
    }

    fn weekday(&self) -> i64 {
        (self.days() + 4).rem_euclid(7)
    }

    fn year_day(&self) -> i64 {
        self.days() - Self::days_to(self.year, 1)
    }

    /// Returns whether the date exists, in a year of four digits.
    fn is_valid(&self) -> bool {
        let normal = Self::of_seconds(self.seconds());
        YEARS.contains(&self.year)
            && (normal.year, normal.month, normal.day) == (self.year, self.month, self.day)
            && (0..24).contains(&self.hour)
            && (0..60).contains(&self.minute)
            && (0..60).contains(&self.second)
    }

    /// Returns jq's broken-down time, with a fraction of the second.
    fn broken_down(&self, fraction: f64) -> Val {
        let [year, month, day] = [self.year, self.month - 1, self.day].map(whole);
        let [hour, minute] = [self.hour, self.minute].map(whole);
        let second = Val::from(self.second as f64 + fraction);
        let [weekday, year_day] = [self.weekday(), self.year_day()].map(whole);
        [year, month, day, hour, minute, second, weekday, year_day].into_iter().collect()
    }
}

fn whole(number: i64) -> Val {
    Val::from(number as f64)
}

/// Returns the result of a time filter without arguments.
pub(super) fn of(builtin: Builtin, value: &Val) -> Flow<Val> {
    match builtin {
        Builtin::Mktime => make_time(value),
        Builtin::Gmtime => {
            let (time, fraction) =
                of_number(value)?.ok_or_else(|| Stop::error("gmtime() requires a number"))?;
            Ok(time.broken_down(fraction))
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
    write(&time, format)
}

/// Returns the time for a number of seconds since 1970, with the fraction of the second. Returns
/// `None` if the value is not a number.
fn of_number(value: &Val) -> Flow<Option<(Time, f64)>> {
    let Val::Num(number) = value else { return Ok(None) };
    let seconds = number.rounded();
    let is_in_range = (-30_610_224_000.0..253_402_300_800.0).contains(&seconds);
    if !is_in_range || number.exact().is_none() {
        let reason = format!("{} is not a time in the years 1000 to 9999", described(value));
        return Err(Stop::Refused(reason));
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is in range")]
    let whole = seconds.floor() as i64;
    Ok(Some((Time::of_seconds(whole), seconds - seconds.floor())))
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

fn of_array(value: &Val) -> Flow<Option<Time>> {
    let Some(numbers) = numbers(value)? else { return Ok(None) };
    let [year, month, day, hour, minute, second, rest @ ..] = numbers.as_slice() else {
        return Err(Stop::refused("a broken-down time needs at least six numbers"));
    };
    let time = Time {
        year: *year,
        month: month + 1,
        day: *day,
        hour: *hour,
        minute: *minute,
        second: *second,
    };
    let derived = [time.weekday(), time.year_day()];
    if !time.is_valid() || !derived.starts_with(rest.get(..rest.len().min(2)).unwrap_or(rest)) {
        return Err(Stop::refused(format!("{} is not a valid date and time", described(value))));
    }
    Ok(Some(time))
}

fn make_time(value: &Val) -> Flow<Val> {
    if !matches!(value, Val::Arr(_)) {
        return Err(Stop::error("mktime requires array inputs"));
    }
    let time = of_array(value)?;
    let time = time.ok_or_else(|| Stop::error("mktime requires parsed datetime inputs"))?;
    Ok(whole(time.seconds()))
}

fn not_available(directive: Option<char>) -> Stop {
    let directive = directive.map(String::from).unwrap_or_default();
    Stop::refused(format!("`%{directive}` is not available in time formats"))
}

fn write(time: &Time, format: &str) -> Flow<Val> {
    let name = |names: &[&'static str], place: i64| {
        let place = usize::try_from(place).unwrap_or(0);
        names.get(place).copied().unwrap_or_default()
    };
    let short = |name: &'static str| name.get(..3).unwrap_or(name).to_owned();
    let (weekday, month) = (name(&WEEKDAYS, time.weekday()), name(&MONTHS, time.month - 1));
    let Time { year, day, hour, minute, second, .. } = *time;
    let twelve = (hour + 11) % 12 + 1;
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        let directive = characters.next();
        text.push_str(&match directive {
            Some('Y') => format!("{year}"),
            Some('C') => format!("{:02}", year / 100),
            Some('y') => format!("{:02}", year % 100),
            Some('m') => format!("{:02}", time.month),
            Some('d') => format!("{day:02}"),
            Some('e') => format!("{day:2}"),
            Some('H') => format!("{hour:02}"),
            Some('I') => format!("{twelve:02}"),
            Some('p') => (if hour < 12 { "AM" } else { "PM" }).to_owned(),
            Some('M') => format!("{minute:02}"),
            Some('S') => format!("{second:02}"),
            Some('j') => format!("{:03}", time.year_day() + 1),
            Some('u') => format!("{}", (time.weekday() + 6) % 7 + 1),
            Some('w') => format!("{}", time.weekday()),
            Some('a') => short(weekday),
            Some('A') => weekday.to_owned(),
            Some('b' | 'h') => short(month),
            Some('B') => month.to_owned(),
            Some('F') => format!("{year}-{:02}-{day:02}", time.month),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('R') => format!("{hour:02}:{minute:02}"),
            Some('D') => format!("{:02}/{day:02}/{:02}", time.month, year % 100),
            Some('%') => "%".to_owned(),
            directive => return Err(not_available(directive)),
        });
    }
    Ok(Val::from(text))
}

/// Parses a string in a format. The format must contain year, month and day.
fn parse(text: &str, format: &str) -> Flow<Val> {
    let mismatch = || Stop::error(format!("date \"{text}\" does not match format \"{format}\""));
    let format_of = format.replace("%F", "%Y-%m-%d").replace("%T", "%H:%M:%S");
    let (mut time, mut rest) = (Time::default(), text);
    let (mut weekday, mut seen) = (None, [false; 3]);
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
            Some('Y') => (0, 9999, 4, &mut time.year),
            Some('m') => (1, 12, 2, &mut time.month),
            Some('d' | 'e') => (1, 31, 2, &mut time.day),
            Some('H') => (0, 23, 2, &mut time.hour),
            Some('M') => (0, 59, 2, &mut time.minute),
            Some('S') => (0, 61, 2, &mut time.second),
            Some('b' | 'B' | 'h') => {
                time.month = named(&MONTHS, &mut rest).ok_or_else(mismatch)? + 1;
                seen = [seen[0], true, seen[2]];
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
        *field = number(&mut rest, digits)
            .filter(|n| (least..=most).contains(n))
            .ok_or_else(mismatch)?;
        match directive {
            Some('Y') => seen = [true, seen[1], seen[2]],
            Some('m') => seen = [seen[0], true, seen[2]],
            Some('d' | 'e') => seen = [seen[0], seen[1], true],
            _ => {}
        }
    }
    if !rest.is_empty() {
        return Err(mismatch());
    }
    let is_known = seen == [true; 3] && time.is_valid();
    if !is_known || weekday.is_some_and(|weekday| weekday != time.weekday()) {
        return Err(Stop::Refused(format!("`{text}` is not a complete and valid date")));
    }
    Ok(time.broken_down(0.0))
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
