//! `GetRecords`: returns the next records of a shard, and the iterator for the next request.
//!
//! At the end of a closed shard, the response has no next iterator, but may still have records.

use std::ops::ControlFlow;

use model::limits::{GET_RECORDS_BYTES_MAX, GET_RECORDS_MAX};
use partition::{Position, ReadError, Shard, Stream, Table, View, read_shard_records};

use super::answer::text_member;
use super::constraints::Constraints;
use super::error::ApiError;
use super::get_shard_iterator::check_not_trimmed;
use super::parameters::Parameters;
use super::shard_iterator::{Place, ShardIterator};
use super::streams::FoundStream;
use crate::store::Store;
use crate::store::long_reads::{SHORT_READ_BYTES, SHORT_READ_ITEMS};

/// The maximum length of an iterator, inclusive (AWS API reference, `GetRecords`).
const ITERATOR_LENGTH_MAX: usize = 2048;

pub(super) async fn get_records(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let text = parameters.string("ShardIterator")?;
    let limit = parameters.integer("Limit")?;
    let mut constraints = Constraints::new();
    constraints.required("shardIterator", text.is_some());
    if let Some(text) = text {
        constraints.length("shardIterator", text, 1, ITERATOR_LENGTH_MAX);
    }
    constraints.range("limit", limit, 1, i64::try_from(GET_RECORDS_MAX).unwrap_or(i64::MAX));
    constraints.finish()?;

    let (arn, iterator) = ShardIterator::from_text(text.unwrap_or_default(), store.token_key())?;
    iterator.check_age(store.now())?;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(GET_RECORDS_MAX);
    // The shard is looked up before the view is taken. If the shard is closed by then, the view
    // contains all its records.
    let found = FoundStream::find(store, arn)?;
    let (stream, shard) = found.shard(&iterator.shard_id, arn)?;
    check_not_trimmed(iterator.place, shard)?;
    let view = store.view();
    let records =
        Records { view: &*view, table: &found.table, stream, shard, limit, region: store.region() };
    let mut page = Page::new(iterator.place);
    records.read(&mut page, true)?;
    if page.is_paused {
        store.long_reads().run(|| records.read(&mut page, false)).await?;
    }
    let Page { mut out, place, is_cut, .. } = page;
    // Records may have been trimmed between the look-up and the view. The client then gets an error.
    // Otherwise it would miss records without notice.
    check_not_trimmed(
        iterator.place,
        FoundStream::find(store, arn)?.shard(&iterator.shard_id, arn)?.1,
    )?;
    out.push(']');
    if is_cut || shard.last.is_none() {
        let next = ShardIterator { place, issued_at: store.now(), ..iterator };
        text_member(&mut out, "NextShardIterator", &next.to_text(arn, store.token_key())?);
    }
    out.push('}');
    Ok(out)
}

/// The range of records that a request reads.
struct Records<'r> {
    view: &'r (dyn View + Send + Sync),
    table: &'r Table,
    stream: &'r Stream,
    shard: &'r Shard,
    /// The maximum number of records of a page.
    limit: usize,
    region: &'r str,
}

/// The progress of reading a page.
struct Page {
    /// The response, up to and including the last record that was read.
    out: String,
    /// The position of the next record to read.
    place: Place,
    count: usize,
    /// Whether the page is full but more records follow.
    is_cut: bool,
    /// Whether a short read has reached its limit and continues as a long read.
    is_paused: bool,
}

impl Page {
    fn new(place: Place) -> Self {
        let out = String::from("{\"Records\":[");
        Self { out, place, count: 0, is_cut: false, is_paused: false }
    }
}

impl Records<'_> {
    /// Reads records from the page's position until the page is full, the shard has no more
    /// records, or a short read reaches its limit.
    fn read(&self, page: &mut Page, is_short: bool) -> Result<(), ReadError> {
        let from = match page.place {
            Place::TrimHorizon => Position::At(self.shard.first),
            Place::At(sequence) => Position::At(sequence),
            Place::After(sequence) => Position::After(sequence),
        };
        page.is_paused = false;
        let mut written = Ok(());
        let Self { view, table, stream, shard, .. } = self;
        read_shard_records(*view, table, stream, shard, from, &mut |at, record| {
            if page.count == self.limit || page.out.len() >= GET_RECORDS_BYTES_MAX {
                page.is_cut = true;
                return ControlFlow::Break(());
            }
            if is_short && (page.out.len() >= SHORT_READ_BYTES || page.count >= SHORT_READ_ITEMS) {
                page.is_paused = true;
                return ControlFlow::Break(());
            }
            if page.count > 0 {
                page.out.push(',');
            }
            written = record.write_streams_json(&mut page.out, self.region);
            if written.is_err() {
                return ControlFlow::Break(());
            }
            page.count += 1;
            page.place = Place::After(at);
            ControlFlow::Continue(())
        })?;
        written
            .map_err(|error| ReadError(format!("cannot encode a stream record's image: {error}")))
    }
}
