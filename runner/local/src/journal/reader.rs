//! Reads the journal, oldest line first.
//!
//! It skips unreadable lines: the last line may be incomplete, and a line of a later version may be of
//! an unknown kind.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::entry::{Entry, Line, RecordName};

/// The reason why the journal cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// There is no journal.
    #[error(
        "no journal in `{folder}`: start `weir up`, which writes the journal, or name the data folder of `weir up` with --directory"
    )]
    Missing {
        /// The folder where the journal must be.
        folder: PathBuf,
    },
    /// A file cannot be read.
    #[error("cannot read the journal `{path}`: {source}")]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// The lines of a journal.
pub struct Reader {
    segments: std::vec::IntoIter<PathBuf>,
    lines: Option<io::Lines<BufReader<File>>>,
    left_out: LeftOut,
}

/// The rules by which a reader skips deliveries and their results without parsing them.
#[derive(Default)]
struct LeftOut {
    /// Skip deliveries before this time, in milliseconds since 1970.
    before_ms: Option<i64>,
    /// Skip deliveries of mappings that are not in this list.
    but_of: Option<Vec<String>>,
    /// Skip deliveries of mappings whose table is not in this list.
    but_of_tables: Option<Vec<String>>,
    /// The mappings whose table is not in `but_of_tables`, according to the lines read so far.
    of_others: BTreeSet<String>,
    /// Whether the reader has returned a delivery. Results before that belong to skipped
    /// deliveries.
    is_past: bool,
}

impl Reader {
    /// Opens the journal in a folder.
    ///
    /// # Errors
    /// There is no journal, or the folder cannot be read.
    pub fn open(folder: &Path) -> Result<Self, JournalError> {
        Self::open_newest(folder, usize::MAX)
    }

    /// Opens the newest segments of the journal in a folder, at most `count`. Each segment begins with the run
    /// and its mappings.
    ///
    /// # Errors
    /// There is no journal, or the folder cannot be read.
    pub fn open_newest(folder: &Path, count: usize) -> Result<Self, JournalError> {
        let mut segments = match segments(folder) {
            Ok(segments) if !segments.is_empty() => segments,
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(JournalError::Unreadable { path: folder.to_owned(), source });
            }
            _ => return Err(JournalError::Missing { folder: folder.to_owned() }),
        };
        let older = segments.len().saturating_sub(count);
        let paths: Vec<_> = segments.drain(older..).map(|(_, path)| path).collect();
        Ok(Self { segments: paths.into_iter(), lines: None, left_out: LeftOut::default() })
    }

    /// Skips deliveries before this time of the store, without parsing them. They contain no record
    /// that was created at or after this time, because the store's time never decreases.
    #[must_use]
    pub fn since(mut self, since_ms: Option<i64>) -> Self {
        self.left_out.before_ms = since_ms;
        self
    }

    /// Skips deliveries of mappings that are not in `mappings`, without parsing them.
    #[must_use]
    pub fn of_mappings(mut self, mappings: Vec<String>) -> Self {
        self.left_out.but_of = Some(mappings);
        self
    }

    /// Skips deliveries of mappings whose table is not in `tables`, without parsing them.
    #[must_use]
    pub fn of_tables(mut self, tables: Vec<String>) -> Self {
        self.left_out.but_of_tables = Some(tables);
        self
    }
}

impl LeftOut {
    /// Returns whether a line is skipped.
    fn has(&mut self, line: &str) -> bool {
        if self.before_ms.is_none() && self.but_of.is_none() && self.but_of_tables.is_none() {
            return false;
        }
        let is_delivery = match text_of(line, "kind") {
            Some("invoked" | "passed-over" | "passed-over-more" | "gave-up") => true,
            Some("succeeded" | "failed") => false,
            Some("mapping") => {
                self.learn(line);
                return false;
            }
            _ => return false,
        };
        let mapping = text_of(line, "mapping");
        let is_other =
            |of: &Vec<String>| mapping.is_some_and(|own| !of.iter().any(|mapping| mapping == own));
        if self.but_of.as_ref().is_some_and(is_other)
            || mapping.is_some_and(|own| self.of_others.contains(own))
        {
            return true;
        }
        let is_older =
            |before_ms: i64| is_delivery && time_of(line).is_some_and(|at_ms| at_ms < before_ms);
        self.is_past |= is_delivery && !self.before_ms.is_some_and(is_older);
        !self.is_past || self.before_ms.is_some_and(is_older)
    }
}

