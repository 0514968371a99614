//! Reads the journal, oldest line first.
//!
//! It skips unreadable lines: the last line may be incomplete, and a line of a later version may be of
//! an unknown kind.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::entry::{Entry, Line, RecordName};
use super::line_text::{mapping_of, number_after, text_after};
use super::record_filter::RecordFilter;
use mapping::SequenceNumber;

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
    file: Option<BufReader<File>>,
    /// The current line, whose memory is reused.
    line: Vec<u8>,
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
    /// Skip deliveries without these records.
    but_of_records: Option<RecordFilter>,
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
        let (line, left_out) = (Vec::new(), LeftOut::default());
        Ok(Self { segments: paths.into_iter(), file: None, line, left_out })
    }

    /// Skips deliveries before this time of the store, without parsing them. They contain no record
    /// that was created at or after this time, because the store's time never decreases. Segments
    /// that have only earlier deliveries are not read.
    #[must_use]
    pub fn since(mut self, since_ms: Option<i64>) -> Self {
        self.left_out.before_ms = since_ms;
        if let Some(since_ms) = since_ms {
            let mut paths: Vec<PathBuf> = self.segments.collect();
            // A segment that begins before this time may also have later deliveries. Only segments
            // before the first newer one are left out, because one folder can have deliveries of
            // several stores, and each store has its own time.
            let is_older = |path: &PathBuf| begin_of(path).is_some_and(|at_ms| at_ms < since_ms);
            let first = paths.iter().skip(1).take_while(|path| is_older(path)).count();
            self.segments = paths.split_off(first).into_iter();
        }
        self
    }

    /// Skips deliveries without any of these records, without parsing them. The remaining lines
    /// suffice for the histories of these records.
    #[must_use]
    pub fn of_records(mut self, wanted: Vec<SequenceNumber>) -> Self {
        self.left_out.but_of_records = Some(RecordFilter::new(wanted));
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
        let Some(kind) = text_after(line, "\"kind\":\"") else { return false };
        if kind == "mapping" {
            self.learn(line);
        }
        let is_delivery = is_delivery(kind);
        if !is_delivery && !matches!(kind, "succeeded" | "failed") {
            return false;
        }
        self.is_of_others(line)
            || self.is_early(line, is_delivery)
            || self.but_of_records.as_mut().is_some_and(|records| !records.selects(line, kind))
    }

    /// Returns whether a line is about a mapping that is not wanted.
    fn is_of_others(&self, line: &str) -> bool {
        if self.but_of.is_none() && self.but_of_tables.is_none() {
            return false;
        }
        let Some(mapping) = mapping_of(line) else { return false };
        self.but_of.as_ref().is_some_and(|of| !of.iter().any(|it| it == mapping))
            || self.of_others.contains(mapping)
    }

    /// Returns whether a line is a delivery before the wanted time, or a result of such a delivery.
    fn is_early(&mut self, line: &str, is_delivery: bool) -> bool {
        let Some(before_ms) = self.before_ms else { return false };
        let at_ms = || number_after(line, "\"at_ms\":");
        let is_older = is_delivery && at_ms().is_some_and(|at_ms| at_ms < before_ms);
        self.is_past |= is_delivery && !is_older;
        !self.is_past || is_older
    }

    /// Records whether a mapping reads a table that is not wanted. A later run may use the
    /// mapping's name for a mapping of a wanted table.
    fn learn(&mut self, line: &str) {
        let names = mapping_of(line).zip(text_after(line, "\"table\":\""));
        let (Some(tables), Some((mapping, table))) = (&self.but_of_tables, names) else { return };
        if tables.iter().any(|wanted| wanted == table) {
            self.of_others.remove(mapping);
        } else {
            self.of_others.insert(mapping.to_owned());
        }
    }
}

/// Returns whether a line of this kind is about records that were read from a stream.
fn is_delivery(kind: &str) -> bool {
    matches!(kind, "invoked" | "passed-over" | "passed-over-more" | "gave-up")
}

/// Returns the time of the first delivery in a segment; `None` if the segment has none, or cannot be
/// read.
fn begin_of(segment: &Path) -> Option<i64> {
    let (mut file, mut line) = (BufReader::new(File::open(segment).ok()?), Vec::new());
    while read_line(&mut file, &mut line) {
        // The time precedes the names of the records, of which a line may have thousands.
        let text = str::from_utf8(&line).unwrap_or_default();
        if text_after(text, "\"kind\":\"").is_some_and(is_delivery) {
            return number_after(text, "\"at_ms\":");
        }
    }
    None
}

/// Reads a line. Returns false at the end of the file; a read error counts as the end.
fn read_line(file: &mut BufReader<File>, line: &mut Vec<u8>) -> bool {
    line.clear();
    file.read_until(b'\n', line).is_ok_and(|bytes| bytes > 0)
}

impl Iterator for Reader {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        loop {
            if let Some(file) = &mut self.file {
                while read_line(file, &mut self.line) {
                    if let Ok(text) = str::from_utf8(&self.line)
                        && !self.left_out.has(text)
                        && let Ok(line) = serde_json::from_str(text)
                    {
                        return Some(line);
                    }
                }
            }
            let path = self.segments.next()?;
            // The segment may have been removed meanwhile.
            self.file = File::open(path).ok().map(BufReader::new);
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
