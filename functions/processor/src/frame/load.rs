//! Loads the data that a rule needs for a batch, in the order of the records and in parts. So an
//! incomplete load shortens the batch instead of failing it. Totals may have many slots. To save
//! memory, few totals with many slots are read at a time, and a limited number of slots is kept.
//!
//! This module makes no decisions about records.

use futures::{StreamExt, stream};
use model::limits::BATCH_GET_KEYS_MAX;
use model::stream_record::RecordView;
use rules::{Found, LookAhead, Needs, Rule};

use super::{Executor, Frame};
use crate::back_off::Deadline;
use crate::event::BatchRecord;
use crate::failure::Failure;
use crate::object_store::ObjectStore;

/// Maximum number of slots that all parts load concurrently. A slot takes about 2 KB while it is
/// read, so this many slots take 20 MB of the function's 256 MB.
const SLOTS_AT_ONCE: usize = 10_000;
/// Number of loaded slots after which no further totals are loaded. Loaded slots are kept until the
/// batch is done and take about 200 bytes each, and a batch may name thousands of counters with a
/// thousand slots. The executor reads the other totals when it writes them.
const SLOTS_MAX: usize = 30_000;

/// The first attempt to load a batch. Each part is one request. Four concurrent parts hide the
/// latency and leave capacity of the table to other clients. A load usually needs much less than
/// this quarter of the time.
const WIDE: LoadPlan = LoadPlan { concurrency: 4, needs_max: BATCH_GET_KEYS_MAX, percent: 25 };
/// The second attempt, if the first attempt loaded nothing. On a slow table, concurrent parts may
/// all stay incomplete. Sequential small parts complete one after the other within a few seconds
/// each.
const NARROW: LoadPlan = LoadPlan { concurrency: 1, needs_max: 10, percent: 33 };

/// How to load the parts of a batch.
struct LoadPlan {
    /// Number of concurrent parts.
    concurrency: usize,
    /// Maximum number of needs (targets to load) in one part.
    needs_max: usize,
    /// Percentage of the remaining time for this attempt. Both attempts together take half of the
    /// time; the other half is for the effects.
    percent: u32,
}

/// The data that was loaded for the first records of a batch.
pub(super) struct Loaded<I> {
    pub(super) found: Found<I>,
    /// Number of records for which the data is complete.
    pub(super) records: usize,
    /// Why the data is not complete for all records.
    pub(super) failure: Option<Failure>,
}

/// The needs (targets to load) of consecutive records, without the needs of earlier records.
struct Part {
    /// The position after the last record of the part.
    end: usize,
    needs: Needs,
}

impl<R: Rule, E: Executor<Rule = R>, O: ObjectStore> Frame<R, E, O> {
    /// Loads the data for the first records of a batch, as many as half of the remaining time
    /// allows. If concurrent parts load nothing, loads the parts one after the other.
    pub(super) async fn load(
        &self,
        batch: &[BatchRecord<'_>],
        deadline: Deadline,
    ) -> Loaded<R::Input> {
        let loaded = self.load_parts(batch, &WIDE, deadline).await;
        match loaded.failure {
            Some(Failure::Retry(_)) if loaded.records == 0 => {
                self.load_parts(batch, &NARROW, deadline).await
            }
            _ => loaded,
        }
    }

    async fn load_parts(
        &self,
        batch: &[BatchRecord<'_>],
        way: &LoadPlan,
        deadline: Deadline,
    ) -> Loaded<R::Input> {
        let deadline = deadline.part_way(way.percent);
        let mut loaded = Loaded { found: Found::default(), records: 0, failure: None };
        let slots = SLOTS_AT_ONCE / way.concurrency / self.rule.slots_of_need().max(1);
        let parts = self.parts(batch, slots.clamp(1, way.needs_max));
        let loads = parts.iter();
        let loads = loads.map(|part| deadline.limit(self.executor.load(part.needs.clone())));
        let mut loads = stream::iter(loads.collect::<Vec<_>>()).buffered(way.concurrency);
        let slots = |found: &Found<R::Input>| -> usize {
            found.inputs.values().map(|input| self.rule.slots_of(input)).sum()
        };
        for Part { end, needs } in &parts {
            if slots(&loaded.found) >= SLOTS_MAX {
                // The limit remains exceeded for all later parts, so they are not loaded.
                loaded.found.not_loaded.extend(needs.iter().cloned());
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

    /// Divides a batch into at least one part. A part has at most `needs_max` needs (targets to
    /// load), unless a single record has more.
    fn parts(&self, batch: &[BatchRecord<'_>], needs_max: usize) -> Vec<Part> {
        let (mut parts, mut seen, mut needs) = (Vec::new(), Needs::default(), Needs::default());
        if self.rule.look_ahead() != LookAhead::Nothing {
            for (position, delivered) in batch.iter().enumerate() {
                let mut more = self.needs_of(delivered);
                more.retain(|need| !seen.contains(need));
                if !needs.is_empty() && needs.len() + more.len() > needs_max {
                    parts.push(Part { end: position, needs: std::mem::take(&mut needs) });
                }
                seen.extend(more.iter().cloned());
                needs.extend(more);
            }
        }
        parts.push(Part { end: batch.len(), needs });
        parts
    }

    /// Returns the needs of a record: the targets to load for it. A record that cannot be decoded
    /// has no needs, because it is refused later.
    fn needs_of(&self, delivered: &BatchRecord<'_>) -> Needs {
        let needs = if self.rule.look_ahead() == LookAhead::Keep {
            delivered.record().as_ref().ok().map(|record| self.rule.needs(&[record]))
        } else {
            let readable =
                delivered.with_decoded(|record| record.ok().map(RecordView::into_record));
            readable.map(|record| self.rule.needs(&[&record]))
        };
        needs.unwrap_or_default()
    }
}
