//! The log: entries with contiguous indexes, durable when [`Log::sync`] returns.
//!
//! It starts no thread, knows no clock and does not look into payloads. One log serves a whole node:
//! the consensus groups that share it say in the payloads whose they are.
//! The bytes are drawn in `docs/formats/log.md`.
//!
//! # Group commit
//!
//! [`Log::append`] hands a group of entries to the operating system with one write, [`Log::sync`]
//! makes all of them durable with one sync of one file. Segments are allocated beforehand and used
//! again, so that sync has no file metadata to commit. Only when a group does not fit into the
//! current segment are there more: the old segment is synced first, then the new one's header, then
//! the directory. So every segment but the last is durable to its end.
//!
//! # What recovery accepts
//!
//! [`Log::open`] reads everything. Each record says up to which index the log was durable when the
//! record was written (`synced_end`), each segment says which one it continues and from which index.
//! From these follow the rules:
//!
//! 1. In every segment but the last, every record up to the next segment's first index must be whole.
//! 2. In the last segment, reading stops at the first record that is not whole; call its index *n*.
//!    If a record behind it says `synced_end` > *n*, then *n* was durable and is damaged:
//!    [`Error::Corrupt`]. Otherwise *n* and what follows were never durable together, which is what a
//!    power loss leaves behind: they are cut off.
//! 3. A segment that the next one continues must be there: [`Error::Corrupt`] if not. Segments that
//!    an interrupted truncation left over are removed.
//!
//! What cannot be known from the log alone: that the newest group is damaged when nothing was written
//! after it (it looks torn), that the newest segments are missing as a whole, and that segments before
//! the oldest are missing (that looks truncated). The caller holds the other half of the evidence, the
//! applied index of its state: it must refuse a state that lacks entries which the log has let go of.
//! A state that is ahead of the log is none of these: see `node::replica`, whose check this is.
//!
//! What is found is not taken for durable: after a crash of the process alone, or a failed sync, it
//! may be in the page cache only. Recovery writes the entries that no record vouches for again, and
//! syncs, before it returns. And where it cuts something off, it goes on in a new segment, so that no
//! byte of what was cut can ever be read as a continuation.
//!
//! # Errors
//!
//! After a fatal error ([`Error::is_fatal`]) the log accepts no change any more; whoever holds it ends
//! the process, as nobody can know what a failed sync has kept.

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

/// No payload may be larger, whatever the segment size: that bounds what a reader must hold in memory,
/// and is more than any node writes.
pub const PAYLOAD_BYTES_MAX: usize = 32 * 1024 * 1024;

/// What a segment holds beside the payload of its only record.
pub const SEGMENT_HEAD_BYTES: u64 = DATA_OFFSET + record::HEADER_BYTES as u64;

/// The segment offsets that are kept in memory are 4 bytes in units of 8.
const SEGMENT_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;

/// The write buffer that is kept between appends; what a larger group needed is given back.
const BUFFER_BYTES_KEPT: usize = 1024 * 1024;

/// How a log is laid out. An existing log keeps its segments' sizes; new ones have the new size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The size of a segment file; a multiple of 4,096 from 8,192 to 16 GiB.
    pub segment_bytes: u64,
    /// How many files are kept for use again after a truncation.
    pub spares_max: usize,
    /// The index of the first entry of a log that does not exist yet; at least 1, as 0 stands for
    /// no entry.
    pub first_index: u64,
}

impl Default for Options {
    /// Segments of 64 MiB: some seconds of writing at full speed, so that switching is rare, and
    /// truncation in steps of that size wastes little space. Two spares: one for the next switch,
    /// one for a truncation in between. Indexes count from 1.
    fn default() -> Self {
        Options { segment_bytes: 64 * 1024 * 1024, spares_max: 2, first_index: 1 }
    }
}

impl Options {
    /// The largest payload that [`Log::append`] takes with these options, inclusive.
    pub fn payload_bytes_max(&self) -> usize {
        let room = self.segment_bytes.saturating_sub(SEGMENT_HEAD_BYTES);
        usize::try_from(room).unwrap_or(usize::MAX).min(PAYLOAD_BYTES_MAX)
    }

