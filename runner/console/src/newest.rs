//! The newest records of a stream.
//!
//! Weir's own store returns them with one request, regardless of the size of the stream. Any other
//! stream can only be read forwards, in windows of time. Each window begins earlier than the
//! previous window, until a window has enough records. This module reads no files, and is
//! independent of mappings.

use std::collections::VecDeque;

use client::newest_records::{NewestRecords, newest_records};
use client::shards::{Place, Refusal, Start, Stream, describe};
use futures::{StreamExt, TryStreamExt, stream};
use local::explain::Found;
use mapping::Record;
use model::{Item, json};

use crate::context::Context;
use crate::error::PageError;

/// The beginnings of the windows, in seconds before the current time. The last value is the
/// retention of a stream.
const WINDOWS_S: [i64; 4] = [2, 60, 1_800, 86_400];

/// The maximum number of pages with records that are read for one window. A page has up to 1,000
/// records or 1 MB.
const PAGES_MAX: usize = 24;

/// The number of consecutive empty pages after which a shard on AWS counts as completely read. A
/// local store returns an empty page only at the end.
const EMPTY_PAGES_MAX_ON_AWS: usize = 3;

/// The maximum number of shards of a stream that are read, newest first, so that at least one page
/// of each is read.
const SHARDS_MAX: usize = PAGES_MAX;

/// The number of shards that are read at the same time.
const SHARDS_AT_ONCE: usize = 8;

/// The newest records of a table.
#[derive(Debug, Default)]
pub(crate) struct Newest {
    /// The records, newest first.
    pub(crate) records: Vec<Found>,
    /// The number of records that were read.
    pub(crate) read: usize,
    /// The time since which every record was read, in seconds since 1970; `None` if the complete
    /// stream was read, or if the time is unknown.
    pub(crate) since_s: Option<i64>,
    /// Whether reading stopped before the end of the stream, because the stream has too many
    /// records.
    pub(crate) is_cut: bool,
}

/// Reads the newest records of a table, at most `count`. If a key is given, returns only the
/// records of this item.
///
/// # Errors
/// The table has no stream, or the stream cannot be read.
pub(crate) async fn newest(
    context: &Context,
    table: &str,
    count: usize,
    key: Option<&Item>,
) -> Result<Newest, PageError> {
    if !context.is_on_aws()
        && let Ok(found) = newest_records(context.endpoint(), table, count, key).await
    {
        return Ok(of_store(found, table, key.is_some()));
    }
    // The request that only Weir's own store supports failed: the store is a different one, the
    // table has no stream, or the store does not answer. The code below determines the cause.
    let client = context.streams();
    let arns = client::shards::arns(client, Some(table));
    let now = client::endpoint::store_seconds(context.endpoint(), context.dynamodb());
    let (arns, now) = tokio::join!(arns, now);
    let mut arns = arns?;
    // The label in an ARN is a time, so the greatest ARN belongs to the newest stream.
    arns.sort();
    let Some(arn) = arns.pop() else {
        return Err(PageError::bad_input(
            "table",
            format!("`{table}` has no stream"),
            "a table with a `StreamSpecification`",
        ));
    };
    let stream = describe(client.clone(), &arn).await?;
    let empty_max = if context.is_on_aws() { EMPTY_PAGES_MAX_ON_AWS } else { 1 };
    let mut newest = Newest::default();
    for before in WINDOWS_S {
        let window = Window { since_s: now.saturating_sub(before), count, empty_max, key };
        let (wider, is_exhausted) = window.read(&stream).await?;
        // A window that was not completely read may lack the newest records, which the previous,
        // shorter window has.
        if is_exhausted && !newest.records.is_empty() {
            newest.is_cut = true;
            break;
        }
        newest = wider;
        if is_exhausted || newest.records.len() >= count {
            break;
        }
    }
    Ok(newest)
}

/// Converts the answer of Weir's own store.
fn of_store(found: NewestRecords, table: &str, is_of_item: bool) -> Newest {
    let found_of = |(shard, record)| Found { table: table.to_owned(), shard, record };
    let mut records: Vec<Found> = found.records.into_iter().map(found_of).collect();
    sort(&mut records);
    let oldest = records.last().and_then(|found| found.record.creation_s);
    let since_s = oldest.filter(|_| !found.is_complete && !is_of_item);
    Newest { records, read: found.read, since_s, is_cut: false }
}

