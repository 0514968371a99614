//! Recovery of a log when it is opened: finds and verifies its segments, cuts off a torn end, and
//! removes leftover files.
//!
//! The documentation of [`super`] states the rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::scan::{self, TailContent};
use super::segment::{self, HEADER_BYTES, Header, Segment, describe};
use super::{Error, Log, Options, Spare};
use crate::disk::Disk;

/// The number of bytes that are rewritten at a time.
const REWRITE_BYTES: u64 = 256 * 1024;

/// The result of the recovery in [`Log::open`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The number of entries in the log.
    pub entries: u64,
    /// The torn end that was cut off; `None` if the log had no torn end.
    pub discarded: Option<Discarded>,
}

/// The torn end of a log: entries that were never durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discarded {
    /// The file's name.
    pub file: String,
    /// The offset of the first entry that was cut off, in bytes from the start of the file.
    pub offset: u64,
    /// The index of the first entry that was cut off, which is now the log's next index.
    pub index: u64,
}

/// Returns the file name of a spare.
pub(super) fn spare_name(number: u64) -> String {
    format!("spare-{number:016x}")
}

fn parse_spare_name(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix("spare-")?, 16).ok()
}

impl Log {
    /// Opens the log on this disk, or creates one. All entries of the opened log are durable.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if durable bytes were lost or changed; [`Error::UnknownVersion`] if
    /// another version of this program wrote the log.
    pub fn open(disk: Arc<dyn Disk>, options: Options) -> Result<Self, Error> {
        options.check()?;
        let mut log = Log {
            disk,
            options,
            segments: Vec::new(),
            spares: Vec::new(),
            spare_number_next: 1,
            segment_id_last: 0,
            synced_end: 0,
            buffer: Vec::new(),
            stopped: false,
            recovery: Recovery::default(),
        };
        // The following steps rely on the names that were listed, so these names must survive a
        // power loss.
        log.disk.sync_directory()?;
        let mut found = BTreeMap::new();
        for name in log.disk.list()? {
            if let Some(id) = segment::parse_name(&name) {
                let segment = log.open_segment(&name, id)?;
                log.segment_id_last = log.segment_id_last.max(id);
                found.insert(id, segment);
            } else if let Some(number) = parse_spare_name(&name) {
                log.spare_number_next = log.spare_number_next.max(number.saturating_add(1));
                log.adopt_spare(name)?;
            }
        }
        log.link_segments(found)?;
        log.check_sealed_segments()?;
        log.check_last_segment()?;
        log.recovery.entries = log.next_index() - log.first_index();
        Ok(log)
    }

    fn open_segment(&self, name: &str, id: u64) -> Result<Segment, Error> {
        let file = self.disk.open(name)?;
        let corrupt = |offset, expected: String, found: String| Error::Corrupt {
            file: name.to_owned(),
            offset,
            expected,
            found,
        };
        let size_bytes = file.size_bytes()?;
        let mut head = [0; HEADER_BYTES];
        if size_bytes < head.len() as u64 {
            let found = format!("{size_bytes} bytes");
            return Err(corrupt(size_bytes, "a segment header".to_owned(), found));
        }
        file.read_at(0, &mut head)?;
        let header = Header::decode(&head, name)?;
        if header.id != id {
            let (expected, found) = (format!("segment id {id}"), format!("id {}", header.id));
            return Err(corrupt(16, expected, found));
        }
        if header.size_bytes != size_bytes {
            let expected = format!("a file of {} bytes", header.size_bytes);
            return Err(corrupt(size_bytes, expected, format!("{size_bytes} bytes")));
        }
        Ok(Segment::new(header, file))
    }

    /// Keeps a spare file, or removes it if it is surplus, incomplete or of another size.
    ///
    /// Old records in a spare have at most the id of the spare's header, and new segments get
    /// higher ids than all headers. Therefore, old records never look valid in a new segment. A
    /// file without a valid header could violate this rule, so it is removed.
    fn adopt_spare(&mut self, name: String) -> Result<(), Error> {
        let size_bytes = self.options.segment_bytes;
        let file = self.disk.open(&name)?;
        let mut head = [0; HEADER_BYTES];
        if file.size_bytes()? == size_bytes {
            file.read_at(0, &mut head)?;
        }
        match Header::decode(&head, &name) {
            Ok(header)
                if header.size_bytes == size_bytes
                    && self.spares.len() < self.options.spares_max =>
            {
                self.segment_id_last = self.segment_id_last.max(header.id);
                self.spares.push(Spare { name, size_bytes });
            }
            _ => {
                self.disk.remove(&name)?;
                self.disk.sync_directory()?;
            }
        }
        Ok(())
    }

