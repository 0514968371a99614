//! The frame: the processing of a batch, which all stream functions share. It decodes the batch in
//! order, loads the data that the rule needs, lets the rule decide, folds the effects and applies
//! them, quarantines refused records, and reports.
//!
//! The rule decides, the executor applies. The report names at most one record: the first record to
//! deliver again, with all records after it. Effects are idempotent, so redelivered records that
//! were applied change nothing.

mod executor;
mod load;

pub(crate) use executor::in_order;
pub use executor::{Executor, SetAside, TargetOutcome};

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use model::stream_record::{RecordError, RecordView};
use rules::{Fold, Found, LookAhead, Needs, Refusal, Rule};
use tracing::{error, warn};

use crate::back_off::Deadline;
use crate::event::{self, BatchItemFailure, BatchRecord, BatchResponse, Event};
use crate::failure::Failure;
use crate::object_store::ObjectStore;
use crate::quarantine::Quarantine;
use load::Loaded;

/// Maximum number of concurrent writes to the quarantine. One invocation must be able to quarantine
/// a batch in which every record is refused.
const QUARANTINE_AT_ONCE: usize = 16;

/// The outcome of a batch, in numbers of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Records of the batch.
    pub records: usize,
    /// Records that are not relevant to this function.
    pub ignored: usize,
    /// Records that changed a target.
    pub applied: usize,
    /// Records that had been applied before.
    pub already_applied: usize,
    /// Records that were quarantined.
    pub refused: usize,
    /// Records returned for redelivery: the first failed record, and all records after it.
    pub retried: usize,
}

/// The outcome of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The response to Lambda.
    pub response: BatchResponse,
    /// The numbers for the log.
    pub summary: Summary,
}

/// A stream function.
#[derive(Clone, Debug)]
pub struct Frame<R, E, O> {
    /// The rule that decides about records.
    pub rule: R,
    /// The executor that applies the decisions.
    pub executor: E,
    /// The quarantine of refused records.
    pub quarantine: Quarantine<O>,
}

/// A batch and its outcome.
#[derive(Debug)]
pub struct Processed<'p> {
    /// The batch.
    pub batch: Vec<BatchRecord<'p>>,
    /// The result of [`Frame::process`].
    pub result: Result<Report, Failure>,
}

/// The decisions about a batch.
#[derive(Debug, Default)]
struct Decided<F> {
    ignored: usize,
    folded: F,
    /// Refused records by position, each with the reason. A retry would be refused too.
    refused: Vec<(usize, String)>,
}

impl<F> Decided<F> {
    fn add<E: Fold<Folded = F>>(
        &mut self,
        position: usize,
        (effects, refused): (Vec<E>, Option<Refusal>),
    ) {
        if effects.is_empty() && refused.is_none() {
            self.ignored += 1;
        }
        effects.into_iter().for_each(|effect| effect.fold_into(&mut self.folded, position));
        self.refused.extend(refused.map(|refusal| (position, refusal.0)));
    }
}

