//! The functions' settings: environment variables, read and validated before the first invocation.
//!
//! One message lists all problems: the variable, what is wrong, and what to write instead. Whether
//! the tables and buckets exist is checked only when they are first used.

use std::fmt;

use model::limits::{TABLE_NAME_LENGTH_MAX, TABLE_NAME_LENGTH_MIN};
use rules::archive::{Archive, Declaration, Deletes};
use rules::counters::{Counters, SLOT_COUNT_MAX, TOTAL_ATTRIBUTES};
use rules::fan_out::{FanOut, parse_and_check};
use rules::marks::restored;
use rules::versions::{Retention, VERSION_NUMBER_MAX, Versions};
use thiserror::Error;

/// The environment variable of the archive's bucket.
pub const ARCHIVE_BUCKET: &str = "ARCHIVE_BUCKET";
/// The environment variable of the quarantine's bucket.
pub const QUARANTINE_BUCKET: &str = "QUARANTINE_BUCKET";
/// The environment variable of the slots table.
pub const SLOTS_TABLE: &str = "SLOTS_TABLE";
/// The environment variable of the totals table.
pub const TOTALS_TABLE: &str = "TOTALS_TABLE";
/// The environment variable of the table whose items are versioned.
pub const VERSIONED_TABLE: &str = "VERSIONED_TABLE";
/// The environment variable of the history table.
pub const HISTORY_TABLE: &str = "HISTORY_TABLE";

/// The environment variable of the fan-out rules.
pub const FAN_OUT_RULES: &str = "FAN_OUT_RULES";
/// The environment variable of the jobs table.
pub const JOBS_TABLE: &str = "JOBS_TABLE";

/// Upper bound of the days for which versions are kept: a hundred years.
const KEEP_DAYS_MAX: u32 = 36_500;

/// The environment variable of the migrations' control table.
pub const CONTROL_TABLE: &str = "CONTROL_TABLE";

/// A bucket of S3 and a prefix in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The bucket.
    pub bucket: String,
    /// Prefix of all object names. It is empty or ends in `/`.
    pub prefix: String,
}

/// Settings of the function `archive`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveSettings {
    /// `ARCHIVE_COLUMNS` (default: none), `ARCHIVE_TTL_ATTRIBUTE` (default: none) and
    /// `ARCHIVE_DELETES` (default: `ttl`). The values of `ARCHIVE_DELETES` are `ttl`, `expired`,
    /// which compares the TTL attribute, and `all`.
    pub rule: Archive,
    /// `ARCHIVE_BUCKET` and `ARCHIVE_PREFIX` (default: `archive/`).
    pub archive: Place,
    /// `QUARANTINE_BUCKET` and `QUARANTINE_PREFIX` (default: `quarantine/`).
    pub quarantine: Place,
}

/// Settings of the function `archive-maintenance`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaintenanceSettings {
    /// `ARCHIVE_BUCKET` and `ARCHIVE_PREFIX` (default: `archive/`).
    pub archive: Place,
    /// `ERASURES_PREFIX` (default: `erasures/`): the prefix of receipts, in the same bucket.
    pub receipts_prefix: String,
}

/// Settings of the function `counters`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountersSettings {
    /// `SLOT_COUNT` (1 to 1,000), `SLOT_KEY` and `SLOT_VALUE`.
    pub rule: Counters,
    /// `SLOTS_TABLE`.
    pub slots_table: String,
    /// `TOTALS_TABLE`.
    pub totals_table: String,
    /// `TOTAL_KEY`: the partition key attribute of the totals table.
    pub total_key: String,
    /// `QUARANTINE_BUCKET` and `QUARANTINE_PREFIX` (default: `quarantine/`).
    pub quarantine: Place,
}

/// Settings of the function `versions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionsSettings {
    /// `VERSIONED_TABLE`.
    pub rule: Versions,
    /// `HISTORY_TABLE`.
    pub history_table: String,
    /// `KEEP_LAST` (default: all versions, or 1 with `KEEP_DAYS`) and `KEEP_DAYS` (default: 0).
    pub retention: Retention,
    /// `QUARANTINE_BUCKET` and `QUARANTINE_PREFIX` (default: `quarantine/`).
    pub quarantine: Place,
}

