//! The settings of one event source mapping, with their defaults and bounds.
//!
//! How a template writes them is not known here.

use super::back_off::BackOff;
use super::filter::FilterCriteria;

/// The most records that a batch may be set to (Lambda API), inclusive.
pub const BATCH_SIZE_MAX: usize = 10_000;
/// The longest batching window (Lambda API), in milliseconds, inclusive.
pub const BATCHING_WINDOW_MS_MAX: u64 = 300_000;
/// The most retries that can be set (Lambda API), inclusive.
pub const RETRY_ATTEMPTS_MAX: u32 = 10_000;
/// The most batches of one shard at once (Lambda API), inclusive.
pub const PARALLELIZATION_FACTOR_MAX: usize = 10;
/// The longest tumbling window (Lambda API), in seconds, inclusive.
pub const TUMBLING_WINDOW_S_MAX: u32 = 900;
/// The shortest and the longest record age that can be set (Lambda API), in milliseconds, inclusive.
pub const RECORD_AGE_MS: std::ops::RangeInclusive<i64> = 60_000..=604_800_000;

/// Between two reads of a shard of DynamoDB, in milliseconds: Lambda reads four times a second, and
/// DynamoDB allows five, from all readers together.
const DYNAMODB_READ_MS: u64 = 250;
/// The least time between two reads of a shard of a local store: the rest of an idle one of which
/// nobody tells that records have come.
const LOCAL_READ_MS: u64 = 100;
/// The rest of an idle shard if somebody tells that: for what may go untold, which is what a leader
/// wrote that died at once. Every mapping reads every shard that often, also while nothing happens.
const TOLD_IDLE_MS: u64 = 1_000;

/// Where a new mapping starts to read the shards that exist when it is created.
/// Shards that appear later are always read from their beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StartingPosition {
    /// From the oldest record that the stream still has.
    TrimHorizon,
    /// From the records that are written from now on.
    Latest,
}

impl StartingPosition {
    /// As templates write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TrimHorizon => "TRIM_HORIZON",
            Self::Latest => "LATEST",
        }
    }
}

/// The settings of one event source mapping.
///
/// [`Settings::new`] gives Lambda's defaults; the fields are public to be overwritten, and
/// [`Settings::check`] must pass before they are used.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The mapping's UUID: names its checkpoints and its failure objects.
    pub mapping_id: String,
    /// The function's ARN, as failure records name it.
    pub function_arn: String,
    /// The ARN of the stream, with its label.
    pub stream_arn: String,
    /// Where a new mapping starts.
    pub starting_position: StartingPosition,
    /// The most records in one batch: 1 to [`BATCH_SIZE_MAX`].
    pub batch_size: usize,
    /// How long a batch waits to become full, in milliseconds: 0 to [`BATCHING_WINDOW_MS_MAX`].
    pub batching_window_ms: u64,
    /// Batches of one shard at once: 1 to [`PARALLELIZATION_FACTOR_MAX`]. Records of one item
    /// (partition and sort key) stay in order; two items of one partition may overtake each other.
    pub parallelization_factor: usize,
    /// Aggregate in windows of this length, in seconds: 1 to [`TUMBLING_WINDOW_S_MAX`]; `None`:
    /// no windows. Needs a parallelization factor of 1.
    pub tumbling_window_s: Option<u32>,
    /// Split a batch in two when the function fails on it.
    pub bisect_on_function_error: bool,
    /// How often a failed batch is tried again; `None`: until its records expire.
    pub retry_attempts: Option<u32>,
    /// Records older than this, in milliseconds, are discarded; `None`: when they expire.
    pub record_age_ms: Option<i64>,
    /// `ReportBatchItemFailures`: the function's answer names the records to retry.
    pub report_batch_item_failures: bool,
    /// Which records the function receives.
    pub filter: FilterCriteria,
    /// Records that are discarded go to a destination; the checkpoint waits for it.
    pub has_failure_destination: bool,
    /// Failure records hold the whole event, as those in S3 do; those in SQS and SNS do not.
    pub failure_payload: bool,
    /// How far the clock that the mapping is told may be ahead of the stream's, in milliseconds:
    /// records that are older than the mapping by no more than this count as newer than it.
    pub clock_margin_ms: i64,
    /// How fast the mapping works; these are this runner's own and not Lambda's.
    pub pace: Pace,
    /// Faults that are made on purpose.
    pub faults: Faults,
}

