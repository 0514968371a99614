//! A reader of a log's entries, in order and across segments.

use std::ops::Range;

use super::Error;
use super::record::Entry;
use super::segment::Segment;

/// An iterator over entries that verifies the checksums of each entry. The iteration ends after an
/// error.
#[derive(Debug)]
pub struct Reader<'a> {
    segments: &'a [Segment],
    indexes: Range<u64>,
}

impl<'a> Reader<'a> {
    /// Creates a reader of the entries from `from` (inclusive) to `to` (exclusive), which must all
    /// be in `segments`.
    pub(super) fn new(segments: &'a [Segment], from: u64, to: u64) -> Self {
        let begun = segments.partition_point(|segment| segment.header.first_index <= from);
        let segments = segments.get(begun.saturating_sub(1)..).unwrap_or_default();
        Reader { segments, indexes: from..to }
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.indexes.next()?;
        let mut segment = self.segments.first()?;
        while index >= segment.next_index() {
            self.segments = self.segments.get(1..)?;
            segment = self.segments.first()?;
        }
        let entry = segment.read(index);
        if entry.is_err() {
            self.indexes.start = self.indexes.end;
        }
        Some(entry)
    }
}
