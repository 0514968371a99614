//! Loading what a rule needs of a batch, in the order of its records and in parts, so that a load
//! which cannot be finished leaves a batch that is shorter instead of one that nothing is known of.
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
        let parts = self.parts(batch, way.needs_max).into_iter();
        let parts = parts.map(async |Part { end, needs }| {
            (end, deadline.limit(self.executor.load(needs)).await)
        });
        let mut parts = stream::iter(parts.collect::<Vec<_>>()).buffered(way.at_once);
        while let Some((end, found)) = parts.next().await {
            match found {
                Ok(found) => {
                    loaded.found.add(found);
                    loaded.records = end;
                }
                Err(failure) => {
                    loaded.failure = Some(failure);
                    break;
                }
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
