//! Lists and reads the shards of one stream through the Streams API.
//!
//! A call is one attempt, with the SDK's few retries. The mapping decides about pauses and further
//! attempts.

use std::time::Duration;

use aws_sdk_dynamodbstreams::Client;
use aws_sdk_dynamodbstreams::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodbstreams::types::{Shard, ShardIteratorType, StreamStatus};

use client::sdk_error::error_text;
use client::stream_page::{Page, PageFailure, read_page};
use mapping::{ReadFailure, ReadFrom, ShardDescription, ShardId};

/// The maximum number of pages of `DescribeStream`, each with at most 100 shards. A stream with more
/// than 10,000 shards is rejected. With a rotation every four hours, a partition has about 7 shards per
/// day.
const DESCRIBE_PAGES_MAX: usize = 100;

/// The stream that a mapping reads, and its client.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    pub(super) client: Client,
    pub(super) arn: String,
    /// The timeout of one call.
    pub(super) limit: Duration,
}

/// The list of all shards of the stream.
pub(super) struct Listing {
    pub(super) enabled: bool,
    pub(super) shards: Vec<ShardDescription>,
}

/// The reason why the stream could not be listed.
pub(super) enum DescribeFailure {
    /// The stream currently does not exist in the store.
    Missing(String),
    /// The mapping can never use this stream, so it must not retry.
    Beyond(String),
    /// A temporary error, after which the mapping retries.
    Unavailable(String),
}

/// The position at which a read begins.
pub(super) enum ReadStart {
    Iterator(String),
    From(ReadFrom),
}

impl Stream {
    /// Lists all shards, page by page.
    pub(super) async fn describe(&self) -> Result<Listing, DescribeFailure> {
        let mut listing = Listing { enabled: true, shards: Vec::new() };
        let mut last_shard = None;
        for _ in 0..DESCRIBE_PAGES_MAX {
            let request = self.client.describe_stream().stream_arn(&self.arn);
            let request = request.set_exclusive_start_shard_id(last_shard);
            let unavailable = DescribeFailure::Unavailable;
            let answer = self.within("DescribeStream", request.send(), unavailable).await?;
            let answer = answer.map_err(|error| {
                let reason = describe_error("DescribeStream", &error);
                let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
                match code {
                    Some("ResourceNotFoundException") => DescribeFailure::Missing(reason),
                    _ => DescribeFailure::Unavailable(reason),
                }
            })?;
            let Some(description) = answer.stream_description else {
                let reason = "DescribeStream returned no stream description".to_owned();
                return Err(DescribeFailure::Unavailable(reason));
            };
            listing.enabled = !matches!(
                description.stream_status,
                Some(StreamStatus::Disabled | StreamStatus::Disabling)
            );
            let shards = description.shards.unwrap_or_default();
            listing.shards.extend(shards.into_iter().filter_map(shard_description));
            last_shard = description.last_evaluated_shard_id;
            if last_shard.is_none() {
                return Ok(listing);
            }
        }
        let shards = listing.shards.len();
        Err(DescribeFailure::Beyond(format!(
            "the stream has more than {shards} shards, the maximum that this poller supports"
        )))
    }

    /// Reads one page of a shard.
    pub(super) async fn read(
        &self,
        shard: &ShardId,
        start: ReadStart,
    ) -> Result<Page, ReadFailure> {
        let iterator = match start {
            ReadStart::Iterator(iterator) => Some(iterator),
            ReadStart::From(from) => self.iterator(shard, from).await?,
        };
        let Some(iterator) = iterator else {
            // The shard is closed and has no records at or after the position.
            return Ok(Page { records: Vec::new(), next_iterator: None });
        };
        let reading = read_page(&self.client, &self.arn, iterator, None);
        let page = self.within("GetRecords", reading, unavailable).await?;
        page.map_err(|failure| match failure {
            PageFailure::Request(error) => read_failure("GetRecords", &error),
            unreadable => ReadFailure::Unavailable { reason: unreadable.to_string() },
        })
    }

    /// Returns the result of a call, or the error `unavailable` after the timeout. Without a timeout, a lost
    /// response would block the shard.
    async fn within<T, E>(
        &self,
        call: &str,
        doing: impl Future<Output = T>,
        unavailable: impl FnOnce(String) -> E,
    ) -> Result<T, E> {
        tokio::time::timeout(self.limit, doing).await.map_err(|_| {
            unavailable(format!("{call}: no response within {} ms", self.limit.as_millis()))
        })
    }

    async fn iterator(
        &self,
        shard: &ShardId,
        from: ReadFrom,
    ) -> Result<Option<String>, ReadFailure> {
        let (iterator_type, sequence) = match from {
            ReadFrom::After(sequence) => {
                (ShardIteratorType::AfterSequenceNumber, Some(sequence.as_str().to_owned()))
            }
            ReadFrom::Latest => (ShardIteratorType::Latest, None),
            // `Iterator` continues after a page whose iterator the caller keeps. If the iterator is
            // lost, the read begins at the oldest record, because the mapping skips records that it
            // has already read.
            ReadFrom::TrimHorizon | ReadFrom::Iterator => (ShardIteratorType::TrimHorizon, None),
        };
        let request = self.client.get_shard_iterator().stream_arn(&self.arn);
        let request = request.shard_id(shard.as_str()).shard_iterator_type(iterator_type);
        let request = request.set_sequence_number(sequence);
        let answer = self.within("GetShardIterator", request.send(), unavailable).await?;
        let answer = answer.map_err(|error| read_failure("GetShardIterator", &error))?;
        Ok(answer.shard_iterator)
    }
}

fn unavailable(reason: String) -> ReadFailure {
    ReadFailure::Unavailable { reason }
}

fn shard_description(shard: Shard) -> Option<ShardDescription> {
    let range = shard.sequence_number_range;
    Some(ShardDescription {
        id: ShardId::new(&shard.shard_id?),
        parent: shard.parent_shard_id.as_deref().map(ShardId::new),
        closed: range.is_some_and(|range| range.ending_sequence_number.is_some()),
    })
}

fn read_failure<E, R>(call: &str, error: &SdkError<E, R>) -> ReadFailure
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
    R: std::fmt::Debug + 'static,
{
    let reason = describe_error(call, error);
    match error.as_service_error().and_then(ProvideErrorMetadata::code) {
        Some("ExpiredIteratorException") => ReadFailure::IteratorExpired,
        Some("TrimmedDataAccessException") => ReadFailure::Trimmed { reason },
        Some("ResourceNotFoundException") => ReadFailure::ShardGone { reason },
        _ => ReadFailure::Unavailable { reason },
    }
}

fn describe_error<E, R>(call: &str, error: &SdkError<E, R>) -> String
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
    R: std::fmt::Debug + 'static,
{
    format!("{call}: {}", error_text(error))
}
