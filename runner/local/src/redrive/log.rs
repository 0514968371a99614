//! The file of redrives, and the number of discarded records that the redrives cover. Redrives have
//! their own file, because only `weir up` writes the journal. `docs/formats/journal.md` has the format.
//!
//! The file is informational: a redrive takes place even if it cannot be recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::journal::{Entry, Reader, is_between};

/// The size in bytes at which the next redrive rotates the file. Only one rotated file exists at a
/// time. A redrive of the largest batch, 10,000 records, needs 240 KB.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// One redrive: a function was invoked again with discarded records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redrive {
    /// Time in milliseconds since 1970, by the store's clock.
    pub at_ms: i64,
    /// The function's name.
    pub function: String,
    /// The stream's ARN, if the failure object has it.
    #[serde(default)]
    pub stream: Option<String>,
    /// The shard, if the failure object has it. Lines of older versions lack it.
    #[serde(default)]
    pub shard: Option<String>,
    /// The sequence numbers of the records, in order.
    pub sequences: Vec<String>,
    /// The number of records at the beginning that the function processed.
    pub done: usize,
}

impl Redrive {
    /// Returns whether this redrive processed a record; `None` if it did not include the record.
    #[must_use]
    pub fn has_done(&self, function: &str, stream: &str, sequence: &str) -> Option<bool> {
        let is_own =
            self.function == function && self.stream.as_deref().is_none_or(|own| own == stream);
        let place = self.sequences.iter().position(|own| own == sequence)?;
        is_own.then_some(place < self.done)
    }
}

/// A batch that a mapping discarded.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'b> {
    /// The function's name.
    pub function: &'b str,
    /// The stream's ARN.
    pub stream: &'b str,
    /// The id of the shard.
    pub shard: &'b str,
    /// The time when the batch was discarded, in milliseconds since 1970.
    pub at_ms: i64,
    /// The sequence number of the first record.
    pub first: &'b str,
    /// The sequence number of the last record.
    pub last: &'b str,
}

/// Returns the number of records of a batch that were redriven and processed after it was discarded.
#[must_use]
pub fn done_of(redrives: &[Redrive], batch: Batch<'_>) -> usize {
    let Batch { function, stream, shard, at_ms, first, last } = batch;
    // The sequence numbers of several shards interleave, so the shard must match.
    let of_it = redrives
        .iter()
        .filter(|redrive| redrive.shard.as_deref() == Some(shard) && redrive.at_ms >= at_ms);
    let done: BTreeSet<&str> = of_it
        .flat_map(|redrive| {
            redrive.sequences.iter().map(String::as_str).filter(|sequence| {
                redrive.has_done(function, stream, sequence) == Some(true)
                    && is_between(sequence, first, last)
            })
        })
        .collect();
    done.len()
}

fn paths(directory: &Path) -> [PathBuf; 2] {
    ["redrives.old.ndjson", "redrives.ndjson"].map(|name| directory.join(name))
}

/// Appends a redrive.
///
/// # Errors
/// The file cannot be written.
pub fn note(directory: &Path, redrive: &Redrive) -> io::Result<()> {
    let [old, current] = paths(directory);
    if fs::metadata(&current).is_ok_and(|file| file.len() >= FILE_BYTES_MAX) {
        fs::rename(&current, old)?;
    }
    // The line begins with a newline, because the last line of the file may be incomplete.
    let line = format!("\n{}\n", serde_json::to_string(redrive)?);
    OpenOptions::new().create(true).append(true).open(current)?.write_all(line.as_bytes())
}

/// Returns all redrives, oldest first. Skips unreadable lines.
#[must_use]
pub fn read(directory: &Path) -> Vec<Redrive> {
    let files = paths(directory).into_iter().filter_map(|path| File::open(path).ok());
    let lines = files.flat_map(|file| BufReader::new(file).lines().map_while(Result::ok));
    lines.filter_map(|line| serde_json::from_str(&line).ok()).collect()
}

/// The numbers of a mapping's discarded records and of its redriven records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Redriven {
    /// The number of records that were discarded in the last run and are still in the journal.
    pub discarded: u64,
    /// The number of these records that were redriven and processed.
    pub done: u64,
}

