//! Sends the reports of a mapping to its observer. The mapping never waits for the observer.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};

use mapping::{Command, Event, Now, Record, ShardId, Status};

/// The maximum time that an ended mapping waits until its reports are received.
const FINISH_MAX: Duration = Duration::from_secs(1);

/// The channels to the observer of a mapping.
#[derive(Debug)]
pub struct Observer {
    /// The current status, after each step.
    pub status: watch::Sender<Status>,
    /// The events. If the channel is full, reports of discarded or lost records wait until the
    /// channel has capacity, and may arrive after later events. Other events are counted and
    /// dropped.
    pub events: Option<mpsc::Sender<Observed>>,
    /// Receives each page before the mapping does.
    pub pages: Option<Arc<dyn PageWatcher>>,
}

/// An observer of the records that a mapping reads. The observer must be quick, because the mapping waits for
/// it.
pub trait PageWatcher: std::fmt::Debug + Send + Sync {
    /// Called for each page of a shard.
    fn page(&self, shard: &ShardId, records: &[Record], now: Now);
}

/// An event of a mapping: an attempt, the delivery of a failure record, or a report.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The mapping's UUID.
    pub mapping_id: Arc<str>,
    /// The time of the event.
    pub now: Now,
    /// The number of events that were dropped since the preceding event that was sent.
    pub missed: u64,
    /// The request id of the invocation, if the command is an invocation.
    pub request: Option<Arc<str>>,
    /// The command of the mapping: `Invoke`, `DeliverFailure` or `Report`.
    pub command: Command,
}

/// The queue of reports to the observer of a mapping.
pub(super) struct Reports {
    mapping_id: Arc<str>,
    events: Option<mpsc::Sender<Observed>>,
    /// The reports that must not be dropped, and that wait because the channel was full. Each
    /// report concerns records that the mapping had in memory, so their number is bounded.
    undropped: VecDeque<Observed>,
    missed: u64,
}

impl Reports {
    pub(super) fn new(mapping_id: Arc<str>, events: Option<mpsc::Sender<Observed>>) -> Self {
        Self { mapping_id, events, undropped: VecDeque::new(), missed: 0 }
    }

    /// Reports a command, if commands of its kind are reported.
    pub(super) fn take(&mut self, command: &Command, now: Now, request: Option<&Arc<str>>) {
        let Some(events) = &self.events else { return };
        if !matches!(
            command,
            Command::Invoke { .. } | Command::DeliverFailure { .. } | Command::Report(_)
        ) {
            return;
        }
        let observed = Observed {
            mapping_id: Arc::clone(&self.mapping_id),
            now,
            missed: self.missed,
            request: request.cloned(),
            command: command.clone(),
        };
        match events.try_send(observed) {
            Ok(()) => self.missed = 0,
            Err(TrySendError::Full(observed)) if must_be_reported(command) => {
                self.undropped.push_back(Observed { missed: 0, ..observed });
            }
            Err(_) => self.missed = self.missed.saturating_add(1),
        }
    }

    /// Sends waiting reports until the channel is full.
    pub(super) fn flush(&mut self) {
        let Some(events) = &self.events else { return };
        while let Some(first) = self.undropped.pop_front() {
            match events.try_send(first) {
                Ok(()) => {}
                Err(TrySendError::Full(first)) => {
                    self.undropped.push_front(first);
                    return;
                }
                Err(TrySendError::Closed(_)) => self.undropped.clear(),
            }
        }
    }

    /// Waits until the channel has capacity for a waiting report.
    pub(super) async fn room(&self) {
        match &self.events {
            // The reservation only waits for capacity and is dropped immediately. No other sender
            // exists that could use the capacity.
            Some(events) if !self.undropped.is_empty() => drop(events.reserve().await),
            _ => pending().await,
        }
    }

    /// Sends the waiting reports, unless no observer receives them.
    pub(super) async fn finish(&mut self) {
        let Some(events) = &self.events else { return };
        let held = std::mem::take(&mut self.undropped);
        let telling = async {
            for observed in held {
                if events.send(observed).await.is_err() {
                    return;
                }
            }
        };
        if tokio::time::timeout(FINISH_MAX, telling).await.is_err() {
            tracing::warn!(
                "mapping {}: its last events could not all be reported within {} s",
                self.mapping_id,
                FINISH_MAX.as_secs()
            );
        }
    }
}

/// Returns whether the command means that records are lost for the function. Such a command must be reported.
fn must_be_reported(command: &Command) -> bool {
    matches!(
        command,
        Command::Report(
            Event::Discarded { .. } | Event::Gap { .. } | Event::WindowDiscarded { .. }
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use mapping::{BatchId, Condition, SequenceNumber};

    fn gave_up(number: usize) -> Command {
        let sequence = SequenceNumber::parse(&number.to_string()).unwrap();
        Command::Report(Event::Discarded {
            shard: ShardId::new("s1"),
            first: sequence.clone(),
            last: sequence,
            count: 1,
            condition: Condition::RecordAgeExceeded,
            key: None,
        })
    }

    /// Goal: all discarded records are reported, even if many are discarded together. Other reports
    /// never wait.
    #[tokio::test]
    async fn what_is_given_up_waits_until_it_is_told() {
        let (sender, mut receiver) = mpsc::channel(2);
        let mut reports = Reports::new("m".into(), Some(sender));
        let now = Now { time_ms: 1, tick_ms: 1 };
        for number in 0..7 {
            reports.take(&gave_up(number), now, None);
            let done = Event::Succeeded { shard: ShardId::new("s1"), batch: BatchId(1), count: 1 };
            reports.take(&Command::Report(done), now, None);
        }
        let mut told = Vec::new();
        while let Ok(observed) = receiver.try_recv() {
            told.push(observed);
            reports.room().await;
            reports.flush();
            if told.len() == 4 {
                break;
            }
        }
        let rest = tokio::spawn(async move {
            let mut rest = Vec::new();
            while let Some(observed) = receiver.recv().await {
                rest.push(observed);
            }
            rest
        });
        reports.finish().await;
        drop(reports);
        told.extend(rest.await.unwrap());
        let told = told.into_iter().map(|observed| observed.command);
        let told: Vec<Command> = told.filter(must_be_reported).collect();
        assert_eq!(told, (0..7).map(gave_up).collect::<Vec<_>>());
    }

    /// Goal: without an observer, waiting reports do not cause a busy loop.
    #[tokio::test]
    async fn what_nobody_takes_is_dropped() {
        let (sender, receiver) = mpsc::channel(1);
        let mut reports = Reports::new("m".into(), Some(sender));
        let now = Now { time_ms: 1, tick_ms: 1 };
        (0..3).for_each(|number| reports.take(&gave_up(number), now, None));
        drop(receiver);
        reports.room().await;
        reports.flush();
        assert!(reports.undropped.is_empty());
    }
}
