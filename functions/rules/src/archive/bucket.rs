//! Buckets: the place of a row in the archive, derived only from its record.
//!
//! A bucket is a table, a stream label and a minute of UTC. A redelivered record always belongs to
//! the same bucket, regardless of its batch and the time of delivery. The caller knows the rows
//! that a bucket already contains.

use std::fmt;
use std::sync::Arc;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use model::limits::{TABLE_NAME_LENGTH_MAX, TABLE_NAME_LENGTH_MIN};

use crate::rule::Refusal;

/// The highest part number of a bucket, inclusive. It has five digits, so that names sort by
/// number. A bucket holds one minute of one stream. The numbers therefore suffice even if each of
/// 1,600 records per second gets its own part.
pub const PART_NUMBER_MAX: u32 = 99_999;
/// The first second of the year 10000: the exclusive end of the range, because the year in a date
/// has four digits.
const SECONDS_END: u64 = 253_402_300_800;
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
/// The format of a minute in the names of archive objects.
const MINUTE: &str = "%Y%m%dT%H%M";
/// The ending of an archive object's name.
pub(super) const EXTENSION: &str = ".parquet";

/// A minute of UTC since 1970, before the year 10000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtcMinute(u64);

/// A bucket of the archive: all rows of one stream from one minute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket {
    pub(super) table: Arc<str>,
    pub(super) label: Arc<str>,
    pub(super) minute: UtcMinute,
}

impl UtcMinute {
    /// Returns the minute that contains a time in seconds since 1970; `None` from the year 10000 on.
    #[must_use]
    pub fn of_seconds(seconds: u64) -> Option<Self> {
        (seconds < SECONDS_END).then_some(Self(seconds / 60))
    }

    /// Converts a time in seconds since 1970 to milliseconds. [`UtcMinute::of_seconds`] must have
    /// returned this minute for the same `seconds`.
    pub(super) fn millis_of_second(self, seconds: u64) -> i64 {
        i64::try_from(self.0 * 60_000 + seconds % 60 * 1000).unwrap_or(i64::MAX)
    }

    fn date_time(self) -> DateTime {
        EPOCH + SignedDuration::from_secs(i64::try_from(self.0 * 60).unwrap_or(0))
    }

    /// Returns the date, such as `2026-11-21`.
    #[must_use]
    pub fn date_text(self) -> String {
        self.date_time().date().to_string()
    }

    /// Returns the minute, such as `20261121T0230`.
    #[must_use]
    pub fn compact_text(self) -> String {
        self.date_time().strftime(MINUTE).to_string()
    }

    /// Returns the hour, such as `20261121T02`.
    pub(super) fn compact_hour_text(self) -> String {
        let mut text = self.compact_text();
        text.truncate(text.len() - "30".len());
        text
    }

    /// Parses a string of [`UtcMinute::compact_text`]; returns `None` for any other string.
    #[must_use]
    pub fn of_compact_text(text: &str) -> Option<Self> {
        let time = DateTime::strptime(MINUTE, text).ok()?;
        let seconds = u64::try_from(time.duration_since(EPOCH).as_secs()).ok()?;
        Self::of_seconds(seconds).filter(|minute| minute.compact_text() == text)
    }

    /// Returns the first minute of this minute's hour.
    pub(super) fn start_of_hour(self) -> Self {
        Self(self.0 / 60 * 60)
    }
}

impl Bucket {
    /// Returns the bucket of a table, a stream label and a minute.
    ///
    /// # Errors
    /// DynamoDB does not accept the table name or the stream label. An invalid name must not become a
    /// part of a path.
    pub fn new(table: &str, label: &str, minute: UtcMinute) -> Result<Self, Refusal> {
        let is_name = (TABLE_NAME_LENGTH_MIN..=TABLE_NAME_LENGTH_MAX).contains(&table.len())
            && table.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
        if !is_name {
            return Err(Refusal(format!("`eventSourceARN`: invalid table name `{table}`")));
        }
        let compact: String = label.chars().filter(char::is_ascii_alphanumeric).collect();
        if compact.is_empty() || compact.len() > 64 {
            return Err(Refusal(format!("`eventSourceARN`: invalid stream label `{label}`")));
        }
        Ok(Self { table: table.into(), label: compact.into(), minute })
    }

