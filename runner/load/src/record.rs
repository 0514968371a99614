//! The local record of a counting load: which file was counted, and how.
//!
//! The store rejects a line of the same file if it is already counted (see `mark`). It cannot
//! detect that the file was changed after an interrupted load, or that another run used other
//! slots. The record in `.weir/loads` shows both, so such a run is refused before it counts
//! anything.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::mark::hash_of;
use client::failure::{Context, Failure, Result, fatal, refused};

const SCHEMA: &str = "weir.counting-load/v1";

/// A load of a file into the slots of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    schema: String,
    /// The destination of the counts. A load with a different destination is a different load.
    pub(super) into: Destination,
    /// The file's path, or `-` for standard input.
    pub(super) file: String,
    pub(super) content: String,
    pub(super) how: CountSettings,
    /// Whether the load is complete.
    pub(super) is_complete: bool,
}

/// The destination of counts: the store, the table, the count attribute, and the name of the load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Destination {
    pub(super) endpoint: String,
    pub(super) table: String,
    pub(super) count_attribute: String,
    pub(super) name: String,
}

/// The flags that decide to which slot a line belongs, and how many lines precede it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CountSettings {
    pub(super) counter: String,
    pub(super) voter: String,
    pub(super) amount: Option<String>,
    pub(super) slots: u32,
    pub(super) format: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) separator: Option<char>,
}

impl CountSettings {
    /// Returns the first flag that differs, with its value in the record and its current value.
    fn difference(&self, now: &Self) -> Option<(&'static str, String, String)> {
        let none = || "none".to_owned();
        let pairs = [
            ("--count-into", self.counter.clone(), now.counter.clone()),
            ("--voter", self.voter.clone(), now.voter.clone()),
            (
                "--amount",
                self.amount.clone().unwrap_or_else(none),
                now.amount.clone().unwrap_or_else(none),
            ),
            ("--slots", self.slots.to_string(), now.slots.to_string()),
            ("--format", self.format.clone(), now.format.clone()),
            (
                "--separator",
                self.separator.map_or_else(none, String::from),
                now.separator.map_or_else(none, String::from),
            ),
        ];
        pairs.into_iter().find(|(_, before, now)| before != now)
    }
}

impl Record {
    pub(super) fn new(
        into: Destination,
        file: String,
        content: String,
        how: CountSettings,
    ) -> Self {
        Self { schema: SCHEMA.to_owned(), into, file, content, how, is_complete: false }
    }

    /// Returns the name of the mark that this load writes into slots.
    pub(super) fn mark(&self) -> String {
        let Destination { count_attribute, name, .. } = &self.into;
        super::mark::attribute(&self.content, count_attribute, name)
    }

    /// Returns the path of the record. Every content of standard input has its own record.
    pub(super) fn path(&self, folder: &Path) -> PathBuf {
        let Destination { endpoint, table, count_attribute, name } = &self.into;
        let content = if self.file == super::input::STANDARD_INPUT { &self.content } else { "" };
        let hash = hash_of(&[endpoint, table, count_attribute, name, &self.file, content]);
        folder.join(format!("{hash:032x}.json"))
    }