impl LeftOut {
    /// Records whether a mapping reads a table that is not wanted. A later run may use the
    /// mapping's name for a mapping of a wanted table.
    fn learn(&mut self, line: &str) {
        let names = text_of(line, "mapping").zip(text_of(line, "table"));
        let (Some(tables), Some((mapping, table))) = (&self.but_of_tables, names) else { return };
        if tables.iter().any(|wanted| wanted == table) {
            self.of_others.remove(mapping);
        } else {
            self.of_others.insert(mapping.to_owned());
        }
    }
}

/// Returns the string value of a member without parsing the line. The search cannot match inside
/// another string, because quotes are escaped there.
fn text_of<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    let (_, behind) = line.split_once(&format!("\"{name}\":\""))?;
    behind.split('"').next()
}

/// Returns the time of a line without parsing the line.
fn time_of(line: &str) -> Option<i64> {
    line.split_once("\"at_ms\":")?.1.split([',', '}']).next()?.parse().ok()
}

impl Iterator for Reader {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        loop {
            if let Some(lines) = &mut self.lines {
                // A read error counts as the end of the file.
                while let Some(Ok(text)) = lines.next() {
                    if !self.left_out.has(&text)
                        && let Ok(line) = serde_json::from_str(&text)
                    {
                        return Some(line);
                    }
                }
            }
            let path = self.segments.next()?;
            // The segment may have been removed meanwhile.
            self.lines = File::open(path).ok().map(|file| BufReader::new(file).lines());
        }
    }
}

/// Returns the newest record in the journal, of one table or of any table.
#[must_use]
pub fn newest_record(lines: impl Iterator<Item = Line>, table: Option<&str>) -> Option<RecordName> {
    let mut of_table = BTreeSet::new();
    let mut newest = None;
    for line in lines {
        match line.entry {
            Entry::Mapping { mapping, table: own, .. }
                if table.is_none_or(|table| table == own) =>
            {
                of_table.insert(mapping);
            }
            Entry::PassedOver { mapping, record, .. } if of_table.contains(&mapping) => {
                newest = Some(record);
            }
            Entry::Invoked { mapping, records, attempt: 1, .. } if of_table.contains(&mapping) => {
                newest = records.into_iter().next_back().or(newest);
            }
            _ => {}
        }
    }
    newest
}

/// Returns the `count` records of an invocation from the record `first` to the record `last`, if the
/// journal has such an invocation. They are a batch or a part of a batch. The shard may have more
/// records in this range, which the filter rejected or other lanes processed.
#[must_use]
pub fn records_between(
    lines: impl Iterator<Item = Line>,
    mapping: &str,
    shard: &str,
    (first, last): (&str, &str),
    count: usize,
) -> Option<Vec<String>> {
    let mut found = None;
    for line in lines {
        let Entry::Invoked { mapping: own, shard: of, records, .. } = line.entry else { continue };
        if own != mapping || of != shard {
            continue;
        }
        let place = |wanted: &str| records.iter().position(|record| record.sequence() == wanted);
        let (Some(start), Some(end)) = (place(first), place(last)) else { continue };
        let piece = records.get(start..=end).unwrap_or_default();
        if piece.len() == count {
            found = Some(piece.iter().map(|record| record.sequence().to_owned()).collect());
        }
    }
    found
}

/// Returns the segments in a folder, oldest first.
pub(super) fn segments(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let number = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_suffix(".ndjson"))
            .and_then(|stem| stem.parse::<u64>().ok());
        segments.extend(number.map(|number| (number, path.clone())));
    }
    segments.sort();
    Ok(segments)
}

pub(super) fn segment_path(folder: &Path, segment: u64) -> PathBuf {
    folder.join(format!("{segment:08}.ndjson"))
}

/// Returns the run to which a segment belongs.
pub(super) fn run_of(segment: &Path) -> Option<u64> {
    let mut first = String::new();
    BufReader::new(File::open(segment).ok()?).read_line(&mut first).ok()?;
    serde_json::from_str::<Line>(&first).ok().map(|line| line.run)
}
