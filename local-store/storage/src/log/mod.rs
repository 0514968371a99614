//! The log: entries with contiguous indexes, durable when [`Log::sync`] returns.
//!
//! The module starts no thread, has no clock and does not interpret payloads. One log serves an
//! entire node: each payload contains the number of its consensus group. `docs/formats/log.md`
//! documents the format.
//!
//! # Group commit
//!
//! [`Log::append`] gives a group of entries to the operating system with one write, and
//! [`Log::sync`] makes all of them durable with one sync of one file. Segments are allocated in
//! advance and reused, so that a sync has no file metadata to commit. Only a group that does not
//! fit into the current segment needs more syncs: first of the old segment, then of the new
//! segment's header, then of the directory. Therefore every segment except the last is durable to
//! its end.
//!
//! The first segment is small, so that a short log needs little space. Each new segment has twice
//! the size of the previous segment, up to the size in the options. Only files of the maximum size
//! are reused.
//!
//! # What recovery accepts
//!
//! [`Log::open`] reads all segments. Each record contains the index up to which the log was durable
//! when the record was written (`synced_end`). Each segment contains the id of the segment that it
//! continues, and its own first index. Recovery follows these rules:
//!
//! 1. In every segment except the last, every record up to the next segment's first index must be
//!    complete and valid.
//! 2. In the last segment, reading stops at the first broken record; call its index *n*. If a later
//!    record has `synced_end` > *n*, then *n* was durable and is damaged: [`Error::Corrupt`].
//!    Otherwise *n* was never known to be durable, which is the normal result of a power loss: *n*
//!    and the following records are cut off.
//! 3. A segment that the next segment continues must exist, otherwise recovery returns
//!    [`Error::Corrupt`]. Leftover segments of an interrupted truncation are removed.
//!
//! The log cannot detect three kinds of damage. First, the newest group is damaged and no record
//! was written after it, so the group looks torn. Second, the newest segments are missing. Third,
//! the oldest segments are missing, which looks like a truncation. The caller can detect the third
//! kind by the applied index of its state: it must reject a state that needs entries which the log
//! lacks. `node::replica` handles a state that is ahead of the log.
//!
//! Recovery does not assume that the entries it finds are durable: if only the process crashed, or
//! a sync failed, they may be only in the page cache. Before [`Log::open`] returns, it rewrites and
//! syncs the entries that no `synced_end` confirms. If it has cut off a torn end, it continues in a
//! new segment, so that the cut-off bytes can never be read as later records.
//!
//! # Errors
//!
//! After a fatal error ([`Error::is_fatal`]) the log rejects every change. Its owner must end the
//! process, because a failed sync may have written some of the data.

mod error;
mod reader;
mod record;
mod recovery;
mod scan;
mod segment;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use error::Error;
pub use reader::Reader;
pub use record::{Entry, Payload};
pub use recovery::{Discarded, Recovery};

use partition::mutation::{self, Mutation};

use self::segment::{DATA_OFFSET, Segment};
use crate::disk::{Disk, ErrorKind};

/// The maximum size of a payload in bytes, for any segment size. The maximum limits the memory of a
/// reader, and no node writes larger payloads.
pub const PAYLOAD_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Bytes that a segment with a single record needs in addition to the payload.
pub const SEGMENT_HEAD_BYTES: u64 = DATA_OFFSET + record::HEADER_BYTES as u64;

/// The limit of segment offsets, which are stored in memory as 4 bytes in units of 8.
const SEGMENT_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;

/// The capacity in bytes that the write buffer retains between appends; additional memory is freed.
const BUFFER_BYTES_KEPT: usize = 1024 * 1024;

/// The layout of a log. The sizes apply only to new segments, not to the existing segments of a
/// log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The maximum size of a segment file in bytes; a multiple of 4,096 from 8,192 to 16 GiB.
    pub segment_bytes: u64,
    /// The size of the first segment in bytes, with the same limits. A value above `segment_bytes`
    /// counts as `segment_bytes`.
    pub first_segment_bytes: u64,
    /// The maximum number of files that are reused after a truncation; further files are deleted.
    pub spares_max: usize,
    /// The index of the first entry of a new log; at least 1, because 0 means no entry.
    pub first_index: u64,
}

impl Default for Options {
    /// Segments of 64 MiB contain some seconds of writes at full speed. Therefore switching
    /// segments is rare, and truncation in steps of this size wastes little space. The first
    /// segment contains some hundred small entries. There are two spares: one for the next switch,
    /// and one for a truncation before it. Indexes begin at 1.
    fn default() -> Self {
        Options {
            segment_bytes: 64 * 1024 * 1024,
            first_segment_bytes: 256 * 1024,
            spares_max: 2,
            first_index: 1,
        }
    }
}

