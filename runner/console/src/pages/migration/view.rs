//! The data of the page, and its JSON twin.

use operations::migrate::api::{CutoverSafety, EndedSwitch, PhaseStep};
use serde::Serialize;
use serde_json::Value;

/// What the page shows.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct View {
    /// The version of this document.
    pub(crate) schema: &'static str,
    /// The name of the migration.
    pub(crate) name: String,
    /// The kind, as a plan file names it.
    pub(crate) kind: Option<&'static str>,
    /// The source tables.
    pub(crate) sources: Vec<String>,
    /// The target tables.
    pub(crate) targets: Vec<String>,
    /// The current phase.
    pub(crate) phase: &'static str,
    /// The phases, in order.
    pub(crate) phases: Vec<PhaseStep>,
    /// Whether the backfill is paused.
    pub(crate) paused: bool,
    /// Whether it is safe to cut over now, with the reasons against.
    pub(crate) cutover: Option<CutoverSafety>,
    pub(crate) backfill: Backfill,
    pub(crate) workers: Workers,
    /// The changes that wait in the streams; `None` if the streams were not read.
    pub(crate) stream: Option<Stream>,
    /// Why nothing is known about the streams.
    pub(crate) stream_note: Option<String>,
    /// Since when writers are blocked, in seconds since 1970.
    pub(crate) writers_blocked_since: Option<i64>,
    /// The last switch that has ended.
    pub(crate) last_switch: Option<EndedSwitch>,
    /// The last comparison for a cut-over.
    pub(crate) verified: Option<Verified>,
    /// The differences of the last comparison on the way back.
    pub(crate) back_differences: Option<u64>,
    /// Items that were refused, collided, or are occupied.
    pub(crate) problems: Vec<String>,
    /// The verbs that are safe now.
    pub(crate) actions: Vec<Action>,
    /// Some source items and what becomes of them.
    pub(crate) samples: Vec<Sample>,
    /// Why there are no samples.
    pub(crate) samples_problem: Option<String>,
    /// The last phase changes, newest first.
    pub(crate) journal: Vec<Line>,
    /// The status as `weir migrate status --output json` writes it.
    pub(crate) status: Value,
}

/// The progress of the backfill.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Backfill {
    /// The part of the items that was read.
    pub(crate) copied_percent: u64,
    /// Number of items that were read.
    pub(crate) read: u64,
    /// Number of items of the sources when the backfill began.
    pub(crate) source_items: Option<u64>,
    /// Number of target items that were written.
    pub(crate) written: u64,
    /// Number of items that cannot be transformed.
    pub(crate) refused: u64,
    /// Number of segments that were read to their end.
    pub(crate) segments_done: u64,
    pub(crate) segments: u64,
    /// Items per second between the last views of this page, oldest first.
    pub(crate) items_per_second: Vec<u64>,
    /// Items per second since the backfill began.
    pub(crate) items_per_second_on_average: u64,
    /// Items per second that the backfill may read; `None` for no limit.
    pub(crate) items_per_second_allowed: Option<u64>,
    /// What slows the backfill down.
    pub(crate) throttled: Option<String>,
    /// An estimate of the remaining seconds.
    pub(crate) seconds_left: Option<u64>,
}

/// The workers.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Workers {
    /// Number of workers that have a segment now.
    pub(crate) at_work: usize,
    /// Number of segments that are not done.
    pub(crate) open_segments: usize,
    /// Number of segments that wait for `resume`.
    pub(crate) set_aside: usize,
}

/// The changes that wait in the streams.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Stream {
    /// Number of changes that are not applied.
    pub(crate) waiting: u64,
    /// Number of changes.
    pub(crate) records: u64,
    /// The age of the oldest waiting change, in seconds.
    pub(crate) lag_seconds: u64,
    /// The seconds after which the oldest waiting change would be lost.
    pub(crate) horizon_seconds: Option<i64>,
    /// The table whose changes no function applies.
    pub(crate) unfollowed: Option<String>,
    /// The age of this reading, in seconds.
    pub(crate) seen_seconds_ago: u64,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Verified {
    pub(crate) differences: u64,
    /// Number of differences that no repair can remove.
    pub(crate) refused: u64,
    /// Number of compared items.
    pub(crate) compared: u64,
    /// The begin of the comparison, in seconds since 1970.
    pub(crate) at: i64,
}

/// A verb that is safe now.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Action {
    pub(crate) verb: String,
    /// The exact command.
    pub(crate) command: String,
    /// The consequence, in one sentence.
    pub(crate) consequence: String,
    /// Whether the page has a button for it.
    pub(crate) button: bool,
}

/// A source item and what becomes of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    /// The source table.
    pub(crate) table: String,
    /// The source item in DynamoDB JSON.
    pub(crate) before: Value,
    /// What the plan makes of it.
    pub(crate) after: Vec<Made>,
    /// Why it cannot be transformed.
    pub(crate) refused: Option<String>,
}

/// An item that the plan makes.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Made {
    pub(crate) table: String,
    /// The item in DynamoDB JSON; `None` if the plan removes the source item.
    pub(crate) item: Option<Value>,
    /// `equal`, `missing` or `different`, compared with what the table has.
    pub(crate) stands: &'static str,
    /// What the table has instead.
    pub(crate) found: Option<Value>,
}

/// A phase change.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    /// The time in seconds since 1970.
    pub(crate) at: i64,
    /// The phase before.
    pub(crate) from: &'static str,
    /// The phase after.
    pub(crate) to: &'static str,
    /// The reason.
    pub(crate) why: String,
    /// The user and machine.
    pub(crate) by: String,
}
