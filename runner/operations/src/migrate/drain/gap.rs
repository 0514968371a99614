//! What a stream cannot tell: writes from before it was made, and shards whose children it does not list
//! yet.

use super::Counted;
use client::shards::Stream;

/// Why a stream does not tell of all that was written since the last comparison began; none if it
/// does. Whoever changes its view type disables it and enables another one.
pub(super) fn gap(stream: &Stream, counted: Counted) -> Option<String> {
    let table = &stream.table;
    if !stream.enabled {
        return Some(format!("the stream of `{table}` is disabled: enable it, and compare again"));
    }
    let made = stream.made_at?;
    // Times are whole seconds, so one of the same second may be later.
    if made <= counted.since || made < counted.compared {
        return None;
    }
    let made =
        jiff::Timestamp::from_second(made).map_or_else(|_| made.to_string(), |at| at.to_string());
    Some(format!(
        "the stream of `{table}` was made at {made}, and what was written before that is in no stream: compare again"
    ))
}

/// Whether a shard that has ended is followed by another one, or need not be.
pub(super) fn has_child(stream: &Stream, id: &str) -> bool {
    let is_child = |shard: &aws_sdk_dynamodbstreams::types::Shard| {
        shard.parent_shard_id.as_deref() == Some(id)
    };
    !stream.enabled || stream.shards.iter().any(is_child)
}
