//! Facts about mappings and streams, each with a number. AWS documents them, or AWS's recorded
//! responses to LocalStack's tests show them. A case of `testdata` that tests a fact has the fact's
//! number in its comment, as in `# [P4] An empty identifier …`.
//!
//! `parity` checks the numbers and writes docs/parity.md.

/// The source of a fact.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// The AWS Lambda guide or the DynamoDB guide.
    Documented,
    /// AWS's responses to LocalStack's tests, which LocalStack recorded.
    Recorded,
}

/// A fact, with its number, AWS's behaviour, its source, and tests other than the cases in text
/// files.
pub(super) struct Fact {
    pub(super) number: &'static str,
    pub(super) text: &'static str,
    pub(super) source: Source,
    pub(super) tests: &'static [(&'static str, &'static str)],
}

const fn documented(number: &'static str, text: &'static str) -> Fact {
    Fact { number, text, source: Source::Documented, tests: &[] }
}

const fn recorded(number: &'static str, text: &'static str) -> Fact {
    Fact { number, text, source: Source::Recorded, tests: &[] }
}

impl Fact {
    const fn and(mut self, tests: &'static [(&'static str, &'static str)]) -> Self {
        self.tests = tests;
        self
    }
}

const RANGES: &str = "runner/template/testdata/bad-ranges.txt";

