//! `weir archive restore`: archived items back into the live table, and what may stand in the way.
//!
//! A row is put if the table has no item of its key, or one that was restored from an older row and
//! not touched otherwise: so rows can be put in any order and as often as one likes, and the newest
//! one stays. An item that somebody wrote meanwhile is never replaced. Each restored item carries
//! the mark of `rules::archive::restored`, so that it is not archived again because of this.

use std::sync::atomic::{AtomicU64, Ordering};

use aws_sdk_dynamodb::error::{DisplayErrorContext, SdkError};
use aws_sdk_dynamodb::operation::put_item::{PutItemError, PutItemOutput};
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure as OnFailure;
use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use model::{AttributeValue, Item, json};
use rules::archive::restored::{self, RESTORED};

use super::cell::{Row, parse_time, rows_of};
use super::source::{Part, Source};
use super::{scan, versions};
use crate::endpoint;
use crate::load::{from_sdk_item, to_sdk_item, to_sdk_value};

/// Puts that are under way at the same time; each batch of rows waits for its own.
const PUTS_AT_ONCE: usize = 32;
/// Attributes of a live item that a condition can compare within the 4 KB of an expression.
const COMPARED_ATTRIBUTES_MAX: usize = 200;

/// What to restore, and how.
#[derive(Clone, Debug, Args)]
pub(super) struct RestoreArguments {
    /// The table in the archive; not needed if there is only one
    #[arg(long)]
    pub table: Option<String>,
    /// The table that the items are put into, if it is another one
    #[arg(long, value_name = "TABLE")]
    into: Option<String>,
    /// Only this key, in plain JSON or DynamoDB JSON
    #[arg(long, value_name = "JSON")]
    key: Option<String>,
    /// Only rows that meet it: COLUMN OPERATOR VALUE; operators are = != < <= > >=
    #[arg(long = "where", value_name = "CONDITION")]
    conditions: Vec<String>,
    /// Only items whose string attribute begins with a text
    #[arg(long, value_name = "ATTRIBUTE=TEXT")]
    begins_with: Option<String>,
    /// Only deletes of this UTC day: 2026-11-21
    #[arg(long, value_name = "DAY")]
    dt: Option<String>,
    /// Each item as it was deleted last at or before this time
    #[arg(long, value_name = "TIME")]
    as_of: Option<String>,
    /// Everything; without it, some condition must be given
    #[arg(long)]
    all: bool,
    /// The restored items' time to live: strip, or seconds from now
    #[arg(long, value_name = "strip|SECONDS", default_value = "strip")]
    ttl: String,
    /// Say what would be put, and put nothing
    #[arg(long)]
    dry_run: bool,
    /// The store; without it, the `weir up` in this folder
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
}

/// What became of the rows.
#[derive(Debug, Default)]
struct Counts {
    rows: AtomicU64,
    restored: AtomicU64,
    kept: AtomicU64,
}

/// The table that items go into.
struct Target {
    client: aws_sdk_dynamodb::Client,
    table: String,
    partition_key: String,
    ttl_attribute: Option<String>,
    /// The new time to live, in seconds since 1970; `None` for none.
    expires_at: Option<i64>,
}

