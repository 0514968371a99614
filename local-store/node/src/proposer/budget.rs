//! The number of writes per entry, adapted to the size of recent writes.
//!
//! An update of a few bytes may write an item of 400 KB. While a node applies an entry, it keeps
//! all changes of the entry in memory and serves no other requests. The size of the items is known
//! only after the entry was applied. Therefore each entry may have at most about twice as many
//! writes as the previous entry, as long as the items are small.

use std::sync::atomic::{AtomicUsize, Ordering};

use model::limits::ITEM_BYTES_MAX;
use partition::{CancellationReason, Command, Reply, Written};

/// The number of writes at which an entry accepts no further proposal: about as many as a few
/// thousand connections submit simultaneously. It must be at most 99,999, because a sequence number
/// has five digits for the position in its entry.
const WRITES_MAX: usize = 4096;
/// The approximate maximum number of bytes that the writes of an entry produce, including the items
/// that they replace. A node applies this many bytes in some tenths of a second.
const REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The minimum limit of writes in an entry. This many writes produce [`REPLY_BYTES_MAX`] bytes if
/// each replaces an item of the largest size with another item of the largest size.
const WRITES_MIN: usize = REPLY_BYTES_MAX / (2 * ITEM_BYTES_MAX);

/// The limit of writes per entry, learned from the sizes of earlier entries.
pub(super) struct Budget {
    writes_max: AtomicUsize,
    /// Estimated bytes per write: the value of the last entry, or a larger value of an earlier
    /// entry, which decays by an eighth with each entry.
    bytes_each: AtomicUsize,
}

impl Budget {
    /// Creates a budget without measurements.
    pub(super) fn new() -> Self {
        Self { writes_max: AtomicUsize::new(WRITES_MIN), bytes_each: AtomicUsize::new(0) }
    }

    /// Returns the number of writes at which the next entry accepts no further proposal.
    pub(super) fn writes_max(&self) -> usize {
        self.writes_max.load(Ordering::Relaxed)
    }

    /// Adapts the limit after an entry with `writes` writes was applied. Only one entry is in
    /// flight, so calls do not overlap.
    pub(super) fn learn(&self, writes: usize, replies: &[Reply]) {
        let made: usize = replies.iter().map(reply_bytes).sum();
        let before = self.bytes_each.load(Ordering::Relaxed);
        let each = (made / writes.max(1)).max(before - before.div_ceil(8));
        self.bytes_each.store(each, Ordering::Relaxed);
        let next = (REPLY_BYTES_MAX / each.max(1)).min(writes.saturating_mul(2));
        self.writes_max.store(next.clamp(WRITES_MIN, WRITES_MAX), Ordering::Relaxed);
    }
}

/// Returns the maximum number of items that a command writes.
pub(super) fn writes_of(command: &Command) -> usize {
    match command {
        Command::Prepare(prepare) => prepare.operations.len().max(1),
        other => other.positions(),
    }
}

/// Returns the bytes of the items and index entries that a command wrote and replaced. Replaced
/// items count because a stream record may contain both images. For an error, returns the bytes of
/// the items in the reply.
fn reply_bytes(reply: &Reply) -> usize {
    let of_write = |written: &Written| {
        let entries = written.index_writes.iter().map(|write| write.new_bytes).sum::<usize>();
        written.old_bytes + written.new_bytes + entries
    };
    match reply {
        Reply::Written(written) => of_write(written),
        Reply::Transacted { writes, repeated: false } | Reply::Prepared { writes } => {
            writes.iter().map(of_write).sum()
        }
        // These commands changed nothing, but their replies contain items that they have read.
        Reply::ConditionFailed { bytes, .. } => *bytes,
        Reply::TransactionCancelled(reasons) => reasons.iter().map(reason_bytes).sum(),
        _ => 0,
    }
}

/// Returns the bytes of the item in a cancellation reason.
fn reason_bytes(reason: &CancellationReason) -> usize {
    match reason {
        CancellationReason::ConditionFailed { item: Some(item) } => item.size(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies(writes: usize, bytes: usize) -> Vec<Reply> {
        let written = Written { old_bytes: bytes, new_bytes: bytes, ..Written::default() };
        vec![
            Reply::Written(written.clone()),
            Reply::Transacted { writes: vec![written; writes - 1], repeated: false },
        ]
    }

    /// Goal: with small writes, the limit grows until an entry accepts all ready writes. One entry
    /// of large writes reduces the limit.
    #[test]
    fn the_limit_of_writes_follows_their_size() {
        let budget = Budget::new();
        let mut allowed = vec![budget.writes_max()];
        for _ in 0..7 {
            let writes = budget.writes_max();
            budget.learn(writes, &replies(writes, 1_000));
            allowed.push(budget.writes_max());
        }
        assert_eq!(allowed, [81, 162, 324, 648, 1296, 2592, 4096, 4096]);
        // The next limit is twice the number of writes, which is enough for a few connections.
        budget.learn(200, &replies(200, 1_000));
        assert_eq!(budget.writes_max(), 400);
        budget.learn(400, &replies(400, 390_000));
        assert_eq!(budget.writes_max(), 86);
        // The estimate of bytes per write shrinks, so the limit grows again.
        let entries = (1..100).find(|_| {
            budget.learn(4096, &replies(4096, 100));
            budget.writes_max() == 4096
        });
        assert!(entries.is_some_and(|entries| (20..40).contains(&entries)), "{entries:?}");
    }

    /// Goal: replies without sizes do not reduce the limit below its minimum.
    #[test]
    fn replies_without_sizes_count_nothing() {
        let budget = Budget::new();
        budget.learn(0, &[]);
        budget.learn(1, &[Reply::Done { more: true }, Reply::Conflict]);
        assert_eq!(budget.writes_max(), WRITES_MIN);
        budget.learn(1, &replies(1, usize::MAX / 4));
        assert_eq!(budget.writes_max(), WRITES_MIN);
    }
}
