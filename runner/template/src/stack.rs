//! The resolved content of a template: plain typed values for the runner.

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
    /// Lambda functions that run here.
    pub functions: Vec<Function>,
    /// Event source mappings, from a table's stream to a function.
    pub mappings: Vec<EventSourceMapping>,
    /// Schedules that invoke functions.
    pub schedules: Vec<Schedule>,
    /// The logical ids of the tables that each function may write to, by the function's logical id. It is an
    /// estimate from the policies in the template.
    pub written_tables: BTreeMap<String, Vec<String>>,
    /// Settings that the local runner does not emulate, by line.
    pub not_emulated: Vec<NotEmulated>,
    /// Functions that do not run here, with their mappings and schedules, in the order of the
    /// template.
    pub not_run: Vec<NotRun>,
    /// Settings that are valid but probably unintended, by line.
    pub warnings: Vec<Diagnostic>,
}

/// A function of the template that does not run here, or one of its mappings or schedules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRun {
    /// What does not run: a function, mapping or schedule.
    pub what: Absent,
    /// The logical id. For an event, it is the function's logical id followed by the event's name.
    pub resource: String,
    /// The logical id of the function.
    pub function: String,
    /// The stream that a mapping would read, if known.
    pub stream: Option<StreamSource>,
    /// The reason.
    pub reason: String,
    /// Whether the template accepts the warning that this function, mapping or schedule does not run here.
    pub accepted: bool,
    /// Its place.
    pub at: Span,
}

/// The types of resources and events that do not run here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Absent {
    /// A function.
    Function,
    /// A mapping of a function that does not run here.
    Mapping,
    /// A schedule of a function that does not run here.
    Schedule,
}

impl Stack {
    /// Adds a resource or event that does not run. If it was already added for another reason, that
    /// reason is kept.
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

    /// Returns the name of the stream's table, if it is in this template.
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

    /// Returns the settings that this machine does not emulate, grouped by what happens instead.
    /// Each has its place with the line.
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
    /// The name in the template.
    pub logical_id: String,
    /// `TableName`, or the logical id.
    pub name: String,
    /// `arn:aws:dynamodb:<region>:<account>:table/<name>`.
    pub arn: String,
    /// The key attributes of the table and of its indexes, with their types.
    pub attributes: Vec<AttributeDefinition>,
    /// The partition key's name.
    pub partition_key: String,
    /// The sort key's name.
    pub sort_key: Option<String>,
    /// The global indexes, then the local ones, in the order of the template.
    pub indexes: Vec<Index>,
    /// How throughput is billed.
    pub billing: Billing,
    /// The view type of the stream; `None` if the table has no stream.
    pub stream: Option<StreamViewType>,
    /// The place of the stream's view type in the template.
    pub stream_at: Option<Span>,
    /// The TTL attribute, if TTL is on.
    pub ttl_attribute: Option<String>,
    /// The place of the logical id in the template.
    pub at: Span,
}

/// A secondary index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// The index's name, unique in the table.
    pub name: String,
    /// Global or local.
    pub kind: IndexKind,
    /// The HASH attributes, 1 to 4. A local index has one: the table's partition key.
    pub partition_keys: Vec<String>,
    /// The RANGE attributes, 0 to 4. A local index has one.
    pub sort_keys: Vec<String>,
    /// The attributes that the index contains.
    pub projection: Projection,
    /// How its throughput is billed; `None` for a local index.
    pub billing: Option<Billing>,
}

/// The two kinds of secondary index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexKind {
    /// An index with its own partition key.
    Global,
    /// An index that orders the items of one partition key by another attribute.
    Local,
}

/// The attributes of an index besides the keys of the index and of its table.
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
    /// Its type.
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

/// How a table's throughput is billed.
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

/// The images of an item in a stream record.
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
    /// The name in the template.
    pub logical_id: String,
    /// `BucketName`, or the logical id in lower case with hyphens: `ArchiveBucket` is
    /// `archive-bucket`.
    pub name: String,
    /// The place of the logical id.
    pub at: Span,
}

/// The program that Lambda starts for a custom runtime.
pub const BOOTSTRAP: &str = "bootstrap";

/// The program of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    /// The cargo binary with this name. The name is `Metadata.BuildProperties.Binary`, the
    /// package's only binary, or comes from the logical id (`FanOutFunction` is `fan-out`).
    Binary(String),
    /// The file `bootstrap` in `CodeUri`, which another tool has built.
    Bootstrap,
    /// A handler that an interpreter on this machine runs.
    Script(Script),
    /// The function has no program on this machine; another runtime runs it.
    Elsewhere,
}

/// A language of handlers that an interpreter runs.
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
    /// The version in `Runtime`, such as `3.13` or `22`.
    pub version: String,
    /// The code in `InlineCode`, if it is not in a folder.
    pub inline: Option<String>,
    /// The folder that `sam build` made for the function, relative to the template's folder.
    pub build_folder: Option<String>,
    /// Its layers, in the order of the template.
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
    /// A layer on AWS: its ARN, or the reference to it.
    OnAws(String),
}

