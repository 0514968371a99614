//! The settings of an event source mapping, with their defaults and bounds.
//!
//! The crate `template` parses templates into these settings.

use super::back_off::BackOff;
use super::filter::FilterCriteria;

/// The maximum batch size (Lambda API), inclusive.
pub const BATCH_SIZE_MAX: usize = 10_000;
/// The maximum batching window (Lambda API), in milliseconds, inclusive.
pub const BATCHING_WINDOW_MS_MAX: u64 = 300_000;
/// The maximum number of retries (Lambda API), inclusive.
pub const RETRY_ATTEMPTS_MAX: u32 = 10_000;
/// The maximum number of concurrent batches per shard (Lambda API), inclusive.
pub const PARALLELIZATION_FACTOR_MAX: usize = 10;
/// The maximum length of a tumbling window (Lambda API), in seconds, inclusive.
pub const TUMBLING_WINDOW_S_MAX: u32 = 900;
/// The minimum and maximum values of the record age (Lambda API), in milliseconds, inclusive.
pub const RECORD_AGE_MS: std::ops::RangeInclusive<i64> = 60_000..=604_800_000;

/// The minimum time between two reads of a shard in DynamoDB, in milliseconds. Lambda reads four
/// times per second; DynamoDB allows five reads per second for all readers of the shard together.
const DYNAMODB_READ_MS: u64 = 250;
/// The minimum time between two reads of a shard in a local store, in milliseconds. It is also the
/// idle interval if the store does not announce new records.
const LOCAL_READ_MS: u64 = 100;
/// The idle interval if the store announces new records, in milliseconds. An announcement is lost
/// if the store's leader crashes directly after the write. The mapping finds such records because
/// it reads every shard at least once per interval.
const TOLD_IDLE_MS: u64 = 1_000;

/// The position at which a new mapping starts to read the existing shards. Shards that appear later
/// are always read from their beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StartingPosition {
    /// From the oldest record that the stream still has.
    TrimHorizon,
    /// After the newest record that exists at creation.
    Latest,
}

impl StartingPosition {
    /// Returns the name of the position in templates.
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
/// [`Settings::new`] returns Lambda's defaults. The caller may overwrite the public fields, and
/// must call [`Settings::check`] before it uses the settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The mapping's UUID, which is part of the names of its checkpoints and failure objects.
    pub mapping_id: String,
    /// The function's ARN in failure records.
    pub function_arn: String,
    /// The stream's ARN, including the label.
    pub stream_arn: String,
    /// The position at which a new mapping starts to read.
    pub starting_position: StartingPosition,
    /// Maximum number of records in one batch: 1 to [`BATCH_SIZE_MAX`].
    pub batch_size: usize,
    /// The maximum time that a batch waits for further records, in milliseconds: 0 to
    /// [`BATCHING_WINDOW_MS_MAX`].
    pub batching_window_ms: u64,
    /// Number of concurrent batches of one shard: 1 to [`PARALLELIZATION_FACTOR_MAX`]. Records of
    /// one item (partition and sort key) stay in order. Records of different items may be delivered
    /// in a different order, even within one partition.
    pub parallelization_factor: usize,
    /// The length of tumbling windows in seconds: 1 to [`TUMBLING_WINDOW_S_MAX`]; `None` without
    /// windows. Windows need a parallelization factor of 1.
    pub tumbling_window_s: Option<u32>,
    /// True if a batch is split in two after a function error.
    pub bisect_on_function_error: bool,
    /// Maximum number of retries of a failed batch. `None` retries the batch until its records expire.
    pub retry_attempts: Option<u32>,
    /// Maximum age of a record in milliseconds. Older records are discarded. With `None`, records
    /// are discarded when they are older than the stream's retention.
    pub record_age_ms: Option<i64>,
    /// `ReportBatchItemFailures`: true if the function's response reports the records to retry.
    pub report_batch_item_failures: bool,
    /// The filter, which decides which records the function receives.
    pub filter: FilterCriteria,
    /// True if failure records of discarded records are stored in a destination. The checkpoint
    /// does not advance before they are stored.
    pub has_failure_destination: bool,
    /// True if failure records contain the entire event: for S3, but not for SQS and SNS.
    pub failure_payload: bool,
    /// The maximum difference between the clocks of the mapping and the stream, in milliseconds. A
    /// record counts as written after the mapping's creation if it is older than the mapping by at
    /// most this time.
    pub clock_margin_ms: i64,
    /// The polling and retry intervals of this runner.
    pub pace: Pace,
    /// The injected faults.
    pub faults: Faults,
}

