//! The queue of records that passed the filter and are not in a batch yet.
//!
//! `lane` decides when a batch is due.

use std::collections::VecDeque;
use std::sync::Arc;

use super::record::{self, Delivery, EVENT_BYTES_MAX};

/// A record that waits for delivery to the function.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) record: Arc<Delivery>,
    /// The record's position in the shard's `Progress`.
    pub(super) place: u64,
}

/// The limits of one batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchLimits {
    /// Maximum number of records in the batch.
    pub(super) records: usize,
    /// Maximum size of the event in bytes.
    pub(super) event_bytes: usize,
    /// The batch contains only records created before this second; `None` for no limit. Records
    /// without a creation time are always allowed.
    pub(super) end_s: Option<i64>,
}

/// The pending records in ascending order.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    records: VecDeque<Pending>,
    json_bytes: usize,
}

impl Queue {
    pub(super) fn push(&mut self, record: Delivery, place: u64) {
        self.json_bytes += record.json.len();
        self.records.push_back(Pending { record: Arc::new(record), place });
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the size of the queued records, in bytes of JSON.
    pub(super) fn json_bytes(&self) -> usize {
        self.json_bytes
    }

    pub(super) fn first(&self) -> Option<&Pending> {
        self.records.front()
    }

    /// Returns true if the queue contains enough records for a full batch.
    pub(super) fn holds_full_batch(&self, batch_size: usize) -> bool {
        self.len() >= batch_size
            || record::event_bytes(self.len(), self.json_bytes) >= EVENT_BYTES_MAX
    }

    /// Removes the next batch from the queue and returns it. The batch respects the limits, but
    /// contains at least one record of a non-empty queue, because even an oversized record must be
    /// delivered.
    pub(super) fn take_batch(&mut self, limits: BatchLimits) -> Vec<Pending> {
        let (mut count, mut batch_bytes) = (0, 0);
        let fits = |pending: &&Pending| match (limits.end_s, pending.record.creation_s) {
            (Some(end), Some(made)) => made < end,
            _ => true,
        };
        for pending in self.records.iter().take(limits.records).take_while(fits) {
            let with_it = batch_bytes + pending.record.json.len();
            if count > 0 && record::event_bytes(count + 1, with_it) > limits.event_bytes {
                break;
            }
            count += 1;
            batch_bytes = with_it;
        }
        self.json_bytes -= batch_bytes;
        self.records.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SequenceNumber;
    use proptest::prelude::*;

    fn delivery(number: usize, length: usize) -> Delivery {
        let sequence = SequenceNumber::parse(&number.to_string()).unwrap();
        let json = "x".repeat(length).into_boxed_str();
        Delivery { sequence, creation_s: None, keys: None, json }
    }

    fn limits(records: usize) -> BatchLimits {
        BatchLimits { records, event_bytes: EVENT_BYTES_MAX, end_s: None }
    }

    #[test]
    fn a_batch_ends_at_six_megabytes_to_the_byte() {
        let frame = record::event_bytes(2, 0);
        for (excess, expected) in [(0, 2), (1, 1)] {
            let mut queue = Queue::default();
            queue.push(delivery(1, 1_000_000), 0);
            queue.push(delivery(2, EVENT_BYTES_MAX - frame - 1_000_000 + excess), 0);
            assert!(queue.holds_full_batch(100));
            assert_eq!(queue.take_batch(limits(100)).len(), expected, "excess {excess}");
        }
    }

    #[test]
    fn a_record_beyond_the_limit_goes_alone() {
        let mut queue = Queue::default();
        queue.push(delivery(1, EVENT_BYTES_MAX + 1), 0);
        queue.push(delivery(2, 1), 0);
        assert_eq!(queue.take_batch(limits(100)).len(), 1);
        assert_eq!(queue.take_batch(limits(100)).len(), 1);
    }

    proptest! {
        #[test]
        fn batches_are_the_queue_in_order(
            lengths in prop::collection::vec(0_usize..3_000_000, 0..12), batch_size in 1_usize..5,
        ) {
            let mut queue = Queue::default();
            for (number, length) in lengths.iter().enumerate() {
                queue.push(delivery(number, *length), 0);
            }
            let mut taken = Vec::new();
            while !queue.is_empty() {
                let batch = queue.take_batch(limits(batch_size));
                prop_assert!((1..=batch_size).contains(&batch.len()));
                taken.extend(batch.iter().map(|pending| pending.record.json.len()));
            }
            prop_assert_eq!(taken, lengths);
            prop_assert_eq!(queue.json_bytes(), 0);
        }
    }
}