/// Settings of the function `fan-out`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FanOutSettings {
    /// `FAN_OUT_RULES` and `JOBS_TABLE`.
    pub rule: FanOut,
    /// `QUARANTINE_BUCKET` and `QUARANTINE_PREFIX` (default: `quarantine/`).
    pub quarantine: Place,
}

/// Invalid settings, with the list of all problems.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct SettingsError(Vec<String>);

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wrong environment variables: {}", self.0.join("; "))
    }
}

/// A function that returns the value of an environment variable, or `None` if the variable is not set.
pub type Lookup<'l> = &'l dyn Fn(&str) -> Option<String>;

/// Settings of the function `migration`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationSettings {
    /// `CONTROL_TABLE`.
    pub control_table: String,
    /// `QUARANTINE_BUCKET` and `QUARANTINE_PREFIX` (default: `quarantine/`).
    pub quarantine: Place,
}

impl MigrationSettings {
    /// Reads the settings.
    ///
    /// # Errors
    /// When the settings are invalid; the error lists all problems.
    pub fn read(lookup: Lookup<'_>) -> Result<Self, SettingsError> {
        let mut reader = Reader { lookup, problems: Vec::new() };
        let settings =
            Self { control_table: reader.table(CONTROL_TABLE), quarantine: reader.quarantine() };
        reader.finish(settings)
    }
}

impl ArchiveSettings {
    /// Reads the settings.
    ///
    /// # Errors
    /// When the settings are invalid; the error lists all problems.
    pub fn read(lookup: Lookup<'_>) -> Result<Self, SettingsError> {
        let mut reader = Reader { lookup, problems: Vec::new() };
        let declaration = reader.optional("ARCHIVE_COLUMNS").unwrap_or_default();
        let declared = Declaration::parse(&declaration).unwrap_or_else(|error| {
            reader.problems.push(format!("ARCHIVE_COLUMNS: {error}"));
            Declaration::default()
        });
        let archive = reader.place(ARCHIVE_BUCKET, "ARCHIVE_PREFIX", "archive/");
        let settings = Self {
            rule: Archive {
                columns: declared.columns,
                discover: declared.discover,
                ttl_attribute: reader.optional("ARCHIVE_TTL_ATTRIBUTE"),
                deletes: reader.deletes(),
                archive: Some(restored::archive_name(&archive.bucket, &archive.prefix)),
                ..Archive::default()
            },
            archive,
            quarantine: reader.quarantine(),
        };
        if settings.rule.deletes == Deletes::Expired && settings.rule.ttl_attribute.is_none() {
            reader.problems.push(
                "ARCHIVE_DELETES=`expired` needs ARCHIVE_TTL_ATTRIBUTE, which is not set; set it to the attribute with the time to live".to_owned(),
            );
        }
        reader.finish(settings)
    }
}

impl MaintenanceSettings {
    /// Reads the settings.
    ///
    /// # Errors
    /// When the settings are invalid; the error lists all problems.
    pub fn read(lookup: Lookup<'_>) -> Result<Self, SettingsError> {
        let mut reader = Reader { lookup, problems: Vec::new() };
        let settings = Self {
            archive: reader.place(ARCHIVE_BUCKET, "ARCHIVE_PREFIX", "archive/"),
            receipts_prefix: reader.prefix("ERASURES_PREFIX", "erasures/"),
        };
        if settings.receipts_prefix.starts_with(&settings.archive.prefix) {
            reader.problems.push(format!(
                "ERASURES_PREFIX=`{}` is inside the archive, where readers of the archive would find receipts; write a prefix outside `{}`",
                settings.receipts_prefix, settings.archive.prefix
            ));
        }
        reader.finish(settings)
    }
}

