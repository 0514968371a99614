//! The evaluated content of a template, as plain typed values for the runner.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    diagnostic::{Diagnostic, Span},
    not_emulated::NotEmulated,
};

/// The values of a template that the local runner uses, in the order of the template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The stack's name (`AWS::StackName`).
    pub name: String,
    /// The region in ARNs (`AWS::Region`).
    pub region: String,
    /// The account in ARNs (`AWS::AccountId`), 12 digits.
    pub account_id: String,
    /// DynamoDB tables.
    pub tables: Vec<Table>,
    /// S3 buckets.
    pub buckets: Vec<Bucket>,
    /// Lambda functions that run on this machine.
    pub functions: Vec<Function>,
    /// Event source mappings, from a table's stream to a function.
    pub mappings: Vec<EventSourceMapping>,
    /// Schedules that invoke functions.
    pub schedules: Vec<Schedule>,
    /// For each function's logical id, the logical ids of the tables to which the function may
    /// write. This is an estimate from the policies in the template.
    pub written_tables: BTreeMap<String, Vec<String>>,
    /// Settings that the local runner does not emulate, ordered by line.
    pub not_emulated: Vec<NotEmulated>,
    /// Functions that do not run on this machine, with their mappings and schedules, in the order
    /// of the template.
    pub not_run: Vec<NotRun>,
    /// Warnings about settings that are valid but probably unintended, ordered by line.
    pub warnings: Vec<Diagnostic>,
}

/// A function that does not run on this machine, or one of its mappings or schedules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRun {
    /// The kind of the resource or event: a function, mapping or schedule.
    pub what: Absent,
    /// The logical id. For an event, the function's logical id followed by the event's name.
    pub resource: String,
    /// The logical id of the function.
    pub function: String,
    /// The stream of a mapping; `None` if it is unknown, or for a function or schedule.
    pub stream: Option<StreamSource>,
    /// The reason why the function, mapping or schedule does not run.
    pub reason: String,
    /// True if the template accepts the warning about this function, mapping or schedule.
    pub accepted: bool,
    /// The location of the function, mapping or schedule in the template.
    pub at: Span,
}

/// The kinds of resources and events that do not run on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Absent {
    /// A function.
    Function,
    /// A mapping that does not run on this machine.
    Mapping,
    /// A schedule of a function that does not run on this machine.
    Schedule,
}

impl Stack {
    /// Adds a resource or event that does not run. If it was already added, the first reason is
    /// kept.
    pub(super) fn note_not_run(&mut self, note: NotRun) {
        let is_it = |other: &NotRun| other.what == note.what && other.resource == note.resource;
        if !self.not_run.iter().any(is_it) {
            self.not_run.push(note);
        }
    }

    /// Returns the table with this logical id.
    #[must_use]
    pub fn table(&self, logical_id: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.logical_id == logical_id)
    }

    /// Returns the table name of a stream; `None` if the table is not in this template.
    #[must_use]
    pub fn table_of(&self, stream: &StreamSource) -> Option<&str> {
        match stream {
            StreamSource::StreamOf(id) => self.table(id).map(|table| table.name.as_str()),
            StreamSource::Arn(_) => None,
        }
    }

    /// Returns the bucket with this logical id.
    #[must_use]
    pub fn bucket(&self, logical_id: &str) -> Option<&Bucket> {
        self.buckets.iter().find(|bucket| bucket.logical_id == logical_id)
    }

    /// Returns the function with this logical id.
    #[must_use]
    pub fn function(&self, logical_id: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.logical_id == logical_id)
    }

    /// Returns the settings that are not emulated, grouped by the behaviour on this machine. Each
    /// setting has its line number.
    #[must_use]
    pub fn not_emulated_by_reason(&self) -> BTreeMap<&str, Vec<String>> {
        let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for entry in &self.not_emulated {
            let place = match entry.property.as_str() {
                "" => entry.resource.clone(),
                property => format!("{}.{property}", entry.resource),
            };
            let line = entry.at.line;
            reasons.entry(&entry.instead).or_default().push(format!("{place} (line {line})"));
        }
        reasons
    }
}