/// Returns the numbers of discarded and redriven records of each mapping in the last run of `weir
/// up`.
#[must_use]
pub fn since_the_start(directory: &Path) -> BTreeMap<String, Redriven> {
    let redrives = read(directory);
    let lines = Reader::open(&directory.join("journal"));
    let (false, Ok(lines)) = (redrives.is_empty(), lines) else { return BTreeMap::new() };
    let (mut run, mut facts, mut mappings) = (0, BTreeMap::new(), BTreeMap::new());
    for line in lines {
        if line.run != run {
            run = line.run;
            mappings.clear();
        }
        match line.entry {
            Entry::Mapping { mapping, function, stream, .. } => {
                facts.insert(mapping, (function, stream));
            }
            Entry::GaveUp { mapping, shard, at_ms, first, last, count, .. } => {
                let Some((function, stream)) = facts.get(&mapping) else { continue };
                let (shard, first, last) = (shard.as_str(), first.as_str(), last.as_str());
                let done =
                    done_of(&redrives, Batch { function, stream, shard, at_ms, first, last });
                let own: &mut Redriven = mappings.entry(mapping).or_default();
                own.discarded += count as u64;
                own.done += done.min(count) as u64;
            }
            _ => {}
        }
    }
    mappings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Journal;

    #[test]
    fn redrives_are_read_back_and_the_file_stays_small() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()), []);
        let redrive = |at_ms| Redrive {
            at_ms,
            function: "counters".to_owned(),
            stream: Some("arn".to_owned()),
            shard: None,
            sequences: ["41", "42"].map(str::to_owned).to_vec(),
            done: 1,
        };
        note(folder.path(), &redrive(1)).unwrap();
        let current = folder.path().join("redrives.ndjson");
        let mut file = OpenOptions::new().append(true).open(&current).unwrap();
        file.write_all(b"{\"at_ms\":7,\"func").unwrap();
        note(folder.path(), &redrive(2)).unwrap();
        assert_eq!(read(folder.path()), [redrive(1), redrive(2)]);
        file.set_len(FILE_BYTES_MAX).unwrap();
        note(folder.path(), &redrive(3)).unwrap();
        assert_eq!(read(folder.path()).last(), Some(&redrive(3)));
        assert!(fs::metadata(current).unwrap().len() < 1_000);
    }

    #[test]
    fn a_record_is_known_by_function_stream_and_number() {
        let redrive = Redrive {
            at_ms: 1,
            function: "counters".to_owned(),
            stream: Some("arn".to_owned()),
            shard: None,
            sequences: ["41", "42"].map(str::to_owned).to_vec(),
            done: 1,
        };
        for (function, stream, sequence, expected) in [
            ("counters", "arn", "41", Some(true)),
            ("counters", "arn", "42", Some(false)),
            ("counters", "arn", "43", None),
            ("counters", "other", "41", None),
            ("archive", "arn", "41", None),
        ] {
            assert_eq!(redrive.has_done(function, stream, sequence), expected, "{sequence}");
        }
        let unnamed = Redrive { stream: None, ..redrive };
        assert_eq!(unnamed.has_done("counters", "arn", "41"), Some(true));
    }

    #[test]
    fn redriven_records_of_this_run_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let gave_up = |shard: &str, first: &str, last: &str| Entry::GaveUp {
            mapping: "votes".to_owned(),
            shard: shard.to_owned(),
            at_ms: 2,
            first: first.to_owned(),
            last: last.to_owned(),
            count: 2,
            condition: "RetryAttemptsExhausted".to_owned(),
            key: None,
        };
        for (at_ms, spans) in
            [(1, [("a", "1", "2"), ("a", "5", "6")]), (2, [("a", "7", "9"), ("b", "11", "22")])]
        {
            let journal = Journal::begin(&folder.path().join("journal"), at_ms).unwrap();
            journal.introduce(Entry::Mapping {
                mapping: "votes".to_owned(),
                function: "counters".to_owned(),
                table: "votes".to_owned(),
                stream: "arn".to_owned(),
                filters: Vec::new(),
                bucket: None,
                messages: None,
                report_batch_item_failures: true,
                starting_position: None,
            });
            journal
                .write(spans.into_iter().map(|(shard, first, last)| gave_up(shard, first, last)));
        }
        let redrive = |at_ms, shard: &str, sequences: &[&str], done, function: &str| Redrive {
            at_ms,
            function: function.to_owned(),
            stream: Some("arn".to_owned()),
            shard: Some(shard.to_owned()),
            sequences: sequences.iter().map(|it| (*it).to_owned()).collect(),
            done,
        };
        assert_eq!(since_the_start(folder.path()), BTreeMap::new());
        for redrive in [
            redrive(3, "a", &["1", "2"], 2, "counters"),
            redrive(3, "a", &["7", "9"], 1, "counters"),
            redrive(4, "a", &["7"], 1, "counters"),
            redrive(1, "a", &["9"], 1, "counters"),
            redrive(3, "b", &["11", "22"], 2, "other"),
            redrive(3, "a", &["12"], 1, "counters"),
        ] {
            note(folder.path(), &redrive).unwrap();
        }
        let expected = Redriven { discarded: 4, done: 1 };
        assert_eq!(since_the_start(folder.path()), [("votes".to_owned(), expected)].into());
    }
}
