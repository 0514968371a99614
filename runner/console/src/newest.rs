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
const WINDOWS_S: [i64; 4] = [2, 60, 1_800, 86_400];

/// The maximum number of pages with records, of 1,000 records or 1 MB, that one page of the console reads.
const PAGES_MAX: usize = 24;

/// The number of consecutive empty pages after which a shard on AWS counts as read to its end. A local store
/// returns an empty page only at the end.
const EMPTY_PAGES_MAX_ON_AWS: usize = 3;

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
    let empty_max = if context.is_on_aws() { EMPTY_PAGES_MAX_ON_AWS } else { 1 };
    let mut newest = Newest { records: Vec::new(), read: 0, since_s: now, is_cut: false };
    for before in WINDOWS_S {
        let window = Window { since_s: now.saturating_sub(before), count, empty_max };
        let (wider, is_exhausted) = window.read(&stream, &is_wanted).await?;
        // A window that was not read to its end may lack the newest records, which the one before has.
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

/// A window of time.
struct Window {
    /// Its beginning, in seconds since 1970.
    since_s: i64,
    /// The maximum number of records to keep.
    count: usize,
    /// The number of consecutive empty pages after which a shard counts as read to its end.
    empty_max: usize,
}

impl Window {
    /// Reads the records of a stream, and keeps the newest ones that are wanted. Also returns whether the reading
    /// stopped before the end.
    async fn read(
        &self,
        stream: &Stream,
        is_wanted: impl Fn(&Record) -> bool,
    ) -> Result<(Newest, bool), PageError> {
        let (mut records, mut read, mut left) = (Vec::new(), 0, PAGES_MAX);
        // Shards are listed parents first, so the last ones are the newest.
        let shards = stream.shards.iter().rev().filter_map(|shard| shard.shard_id.as_deref());
        for shard in shards.take(SHARDS_MAX) {
            let mut place = Place::new(Start::Since(self.since_s));
            let (mut of_shard, mut empty) = (VecDeque::with_capacity(self.count), 0);
            while empty < self.empty_max && left > 0 {
                let page = match stream.next_page(shard, &mut place).await {
                    Ok(Some(page)) => page,
                    // An older shard may be trimmed while it is read.
                    Ok(None) | Err(Refusal::Trimmed) => break,
                    Err(refusal) => return Err(PageError::Store(format!("{shard}: {refusal}"))),
                };
                read += page.len();
                (empty, left) = if page.is_empty() { (empty + 1, left) } else { (0, left - 1) };
                for record in page.into_iter().filter(&is_wanted) {
                    if of_shard.len() == self.count {
                        of_shard.pop_front();
                    }
                    of_shard.push_back(record);
                }
            }
            let found =
                |record| Found { table: stream.table.clone(), shard: shard.to_owned(), record };
            records.extend(of_shard.into_iter().map(found));
        }
        sort(&mut records);
        records.truncate(self.count);
        let is_cut = left == 0 || stream.shards.len() > SHARDS_MAX;
        Ok((Newest { records, read, since_s: self.since_s, is_cut }, left == 0))
    }
}

/// Sorts records: newest first.
pub(crate) fn sort(records: &mut [Found]) {
    records.sort_by(|one, other| {
        let key = |found: &Found| (found.record.creation_s, found.record.sequence.clone());
        key(other).cmp(&key(one))
    });
}