/// Restores, and answers with the counts as one line of JSON.
///
/// # Errors
/// What cannot be read or written. What was put up to then stays; the same command goes on.
pub(super) async fn restore(
    source: &Source,
    parts: &[Part],
    arguments: &RestoreArguments,
) -> Result<String, String> {
    let Some(first) = parts.first() else {
        return Err("the table has no parts in the archive".to_owned());
    };
    let selects = arguments.key.is_some()
        || !arguments.conditions.is_empty()
        || arguments.begins_with.is_some()
        || arguments.dt.is_some()
        || arguments.as_of.is_some();
    if !selects && !arguments.all {
        return Err("say what to restore with --key, --where, --begins-with, --dt or --as-of, or restore everything with --all".to_owned());
    }
    let key = arguments.key.as_deref().map(versions::parse_key).transpose()?;
    let as_of = arguments.as_of.as_deref().map(parse_time).transpose()?;
    let begins_with = arguments.begins_with.as_deref().map(parse_begins_with).transpose()?;
    let conditions = scan::conditions(source, parts, &arguments.conditions).await?;
    let target = target(arguments, &first.table).await?;
    let counts = Counts::default();
    let progress = progress(parts);
    let wanted =
        parts.iter().filter(|part| arguments.dt.as_ref().is_none_or(|dt| part.date == *dt));
    for part in wanted {
        let failed = |reason: String| format!("cannot read part `{}`: {reason}", part.name);
        for batch in source.open(part, None).await? {
            let batch = batch.map_err(|error| failed(error.to_string()))?;
            let mut puts = Vec::new();
            for row in rows_of(&batch).map_err(failed)? {
                if as_of.is_some_and(|as_of| row.deleted_at() > as_of)
                    || !conditions.iter().all(|condition| condition.holds(&row))
                {
                    continue;
                }
                let item = json::item_from_str(row.text("_item"))
                    .map_err(|error| failed(format!("`_item`: {error}")))?;
                let is_key = key.as_ref().is_none_or(|key| {
                    key.iter().all(|(name, value)| item.get(name) == Some(value))
                });
                if is_key && begins_with.as_ref().is_none_or(|wanted| wanted.is_met_by(&item)) {
                    puts.push((row, item));
                }
            }
            let puts = puts
                .into_iter()
                .map(|(row, item)| put(&target, row, item, arguments.dry_run, &counts));
            stream::iter(puts).buffer_unordered(PUTS_AT_ONCE).try_collect::<Vec<()>>().await?;
        }
        progress.inc(part.bytes);
    }
    progress.finish_and_clear();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let answer = serde_json::json!({
        "table": target.table,
        "dryRun": arguments.dry_run,
        "rows": count(&counts.rows),
        "restored": count(&counts.restored),
        "keptAsTheyAre": count(&counts.kept),
    });
    Ok(answer.to_string())
}

struct BeginsWith {
    attribute: String,
    text: String,
}

impl BeginsWith {
    fn is_met_by(&self, item: &Item) -> bool {
        matches!(item.get(&self.attribute), Some(AttributeValue::S(text)) if text.starts_with(&self.text))
    }
}

fn parse_begins_with(text: &str) -> Result<BeginsWith, String> {
    match text.split_once('=') {
        Some((attribute, text)) if !attribute.is_empty() && !text.is_empty() => {
            Ok(BeginsWith { attribute: attribute.to_owned(), text: text.to_owned() })
        }
        _ => Err(format!("--begins-with `{text}` is not ATTRIBUTE=TEXT; write `pk=TENANT#7#`")),
    }
}

async fn target(arguments: &RestoreArguments, archived: &str) -> Result<Target, String> {
    let url = endpoint::find(arguments.endpoint.as_deref())?;
    let client = endpoint::client(&url);
    let table = arguments.into.clone().unwrap_or_else(|| archived.to_owned());
    let failed = |reason: String| format!("cannot restore into table `{table}`: {reason}");
    let described = client.describe_table().table_name(&table).send().await;
    let described =
        described.map_err(|error| failed(DisplayErrorContext(&error).to_string()))?.table;
    let keys = described.map(|table| table.key_schema.unwrap_or_default()).unwrap_or_default();
    let partition_key = keys
        .first()
        .map(|key| key.attribute_name.clone())
        .ok_or_else(|| failed("it has no key".to_owned()))?;
    let ttl = client.describe_time_to_live().table_name(&table).send().await;
    let ttl = ttl.map_err(|error| failed(DisplayErrorContext(&error).to_string()))?;
    let ttl_attribute = ttl.time_to_live_description.and_then(|ttl| ttl.attribute_name);
    let expires_at = match arguments.ttl.as_str() {
        "strip" => None,
        seconds => {
            let seconds: u32 = seconds.parse().map_err(|_| {
                format!("--ttl `{seconds}` is neither `strip` nor a number of seconds, such as 604800 for a week")
            })?;
            if ttl_attribute.is_none() {
                return Err(failed("TTL is not enabled on it; leave --ttl out".to_owned()));
            }
            Some(endpoint::store_seconds(&url).await.saturating_add(i64::from(seconds)))
        }
    };
    Ok(Target { client, table, partition_key, ttl_attribute, expires_at })
}

