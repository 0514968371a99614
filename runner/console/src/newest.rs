//! The newest records of a stream, read backwards in windows of time.
//!
//! A stream can only be read forwards, so each window begins earlier than the one before, until it has enough
//! records. It reads no file and knows no mapping.

use std::collections::VecDeque;

use client::shards::{Place, Refusal, Start, Stream, describe};
use local::explain::Found;
use mapping::Record;

use crate::context::Context;
use crate::error::PageError;

/// The beginnings of the windows, in seconds before now. The last one is the retention of a stream.
const WINDOWS_S: [i64; 4] = [2, 30, 600, 86_400];

/// The maximum number of pages of 1,000 records or 1 MB that one page of the console reads.
const PAGES_MAX: usize = 24;

/// The number of consecutive empty pages after which a shard counts as read to its end.
const EMPTY_PAGES_MAX: usize = 2;

/// The maximum number of shards of a stream that are read, newest first.
const SHARDS_MAX: usize = 32;

/// The newest records of a table.
#[derive(Debug)]
pub(crate) struct Newest {
    /// The records, newest first.
    pub(crate) records: Vec<Found>,
    /// The number of records that were read.
    pub(crate) read: usize,
    /// The beginning of the last window, in seconds since 1970.
    pub(crate) since_s: i64,
    /// Whether the reading stopped before the end of the stream, because it has too many records.
    pub(crate) is_cut: bool,
}

/// Reads the newest records of a table that a caller wants, at most `count`.
///
/// # Errors
/// The table has no stream, or it cannot be read.
pub(crate) async fn newest(
    context: &Context,
    table: &str,
    count: usize,
    is_wanted: impl Fn(&Record) -> bool,
) -> Result<Newest, PageError> {
    let client = context.streams();
    let mut arns = client::shards::arns(client, Some(table)).await.map_err(PageError::Store)?;
    // The label in an ARN is a time, so the greatest ARN belongs to the newest stream.
    arns.sort();
    let Some(arn) = arns.pop() else {
        return Err(PageError::bad_input(
            "table",
            format!("`{table}` has no stream"),
            "a table with a `StreamSpecification`",
        ));
    };
    let stream = describe(client.clone(), &arn).await.map_err(PageError::Store)?;
    let now = client::endpoint::store_seconds(context.endpoint(), context.dynamodb()).await;
    let mut newest = Newest { records: Vec::new(), read: 0, since_s: now, is_cut: false };
    for before in WINDOWS_S {
        newest = window(&stream, now.saturating_sub(before), count, &is_wanted).await?;
        if newest.records.len() >= count || newest.is_cut {
            break;
        }
    }
    Ok(newest)
}

/// Reads the records of a stream since a second, and keeps the newest ones.
async fn window(
    stream: &Stream,
    since_s: i64,
    count: usize,
    is_wanted: impl Fn(&Record) -> bool,
) -> Result<Newest, PageError> {
    let (mut records, mut read, mut left) = (Vec::new(), 0, PAGES_MAX);
    let mut is_cut = stream.shards.len() > SHARDS_MAX;
    // Shards are listed parents first, so the last ones are the newest.
    let shards = stream.shards.iter().rev().filter_map(|shard| shard.shard_id.as_deref());
    for shard in shards.take(SHARDS_MAX) {
        let mut place = Place::new(Start::Since(since_s));
        let (mut of_shard, mut empty) = (VecDeque::with_capacity(count), 0);
        while empty < EMPTY_PAGES_MAX {
            if left == 0 {
                is_cut = true;
                break;
            }
            left -= 1;
            let page = match stream.next_page(shard, &mut place).await {
                Ok(Some(page)) => page,
                // An older shard may be trimmed while it is read.
                Ok(None) | Err(Refusal::Trimmed) => break,
                Err(refusal) => return Err(PageError::Store(format!("{shard}: {refusal}"))),
            };
            read += page.len();
            empty = if page.is_empty() { empty + 1 } else { 0 };
            for record in page.into_iter().filter(&is_wanted) {
                if of_shard.len() == count {
                    of_shard.pop_front();
                }
                of_shard.push_back(record);
            }
        }
        let found = |record| Found { table: stream.table.clone(), shard: shard.to_owned(), record };
        records.extend(of_shard.into_iter().map(found));
    }
    sort(&mut records);
    records.truncate(count);
    Ok(Newest { records, read, since_s, is_cut })
}

/// Sorts records: newest first.
pub(crate) fn sort(records: &mut [Found]) {
    records.sort_by(|one, other| {
        let key = |found: &Found| (found.record.creation_s, found.record.sequence.clone());
        key(other).cmp(&key(one))
    });
}
