//! The drain proof: of every shard of every source stream, the last record that concerns the
//! migration has been applied.
//!
//! The function applies a shard's records in order (parallelization factor 1), so the last one
//! stands for all before it. What it says is compared with the marks of its targets; no position
//! of a poller is asked for, so the same proof works on AWS. Records from before the start do not
//! count: the backfill read what they wrote. A shard that is trimmed while it is read is as one that
//! is no longer listed.

use model::json;
use model::stream_record::decode_lambda_record;
use rules::migration::{Migration, Registers, Rewrite, Target};
use rules::{Effect, Found, Rule};

use super::tables;
use crate::streams::shards::{self, Place, Refusal, Start};

/// Empty pages in a row after which an open shard counts as read to its end. DynamoDB may answer
/// with an empty page before there is more; writers have stopped by then, so nothing is added.
const EMPTY_PAGES: u32 = 3;
/// Pages of one shard at most: 24 hours at the 1,000 records of a page.
const PAGES_MAX: u32 = 100_000;

/// What is known about a drain.
pub(crate) struct Drained {
    pub(crate) shards: usize,
    /// The first shard that is not proved, and why.
    pub(crate) missing: Option<String>,
}

/// Looks once. `since` is the second after which records count.
pub(crate) async fn look(
    endpoint: &str,
    client: &aws_sdk_dynamodb::Client,
    migration: &Migration,
    tables: &[&str],
    since: i64,
) -> Result<Drained, String> {
    let mut looked = 0;
    for table in tables {
        let stream = shards::stream_of(endpoint, table).await?;
        for shard in stream.shards.iter().filter_map(|shard| shard.shard_id.as_deref()) {
            looked += 1;
            let Some(effects) = last_effects(&stream, shard, migration, since).await? else {
                continue;
            };
            for effect in effects {
                if let Effect::Rewrite { target, .. } = &effect
                    && let Some(what) = unsettled(client, migration, target).await?
                {
                    let missing = format!("shard {shard} of `{table}`: {what}");
                    return Ok(Drained { shards: looked, missing: Some(missing) });
                }
                let Effect::Registers { target, registers } = effect else { continue };
                let schema = migration.schema(&target.table);
                let schema = schema.ok_or_else(|| format!("`{}` is not known", target.table))?;
                let key = target.key.to_item(schema);
                let stands = tables::get(client, &target.table, &key).await?;
                let known = stands.as_ref().map(Registers::from_item).and_then(Result::ok);
                if known.unwrap_or_default().joined(&registers).is_some() {
                    let key = migration.key_text(&target.table, &target.key);
                    let missing = format!(
                        "shard {shard} of `{table}`: its last record has not reached `{}` {key}",
                        target.table
                    );
                    return Ok(Drained { shards: looked, missing: Some(missing) });
                }
            }
        }
    }
    Ok(Drained { shards: looked, missing: None })
}

/// Whether an item of a table that is changed in place is not yet as the plan wants it.
async fn unsettled(
    client: &aws_sdk_dynamodb::Client,
    migration: &Migration,
    target: &Target,
) -> Result<Option<String>, String> {
    let schema = migration.schema(&target.table);
    let schema = schema.ok_or_else(|| format!("`{}` is not known", target.table))?;
    let stands = tables::get(client, &target.table, &target.key.to_item(schema)).await?;
    // What cannot be transformed is counted elsewhere, and never will be.
    let is_settled = stands.is_none_or(|item| {
        matches!(migration.rewrite(&target.table, &item), Ok(Rewrite::Keep) | Err(_))
    });
    let key = migration.key_text(&target.table, &target.key);
    Ok((!is_settled).then(|| format!("its last record has not been applied to {key}")))
}

/// What the last record of a shard says that concerns the migration; none if no record does.
async fn last_effects(
    stream: &shards::Stream,
    shard: &str,
    migration: &Migration,
    since: i64,
) -> Result<Option<Vec<Effect>>, String> {
    let mut last = None;
    let mut place = Place::new(Start::TrimHorizon);
    let mut empty = 0;
    for _ in 0..PAGES_MAX {
        let records = match stream.next_page(shard, &mut place).await {
            Ok(Some(records)) => records,
            Ok(None) => break,
            // Its beginning is gone; its last record may be there.
            Err(Refusal::Trimmed) if place.last().is_some() => {
                place = Place::new(Start::TrimHorizon);
                continue;
            }
            Err(Refusal::Trimmed) => break,
            Err(refusal) => return Err(refusal.to_string()),
        };
        empty = if records.is_empty() { empty + 1 } else { 0 };
        for record in records.iter().filter(|record| record.creation_s.is_none_or(|s| s > since)) {
            let text = record.event.to_string();
            let json = json::parse(text.as_bytes()).map_err(|error| error.to_string())?;
            let record = decode_lambda_record(&json).map_err(|error| error.to_string())?;
            // A refused record is put aside and counted; it says nothing.
            let effects = migration.decide(&record, &Found::default()).unwrap_or_default();
            if !effects.is_empty() {
                last = Some(effects);
            }
        }
        if empty >= EMPTY_PAGES {
            break;
        }
    }
    Ok(last)
}