#[rustfmt::skip]
pub(super) const FACTS: &[Fact] = &[
    documented("E1", "`BatchSize` is 1 to 10,000; a batch contains the available records, up to that number")
        .and(&[(RANGES, "BatchSize 10001 is too large")]),
    documented("E2", "`MaximumBatchingWindowInSeconds` (0 to 300): a batch is sent when the window ends or the batch is full")
        .and(&[(RANGES, "MaximumBatchingWindowInSeconds 301 is too large")]),
    documented("E3", "A batch is also sent when it reaches 6 MB; a larger record is sent as its own batch"),
    documented("E4", "The next batching window begins when the invocation ends"),
    documented("E5", "Records are filtered before they count towards the batch size"),
    documented("E6", "`StartingPosition` is `TRIM_HORIZON` or `LATEST` and applies to each shard; DynamoDB does not support `AT_TIMESTAMP`")
        .and(&[(RANGES, "StartingPosition cannot be `AT_TIMESTAMP` for a DynamoDB stream")]),
    documented("E7", "`ParallelizationFactor` (1 to 10) keeps the order of each item's records; with a tumbling window it must be 1")
        .and(&[(RANGES, "a tumbling window needs a ParallelizationFactor of 1")]),
    documented("E8", "`BisectBatchOnFunctionError` halves a failed batch without using a retry"),
    documented("E9", "With bisecting and `ReportBatchItemFailures`, a function error halves the batch, and a partial failure splits it at the reported record"),
    documented("E10", "`MaximumRetryAttempts` counts function errors; 0 means a single attempt"),
    documented("E11", "A throttled invocation uses no retry; only the maximum record age ends its retries"),
    recorded("E12", "`MaximumRecordAgeInSeconds` applies to each record: expired records are split off, and the others are delivered"),
    recorded("E13", "A record can exceed the maximum age before its first delivery"),
    documented("E14", "No record is kept for longer than the stream's retention of 24 hours"),
    documented("E15", "Without `ReportBatchItemFailures` the function's response is ignored"),
    documented("E16", "A mapping that is stopped and started again resumes at its checkpoint"),
    documented("E17", "A shard without new records is polled again after a pause"),
    documented("E18", "A batch may be delivered more than once"),
    recorded("P1", "The responses `null`, `{}`, `[]` and `\"\"`, and an empty list or `null` as `batchItemFailures`, mean success"),
    documented("P2", "If a response has several failures, the numerically lowest counts; this record and all later records are delivered again, processed or not"),
    recorded("P3", "An empty `itemIdentifier` fails the whole batch"),
    recorded("P4", "`null` as `itemIdentifier` fails the whole batch"),
    recorded("P5", "A failure with another key than `itemIdentifier` fails the whole batch"),
    recorded("P6", "An `itemIdentifier` that is not in the batch fails the whole batch"),
    recorded("P7", "The count of attempts restarts when the checkpoint advances"),
    documented("P8", "Within a tumbling window a response without `state` is a failed invocation"),
    recorded("R1", "The condition of a failure record is `RetryAttemptsExhausted` or `RecordAgeExceeded`"),
    recorded("R2", "`approximateInvokeCount` is the number of attempts: the first attempt and its retries"),
    recorded("R3", "The failure record of an expired record has no `responseContext`"),
    recorded("R4", "A failure record has `functionError: null` if the function returned without an error"),
    recorded("R5", "Arrival times have a resolution of one second; `version` is 1.0")
        .and(&[("runner/mapping/src/failure.rs", "fn has_the_documented_shape")]),
    documented("R6", "Records have `eventVersion` 1.1 and an `eventID` of 32 hexadecimal digits")
        .and(&[("model/src/stream_record/page.rs", "fn records_have_the_shape_of_a_lambda_event")]),
    documented("R7", "A failure destination in S3 receives the entire event, under `aws/lambda/MAPPING/SHARD/YYYY/MM/DD/…`; queues and topics receive no payload")
        .and(&[("runner/mapping/src/failure.rs", "fn has_the_documented_shape")]),
    documented("F1", "A leaf is a list of alternatives, all fields must match, and at least one pattern must match"),
    documented("F2", "If a key occurs twice, its last value counts"),
    documented("F3", "The operators are null, equality, prefix, suffix, anything-but, numeric, exists, equals-ignore-case and $or"),
    recorded("F4", "`numeric` never matches a DynamoDB number, which is a string"),
    recorded("F5", "`ApproximateCreationDateTime` is a number when the filter sees it"),
    recorded("F6", "The type of an attribute is a separate level of the pattern"),
    recorded("F7", "`exists: true` matches a leaf, never the attribute itself"),
    recorded("F8", "`exists: false` on an attribute always matches, even if the attribute exists"),
    documented("F9", "Numbers are compared by their string representation"),
    documented("F10", "Lists are flattened"),
    recorded("F11", "`eventSource`, `eventSourceARN` and `awsRegion` are added after filtering"),
    documented("F12", "A page without matching records advances the checkpoint and invokes nothing"),
    recorded("F13", "A pattern that is not a JSON object is rejected when the mapping is created"),
    documented("W1", "Windows are based on the records' creation time; each invocation passes its state to the next"),
    documented("W2", "The last invocation of a window receives its state and no records; the state is then discarded"),
    documented("W3", "A state larger than 1 MB ends its window early"),
    documented("W4", "The end of a shard closes its window, and its child shards begin new windows"),
    documented("W5", "If the last invocation of a window fails, processing of the shard stops"),
    documented("S1", "A child shard is read from its beginning, after its parent is fully processed"),
    documented("S2", "Only a page without a next iterator ends a shard, and that page may have records"),
    documented("S3", "Shard listings lag: a closed shard without a child is listed again, and a shard that is listed before it is readable is not a gap"),
    documented("S4", "Iterators expire; reading resumes after the last record, or from the beginning"),
    documented("S5", "A gap is reported if the stream has trimmed records after the last record read"),
    documented("S6", "Sequence numbers are compared as numbers")
        .and(&[("runner/mapping/src/sequence.rs", "fn orders_by_number_and_not_by_text")]),
    documented("S7", "A disabled stream remains readable to its end, where reading stops"),
    documented("S8", "A stream that is enabled again has a new label and therefore new checkpoints")
        .and(&[("runner/local/src/poller/checkpoint_store.rs", "fn a_stream_that_was_enabled_again_has_other_checkpoints")]),
    documented("S9", "The creation time has a resolution of one second and may be absent")
        .and(&[("model/src/stream_record/page.rs", "fn missing_members_stay_absent")]),
    documented("S10", "A finished shard that is still listed is not read again"),
];