    /// Links each segment to its predecessor, from the newest segment back to the oldest.
    fn link_segments(&mut self, mut found: BTreeMap<u64, Segment>) -> Result<(), Error> {
        let Some((_, newest)) = found.pop_last() else {
            return self.begin_segment(self.options.first_index, 0);
        };
        let newest_previous_id = newest.header.previous_id;
        let (mut oldest_name, mut previous_id) = (newest.name.clone(), newest_previous_id);
        self.segments.push(newest);
        while let Some(previous) = found.remove(&previous_id) {
            (oldest_name, previous_id) = (previous.name.clone(), previous.header.previous_id);
            self.segments.push(previous);
        }
        self.segments.reverse();
        for (id, segment) in found {
            // The newest segment has replaced the segments with ids between its own id and its
            // predecessor's id.
            if id < newest_previous_id {
                let missing = segment::name(previous_id);
                return Err(Error::Corrupt {
                    file: oldest_name,
                    offset: 24,
                    expected: format!("the preceding segment {missing}"),
                    found: format!("only the older segment {}", segment.name),
                });
            }
            self.retire_file(&segment.name, segment.header.size_bytes)?;
        }
        Ok(())
    }

    /// Reads all segments except the last. Each of them must be undamaged up to the first index of
    /// the next segment.
    fn check_sealed_segments(&mut self) -> Result<(), Error> {
        let ends: Vec<u64> =
            self.segments.iter().skip(1).map(|next| next.header.first_index).collect();
        for (segment, end) in self.segments.iter_mut().zip(ends) {
            let first_index = segment.header.first_index;
            let corrupt = |offset, expected, found| Error::Corrupt {
                file: segment.name.clone(),
                offset,
                expected,
                found,
            };
            let Some(count) = end.checked_sub(first_index) else {
                let expected =
                    format!("a first index of at most {end}, where the next segment begins");
                return Err(corrupt(32, expected, format!("first index {first_index}")));
            };
            let scan = scan::scan(segment, count)?;
            let scanned = scan.offsets.len() as u64;
            if scanned < count {
                let expected = describe(first_index + scanned);
                return Err(corrupt(scan.end_offset, expected, scan.found));
            }
            (segment.offsets, segment.end_offset) = (scan.offsets, scan.end_offset);
        }
        Ok(())
    }

    /// Reads the last segment, cuts off a torn end, and makes the rest durable.
    fn check_last_segment(&mut self) -> Result<(), Error> {
        let Some(segment) = self.segments.last_mut() else { return Ok(()) };
        let scan = scan::scan(segment, u64::MAX)?;
        let remains = scan::search(segment, &scan)?;
        segment.offsets.clone_from(&scan.offsets);
        segment.end_offset = scan.end_offset;
        let (index, offset) = (segment.next_index(), scan.end_offset);
        if let TailContent::Damage(witness) = remains {
            return Err(Error::Corrupt {
                file: segment.name.clone(),
                offset,
                expected: format!(
                    "{}, which was durable before the record at offset {witness} was written",
                    describe(index)
                ),
                found: scan.found,
            });
        }
        rewrite(segment, segment.offset_of(scan.synced_end.max(segment.header.first_index)))?;
        self.synced_end = index;
        if remains == TailContent::Torn {
            let file = segment.name.clone();
            self.recovery.discarded = Some(Discarded { file, offset, index });
            self.leave_last_segment()?;
        }
        Ok(())
    }
}

/// Rewrites the records from the given offset on with the same bytes, and syncs them.
///
/// The records may have been read from the page cache. After a failed sync, the page cache can
/// contain bytes that are not on the disk and that no later sync would write. Rewriting marks these
/// bytes dirty again.
fn rewrite(segment: &Segment, from: u64) -> Result<(), Error> {
    if from >= segment.end_offset {
        return Ok(());
    }
    let mut offset = from;
    let mut bytes = Vec::new();
    while offset < segment.end_offset {
        let length = (segment.end_offset - offset).min(REWRITE_BYTES);
        bytes.resize(usize::try_from(length).unwrap_or(0), 0);
        segment.file.read_at(offset, &mut bytes)?;
        segment.file.write_at(offset, &bytes)?;
        offset += length;
    }
    segment.file.sync_data()?;
    Ok(())
}
