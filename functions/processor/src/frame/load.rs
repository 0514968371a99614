//! Loads what a rule needs for a batch, in the order of its records and in parts. So a load that
//! cannot be completed shortens the batch instead of failing all of it. Totals may have many slots:
//! then few are read at a time, and no more are kept than memory allows.
//!
//! The module does not decide anything.

use futures::{StreamExt, stream};
use model::limits::BATCH_GET_KEYS_MAX;
use model::stream_record::RecordView;
use rules::{Found, LookAhead, Needs, Rule};

use super::{Executor, Frame};
use crate::back_off::Deadline;
use crate::event::Delivered;
use crate::failure::Failure;
use crate::object_store::ObjectStore;

/// Slots loaded concurrently over all parts. One takes about 2 KB while it is read, so they take 20
/// MB of the function's 256.
const SLOTS_AT_ONCE: usize = 10_000;
/// Slots after which no further totals are loaded. They are kept until the batch is done, each
/// takes about 200 bytes, and a batch may name thousands of counters with a thousand slots. The
/// other totals are read when they are written.
const SLOTS_MAX: usize = 30_000;

/// The first way to load a batch. Four concurrent parts hide the latency and leave capacity of the
/// table to others; a part is one request. A quarter of the time is many times what that takes.
const WIDE: Way = Way { at_once: 4, needs_max: BATCH_GET_KEYS_MAX, percent: 25 };
/// The way after the first one loaded nothing: concurrent parts that share a slow table may all be
/// incomplete. Sequential ones do not, and each needs at most some seconds.
const NARROW: Way = Way { at_once: 1, needs_max: 10, percent: 33 };

/// A way to load parts.
struct Way {
    /// Concurrent parts.
    at_once: usize,
    /// Needs in one part.
    needs_max: usize,
    /// Percentage of the remaining time that it may take. Both ways together take half; the other
    /// half is for the effects.
    percent: u32,
}

/// What was loaded for the first records of a batch.
pub(super) struct Loaded {
    pub(super) found: Found,
    /// Number of records that it is sufficient for.
    pub(super) records: usize,
    /// Why it is not sufficient for all.
    pub(super) failure: Option<Failure>,
}

/// Needs of records that no earlier record has.
struct Part {
    /// The position after the last record of the part.
    end: usize,
    needs: Needs,
}

impl<R: Rule, E: Executor, O: ObjectStore> Frame<R, E, O> {
    /// Loads what the first records of a batch need, for as many as half of the remaining time allows.
    /// If a wide load loads nothing, tries a narrow one.
    pub(super) async fn load(&self, batch: &[Delivered<'_>], deadline: Deadline) -> Loaded {
        let loaded = self.load_parts(batch, &WIDE, deadline).await;
        match loaded.failure {
            Some(Failure::Retry(_)) if loaded.records == 0 => {
                self.load_parts(batch, &NARROW, deadline).await
            }
            _ => loaded,
        }
    }

    async fn load_parts(&self, batch: &[Delivered<'_>], way: &Way, deadline: Deadline) -> Loaded {
        let deadline = deadline.part_way(way.percent);
        let mut loaded = Loaded { found: Found::default(), records: 0, failure: None };
        let slots = SLOTS_AT_ONCE / way.at_once / self.rule.slots_of_need().max(1);
        let parts = self.parts(batch, slots.clamp(1, way.needs_max));
        let loads = parts.iter();
        let loads = loads.map(|part| deadline.limit(self.executor.load(part.needs.clone())));
        let mut loads = stream::iter(loads.collect::<Vec<_>>()).buffered(way.at_once);
        // A rule that needs heads needs all of them, and few of its records have totals.
        let may_leave_out = parts.iter().all(|part| part.needs.heads.is_empty());
        for Part { end, needs } in &parts {
            if may_leave_out && loaded.found.slots() >= SLOTS_MAX {
                // The same holds for all later parts: their loads are not begun.
                loaded.found.left_out.extend(needs.totals.iter().cloned());
                loaded.records = *end;
                continue;
            }
            match loads.next().await {
                Some(Ok(found)) => {
                    loaded.found.add(found);
                    loaded.records = *end;
                }
                Some(Err(failure)) => {
                    loaded.failure = Some(failure);
                    break;
                }
                // Unreachable: the stream yields one result for each part.
                None => break,
            }
        }
        loaded
    }

    /// Divides a batch into parts: at least one, and none with more needs than `needs_max`, unless
    /// a single record has more.
    fn parts(&self, batch: &[Delivered<'_>], needs_max: usize) -> Vec<Part> {
        let (mut parts, mut seen, mut needs) = (Vec::new(), Needs::default(), Needs::default());
        if self.rule.look_ahead() != LookAhead::Nothing {
            for (position, delivered) in batch.iter().enumerate() {
                let more = self.needs_of(delivered).without(&seen);
                if needs.count() > 0 && needs.count() + more.count() > needs_max {
                    parts.push(Part { end: position, needs: std::mem::take(&mut needs) });
                }
                seen.add(more.clone());
                needs.add(more);
            }
        }
        parts.push(Part { end: batch.len(), needs });
        parts
    }

    /// Returns the needs of a record. One that cannot be decoded needs nothing: it is refused
    /// later.
    fn needs_of(&self, delivered: &Delivered<'_>) -> Needs {
        let needs = if self.rule.look_ahead() == LookAhead::Keep {
            delivered.record().as_ref().ok().map(|record| self.rule.needs(&[record]))
        } else {
            let readable = delivered.look(|record| record.ok().map(RecordView::into_record));
            readable.map(|record| self.rule.needs(&[&record]))
        };
        needs.unwrap_or_default()
    }
}