/// A Lambda function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The name in the template.
    pub logical_id: String,
    /// `FunctionName`, or the logical id.
    pub name: String,
    /// `arn:aws:lambda:<region>:<account>:function:<name>`.
    pub arn: String,
    /// `CodeUri`, or the folder that `sam build` made from it, relative to the template's folder.
    /// Empty if the code is not read from a folder.
    pub code_uri: String,
    /// Its program.
    pub code: Code,
    /// `Handler`; the default is `bootstrap`.
    pub handler: String,
    /// Maximum duration of one invocation: 1 to 900 s, both inclusive; the default is 3 s.
    pub timeout: Duration,
    /// Memory in MB: 128 to 10,240, both inclusive; the default is 128.
    pub memory_mb: u32,
    /// The environment variables in the template. The runner adds those that Lambda sets itself.
    pub environment: BTreeMap<String, String>,
    /// `ReservedConcurrentExecutions`: the maximum number of concurrent invocations; 0 stops the
    /// function.
    pub reserved_concurrency: Option<u32>,
    /// `LoggingConfig`, which Lambda passes to the function as `AWS_LAMBDA_LOG_FORMAT` and
    /// `AWS_LAMBDA_LOG_LEVEL`.
    pub logging: Logging,
    /// The place of the logical id.
    pub at: Span,
}

impl Function {
    /// Returns the function's name in another runtime: the name of its cargo binary, or its own
    /// name.
    #[must_use]
    pub fn invoked_as(&self) -> &str {
        match &self.code {
            Code::Binary(name) => name,
            Code::Bootstrap | Code::Script(_) | Code::Elsewhere => &self.name,
        }
    }
}

/// How a function writes its logs.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Logging {
    /// The log format.
    pub format: LogFormat,
    /// `ApplicationLogLevel`: TRACE, DEBUG, INFO, WARN, ERROR or FATAL. Only the JSON format has
    /// it.
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

/// A link from a table's stream to a function, with every setting of a SAM `DynamoDB` event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSourceMapping {
    /// The mapping's logical id: that of the resource, or the names of the function and the event
    /// joined, as in SAM.
    pub logical_id: String,
    /// The logical id of the function.
    pub function: String,
    /// The version or alias of the function, if the mapping has one. On Lambda it may run other
    /// code; here it is the same process.
    pub qualifier: Option<String>,
    /// The stream that it reads.
    pub stream: StreamSource,
    /// Where reading starts if there is no checkpoint.
    pub starting_position: StartingPosition,
    /// Maximum number of records in one invocation: 1 to 10,000, both inclusive; the default is
    /// 100.
    pub batch_size: u32,
    /// How long a batch waits to become full: 0 to 300 s, both inclusive.
    pub batching_window: Duration,
    /// Maximum retries of a failing batch, 0 to 10,000; `None` (-1) retries until the records
    /// expire.
    pub retry_attempts_max: Option<u32>,
    /// Maximum age of records: 60 to 604,800 s, both inclusive; `None` (-1) is unlimited.
    pub record_age_max: Option<Duration>,
    /// Whether a failing batch is split in two.
    pub bisect_batch_on_function_error: bool,
    /// Number of concurrent batches of one shard: 1 to 10, both inclusive.
    pub parallelization_factor: u32,
    /// The length of the tumbling windows: 1 to 900 s, both inclusive.
    pub tumbling_window: Option<Duration>,
    /// `ReportBatchItemFailures`: whether the function's response names the records to retry.
    pub report_batch_item_failures: bool,
    /// The filter patterns. A record is delivered if at least one pattern matches, or if there are
    /// none.
    pub filters: Vec<FilterPattern>,
    /// The destination of discarded batches.
    pub on_failure: Option<Destination>,
    /// Whether the mapping runs.
    pub enabled: bool,
    /// The place of the event's name or the logical id.
    pub at: Span,
}

/// The stream that a mapping reads.
///
/// The ARN of a stream ends with the time when the stream was enabled. This time is unknown before
/// the table exists. `!GetAtt Table.StreamArn` is therefore a reference here and never a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamSource {
    /// The stream of the table with this logical id, whatever label the stream gets.
    StreamOf(String),
    /// A stream outside of this template, by its ARN.
    Arn(String),
}

/// Where a mapping starts to read a shard for which it has no checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartingPosition {
    /// At the oldest record.
    TrimHorizon,
    /// After the newest record that exists when the mapping is created.
    Latest,
}

/// One filter of a mapping, as the text that `mapping::FilterCriteria` compiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterPattern {
    /// The pattern.
    pub text: String,
    /// Its place in the template.
    pub at: Span,
}

/// The destination of discarded batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// An S3 bucket, by name.
    Bucket(String),
    /// An SQS queue, by name. Its messages are files on this machine.
    Queue(String),
    /// An SNS topic, by name. Its messages are files on this machine.
    Topic(String),
    /// Any other destination (Kafka), by its ARN. It is listed as not emulated.
    Arn(String),
}

/// A schedule that invokes a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The logical id of the function and the name of the event joined, as in SAM.
    pub logical_id: String,
    /// The logical id of the function.
    pub function: String,
    /// The expression, `rate(...)` or `cron(...)`, in UTC.
    pub expression: crate::schedule_expression::Schedule,
    /// The event for the function, as JSON text; `None` if it is EventBridge's own event.
    pub input: Option<String>,
    /// Maximum retries of a failing invocation: 0 to 2, both inclusive; 2 without
    /// `EventInvokeConfig`.
    pub retries: u32,
    /// Whether the schedule runs.
    pub enabled: bool,
    /// The place of the event's name in the template.
    pub at: Span,
}
