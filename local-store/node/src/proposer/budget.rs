//! How many writes an entry takes on, by what writes made of late.
//!
//! An update says a few bytes and may make an item of 400 KB. An entry is applied in one piece, during
//! which nothing else is answered, and what it makes is in memory until then. How large the items are
//! is known when an entry was applied: so the next one may have about twice as many writes, if what they
//! make stays small.

use std::sync::atomic::{AtomicUsize, Ordering};

use model::limits::ITEM_BYTES_MAX;
use partition::{CancellationReason, Command, Reply, Written};

/// Writes of commands after which an entry takes no further proposal: what a few thousand
/// connections have ready at once. The sequence number has room for 99,999 positions.
const WRITES_MAX: usize = 4096;
/// Bytes that the writes of an entry make about at most, with the items that they replace: what is
/// applied in some tenths of a second.
const MADE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Writes that an entry has room for, however large items were: so many make these bytes when each
/// replaces an item of the largest size by another.
const WRITES_MIN: usize = MADE_BYTES_MAX / (2 * ITEM_BYTES_MAX);

/// What is known of the entries before.
pub(super) struct Budget {
    writes_max: AtomicUsize,
    /// Bytes that a write made: of the last entry, or of one before that made more, less an eighth for
    /// each entry since.
    bytes_each: AtomicUsize,
}

impl Budget {
    /// Nothing is known.
    pub(super) fn new() -> Self {
        Self { writes_max: AtomicUsize::new(WRITES_MIN), bytes_each: AtomicUsize::new(0) }
    }

    /// Writes after which the next entry takes no further proposal.
    pub(super) fn writes_max(&self) -> usize {
        self.writes_max.load(Ordering::Relaxed)
    }

    /// Learns from an entry of so many writes, which was applied. One entry is under way, so nobody
    /// else learns at the same time.
    pub(super) fn learn(&self, writes: usize, replies: &[Reply]) {
        let made: usize = replies.iter().map(made_by).sum();
        let before = self.bytes_each.load(Ordering::Relaxed);
        let each = (made / writes.max(1)).max(before - before.div_ceil(8));
        self.bytes_each.store(each, Ordering::Relaxed);
        let next = (MADE_BYTES_MAX / each.max(1)).min(writes.saturating_mul(2));
        self.writes_max.store(next.clamp(WRITES_MIN, WRITES_MAX), Ordering::Relaxed);
    }
}

/// How many items a command may make.
pub(super) fn writes_of(command: &Command) -> usize {
    match command {
        Command::Prepare(prepare) => prepare.operations.len().max(1),
        other => other.positions(),
    }
}

/// Bytes of the items and entries that a command made, and of those that it replaced: a stream may
/// have them too. And of those that a refusal tells of.
fn made_by(reply: &Reply) -> usize {
    let of_write = |written: &Written| {
        let entries = written.index_writes.iter().map(|write| write.new_bytes).sum::<usize>();
        written.old_bytes + written.new_bytes + entries
    };
    match reply {
        Reply::Written(written) => of_write(written),
        Reply::Transacted { writes, repeated: false } | Reply::Prepared { writes } => {
            writes.iter().map(of_write).sum()
        }
        // These have made nothing, and have read what they say.
        Reply::ConditionFailed { bytes, .. } => *bytes,
        Reply::TransactionCancelled(reasons) => reasons.iter().map(told_by).sum(),
        _ => 0,
    }
}

/// Bytes of the item that a reason tells of.
fn told_by(reason: &CancellationReason) -> usize {
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

    /// Goal: entries of small writes grow to what is ready, and one of large ones ends that.
    #[test]
    fn an_entry_has_as_many_writes_as_make_some_megabytes() {
        let budget = Budget::new();
        let mut allowed = vec![budget.writes_max()];
        for _ in 0..7 {
            let writes = budget.writes_max();
            budget.learn(writes, &replies(writes, 1_000));
            allowed.push(budget.writes_max());
        }
        assert_eq!(allowed, [81, 162, 324, 648, 1296, 2592, 4096, 4096]);
        // A few connections do not ask for more.
        budget.learn(200, &replies(200, 1_000));
        assert_eq!(budget.writes_max(), 400);
        budget.learn(400, &replies(400, 390_000));
        assert_eq!(budget.writes_max(), 86);
        // What was learned fades.
        let entries = (1..100).find(|_| {
            budget.learn(4096, &replies(4096, 100));
            budget.writes_max() == 4096
        });
        assert!(entries.is_some_and(|entries| (20..40).contains(&entries)), "{entries:?}");
    }

    /// Goal: nothing that says no size brings the limit below what every entry may have.
    #[test]
    fn replies_without_sizes_make_nothing() {
        let budget = Budget::new();
        budget.learn(0, &[]);
        budget.learn(1, &[Reply::Done { more: true }, Reply::Conflict]);
        assert_eq!(budget.writes_max(), WRITES_MIN);
        budget.learn(1, &replies(1, usize::MAX / 4));
        assert_eq!(budget.writes_max(), WRITES_MIN);
    }
}