/// The polling and retry intervals of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The time between an empty read of a shard and the next read, in milliseconds. An
    /// announcement of records causes an earlier read. Lambda polls 4 times per second.
    pub idle_poll_ms: u64,
    /// The minimum time between two reads of a shard, in milliseconds. It does not apply after a
    /// full page. DynamoDB allows five `GetRecords` calls per second and shard for all readers
    /// together. A local store has no limit.
    pub read_ms: u64,
    /// The interval between listings while no shard has ended, in milliseconds.
    pub describe_ms: u64,
    /// The time for which a stream or a shard must be continuously missing before it counts as
    /// gone, in milliseconds. DynamoDB's listings are eventually consistent. A table may also seem
    /// to be missing because the credentials belong to a different account. The responses of a
    /// local store are always current.
    pub missing_ms: u64,
    /// The timeout of one call to the stream, including retries by the SDK, in milliseconds. After
    /// a timeout, the stream counts as unavailable and the call is retried.
    pub call_ms: u64,
    /// Back-off between the attempts of a batch. Lambda does not document its own back-off.
    pub retry: BackOff,
    /// Back-off between attempts to reach the stream or the failure destination.
    pub unreachable: BackOff,
}

/// Injected faults, for tests and demonstrations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// After each successful batch, the function is invoked again with the same batch.
    pub duplicate_delivery: bool,
}

/// A setting that is out of its bounds, or conflicts with another setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {problem}; write instead: {remedy}")]
pub struct InvalidSetting {
    /// The setting's name in the Lambda API.
    pub name: &'static str,
    /// A description of the problem with the value.
    pub problem: String,
    /// The value to write instead.
    pub remedy: String,
}

impl Default for Pace {
    /// Returns the pace for a developer's machine. The function receives a change within about 100
    /// ms. A failed batch is retried after 100 ms, 200 ms, … up to 30 s. A missing stream is
    /// retried for five minutes. This time is far longer than the lag of DynamoDB's listings, and
    /// long enough for the user to correct an AWS profile.
    fn default() -> Self {
        let retry = BackOff { base_ms: 100, cap_ms: 30_000, spread_percent: 20 };
        let unreachable = BackOff { base_ms: 100, cap_ms: 10_000, spread_percent: 20 };
        Self {
            idle_poll_ms: 100,
            read_ms: 0,
            describe_ms: 10_000,
            missing_ms: 300_000,
            // The SDK makes up to three attempts of ten seconds, with pauses between them.
            call_ms: 45_000,
            retry,
            unreachable,
        }
    }
}

impl Pace {
    /// Returns the pace for a local store, whose responses are always current. The store does not
    /// limit the number of reads. The minimum time between reads avoids a read, an invocation and a
    /// checkpoint for every few records of a busy shard. This minimum time delays a record by at
    /// most the idle interval.
    #[must_use]
    pub fn of_local_store() -> Self {
        Self { missing_ms: 0, read_ms: LOCAL_READ_MS, ..Self::default() }
    }

    /// Returns the pace for a local store that announces records (see
    /// [`Input::Arrived`](super::Input)). An idle shard is read when new records are announced. A
    /// busy shard is read as often as in other local stores.
    #[must_use]
    pub fn of_told_store() -> Self {
        Self { idle_poll_ms: TOLD_IDLE_MS, ..Self::of_local_store() }
    }

    /// Returns the pace for a DynamoDB stream, with Lambda's polling rate.
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

    /// Returns the table's name from the stream's ARN; an empty string if the ARN has a different
    /// form.
    #[must_use]
    pub fn table(&self) -> &str {
        let rest = self.stream_arn.split_once(":table/").map(|(_, rest)| rest);
        rest.and_then(|rest| rest.split('/').next()).unwrap_or_default()
    }

    /// Checks that all settings are within their bounds.
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
            let problem = "the tumbling window is out of bounds".to_owned();
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
            let problem = "the maximum record age is out of bounds".to_owned();
            let remedy = "-1, or 60 to 604800".to_owned();
            return invalid("MaximumRecordAgeInSeconds", problem, remedy);
        }
        Ok(())
    }
}
