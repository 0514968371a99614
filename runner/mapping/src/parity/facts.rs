//! Facts about mappings and streams, each with a number. AWS documents them, or its recorded
//! answers to LocalStack's tests show them. A case of `testdata` that tests a fact has its number
//! in the comment, as in `# [P4] An empty identifier …`.
//!
//! `parity` checks the numbers and writes the page.

/// The source of a fact.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// The AWS Lambda guide or the DynamoDB guide.
    Documented,
    /// What AWS answered to LocalStack's recorded tests.
    Recorded,
}

/// A fact. It has its number, AWS's behaviour, its source, and further tests besides the text
/// cases.
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
    documented("E1", "`BatchSize` is 1 to 10,000; a batch is what there is, up to that")
        .and(&[(RANGES, "BatchSize 10001 is too large")]),
    documented("E2", "`MaximumBatchingWindowInSeconds` (0 to 300): a batch goes when the window ends or the batch is full")
        .and(&[(RANGES, "MaximumBatchingWindowInSeconds 301 is too large")]),
    documented("E3", "A batch goes at 6 MB too, and a record that is larger goes alone"),
    documented("E4", "The next window begins when the invocation is over"),
    documented("E5", "Records are filtered before they count for a batch"),
    documented("E6", "`StartingPosition` is `TRIM_HORIZON` or `LATEST`, for each shard; `AT_TIMESTAMP` is not for DynamoDB")
        .and(&[(RANGES, "StartingPosition cannot be `AT_TIMESTAMP` for a DynamoDB stream")]),
    documented("E7", "`ParallelizationFactor` (1 to 10) keeps the order of each item; with a tumbling window it is 1")
        .and(&[(RANGES, "a tumbling window needs a ParallelizationFactor of 1")]),
    documented("E8", "`BisectBatchOnFunctionError` halves a batch that failed, and that uses up no retry"),
    documented("E9", "With `ReportBatchItemFailures` an error is halved, an answer splits at the record that it names"),
    documented("E10", "`MaximumRetryAttempts` counts function errors; 0 is one attempt"),
    documented("E11", "A throttle uses up no retry; only age ends it"),
    recorded("E12", "`MaximumRecordAgeInSeconds` is for each record: what is too old is split off, the rest is delivered"),
    recorded("E13", "A record can be too old before its first delivery"),
    documented("E14", "No record is kept for longer than the stream's 24 hours"),
    documented("E15", "Without `ReportBatchItemFailures` the answer is ignored"),
    documented("E16", "A mapping that is stopped and started resumes at its position"),
    documented("E17", "Shards are polled with a pause when they have nothing new"),
    documented("E18", "A batch may be delivered more than once"),
    recorded("P1", "`null`, `{}`, `[]`, `\"\"`, no failures and `null` for the failures are success"),
    documented("P2", "Of several failures the numerically lowest counts; what follows it is delivered again, done or not"),
    recorded("P3", "An empty identifier fails the whole batch"),
    recorded("P4", "`null` as identifier fails the whole batch"),
    recorded("P5", "A wrong key name fails the whole batch"),
    recorded("P6", "An identifier that is not in the batch fails the whole batch"),
    recorded("P7", "The count of attempts begins again when the checkpoint moved"),
    documented("P8", "Within a tumbling window an answer without `state` is a failed invocation"),
    recorded("R1", "A failure record says `RetryAttemptsExhausted` or `RecordAgeExceeded`"),
    recorded("R2", "`approximateInvokeCount` is the attempts that were made: the retries and one"),
    recorded("R3", "A record that became too old has no `responseContext`"),
    recorded("R4", "A function that answered without an error has `functionError: null`"),
    recorded("R5", "Arrival times are to the second; `version` is 1.0")
        .and(&[("runner/mapping/src/failure.rs", "fn has_the_documented_shape")]),
    documented("R6", "Records have `eventVersion` 1.1 and an `eventID` of 32 hexadecimal digits")
        .and(&[("model/src/stream_record/page.rs", "fn records_have_the_shape_of_a_lambda_event")]),
    documented("R7", "S3 keeps the whole event, under `aws/lambda/MAPPING/SHARD/YYYY/MM/DD/…`; queues and topics get no payload")
        .and(&[("runner/mapping/src/failure.rs", "fn has_the_documented_shape")]),
    documented("F1", "Leaves are lists of alternatives, fields must all match, one of several patterns must match"),
    documented("F2", "Of the same key twice, the last counts"),
    documented("F3", "null, equality, prefix, suffix, anything-but, numeric, exists, equals-ignore-case and $or"),
    recorded("F4", "`numeric` never matches a DynamoDB number, which is a string"),
    recorded("F5", "`ApproximateCreationDateTime` is a number when the filter sees it"),
    recorded("F6", "The type of an attribute is a level of its own"),
    recorded("F7", "`exists: true` matches a leaf, never the attribute itself"),
    recorded("F8", "`exists: false` on an attribute always matches, also when the attribute is there"),
    documented("F9", "Numbers are compared by their text"),
    documented("F10", "Lists are flattened"),
    recorded("F11", "`eventSource`, `eventSourceARN` and `awsRegion` are added after filtering"),
    documented("F12", "A page in which nothing passes moves the checkpoint and invokes nothing"),
    recorded("F13", "A pattern that is no JSON object is refused when the mapping is made"),
    documented("W1", "Windows go by the records' creation time; the state is carried from one invocation to the next"),
    documented("W2", "The last invocation of a window has its state and no records, and the state is dropped after it"),
    documented("W3", "A state over 1 MB ends its window early"),
    documented("W4", "The end of a shard closes its window, and its children begin a new one"),
    documented("W5", "A last invocation that fails stops the shard"),
    documented("S1", "A child shard is read when its parent is processed, from its beginning"),
    documented("S2", "Only a page without a next iterator ends a shard, and that page may have records"),
    documented("S3", "Listings lag behind: a closed shard without a child is listed again, and one that is listed before it can be read is no gap"),
    documented("S4", "Iterators expire; reading resumes after the last record, or from the beginning"),
    documented("S5", "Records after a read one that the stream no longer has are a reported gap"),
    documented("S6", "Sequence numbers are compared as numbers")
        .and(&[("runner/mapping/src/sequence.rs", "fn orders_by_number_and_not_by_text")]),
    documented("S7", "A stream that was disabled is readable to its end, and then over"),
    documented("S8", "A stream that is enabled again has a new label, and with it new checkpoints")
        .and(&[("runner/local/src/poller/checkpoint_store.rs", "fn a_stream_that_was_enabled_again_has_other_checkpoints")]),
    documented("S9", "The creation time is to the second and may be absent")
        .and(&[("model/src/stream_record/page.rs", "fn missing_members_stay_absent")]),
    documented("S10", "A finished shard that is still listed is not read again"),
];
