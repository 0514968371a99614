//! The frame that every stream function shares: decode the batch in order, load what the rule
//! needs, decide, fold, apply, put aside what is refused, report.
//!
//! What is decided is the rule's business, how it is applied the executor's. At most one record is
//! reported: the first one to deliver again, with everything behind it. What is delivered again
//! although it was applied finds itself applied.

mod executor;

pub use executor::{Executor, TargetOutcome};

use futures::{StreamExt, stream};
use model::stream_record::RecordView;
use rules::{Effect, Folded, Found, LookAhead, Needs, Refusal, Rule};
use tracing::{error, warn};

use crate::back_off::Deadline;
use crate::event::{BatchItemFailure, BatchResponse, Delivered};
use crate::failure::Failure;
use crate::object_store::ObjectStore;
use crate::quarantine::Quarantine;

/// Records that are put aside at the same time: a batch of nothing but refused records must still
/// be done in one invocation.
const QUARANTINE_AT_ONCE: usize = 16;

/// What was done with a batch, in numbers of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Delivered.
    pub records: usize,
    /// Not concerning this function.
    pub ignored: usize,
    /// Changed a target.
    pub applied: usize,
    /// Found their target as it should be.
    pub already_applied: usize,
    /// Put aside.
    pub refused: usize,
    /// Handed back for another delivery: the first one that could not be done, and all behind it.
    pub retried: usize,
}

/// What was done with a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What Lambda is told.
    pub response: BatchResponse,
    /// What the log is told.
    pub summary: Summary,
}

/// A stream function.
#[derive(Clone, Debug)]
pub struct Frame<R, E, O> {
    /// Its decisions.
    pub rule: R,
    /// What makes them true.
    pub executor: E,
    /// Where refused records go.
    pub quarantine: Quarantine<O>,
}

impl<R: Rule, E: Executor, O: ObjectStore> Frame<R, E, O> {
    /// Processes a batch.
    ///
    /// # Errors
    /// When the whole batch must be delivered again: the deployment is wrong, or the first record
    /// to deliver again cannot be named.
    pub async fn process(
        &self,
        batch: &[Delivered<'_>],
        deadline: Deadline,
    ) -> Result<Report, Failure> {
        let mut outcome = Outcome::default();
        outcome.summary.records = batch.len();

        let needs = self.look_ahead(batch);
        let found = match deadline.limit(self.executor.load(needs)).await {
            Ok(found) => found,
            Err(failure) => {
                outcome.fail(0, "load", failure)?;
                return outcome.report(batch);
            }
        };

        let mut refused: Vec<(usize, String)> = Vec::new();
        let mut folded = Folded::default();
        for (position, delivered) in batch.iter().enumerate() {
            match self.decide(delivered, &found) {
                Ok(effects) if effects.is_empty() => outcome.summary.ignored += 1,
                Ok(effects) => effects.into_iter().for_each(|effect| folded.add(position, effect)),
                Err(reason) => refused.push((position, reason)),
            }
        }

        for target in self.executor.apply(folded, &found, deadline).await {
            match target.result {
                Ok(applied) => {
                    outcome.summary.applied += applied;
                    outcome.summary.already_applied += target.records.len().saturating_sub(applied);
                }
                Err(failure) => {
                    let first = target.records.iter().copied().min().unwrap_or(0);
                    outcome.fail(first, &target.target, failure)?;
                }
            }
        }
        self.put_aside(batch, refused, deadline, &mut outcome).await?;
        outcome.report(batch)
    }

    /// What must be loaded. Records that cannot be read are refused later, one by one.
    fn look_ahead(&self, batch: &[Delivered<'_>]) -> Needs {
        let mut needs = Needs::default();
        match self.rule.look_ahead() {
            LookAhead::Nothing => {}
            LookAhead::ReadTwice => {
                for delivered in batch {
                    let readable =
                        delivered.look(|record| record.ok().map(RecordView::into_record));
                    needs.add(
                        readable.map_or_else(Needs::default, |record| self.rule.needs(&[&record])),
                    );
                }
            }
            LookAhead::Keep => {
                let readable =
                    batch.iter().filter_map(|delivered| delivered.record().as_ref().ok());
                needs = self.rule.needs(&readable.collect::<Vec<_>>());
            }
        }
        needs
    }

    /// Effects, or why no retry can help. A record that was kept for the load is there already.
    fn decide(&self, delivered: &Delivered<'_>, found: &Found) -> Result<Vec<Effect>, String> {
        let decided = if self.rule.look_ahead() == LookAhead::Keep {
            let record = delivered.record().as_ref().map_err(ToString::to_string)?;
            self.rule.decide(record, found)
        } else {
            delivered.look(|record| {
                let record = record.map_err(|error| Refusal(error.to_string()))?;
                self.rule.decide_view(record, found)
            })
        };
        decided.map_err(|refusal| refusal.0)
    }

    async fn put_aside(
        &self,
        batch: &[Delivered<'_>],
        refused: Vec<(usize, String)>,
        deadline: Deadline,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        let puts = refused.iter().filter_map(|(position, reason)| {
            let record = batch.get(*position)?;
            Some(async move {
                (*position, reason, deadline.limit(self.quarantine.put(record, reason)).await)
            })
        });
        let mut puts = stream::iter(puts.collect::<Vec<_>>()).buffer_unordered(QUARANTINE_AT_ONCE);
        while let Some((position, reason, put)) = puts.next().await {
            match put {
                Ok(object) => {
                    outcome.summary.refused += 1;
                    warn!(reason, object, "record refused and put into quarantine");
                }
                Err(failure) => outcome.fail(position, "quarantine", failure)?,
            }
        }
        Ok(())
    }
}

/// A report in the making.
#[derive(Debug, Default)]
struct Outcome {
    summary: Summary,
    retry_from: Option<(usize, String)>,
}

impl Outcome {
    /// Notes that a record must be delivered again; a fatal failure ends the invocation.
    fn fail(&mut self, position: usize, target: &str, failure: Failure) -> Result<(), Failure> {
        match failure {
            Failure::Fatal(reason) => {
                error!(reason, target, "the deployment is wrong, the batch is handed back");
                Err(Failure::Fatal(reason))
            }
            Failure::Retry(reason) => {
                warn!(reason, target, "records are handed back");
                if self.retry_from.as_ref().is_none_or(|(first, _)| position < *first) {
                    self.retry_from = Some((position, reason));
                }
                Ok(())
            }
        }
    }

    fn report(mut self, batch: &[Delivered<'_>]) -> Result<Report, Failure> {
        let mut response = BatchResponse::default();
        if let Some((first, reason)) = self.retry_from {
            // A record without a readable sequence number cannot be named; one before it can.
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
