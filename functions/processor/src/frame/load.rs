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

/// Parts that are loaded at the same time: enough to hide their latency, few enough to leave a
/// table's capacity to others.
const PARTS_AT_ONCE: usize = 4;
/// What is needed in one part: as much as one request asks for.
const PART_NEEDS_MAX: usize = BATCH_GET_KEYS_MAX;

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
    /// Loads for as many records as it can in half of the time that is left: the other half is for
    /// what they say.
    pub(super) async fn load(&self, batch: &[Delivered<'_>], deadline: Deadline) -> Loaded {
        let deadline = deadline.half_way();
        let mut loaded = Loaded { found: Found::default(), records: 0, failure: None };
        let parts = self.parts(batch).into_iter().map(async |Part { end, needs }| {
            (end, deadline.limit(self.executor.load(needs)).await)
        });
        let mut parts = stream::iter(parts.collect::<Vec<_>>()).buffered(PARTS_AT_ONCE);
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

    /// A batch in parts: at least one, and none with more needs than fit into a request, unless a
    /// single record has.
    fn parts(&self, batch: &[Delivered<'_>]) -> Vec<Part> {
        let (mut parts, mut seen, mut needs) = (Vec::new(), Needs::default(), Needs::default());
        if self.rule.look_ahead() != LookAhead::Nothing {
            for (position, delivered) in batch.iter().enumerate() {
                let more = self.needs_of(delivered).without(&seen);
                if needs.count() > 0 && needs.count() + more.count() > PART_NEEDS_MAX {
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