impl CountersSettings {
    /// Reads the settings.
    ///
    /// # Errors
    /// When the settings are invalid; the error lists all problems.
    pub fn read(lookup: Lookup<'_>) -> Result<Self, SettingsError> {
        let mut reader = Reader { lookup, problems: Vec::new() };
        let settings = Self {
            slots_table: reader.table(SLOTS_TABLE),
            totals_table: reader.table(TOTALS_TABLE),
            rule: Counters {
                slot_count: reader.slot_count(),
                slot_key: reader.required("SLOT_KEY", "the slots table's partition key attribute"),
                slot_value: reader
                    .required("SLOT_VALUE", "the attribute that holds a slot's value"),
            },
            total_key: reader.required("TOTAL_KEY", "the totals table's partition key attribute"),
            quarantine: reader.quarantine(),
        };
        if settings.slots_table == settings.totals_table && !settings.slots_table.is_empty() {
            reader.problems.push(format!(
                "TOTALS_TABLE=`{}` is also SLOTS_TABLE: writing totals would invoke this function again; use two tables",
                settings.totals_table
            ));
        }
        if TOTAL_ATTRIBUTES.contains(&settings.total_key.as_str()) {
            reader.problems.push(format!(
                "TOTAL_KEY=`{}` is reserved: every total has this attribute; use another name for the key of the totals table",
                settings.total_key
            ));
        }
        reader.finish(settings)
    }
}

impl VersionsSettings {
    /// Reads the settings.
    ///
    /// # Errors
    /// When the settings are invalid; the error lists all problems.
    pub fn read(lookup: Lookup<'_>) -> Result<Self, SettingsError> {
        let mut reader = Reader { lookup, problems: Vec::new() };
        let keep_days = reader.count("KEEP_DAYS", u64::from(KEEP_DAYS_MAX));
        let keep_days = keep_days.and_then(|days| u32::try_from(days).ok()).unwrap_or(0);
        // 0 counts as not set, because a template parameter always has a value.
        let keep_last = reader.count("KEEP_LAST", VERSION_NUMBER_MAX).filter(|last| *last > 0);
        let keep_last = keep_last.or((keep_days > 0).then_some(1));
        let settings = Self {
            rule: Versions { table: reader.table(VERSIONED_TABLE) },
            history_table: reader.table(HISTORY_TABLE),
            retention: Retention { keep_last, keep_days },
            quarantine: reader.quarantine(),
        };
        if settings.rule.table == settings.history_table && !settings.history_table.is_empty() {
            reader.problems.push(format!(
                "HISTORY_TABLE=`{}` is also VERSIONED_TABLE: versions would be versioned too; use two tables",
                settings.history_table
            ));
        }
        reader.finish(settings)
    }
}

impl FanOutSettings {
    /// Reads the settings.
    ///
    /// # Errors
    /// When the settings are invalid; the error lists all problems.
    pub fn read(lookup: Lookup<'_>) -> Result<Self, SettingsError> {
        let mut reader = Reader { lookup, problems: Vec::new() };
        // The text is not trimmed, because error messages contain line and column.
        let text = (reader.lookup)(FAN_OUT_RULES).unwrap_or_default();
        let rules = parse_and_check(&text).unwrap_or_else(|error| {
            reader.problems.push(format!("{FAN_OUT_RULES}: {error}"));
            Vec::new()
        });
        let jobs_table = reader.table(JOBS_TABLE);
        if rules.iter().any(|rule| rule.origin == jobs_table || rule.target == jobs_table) {
            reader.problems.push(format!(
                "JOBS_TABLE=`{jobs_table}` is also a table of a rule; use a separate table for jobs"
            ));
        }
        let settings = Self { rule: FanOut { rules, jobs_table }, quarantine: reader.quarantine() };
        reader.finish(settings)
    }
}

struct Reader<'l> {
    lookup: Lookup<'l>,
    problems: Vec<String>,
}

