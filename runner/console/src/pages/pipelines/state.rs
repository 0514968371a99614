//! The state of a mapping, and the sentence that answers why its function did not run.
//!
//! This module performs no I/O.

use client::output::counted;
use local::journal::Failing;
use serde::Serialize;

use super::status::{MappingStatus, Shard};

/// The state of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum State {
    /// Every record was delivered or filtered.
    CaughtUp,
    /// No record has been read yet.
    NoRecords,
    /// Records wait until their batch is complete.
    Waiting,
    /// The mapping's shards are not known yet.
    Starting,
    /// The filter dropped every record that was read.
    AllFiltered,
    /// Records were lost, or were discarded and not redriven.
    Discarded,
    /// A batch fails, a shard cannot be read, or the stream cannot be listed.
    Blocked,
    /// The mapping has stopped, and stays stopped until `weir up` is restarted.
    Ended,
    /// The mapping is disabled in the template.
    Disabled,
    /// The mapping's function cannot run on this machine.
    NotRun,
}

/// The severity of a state, shown as a colour. The page always shows a word with the colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// The operator need not do anything.
    Good,
    /// The mapping continues without help, or its state may be intended.
    Wait,
    /// The mapping makes no progress, or records are lost.
    Bad,
    /// The mapping is off.
    Off,
}

impl State {
    /// Returns the word that the page shows.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::CaughtUp => "caught up",
            Self::NoRecords => "no record yet",
            Self::Waiting => "records wait",
            Self::Starting => "starting",
            Self::AllFiltered => "all filtered out",
            Self::Discarded => "records lost",
            Self::Blocked => "blocked",
            Self::Ended => "ended",
            Self::Disabled => "disabled",
            Self::NotRun => "does not run here",
        }
    }

    /// Returns the severity of the state.
    pub(crate) fn level(self) -> Level {
        match self {
            Self::CaughtUp | Self::NoRecords => Level::Good,
            Self::Waiting | Self::Starting | Self::AllFiltered => Level::Wait,
            Self::Discarded | Self::Blocked | Self::Ended => Level::Bad,
            Self::Disabled | Self::NotRun => Level::Off,
        }
    }
}

impl Level {
    /// Returns the CSS class of the severity.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Wait => "wait",
            Self::Bad => "bad",
            Self::Off => "off",
        }
    }
}

/// Returns the state of a started mapping, and a sentence that explains it.
pub(super) fn of(mapping: &MappingStatus, failing: Option<&Failing>) -> (State, String) {
    let totals = &mapping.totals;
    let waiting: u64 = mapping.shards.iter().map(|shard| shard.waiting).sum();
    let lost = totals.discarded.saturating_sub(totals.redriven);
    if mapping.ended {
        let why = mapping.end.as_deref().unwrap_or("it has ended");
        return (
            State::Ended,
            format!("ended: {why}; restart `weir up` to resume at its checkpoint"),
        );
    }
    if let Some(why) = &mapping.unavailable {
        return (
            State::Blocked,
            format!("blocked: the shards of its stream cannot be listed: {why}"),
        );
    }
    if !mapping.described {
        return (
            State::Starting,
            "starting: the shards of its stream are not listed yet".to_owned(),
        );
    }
    if mapping.unsaved {
        let why = "starting: reading begins when the starting positions are on disk";
        return (State::Starting, why.to_owned());
    }
    if let Some(blocked) = blocked(mapping, failing, waiting) {
        return (State::Blocked, blocked);
    }
    if totals.gaps > 0 {
        let times = counted(totals.gaps, "time", "times");
        return (
            State::Discarded,
            format!("records were lost {times}: the stream trimmed them before they were read"),
        );
    }
    if lost > 0 {
        let were = counted(lost, "record was", "records were");
        return (State::Discarded, format!("{were} discarded and not redriven{}", rest(waiting)));
    }
    if waiting > 0 {
        let wait = counted(waiting, "record waits", "records wait");
        return (State::Waiting, format!("{wait} for a batch"));
    }
    match (totals.read, totals.filtered) {
        (0, _) => (State::NoRecords, "has read no record since `weir up` started".to_owned()),
        (read, filtered) if filtered >= read => {
            let all = match read {
                1 => "the one record that it read".to_owned(),
                read => format!("all {} that it read", counted(read, "record", "records")),
            };
            (State::AllFiltered, format!("its filter dropped {all}"))
        }
        (read, filtered) => {
            let delivered = read.saturating_sub(filtered);
            let dropped = match filtered {
                0 => String::new(),
                filtered => format!(", and its filter dropped {filtered}"),
            };
            let records = counted(delivered, "record", "records");
            (State::CaughtUp, format!("caught up: {records} processed{dropped}"))
        }
    }
}

