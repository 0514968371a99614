//! One segment: a file of fixed size with a header of 4,096 bytes and records after it.
//!
//! The module appends to and reads from one file. Its callers sync the file, and decide where a log
//! begins and ends. `docs/formats/log.md` documents the layout.

use crc32c::crc32c;

use super::Error;
use super::record::{self, Entry};
use crate::disk::DiskFile;

/// The offset of the first record in bytes: one page, so that no write of a record changes the
/// header's sector or page.
pub(super) const DATA_OFFSET: u64 = 4_096;

/// The number of used bytes of the header; the remaining bytes up to [`DATA_OFFSET`] are zero.
pub(super) const HEADER_BYTES: usize = 48;

const MAGIC: &[u8; 8] = b"weir-log";

/// The format version. The version increases whenever a reader of the old format would misread the
/// new format.
pub(super) const FORMAT_VERSION: u32 = 1;

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The id of the segment, unique in its directory and ascending; zero in a spare file that was
    /// never used.
    pub(super) id: u64,
    /// The id of the preceding segment; zero if the log begins with this segment.
    pub(super) previous_id: u64,
    /// The index of the first record. Records of the previous segment from this index on were torn,
    /// and are ignored.
    pub(super) first_index: u64,
    /// The size of the file in bytes.
    pub(super) size_bytes: u64,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut head = Vec::from(MAGIC);
        head.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        let mut body = Vec::new();
        for field in [self.id, self.previous_id, self.first_index, self.size_bytes] {
            body.extend_from_slice(&field.to_le_bytes());
        }
        let crc = crc32c(&[head.as_slice(), body.as_slice()].concat());
        [head.as_slice(), &crc.to_le_bytes(), body.as_slice()].concat()
    }

    /// Decodes the header at the beginning of the file `name`.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES], name: &str) -> Result<Self, Error> {
        let corrupt = |offset, expected: &str, found: String| Error::Corrupt {
            file: name.to_owned(),
            offset,
            expected: expected.to_owned(),
            found,
        };
        let (head, rest) = bytes.split_at(12);
        let (magic, version) = head.split_at(8);
        let (crc, body) = rest.split_at(4);
        if magic != MAGIC {
            let found = format!("`{}`", magic.escape_ascii());
            return Err(corrupt(0, "the magic `weir-log`", found));
        }
        // The checksum is verified before the version, because a flipped bit in the version is
        // damage, not a file of a later program.
        let computed = crc32c(&[head, body].concat());
        if read_u32(crc) != computed {
            let found = format!("{:#010x}", read_u32(crc));
            return Err(corrupt(12, &format!("header checksum {computed:#010x}"), found));
        }
        let version = read_u32(version);
        if version != FORMAT_VERSION {
            let (file, expected) = (name.to_owned(), FORMAT_VERSION);
            return Err(Error::UnknownVersion { file, found: version, expected });
        }
        let mut fields = body.chunks_exact(8).map(read_u64);
        let mut next = || fields.next().unwrap_or_default();
        Ok(Header { id: next(), previous_id: next(), first_index: next(), size_bytes: next() })
    }
}