/// How fast a mapping polls and retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// How long a shard rests after a read that found nothing, unless the mapping is told before that
    /// records have come. Lambda polls 4 times a second.
    pub idle_poll_ms: u64,
    /// The least time between two reads of a shard, unless the page was full. DynamoDB takes five
    /// `GetRecords` a second and shard, from all readers together; a local store any number.
    pub read_ms: u64,
    /// How often the shards are listed while no shard has ended.
    pub describe_ms: u64,
    /// How long a stream, or a shard, must be missing without a break before it counts as gone.
    /// DynamoDB's listings are eventually consistent, and whoever uses another account's
    /// credentials by mistake finds nothing there; the answers of a local store are final.
    pub missing_ms: u64,
    /// How long one call to the stream may take, with the SDK's own attempts: then it counts as
    /// unavailable, and another one is made.
    pub call_ms: u64,
    /// Between the attempts of a batch. Lambda's own back-off is not documented.
    pub retry: BackOff,
    /// Between the attempts to reach the stream or the failure destination.
    pub reach: BackOff,
}

/// Faults that are made on purpose, for tests and demonstrations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Invoke the function once more with each batch that succeeded.
    pub duplicate_delivery: bool,
}

/// A setting out of its bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {problem}; write instead: {remedy}")]
pub struct InvalidSetting {
    /// The setting, as the Lambda API calls it.
    pub name: &'static str,
    /// What is wrong.
    pub problem: String,
    /// What to write instead.
    pub remedy: String,
}

impl Default for Pace {
    /// Quick enough for one person at one machine: a change reaches its function within about
    /// 100 ms, and a failed batch is retried after 100 ms, 200 ms, … up to 30 s. Five minutes are
    /// far more than DynamoDB's listings lag behind, and enough to correct a profile.
    fn default() -> Self {
        let retry = BackOff { base_ms: 100, cap_ms: 30_000, spread_percent: 20 };
        let reach = BackOff { base_ms: 100, cap_ms: 10_000, spread_percent: 20 };
        Self {
            idle_poll_ms: 100,
            read_ms: 0,
            describe_ms: 10_000,
            missing_ms: 300_000,
            // Three attempts of ten seconds, and their pauses.
            call_ms: 45_000,
            retry,
            reach,
        }
    }
}

impl Pace {
    /// For the stream of a local store, whose answers are final and which takes any number of reads. A
    /// shard that is written all the time would be read again for each few records, and each read,
    /// invocation and checkpoint costs more than those; nobody waits longer for it than for a shard that
    /// was idle and that nobody told of.
    #[must_use]
    pub fn of_local_store() -> Self {
        Self { missing_ms: 0, read_ms: LOCAL_READ_MS, ..Self::default() }
    }

    /// For a local store that tells the mapping of records that come, see
    /// [`Input::Arrived`](super::Input): an idle shard is read when there is something to read, and one
    /// that is written all the time as often as that of any local store.
    #[must_use]
    pub fn of_told_store() -> Self {
        Self { idle_poll_ms: TOLD_IDLE_MS, ..Self::of_local_store() }
    }

    /// For a stream of DynamoDB, which is read as often as Lambda reads it.
    #[must_use]
    pub fn of_dynamodb() -> Self {
        Self { idle_poll_ms: DYNAMODB_READ_MS, read_ms: DYNAMODB_READ_MS, ..Self::default() }
    }
}