fn rest(waiting: u64) -> String {
    match waiting {
        0 => String::new(),
        waiting => format!("; {} for a batch", counted(waiting, "record waits", "records wait")),
    }
}

/// Returns a sentence about the cause that blocks a mapping; `None` if the mapping is not blocked.
fn blocked(mapping: &MappingStatus, failing: Option<&Failing>, waiting: u64) -> Option<String> {
    let shard = |state: &str| mapping.shards.iter().find(|shard| shard.state == state);
    if let Some(Shard { failed_attempts, id, .. }) =
        mapping.shards.iter().find(|shard| shard.failed_attempts > 0)
    {
        let wait = counted(waiting, "record waits", "records wait");
        let attempts = counted(u64::from(*failed_attempts), "failed attempt", "failed attempts");
        return Some(match failing {
            Some(failing) => format!(
                "blocked at record {} after {attempts}: {}; {wait}",
                failing.first,
                first_line(&failing.reason)
            ),
            None => format!("blocked in {id} after {attempts}; {wait}"),
        });
    }
    if let Some(shard) = shard("unreachable") {
        return Some(format!("blocked: {} cannot be read; the read is retried", shard.id));
    }
    if let Some(shard) = shard("gap") {
        return Some(format!(
            "blocked: records of {} were trimmed before they were read",
            shard.id
        ));
    }
    let silent = shard("waits for an answer")?;
    Some(format!("blocked: the store does not answer the read of {}", silent.id))
}

fn first_line(reason: &str) -> &str {
    reason.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(status: &str, failing: Option<&Failing>) -> (State, String) {
        let status: serde_json::Value = serde_json::from_str(status).unwrap();
        of(&serde_json::from_value(status).unwrap(), failing)
    }

    #[test]
    fn a_mapping_that_does_not_read_has_its_sentence() {
        for (members, expected, sentence) in [
            (r#""described": false"#, State::Starting, "the shards of its stream are not listed"),
            (r#""described": true, "unsaved": true"#, State::Starting, "on disk"),
            (r#""ended": true, "end": "it is disabled""#, State::Ended, "ended: it is disabled"),
            (r#""unavailable": "no answer""#, State::Blocked, "cannot be listed: no answer"),
        ] {
            let (found, said) = state(&format!("{{{members}}}"), None);
            assert_eq!(found, expected, "{members}");
            assert!(said.contains(sentence), "{members}: {said}");
        }
    }

    #[test]
    fn each_state_has_its_sentence() {
        for (members, expected, sentence) in [
            (r#""totals": {"read": 0}"#, State::NoRecords, "has read no record"),
            (
                r#""totals": {"read": 5, "filtered": 5}"#,
                State::AllFiltered,
                "dropped all 5 records",
            ),
            (
                r#""totals": {"read": 1, "filtered": 1}"#,
                State::AllFiltered,
                "dropped the one record",
            ),
            (
                r#""totals": {"read": 5, "filtered": 2}"#,
                State::CaughtUp,
                "3 records processed, and",
            ),
            (
                r#""totals": {"read": 5, "discarded": 2}"#,
                State::Discarded,
                "2 records were discarded",
            ),
            (
                r#""totals": {"read": 5, "discarded": 2, "redriven": 2}"#,
                State::CaughtUp,
                "5 records",
            ),
            (r#""totals": {"gaps": 1}"#, State::Discarded, "records were lost 1 time"),
            (r#""shards": [{"waiting": 3}]"#, State::Waiting, "3 records wait for a batch"),
            (r#""shards": [{"state": "gap"}]"#, State::Blocked, "were trimmed"),
            (r#""shards": [{"state": "unreachable"}]"#, State::Blocked, "cannot be read"),
            (
                r#""shards": [{"id": "s", "failed_attempts": 2, "waiting": 1}]"#,
                State::Blocked,
                "blocked in s after 2 failed attempts; 1 record waits",
            ),
        ] {
            let (found, said) = state(&format!("{{\"described\": true, {members}}}"), None);
            assert_eq!(found, expected, "{members}");
            assert!(said.contains(sentence), "{members}: {said}");
        }
    }

    #[test]
    fn what_blocks_is_named() {
        let failing = Failing {
            mapping: "m".to_owned(),
            shard: "s".to_owned(),
            first: "41".to_owned(),
            since_ms: 5,
            attempts: 2,
            reason: "\n Unhandled: boom\n at line 3".to_owned(),
        };
        let status =
            r#"{"described": true, "shards": [{"id": "s", "failed_attempts": 2, "waiting": 3}]}"#;
        let (_, said) = state(status, Some(&failing));
        assert_eq!(
            said,
            "blocked at record 41 after 2 failed attempts: Unhandled: boom; 3 records wait"
        );
    }
}
