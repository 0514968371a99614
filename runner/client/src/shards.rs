//! Finds and reads the shards of a table's stream, for commands.
//!
//! This module does not retry failed requests, because the operator can rerun the command.
//! Iterators are an exception, because the clock of a local store may be advanced between two
//! requests. An iterator that is expired or rejected as trimmed is replaced by a new iterator from
//! the same position. If the new iterator is rejected too, the shard is trimmed.

use std::future::ready;
use std::pin::pin;

use aws_sdk_dynamodbstreams::Client;
use aws_sdk_dynamodbstreams::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodbstreams::operation::list_streams::ListStreamsError;
use aws_sdk_dynamodbstreams::primitives::DateTime;
use aws_sdk_dynamodbstreams::types::{Shard, ShardIteratorType, StreamStatus};
use futures::{StreamExt, stream};

use crate::endpoint;
use crate::failure::{Context, Failure, Result, fatal};
use crate::sdk_error::is_not_found;
use crate::stream_page::{PageFailure, read_page};
use mapping::{Record, SequenceNumber};

/// Maximum number of pages of a listing, 100 entries each.
const PAGES_MAX: usize = 100;

/// A stream.
pub struct Stream {
    /// The client that reads the stream.
    pub client: Client,
    /// The ARN of the stream.
    pub arn: String,
    /// The name of the stream's table.
    pub table: String,
    /// The view type of the stream, such as `NEW_IMAGE`.
    pub view: String,
    /// Whether new records are written to the stream.
    pub enabled: bool,
    /// Time of creation in seconds since 1970; `None` if the service does not return it.
    pub made_at: Option<i64>,
    /// The shards of the stream, parents before children.
    pub shards: Vec<Shard>,
}

/// Maximum number of pages to find one record in a shard. If the shard has the record, it is in the
/// first page that is not empty.
const FIND_PAGES_MAX: usize = 5;

/// The number of shards that are searched for a record at the same time.
const FOUND_AT_ONCE: usize = 8;

/// Maximum number of consecutive expired iterators. An iterator expires only if the clock advances by 15
/// minutes between two requests.
const EXPIRED_MAX: usize = 8;

/// The position at which a read of a shard begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the oldest record.
    TrimHorizon,
    /// With the next record that is written. The value is the store's current second.
    Latest(i64),
    /// At the record with this sequence number.
    At(String),
    /// At the first record of this second (since 1970) or later.
    Since(i64),
}

/// The position of a reader in a shard.
#[derive(Debug)]
pub struct Place {
    start: Start,
    /// The iterator of the next page; `None` if a new iterator must be requested.
    iterator: Option<String>,
    /// The last record that was read.
    last: Option<String>,
    /// Whether the reader has used an iterator before.
    has_begun: bool,
    /// Whether the reader restarted at the oldest record, because its first iterator was lost.
    is_from_horizon: bool,
    is_over: bool,
    /// The maximum number of records of a page; `None` for the service's own limit.
    limit: Option<i32>,
}

impl Place {
    /// Returns the position of a reader that has not read anything yet.
    #[must_use]
    pub fn new(start: Start) -> Self {
        Self {
            start,
            iterator: None,
            last: None,
            has_begun: false,
            is_from_horizon: false,
            is_over: false,
            limit: None,
        }
    }

    /// Returns the same position, but with at most `limit` records per page.
    #[must_use]
    pub fn with_limit(self, limit: i32) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// Returns the last record that was read.
    pub fn last(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// Returns true if the shard has ended and was read completely.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the kind of iterator that continues at this position, and its sequence number.
    fn iterator_kind(&self) -> (ShardIteratorType, Option<String>) {
        match (&self.last, &self.start) {
            (Some(last), _) => (ShardIteratorType::AfterSequenceNumber, Some(last.clone())),
            (None, Start::At(first)) => (ShardIteratorType::AtSequenceNumber, Some(first.clone())),
            (None, Start::Latest(_)) if !self.has_begun => (ShardIteratorType::Latest, None),
            (None, Start::Since(_)) => (ShardIteratorType::AtTimestamp, None),
            // A second `LATEST` iterator would skip the records written since the first iterator.
            (None, _) => (ShardIteratorType::TrimHorizon, None),
        }
    }

    /// Returns the time for an `AT_TIMESTAMP` iterator.
    fn timestamp(&self, kind: &ShardIteratorType) -> Option<DateTime> {
        match self.start {
            Start::Since(second) if *kind == ShardIteratorType::AtTimestamp => {
                Some(DateTime::from_secs(second))
            }
            _ => None,
        }
    }

    /// Returns true if a record belongs to this read. A record after the last record that was read
    /// always belongs to the read, because some stores round times down.
    fn belongs_to_read(&self, record: &Record) -> bool {
        match self.start {
            Start::Latest(since) if self.is_from_horizon => {
                record.creation_s.is_none_or(|second| second >= since)
            }
            _ => true,
        }
    }
}

/// The reason why a shard was not read.
#[derive(Debug)]
pub enum Refusal {
    /// The shard, or its records from the position on, were trimmed because they are older than 24
    /// hours.
    Trimmed,
    /// Consecutive iterators expired: each was older than 15 minutes.
    Expired,
    /// Any other error, as a message.
    Other(String),
}

impl Refusal {
    fn new<E>(what: &str, error: &SdkError<E>) -> Self
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        match error.code() {
            Some("ResourceNotFoundException" | "TrimmedDataAccessException") => Self::Trimmed,
            Some("ExpiredIteratorException") => Self::Expired,
            _ => Self::Other(Failure::from(error).about(what).to_string()),
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Trimmed => f.write_str("the records are trimmed: they are older than 24 hours"),
            Self::Expired => f.write_str(
                "the shard's iterators expire immediately, because the store's clock is being advanced; run the command again after the advance",
            ),
            Self::Other(words) => f.write_str(words),
        }
    }
}