/// A DynamoDB table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The logical id in the template.
    pub logical_id: String,
    /// `TableName`; the default is the logical id.
    pub name: String,
    /// `arn:aws:dynamodb:<region>:<account>:table/<name>`.
    pub arn: String,
    /// The key attributes of the table and of its indexes, with their types.
    pub attributes: Vec<AttributeDefinition>,
    /// The partition key's name.
    pub partition_key: String,
    /// The sort key's name; `None` if the table has no sort key.
    pub sort_key: Option<String>,
    /// The global indexes, then the local indexes, each in the order of the template.
    pub indexes: Vec<Index>,
    /// The billing mode of the table.
    pub billing: Billing,
    /// The view type of the stream; `None` if the table has no stream.
    pub stream: Option<StreamViewType>,
    /// The location of the stream's view type in the template.
    pub stream_at: Option<Span>,
    /// The TTL attribute; `None` if TTL is disabled.
    pub ttl_attribute: Option<String>,
    /// The location of the logical id in the template.
    pub at: Span,
}

/// A secondary index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// The index's name, unique in the table.
    pub name: String,
    /// The kind of the index: global or local.
    pub kind: IndexKind,
    /// The HASH attributes, 1 to 4. A local index has one: the table's partition key.
    pub partition_keys: Vec<String>,
    /// The RANGE attributes, 0 to 4. A local index has exactly one.
    pub sort_keys: Vec<String>,
    /// The attributes that are copied into the index.
    pub projection: Projection,
    /// The billing mode of the index; `None` for a local index.
    pub billing: Option<Billing>,
}

/// The two kinds of secondary index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexKind {
    /// An index with its own partition key.
    Global,
    /// An index with the table's partition key and a different sort key.
    Local,
}

/// The non-key attributes that are copied into an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Projection {
    /// `ALL`
    All,
    /// `KEYS_ONLY`
    KeysOnly,
    /// `INCLUDE` with these `NonKeyAttributes`, 1 to 20.
    Include(Vec<String>),
}

/// A key attribute and its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeDefinition {
    /// The attribute's name.
    pub name: String,
    /// The attribute's type.
    pub kind: KeyType,
}

/// The types that a key attribute can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    /// `S`
    String,
    /// `N`
    Number,
    /// `B`
    Binary,
}

impl KeyType {
    /// Returns DynamoDB's name: `S`, `N` or `B`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            KeyType::String => "S",
            KeyType::Number => "N",
            KeyType::Binary => "B",
        }
    }
}

/// The billing modes of a table or global index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Billing {
    /// `PAY_PER_REQUEST`
    OnDemand,
    /// `PROVISIONED`
    Provisioned {
        /// Read capacity units per second, at least 1.
        read_units: u64,
        /// Write capacity units per second, at least 1.
        write_units: u64,
    },
}

/// The contents of a stream record: the keys, and the item's image before or after the change, or
/// both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamViewType {
    /// `KEYS_ONLY`
    KeysOnly,
    /// `NEW_IMAGE`
    NewImage,
    /// `OLD_IMAGE`
    OldImage,
    /// `NEW_AND_OLD_IMAGES`
    NewAndOldImages,
}

impl StreamViewType {
    /// Returns DynamoDB's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            StreamViewType::KeysOnly => "KEYS_ONLY",
            StreamViewType::NewImage => "NEW_IMAGE",
            StreamViewType::OldImage => "OLD_IMAGE",
            StreamViewType::NewAndOldImages => "NEW_AND_OLD_IMAGES",
        }
    }
}

/// An S3 bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The logical id in the template.
    pub logical_id: String,
    /// `BucketName`; the default is the logical id in lower case with hyphens. For example,
    /// `ArchiveBucket` becomes `archive-bucket`.
    pub name: String,
    /// The location of the logical id in the template.
    pub at: Span,
}