async fn put(
    target: &Target,
    row: Row,
    mut item: Item,
    dry_run: bool,
    counts: &Counts,
) -> Result<(), String> {
    counts.rows.fetch_add(1, Ordering::Relaxed);
    if dry_run {
        return Ok(());
    }
    item.remove(RESTORED);
    if let Some(name) = &target.ttl_attribute {
        item.remove(name);
        if let Some(seconds) = target.expires_at {
            item.insert(name.clone(), AttributeValue::N(seconds.into()));
        }
    }
    // Text order is time order, also across streams: labels are times.
    let label = row.text("_stream_arn").rsplit('/').next().unwrap_or_default().to_owned();
    let stamp = format!("{label}#{}", row.text("_sequence_number"));
    let mark =
        restored::mark(&item, row.text("_event_id"), &stamp, target.ttl_attribute.as_deref());
    item.insert(RESTORED.to_owned(), mark);
    let request =
        || target.client.put_item().table_name(&target.table).set_item(Some(to_sdk_item(&item)));
    let if_absent = request()
        .condition_expression("attribute_not_exists(#key)")
        .expression_attribute_names("#key", &target.partition_key)
        .return_values_on_condition_check_failure(OnFailure::AllOld);
    let Some(live) = outcome(target, if_absent.send().await)? else {
        counts.restored.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    };
    let is_older = restored::stamp_of(&live).is_some_and(|known| known < stamp.as_str());
    if !is_older || !restored::is_as_restored(&live) || live.len() > COMPARED_ATTRIBUTES_MAX {
        counts.kept.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    }
    // Only if nobody changes it between the look and the put.
    let mut if_same = request();
    let mut terms = Vec::with_capacity(live.len());
    for (position, (name, value)) in live.iter().enumerate() {
        terms.push(format!("#a{position} = :a{position}"));
        if_same = if_same
            .expression_attribute_names(format!("#a{position}"), name)
            .expression_attribute_values(format!(":a{position}"), to_sdk_value(value));
    }
    let if_same = if_same.condition_expression(terms.join(" AND "));
    let counter = match outcome(target, if_same.send().await)? {
        None => &counts.restored,
        Some(_) => &counts.kept,
    };
    counter.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// The item that stood in the way of a put; `None` if it was made.
fn outcome(
    target: &Target,
    answer: Result<PutItemOutput, SdkError<PutItemError>>,
) -> Result<Option<Item>, String> {
    match answer {
        Ok(_) => Ok(None),
        Err(SdkError::ServiceError(error)) => match error.err() {
            PutItemError::ConditionalCheckFailedException(failed) => {
                let live = failed.item().cloned().map(from_sdk_item).transpose();
                Ok(Some(live.map_err(|reason| cannot_put(target, &reason))?.unwrap_or_default()))
            }
            other => Err(cannot_put(target, &DisplayErrorContext(other))),
        },
        Err(error) => Err(cannot_put(target, &DisplayErrorContext(&error))),
    }
}

fn cannot_put(target: &Target, reason: &dyn std::fmt::Display) -> String {
    format!(
        "cannot put an item into `{}`: {reason}; what was restored stays, run the command again to go on",
        target.table
    )
}

fn progress(parts: &[Part]) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{elapsed_precise} {bar:30} {percent}% of {total_bytes}, {eta} left",
    )
    .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(parts.iter().map(|part| part.bytes).sum()).with_style(style)
}