impl Options {
    /// Returns the largest payload that [`Log::append`] accepts with these options, inclusive.
    pub fn payload_bytes_max(&self) -> usize {
        let room = self.segment_bytes.saturating_sub(SEGMENT_HEAD_BYTES);
        usize::try_from(room).unwrap_or(usize::MAX).min(PAYLOAD_BYTES_MAX)
    }

    fn check(&self) -> Result<(), Error> {
        if self.first_index == 0 {
            return Err(Error::Options("the log's first index is 0; set at least 1".to_owned()));
        }
        let is_possible = |bytes: &u64| {
            (2 * DATA_OFFSET..=SEGMENT_BYTES_MAX).contains(bytes)
                && bytes.is_multiple_of(DATA_OFFSET)
        };
        let sizes = [self.segment_bytes, self.first_segment_bytes];
        match sizes.into_iter().find(|bytes| !is_possible(bytes)) {
            None => Ok(()),
            Some(bytes) => Err(Error::Options(format!(
                "the log's segment size is {bytes} bytes; set a multiple of {DATA_OFFSET} from {} \
                 to {SEGMENT_BYTES_MAX}",
                2 * DATA_OFFSET
            ))),
        }
    }

    /// Returns the maximum size in bytes, inclusive, of a log that [`Log::shrink`] does not change.
    pub fn small_bytes(&self) -> u64 {
        self.first_segment_bytes.min(self.segment_bytes).saturating_mul(4)
    }
}

/// A file that can become a segment.
#[derive(Debug)]
struct Spare {
    name: String,
    size_bytes: u64,
}

/// A log on a disk. It must be the only log in its directory.
#[derive(Debug)]
pub struct Log {
    disk: Arc<dyn Disk>,
    options: Options,
    /// The segments in ascending order, each continuing the previous one; never empty. Entries are
    /// appended to the last segment.
    segments: Vec<Segment>,
    /// Files that can become segments. The last file in the list is used first. Between two changes
    /// of the log, all have the maximum size.
    spares: Vec<Spare>,
    spare_number_next: u64,
    /// The highest id of all files that the directory has ever had.
    segment_id_last: u64,
    /// The end of the durable entries, exclusive: all entries below this index are durable.
    synced_end: u64,
    buffer: Vec<u8>,
    /// Set permanently by the first fatal error, after which the log rejects every change.
    stopped: bool,
    recovery: Recovery,
}

impl Log {
    /// Returns the index of the oldest entry. Without entries, returns the index of the next entry.
    pub fn first_index(&self) -> u64 {
        self.segments.first().map_or(0, |segment| segment.header.first_index)
    }

    /// Returns the index of the next entry: the index of the last entry plus one.
    pub fn next_index(&self) -> u64 {
        self.segments.last().map_or(0, Segment::next_index)
    }

    /// Returns the largest payload that [`Log::append`] accepts, inclusive.
    pub fn payload_bytes_max(&self) -> usize {
        self.options.payload_bytes_max()
    }

    /// Returns the index of the newest entry; without entries, the index before the next entry,
    /// which is 0 for a log that never had an entry.
    pub fn last_index(&self) -> u64 {
        self.next_index().saturating_sub(1)
    }

    /// Returns the end of the durable entries, exclusive.
    pub fn synced_end(&self) -> u64 {
        self.synced_end
    }

