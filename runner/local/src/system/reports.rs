//! Logs the reports of a mapping: failures, discarded and lost records, and unreachable destinations.

use std::collections::HashSet;
use std::path::PathBuf;

use tokio::sync::mpsc;

use crate::journal::{MappingJournal, Messages};
use crate::poller::Observed;
use client::output::counted;
use mapping::{Command, Event};

/// The maximum number of remembered errors. At this number all errors are forgotten, so each is
/// reported once more.
const TOLD_MAX: usize = 1_000;

/// The errors that were already reported. Attempts are retried, but each error is reported only once.
#[derive(Default)]
struct ReportedErrors(HashSet<(String, String)>);

impl ReportedErrors {
    /// Returns whether the error in a command was already reported.
    fn is_old(&mut self, command: &Command) -> bool {
        let (what, why) = match command {
            Command::Report(Event::DestinationUnavailable { shard, reason }) => {
                (format!("destination of {}", shard.as_str()), reason)
            }
            Command::Report(Event::ShardUnavailable { shard, reason }) => {
                (shard.as_str().to_owned(), reason)
            }
            Command::Report(Event::StreamUnavailable { reason }) => (String::new(), reason),
            _ => return false,
        };
        if self.0.len() >= TOLD_MAX {
            self.0.clear();
        }
        !self.0.insert((what, why.clone()))
    }
}

/// Logs the reports that users must see: failures, discarded records, lost records.
pub(super) async fn show(
    name: String,
    mut observed: mpsc::Receiver<Observed>,
    journal: Option<MappingJournal>,
    messages: Option<(Messages, PathBuf)>,
) {
    let mut told = ReportedErrors::default();
    while let Some(seen) = observed.recv().await {
        let is_old = told.is_old(&seen.command);
        // The journal has the history of each record, so it also receives errors that the log reports
        // only once.
        if let Some(journal) = &journal {
            journal.write(&seen);
        }
        if seen.missed > 0 {
            let missed = counted(seen.missed, "report was", "reports were");
            tracing::warn!("mapping {name}: {missed} omitted from this log");
        }
        match seen.command {
            _ if is_old => {}
            Command::Report(
                event @ (Event::Gap { .. }
                | Event::Discarded { .. }
                | Event::WindowDiscarded { .. }),
            ) => {
                let event = with_message_file(event, messages.as_ref());
                tracing::error!("mapping {name}: {event}");
            }
            Command::Report(event @ Event::Failed { .. }) => {
                tracing::warn!("mapping {name}: {event}");
            }
            Command::Report(event @ Event::DestinationUnavailable { .. }) => {
                tracing::error!("mapping {name}: {event}");
            }
            Command::Report(
                event @ (Event::ShardUnavailable { .. } | Event::StreamUnavailable { .. }),
            ) => tracing::warn!("mapping {name}: {event}"),
            Command::Report(event) => tracing::debug!("mapping {name}: {event}"),
            _ => {}
        }
    }
}

/// Returns an event with the file of a queue's or topic's message in place of the object key. Returns other
/// events unchanged.
fn with_message_file(event: Event, messages: Option<&(Messages, PathBuf)>) -> Event {
    match (event, messages) {
        (
            Event::Discarded { shard, first, last, count, condition, key: Some(key) },
            Some((messages, folder)),
        ) => {
            let key = Some(messages.file(folder, &key).display().to_string());
            Event::Discarded { shard, first, last, count, condition, key }
        }
        (event, _) => event,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mapping::{Condition, SequenceNumber, ShardId};

    #[test]
    fn what_cannot_be_reached_is_told_once_for_each_reason() {
        let mut told = ReportedErrors::default();
        let report = |shard: &str, reason: &str| {
            let (shard, reason) = (ShardId::new(shard), reason.to_owned());
            Command::Report(Event::DestinationUnavailable { shard, reason })
        };
        for (shard, reason, expected) in
            [("a", "full", false), ("a", "full", true), ("b", "full", false), ("a", "gone", false)]
        {
            assert_eq!(told.is_old(&report(shard, reason)), expected, "{shard} {reason}");
        }
        let stream = Command::Report(Event::StreamUnavailable { reason: "full".to_owned() });
        assert!(!told.is_old(&stream) && told.is_old(&stream));
    }

    #[test]
    fn what_a_queue_got_is_named_by_its_file() {
        let queue = (Messages::Queue("Failed".to_owned()), PathBuf::from("up"));
        let gave_up = |key: Option<&str>| Event::Discarded {
            shard: ShardId::new("shardId-1"),
            first: SequenceNumber::parse("1").unwrap(),
            last: SequenceNumber::parse("1").unwrap(),
            count: 1,
            condition: Condition::RetryAttemptsExhausted,
            key: key.map(str::to_owned),
        };
        let kept = gave_up(Some("aws/lambda/m/shardId-1/x"));
        let file = gave_up(Some("up/destinations/Failed/x.json"));
        for (event, messages, expected) in [
            (kept.clone(), Some(&queue), file),
            (kept.clone(), None, kept),
            (gave_up(None), Some(&queue), gave_up(None)),
        ] {
            assert_eq!(with_message_file(event, messages), expected);
        }
    }
}
