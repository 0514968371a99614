//! Appends to the journal, in segments of bounded size and number.
//!
//! What is written is decided by the caller.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::entry::{Entry, FORMAT, Line};
use super::reader;

/// At this size, in bytes, a segment is closed and the next one begun.
pub const SEGMENT_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Segments that are kept: together 32 MB, some 300,000 deliveries, which is read within a second.
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
    /// Lines about the run and its mappings, which each segment begins with, so that a segment can
    /// be read when those before it are gone.
    heads: Vec<u8>,
    segment: u64,
    file: File,
    bytes: u64,
    bytes_max: u64,
    /// A failure is said once, not for each line.
    has_failed: bool,
}

impl Journal {
    /// Begins a new run, in a new segment.
    ///
    /// # Errors
    /// When the folder cannot be read or written.
    pub fn begin(folder: &Path, at_ms: i64) -> io::Result<Self> {
        Self::with_limit(folder, at_ms, SEGMENT_BYTES_MAX)
    }

    pub(super) fn with_limit(folder: &Path, at_ms: i64, bytes_max: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let segments = reader::segments(folder)?;
        let last = segments.last().map_or(0, |(number, _)| *number);
        let run = segments.last().and_then(|(_, path)| reader::run_of(path)).unwrap_or(0) + 1;
        let segment = last + 1;
        let mut writer = Writer {
            folder: folder.to_owned(),
            run,
            heads: Vec::new(),
            segment,
            file: create(folder, segment)?,
            bytes: 0,
            bytes_max,
            has_failed: false,
        };
        writer.head(Entry::Run { format: FORMAT, at_ms })?;
        writer.prune()?;
        Ok(Self { writer: Arc::new(Mutex::new(writer)) })
    }

    /// Says which mapping there is, in this segment and all later ones of this run.
    pub fn introduce(&self, mapping: Entry) {
        self.with_writer(|writer| writer.head(mapping));
    }

    /// Appends what happened. A failure is logged once and else has no effect.
    pub fn write(&self, entries: impl IntoIterator<Item = Entry>) {
        self.with_writer(|writer| {
            let mut text = Vec::new();
            for entry in entries {
                writer.line(&mut text, entry)?;
            }
            writer.append(&text)
        });
    }

    fn with_writer(&self, action: impl FnOnce(&mut Writer) -> io::Result<()>) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        match action(&mut writer) {
            Ok(()) => writer.has_failed = false,
            Err(error) => {
                if !writer.has_failed {
                    let folder = writer.folder.display();
                    tracing::warn!(
                        "cannot write the journal in {folder}: {error}; `weir streams explain` will not know what happens now"
                    );
                }
                writer.has_failed = true;
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
        self.append(&text)
    }

    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        if self.bytes > 0 && self.bytes.saturating_add(text.len() as u64) > self.bytes_max {
            self.segment += 1;
            self.file = create(&self.folder, self.segment)?;
            self.file.write_all(&self.heads)?;
            self.bytes = self.heads.len() as u64;
            self.prune()?;
        }
        self.file.write_all(text)?;
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
