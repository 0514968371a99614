//! Appends to the journal, in segments of bounded size and number.
//!
//! The caller decides what is written.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use locks::Mutex;

use super::entry::{Entry, FORMAT, Line};
use super::reader;

/// The size in bytes at which a segment is closed and the next one begins.
pub const SEGMENT_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The maximum number of segments; the oldest segment is removed first. Together they have 32 MB,
/// or about 300,000 deliveries, which can be read within a second.
pub const SEGMENTS_MAX: usize = 8;

/// The journal of one run. Clones write to the same files.
#[derive(Clone, Debug)]
pub struct Journal {
    writer: Arc<Mutex<Writer>>,
}

#[derive(Debug)]
struct Writer {
    folder: PathBuf,
    run: u64,
    /// The lines about the run and its mappings. Each segment begins with these lines, so that the
    /// segment is readable after earlier segments were removed.
    heads: Vec<u8>,
    segment: u64,
    file: File,
    bytes: u64,
    bytes_max: u64,
    /// The error of the last write, if it failed. It is logged once, not for each line.
    fault: Option<String>,
    /// The number of reports of each mapping that were lost since the last successful write.
    lost: BTreeMap<String, u64>,
    /// The time of the last event that has a time.
    last_ms: i64,
    /// Whether the segment lacks some head lines, because writing them failed.
    lacks_heads: bool,
    /// Whether the segment may end within a line, because a write failed.
    is_torn: bool,
}

impl Journal {
    /// Begins a new run, in a new segment.
    ///
    /// # Errors
    /// The folder cannot be read or written.
    pub fn begin(folder: &Path, at_ms: i64) -> io::Result<Self> {
        Self::with_limit(folder, at_ms, SEGMENT_BYTES_MAX)
    }

    pub(super) fn with_limit(folder: &Path, at_ms: i64, bytes_max: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let segments = reader::segments(folder)?;
        let last = segments.last().map_or(0, |(number, _)| *number);
        // A segment without lines, from a process that was killed, belongs to no run.
        let runs = segments.iter().filter_map(|(_, path)| reader::run_of(path));
        let run = runs.max().unwrap_or(0) + 1;
        let segment = last + 1;
        let mut writer = Writer {
            folder: folder.to_owned(),
            run,
            heads: Vec::new(),
            segment,
            file: create(folder, segment)?,
            bytes: 0,
            bytes_max,
            fault: None,
            lost: BTreeMap::new(),
            last_ms: at_ms,
            lacks_heads: false,
            is_torn: false,
        };
        writer.head(Entry::Run { format: FORMAT, at_ms })?;
        writer.prune()?;
        Ok(Self { writer: Arc::new(Mutex::new(writer)) })
    }

    /// Writes a mapping's settings in this segment, and at the beginning of all later segments of
    /// this run.
    pub fn introduce(&self, mapping: Entry) {
        self.with_writer(|writer| writer.head(mapping));
    }

    /// Appends events. A failure is logged once. Lost reports are counted, and the count is written as
    /// soon as writes succeed again.
    pub fn write(&self, entries: impl IntoIterator<Item = Entry>) {
        let entries = entries.into_iter().collect();
        self.with_writer(|writer| writer.report(entries));
    }

    /// Returns the error that prevents writes, and its fix; `None` if writes succeed.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        self.try_again();
        let writer = self.writer.lock();
        let why = writer.fault.as_ref()?;
        Some(format!(
            "cannot write the journal in `{}` ({why}): free disk space, or grant the user of `weir up` write permission there; writing then resumes automatically",
            writer.folder.display()
        ))
    }

    /// Tries to write the count of lost reports, in order to detect whether writes succeed again.
    /// Without this write, a recovery would be detected only at the next event.
    fn try_again(&self) {
        let has_fault = {
            let writer = self.writer.lock();
            writer.fault.is_some()
        };
        if has_fault {
            self.write([]);
        }
    }

    fn with_writer(&self, action: impl FnOnce(&mut Writer) -> io::Result<()>) {
        let mut writer = self.writer.lock();
        match action(&mut writer) {
            Ok(()) => writer.fault = None,
            Err(error) => {
                if writer.fault.is_none() {
                    let folder = writer.folder.display();
                    tracing::warn!(
                        "cannot write the journal in `{folder}`: {error}; until writes succeed again, `weir streams explain` lacks events"
                    );
                }
                writer.fault = Some(error.to_string());
            }
        }
    }
}

impl Writer {
    fn line(&self, text: &mut Vec<u8>, entry: Entry) -> io::Result<()> {
        serde_json::to_writer(&mut *text, &Line { run: self.run, entry })?;
        text.push(b'\n');
        Ok(())
    }

    fn head(&mut self, entry: Entry) -> io::Result<()> {
        let mut text = Vec::new();
        self.line(&mut text, entry)?;
        self.heads.extend_from_slice(&text);
        let written = self.append(&text);
        self.lacks_heads |= written.is_err();
        written
    }

    /// Appends events, after the count of lost reports if there are any.
    fn report(&mut self, entries: Vec<Entry>) -> io::Result<()> {
        let count = |entry: &Entry| match entry {
            Entry::Missed { count, .. } => *count,
            _ => 1,
        };
        let reports: Vec<(String, u64)> = entries
            .iter()
            .filter_map(|entry| Some((entry.mapping()?.to_owned(), count(entry))))
            .collect();
        self.last_ms = entries.iter().filter_map(Entry::at_ms).next_back().unwrap_or(self.last_ms);
        let written = self.try_report(entries);
        match &written {
            Ok(()) => self.lost.clear(),
            Err(_) => reports
                .into_iter()
                .for_each(|(mapping, count)| *self.lost.entry(mapping).or_default() += count),
        }
        written
    }

