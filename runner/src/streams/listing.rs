//! `weir streams ls` and `weir streams shards`.

use serde_json::{Value, json};

use client::endpoint;
use client::exit::Exit;
use client::failure::Result;
use client::output::{self, Output};
use client::shards;

pub(super) async fn list(endpoint: &str, output: Output) -> Result<Exit> {
    let client = endpoint::streams_client(endpoint);
    let mut rows = Vec::new();
    for arn in shards::arns(&client, None).await? {
        let stream = shards::describe(client.clone(), &arn).await?;
        let open = stream.shards.iter().filter(|shard| ending(shard).is_none()).count();
        let status = if stream.enabled { "ENABLED" } else { "DISABLED" };
        rows.push(vec![
            json!(stream.table),
            json!(status),
            json!(stream.view),
            json!(stream.shards.len()),
            json!(open),
            json!(arn),
        ]);
    }
    output::rows(output, &["table", "status", "view", "shards", "open", "arn"], &rows);
    Ok(Exit::Done)
}

pub(super) async fn shards(endpoint: &str, table: &str, output: Output) -> Result<Exit> {
    let stream = shards::stream_of(endpoint, table).await?;
    let rows: Vec<Vec<Value>> = stream
        .shards
        .iter()
        .map(|shard| {
            let range = shard.sequence_number_range.as_ref();
            let first = range.and_then(|range| range.starting_sequence_number.clone());
            let state = if ending(shard).is_some() { "closed" } else { "open" };
            vec![
                json!(shard.shard_id),
                json!(shard.parent_shard_id),
                json!(state),
                json!(first),
                json!(ending(shard)),
            ]
        })
        .collect();
    output::rows(output, &["shard", "parent", "state", "first", "last"], &rows);
    Ok(Exit::Done)
}

fn ending(shard: &aws_sdk_dynamodbstreams::types::Shard) -> Option<&str> {
    shard.sequence_number_range.as_ref()?.ending_sequence_number.as_deref()
}