/// Returns the ARNs of the streams of `table`; of all tables if `table` is `None`.
pub async fn arns(client: &Client, table: Option<&str>) -> Result<Vec<String>> {
    match (list(client, table).await, table) {
        (Ok(arns), _) => Ok(arns),
        (Err(error), Some(table)) if is_not_found(&error) => {
            Err(fatal!("unknown table `{table}`{}", known_tables(client).await))
        }
        (Err(error), _) => Err(Failure::from(&*error).about("ListStreams")),
    }
}

/// Lists the tables with a stream, for the end of a message.
async fn known_tables(client: &Client) -> String {
    let arns = list(client, None).await.unwrap_or_default();
    let names = arns.iter().filter_map(|arn| arn.split_once(":table/")?.1.split('/').next());
    let names: std::collections::BTreeSet<&str> = names.collect();
    match names.is_empty() {
        true => "; no table has a stream".to_owned(),
        false => {
            format!("; tables with a stream: {}", names.into_iter().collect::<Vec<_>>().join(", "))
        }
    }
}

async fn list(
    client: &Client,
    table: Option<&str>,
) -> Result<Vec<String>, Box<SdkError<ListStreamsError>>> {
    let (mut arns, mut start) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let request = client.list_streams().set_table_name(table.map(str::to_owned));
        let page = request.set_exclusive_start_stream_arn(start).send().await?;
        let streams = page.streams.unwrap_or_default();
        arns.extend(streams.into_iter().filter_map(|stream| stream.stream_arn));
        start = page.last_evaluated_stream_arn;
        if start.is_none() {
            break;
        }
    }
    Ok(arns)
}

/// Returns the newest stream of a table.
pub async fn stream_of(endpoint: &str, table: &str) -> Result<Stream> {
    let client = endpoint::streams_client(endpoint);
    let mut arns = arns(&client, Some(table)).await?;
    // The label in an ARN is a time, so the greatest ARN belongs to the newest stream.
    arns.sort();
    let Some(arn) = arns.pop() else {
        return Err(fatal!("the table `{table}` has no stream{}", known_tables(&client).await));
    };
    describe(client, &arn).await
}

/// Describes a stream with all its shards.
pub async fn describe(client: Client, arn: &str) -> Result<Stream> {
    let mut stream = Stream {
        client: client.clone(),
        arn: arn.to_owned(),
        table: String::new(),
        view: String::new(),
        enabled: true,
        made_at: None,
        shards: Vec::new(),
    };
    let mut start = None;
    for _ in 0..PAGES_MAX {
        let request = client.describe_stream().stream_arn(arn);
        let page = request.set_exclusive_start_shard_id(start).send().await;
        let page = page.context(|| "DescribeStream")?;
        let described =
            page.stream_description.ok_or("DescribeStream returned no stream description")?;
        stream.table = described.table_name.unwrap_or_default();
        stream.view =
            described.stream_view_type.map(|view| view.as_str().to_owned()).unwrap_or_default();
        stream.enabled = described.stream_status == Some(StreamStatus::Enabled);
        stream.made_at = described.creation_request_date_time.map(|time| time.secs());
        stream.shards.extend(described.shards.unwrap_or_default());
        start = described.last_evaluated_shard_id;
        if start.is_none() {
            break;
        }
    }
    Ok(stream)
}

impl Stream {
    /// Returns the stream with this ARN without a description: its shards and its view are unknown.
    #[must_use]
    pub fn of_arn(client: Client, arn: &str) -> Self {
        let table = arn.split_once(":table/").and_then(|(_, rest)| rest.split('/').next());
        Self {
            client,
            arn: arn.to_owned(),
            table: table.unwrap_or_default().to_owned(),
            view: String::new(),
            enabled: true,
            made_at: None,
            shards: Vec::new(),
        }
    }