    fn check(&self) -> Result<(), Error> {
        let bytes = self.segment_bytes;
        if self.first_index == 0 {
            return Err(Error::Options("the log's first index is 0; set at least 1".to_owned()));
        }
        if (2 * DATA_OFFSET..=SEGMENT_BYTES_MAX).contains(&bytes)
            && bytes.is_multiple_of(DATA_OFFSET)
        {
            return Ok(());
        }
        Err(Error::Options(format!(
            "the log's segment size is {bytes} bytes; set a multiple of {DATA_OFFSET} from {} to \
             {SEGMENT_BYTES_MAX}",
            2 * DATA_OFFSET
        )))
    }
}

/// A log on a disk. It must be the only one in its directory.
#[derive(Debug)]
pub struct Log {
    disk: Arc<dyn Disk>,
    options: Options,
    /// Ascending, each continuing the one before, never empty; the last is written to.
    segments: Vec<Segment>,
    /// Names of files that can become segments.
    spares: Vec<String>,
    spare_number_next: u64,
    /// The highest id that any file here has had.
    segment_id_last: u64,
    /// Entries below this index are durable.
    synced_end: u64,
    buffer: Vec<u8>,
    /// Set by the first fatal error, for good.
    stopped: bool,
    recovery: Recovery,
}

impl Log {
    /// The index of the oldest entry, or of the next one if there is none.
    pub fn first_index(&self) -> u64 {
        self.segments.first().map_or(0, |segment| segment.header.first_index)
    }

    /// The index that the next entry must have: one more than the last one's.
    pub fn next_index(&self) -> u64 {
        self.segments.last().map_or(0, Segment::next_index)
    }

    /// The largest payload that [`Log::append`] takes, inclusive.
    pub fn payload_bytes_max(&self) -> usize {
        self.options.payload_bytes_max()
    }

    /// The index of the newest entry; of the one before the first if there is none, which is 0 for
    /// a log that never had any.
    pub fn last_index(&self) -> u64 {
        self.next_index().saturating_sub(1)
    }

    /// All entries below this index are durable.
    pub fn synced_end(&self) -> u64 {
        self.synced_end
    }

    /// What the files of the log take, spares included, in bytes.
    pub fn file_bytes(&self) -> u64 {
        let segments: u64 = self.segments.iter().map(|segment| segment.header.size_bytes).sum();
        segments + self.options.segment_bytes * self.spares.len() as u64
    }

    /// What [`Log::open`] found.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Appends a group of entries, with one write unless they do not fit into the current segment.
    ///
    /// They can be read when this returns, and are durable when the next [`Log::sync`] does. After
    /// a crash in between, some first part of what was appended is there.
    ///
    /// # Errors
    ///
    /// [`Error::NotContiguous`], [`Error::TooLarge`] and [`Error::OutOfSpace`]: nothing was
    /// appended, the log goes on. Any other error is fatal.
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

    /// Makes everything appended up to now durable, with one sync; without any if nothing was.
    ///
    /// # Errors
    ///
    /// Every error is fatal: acknowledge nothing that was appended since the last success.
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

