//! Tumbling windows: the window of a record, and the window's data in an invocation.
//!
//! `lane` decides when a window ends and what happens to its state.
//!
//! Source: AWS Lambda guide, "Implementing stateful DynamoDB stream processing". The guide does not
//! specify these cases. Weir's behaviour:
//!
//! - Windows start at multiples of their length since 1970.
//! - A record that is older than the open window belongs to the open window.
//! - A window ends when a record of a later window was read, or when its shard ends. It also ends
//!   when a read finds no further records and was requested after the window's end on the store's
//!   clock.
//! - The last invocation of a window has no records. Its response must also have a `state`.
//! - When the last invocation fails, it is retried like a batch, and the shard waits. When its
//!   retries are exhausted, or the window exceeds the maximum record age, the window's state is
//!   discarded and the loss is reported.
//! - When a state exceeds 1 MB, the last invocation of its window follows immediately.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use super::id::ShardId;
use super::settings::Settings;

/// The maximum size of a window's state (Lambda guide), in bytes of JSON, inclusive.
pub const STATE_BYTES_MAX: usize = 1024 * 1024;
/// The maximum number of bytes of the members' names and fixed values, including a shard id of at
/// most 65 characters.
const MEMBERS_BYTES: usize = 512;
/// The state of a new window.
const STATE_AT_START: &str = "{}";

/// A tumbling window, in whole seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The first second of the window.
    pub start_s: i64,
    /// The exclusive end of the window.
    pub end_s: i64,
}

/// An open window with its current state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenWindow {
    /// The window.
    pub window: Window,
    /// The `state` of the function's last response, as JSON text.
    pub state: Arc<str>,
}

/// The window's data in one invocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowInvocation {
    /// The window and its state before this invocation.
    pub open: OpenWindow,
    /// True if this is the window's last invocation.
    pub is_final: bool,
    /// True if this is the window's last invocation because the state is too large.
    pub is_terminated_early: bool,
}

impl Window {
    /// Returns the window that contains a time in seconds since 1970. `length_s` is the window's
    /// length, at least one second.
    #[must_use]
    pub fn containing(second: i64, length_s: u32) -> Self {
        let length = i64::from(length_s.max(1));
        let start_s = second.saturating_sub(second.rem_euclid(length));
        Self { start_s, end_s: start_s.saturating_add(length) }
    }
}

impl OpenWindow {
    /// Returns the open window with its initial state.
    #[must_use]
    pub fn begin(window: Window) -> Self {
        Self { window, state: STATE_AT_START.into() }
    }

    /// Returns the maximum size of the event without its records, in bytes.
    #[must_use]
    pub fn event_bytes(&self, settings: &Settings) -> usize {
        self.state.len() + settings.stream_arn.len() + MEMBERS_BYTES
    }

    /// Returns true if the state is too large for another invocation.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.state.len() > STATE_BYTES_MAX
    }
}

impl WindowInvocation {
    /// Returns the members of the event other than `Records`, as JSON text:
    /// `,"window":{…},"state":…`.
    #[must_use]
    pub fn members(&self, shard: &ShardId, stream_arn: &str) -> String {
        let Window { start_s, end_s } = self.open.window;
        let window = json!({ "start": utc(start_s), "end": utc(end_s) });
        format!(
            r#","window":{window},"state":{},"shardId":{},"eventSourceARN":{},"isFinalInvokeForWindow":{},"isWindowTerminatedEarly":{}"#,
            self.open.state,
            json!(shard.as_str()),
            json!(stream_arn),
            self.is_final,
            self.is_terminated_early,
        )
    }
}

/// Formats seconds since 1970 in ISO 8601. A time outside the calendar becomes 1970.
fn utc(second: i64) -> String {
    let time = Timestamp::from_second(second).unwrap_or(Timestamp::UNIX_EPOCH);
    time.to_zoned(TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Record, SequenceNumber, event};
    use serde_json::Value;

    #[test]
    fn windows_are_aligned_to_1970() {
        for (second, length, start) in [
            (0, 60, 0),
            (59, 60, 0),
            (60, 60, 60),
            (-1, 60, -60),
            (1_596_128_659, 300, 1_596_128_400),
        ] {
            let window = Window::containing(second, length);
            assert_eq!((window.start_s, window.end_s), (start, start + i64::from(length)));
        }
    }

    /// Compares each member of the event with AWS's documented example.
    #[test]
    fn the_event_has_the_documented_shape() {
        let sequence = SequenceNumber::parse("111").unwrap();
        let record = Record::of_event(sequence, None, &json!({"eventID": "1"}));
        let mut open = OpenWindow::begin(Window::containing(1_596_128_401, 300));
        open.state = r#"{"1":"state1"}"#.into();
        let invocation = WindowInvocation { open, is_final: false, is_terminated_early: false };
        let members = invocation.members(&ShardId::new("shard123456789"), "stream-ARN");
        let text = event(&[Arc::new(record.into())], &members);
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            json!({
                "Records": [{"eventID": "1"}],
                "window": {"start": "2020-07-30T17:00:00Z", "end": "2020-07-30T17:05:00Z"},
                "state": {"1": "state1"},
                "shardId": "shard123456789",
                "eventSourceARN": "stream-ARN",
                "isFinalInvokeForWindow": false,
                "isWindowTerminatedEarly": false,
            })
        );
        let last = WindowInvocation { is_final: true, is_terminated_early: true, ..invocation };
        let text = event(&[], &last.members(&ShardId::new("s"), "arn"));
        let last: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(last["Records"], json!([]));
        assert_eq!(last["isFinalInvokeForWindow"], true);
        assert_eq!(last["isWindowTerminatedEarly"], true);
    }
}
