//! Detects what is missing from a stream: writes from before it was enabled, and child shards that
//! it does not list yet.

use crate::migrate::drain::proof::RecordSelection;
use client::shards::Stream;

/// Returns why a stream lacks writes since the last comparison began; `None` if the stream has all
/// of them. For example, a change of the view type creates a new stream.
pub(crate) fn gap(stream: &Stream, counted: RecordSelection) -> Option<String> {
    let table = &stream.table;
    if !stream.enabled {
        return Some(format!("the stream of `{table}` is disabled: enable it, and compare again"));
    }
    let made = stream.made_at?;
    // Times are whole seconds, so a write in the second of the stream's creation may be older than
    // the stream.
    if made <= counted.since || made < counted.compared {
        return None;
    }
    let made =
        jiff::Timestamp::from_second(made).map_or_else(|_| made.to_string(), |at| at.to_string());
    Some(format!(
        "the stream of `{table}` was enabled at {made}, so earlier writes are in no stream: compare again"
    ))
}

/// Returns true if a closed shard has a child shard, or needs none because the stream is disabled.
pub(crate) fn has_child(stream: &Stream, id: &str) -> bool {
    let is_child = |shard: &aws_sdk_dynamodbstreams::types::Shard| {
        shard.parent_shard_id.as_deref() == Some(id)
    };
    !stream.enabled || stream.shards.iter().any(is_child)
}