    /// Reads the entries from `from` (inclusive) to `to` (exclusive), in order, each one checked.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] when the log does not hold all of them.
    pub fn read(&self, from: u64, to: u64) -> Result<Reader<'_>, Error> {
        let (first, next) = (self.first_index(), self.next_index());
        if from > to || from < first || to > next {
            return Err(Error::OutOfRange { from, to, first, next });
        }
        Ok(Reader::new(&self.segments, from, to))
    }

    /// Lets go of the entries up to `upto`, inclusive. Whole segments are dropped, so some of these
    /// entries may stay; [`Log::first_index`] says which. Durable when this returns.
    ///
    /// If `upto` lies beyond the last entry, all are dropped and the log goes on at `upto + 1`, as
    /// it must when a snapshot replaces the entries that this node never had.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfSpace`] changed nothing; any other error is fatal.
    pub fn truncate_prefix(&mut self, upto: u64) -> Result<(), Error> {
        self.change(|log| {
            let end = upto.saturating_add(1);
            if upto >= log.next_index() {
                log.begin_segment(end, 0)?;
                log.synced_end = end;
            }
            // Oldest first, so that a crash in between leaves no gap.
            while log.segments.get(1).is_some_and(|second| second.header.first_index <= end) {
                log.retire(0)?;
            }
            Ok(())
        })
    }

    /// Runs a change unless the log has stopped, and stops it after a fatal error.
    fn change<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.stopped {
            return Err(Error::Stopped);
        }
        let result = work(self);
        self.stopped = result.as_ref().is_err_and(Error::is_fatal);
        result
    }

    /// How many of these entries the last segment has room for.
    fn count_fitting(&self, entries: &[Entry]) -> usize {
        let mut free_bytes = self.segments.last().map_or(0, Segment::free_bytes);
        let fits = |entry: &&Entry| {
            let rest = free_bytes.checked_sub(record::record_bytes(entry.payload.len()));
            free_bytes = rest.unwrap_or(free_bytes);
            rest.is_some()
        };
        entries.iter().take_while(fits).count()
    }

    /// Creates the files that these entries will need, so that a full disk is noticed before
    /// anything was written.
    fn reserve(&mut self, entries: &[Entry]) -> Result<(), Error> {
        let mut needed = 0;
        let mut free_bytes = self.segments.last().map_or(0, Segment::free_bytes);
        for entry in entries {
            let record_bytes = record::record_bytes(entry.payload.len());
            if record_bytes > free_bytes {
                needed += 1;
                free_bytes = self.options.segment_bytes - DATA_OFFSET;
            }
            free_bytes = free_bytes.saturating_sub(record_bytes);
        }
        while self.spares.len() < needed {
            let spare = self.create_spare()?;
            self.spares.push(spare);
        }
        Ok(())
    }

    fn last_id(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.header.id)
    }

    /// Ends the last segment and goes on in a new one, both durably. The segment becomes part of the
    /// log by its rename: before it there was only a spare file.
    fn begin_segment(&mut self, first_index: u64, previous_id: u64) -> Result<(), Error> {
        let spare = match self.spares.pop() {
            Some(spare) => spare,
            None => self.create_spare()?,
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
            size_bytes: self.options.segment_bytes,
        };
        let file = self.disk.open(&spare)?;
        file.write_at(0, &header.encode())?;
        file.sync_data()?;
        let segment = Segment::new(header, file);
        self.disk.rename(&spare, &segment.name)?;
        if !mutation::is_active(Mutation::SkipDirectorySync) {
            self.disk.sync_directory()?;
        }
        self.segment_id_last = header.id;
        self.segments.push(segment);
        Ok(())
    }

    /// Makes a file that can become a segment, and returns its name. Its header is one that no
    /// segment has, which tells it from a file whose creation was interrupted.
    fn create_spare(&mut self) -> Result<String, Error> {
        let name = self.next_spare_name();
        let size_bytes = self.options.segment_bytes;
        let file = self.disk.create(&name, size_bytes).map_err(|error| match error.kind {
            ErrorKind::OutOfSpace => Error::OutOfSpace(error),
            _ => Error::Disk(error),
        })?;
        let unused = segment::Header { id: 0, previous_id: 0, first_index: 0, size_bytes };
        file.write_at(0, &unused.encode())?;
        Ok(name)
    }

    fn next_spare_name(&mut self) -> String {
        let name = recovery::spare_name(self.spare_number_next);
        self.spare_number_next += 1;
        name
    }

    /// Goes on in a new segment, so that nothing behind the last entry is ever read as what follows
    /// it. A last segment without entries is replaced.
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

    /// Takes a segment out of the log: its file becomes a spare, or goes. Durable when this returns.
    fn retire(&mut self, place: usize) -> Result<(), Error> {
        let segment = self.segments.remove(place);
        self.retire_file(&segment.name, segment.header.size_bytes)
    }

    fn retire_file(&mut self, name: &str, size_bytes: u64) -> Result<(), Error> {
        if self.spares.len() < self.options.spares_max && size_bytes == self.options.segment_bytes {
            let spare = self.next_spare_name();
            self.disk.rename(name, &spare)?;
            self.spares.push(spare);
        } else {
            self.disk.remove(name)?;
        }
        self.disk.sync_directory()?;
        Ok(())
    }
}
