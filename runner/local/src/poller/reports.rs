//! What a mapping tells whoever watches it. The mapping never waits for them.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};

use mapping::{Command, Event, Now, Record, ShardId, Status};

/// How long a mapping that has ended waits until all that it has to tell is taken.
const FINISH_MAX: Duration = Duration::from_secs(1);

/// Who watches a mapping.
#[derive(Debug)]
pub struct Observer {
    /// The newest status, after each step.
    pub status: watch::Sender<Status>,
    /// What happens, in order, but for what has to wait. When the channel is full, records that were
    /// given up or lost wait for room; anything else is counted and left out.
    pub events: Option<mpsc::Sender<Observed>>,
    /// Sees each page before the mapping does.
    pub pages: Option<Arc<dyn PageWatcher>>,
}

/// Sees the records that a mapping reads. It must be quick: the mapping waits for it.
pub trait PageWatcher: std::fmt::Debug + Send + Sync {
    /// A page of a shard was read.
    fn page(&self, shard: &ShardId, records: &[Record], now: Now);
}

/// Something that has happened in a mapping: an attempt, the hand-over of a failure record or a
/// report.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The mapping's UUID.
    pub mapping_id: Arc<str>,
    /// When.
    pub now: Now,
    /// How many were left out before this one.
    pub missed: u64,
    /// What the mapping asked for or reported: `Invoke`, `DeliverFailure` or `Report`.
    pub command: Command,
}

/// What is on its way to whoever watches.
pub(super) struct Reports {
    mapping_id: Arc<str>,
    events: Option<mpsc::Sender<Observed>>,
    /// What must be told and did not fit: each is of records that the mapping held, so there are
    /// never more of them.
    held: VecDeque<Observed>,
    missed: u64,
}

impl Reports {
    pub(super) fn new(mapping_id: Arc<str>, events: Option<mpsc::Sender<Observed>>) -> Self {
        Self { mapping_id, events, held: VecDeque::new(), missed: 0 }
    }

    /// Tells of a command, if it is of those that are told.
    pub(super) fn take(&mut self, command: &Command, now: Now) {
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
            command: command.clone(),
        };
        match events.try_send(observed) {
            Ok(()) => self.missed = 0,
            Err(TrySendError::Full(observed)) if must_be_told(command) => {
                self.held.push_back(Observed { missed: 0, ..observed });
            }
            Err(_) => self.missed = self.missed.saturating_add(1),
        }
    }

    /// Tells what waits, as far as there is room.
    pub(super) fn flush(&mut self) {
        let Some(events) = &self.events else { return };
        while let Some(first) = self.held.pop_front() {
            match events.try_send(first) {
                Ok(()) => {}
                Err(TrySendError::Full(first)) => {
                    self.held.push_front(first);
                    return;
                }
                Err(TrySendError::Closed(_)) => self.held.clear(),
            }
        }
    }

    /// Returns when there is room for something that waits.
    pub(super) async fn room(&self) {
        match &self.events {
            // The room is given back at once, and nobody else takes it.
            Some(events) if !self.held.is_empty() => drop(events.reserve().await),
            _ => pending().await,
        }
    }

    /// Tells what still waits, unless nobody takes it.
    pub(super) async fn finish(&mut self) {
        let Some(events) = &self.events else { return };
        let held = std::mem::take(&mut self.held);
        let telling = async {
            for observed in held {
                if events.send(observed).await.is_err() {
                    return;
                }
            }
        };
        if tokio::time::timeout(FINISH_MAX, telling).await.is_err() {
            tracing::warn!("mapping {}: not all that it did could be told", self.mapping_id);
        }
    }
}

/// Whether records are lost to the function by it, so that somebody has to know.
fn must_be_told(command: &Command) -> bool {
    matches!(
        command,
        Command::Report(Event::GaveUp { .. } | Event::Gap { .. } | Event::WindowGivenUp { .. })
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use mapping::{BatchId, Condition, SequenceNumber};

    fn gave_up(number: usize) -> Command {
        let sequence = SequenceNumber::parse(&number.to_string()).unwrap();
        Command::Report(Event::GaveUp {
            shard: ShardId::new("s1"),
            first: sequence.clone(),
            last: sequence,
            count: 1,
            condition: Condition::RecordAgeExceeded,
            key: None,
        })
    }

    /// Goal: whatever is given up is told, however many at once; other reports never wait.
    #[tokio::test]
    async fn what_is_given_up_waits_until_it_is_told() {
        let (sender, mut receiver) = mpsc::channel(2);
        let mut reports = Reports::new("m".into(), Some(sender));
        let now = Now { time_ms: 1, tick_ms: 1 };
        for number in 0..7 {
            reports.take(&gave_up(number), now);
            let done = Event::Succeeded { shard: ShardId::new("s1"), batch: BatchId(1), count: 1 };
            reports.take(&Command::Report(done), now);
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
        let told: Vec<Command> = told.filter(must_be_told).collect();
        assert_eq!(told, (0..7).map(gave_up).collect::<Vec<_>>());
    }

    /// Goal: nobody who watches is no reason to go round in circles.
    #[tokio::test]
    async fn what_nobody_takes_is_dropped() {
        let (sender, receiver) = mpsc::channel(1);
        let mut reports = Reports::new("m".into(), Some(sender));
        let now = Now { time_ms: 1, tick_ms: 1 };
        (0..3).for_each(|number| reports.take(&gave_up(number), now));
        drop(receiver);
        reports.room().await;
        reports.flush();
        assert!(reports.held.is_empty());
    }
}