    /// Returns the bytes of all files of the log, including spares.
    pub fn file_bytes(&self) -> u64 {
        let segments: u64 = self.segments.iter().map(|segment| segment.header.size_bytes).sum();
        segments + self.spares.iter().map(|spare| spare.size_bytes).sum::<u64>()
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns what recovery found when the log was opened.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Appends a group of entries, with one write if they fit into the current segment.
    ///
    /// The entries can be read when this function returns, but are durable only when the next
    /// [`Log::sync`] returns. After a crash before that, a prefix of the entries exists.
    /// # Errors
    ///
    /// [`Error::NotContiguous`], [`Error::TooLarge`] and [`Error::OutOfSpace`]: nothing was
    /// appended, and the log can still be used. Any other error is fatal.
    pub fn append(&mut self, entries: &[Entry]) -> Result<(), Error> {
        let payload_bytes_max = self.options.payload_bytes_max();
        for (expected, entry) in (self.next_index()..).zip(entries) {
            let (index, payload_bytes) = (entry.index, entry.payload.len());
            if index != expected {
                return Err(Error::NotContiguous { expected, found: index });
            }
            if payload_bytes > payload_bytes_max {
                return Err(Error::TooLarge { index, payload_bytes, payload_bytes_max });
            }
        }
        self.change(|log| {
            log.reserve(entries)?;
            let mut rest = entries;
            while !rest.is_empty() {
                let (fitting, others) = rest.split_at(log.count_fitting(rest));
                if fitting.is_empty() {
                    let (next_index, previous_id) = (log.next_index(), log.last_id());
                    log.begin_segment(next_index, previous_id)?;
                } else if let Some(segment) = log.segments.last_mut() {
                    segment.append(fitting, log.synced_end, &mut log.buffer)?;
                }
                rest = others;
            }
            if log.buffer.capacity() > BUFFER_BYTES_KEPT {
                log.buffer = Vec::new();
            }
            Ok(())
        })
    }

    /// Makes all appended entries durable with one sync. Does nothing if all entries are already
    /// durable.
    ///
    /// # Errors
    ///
    /// Every error is fatal: acknowledge no entry that was appended since the last successful sync.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.change(|log| {
            let next_index = log.next_index();
            if log.synced_end < next_index {
                if let Some(segment) = log.segments.last()
                    && !mutation::is_active(Mutation::ReplyBeforeSync)
                {
                    let synced = segment.file.sync_data();
                    if !mutation::is_active(Mutation::IgnoreSyncError) {
                        synced?;
                    }
                }
                log.synced_end = next_index;
            }
            Ok(())
        })
    }

    /// Reads the entries from `from` (inclusive) to `to` (exclusive), in order, and verifies each
    /// entry.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if the log does not contain all these entries.
    pub fn read(&self, from: u64, to: u64) -> Result<Reader<'_>, Error> {
        let (first, next) = (self.first_index(), self.next_index());
        if from > to || from < first || to > next {
            return Err(Error::OutOfRange { from, to, first, next });
        }
        Ok(Reader::new(&self.segments, from, to))
    }

    /// Discards the entries up to `upto`, inclusive. Only entire segments are removed, so some of
    /// these entries may remain; [`Log::first_index`] returns the first remaining entry. The
    /// truncation is durable when this function returns.
    ///
    /// If `upto` is beyond the last entry, all entries are removed and the log continues at `upto +
    /// 1`, which is necessary after a snapshot that contains entries that this node never had.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfSpace`] changes nothing; any other error is fatal.
    pub fn truncate_prefix(&mut self, upto: u64) -> Result<(), Error> {
        self.change(|log| {
            let end = upto.saturating_add(1);
            if upto >= log.next_index() {
                log.begin_segment(end, 0)?;
                log.synced_end = end;
            }
            // The oldest segment is removed first, so that a crash leaves no gap.
            while log.segments.get(1).is_some_and(|second| second.header.first_index <= end) {
                log.retire(0)?;
            }
            Ok(())
        })
    }

    /// Continues in a small segment, so that the next [`Log::truncate_prefix`] can remove
    /// everything before it, and removes the spares. Does nothing if the log is small. The change
    /// is durable when this function returns.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfSpace`] changes nothing; any other error is fatal.
    pub fn shrink(&mut self) -> Result<(), Error> {
        if self.file_bytes() <= self.options.small_bytes() {
            return Ok(());
        }
        self.change(|log| {
            let size_bytes = log.options.first_segment_bytes.min(log.options.segment_bytes);
            if log.segments.last().is_some_and(|last| last.header.size_bytes > size_bytes) {
                let spare = log.create_spare(size_bytes)?;
                log.spares.push(spare);
                log.leave_last_segment()?;
            }
            while let Some(spare) = log.spares.pop() {
                log.disk.remove(&spare.name)?;
            }
            log.disk.sync_directory()?;
            Ok(())
        })
    }

    /// Runs a change unless the log has stopped. Stops the log after a fatal error.
    fn change<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.stopped {
            return Err(Error::Stopped);
        }
        let result = work(self);
        self.stopped = result.as_ref().is_err_and(Error::is_fatal);
        result
    }

    /// Returns how many of `entries` fit into the last segment.
    fn count_fitting(&self, entries: &[Entry]) -> usize {
        let mut free_bytes = self.segments.last().map_or(0, Segment::free_bytes);
        let fits = |entry: &&Entry| {
            let rest = free_bytes.checked_sub(record::record_bytes(entry.payload.len()));
            free_bytes = rest.unwrap_or(free_bytes);
            rest.is_some()
        };
        entries.iter().take_while(fits).count()
    }

    /// Creates the files that `entries` require, so that a full disk is detected before any entry
    /// is written. If one file suffices, all entries fit into it; otherwise each file has the
    /// maximum size.
    fn reserve(&mut self, entries: &[Entry]) -> Result<(), Error> {
        let rest = entries.get(self.count_fitting(entries)..).unwrap_or_default();
        let record_bytes = |entry: &Entry| record::record_bytes(entry.payload.len());
        let rest_bytes = rest.iter().map(record_bytes).sum();
        let (mut needed, mut free_bytes) = (0, 0);
        for record_bytes in rest.iter().map(record_bytes) {
            if record_bytes > free_bytes {
                needed += 1;
                free_bytes = self.options.segment_bytes - DATA_OFFSET;
            }
            free_bytes = free_bytes.saturating_sub(record_bytes);
        }
        while self.spares.len() < needed {
            let spare = self.create_spare(self.next_size(rest_bytes))?;
            self.spares.push(spare);
        }
        Ok(())
    }

    /// Returns the size of a new segment with space for records of `bytes` bytes, at most the
    /// maximum segment size.
    fn next_size(&self, bytes: u64) -> u64 {
        let last = self.segments.last().map_or(0, |last| last.header.size_bytes);
        let wanted = bytes.saturating_add(DATA_OFFSET).next_multiple_of(DATA_OFFSET);
        let grown = last.saturating_mul(2).max(self.options.first_segment_bytes);
        wanted.max(grown).min(self.options.segment_bytes)
    }

    fn last_id(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.header.id)
    }

    /// Ends the last segment and begins a new one, both durably. The rename turns a spare file into
    /// a segment of the log.
    fn begin_segment(&mut self, first_index: u64, previous_id: u64) -> Result<(), Error> {
        let spare = match self.spares.pop() {
            Some(spare) => spare,
            None => self.create_spare(self.next_size(0))?,
        };
        if self.synced_end < self.next_index()
            && let Some(last) = self.segments.last()
        {
            last.file.sync_data()?;
            self.synced_end = self.next_index();
        }
        let header = segment::Header {
            id: self.segment_id_last + 1,
            previous_id,
            first_index,
            size_bytes: spare.size_bytes,
        };
        let file = self.disk.open(&spare.name)?;
        file.write_at(0, &header.encode())?;
        file.sync_data()?;
        let segment = Segment::new(header, file);
        self.disk.rename(&spare.name, &segment.name)?;
        if !mutation::is_active(Mutation::SkipDirectorySync) {
            self.disk.sync_directory()?;
        }
        self.segment_id_last = header.id;
        self.segments.push(segment);
        Ok(())
    }

    /// Creates a file that can become a segment, and returns its name. The spare's header is valid,
    /// unlike an incomplete file's header, and differs from the header of any segment.
    fn create_spare(&mut self, size_bytes: u64) -> Result<Spare, Error> {
        let name = self.next_spare_name();
        let file = self.disk.create(&name, size_bytes).map_err(|error| match error.kind {
            ErrorKind::OutOfSpace => Error::OutOfSpace(error),
            _ => Error::Disk(error),
        })?;
        let unused = segment::Header { id: 0, previous_id: 0, first_index: 0, size_bytes };
        file.write_at(0, &unused.encode())?;
        Ok(Spare { name, size_bytes })
    }

    fn next_spare_name(&mut self) -> String {
        let name = recovery::spare_name(self.spare_number_next);
        self.spare_number_next += 1;
        name
    }

    /// Switches to a new segment, so that leftover bytes after the last entry are never read as
    /// entries. If the last segment has no entries, the new segment replaces it.
    fn leave_last_segment(&mut self) -> Result<(), Error> {
        let (last, next_index) = (self.segments.len().saturating_sub(1), self.next_index());
        let header = self.segments.last().map(|segment| segment.header);
        match header.filter(|header| header.first_index == next_index) {
            Some(replaced) => {
                self.begin_segment(next_index, replaced.previous_id)?;
                self.retire(last)
            }
            None => self.begin_segment(next_index, self.last_id()),
        }
    }

    /// Removes a segment from the log: its file becomes a spare, or is deleted. The removal is
    /// durable when this function returns.
    fn retire(&mut self, place: usize) -> Result<(), Error> {
        let segment = self.segments.remove(place);
        self.retire_file(&segment.name, segment.header.size_bytes)
    }

    fn retire_file(&mut self, name: &str, size_bytes: u64) -> Result<(), Error> {
        let largest = self.options.segment_bytes;
        // The file is reused only if the last segment has the maximum size: a smaller log does not
        // use a file of this size next.
        let is_large = self.segments.last().is_some_and(|last| last.header.size_bytes == largest);
        if is_large && size_bytes == largest && self.spares.len() < self.options.spares_max {
            let spare = self.next_spare_name();
            self.disk.rename(name, &spare)?;
            self.spares.push(Spare { name: spare, size_bytes });
        } else {
            self.disk.remove(name)?;
        }
        self.disk.sync_directory()?;
        Ok(())
    }
}
