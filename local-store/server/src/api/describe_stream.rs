//! `DescribeStream`: returns a stream and its shards in pages, in the order of the shard ids.
//!
//! `GetRecords` reads the records of the shards.

use model::limits::DESCRIBE_STREAM_SHARDS_MAX;
use partition::Shard;

use super::answer::{begin_member, key_schema_member, text_member, time_member};
use super::constraints::Constraints;
use super::error::ApiError;
use super::parameters::Parameters;
use super::streams::{self, FoundStream, stream_arn};
use crate::store::Store;

pub(super) fn describe_stream(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let arn = parameters.string("StreamArn")?;
    let limit = parameters.integer("Limit")?;
    let start = parameters.string("ExclusiveStartShardId")?;
    let filter = parameters.structure("ShardFilter")?;
    let filter_type = filter.map(|f| f.string("Type")).transpose()?.flatten();
    let parent = filter.map(|f| f.string("ShardId")).transpose()?.flatten();

    let mut constraints = Constraints::new();
    streams::constrain_arn(&mut constraints, arn);
    let limit_max = i64::try_from(DESCRIBE_STREAM_SHARDS_MAX).unwrap_or(i64::MAX);
    constraints.range("limit", limit, 1, limit_max);
    streams::constrain_shard_id(&mut constraints, "exclusiveStartShardId", start);
    constraints.one_of("shardFilter.type", filter_type, &["CHILD_SHARDS"]);
    streams::constrain_shard_id(&mut constraints, "shardFilter.shardId", parent);
    constraints.finish()?;
    if filter.is_some() && (filter_type.is_none() || parent.is_none()) {
        return Err(ApiError::invalid_parameter("ShardFilter must have both a Type and a ShardId"));
    }

    let found = FoundStream::find(store, arn.unwrap_or_default())?;
    let stream = found.stream()?;
    let limit =
        limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(DESCRIBE_STREAM_SHARDS_MAX);
    // Shards are sorted by id. An id begins with the creation time of its shard, so parents precede
    // children, as readers expect. A page can start after a shard that was trimmed since the
    // previous page, because the order needs only the id.
    let mut shards: Vec<&Shard> = stream
        .shards
        .iter()
        .filter(|shard| start.is_none_or(|start| shard.id.as_str() > start))
        .filter(|shard| parent.is_none_or(|parent| shard.parent.as_deref() == Some(parent)))
        .collect();
    shards.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    let mut shards = shards.into_iter().peekable();

    let mut out = String::from("{");
    begin_member(&mut out, "StreamDescription");
    out.push('{');
    text_member(&mut out, "StreamArn", &stream_arn(store, &found.table, stream).to_string());
    text_member(&mut out, "StreamLabel", &stream.label);
    let status = if stream.disabled_at.is_some() { "DISABLED" } else { "ENABLED" };
    text_member(&mut out, "StreamStatus", status);
    text_member(&mut out, "StreamViewType", stream.view_type.as_str());
    time_member(&mut out, "CreationRequestDateTime", stream.created_at);
    text_member(&mut out, "TableName", &found.table.name);
    key_schema_member(&mut out, &found.table.key_schema);
    begin_member(&mut out, "Shards");
    out.push('[');
    let mut last = None;
    for shard in shards.by_ref().take(limit) {
        if last.is_some() {
            out.push(',');
        }
        write_shard(&mut out, shard);
        last = Some(&shard.id);
    }
    out.push(']');
    if let Some(last) = last.filter(|_| shards.peek().is_some()) {
        text_member(&mut out, "LastEvaluatedShardId", last);
    }
    out.push_str("}}");
    Ok(out)
}

fn write_shard(out: &mut String, shard: &Shard) {
    out.push('{');
    text_member(out, "ShardId", &shard.id);
    begin_member(out, "SequenceNumberRange");
    out.push('{');
    text_member(out, "StartingSequenceNumber", &shard.first.to_string());
    if let Some(last) = shard.last {
        text_member(out, "EndingSequenceNumber", &last.to_string());
    }
    out.push('}');
    if let Some(parent) = &shard.parent {
        text_member(out, "ParentShardId", parent);
    }
    out.push('}');
}
