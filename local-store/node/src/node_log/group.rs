//! The positions of one group's entries in the node's log, and its newest entries in memory.
//!
//! This module does no I/O: its caller passes every record to it, at start-up and afterwards.

use std::collections::VecDeque;

use openraft::EntryPayload;
use thiserror::Error;

use super::record::Record;
use crate::log_id::{LogId, log_id};
use crate::types::{Entry, Payload, Vote};

/// The maximum number of entries whose decoded commands and results are cached.
/// [`DECODED_COUNT_MAX`] limits the counted bytes of these entries (see [`Payload::counts`]). All
/// nodes of a process can use a cached result that one of them computed. Under load the nodes are a
/// few entries apart, and an entry has up to some hundred kilobytes. Higher limits would only cost
/// memory, because small entries take several times their counted bytes. The size of a cached
/// result is limited in proportion to its entry (see `payload`), so all results take at most about
/// 50 MB per arc.
const DECODED_ENTRIES_MAX: usize = 64;
const DECODED_COUNT_MAX: usize = 4 * 1024 * 1024;

/// The position of an entry, and the entry while it is recent.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    /// The position of the entry in the node's log.
    pub(super) position: u64,
    term: u64,
    /// The entry, while it is recent.
    entry: Option<Entry>,
}

/// The state of one group in the log.
#[derive(Debug, Clone, Default)]
pub(super) struct Group {
    pub(super) vote: Option<Vote>,
    pub(super) purged: Option<LogId>,
    /// Whether the node has left the group, and has not joined it again.
    pub(super) has_left: bool,
    /// The index of the first slot.
    first: u64,
    slots: VecDeque<Slot>,
    /// Number of slots, from the front, whose entries were dropped from memory.
    evicted: usize,
    /// Bytes of the entries in memory.
    pub(super) kept_bytes: usize,
    /// The payloads of the newest entries, oldest first. The field `new_count` is the sum of their
    /// counted bytes.
    new: VecDeque<Payload>,
    new_count: usize,
}

/// A gap in a group's log: one or more entries are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum LogGap {
    /// An entry does not follow the previous entry.
    #[error("the log has entry {found} in place of entry {expected}")]
    Between {
        /// The index of the entry.
        found: u64,
        /// The index that the entry must have.
        expected: u64,
    },
    /// The first entry does not follow the last purged entry.
    #[error("the log begins with entry {found} instead of entry {expected}")]
    AtBegin {
        /// The index of the first entry.
        found: u64,
        /// The index that the first entry must have.
        expected: u64,
    },
}

/// An entry, or its position in the log.
pub(super) enum FoundEntry {
    InMemory(Entry),
    OnDisk(u64),
}

impl Group {
    /// Adds the record at the given position. If `keep` is true, keeps its entry in memory.
    ///
    /// # Errors
    /// When the record does not continue the previous records, for example because an index is
    /// missing.
    pub(super) fn take(&mut self, position: u64, record: Record, keep: bool) -> Result<(), LogGap> {
        match record {
            Record::Left => self.leave(),
            Record::Joined => self.has_left = false,
            Record::Vote(vote) => self.vote = Some(vote),
            Record::Cut(from) => self.cut(from),
            Record::Purged(upto) => self.purge(upto),
            Record::Entry(entry) => {
                let at = entry.log_id;
                if self.slots.is_empty() {
                    // At start-up the first entry can have any index: a purge removed the entries
                    // before it, and the record of that purge comes later in the log.
                    self.first = at.index;
                } else if at.index != self.next() {
                    let expected = self.next();
                    return Err(LogGap::Between { found: at.index, expected });
                }
                if keep {
                    self.kept_bytes += bytes_of(&entry);
                    self.note_new(&entry);
                } else {
                    self.forget_all();
                    self.evicted += 1;
                }
                let entry = keep.then_some(entry);
                self.slots.push_back(Slot { position, term: at.leader_id.term, entry });
            }
        }
        Ok(())
    }

