//! The data of the page `migration`, which is served as HTML and as JSON.

use operations::migrate::api::{CutoverSafety, EndedSwitch, PhaseStep};
use serde::Serialize;
use serde_json::Value;

/// The data of the page of a migration.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct View {
    /// The name and version of the JSON schema.
    pub(crate) schema: &'static str,
    /// The name of the migration.
    pub(crate) name: String,
    /// The kind of the migration, as a plan file names it.
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
    /// Whether a cut-over is safe now, with the reasons against it.
    pub(crate) cutover: Option<CutoverSafety>,
    pub(crate) backfill: Backfill,
    pub(crate) workers: Workers,
    /// The changes in the streams that are not applied yet; `None` if the streams were not read.
    pub(crate) stream: Option<Stream>,
    /// The reason why the streams were not read.
    pub(crate) stream_note: Option<String>,
    /// The time since which writers are blocked, in seconds since 1970; `None` if they are not
    /// blocked.
    pub(crate) writers_blocked_since: Option<i64>,
    /// The last cut-over or revert that has ended.
    pub(crate) last_switch: Option<EndedSwitch>,
    /// The result of the last comparison of targets with transformed sources, before the cut-over.
    pub(crate) verified: Option<Verified>,
    /// The number of differences between sources and targets in the last comparison after the
    /// cut-over, which checks that a revert is safe.
    pub(crate) back_differences: Option<u64>,
    /// The items that were refused, that collided, or whose targets already existed.
    pub(crate) problems: Vec<String>,
    /// The subcommands that are safe now.
    pub(crate) actions: Vec<Action>,
    /// A sample of the source items, with the target items that the plan creates from them.
    pub(crate) samples: Vec<Sample>,
    /// The reason why there are no samples.
    pub(crate) samples_problem: Option<String>,
    /// The last phase changes, newest first.
    pub(crate) journal: Vec<Line>,
    /// The status, in the format of `weir migrate status --output json`.
    pub(crate) status: Value,
}

/// The progress of the backfill.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Backfill {
    /// The percentage of source items that were read.
    pub(crate) copied_percent: u64,
    /// The number of items that were read.
    pub(crate) read: u64,
    /// The number of source items when the backfill began.
    pub(crate) source_items: Option<u64>,
    /// The number of target items that were written.
    pub(crate) written: u64,
    /// The number of items that cannot be transformed.
    pub(crate) refused: u64,
    /// The number of segments that were completely read.
    pub(crate) segments_done: u64,
    pub(crate) segments: u64,
    /// Items per second between the last views of this page, oldest first.
    pub(crate) items_per_second: Vec<u64>,
    /// Items per second since the backfill began.
    pub(crate) items_per_second_on_average: u64,
    /// Items per second that the backfill may read; `None` for no limit.
    pub(crate) items_per_second_allowed: Option<u64>,
    /// The reason why the backfill is throttled; `None` if it is not.
    pub(crate) throttled: Option<String>,
    /// The estimated time until the end of the backfill, in seconds.
    pub(crate) seconds_left: Option<u64>,
}

/// The workers of the backfill.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Workers {
    /// The number of workers that are processing a segment.
    pub(crate) at_work: usize,
    /// The number of segments that are not done.
    pub(crate) open_segments: usize,
    /// The number of segments that failed and wait for `resume`.
    pub(crate) set_aside: usize,
}

/// The changes in the streams that are not applied yet.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Stream {
    /// The number of changes that are not applied.
    pub(crate) waiting: u64,
    /// The number of changes in the streams.
    pub(crate) records: u64,
    /// The age of the oldest waiting change, in seconds.
    pub(crate) lag_seconds: u64,
    /// The time in seconds until the stream deletes the oldest waiting change.
    pub(crate) horizon_seconds: Option<i64>,
    /// The table whose changes no function applies.
    pub(crate) unfollowed: Option<String>,
    /// The age of this observation, in seconds.
    pub(crate) seen_seconds_ago: u64,
}

/// The result of a comparison of targets with transformed sources.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Verified {
    pub(crate) differences: u64,
    /// The number of differences that no repair can remove.
    pub(crate) refused: u64,
    /// The number of compared items.
    pub(crate) compared: u64,
    /// The start of the comparison, in seconds since 1970.
    pub(crate) at: i64,
}

/// A verb that is safe now.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Action {
    pub(crate) verb: String,
    /// The complete command.
    pub(crate) command: String,
    /// The consequence, in one sentence.
    pub(crate) consequence: String,
    /// Whether the page has a button for the subcommand.
    pub(crate) button: bool,
}

/// A source item, with the target items that the plan creates from it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    /// The source table.
    pub(crate) table: String,
    /// The source item in DynamoDB JSON.
    pub(crate) before: Value,
    /// The target items that the plan creates from the source item.
    pub(crate) after: Vec<Made>,
    /// The reason why the plan cannot transform the source item.
    pub(crate) refused: Option<String>,
}

/// A target item that the plan creates.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Made {
    pub(crate) table: String,
    /// The item in DynamoDB JSON; `None` if the plan removes the source item.
    pub(crate) item: Option<Value>,
    /// The result of the comparison with the item in the table: `equal`, `missing` or `different`.
    pub(crate) stands: &'static str,
    /// The item in the table, if it is different.
    pub(crate) found: Option<Value>,
}

/// A phase change.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    /// The time in seconds since 1970.
    pub(crate) at: i64,
    /// The phase before the change.
    pub(crate) from: &'static str,
    /// The phase after the change.
    pub(crate) to: &'static str,
    /// The reason for the change.
    pub(crate) why: String,
    /// The user and machine that made the change.
    pub(crate) by: String,
}
