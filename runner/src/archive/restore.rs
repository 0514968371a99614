//! `weir archive restore`: archived items back into the live table, and what may stand in the way.
//!
//! Rows can be put in any order and as often as one likes, and the newest one of a key stays:
//! `newest` decides. Each restored item carries the mark of `rules::archive::restored`, so that it
//! is not archived again because of this where the archive is that of the table. A row that DynamoDB
//! does not take as an item is named and skipped, and the others go on.

mod newest;
mod unchanged;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::put_item::{PutItemError, PutItemOutput};
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure as OnFailure;
use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use model::{AttributeValue, Item};
use rules::archive::restored::{self, Origin, RESTORED};
use serde_json::json;

use self::newest::{Attempt, Fate, put_newest};
use self::unchanged::Unchanged;
use super::cell::{Row, parse_time, rows_of};
use super::condition::{Condition, are_met_by};
use super::reading::Reading;
use super::source::{Part, Source};
use super::{of_day, versions};
use crate::endpoint;
use crate::exit::Exit;
use crate::load::{from_sdk_item, to_sdk_item, to_sdk_value};
use crate::sdk_error::error_text;

/// Puts that are under way at the same time; each batch of rows waits for its own.
const PUTS_AT_ONCE: usize = 32;
/// Skipped rows that the answer names at most.
const SKIPPED_NAMED_MAX: usize = 10;

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
    pub conditions: Vec<String>,
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
    skipped: AtomicU64,
    /// Event ids of the first ones that were skipped, and why.
    skipped_rows: Mutex<Vec<(String, String)>>,
}

impl Counts {
    fn skip(&self, event_id: &str, reason: String) -> u64 {
        let mut rows = self.skipped_rows.lock().unwrap_or_else(PoisonError::into_inner);
        if rows.len() < SKIPPED_NAMED_MAX {
            rows.push((event_id.to_owned(), reason));
        }
        self.skipped.fetch_add(1, Ordering::Relaxed)
    }

    /// The answer, and the exit code.
    fn tell(&self, table: &str, dry_run: bool) -> (String, Exit) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let rows = self.skipped_rows.lock().unwrap_or_else(PoisonError::into_inner);
        let rows =
            rows.iter().map(|(event_id, reason)| json!({"eventId": event_id, "reason": reason}));
        let answer = json!({
            "table": table,
            "dryRun": dry_run,
            "rows": count(&self.rows),
            "restored": count(&self.restored),
            "keptAsTheyAre": count(&self.kept),
            "skipped": count(&self.skipped),
            "skippedRows": rows.collect::<Vec<_>>(),
        });
        let code = if count(&self.skipped) > 0 { Exit::Differences } else { Exit::Done };
        (answer.to_string(), code)
    }
}

/// The table that items go into.
struct Target {
    client: aws_sdk_dynamodb::Client,
    table: String,
    /// The table in whose archive the rows are.
    archived: String,
    /// Whether the archive is that of the store.
    has_archive: bool,
    /// The ARN of the table's stream.
    stream: Option<String>,
    partition_key: String,
    ttl_attribute: Option<String>,
    /// The new time to live, in seconds since 1970; `None` for none.
    expires_at: Option<i64>,
}