    fn try_report(&mut self, entries: Vec<Entry>) -> io::Result<()> {
        let mut text = Vec::new();
        if self.lacks_heads {
            text.extend_from_slice(&self.heads);
        }
        let at_ms = self.last_ms;
        let lost = self.lost.iter().map(|(mapping, count)| Entry::Missed {
            mapping: mapping.clone(),
            at_ms,
            count: *count,
        });
        for entry in lost.chain(entries) {
            self.line(&mut text, entry)?;
        }
        self.append(&text)?;
        self.lacks_heads = false;
        Ok(())
    }

    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        if self.bytes > 0 && self.bytes.saturating_add(text.len() as u64) > self.bytes_max {
            self.segment += 1;
            self.file = create(&self.folder, self.segment)?;
            // On a full disk, an empty file can still be created. The writer then continues with this
            // file instead of creating more files.
            (self.bytes, self.is_torn, self.lacks_heads) = (0, true, true);
            self.file.write_all(&self.heads)?;
            (self.is_torn, self.lacks_heads) = (false, false);
            self.bytes = self.heads.len() as u64;
            self.prune()?;
        }
        // Ends the incomplete line, which readers skip.
        if self.is_torn {
            self.file.write_all(b"\n")?;
        }
        self.is_torn = true;
        self.file.write_all(text)?;
        self.is_torn = false;
        self.bytes = self.bytes.saturating_add(text.len() as u64);
        Ok(())
    }

    fn prune(&self) -> io::Result<()> {
        let segments = reader::segments(&self.folder)?;
        let surplus = segments.len().saturating_sub(SEGMENTS_MAX);
        segments.iter().take(surplus).try_for_each(|(_, path)| fs::remove_file(path))
    }
}

fn create(folder: &Path, segment: u64) -> io::Result<File> {
    File::options().create(true).append(true).open(reader::segment_path(folder, segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(name: &str) -> Entry {
        Entry::Mapping {
            mapping: name.to_owned(),
            function: "f".to_owned(),
            table: "t".to_owned(),
            stream: "arn".to_owned(),
            filters: Vec::new(),
            bucket: None,
            messages: None,
            report_batch_item_failures: false,
            starting_position: None,
        }
    }

    /// Goal: lost reports are counted, so that readers do not wait for them. The settings of mappings are
    /// written nevertheless.
    #[test]
    fn the_first_line_after_a_write_that_failed_stands_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::begin(folder.path(), 1).unwrap();
        let path = reader::segment_path(folder.path(), 1);
        let gap = |shard: &str| Entry::Gap {
            mapping: "m".to_owned(),
            shard: shard.to_owned(),
            at_ms: 5,
            reason: "trimmed".to_owned(),
        };
        let read_only = File::open(&path).unwrap();
        let file = std::mem::replace(&mut journal.writer.lock().file, read_only);
        assert_eq!(journal.fault(), None);
        journal.introduce(mapping("m"));
        journal.write([gap("lost")]);
        journal.write([gap("lost"), gap("lost")]);
        let fault = journal.fault().unwrap();
        assert!(fault.contains("(Bad file descriptor"), "{fault}");
        // A full disk has stored only the beginning of this line.
        (&file).write_all(b"{\"run\":1,\"kind\":\"ga").unwrap();
        journal.writer.lock().file = file;
        journal.write([gap("a")]);
        journal.write([gap("b")]);
        assert_eq!(journal.fault(), None);
        let of_kind = |wanted: fn(&Entry) -> bool| {
            let lines = reader::Reader::open(folder.path()).unwrap();
            lines.map(|line| line.entry).filter(wanted).collect::<Vec<_>>()
        };
        let missed = Entry::Missed { mapping: "m".to_owned(), at_ms: 5, count: 3 };
        assert_eq!(of_kind(|entry| matches!(entry, Entry::Missed { .. })), [missed], "once");
        assert_eq!(of_kind(|entry| matches!(entry, Entry::Mapping { .. })), [mapping("m")]);
        let shards: Vec<String> = reader::Reader::open(folder.path())
            .unwrap()
            .filter_map(|line| match line.entry {
                Entry::Gap { shard, .. } => Some(shard),
                _ => None,
            })
            .collect();
        assert_eq!(shards, ["a", "b"]);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 7, "{text}");
    }

    /// Goal: if the disk is full when a segment begins, later reports do not create more segments. They would
    /// displace segments with data.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_segment_that_is_begun_on_a_full_disk_is_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::with_limit(folder.path(), 1, 200).unwrap();
        std::os::unix::fs::symlink("/dev/full", reader::segment_path(folder.path(), 2)).unwrap();
        let invoked = || Entry::Missed { mapping: "m".to_owned(), at_ms: 5, count: 2 };
        (0..50).for_each(|_| journal.write([invoked()]));
        assert!(journal.fault().is_some());
        assert_eq!(reader::segments(folder.path()).unwrap().len(), 2);
        // The disk has space again.
        let path = folder.path().join("room");
        journal.writer.lock().file = File::create(&path).unwrap();
        assert_eq!(journal.fault(), None, "cleared without another report");
        let text = fs::read_to_string(path).unwrap();
        let missed = text.lines().last().unwrap_or_default();
        let written = fs::read_to_string(reader::segment_path(folder.path(), 1)).unwrap();
        let count = 100 - 2 * (written.lines().count() - 1);
        assert!(missed.contains(&format!("\"count\":{count}")), "{count}: {text}");
        assert!(text.contains("\"kind\":\"run\"") || text.contains("\"format\""), "{text}");
    }
}
