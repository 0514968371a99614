//! The settings of one event source mapping, with their defaults and bounds.
//!
//! The crate `template` parses templates.

use super::back_off::BackOff;
use super::filter::FilterCriteria;

/// The largest batch size that can be set (Lambda API), inclusive.
pub const BATCH_SIZE_MAX: usize = 10_000;
/// The longest batching window (Lambda API), in milliseconds, inclusive.
pub const BATCHING_WINDOW_MS_MAX: u64 = 300_000;
/// The most retries that can be set (Lambda API), inclusive.
pub const RETRY_ATTEMPTS_MAX: u32 = 10_000;
/// The largest number of concurrent batches of one shard (Lambda API), inclusive.
pub const PARALLELIZATION_FACTOR_MAX: usize = 10;
/// The longest tumbling window (Lambda API), in seconds, inclusive.
pub const TUMBLING_WINDOW_S_MAX: u32 = 900;
/// The shortest and the longest record age that can be set (Lambda API), in milliseconds, inclusive.
pub const RECORD_AGE_MS: std::ops::RangeInclusive<i64> = 60_000..=604_800_000;

/// Time between two reads of a shard in DynamoDB, in milliseconds: Lambda reads four times a
/// second, and DynamoDB allows five from all readers together.
const DYNAMODB_READ_MS: u64 = 250;
/// Minimum time between two reads of a shard of a local store, in milliseconds. It is also the idle
/// interval if the store does not announce records.
const LOCAL_READ_MS: u64 = 100;
/// The idle interval if the store announces records, in milliseconds. An announcement is lost if
/// the store's leader dies right after the write; this interval finds such records. Every shard is
/// read at least this often.
const TOLD_IDLE_MS: u64 = 1_000;

/// Where a new mapping starts to read the shards that exist when it is created.
/// Shards that appear later are always read from their beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StartingPosition {
    /// From the oldest record that the stream still has.
    TrimHorizon,
    /// After the newest record that exists at creation.
    Latest,
}

impl StartingPosition {
    /// Returns the name in templates.
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
    /// The mapping's UUID. Its checkpoints and failure objects are named after it.
    pub mapping_id: String,
    /// The function's ARN, as failure records name it.
    pub function_arn: String,
    /// The ARN of the stream, with its label.
    pub stream_arn: String,
    /// Where a new mapping starts.
    pub starting_position: StartingPosition,
    /// Maximum number of records in one batch: 1 to [`BATCH_SIZE_MAX`].
    pub batch_size: usize,
    /// How long a batch waits to become full, in milliseconds: 0 to [`BATCHING_WINDOW_MS_MAX`].
    pub batching_window_ms: u64,
    /// Number of concurrent batches of one shard: 1 to [`PARALLELIZATION_FACTOR_MAX`]. Records of
    /// one item (partition and sort key) stay in order; two items of one partition may overtake
    /// each other.
    pub parallelization_factor: usize,
    /// The length of tumbling windows in seconds: 1 to [`TUMBLING_WINDOW_S_MAX`]; `None` without
    /// windows. Needs a parallelization factor of 1.
    pub tumbling_window_s: Option<u32>,
    /// Whether to split a batch in two when the function fails on it.
    pub bisect_on_function_error: bool,
    /// Maximum number of retries of a failed batch. `None` retries the batch until its records expire.
    pub retry_attempts: Option<u32>,
    /// Maximum age of a record in milliseconds; older records are discarded. `None`: records are
    /// discarded when they expire.
    pub record_age_ms: Option<i64>,
    /// `ReportBatchItemFailures`: whether the function's response names the records to retry.
    pub report_batch_item_failures: bool,
    /// Which records the function receives.
    pub filter: FilterCriteria,
    /// Whether discarded records go to a destination. The checkpoint waits for the destination.
    pub has_failure_destination: bool,
    /// Whether failure records contain the whole event, as for S3 but not for SQS and SNS.
    pub failure_payload: bool,
    /// The tolerated difference between the clocks of the mapping and the stream, in milliseconds.
    /// A record counts as newer than the mapping if it is older by at most this much.
    pub clock_margin_ms: i64,
    /// The polling and retry intervals, which are specific to this runner.
    pub pace: Pace,
    /// Injected faults.
    pub faults: Faults,
}