/// The file name of the program that Lambda starts for a custom runtime.
pub const BOOTSTRAP: &str = "bootstrap";

/// The program of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    /// The cargo binary with this name. The name comes from `Metadata.BuildProperties.Binary`, from
    /// the package's only binary, or from the logical id (`FanOutFunction` becomes `fan-out`).
    Binary(String),
    /// The executable file `bootstrap` in `CodeUri`, which a different tool has built.
    Bootstrap,
    /// A handler that an interpreter on this machine runs.
    Script(Script),
    /// No program on this machine. A different runtime executes the function.
    Elsewhere,
}

/// The languages of handlers that need an interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Language {
    /// `python3.X`
    Python,
    /// `nodejsX.x`
    Node,
}

/// A handler in Python or Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The language.
    pub language: Language,
    /// The language version from `Runtime`, such as `3.13` or `22`.
    pub version: String,
    /// The code from `InlineCode`; `None` if the code is in a folder.
    pub inline: Option<String>,
    /// The folder that `sam build` created for the function, relative to the template's folder;
    /// `None` without a build.
    pub build_folder: Option<String>,
    /// The function's layers, in the order of the template.
    pub layers: Vec<Layer>,
}

impl Script {
    /// Returns the runtime's name on Lambda, such as `python3.13`.
    #[must_use]
    pub fn runtime(&self) -> String {
        match self.language {
            Language::Python => format!("python{}", self.version),
            Language::Node => format!("nodejs{}.x", self.version),
        }
    }
}

/// A layer of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layer {
    /// A folder, relative to the template's folder.
    Folder(String),
    /// A layer that exists only on AWS, as an ARN or a reference.
    OnAws(String),
}

/// A Lambda function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The logical id in the template.
    pub logical_id: String,
    /// `FunctionName`; the default is the logical id.
    pub name: String,
    /// `arn:aws:lambda:<region>:<account>:function:<name>`.
    pub arn: String,
    /// The folder in `CodeUri`, or the folder that `sam build` created from it, relative to the
    /// template's folder. Empty if the code is not in a folder.
    pub code_uri: String,
    /// The function's program.
    pub code: Code,
    /// `Handler`; the default is `bootstrap`.
    pub handler: String,
    /// Maximum duration of one invocation: 1 to 900 s, both inclusive; the default is 3 s.
    pub timeout: Duration,
    /// Memory in MB: 128 to 10,240, both inclusive; the default is 128.
    pub memory_mb: u32,
    /// The environment variables from the template. The runner adds the variables that Lambda sets
    /// itself.
    pub environment: BTreeMap<String, String>,
    /// `ReservedConcurrentExecutions`: the maximum number of concurrent invocations; 0 prevents all
    /// invocations.
    pub reserved_concurrency: Option<u32>,
    /// `LoggingConfig`. Like Lambda, the runner passes it to the function in
    /// `AWS_LAMBDA_LOG_FORMAT` and `AWS_LAMBDA_LOG_LEVEL`.
    pub logging: Logging,
    /// The location of the logical id in the template.
    pub at: Span,
}

impl Function {
    /// Returns the name under which a different runtime invokes the function: the name of its cargo
    /// binary, or the function's own name.
    #[must_use]
    pub fn invoked_as(&self) -> &str {
        match &self.code {
            Code::Binary(name) => name,
            Code::Bootstrap | Code::Script(_) | Code::Elsewhere => &self.name,
        }
    }
}

/// The log settings of a function.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Logging {
    /// The log format.
    pub format: LogFormat,
    /// `ApplicationLogLevel`: TRACE, DEBUG, INFO, WARN, ERROR or FATAL. `None` unless the format is
    /// JSON.
    pub application_level: Option<String>,
}