impl Settings {
    /// Lambda's defaults for a mapping from a stream to a function.
    #[must_use]
    pub fn new(mapping_id: &str, function_arn: &str, stream_arn: &str) -> Self {
        Self {
            mapping_id: mapping_id.to_owned(),
            function_arn: function_arn.to_owned(),
            stream_arn: stream_arn.to_owned(),
            starting_position: StartingPosition::TrimHorizon,
            batch_size: 100,
            batching_window_ms: 0,
            parallelization_factor: 1,
            tumbling_window_s: None,
            bisect_on_function_error: false,
            retry_attempts: None,
            record_age_ms: None,
            report_batch_item_failures: false,
            filter: FilterCriteria::default(),
            has_failure_destination: false,
            failure_payload: true,
            clock_margin_ms: 0,
            pace: Pace::default(),
            faults: Faults::default(),
        }
    }

    /// The stream's label: what follows `/stream/` in its ARN. A stream that was disabled and
    /// enabled again has another label, and with it other checkpoints.
    #[must_use]
    pub fn stream_label(&self) -> &str {
        self.stream_arn.rsplit_once("/stream/").map_or("", |(_, label)| label)
    }

    /// The name of the table, as the stream's ARN has it; empty if that is no such ARN.
    #[must_use]
    pub fn table(&self) -> &str {
        let rest = self.stream_arn.split_once(":table/").map(|(_, rest)| rest);
        rest.and_then(|rest| rest.split('/').next()).unwrap_or_default()
    }

    /// Checks every bound.
    ///
    /// # Errors
    /// The first setting that is out of its bounds.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        let invalid =
            |name, problem: String, remedy: String| Err(InvalidSetting { name, problem, remedy });
        if self.stream_label().is_empty() {
            return invalid(
                "EventSourceArn",
                format!("`{}` is not the ARN of a DynamoDB stream", self.stream_arn),
                "arn:aws:dynamodb:REGION:ACCOUNT:table/TABLE/stream/LABEL, or \
                 !GetAtt TABLE.StreamArn"
                    .to_owned(),
            );
        }
        if !(1..=BATCH_SIZE_MAX).contains(&self.batch_size) {
            let problem = format!("a batch cannot have {} records", self.batch_size);
            return invalid("BatchSize", problem, format!("1 to {BATCH_SIZE_MAX}"));
        }
        if self.batching_window_ms > BATCHING_WINDOW_MS_MAX {
            let problem = format!("{} ms is too long", self.batching_window_ms);
            return invalid("MaximumBatchingWindowInSeconds", problem, "0 to 300".to_owned());
        }
        if !(1..=PARALLELIZATION_FACTOR_MAX).contains(&self.parallelization_factor) {
            let problem = format!("there cannot be {} lanes", self.parallelization_factor);
            let remedy = format!("1 to {PARALLELIZATION_FACTOR_MAX}");
            return invalid("ParallelizationFactor", problem, remedy);
        }
        if self.tumbling_window_s.is_some_and(|s| !(1..=TUMBLING_WINDOW_S_MAX).contains(&s)) {
            let problem = "the window is out of bounds".to_owned();
            let remedy = format!("1 to {TUMBLING_WINDOW_S_MAX}, or leave it out");
            return invalid("TumblingWindowInSeconds", problem, remedy);
        }
        if self.tumbling_window_s.is_some() && self.parallelization_factor > 1 {
            let problem = "a tumbling window needs a ParallelizationFactor of 1".to_owned();
            return invalid("TumblingWindowInSeconds", problem, "one of the two".to_owned());
        }
        if self.retry_attempts.is_some_and(|attempts| attempts > RETRY_ATTEMPTS_MAX) {
            let problem = "more retries than Lambda allows".to_owned();
            return invalid("MaximumRetryAttempts", problem, format!("-1 to {RETRY_ATTEMPTS_MAX}"));
        }
        if self.record_age_ms.is_some_and(|age| !RECORD_AGE_MS.contains(&age)) {
            let problem = "the age is out of bounds".to_owned();
            let remedy = "-1, or 60 to 604800".to_owned();
            return invalid("MaximumRecordAgeInSeconds", problem, remedy);
        }
        Ok(())
    }
}