impl Reader<'_> {
    /// Returns the value of a variable. An empty value counts as not set.
    fn optional(&self, name: &str) -> Option<String> {
        (self.lookup)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn required(&mut self, name: &str, meaning: &str) -> String {
        self.optional(name).unwrap_or_else(|| {
            self.problems.push(format!("{name} is not set; set it to {meaning}"));
            String::new()
        })
    }

    fn table(&mut self, name: &str) -> String {
        let table = self.required(name, "the name of a table");
        let is_name = (TABLE_NAME_LENGTH_MIN..=TABLE_NAME_LENGTH_MAX).contains(&table.len())
            && table.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        if !is_name && !table.is_empty() {
            self.problems.push(format!(
                "{name}=`{table}` is not a table name; write only the name, 3 to 255 of a-z, A-Z, 0-9, `_`, `-` and `.`"
            ));
        }
        table
    }

    /// Returns the number in a variable, from 0 to `max` inclusive; `None` if the variable is not
    /// set.
    fn count(&mut self, name: &str, max: u64) -> Option<u64> {
        let text = self.optional(name)?;
        let count = text.parse().ok().filter(|count| *count <= max);
        if count.is_none() {
            self.problems.push(format!(
                "{name}=`{text}` is out of range; write a number from 0 to {max}, 0 for no limit"
            ));
        }
        count
    }

    fn deletes(&mut self) -> Deletes {
        match self.optional("ARCHIVE_DELETES").as_deref() {
            None | Some("ttl") => Deletes::TimeToLive,
            Some("expired") => Deletes::Expired,
            Some("all") => Deletes::All,
            Some(other) => {
                self.problems.push(format!(
                    "ARCHIVE_DELETES=`{other}` is not one of ttl, expired and all; write `ttl` to archive only the items that TTL deletes"
                ));
                Deletes::TimeToLive
            }
        }
    }

    fn slot_count(&mut self) -> u32 {
        let text = self.required("SLOT_COUNT", "the number of slots of each counter");
        match text.parse() {
            Ok(count) if (1..=SLOT_COUNT_MAX).contains(&count) => count,
            _ => {
                if !text.is_empty() {
                    self.problems.push(format!(
                        "SLOT_COUNT=`{text}` is out of range; write a number from 1 to {SLOT_COUNT_MAX}"
                    ));
                }
                1
            }
        }
    }

    fn quarantine(&mut self) -> Place {
        self.place(QUARANTINE_BUCKET, "QUARANTINE_PREFIX", "quarantine/")
    }

    fn place(&mut self, bucket_name: &str, prefix_name: &str, prefix_default: &str) -> Place {
        let bucket = self.required(bucket_name, "the name of an S3 bucket");
        let is_name = (3..=63).contains(&bucket.len())
            && bucket
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b));
        if !is_name && !bucket.is_empty() {
            self.problems.push(format!(
                "{bucket_name}=`{bucket}` is not a bucket name; write only the name, 3 to 63 of a-z, 0-9, `-` and `.`"
            ));
        }
        let prefix = self.prefix(prefix_name, prefix_default);
        Place { bucket, prefix }
    }

    fn prefix(&mut self, prefix_name: &str, prefix_default: &str) -> String {
        let prefix = self.optional(prefix_name).unwrap_or_else(|| prefix_default.to_owned());
        // A prefix may become a file path, so no component may be empty or consist of dots.
        let is_prefix = prefix
            .strip_suffix('/')
            .is_some_and(|path| path.split('/').all(|name| !matches!(name, "" | "." | "..")));
        if !is_prefix {
            self.problems.push(format!(
                "{prefix_name}=`{prefix}` is not a prefix; write one or more names that each end in `/`, such as `{prefix_default}`"
            ));
        }
        prefix
    }

    fn finish<T>(self, settings: T) -> Result<T, SettingsError> {
        if self.problems.is_empty() { Ok(settings) } else { Err(SettingsError(self.problems)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARCHIVE: &[(&str, &str)] =
        &[("ARCHIVE_BUCKET", "weir-archive"), ("QUARANTINE_BUCKET", "weir-archive")];
    const COUNTERS: &[(&str, &str)] = &[
        ("SLOTS_TABLE", "slots"),
        ("TOTALS_TABLE", "totals"),
        ("SLOT_COUNT", "20"),
        ("SLOT_KEY", "slot"),
        ("SLOT_VALUE", "votes"),
        ("TOTAL_KEY", "counter"),
        ("QUARANTINE_BUCKET", "weir-archive"),
    ];

    const VERSIONS: &[(&str, &str)] = &[
        ("VERSIONED_TABLE", "movies"),
        ("HISTORY_TABLE", "movies-history"),
        ("QUARANTINE_BUCKET", "weir-archive"),
    ];

    #[test]
    fn versions_are_kept_as_long_as_the_settings_say() {
        for (last, days, expected) in [
            ("", "", (None, 0)),
            ("0", "0", (None, 0)),
            ("5", "", (Some(5), 0)),
            ("", "30", (Some(1), 30)),
            ("3", "7", (Some(3), 7)),
        ] {
            let changes = [("KEEP_LAST", last), ("KEEP_DAYS", days)];
            let settings = read(VERSIONS, &changes, VersionsSettings::read).unwrap();
            let (keep_last, keep_days) = expected;
            assert_eq!(settings.retention, Retention { keep_last, keep_days });
        }
        for (change, expected) in [
            (
                ("KEEP_LAST", "few"),
                "KEEP_LAST=`few` is out of range; write a number from 0 to 9999999999, 0 for no limit",
            ),
            (
                ("KEEP_DAYS", "40000"),
                "KEEP_DAYS=`40000` is out of range; write a number from 0 to 36500, 0 for no limit",
            ),
            (
                ("HISTORY_TABLE", "movies"),
                "HISTORY_TABLE=`movies` is also VERSIONED_TABLE: versions would be versioned too; use two tables",
            ),
        ] {
            let message = read(VERSIONS, &[change], VersionsSettings::read).unwrap_err();
            assert_eq!(message, format!("wrong environment variables: {expected}"));
        }
    }

    #[test]
    fn rules_of_fan_out_are_read_and_checked() {
        let rules = "- {name: x, from: aaa, to: bbb, index: i, key: {b: a}, attributes: {n: n}, on-delete: keep}";
        let base: &[(&str, &str)] = &[
            ("FAN_OUT_RULES", rules),
            ("JOBS_TABLE", "jobs"),
            ("QUARANTINE_BUCKET", "weir-archive"),
        ];
        let settings = read(base, &[], FanOutSettings::read).unwrap();
        assert_eq!((settings.rule.rules.len(), settings.rule.jobs_table.as_str()), (1, "jobs"));
        let loop_back = rules.replace("to: bbb", "to: aaa");
        for (change, expected) in [
            (
                ("JOBS_TABLE", "aaa"),
                "JOBS_TABLE=`aaa` is also a table of a rule; use a separate table for jobs"
                    .to_owned(),
            ),
            (
                ("FAN_OUT_RULES", ""),
                "FAN_OUT_RULES: line 1, column 1: expected at least one rule (in ``)".to_owned(),
            ),
            (
                ("FAN_OUT_RULES", loop_back.as_str()),
                format!(
                    "FAN_OUT_RULES: line 1, column 3: the rules feed each other: aaa.n -> aaa.n; break the loop (in `{loop_back}`)"
                ),
            ),
        ] {
            let message = read(base, &[change], FanOutSettings::read).unwrap_err();
            assert_eq!(message, format!("wrong environment variables: {expected}"));
        }
    }

    fn read<T>(
        base: &[(&str, &str)],
        changes: &[(&str, &str)],
        read: impl Fn(Lookup<'_>) -> Result<T, SettingsError>,
    ) -> Result<T, String> {
        let find = |list: &[(&str, &str)], name: &str| {
            list.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        let lookup = |name: &str| find(changes, name).or_else(|| find(base, name));
        read(&lookup).map_err(|error| error.to_string())
    }

    #[test]
    fn the_least_settings_have_defaults() {
        let archive = read(ARCHIVE, &[], ArchiveSettings::read).unwrap();
        let name = Some("weir-archive/archive/".to_owned());
        assert_eq!(archive.rule, Archive { archive: name, ..Archive::default() });
        assert_eq!(
            (archive.archive.prefix, archive.quarantine.prefix),
            ("archive/".to_owned(), "quarantine/".to_owned())
        );
        let expired = [("ARCHIVE_DELETES", "expired"), ("ARCHIVE_TTL_ATTRIBUTE", "expires_at")];
        let expired = read(ARCHIVE, &expired, ArchiveSettings::read).unwrap();
        assert_eq!(expired.rule.deletes, Deletes::Expired);
        let counters = read(COUNTERS, &[], CountersSettings::read).unwrap();
        assert_eq!((counters.rule.slot_count, counters.total_key.as_str()), (20, "counter"));
    }

    #[test]
    fn receipts_are_not_kept_inside_of_the_archive() {
        assert_eq!(
            read(ARCHIVE, &[("ERASURES_PREFIX", "archive/erasures/")], MaintenanceSettings::read)
                .unwrap_err(),
            "wrong environment variables: ERASURES_PREFIX=`archive/erasures/` is inside the archive, where readers of the archive would find receipts; write a prefix outside `archive/`"
        );
    }

    #[test]
    fn every_problem_names_its_variable_and_a_remedy() {
        for (changes, expected) in [
            (&[("SLOTS_TABLE", " ")][..], "SLOTS_TABLE is not set; set it to the name of a table"),
            (
                &[("TOTALS_TABLE", "arn:aws:x")],
                "TOTALS_TABLE=`arn:aws:x` is not a table name; write only the name, 3 to 255 of a-z, A-Z, 0-9, `_`, `-` and `.`",
            ),
            (
                &[("TOTALS_TABLE", "slots")],
                "TOTALS_TABLE=`slots` is also SLOTS_TABLE: writing totals would invoke this function again; use two tables",
            ),
            (
                &[("SLOT_COUNT", "0")],
                "SLOT_COUNT=`0` is out of range; write a number from 1 to 1000",
            ),
            (
                &[("SLOT_COUNT", "1001")],
                "SLOT_COUNT=`1001` is out of range; write a number from 1 to 1000",
            ),
            (
                &[("SLOT_COUNT", "many")],
                "SLOT_COUNT=`many` is out of range; write a number from 1 to 1000",
            ),
            (
                &[("SLOT_KEY", "")],
                "SLOT_KEY is not set; set it to the slots table's partition key attribute",
            ),
            (
                &[("SLOT_VALUE", "")],
                "SLOT_VALUE is not set; set it to the attribute that holds a slot's value",
            ),
            (
                &[("TOTAL_KEY", "revision")],
                "TOTAL_KEY=`revision` is reserved: every total has this attribute; use another name for the key of the totals table",
            ),
            (
                &[("QUARANTINE_BUCKET", ""), ("SLOT_COUNT", "")],
                "SLOT_COUNT is not set; set it to the number of slots of each counter; QUARANTINE_BUCKET is not set; set it to the name of an S3 bucket",
            ),
        ] {
            let message = read(COUNTERS, changes, CountersSettings::read).unwrap_err();
            assert_eq!(message, format!("wrong environment variables: {expected}"));
        }
    }

    #[test]
    fn every_problem_of_an_archive_names_its_variable_and_a_remedy() {
        for (changes, expected) in [
            (
                ("ARCHIVE_BUCKET", "s3://b/x"),
                "ARCHIVE_BUCKET=`s3://b/x` is not a bucket name; write only the name, 3 to 63 of a-z, 0-9, `-` and `.`",
            ),
            (
                ("ARCHIVE_PREFIX", "archive"),
                "ARCHIVE_PREFIX=`archive` is not a prefix; write one or more names that each end in `/`, such as `archive/`",
            ),
            (
                ("QUARANTINE_PREFIX", "/"),
                "QUARANTINE_PREFIX=`/` is not a prefix; write one or more names that each end in `/`, such as `quarantine/`",
            ),
            (
                ("ARCHIVE_PREFIX", "a/../b/"),
                "ARCHIVE_PREFIX=`a/../b/` is not a prefix; write one or more names that each end in `/`, such as `archive/`",
            ),
            (
                ("ARCHIVE_DELETES", "expired"),
                "ARCHIVE_DELETES=`expired` needs ARCHIVE_TTL_ATTRIBUTE, which is not set; set it to the attribute with the time to live",
            ),
            (
                ("ARCHIVE_COLUMNS", "info.rating"),
                "ARCHIVE_COLUMNS: column `info.rating` is not of the form PATH:TYPE, such as `info.rating:decimal(4,1)`; types are string, bigint, decimal(p,s), boolean, binary, json",
            ),
        ] {
            let message = read(ARCHIVE, &[changes], ArchiveSettings::read).unwrap_err();
            assert_eq!(message, format!("wrong environment variables: {expected}"));
        }
    }
}