/// The formats of a function's logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Plain text lines.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// A mapping from a table's stream to a function, with all settings of a SAM `DynamoDB` event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSourceMapping {
    /// The mapping's logical id. For an event, the concatenated names of the function and the
    /// event, as in SAM.
    pub logical_id: String,
    /// The logical id of the function.
    pub function: String,
    /// The version or alias of the function, if the mapping specifies one. Lambda may have
    /// different code for it. This machine runs the same code for all versions.
    pub qualifier: Option<String>,
    /// The stream that the mapping reads.
    pub stream: StreamSource,
    /// The position at which the mapping starts to read if there is no checkpoint.
    pub starting_position: StartingPosition,
    /// Maximum number of records in one invocation: 1 to 10,000, both inclusive; the default is
    /// 100.
    pub batch_size: u32,
    /// The maximum time that a batch waits for further records: 0 to 300 s, both inclusive.
    pub batching_window: Duration,
    /// Maximum number of retries of a failed batch: 0 to 10,000. `None` (-1 in the template)
    /// retries the batch until its records expire.
    pub retry_attempts_max: Option<u32>,
    /// Maximum age of records: 60 to 604,800 s, both inclusive. `None` (-1 in the template) is
    /// unlimited.
    pub record_age_max: Option<Duration>,
    /// True if a failed batch is split in two.
    pub bisect_batch_on_function_error: bool,
    /// Number of concurrent batches of one shard: 1 to 10, both inclusive.
    pub parallelization_factor: u32,
    /// The length of the tumbling windows: 1 to 900 s, both inclusive.
    pub tumbling_window: Option<Duration>,
    /// `ReportBatchItemFailures`: true if the function's response reports the records to retry.
    pub report_batch_item_failures: bool,
    /// The filter patterns. A record is delivered if at least one pattern matches. Without
    /// patterns, every record is delivered.
    pub filters: Vec<FilterPattern>,
    /// The destination of discarded batches.
    pub on_failure: Option<Destination>,
    /// True if the mapping is enabled.
    pub enabled: bool,
    /// The location of the event's name or of the logical id in the template.
    pub at: Span,
}

/// The stream that a mapping reads.
///
/// The ARN of a stream ends with the time when the stream was enabled. This time is unknown before
/// the table exists. `!GetAtt Table.StreamArn` is therefore stored as a reference instead of a
/// string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamSource {
    /// The current stream of the table with this logical id.
    StreamOf(String),
    /// A stream outside of this template, with its ARN.
    Arn(String),
}

/// The position at which a mapping starts to read a shard without a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartingPosition {
    /// At the oldest record.
    TrimHorizon,
    /// After the newest record that exists when the mapping is created.
    Latest,
}

/// A filter of a mapping, as the string that `mapping::FilterCriteria` compiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterPattern {
    /// The pattern as JSON text.
    pub text: String,
    /// The pattern's location in the template.
    pub at: Span,
}

/// The destination of discarded batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// An S3 bucket with this name.
    Bucket(String),
    /// An SQS queue with this name. Its messages are stored as files on this machine.
    Queue(String),
    /// An SNS topic with this name. Its messages are stored as files on this machine.
    Topic(String),
    /// Any other destination, such as Kafka, with its ARN. It is listed as not emulated.
    Arn(String),
}

/// A schedule that invokes a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The concatenated names of the function and the event, as in SAM.
    pub logical_id: String,
    /// The logical id of the function.
    pub function: String,
    /// The schedule's `rate(...)` or `cron(...)` expression. Times are in UTC.
    pub expression: crate::schedule_expression::Schedule,
    /// The event for the function, as JSON text. `None` means EventBridge's default event.
    pub input: Option<String>,
    /// Maximum number of retries of a failed invocation: 0 to 2, both inclusive. The default
    /// without `EventInvokeConfig` is 2.
    pub retries: u32,
    /// True if the schedule is enabled.
    pub enabled: bool,
    /// The location of the event's name in the template.
    pub at: Span,
}
