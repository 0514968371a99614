//! `GetRecords`: the next records of a shard, and the iterator to go on with.
//!
//! Only at the end of a closed shard there is no next iterator; the page that reaches it may still
//! hold records.

use std::ops::ControlFlow;

use model::limits::{GET_RECORDS_BYTES_MAX, GET_RECORDS_MAX};
use partition::{Position, ReadError, read_shard_records};

use super::answer::text_member;
use super::constraints::Constraints;
use super::error::ApiError;
use super::get_shard_iterator::check_not_trimmed;
use super::parameters::Parameters;
use super::shard_iterator::{Place, ShardIterator};
use super::streams::FoundStream;
use crate::store::Store;

/// Longest iterator that is looked at, inclusive (AWS API reference, `GetRecords`).
const ITERATOR_LENGTH_MAX: usize = 2048;

pub(super) fn get_records(store: &Store, parameters: Parameters<'_>) -> Result<String, ApiError> {
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
    // The shard is looked up before the view is taken: when it is closed, the view has all of it.
    let found = FoundStream::find(store, arn)?;
    let (stream, shard) = found.shard(&iterator.shard_id, arn)?;
    check_not_trimmed(iterator.place, shard)?;
    let from = match iterator.place {
        Place::TrimHorizon => Position::At(shard.first),
        Place::At(sequence) => Position::At(sequence),
        Place::After(sequence) => Position::After(sequence),
    };

    let mut out = String::from("{\"Records\":[");
    let (mut place, mut count, mut is_cut) = (iterator.place, 0, false);
    let mut written = Ok(());
    read_shard_records(&*store.view(), &found.table, stream, shard, from, &mut |at, record| {
        if count == limit || out.len() >= GET_RECORDS_BYTES_MAX {
            is_cut = true;
            return ControlFlow::Break(());
        }
        if count > 0 {
            out.push(',');
        }
        written = record.write_streams_json(&mut out, store.region());
        if written.is_err() {
            return ControlFlow::Break(());
        }
        count += 1;
        place = Place::After(at);
        ControlFlow::Continue(())
    })?;
    written.map_err(|error| ReadError(format!("a stream record's image: {error}")))?;
    // What was trimmed between the look at the shard and the view is missing in the view, and must
    // not be missed without a word.
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
