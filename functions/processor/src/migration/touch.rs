//! The backfill by touching: each source item gets a mark and loses it again. So each item appears
//! in the stream, and its effects have the stamp of that stream record instead of a stamp from
//! before the stream.
//!
//! The worker removes the mark in the same page. If the worker crashes in between, the slice is
//! repeated and removes the marks; touching an item twice is idempotent. A deleted item stays
//! deleted. A client may have read an item with its mark and later write the item back; such marks
//! are removed when the migration ends.

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use control::Task;
use futures::{StreamExt, stream};
use model::Item;
use model::json::item_to_string;
use rules::migration::{TOUCH, TOUCH_OF_CUTOVER, key_of, visible};

use super::PLAN_TABLE;
use super::check::unknown;
use super::tally::Tally;
use super::task::Worker;
use crate::back_off::RetryPolicy;
use crate::failure::Failure;
use crate::tables::attribute_value::to_sdk_item;
use crate::tables::dynamodb::request_failure;

/// The outcome of touching an item.
enum TouchOutcome {
    Done,
    /// The item or its mark does not exist, or the plan produces no target from the item.
    Gone,
    /// The item cannot be transformed, or DynamoDB refuses the update, for example because the mark
    /// makes the item too large.
    Refused(String),
}

/// An update of the mark of one item.
struct Update<'u> {
    expression: &'static str,
    condition: &'static str,
    names: &'u [(&'u str, &'u str)],
    /// The migration that owns the mark.
    of: &'u str,
}

/// Touches the items of a page from which the plan produces a target. If the migration was
/// aborted, only removes marks.
pub(super) async fn touch(
    worker: &Worker<'_>,
    task: &Task,
    items: &[Item],
    tally: &mut Tally,
) -> Result<(), Failure> {
    let schema = worker.migration.schema(&task.table).ok_or_else(|| unknown(&task.table))?;
    // A tombstone of another migration is not an item, so it is not touched.
    let items = items.iter().filter(|item| visible(item, schema).is_some());
    let touches: Vec<_> = items
        .map(|item| async move {
            let key = key_of(item, schema);
            let is_marked = worker.migration.has_touched(item);
            let put = match is_marked {
                true => TouchOutcome::Done,
                false if worker.clears => TouchOutcome::Gone,
                false => mark(worker, &task.table, item, &key, &schema.partition.name).await?,
            };
            if matches!(put, TouchOutcome::Done) {
                clear(worker, &task.table, &key, worker.migration.name()).await?;
            }
            Ok((key, put))
        })
        .collect();
    let at_once = worker.control.throttling.concurrency();
    let mut touched = stream::iter(touches).buffer_unordered(at_once);
    while let Some(done) = touched.next().await {
        match done? {
            (_, TouchOutcome::Done) => tally.count("touched", 1),
            (_, TouchOutcome::Gone) => {}
            (key, TouchOutcome::Refused(reason)) => {
                let text = format!("{} {}: {reason}", task.table, item_to_string(&key));
                tally.sample("refused", &text);
            }
        }
    }
    Ok(())
}

/// Removes the marks of touches from the items of a page: marks of this migration, and marks of a
/// cut-over whose command was killed. Each update changes only the mark, and only if the mark is
/// unchanged, so no other write is lost. The marks are no longer needed, because writing them has
/// already put the items into the stream.
pub(super) async fn clear_left(
    worker: &Worker<'_>,
    task: &Task,
    items: &[Item],
    tally: &mut Tally,
) -> Result<(), Failure> {
    let schema = worker.migration.schema(&task.table).ok_or_else(|| unknown(&task.table))?;
    let marks = [worker.migration.name(), TOUCH_OF_CUTOVER];
    let marked: Vec<_> = items
        .iter()
        .filter_map(|item| {
            let mark = item.get(TOUCH)?.as_str()?;
            let of = marks.into_iter().find(|of| *of == mark)?;
            Some(async move { clear(worker, &task.table, &key_of(item, schema), of).await })
        })
        .collect();
    let at_once = worker.control.throttling.concurrency();
    let mut cleared = stream::iter(marked).buffer_unordered(at_once);
    while let Some(done) = cleared.next().await {
        tally.count("unmarked", usize::from(matches!(done?, TouchOutcome::Done)));
    }
    Ok(())
}

/// Sets the mark on an item, unless the plan produces no target from the item. If the plan produces
/// a target from a later version of the item, the functions apply the stream record of that
/// version.
async fn mark(
    worker: &Worker<'_>,
    table: &str,
    item: &Item,
    key: &Item,
    partition: &str,
) -> Result<TouchOutcome, Failure> {
    match worker.migration.selects(table, item) {
        Ok(true) => {}
        Ok(false) => return Ok(TouchOutcome::Gone),
        Err(error) => return Ok(TouchOutcome::Refused(error.to_string())),
    }
    let update = Update {
        expression: "SET #touch = :touch",
        condition: "attribute_exists(#key)",
        names: &[("#touch", TOUCH), ("#key", partition)],
        of: worker.migration.name(),
    };
    write(worker, table, key, &update).await
}

async fn clear(
    worker: &Worker<'_>,
    table: &str,
    key: &Item,
    of: &str,
) -> Result<TouchOutcome, Failure> {
    let update = Update {
        expression: "REMOVE #touch",
        condition: "#touch = :touch",
        names: &[("#touch", TOUCH)],
        of,
    };
    write(worker, table, key, &update).await
}

async fn write(
    worker: &Worker<'_>,
    table: &str,
    key: &Item,
    Update { expression, condition, names, of }: &Update<'_>,
) -> Result<TouchOutcome, Failure> {
    let mut attempts = RetryPolicy::CONTENDED.attempts();
    let mut failure = String::new();
    while attempts.next().await {
        let names = names.iter().map(|(name, of)| ((*name).to_owned(), (*of).to_owned()));
        let of = SdkValue::S((*of).to_owned());
        let request = worker.control.client.update_item().table_name(table);
        let request = request
            .set_key(Some(to_sdk_item(key)))
            .update_expression(*expression)
            .condition_expression(*condition)
            .set_expression_attribute_names(Some(names.collect()))
            .expression_attribute_values(":touch", of);
        let Err(error) = request.send().await else { return Ok(TouchOutcome::Done) };
        let service = error.as_service_error();
        match service.and_then(ProvideErrorMetadata::code) {
            Some("ConditionalCheckFailedException") => return Ok(TouchOutcome::Gone),
            Some("ValidationException") => {
                let message = service.and_then(ProvideErrorMetadata::message).unwrap_or_default();
                return Ok(TouchOutcome::Refused(message.to_owned()));
            }
            _ => match request_failure("UpdateItem", table, PLAN_TABLE, &error) {
                Failure::Retry(reason) => failure = reason,
                fatal @ Failure::Fatal(_) => return Err(fatal),
            },
        }
    }
    Err(Failure::Retry(failure))
}
