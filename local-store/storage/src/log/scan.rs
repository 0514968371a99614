//! A scan that reads the records of a segment up to the first broken record, and classifies the
//! bytes after it.
//!
//! The file is read one window at a time and never changed; `recovery` uses the result.

use super::Error;
use super::record::{self, ALIGNMENT_BYTES, HEADER_BYTES};
use super::segment::{self, DATA_OFFSET, Segment, describe};

/// The number of bytes of the file that are in memory at a time, unless a record is larger.
const WINDOW_BYTES: usize = 256 * 1024;

/// The result of reading the records of a segment in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Scan {
    /// The offset of each valid record, as in [`Segment::offsets`].
    pub(super) offsets: Vec<u32>,
    /// The offset after the last valid record, where the first broken record would begin.
    pub(super) end_offset: u64,
    /// The highest `synced_end` of the valid records: all entries below this index were durable
    /// when the last of these records was written.
    pub(super) synced_end: u64,
    /// The content at `end_offset`, for error messages.
    pub(super) found: String,
    /// The header at `end_offset`, if the header is valid but its payload is not.
    torn_payload: Option<record::Header>,
}

/// Reads records until a record is broken, or `count_max` records were read.
pub(super) fn scan(segment: &Segment, count_max: u64) -> Result<Scan, Error> {
    let mut window = Window::new(segment);
    let mut scan = Scan {
        offsets: Vec::new(),
        end_offset: DATA_OFFSET,
        synced_end: 0,
        found: "the end of the file".to_owned(),
        torn_payload: None,
    };
    while (scan.offsets.len() as u64) < count_max {
        let index = segment.header.first_index + scan.offsets.len() as u64;
        let Some(bytes) = window.read(scan.end_offset, HEADER_BYTES)? else { break };
        let blank = bytes.iter().all(|byte| *byte == 0);
        let header =
            bytes.first_chunk().and_then(|head| record::Header::decode(head, segment.header.id));
        let Some(header) = header else {
            scan.found = if blank { "zeros" } else { "other bytes" }.to_owned();
            break;
        };
        if header.index != index {
            scan.found = describe(header.index);
            break;
        }
        let payload_offset = scan.end_offset + HEADER_BYTES as u64;
        let payload = window.read(payload_offset, header.payload_bytes as usize)?;
        if !payload.is_some_and(|payload| header.matches(payload)) {
            scan.found = "the record's header, but a different payload".to_owned();
            scan.torn_payload = Some(header);
            break;
        }
        scan.offsets.push(segment::offset_unit(scan.end_offset));
        scan.end_offset += header.record_bytes();
        scan.synced_end = scan.synced_end.max(header.synced_end);
    }
    Ok(scan)
}

/// The kind of content from the first broken record on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TailContent {
    /// No further bytes of this segment: the segment ended cleanly.
    Nothing,
    /// Only records of this segment that were never durable: a power loss tore the last writes.
    Torn,
    /// A record at the given offset proves that the broken record was durable and was damaged
    /// later: its `synced_end` is higher than the broken record's index.
    Damage(u64),
}

/// Searches for later records after a scan that stopped at a broken record.
///
/// The length of a broken record is unknown, so the search tries every aligned offset. The search
/// verifies only headers: a valid header proves that its record was written.
pub(super) fn search(segment: &Segment, scan: &Scan) -> Result<TailContent, Error> {
    let broken_index = segment.header.first_index + scan.offsets.len() as u64;
    let mut remains = TailContent::Nothing;
    let mut offset = scan.end_offset;
    if let Some(header) = scan.torn_payload {
        // Bytes inside a payload may look like a record, so they are skipped.
        offset += header.record_bytes();
        remains = TailContent::Torn;
    }
    let mut window = Window::new(segment);
    while let Some(bytes) = window.read(offset, HEADER_BYTES)? {
        // Fast path: most of the searched bytes are zeros. A record is almost never skipped,
        // because its first eight bytes are two checksums.
        if bytes.first_chunk() != Some(&[0; 8])
            && let Some(header) =
                bytes.first_chunk().and_then(|head| record::Header::decode(head, segment.header.id))
        {
            if header.index > broken_index && header.synced_end > broken_index {
                return Ok(TailContent::Damage(offset));
            }
            remains = TailContent::Torn;
        }
        offset += ALIGNMENT_BYTES as u64;
    }
    Ok(remains)
}

/// A window of a segment in memory, which moves as it is read.
struct Window<'a> {
    segment: &'a Segment,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    fn new(segment: &'a Segment) -> Self {
        Window { segment, start: 0, bytes: Vec::new() }
    }

    /// Returns `length` bytes at `offset`, or `None` if the segment ends earlier.
    fn read(&mut self, offset: u64, length: usize) -> Result<Option<&[u8]>, Error> {
        let size_bytes = self.segment.header.size_bytes;
        if offset.checked_add(length as u64).is_none_or(|end| end > size_bytes) {
            return Ok(None);
        }
        let loaded =
            offset >= self.start && offset + length as u64 <= self.start + self.bytes.len() as u64;
        if !loaded {
            let rest = usize::try_from(size_bytes - offset).unwrap_or(usize::MAX);
            self.bytes.resize(length.max(WINDOW_BYTES).min(rest), 0);
            self.segment.file.read_at(offset, &mut self.bytes)?;
            self.start = offset;
        }
        let start = usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        Ok(self.bytes.get(start..start.saturating_add(length)))
    }
}