    /// Returns the table.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Returns the bucket of the same stream at another minute.
    pub(super) fn at(&self, minute: UtcMinute) -> Self {
        Self { table: Arc::clone(&self.table), label: Arc::clone(&self.label), minute }
    }

    /// Returns the minute.
    #[must_use]
    pub fn minute(&self) -> UtcMinute {
        self.minute
    }

    /// Returns the common prefix of the names of this bucket's parts: `<archive
    /// prefix>table=<table>/dt=<date>/part-<label>-<minute>-`.
    #[must_use]
    pub fn prefix(&self, archive_prefix: &str) -> String {
        let Self { table, label, minute } = self;
        let (date, minute) = (minute.date_text(), minute.compact_text());
        format!("{archive_prefix}table={table}/dt={date}/part-{label}-{minute}-")
    }

    /// Returns the name of a part: the prefix, the part's number in five digits, `.parquet`. Parts are
    /// numbered from 1.
    #[must_use]
    pub fn part_name(&self, archive_prefix: &str, number: u32) -> String {
        format!("{}{number:05}{EXTENSION}", self.prefix(archive_prefix))
    }

    /// Returns the number in a part's name; `None` if the name does not belong to a part of this
    /// bucket.
    #[must_use]
    pub fn part_number(&self, archive_prefix: &str, name: &str) -> Option<u32> {
        let prefix = self.prefix(archive_prefix);
        let digits = name.strip_prefix(&prefix)?.strip_suffix(EXTENSION)?;
        let number = digits.parse().ok()?;
        (self.part_name(archive_prefix, number) == name).then_some(number)
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.table, self.label, self.minute.compact_text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_gregorian() {
        for (seconds, date, minute) in [
            (0, "1970-01-01", "19700101T0000"),
            (59, "1970-01-01", "19700101T0000"),
            (951_782_399, "2000-02-28", "20000228T2359"),
            (951_782_400, "2000-02-29", "20000229T0000"),
            (1_078_012_800, "2004-02-29", "20040229T0000"),
            (1_795_228_199, "2026-11-21", "20261121T0229"),
            (4_107_542_400, "2100-03-01", "21000301T0000"),
            (253_402_300_799, "9999-12-31", "99991231T2359"),
        ] {
            let found = UtcMinute::of_seconds(seconds).unwrap();
            assert_eq!((found.date_text().as_str(), found.compact_text().as_str()), (date, minute));
        }
        assert_eq!(UtcMinute::of_seconds(253_402_300_800), None);
    }

    #[test]
    fn part_names_sort_and_are_recognised() {
        let minute = UtcMinute::of_seconds(1_795_228_199).unwrap();
        let bucket = Bucket::new("movies", "2026-11-21T02:00:00.123", minute).unwrap();
        let name = bucket.part_name("archive/", 7);
        assert_eq!(
            name,
            "archive/table=movies/dt=2026-11-21/part-20261121T020000123-20261121T0229-00007.parquet"
        );
        assert_eq!(bucket.part_number("archive/", &name), Some(7));
        for other in [
            name.replace("00007", "7"),
            name.replace("00007", "+0007"),
            name.replace(".parquet", ".tmp"),
            name.replace("movies", "films"),
            bucket.prefix("archive/"),
        ] {
            assert_eq!(bucket.part_number("archive/", &other), None, "{other}");
        }
    }

    #[test]
    fn names_that_could_leave_the_prefix_are_refused() {
        let minute = UtcMinute::of_seconds(60).unwrap();
        for (table, label) in [("../..", "2026"), ("a b", "2026"), ("ok?", "2026"), ("tab", "::")] {
            assert!(Bucket::new(table, label, minute).is_err(), "{table} {label}");
        }
    }
}