/// A window of time.
struct Window<'w> {
    /// The beginning of the window, in seconds since 1970.
    since_s: i64,
    /// The maximum number of records to return.
    count: usize,
    /// The number of consecutive empty pages after which a shard counts as completely read.
    empty_max: usize,
    /// The key of the item whose records are returned; `None` for the records of all items.
    key: Option<&'w Item>,
}

/// The result of reading a shard: its id, the records to return, the number of records read, and
/// whether reading stopped before its end.
type OfShard<'s> = (&'s str, VecDeque<Record>, usize, bool);

impl Window<'_> {
    /// Reads the records of a stream, and keeps the newest records. Also returns whether reading
    /// stopped before the end.
    async fn read(&self, stream: &Stream) -> Result<(Newest, bool), PageError> {
        // Parents are listed before their children, so the last shards are the newest.
        let shards = stream.shards.iter().rev().filter_map(|shard| shard.shard_id.as_deref());
        let shards: Vec<&str> = shards.take(SHARDS_MAX).collect();
        let pages = PAGES_MAX / shards.len().max(1);
        let reads: Vec<_> =
            shards.into_iter().map(|shard| self.read_shard(stream, shard, pages)).collect();
        let found: Vec<OfShard<'_>> =
            stream::iter(reads).buffered(SHARDS_AT_ONCE).try_collect().await?;
        let is_exhausted = found.iter().any(|(.., is_cut)| *is_cut);
        let mut newest = Newest {
            read: found.iter().map(|(_, _, read, _)| read).sum(),
            since_s: Some(self.since_s),
            is_cut: is_exhausted || stream.shards.len() > SHARDS_MAX,
            records: Vec::new(),
        };
        for (shard, records, ..) in found {
            let found =
                |record| Found { table: stream.table.clone(), shard: shard.to_owned(), record };
            newest.records.extend(records.into_iter().map(found));
        }
        sort(&mut newest.records);
        newest.records.truncate(self.count);
        Ok((newest, is_exhausted))
    }

    /// Reads the records of a shard, at most the given number of pages.
    async fn read_shard<'s>(
        &self,
        stream: &Stream,
        shard: &'s str,
        pages: usize,
    ) -> Result<OfShard<'s>, PageError> {
        let mut place = Place::new(Start::Since(self.since_s));
        let (mut kept, mut read, mut empty, mut left) =
            (VecDeque::with_capacity(self.count), 0, 0, pages);
        while empty < self.empty_max && left > 0 {
            let page = match stream.next_page(shard, &mut place).await {
                Ok(Some(page)) => page,
                // The stream may trim a closed shard while it is read.
                Ok(None) | Err(Refusal::Trimmed) => break,
                Err(refusal) => return Err(PageError::Store(format!("{shard}: {refusal}"))),
            };
            read += page.len();
            (empty, left) = if page.is_empty() { (empty + 1, left) } else { (0, left - 1) };
            let is_wanted = |record: &Record| self.key.is_none_or(|key| is_of(record.event(), key));
            for record in page.into_iter().filter(is_wanted) {
                if kept.len() == self.count {
                    kept.pop_front();
                }
                kept.push_back(record);
            }
        }
        Ok((shard, kept, read, left == 0))
    }
}

/// Returns whether a record belongs to the item with the key. Numbers are compared by value.
fn is_of(event: &serde_json::Value, key: &Item) -> bool {
    let keys = event.pointer("/dynamodb/Keys").map(serde_json::Value::to_string);
    keys.and_then(|keys| json::item_from_str(&keys).ok()).is_some_and(|keys| keys == *key)
}

/// Sorts records, newest first.
pub(crate) fn sort(records: &mut [Found]) {
    records.sort_by(|one, other| {
        let key = |found: &Found| (found.record.creation_s, found.record.sequence.clone());
        key(other).cmp(&key(one))
    });
}
