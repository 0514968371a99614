//! Hours: the unit of compaction, derived only from the names of the parts.
//!
//! An hour is a table, a stream label and an hour of UTC: sixty buckets. Its compacted objects are
//! numbered like the parts of a bucket. The caller reads the objects.

use std::fmt;
use std::sync::Arc;

use super::bucket::{Bucket, EXTENSION, PART_NUMBER_MAX, UtcMinute};

/// All buckets of one stream from one hour.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hour {
    table: Arc<str>,
    label: Arc<str>,
    minute: UtcMinute,
}

impl Bucket {
    /// Returns the hour that the bucket belongs to.
    #[must_use]
    pub fn hour(&self) -> Hour {
        Hour {
            table: Arc::clone(&self.table),
            label: Arc::clone(&self.label),
            minute: self.minute.start_of_hour(),
        }
    }

    /// Parses the bucket and the number in a part's name; `None` if the name does not belong to a
    /// part.
    #[must_use]
    pub fn of_part(archive_prefix: &str, name: &str) -> Option<(Self, u32)> {
        let path = name.strip_prefix(archive_prefix)?.strip_prefix("table=")?;
        let (table, path) = path.split_once("/dt=")?;
        let (_date, file) = path.split_once("/part-")?;
        let mut words = file.strip_suffix(EXTENSION)?.split('-');
        let (label, minute) = (words.next()?, words.next()?);
        let bucket = Self::new(table, label, UtcMinute::of_compact_text(minute)?).ok()?;
        let number = bucket.part_number(archive_prefix, name)?;
        Some((bucket, number))
    }
}

impl Hour {
    /// Returns the table.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Returns the common prefix of the names of all parts of this hour's buckets: `<archive
    /// prefix>table=<table>/dt=<date>/part-<label>-<hour>`.
    #[must_use]
    pub fn parts_prefix(&self, archive_prefix: &str) -> String {
        self.path(archive_prefix, "part")
    }

    /// Returns the common prefix of the names of the hour's compacted objects: `<archive
    /// prefix>table=<table>/dt=<date>/compact-<label>-<hour>-`.
    #[must_use]
    pub fn compacted_prefix(&self, archive_prefix: &str) -> String {
        self.path(archive_prefix, "compact") + "-"
    }

    /// Returns the name of a compacted object. Numbers start at 1.
    #[must_use]
    pub fn compacted_name(&self, archive_prefix: &str, number: u32) -> String {
        format!("{}{number:05}{EXTENSION}", self.compacted_prefix(archive_prefix))
    }

    /// Returns the number in a compacted object's name; `None` if the object is not a compacted
    /// object of this hour.
    #[must_use]
    pub fn compacted_number(&self, archive_prefix: &str, name: &str) -> Option<u32> {
        let prefix = self.compacted_prefix(archive_prefix);
        let number = name.strip_prefix(&prefix)?.strip_suffix(EXTENSION)?.parse().ok()?;
        let is_number = (1..=PART_NUMBER_MAX).contains(&number);
        (is_number && self.compacted_name(archive_prefix, number) == name).then_some(number)
    }

    fn path(&self, archive_prefix: &str, kind: &str) -> String {
        let Self { table, label, minute } = self;
        let (date, hour) = (minute.date_text(), minute.compact_hour_text());
        format!("{archive_prefix}table={table}/dt={date}/{kind}-{label}-{hour}")
    }
}

impl fmt::Display for Hour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.table, self.label, self.minute.compact_hour_text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_name_contains_its_bucket_and_hour() {
        let minute = UtcMinute::of_seconds(1_795_228_199).unwrap();
        let bucket = Bucket::new("mo-vies", "2026-11-21T02:00:00.123", minute).unwrap();
        let name = bucket.part_name("archive/", 7);
        assert_eq!(Bucket::of_part("archive/", &name), Some((bucket.clone(), 7)));
        let hour = bucket.hour();
        assert!(name.starts_with(&hour.parts_prefix("archive/")));
        let compacted = hour.compacted_name("archive/", 1);
        assert_eq!(
            compacted,
            "archive/table=mo-vies/dt=2026-11-21/compact-20261121T020000123-20261121T02-00001.parquet"
        );
        assert_eq!(hour.compacted_number("archive/", &compacted), Some(1));
        for other in [
            name.clone(),
            compacted.replace("00001", "1"),
            compacted.replace("00001", "00000"),
            compacted.replace("T02-", "T03-"),
        ] {
            assert_eq!(hour.compacted_number("archive/", &other), None, "{other}");
        }
        for other in [
            compacted,
            name.replace("archive/", "other/"),
            name.replace("T0229", "T0260"),
            name.replace("dt=2026-11-21", "dt=2026-11-22"),
            name.replace("00007", "x"),
        ] {
            assert_eq!(Bucket::of_part("archive/", &other), None, "{other}");
        }
    }

    #[test]
    fn minutes_are_read_back_from_their_text() {
        for seconds in (0..253_402_300_800_u64).step_by(86_400 * 37 + 3_660) {
            let minute = UtcMinute::of_seconds(seconds).unwrap();
            assert_eq!(UtcMinute::of_compact_text(&minute.compact_text()), Some(minute));
        }
        for text in
            ["", "20261121T02", "20261321T0229", "20261131T0229", "20261121T2429", "2026112１T0229"]
        {
            assert_eq!(UtcMinute::of_compact_text(text), None, "{text}");
        }
    }
}
