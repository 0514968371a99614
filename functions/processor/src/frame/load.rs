//! Loading what a rule needs of a batch, in the order of its records and in parts, so that a load
//! which cannot be finished leaves a batch that is shorter instead of one that nothing is known of.
//! Totals may have many slots: few are read at a time then, and no more are kept than there is room for.
//!
//! What is decided with it is not known here.

use futures::{StreamExt, stream};
use model::limits::BATCH_GET_KEYS_MAX;
use model::stream_record::RecordView;
use rules::{Found, LookAhead, Needs, Rule};

use super::{Executor, Frame};
use crate::back_off::Deadline;
use crate::event::Delivered;
use crate::failure::Failure;
use crate::object_store::ObjectStore;

/// Slots that are loaded at the same time, over all parts. One takes some 2 KB while it is read, so they
/// take 20 MB of a function's 256.
const SLOTS_AT_ONCE: usize = 10_000;
/// Slots behind which no further totals are loaded: they are kept until the batch is done, each takes some
/// 200 bytes of memory, and a batch may name thousands of counters with a thousand of them. The other
/// totals are read when they are written.
const SLOTS_MAX: usize = 30_000;

/// How a batch is loaded first. Four parts at the same time are enough to hide their latency, and few
/// enough to leave a table's capacity to others; a part is as much as one request asks for. A quarter
/// of the time is many times what that takes.
const WIDE: Way = Way { at_once: 4, needs_max: BATCH_GET_KEYS_MAX, percent: 25 };
/// How it is loaded where that brought nothing: parts that share what a slow table gives may all be
/// loaded in part. One after the other they do not, and each of these needs some seconds at the most.
const NARROW: Way = Way { at_once: 1, needs_max: 10, percent: 33 };

/// A way to load parts.
struct Way {
    /// Parts at the same time.
    at_once: usize,
    /// What is needed in one part.
    needs_max: usize,
    /// Of the time that is left, how much may be taken: half for both ways, as the other half is for
    /// what the records say.
    percent: u32,
}

/// What is known for the first records of a batch.
pub(super) struct Loaded {
    pub(super) found: Found,
    /// How many records that is enough for.
    pub(super) records: usize,
    /// Why it is not enough for all.
    pub(super) failure: Option<Failure>,
}

/// What records need that nothing before them does.
struct Part {
    /// The record behind the last one of the part.
    end: usize,
    needs: Needs,
}

impl<R: Rule, E: Executor, O: ObjectStore> Frame<R, E, O> {
    /// Loads for as many records as it can in half of the time that is left.
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
        // Whoever needs heads too needs them all, and few of those have totals.
        let may_leave_out = parts.iter().all(|part| part.needs.heads.is_empty());
        for Part { end, needs } in &parts {
            if may_leave_out && loaded.found.slots() >= SLOTS_MAX {
                // So are all parts behind it: their loads are not begun.
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
                // There is a load for each part.
                None => break,
            }
        }
        loaded
    }

    /// A batch in parts: at least one, and none with more needs than `needs_max`, unless a single
    /// record has.
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

    /// What must be loaded for a record. One that cannot be read needs nothing: it is refused later.
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
