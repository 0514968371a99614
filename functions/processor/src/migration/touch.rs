//! The backfill by touching: each source item gets a mark and loses it again, and so comes through the
//! stream with the stamp of its place there. Nothing is stated as of before the stream.
//!
//! The mark is taken off in the same page. A worker that dies in between leaves marks in the slice
//! that is done again; what is touched twice is stated twice, which changes nothing. An item that is
//! gone stays gone.

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use futures::{StreamExt, stream};
use model::Item;
use model::json::item_to_string;
use rules::migration::{TOUCH, key_of, visible};

use super::PLAN_TABLE;
use super::check::unknown;
use super::control::{Tally, Task};
use super::task::Worker;
use crate::back_off::RetryPolicy;
use crate::failure::Failure;
use crate::tables::attribute_value::to_sdk_item;
use crate::tables::dynamodb::request_failure;

/// What the entries of these tasks have in their names.
pub(super) const ENTRIES: &str = "#touch#";

/// What became of an item.
enum Touched {
    Done,
    /// It is gone, or its mark is.
    Gone,
    /// DynamoDB does not take it, such as one that has no room for the mark.
    Refused(String),
}

/// Touches the items of a page; only takes marks off if the migration was given up.
pub(super) async fn touch(
    worker: &Worker<'_>,
    task: &Task,
    items: &[Item],
    tally: &mut Tally,
) -> Result<(), Failure> {
    let schema = worker.migration.schema(&task.table).ok_or_else(|| unknown(&task.table))?;
    let partition = schema.partition.name.as_str();
    // A tombstone of another migration is no item.
    let items = items.iter().filter(|item| visible(item, schema).is_some());
    let touches: Vec<_> = items
        .map(|item| async move {
            let key = key_of(item, schema);
            let is_marked = worker.migration.has_touched(item);
            if !is_marked && worker.clears {
                return Ok((key, Touched::Gone));
            }
            if !is_marked {
                let put = mark(worker, &task.table, &key, partition).await?;
                if !matches!(put, Touched::Done) {
                    return Ok((key, put));
                }
            }
            clear(worker, &task.table, &key).await?;
            Ok((key, Touched::Done))
        })
        .collect();
    let at_once = worker.control.throttling.width();
    let mut touched = stream::iter(touches).buffer_unordered(at_once);
    while let Some(done) = touched.next().await {
        match done? {
            (_, Touched::Done) => tally.count("touched", 1),
            (_, Touched::Gone) => {}
            (key, Touched::Refused(reason)) => {
                let text = format!("{} {}: {reason}", task.table, item_to_string(&key));
                tally.sample("refused", &text);
            }
        }
    }
    Ok(())
}

async fn mark(
    worker: &Worker<'_>,
    table: &str,
    key: &Item,
    partition: &str,
) -> Result<Touched, Failure> {
    let names = [("#touch", TOUCH), ("#key", partition)];
    let (update, condition) = ("SET #touch = :touch", "attribute_exists(#key)");
    write(worker, table, key, update, condition, &names).await
}

async fn clear(worker: &Worker<'_>, table: &str, key: &Item) -> Result<Touched, Failure> {
    let names = [("#touch", TOUCH)];
    write(worker, table, key, "REMOVE #touch", "#touch = :touch", &names).await
}

async fn write(
    worker: &Worker<'_>,
    table: &str,
    key: &Item,
    update: &str,
    condition: &str,
    names: &[(&str, &str)],
) -> Result<Touched, Failure> {
    let mut attempts = RetryPolicy::CONTENDED.attempts();
    let mut failure = String::new();
    while attempts.next().await {
        let names = names.iter().map(|(name, of)| ((*name).to_owned(), (*of).to_owned()));
        let name = SdkValue::S(worker.migration.name().to_owned());
        let request = worker.control.client.update_item().table_name(table);
        let request = request
            .set_key(Some(to_sdk_item(key)))
            .update_expression(update)
            .condition_expression(condition)
            .set_expression_attribute_names(Some(names.collect()))
            .expression_attribute_values(":touch", name);
        let Err(error) = request.send().await else { return Ok(Touched::Done) };
        let service = error.as_service_error();
        match service.and_then(ProvideErrorMetadata::code) {
            Some("ConditionalCheckFailedException") => return Ok(Touched::Gone),
            Some("ValidationException") => {
                let message = service.and_then(ProvideErrorMetadata::message).unwrap_or_default();
                return Ok(Touched::Refused(message.to_owned()));
            }
            _ => match request_failure("UpdateItem", table, PLAN_TABLE, &error) {
                Failure::Retry(reason) => failure = reason,
                fatal @ Failure::Fatal(_) => return Err(fatal),
            },
        }
    }
    Err(Failure::Retry(failure))
}