    /// Records a new entry, and drops the decoded commands and results of older entries.
    fn note_new(&mut self, entry: &Entry) {
        let EntryPayload::Normal(payload) = &entry.payload else { return };
        self.new_count += payload.counts();
        self.new.push_back(payload.clone());
        while (self.new_count > DECODED_COUNT_MAX || self.new.len() > DECODED_ENTRIES_MAX)
            && let Some(old) = self.new.pop_front()
        {
            self.new_count -= old.counts();
            old.forget_decoded();
        }
    }

    /// Returns the index of the next entry: the index of the last entry plus one.
    pub(super) fn next(&self) -> u64 {
        if self.slots.is_empty() {
            return self.purged.map_or(0, |at| at.index + 1);
        }
        self.first + self.slots.len() as u64
    }

    pub(super) fn last_log_id(&self) -> Option<LogId> {
        let last = self.slots.back().map(|slot| log_id(slot.term, self.next() - 1));
        last.or(self.purged)
    }

    /// Returns the term of an existing entry.
    pub(super) fn term_of(&self, index: u64) -> Option<u64> {
        let slot = usize::try_from(index.checked_sub(self.first)?).ok()?;
        self.slots.get(slot).map(|slot| slot.term)
    }

    /// Returns the position of the oldest entry that is needed.
    pub(super) fn oldest_position(&self) -> Option<u64> {
        self.slots.front().map(|slot| slot.position)
    }

    /// Checks that no entry is missing between the last purged entry and the first entry.
    pub(super) fn check(&self) -> Result<(), LogGap> {
        let expected = self.purged.map_or(0, |at| at.index + 1);
        if !self.slots.is_empty() && self.first != expected {
            return Err(LogGap::AtBegin { found: self.first, expected });
        }
        Ok(())
    }

    /// Returns the existing entries from `from` (inclusive) to `to` (exclusive).
    pub(super) fn find(&self, from: u64, to: u64) -> Vec<FoundEntry> {
        let skip = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let from = from.max(self.first);
        let count = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
        let found = |slot: &Slot| match &slot.entry {
            Some(entry) => FoundEntry::InMemory(entry.clone()),
            None => FoundEntry::OnDisk(slot.position),
        };
        self.slots.iter().skip(skip).take(count).map(found).collect()
    }

    /// Drops the oldest entries from memory until at most `bytes_max` bytes are kept. Keeps entries
    /// at or after the log position `written`, which are not on disk yet.
    pub(super) fn shrink(&mut self, written: u64, bytes_max: usize) {
        while self.kept_bytes > bytes_max
            && let Some(slot) = self.slots.get_mut(self.evicted)
            && slot.position < written
        {
            if let Some(entry) = slot.entry.take() {
                self.kept_bytes -= bytes_of(&entry);
            }
            self.evicted += 1;
        }
    }

    fn forget_all(&mut self) {
        self.shrink(u64::MAX, 0);
        self.evicted = self.slots.len();
    }

    /// Drops everything but the vote.
    fn leave(&mut self) {
        *self = Self { vote: self.vote, has_left: true, ..Self::default() };
    }

    fn cut(&mut self, from: u64) {
        while self.next() > from
            && let Some(slot) = self.slots.pop_back()
        {
            self.drop_slot(&slot);
        }
        self.evicted = self.evicted.min(self.slots.len());
    }

    fn purge(&mut self, upto: LogId) {
        while !self.slots.is_empty() && self.first <= upto.index {
            self.first += 1;
            if let Some(slot) = self.slots.pop_front() {
                self.drop_slot(&slot);
            }
            self.evicted = self.evicted.saturating_sub(1);
        }
        self.purged = self.purged.max(Some(upto));
    }

    fn drop_slot(&mut self, slot: &Slot) {
        self.kept_bytes -= slot.entry.as_ref().map_or(0, bytes_of);
    }
}