    /// Returns the next page of a shard, with the records in the form in which a function receives them;
    /// `None` at the end of the shard. A page may be empty although the next pages have records.
    pub async fn next_page(
        &self,
        shard: &str,
        place: &mut Place,
    ) -> Result<Option<Vec<Record>>, Refusal> {
        for _ in 0..EXPIRED_MAX {
            if place.is_over {
                return Ok(None);
            }
            let held = place.iterator.take();
            let was_held = held.is_some();
            let iterator = match held {
                Some(iterator) => Some(iterator),
                None => {
                    place.is_from_horizon |= place.has_begun && place.last.is_none();
                    self.iterator(shard, place).await?
                }
            };
            place.has_begun = true;
            let Some(iterator) = iterator else {
                place.is_over = true;
                return Ok(None);
            };
            let (mut records, next) = match self.read(iterator, place.limit).await {
                Err(Refusal::Expired) => continue,
                // Some stores reject an old iterator of a shard that is complete. A new iterator
                // from the same position shows whether records are really trimmed.
                Err(Refusal::Trimmed) if was_held => continue,
                read => read?,
            };
            if let Some(record) = records.last() {
                place.last = Some(record.sequence.as_str().to_owned());
            }
            place.is_over = next.is_none();
            place.iterator = next;
            records.retain(|record| place.belongs_to_read(record));
            return Ok(Some(records));
        }
        Err(Refusal::Expired)
    }

    /// Returns an iterator; `None` when the shard has ended.
    async fn iterator(&self, shard: &str, place: &Place) -> Result<Option<String>, Refusal> {
        let (kind, sequence) = place.iterator_kind();
        let request = self.client.get_shard_iterator().stream_arn(&self.arn).shard_id(shard);
        let request = request.set_timestamp(place.timestamp(&kind)).set_sequence_number(sequence);
        let answer = request.shard_iterator_type(kind).send().await;
        answer
            .map(|answer| answer.shard_iterator)
            .map_err(|error| Refusal::new("GetShardIterator", &error))
    }

    /// Reads a page; returns it with the next iterator.
    async fn read(
        &self,
        iterator: String,
        limit: Option<i32>,
    ) -> Result<(Vec<Record>, Option<String>), Refusal> {
        let page = read_page(&self.client, &self.arn, iterator, limit).await;
        let page = page.map_err(|failure| match failure {
            PageFailure::Request(error) => Refusal::new("GetRecords", &*error),
            unreadable => Refusal::Other(unreadable.to_string()),
        })?;
        Ok((page.records, page.next_iterator))
    }

    /// Finds a record by its sequence number, and returns it with its shard. Reads only the shards
    /// whose range of sequence numbers includes the record.
    pub async fn find(&self, sequence: &str) -> Option<(String, Record)> {
        let wanted = SequenceNumber::parse(sequence).ok()?;
        let shards = self.shards.iter().filter(|shard| may_have(shard, &wanted));
        let shards = shards.filter_map(|shard| shard.shard_id.as_deref());
        let reads: Vec<_> = shards.map(|shard| self.find_in(shard, sequence)).collect();
        let found = stream::iter(reads).buffer_unordered(FOUND_AT_ONCE);
        pin!(found.filter_map(ready)).next().await
    }

    /// Finds a record in a shard.
    pub async fn find_in(&self, shard: &str, sequence: &str) -> Option<(String, Record)> {
        // A shard without the record rejects its sequence number, or begins with a later record.
        let mut place = Place::new(Start::At(sequence.to_owned())).with_limit(1);
        for _ in 0..FIND_PAGES_MAX {
            let records = self.next_page(shard, &mut place).await.ok().flatten()?;
            // A page may be empty although the next pages have records.
            let Some(first) = records.into_iter().next() else { continue };
            return (first.sequence.as_str() == sequence).then(|| (shard.to_owned(), first));
        }
        None
    }
}

/// Returns whether the range of a shard's sequence numbers includes a record. An open shard has no
/// last number.
fn may_have(shard: &Shard, wanted: &SequenceNumber) -> bool {
    let Some(range) = &shard.sequence_number_range else { return true };
    let parse = |text: &Option<String>| SequenceNumber::parse(text.as_deref()?).ok();
    parse(&range.starting_sequence_number).is_none_or(|first| first <= *wanted)
        && parse(&range.ending_sequence_number).is_none_or(|last| *wanted <= last)
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodbstreams::types::SequenceNumberRange;

    use super::*;

    #[test]
    fn only_shards_that_may_have_a_record_are_read() {
        for (first, last, expected) in [
            (None, None, true),
            (Some("99"), None, true),
            (Some("100"), Some("100"), true),
            (Some("101"), None, false),
            (Some("9"), Some("99"), false),
        ] {
            let range = SequenceNumberRange::builder();
            let range = range.set_starting_sequence_number(first.map(str::to_owned));
            let range = range.set_ending_sequence_number(last.map(str::to_owned)).build();
            let shard = Shard::builder().sequence_number_range(range).build();
            let wanted = SequenceNumber::parse("100").unwrap();
            assert_eq!(may_have(&shard, &wanted), expected, "{first:?} {last:?}");
        }
        assert!(may_have(&Shard::builder().build(), &SequenceNumber::parse("1").unwrap()));
    }
}