    /// Reads the record of an earlier load of the file, if there is one.
    ///
    /// # Errors
    /// When a record exists and cannot be read.
    pub(super) fn earlier(&self, folder: &Path) -> Result<Option<Self>> {
        let path = self.path(folder);
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unread(&path, &error)),
            Ok(text) => text,
        };
        let earlier: Self = serde_json::from_slice(&text).map_err(|error| unread(&path, &error))?;
        match earlier.schema == SCHEMA {
            true => Ok(Some(earlier)),
            false => Err(unread(&path, &format!("its schema is `{}`", earlier.schema))),
        }
    }

    /// Refuses a load that would count lines of an earlier load again.
    ///
    /// # Errors
    /// A refusal with its reason, and what to do instead.
    pub(super) fn check_after(&self, earlier: &Self) -> Result<()> {
        let file = &self.file;
        if earlier.content != self.content {
            return match earlier.is_complete {
                true => Ok(()),
                false => Err(refused!(
                    "`{file}` was changed after its load was interrupted, and lines that are already counted would be counted twice; restore the previous content and rerun the load to completion, or add --load-name NAME to count every line of the changed file"
                )),
            };
        }
        match earlier.how.difference(&self.how) {
            None => Ok(()),
            Some((flag, before, now)) => Err(refused!(
                "`{file}` was counted with {flag} `{before}`; with `{now}`, lines would be counted twice, in different slots; use {flag} `{before}`, or add --load-name NAME to count every line again"
            )),
        }
    }

    /// Writes the record atomically.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub(super) fn keep(&self, folder: &Path) -> Result<()> {
        let path = self.path(folder);
        let write = || {
            let json = serde_json::to_vec(self)?;
            std::fs::create_dir_all(folder)?;
            let mut new = tempfile::NamedTempFile::new_in(folder)?;
            new.write_all(&json)?;
            new.as_file().sync_all()?;
            new.persist(&path).map(drop).map_err(|error| error.error)
        };
        write().context(|| format!("cannot write `{}`", path.display()))
    }
}

fn unread(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    fatal!(
        "cannot read the record of an earlier load `{}`: {why}; remove the file if that load is complete",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(content: &str) -> Record {
        let into = Destination {
            endpoint: "http://127.0.0.1:8000".to_owned(),
            table: "votes".to_owned(),
            count_attribute: "votes".to_owned(),
            name: String::new(),
        };
        let how = CountSettings {
            counter: "{c}".to_owned(),
            voter: "v".to_owned(),
            amount: None,
            slots: 20,
            format: "Csv".to_owned(),
            separator: None,
        };
        Record::new(into, "points.csv".to_owned(), content.to_owned(), how)
    }

    #[test]
    fn a_second_run_is_refused_where_it_would_count_lines_again() {
        let folder = tempfile::tempdir().unwrap();
        let first = record("a-1");
        assert_eq!(first.earlier(folder.path()), Ok(None));
        first.keep(folder.path()).unwrap();
        let earlier = || first.earlier(folder.path()).unwrap().unwrap();
        assert_eq!(earlier(), first);
        assert_eq!(first.check_after(&earlier()), Ok(()));
        let refused = record("b-1").check_after(&earlier()).unwrap_err().to_string();
        assert!(refused.contains("was changed after its load"), "{refused}");
        let fewer =
            Record { how: CountSettings { slots: 5, ..first.how.clone() }, ..first.clone() };
        let refused = fewer.check_after(&earlier()).unwrap_err().to_string();
        assert!(refused.contains("--slots `20`") && refused.contains("with `5`"), "{refused}");

        let wider = CountSettings { separator: Some('|'), ..first.how.clone() };
        let refused =
            Record { how: wider, ..first.clone() }.check_after(&earlier()).unwrap_err().to_string();
        assert!(
            refused.contains("--separator `none`") && refused.contains("with `|`"),
            "{refused}"
        );

        let complete = Record { is_complete: true, ..first.clone() };
        complete.keep(folder.path()).unwrap();
        assert!(fewer.check_after(&earlier()).is_err(), "its lines are counted already");
        assert_eq!(record("b-1").check_after(&earlier()), Ok(()));
        std::fs::write(first.path(folder.path()), "{").unwrap();
        assert!(first.earlier(folder.path()).unwrap_err().to_string().contains("remove the file"));
    }

    #[test]
    fn each_load_has_a_record_of_its_own() {
        let (first, folder) = (record("a-1"), Path::new("loads"));
        let named = Destination { name: "again".to_owned(), ..first.into.clone() };
        let other = Record { into: named, ..first.clone() };
        assert_ne!(first.path(folder), other.path(folder));
        assert_eq!(first.path(folder), record("b-1").path(folder));
        let piped = |content: &str| Record { file: "-".to_owned(), ..record(content) };
        assert_ne!(piped("a-1").path(folder), piped("b-1").path(folder));
    }
}