/// Returns the approximate size of an entry in memory, in bytes.
pub(crate) fn bytes_of(entry: &Entry) -> usize {
    let body = match &entry.payload {
        EntryPayload::Normal(payload) => payload.bytes().len(),
        EntryPayload::Blank | EntryPayload::Membership(_) => 64,
    };
    size_of::<Slot>() + body
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use openraft::entry::RaftEntry;

    use super::*;
    use crate::types::Payload;

    fn entry(index: u64) -> Record {
        let payload = EntryPayload::Normal(Payload::new(Bytes::from(vec![1; 100])));
        Record::Entry(Entry::new(log_id(1, index), payload))
    }

    fn indexes(group: &Group, from: u64, to: u64) -> Vec<String> {
        let show = |found| match found {
            FoundEntry::InMemory(entry) => format!("entry {}", entry.index()),
            FoundEntry::OnDisk(position) => format!("at {position}"),
        };
        group.find(from, to).into_iter().map(show).collect()
    }

    #[test]
    fn recent_entries_are_in_memory_and_older_ones_are_found_on_disk() {
        let mut group = Group::default();
        for index in 0..10 {
            group.take(100 + index, entry(index), true).unwrap();
        }
        group.shrink(105, 0);
        assert_eq!(indexes(&group, 3, 7), ["at 103", "at 104", "entry 5", "entry 6"]);
        group.shrink(200, 0);
        assert_eq!(group.kept_bytes, 0);
        group.take(110, entry(10), true).unwrap();
        assert_eq!(indexes(&group, 9, 20), ["at 109", "entry 10"]);
    }

    #[test]
    fn decoded_commands_are_kept_for_the_newest_entries() {
        let newest = |entries: u64, bytes: usize| {
            let mut group = Group::default();
            for index in 0..entries {
                let payload = Payload::new(Bytes::from(vec![1; bytes]));
                let entry = Entry::new(log_id(1, index), EntryPayload::Normal(payload));
                group.take(index, Record::Entry(entry), true).unwrap();
            }
            (group.new.len(), group.new_count)
        };
        assert_eq!(newest(10, 100), (10, 1_000));
        assert_eq!(newest(100, 100), (DECODED_ENTRIES_MAX, DECODED_ENTRIES_MAX * 100));
        assert_eq!(newest(10, DECODED_COUNT_MAX / 4), (4, DECODED_COUNT_MAX));
        assert_eq!(newest(2, DECODED_COUNT_MAX + 1), (0, 0));
    }

    #[test]
    fn cuts_and_purges_keep_the_entries_between() {
        let mut group = Group::default();
        for index in 0..10 {
            group.take(index, entry(index), true).unwrap();
        }
        group.take(10, Record::Cut(7), true).unwrap();
        assert_eq!((group.next(), group.last_log_id()), (7, Some(log_id(1, 6))));
        group.take(11, Record::Purged(log_id(1, 4)), true).unwrap();
        assert_eq!(indexes(&group, 0, 9), ["entry 5", "entry 6"]);
        assert_eq!(group.oldest_position(), Some(5));
        group.take(12, entry(7), true).unwrap();
        assert!(group.take(13, entry(9), true).is_err());
        // A snapshot can replace entries that this node never received.
        group.take(14, Record::Purged(log_id(2, 40)), true).unwrap();
        assert_eq!((group.next(), group.last_log_id()), (41, Some(log_id(2, 40))));
        assert_eq!(group.kept_bytes, 0);
        group.check().unwrap();
    }

    #[test]
    fn a_log_without_its_beginning_must_have_a_purge() {
        let mut group = Group::default();
        group.take(50, entry(20), false).unwrap();
        group.take(51, entry(21), false).unwrap();
        assert!(group.check().is_err());
        group.take(52, Record::Purged(log_id(1, 20)), false).unwrap();
        group.check().unwrap();
    }
}