/// Restores, and answers with the counts as one line of JSON. Rows that were skipped are a
/// difference.
///
/// # Errors
/// What cannot be read or written. What was put up to then stays; the same command goes on.
pub(super) async fn restore(
    source: &Source,
    parts: &[Part],
    conditions: &[Condition],
    arguments: &RestoreArguments,
) -> Result<(String, Exit), String> {
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
    let wanted = match &arguments.dt {
        Some(day) => of_day(parts.to_vec(), day)?,
        None => parts.to_vec(),
    };
    let target = target(source, arguments, &first.table).await?;
    let counts = Counts::default();
    let progress = progress(&wanted);
    let mut reading = Reading::of(source, wanted);
    while let Some((part, batches)) = reading.next(None).await? {
        let failed = |reason: String| format!("cannot read part `{}`: {reason}", part.name);
        let archive = source.archive_of(&part);
        let archive = archive.as_deref();
        for batch in batches {
            let batch = batch.map_err(|error| failed(error.to_string()))?;
            let mut puts = Vec::new();
            for row in rows_of(&batch).map_err(failed)? {
                if as_of.is_some_and(|as_of| row.deleted_at() > as_of)
                    || !are_met_by(conditions, &row).map_err(failed)?
                {
                    continue;
                }
                let item = model::json::item_from_str(row.text("_item"))
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
                .map(|(row, item)| put(&target, (archive, row), item, arguments.dry_run, &counts));
            stream::iter(puts).buffer_unordered(PUTS_AT_ONCE).try_collect::<Vec<()>>().await?;
        }
        progress.inc(part.bytes);
    }
    progress.finish_and_clear();
    Ok(counts.tell(&target.table, arguments.dry_run))
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

async fn target(
    source: &Source,
    arguments: &RestoreArguments,
    archived: &str,
) -> Result<Target, String> {
    let url = super::store_for(source.is_on_aws(), arguments.endpoint.as_deref())?;
    let client = endpoint::client(&url);
    let table = arguments.into.clone().unwrap_or_else(|| archived.to_owned());
    let failed = |reason: String| format!("cannot restore into table `{table}`: {reason}");
    let described = client.describe_table().table_name(&table).send().await;
    let described = described.map_err(|error| failed(error_text(&error)))?.table;
    let stream = described.as_ref().and_then(|table| table.latest_stream_arn.clone());
    let keys = described.map(|table| table.key_schema.unwrap_or_default()).unwrap_or_default();
    let partition_key = keys
        .first()
        .map(|key| key.attribute_name.clone())
        .ok_or_else(|| failed("it has no key".to_owned()))?;
    let ttl = client.describe_time_to_live().table_name(&table).send().await;
    let ttl = ttl.map_err(|error| failed(error_text(&error)))?;
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
    let archived = archived.to_owned();
    let has_archive = source.is_of_store(&url);
    Ok(Target {
        client,
        table,
        archived,
        has_archive,
        stream,
        partition_key,
        ttl_attribute,
        expires_at,
    })
}

async fn put(
    target: &Target,
    (archive, row): (Option<&str>, Row),
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
    // A row of the table's own stream is in the archive of its function, wherever that is reached.
    let archive = archive.filter(|_| {
        target.has_archive || target.stream.as_deref() == Some(row.text("_stream_arn"))
    });
    let event_id = row.text("_event_id");
    let origin = Origin { archive, table: &target.archived, event_id, stamp: &stamp };
    let mark = restored::mark(&item, origin, target.ttl_attribute.as_deref());
    item.insert(RESTORED.to_owned(), mark);
    match put_newest(origin, async |live| attempt(target, &item, live).await).await? {
        Fate::Restored => counts.restored.fetch_add(1, Ordering::Relaxed),
        Fate::Kept => counts.kept.fetch_add(1, Ordering::Relaxed),
        Fate::Skipped(reason) => counts.skip(origin.event_id, reason),
    };
    Ok(())
}

/// One put, on the condition that what stands there is as it was seen.
async fn attempt(target: &Target, item: &Item, live: Option<&Item>) -> Result<Attempt, String> {
    let request = target
        .client
        .put_item()
        .table_name(&target.table)
        .set_item(Some(to_sdk_item(item)))
        .return_values_on_condition_check_failure(OnFailure::AllOld);
    let Some(live) = live else {
        let if_absent = request
            .condition_expression("attribute_not_exists(#key)")
            .expression_attribute_names("#key", &target.partition_key);
        return outcome(target, if_absent.send().await);
    };
    let unchanged = match Unchanged::of(live, item) {
        Ok(unchanged) => unchanged,
        Err(reason) => return Ok(Attempt::Refused(reason)),
    };
    let mut if_same = request.condition_expression(unchanged.expression);
    for (placeholder, name) in unchanged.names {
        if_same = if_same.expression_attribute_names(placeholder, name);
    }
    for (placeholder, value) in unchanged.values {
        if_same = if_same.expression_attribute_values(placeholder, to_sdk_value(value));
    }
    outcome(target, if_same.send().await)
}

fn outcome(
    target: &Target,
    answer: Result<PutItemOutput, SdkError<PutItemError>>,
) -> Result<Attempt, String> {
    match answer {
        Ok(_) => Ok(Attempt::Put),
        Err(SdkError::ServiceError(error)) => match error.err() {
            PutItemError::ConditionalCheckFailedException(failed) => {
                let live = failed.item().cloned().map(from_sdk_item).transpose();
                Ok(Attempt::Stands(live.map_err(|reason| cannot_put(target, &reason))?))
            }
            other if other.code() == Some("ValidationException") => {
                Ok(Attempt::Refused(other.message().unwrap_or_default().to_owned()))
            }
            other => {
                let code = other.code().unwrap_or("the store does not say why");
                let message = other.message().unwrap_or_default();
                Err(cannot_put(target, &format!("{code}: {message}")))
            }
        },
        Err(error) => Err(cannot_put(target, &error_text(&error))),
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        arguments: RestoreArguments,
    }

    #[tokio::test]
    async fn a_day_that_is_none_is_refused_before_anything_is_restored() {
        let folder = super::super::tests::archive();
        let source = Source::Folder(folder.path().to_owned());
        let parts = source.parts(None, None).await.unwrap();
        for day in ["24.11.2026", "2026-11-31", "yesterday"] {
            let words = ["restore", "--dt", day, "--endpoint", "http://127.0.0.1:1"];
            let arguments = CommandLine::try_parse_from(words).unwrap().arguments;
            let refused = restore(&source, &parts, &[], &arguments).await.unwrap_err();
            assert_eq!(refused, format!("--dt `{day}` is no day: write such as 2026-11-21"));
        }
    }
}