fn read_u32(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn read_u64(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Returns the file name of the segment with the given id. Names sort in the order of the ids.
pub(super) fn name(id: u64) -> String {
    format!("segment-{id:016x}")
}

/// Returns the id in a segment's file name.
pub(super) fn parse_name(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("segment-")?;
    u64::from_str_radix(digits, 16).ok().filter(|id| self::name(*id) == name)
}

/// A segment that is part of the log.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) name: String,
    pub(super) header: Header,
    pub(super) file: Box<dyn DiskFile>,
    /// The offset of each record, in units of [`record::ALIGNMENT_BYTES`]: 4 bytes per entry.
    pub(super) offsets: Vec<u32>,
    /// The offset of the next record.
    pub(super) end_offset: u64,
}

impl Segment {
    /// Creates a segment without records.
    pub(super) fn new(header: Header, file: Box<dyn DiskFile>) -> Self {
        let offsets = Vec::new();
        Segment { name: name(header.id), header, file, offsets, end_offset: DATA_OFFSET }
    }

    /// Returns the index of the next entry: the index of the last entry plus one.
    pub(super) fn next_index(&self) -> u64 {
        self.header.first_index + self.offsets.len() as u64
    }

    /// Returns the number of bytes that are free for records.
    pub(super) fn free_bytes(&self) -> u64 {
        self.header.size_bytes.saturating_sub(self.end_offset)
    }

    /// Writes the records of these entries with one write. The records must fit and continue the
    /// segment. `buffer` is scratch space.
    pub(super) fn append(
        &mut self,
        entries: &[Entry],
        synced_end: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Error> {
        buffer.clear();
        let mut offsets = Vec::with_capacity(entries.len());
        for entry in entries {
            offsets.push(offset_unit(self.end_offset + buffer.len() as u64));
            record::encode(buffer, self.header.id, entry, synced_end);
        }
        self.file.write_at(self.end_offset, buffer)?;
        self.offsets.append(&mut offsets);
        self.end_offset += buffer.len() as u64;
        Ok(())
    }

    /// Reads one entry, which must be in this segment, and verifies it.
    pub(super) fn read(&self, index: u64) -> Result<Entry, Error> {
        let start = self.offset_of(index);
        let record_bytes = self.offset_of(index.saturating_add(1)).saturating_sub(start);
        let mut bytes = vec![0; usize::try_from(record_bytes).unwrap_or(0)];
        self.file.read_at(start, &mut bytes)?;
        let corrupt = |expected: String, found: String| Error::Corrupt {
            file: self.name.clone(),
            offset: start,
            expected,
            found,
        };
        let header = bytes
            .first_chunk()
            .and_then(|head| record::Header::decode(head, self.header.id))
            .ok_or_else(|| corrupt(describe(index), "other bytes".to_owned()))?;
        if header.index != index {
            return Err(corrupt(describe(index), describe(header.index)));
        }
        let payload = bytes
            .get(record::HEADER_BYTES..record::HEADER_BYTES + header.payload_bytes as usize)
            .filter(|payload| header.matches(payload))
            .ok_or_else(|| {
                let found = "other bytes".to_owned();
                corrupt(format!("payload with checksum {:#010x}", header.payload_crc), found)
            })?;
        Ok(Entry { index, term: header.term, payload: payload.to_vec().into() })
    }

    /// Returns the offset of an entry's record, or the end offset if the index does not exist.
    pub(super) fn offset_of(&self, index: u64) -> u64 {
        index
            .checked_sub(self.header.first_index)
            .and_then(|place| self.offsets.get(usize::try_from(place).ok()?))
            .map_or(self.end_offset, |units| u64::from(*units) * record::ALIGNMENT_BYTES as u64)
    }
}

/// Returns an offset in the unit of [`Segment::offsets`]. It fits into 32 bits, because segments
/// are smaller than 32 GiB.
pub(super) fn offset_unit(offset: u64) -> u32 {
    u32::try_from(offset / record::ALIGNMENT_BYTES as u64).unwrap_or(u32::MAX)
}

/// Returns the description of a record for an error message.
pub(super) fn describe(index: u64) -> String {
    format!("the record of entry {index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_layout_is_as_drawn() {
        let header = Header { id: 5, previous_id: 3, first_index: 0x0102, size_bytes: 8_192 };
        let bytes = header.encode();
        assert_eq!(bytes.len(), HEADER_BYTES);
        assert_eq!(&bytes[..8], b"weir-log");
        assert_eq!(bytes[8..12], [1, 0, 0, 0]);
        assert_eq!(bytes[16..24], [5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[24..32], [3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[32..40], [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[40..48], [0, 32, 0, 0, 0, 0, 0, 0]);
        let mut bytes = *bytes.first_chunk().unwrap();
        assert_eq!(Header::decode(&bytes, "file").unwrap(), header);
        bytes[8] = 2;
        let error = Header::decode(&bytes, "file").unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "a flipped bit: {error}");
        let crc = crc32c(&[&bytes[..12], &bytes[16..]].concat());
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        let error = Header::decode(&bytes, "file").unwrap_err();
        assert!(matches!(error, Error::UnknownVersion { found: 2, expected: 1, .. }), "{error}");
    }

    #[test]
    fn names_carry_the_id() {
        assert_eq!(name(26), "segment-000000000000001a");
        assert_eq!(parse_name(&name(26)), Some(26));
        for other in ["segment-1a", "spare-000000000000001a", "segment-00000000000000zz", "lock"] {
            assert_eq!(parse_name(other), None, "{other}");
        }
    }
}
