//! Finding and reading the shards of a table's stream, for commands.
//!
//! It retries nothing: a person is there to do that. It names what a stream refuses, because a
//! shard may be trimmed and an iterator may expire between two requests.

use aws_sdk_dynamodbstreams::Client;
use aws_sdk_dynamodbstreams::error::{DisplayErrorContext, ProvideErrorMetadata};
use aws_sdk_dynamodbstreams::types::{Shard, ShardIteratorType, StreamStatus};

use crate::endpoint;
use crate::mapping::Record;
use crate::poller;

/// Pages of a listing that are read at most: 100 entries each.
const PAGES_MAX: usize = 100;

/// A stream.
pub(crate) struct Stream {
    pub(crate) client: Client,
    pub(crate) arn: String,
    pub(crate) table: String,
    pub(crate) view: String,
    pub(crate) enabled: bool,
    pub(crate) shards: Vec<Shard>,
}

/// Where a reading of a shard begins.
pub(crate) enum Start<'a> {
    TrimHorizon,
    Latest,
    At(&'a str),
    After(&'a str),
}

/// Why a shard was not read.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The shard, or the records from the place on, are trimmed: older than 24 hours.
    Trimmed,
    /// The iterator is older than 15 minutes: another one from the same place does.
    Expired,
    /// Anything else, in words.
    Other(String),
}

impl Refusal {
    fn new<E: std::error::Error + ProvideErrorMetadata>(what: &str, error: &E) -> Self {
        match error.code() {
            Some("ResourceNotFoundException" | "TrimmedDataAccessException") => Self::Trimmed,
            Some("ExpiredIteratorException") => Self::Expired,
            _ => Self::Other(problem(what, error)),
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Trimmed => f.write_str("the records are trimmed: they are older than 24 hours"),
            Self::Expired => f.write_str("the iterator is older than 15 minutes"),
            Self::Other(words) => f.write_str(words),
        }
    }
}

fn problem<E: std::error::Error>(what: &str, error: &E) -> String {
    format!("{what}: {}", DisplayErrorContext(error))
}

/// The ARNs of all streams, or of one table's.
pub(crate) async fn arns(client: &Client, table: Option<&str>) -> Result<Vec<String>, String> {
    let (mut arns, mut start) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let request = client.list_streams().set_table_name(table.map(str::to_owned));
        let page = request.set_exclusive_start_stream_arn(start).send().await;
        let page = page.map_err(|error| problem("ListStreams", &error))?;
        let streams = page.streams.unwrap_or_default();
        arns.extend(streams.into_iter().filter_map(|stream| stream.stream_arn));
        start = page.last_evaluated_stream_arn;
        if start.is_none() {
            break;
        }
    }
    Ok(arns)
}

/// The newest stream of a table, described.
pub(crate) async fn stream_of(endpoint: &str, table: &str) -> Result<Stream, String> {
    let client = endpoint::streams_client(endpoint);
    let mut arns = arns(&client, Some(table)).await?;
    // A label is a time, so the greatest ARN is the newest stream.
    arns.sort();
    let arn = arns.pop().ok_or_else(|| {
        format!("the table `{table}` has no stream; `weir streams ls` shows those that there are")
    })?;
    describe(client, &arn).await
}

/// A stream with all its shards.
pub(crate) async fn describe(client: Client, arn: &str) -> Result<Stream, String> {
    let mut stream = Stream {
        client: client.clone(),
        arn: arn.to_owned(),
        table: String::new(),
        view: String::new(),
        enabled: true,
        shards: Vec::new(),
    };
    let mut start = None;
    for _ in 0..PAGES_MAX {
        let request = client.describe_stream().stream_arn(arn);
        let page = request.set_exclusive_start_shard_id(start).send().await;
        let page = page.map_err(|error| problem("DescribeStream", &error))?;
        let described =
            page.stream_description.ok_or("DescribeStream answered without a description")?;
        stream.table = described.table_name.unwrap_or_default();
        stream.view =
            described.stream_view_type.map(|view| view.as_str().to_owned()).unwrap_or_default();
        stream.enabled = described.stream_status == Some(StreamStatus::Enabled);
        stream.shards.extend(described.shards.unwrap_or_default());
        start = described.last_evaluated_shard_id;
        if start.is_none() {
            break;
        }
    }
    Ok(stream)
}

impl Stream {
    /// An iterator; `None` when the shard has ended.
    pub(crate) async fn iterator(
        &self,
        shard: &str,
        start: Start<'_>,
    ) -> Result<Option<String>, Refusal> {
        let (kind, sequence) = match start {
            Start::TrimHorizon => (ShardIteratorType::TrimHorizon, None),
            Start::Latest => (ShardIteratorType::Latest, None),
            Start::At(sequence) => (ShardIteratorType::AtSequenceNumber, Some(sequence.to_owned())),
            Start::After(sequence) => {
                (ShardIteratorType::AfterSequenceNumber, Some(sequence.to_owned()))
            }
        };
        let request = self.client.get_shard_iterator().stream_arn(&self.arn).shard_id(shard);
        let answer = request.shard_iterator_type(kind).set_sequence_number(sequence).send().await;
        answer
            .map(|answer| answer.shard_iterator)
            .map_err(|error| Refusal::new("GetShardIterator", &error))
    }

    /// A page, as a function would get its records, and the next iterator.
    pub(crate) async fn read(
        &self,
        iterator: String,
    ) -> Result<(Vec<Record>, Option<String>), Refusal> {
        let answer = self.client.get_records().shard_iterator(iterator).send().await;
        let answer = answer.map_err(|error| Refusal::new("GetRecords", &error))?;
        let region = self.arn.split(':').nth(3).unwrap_or_default();
        let records = answer.records.unwrap_or_default().into_iter();
        let records: Result<Vec<Record>, _> =
            records.map(|record| poller::record_of(record, &self.arn, region)).collect();
        let records = records.map_err(|error| Refusal::Other(error.to_string()))?;
        Ok((records, answer.next_shard_iterator))
    }

    /// One record, and its shard.
    pub(crate) async fn find(&self, sequence: &str) -> Option<(String, Record)> {
        for shard in self.shards.iter().filter_map(|shard| shard.shard_id.as_deref()) {
            // A shard that does not reach to the record refuses it; the next one is asked.
            let Ok(Some(iterator)) = self.iterator(shard, Start::At(sequence)).await else {
                continue;
            };
            let Ok((records, _)) = self.read(iterator).await else { continue };
            let found = records.into_iter().find(|record| record.sequence.as_str() == sequence);
            if let Some(record) = found {
                return Some((shard.to_owned(), record));
            }
        }
        None
    }
}
