//! Detects gaps of a stream: writes from before the stream was enabled, and child shards that the
//! stream does not list yet.

use crate::migrate::drain::proof::RecordSelection;
use client::shards::Stream;

/// Returns why a stream lacks some writes since the last comparison began; `None` if the stream has
/// all these writes. For example, a new stream after a change of the view type lacks earlier
/// writes.
pub(crate) fn gap(stream: &Stream, counted: RecordSelection) -> Option<String> {
    let table = &stream.table;
    if !stream.enabled {
        return Some(format!("the stream of `{table}` is disabled: enable it, and compare again"));
    }
    let made = stream.made_at?;
    // Times are whole seconds, so a write in the second in which the stream was created may be
    // older than the stream.
    if made <= counted.since || made < counted.compared {
        return None;
    }
    let made =
        jiff::Timestamp::from_second(made).map_or_else(|_| made.to_string(), |at| at.to_string());
    Some(format!(
        "the stream of `{table}` was enabled at {made}, so earlier writes are in no stream: compare again"
    ))
}

/// Returns true if a closed shard has a child shard, or the stream is disabled and so has no child
/// shards.
pub(crate) fn has_child(stream: &Stream, id: &str) -> bool {
    let is_child = |shard: &aws_sdk_dynamodbstreams::types::Shard| {
        shard.parent_shard_id.as_deref() == Some(id)
    };
    !stream.enabled || stream.shards.iter().any(is_child)
}
