//! The progress of a shard whose records may be finished in any order. The checkpoint is the last
//! record up to which all records are finished.
//!
//! `lane` decides when a record is finished.

use std::collections::VecDeque;

use super::sequence::SequenceNumber;

/// The records of a shard, beginning with the first unfinished record.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    entries: VecDeque<Entry>,
    /// The position of the first entry. A record's position is its sequential number among the
    /// records accepted since the start.
    first_place: u64,
    /// The last record up to which all records are finished.
    checkpoint: Option<SequenceNumber>,
}

#[derive(Debug, Clone)]
struct Entry {
    /// The checkpoint when this record and all earlier records are finished. It is this record
    /// itself, or the last of the filtered records that directly follow this record.
    finishes: SequenceNumber,
    finished: bool,
}

impl Progress {
    pub(super) fn new(checkpoint: Option<SequenceNumber>) -> Self {
        Self { checkpoint, ..Self::default() }
    }

    pub(super) fn checkpoint(&self) -> Option<&SequenceNumber> {
        self.checkpoint.as_ref()
    }

    /// Returns the number of records from the first unfinished record to the last record, including
    /// finished records.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a record that must be finished, and returns its position.
    pub(super) fn accept(&mut self, sequence: SequenceNumber) -> u64 {
        let place = self.first_place + self.entries.len() as u64;
        self.entries.push_back(Entry { finishes: sequence, finished: false });
        place
    }

    /// Adds a record that did not pass the filter. The record is done as soon as all earlier
    /// records are done. Returns true if it is done immediately.
    pub(super) fn skip_filtered(&mut self, sequence: SequenceNumber) -> bool {
        match self.entries.back_mut() {
            Some(before) => {
                before.finishes = sequence;
                false
            }
            None => {
                self.checkpoint = Some(sequence);
                true
            }
        }
    }

    /// Marks records as finished. Returns true if the checkpoint has advanced.
    pub(super) fn finish(&mut self, places: impl IntoIterator<Item = u64>) -> bool {
        for place in places {
            let index = place.checked_sub(self.first_place);
            let index = index.and_then(|index| usize::try_from(index).ok());
            if let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) {
                entry.finished = true;
            }
        }
        let mut moved = false;
        while let Some(entry) = self.entries.pop_front_if(|entry| entry.finished) {
            self.first_place += 1;
            self.checkpoint = Some(entry.finishes);
            moved = true;
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(number: u64) -> SequenceNumber {
        SequenceNumber::parse(&number.to_string()).unwrap()
    }

    #[test]
    fn the_checkpoint_is_the_contiguous_minimum() {
        let mut progress = Progress::default();
        let places: Vec<u64> = (1..=4).map(|number| progress.accept(sequence(number))).collect();
        assert!(!progress.skip_filtered(sequence(5)));
        assert!(!progress.finish([places[2], places[1]]));
        assert_eq!(progress.checkpoint(), None);
        assert!(progress.finish([places[0]]));
        assert_eq!(progress.checkpoint(), Some(&sequence(3)));
        assert!(!progress.finish([places[1]]), "a place that is long finished changes nothing");
        assert!(progress.finish([places[3]]));
        assert_eq!(progress.checkpoint(), Some(&sequence(5)), "filtered records follow");
        assert!(progress.skip_filtered(sequence(6)));
        assert_eq!((progress.checkpoint(), progress.len()), (Some(&sequence(6)), 0));
    }
}