impl<R: Rule, E: Executor<Rule = R>, O: ObjectStore> Frame<R, E, O> {
    /// Processes an event; `None` if the event is not a batch. If no data must be loaded for the
    /// rule, the rule decides while the event is decoded.
    ///
    /// # Errors
    /// When the event cannot be decoded.
    pub async fn process_event<'p>(
        &self,
        payload: &'p str,
        deadline: Deadline,
    ) -> Result<Option<Processed<'p>>, Failure> {
        if self.rule.look_ahead() != LookAhead::Nothing {
            let Event::Batch(batch) = event::decode(payload)? else { return Ok(None) };
            let result = self.process(&batch, deadline).await;
            return Ok(Some(Processed { batch, result }));
        }
        let found = deadline.limit(self.executor.load(Needs::default())).await;
        let (event, decided) =
            event::decode_each(payload, |decided: &mut Decided<_>, at, record| {
                if let Ok(found) = &found {
                    decided.add(at, self.decide_view(record, found));
                }
            })?;
        let Event::Batch(batch) = event else { return Ok(None) };
        let result = match found {
            Ok(found) => self.apply(&batch, decided, &found, deadline, Outcome::of(&batch)).await,
            Err(failure) => {
                let mut outcome = Outcome::of(&batch);
                outcome.not_loaded(&batch, 0, failure).and_then(|()| outcome.report(&batch))
            }
        };
        Ok(Some(Processed { batch, result }))
    }

    /// Processes a batch.
    ///
    /// # Errors
    /// When the whole batch must be delivered again: the deployment is misconfigured, or the first
    /// record to deliver again has no readable sequence number.
    pub async fn process(
        &self,
        batch: &[BatchRecord<'_>],
        deadline: Deadline,
    ) -> Result<Report, Failure> {
        let Loaded { found, records, failure } = self.load(batch, deadline).await;
        let mut outcome = Outcome::of(batch);
        if let Some(failure) = failure {
            outcome.not_loaded(batch, records, failure)?;
        }
        let mut decided = Decided::default();
        for (position, delivered) in batch.iter().take(records).enumerate() {
            decided.add(position, self.decide(delivered, &found));
        }
        self.apply(batch, decided, &found, deadline, outcome).await
    }

    /// Applies the decisions and quarantines refused records concurrently, then reports. If the
    /// quarantine came after the targets, slow targets could leave no time for it in any delivery,
    /// and a refused record at the start of the batch would block the shard. Records that the
    /// targets themselves quarantine come afterwards. If no time is left for these, the next
    /// delivery has more time, because targets that are already applied take less time.
    async fn apply(
        &self,
        batch: &[BatchRecord<'_>],
        decided: Decided<<R::Effect as Fold>::Folded>,
        found: &Found<R::Input>,
        deadline: Deadline,
        mut outcome: Outcome,
    ) -> Result<Report, Failure> {
        outcome.summary.ignored = decided.ignored;
        let (targets, mut put_aside) = tokio::join!(
            self.executor.apply(decided.folded, found, deadline),
            self.put_aside(batch, decided.refused, deadline),
        );
        let mut set_aside = Vec::new();
        for target in targets {
            let positions = positions_of(&target, batch);
            match target.result {
                Ok(applied) => {
                    outcome.summary.applied += applied;
                    let others = target.records.len().saturating_sub(applied + positions.len());
                    outcome.summary.already_applied += others;
                }
                Err(failure) => {
                    let first = target.records.iter().copied().min().unwrap_or(0);
                    outcome.fail(first, &target.target, failure)?;
                }
            }
            set_aside.extend(positions);
        }
        put_aside.extend(self.put_aside(batch, set_aside, deadline).await);
        for (position, put) in put_aside {
            match put {
                Ok(()) => outcome.summary.refused += 1,
                Err(failure) => outcome.fail(position, "quarantine", failure)?,
            }
        }
        outcome.report(batch)
    }

    /// Returns the effects of a record, and the reason if it is refused. A record whose decoded
    /// form was kept during the load is not decoded again.
    fn decide(
        &self,
        delivered: &BatchRecord<'_>,
        found: &Found<R::Input>,
    ) -> (Vec<R::Effect>, Option<Refusal>) {
        if self.rule.look_ahead() == LookAhead::Keep {
            let record = delivered.record().as_ref().map_err(unreadable);
            match record.and_then(|record| self.rule.decide(record, found)) {
                Ok(effects) => (effects, None),
                Err(refusal) => (Vec::new(), Some(refusal)),
            }
        } else {
            delivered.with_decoded(|record| self.decide_view(record, found))
        }
    }

    fn decide_view(
        &self,
        record: Result<RecordView<'_>, &RecordError>,
        found: &Found<R::Input>,
    ) -> (Vec<R::Effect>, Option<Refusal>) {
        match record.map_err(unreadable) {
            Ok(record) => self.rule.decide_each(record, found),
            Err(refusal) => (Vec::new(), Some(refusal)),
        }
    }

    async fn put_aside(
        &self,
        batch: &[BatchRecord<'_>],
        refused: Vec<(usize, String)>,
        deadline: Deadline,
    ) -> Vec<(usize, Result<(), Failure>)> {
        let puts = refused.iter().filter_map(|(position, reason)| {
            let record = batch.get(*position)?;
            Some(async move {
                (*position, reason, deadline.limit(self.quarantine.put(record, reason)).await)
            })
        });
        let mut puts = stream::iter(puts.collect::<Vec<_>>()).buffer_unordered(QUARANTINE_AT_ONCE);
        let mut done = Vec::new();
        while let Some((position, reason, put)) = puts.next().await {
            let put = put.map(|object| {
                warn!(reason, object, "record refused and quarantined");
            });
            done.push((position, put));
        }
        done
    }
}

/// Returns the positions of the records that a target quarantines, each once, with the reason.
fn positions_of(target: &TargetOutcome, batch: &[BatchRecord<'_>]) -> Vec<(usize, String)> {
    if target.set_aside.is_empty() {
        return Vec::new();
    }
    // Each record is read only once, because a read may have to decode the record.
    let mut ids: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for position in &target.records {
        let id = batch.get(*position).and_then(|delivered| {
            delivered.with_decoded(|record| record.ok().map(|record| record.event_id.to_string()))
        });
        ids.entry(id.unwrap_or_default()).or_default().push(*position);
    }
    let mut positions = BTreeMap::new();
    for SetAside { event_id, reason } in &target.set_aside {
        let named = event_id.as_ref().and_then(|id| ids.get(id));
        // If the event id is unknown, all records of the target are quarantined, so that no record
        // is lost.
        let named = named.unwrap_or(&target.records);
        positions.extend(named.iter().map(|position| (*position, reason.clone())));
    }
    positions.into_iter().collect()
}

fn unreadable(error: &RecordError) -> Refusal {
    Refusal(error.to_string())
}

/// A report under construction.
#[derive(Debug)]
struct Outcome {
    summary: Summary,
    retry_from: Option<(usize, String)>,
}

impl Outcome {
    fn of(batch: &[BatchRecord<'_>]) -> Self {
        let summary = Summary { records: batch.len(), ..Summary::default() };
        Self { summary, retry_from: None }
    }

    /// Marks all records after the first `records` for redelivery, because the load failed for
    /// them.
    ///
    /// # Errors
    /// When no record of several is loaded. Lambda halves the batch if the invocation fails
    /// (`BisectBatchOnFunctionError`). But if the response reports the first record, Lambda
    /// redelivers the same batch.
    fn not_loaded(
        &mut self,
        batch: &[BatchRecord<'_>],
        records: usize,
        failure: Failure,
    ) -> Result<(), Failure> {
        if records == 0 && batch.len() > 1 {
            return Err(failure);
        }
        self.fail(records, "load", failure)
    }

    /// Records that the record at `position` must be delivered again. A fatal failure ends the
    /// invocation.
    fn fail(&mut self, position: usize, target: &str, failure: Failure) -> Result<(), Failure> {
        match failure {
            Failure::Fatal(reason) => {
                error!(
                    reason,
                    target, "the deployment is misconfigured; Lambda will deliver the batch again"
                );
                Err(Failure::Fatal(reason))
            }
            Failure::Retry(reason) => {
                warn!(reason, target, "Lambda will deliver records again");
                if self.retry_from.as_ref().is_none_or(|(first, _)| position < *first) {
                    self.retry_from = Some((position, reason));
                }
                Ok(())
            }
        }
    }

    fn report(mut self, batch: &[BatchRecord<'_>]) -> Result<Report, Failure> {
        let mut response = BatchResponse::default();
        if let Some((first, reason)) = self.retry_from {
            // A record without a readable sequence number cannot be reported. An earlier record is
            // reported instead.
            let named =
                batch.iter().take(first + 1).enumerate().rev().find_map(|(position, delivered)| {
                    Some((position, delivered.sequence_number()?))
                });
            let Some((position, sequence_number)) = named else {
                return Err(Failure::Retry(reason));
            };
            self.summary.retried = batch.len() - position;
            let item_identifier = sequence_number.to_owned();
            response.batch_item_failures.push(BatchItemFailure { item_identifier });
        }
        Ok(Report { response, summary: self.summary })
    }
}

#[cfg(test)]
mod tests;