/// How fast a mapping polls and retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// How long a shard waits after an empty read, unless records are announced, in milliseconds.
    /// Lambda polls 4 times a second.
    pub idle_poll_ms: u64,
    /// Minimum time between two reads of a shard, in milliseconds; it does not apply after a full
    /// page. DynamoDB allows five `GetRecords` a second and shard from all readers together. A
    /// local store has no limit.
    pub read_ms: u64,
    /// The interval between listings while no shard has ended, in milliseconds.
    pub describe_ms: u64,
    /// How long a stream or a shard must be missing continuously before it counts as gone, in
    /// milliseconds. DynamoDB's listings are eventually consistent, and the credentials of another
    /// account do not show the table. The responses of a local store are final.
    pub missing_ms: u64,
    /// Timeout of one call to the stream, including the SDK's attempts, in milliseconds. After it,
    /// the stream counts as unavailable and the call is retried.
    pub call_ms: u64,
    /// Back-off between the attempts of a batch. Lambda does not document its own back-off.
    pub retry: BackOff,
    /// Back-off between the attempts to reach the stream or the failure destination.
    pub unreachable: BackOff,
}

/// Injected faults, for tests and demonstrations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Invoke the function again with each successful batch.
    pub duplicate_delivery: bool,
}

/// A setting out of its bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {problem}; write instead: {remedy}")]
pub struct InvalidSetting {
    /// The setting's name in the Lambda API.
    pub name: &'static str,
    /// What is wrong.
    pub problem: String,
    /// What to write instead.
    pub remedy: String,
}

impl Default for Pace {
    /// Returns a pace for one developer at one machine. A change reaches its function within about 100
    /// ms. A failed batch is retried after 100 ms, 200 ms, … up to 30 s. A missing stream is retried for
    /// five minutes: far longer than the lag of DynamoDB's listings, and enough to correct a profile.
    fn default() -> Self {
        let retry = BackOff { base_ms: 100, cap_ms: 30_000, spread_percent: 20 };
        let unreachable = BackOff { base_ms: 100, cap_ms: 10_000, spread_percent: 20 };
        Self {
            idle_poll_ms: 100,
            read_ms: 0,
            describe_ms: 10_000,
            missing_ms: 300_000,
            // Three attempts of ten seconds, and the pauses between them.
            call_ms: 45_000,
            retry,
            unreachable,
        }
    }
}

impl Pace {
    /// Returns the pace for a local store, whose responses are final. The store allows any number of
    /// reads, but a busy shard would then be read again for every few records. Each read, invocation and
    /// checkpoint costs more than these records. The limit delays a record no more than the idle
    /// interval.
    #[must_use]
    pub fn of_local_store() -> Self {
        Self { missing_ms: 0, read_ms: LOCAL_READ_MS, ..Self::default() }
    }

    /// Returns the pace for a local store that announces records (see [`Input::Arrived`](super::Input)).
    /// An idle shard is read when it has new records; a busy shard is read as often as in any local
    /// store.
    #[must_use]
    pub fn of_told_store() -> Self {
        Self { idle_poll_ms: TOLD_IDLE_MS, ..Self::of_local_store() }
    }

    /// Returns the pace for a DynamoDB stream: Lambda's polling rate.
    #[must_use]
    pub fn of_dynamodb() -> Self {
        Self { idle_poll_ms: DYNAMODB_READ_MS, read_ms: DYNAMODB_READ_MS, ..Self::default() }
    }
}

impl Settings {
    /// Returns Lambda's defaults for a mapping from a stream to a function.
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

    /// Returns the stream's label: the text after `/stream/` in its ARN. If a stream is disabled
    /// and enabled again, it gets a new label and therefore new checkpoints.
    #[must_use]
    pub fn stream_label(&self) -> &str {
        self.stream_arn.rsplit_once("/stream/").map_or("", |(_, label)| label)
    }

    /// Returns the name of the table from the stream's ARN; empty if the ARN has a different form.
    #[must_use]
    pub fn table(&self) -> &str {
        let rest = self.stream_arn.split_once(":table/").map(|(_, rest)| rest);
        rest.and_then(|rest| rest.split('/').next()).unwrap_or_default()
    }

    /// Checks every bound.
    ///
    /// # Errors
    /// Returns the first setting that is out of its bounds.
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
            let problem = format!("{} lanes are not allowed", self.parallelization_factor);
            let remedy = format!("1 to {PARALLELIZATION_FACTOR_MAX}");
            return invalid("ParallelizationFactor", problem, remedy);
        }
        if self.tumbling_window_s.is_some_and(|s| !(1..=TUMBLING_WINDOW_S_MAX).contains(&s)) {
            let problem = "the window is out of bounds".to_owned();
            let remedy = format!("1 to {TUMBLING_WINDOW_S_MAX}, or remove it");
            return invalid("TumblingWindowInSeconds", problem, remedy);
        }
        if self.tumbling_window_s.is_some() && self.parallelization_factor > 1 {
            let problem = "a tumbling window needs a ParallelizationFactor of 1".to_owned();
            return invalid(
                "TumblingWindowInSeconds",
                problem,
                "only one of the two settings".to_owned(),
            );
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
