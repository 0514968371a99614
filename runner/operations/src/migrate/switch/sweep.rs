//! Removes tombstones (markers of deleted items) that are no longer required.
//!
//! An invocation from before a switch may hang, and put an old item late. A tombstone makes this
//! put fail. Therefore no tombstone is removed until every invocation from before the switch has
//! timed out.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue as Sdk, ReturnValue};
use control::{Entry as _, PARTITION_KEY, SORT_KEY, Tombstone, tombstone_partitions};
use futures::StreamExt as _;
use model::json::{item_from_str, item_to_string};
use model::{AttributeValue, Item, KeySchema};
use rules::migration::{MARK, Plan, Registers, is_bare_tombstone, unmarked};

use crate::migrate::context::Context;
use crate::migrate::failure::{Result, fatal};
use crate::migrate::plan::tables;
use client::attribute::{from_sdk_item, to_sdk_item, to_sdk_value};
use client::endpoint;
use client::output::{counted, say};
use client::sdk_error::{error_text, is_condition_failed};
use client::server_date;

/// Seconds for which a request may be in flight after its invocation has ended.
const REQUEST_SECONDS: u64 = 5;
/// Number of concurrent removals of tombstones.
const AT_ONCE: usize = 32;
/// Interval of progress messages.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// Returns real time in seconds since 1970, for the age of invocations. Normally this is the time
/// in the store's responses, because commands may run on different machines. The clock of a local
/// store may be advanced, so for a local store, the clock of this machine is used.
pub(crate) async fn real_seconds(context: &Context) -> u64 {
    let told = match endpoint::ask_clock(&context.endpoint).await {
        Some(_) => None,
        None => server_date::seconds(&context.control.client).await,
    };
    let told = told.and_then(|seconds| u64::try_from(seconds).ok());
    told.unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
    })
}

/// Returns the seconds until every invocation from before the last switch has ended.
pub(crate) fn seconds_left(switched_at: u64, function_seconds: u32, now: u64) -> u64 {
    let ends = switched_at + u64::from(function_seconds) + REQUEST_SECONDS;
    // If the clock was set back, the wait is limited to the maximum duration of an invocation.
    ends.saturating_sub(now).min(u64::from(function_seconds) + REQUEST_SECONDS)
}

/// Waits until every invocation from before the last switch has ended, and then removes every
/// tombstone. Returns the number of removed tombstones, or `None` if the time limit was reached.
/// The time limit begins after the wait.
pub(crate) async fn after_invocations(
    context: &Context,
    name: &str,
    plan: &Plan,
    limit: Duration,
) -> Result<Option<u64>> {
    wait(context, name, plan, "then tombstones are removed").await?;
    sweep(context, name, limit).await
}

/// Waits until every invocation from before the last switch has ended.
pub(crate) async fn wait(context: &Context, name: &str, plan: &Plan, then: &str) -> Result<()> {
    let (state, begun) = (context.state(name).await?, Instant::now());
    loop {
        let switched_at = state.switched_at.unwrap_or(0);
        let now = real_seconds(context).await;
        let left = seconds_left(switched_at, plan.function_seconds, now);
        // After a wait of the maximum duration of an invocation, every running invocation has begun
        // after the switch, even if clocks were changed.
        let longest = u64::from(plan.function_seconds) + REQUEST_SECONDS;
        if left == 0 || begun.elapsed().as_secs() > longest {
            return Ok(());
        }
        say(&format!(
            "waiting {left} s until the last invocation from before the switch has ended; {then}"
        ));
        tokio::time::sleep(Duration::from_secs(left).min(SAY_EVERY)).await;
    }
}

/// The action for an item of which the control table records a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CleaningAction {
    /// The item does not exist, is no longer a tombstone, or does not belong to the migration.
    Leave,
    /// The item is a tombstone.
    Delete,
    /// A client's update has turned the tombstone into an item that still has the mark.
    Unmark,
}

impl CleaningAction {
    fn of(stands: Option<&Item>, schema: &KeySchema) -> Self {
        let registers = stands.and_then(|item| Registers::from_item(item).ok());
        match stands.filter(|_| registers.is_some_and(|registers| registers.is_tombstone())) {
            None => Self::Leave,
            Some(item) if is_bare_tombstone(item, schema) => Self::Delete,
            Some(_) => Self::Unmark,
        }
    }
}

/// Removes every recorded tombstone, unless a client has replaced it by an item. Returns the number
/// of removed tombstones. After the time limit, reports the timeout and returns `None`; the next
/// sweep removes the others. The caller must have waited for all invocations from before the
/// switch.
pub(crate) async fn sweep(context: &Context, name: &str, limit: Duration) -> Result<Option<u64>> {
    let mut schemas: BTreeMap<String, KeySchema> = BTreeMap::new();
    let begun = Instant::now();
    let (mut swept, mut looked, mut said) = (0, 0_u64, begun);
    let partitions = tombstone_partitions(name);
    let last = partitions.len().saturating_sub(1);
    for (number, partition) in partitions.enumerate() {
        let notes: Vec<Tombstone> = context.control.list(&partition, Tombstone::PREFIX).await?;
        for Tombstone { table, .. } in &notes {
            if !schemas.contains_key(table) {
                let schema = tables::schema(&context.control.client, table).await?;
                schemas.insert(table.clone(), schema);
            }
        }
        // A removal that has started is not cancelled, because it may have to restore an item.
        let mut left = notes.len();
        let in_time = notes.iter().take_while(|_| begun.elapsed() < limit).inspect(|_| left -= 1);
        let sweeps = in_time.map(|note| sweep_one(context, note, &schemas));
        let mut sweeps = futures::stream::iter(sweeps).buffer_unordered(AT_ONCE);
        while let Some(is_swept) = sweeps.next().await {
            swept += u64::from(is_swept?);
            looked += 1;
            if said.elapsed() > SAY_EVERY {
                let notes = counted(looked, "tombstone entry is", "tombstone entries are");
                let removed = counted(swept, "tombstone", "tombstones");
                say(&format!("{notes} processed, {removed} removed"));
                said = Instant::now();
            }
        }
        drop(sweeps);
        if left > 0 || (number < last && begun.elapsed() >= limit) {
            say(&format!(
                "timed out after {} s: {} removed; run the command again, with a larger --timeout, to remove the others",
                limit.as_secs(),
                counted(swept, "tombstone is", "tombstones are")
            ));
            return Ok(None);
        }
    }
    Ok(Some(swept))
}

/// Removes one tombstone and its entry in the control table. Returns true if the item was a
/// tombstone.
async fn sweep_one(
    context: &Context,
    note: &Tombstone,
    schemas: &BTreeMap<String, KeySchema>,
) -> Result<bool> {
    let Tombstone { table, key, at, .. } = note;
    let Some(schema) = schemas.get(table) else { return Ok(false) };
    let key = item_from_str(key).map_err(|error| {
        format!("a tombstone entry of the control table has an invalid key: {error}")
    })?;
    let is_swept = match remove(&context.control.client, table, schema, &key).await? {
        RemovalResult::Tombstone => true,
        RemovalResult::Nothing => false,
        // The tombstone was written again, so its entry is not removed.
        RemovalResult::Changed => return Ok(false),
    };
    let request = context.control.client.delete_item().table_name(&context.control.table);
    let request = request
        .key(PARTITION_KEY, Sdk::S(note.partition()))
        .key(SORT_KEY, Sdk::S(note.name()))
        .condition_expression("#at = :at")
        .expression_attribute_names("#at", "at")
        .expression_attribute_values(":at", Sdk::S(at.clone()));
    // If the entry has changed, its removal fails, and the next sweep handles the entry.
    let _ = request.send().await;
    Ok(is_swept)
}

/// The result of the removal of a tombstone or a mark.
enum RemovalResult {
    Tombstone,
    Nothing,
    /// A client wrote the item after this module had read it, so nothing was removed.
    Changed,
}

/// Removes a tombstone if its mark has not changed.
async fn remove(
    client: &Client,
    table: &str,
    schema: &KeySchema,
    key: &Item,
) -> Result<RemovalResult> {
    let stands = tables::get(client, table, key).await?;
    let done = CleaningAction::of(stands.as_ref(), schema);
    let Some(mark) =
        stands.as_ref().filter(|_| done != CleaningAction::Leave).and_then(|i| i.get(MARK))
    else {
        return Ok(RemovalResult::Nothing);
    };
    if done == CleaningAction::Unmark {
        return unmark(client, table, key, mark).await;
    }
    let request = client.delete_item().table_name(table);
    let request = request
        .set_key(Some(to_sdk_item(key)))
        .condition_expression("#mark = :mark")
        .expression_attribute_names("#mark", MARK)
        .expression_attribute_values(":mark", to_sdk_value(mark))
        .return_values(ReturnValue::AllOld);
    match request.send().await {
        Ok(answer) => {
            let old = answer.attributes.map(from_sdk_item).transpose()?;
            if let Some(item) = old.filter(|item| !is_bare_tombstone(item, schema)) {
                put_back(client, table, schema, &item).await?;
                return Ok(RemovalResult::Nothing);
            }
            Ok(RemovalResult::Tombstone)
        }
        Err(error) if is_condition_failed(&error) => Ok(RemovalResult::Changed),
        Err(error) => Err(fatal!("cannot remove a tombstone: {}", error_text(&error))),
    }
}

/// Removes the mark from an item that a client's update has created from a tombstone.
async fn unmark(
    client: &Client,
    table: &str,
    key: &Item,
    mark: &AttributeValue,
) -> Result<RemovalResult> {
    let request = client.update_item().table_name(table);
    let request = request
        .set_key(Some(to_sdk_item(key)))
        .update_expression("REMOVE #mark")
        .condition_expression("#mark = :mark")
        .expression_attribute_names("#mark", MARK)
        .expression_attribute_values(":mark", to_sdk_value(mark));
    match request.send().await {
        Ok(_) => Ok(RemovalResult::Nothing),
        Err(error) if is_condition_failed(&error) => Ok(RemovalResult::Changed),
        Err(error) => Err(fatal!("cannot remove the mark of an item: {}", error_text(&error))),
    }
}

/// Restores an item that was removed by mistake: a client's update changed the tombstone into this
/// item after the tombstone was read and before it was removed. The removal cannot prevent this,
/// because no condition expression can require that an item has no attributes except its key.
async fn put_back(client: &Client, table: &str, schema: &KeySchema, item: &Item) -> Result<()> {
    let request = client.put_item().table_name(table);
    let request = request
        .set_item(Some(to_sdk_item(&unmarked(item))))
        .condition_expression("attribute_not_exists(#key)")
        .expression_attribute_names("#key", &schema.partition.name);
    match request.send().await {
        Ok(_) => Ok(()),
        // A later write by a client takes precedence over the restored item.
        Err(error) if is_condition_failed(&error) => Ok(()),
        Err(error) => Err(fatal!(
            "an item of `{table}` that was written while its tombstone was removed could not be restored: {}; write this item yourself: {}",
            error_text(&error),
            item_to_string(&unmarked(item))
        )),
    }
}

#[cfg(test)]
mod tests {
    use model::{KeyAttribute, KeyAttributeType};

    use super::*;

    #[test]
    fn an_item_updated_from_a_tombstone_is_kept() {
        let attribute_type = KeyAttributeType::S;
        let partition = KeyAttribute { name: "p".to_owned(), attribute_type };
        let schema = KeySchema { partition, sort: None };
        let stamp = format!("/{}", "0".repeat(40));
        let gone = format!(
            r#""_weir":{{"M":{{"from":{{"S":"a"}},"at":{{"S":"{stamp}"}},"gone":{{"BOOL":true}}}}}}"#
        );
        let live = gone.replace(r#","gone":{"BOOL":true}"#, "");
        for (item, expected) in [
            (r#"{"p":{"S":"1"},$}"#.replace('$', &gone), CleaningAction::Delete),
            (
                r#"{"p":{"S":"1"},"status":{"S":"new"},$}"#.replace('$', &gone),
                CleaningAction::Unmark,
            ),
            (r#"{"p":{"S":"1"},$}"#.replace('$', &live), CleaningAction::Leave),
            (r#"{"p":{"S":"1"},"status":{"S":"new"}}"#.to_owned(), CleaningAction::Leave),
        ] {
            let stands = item_from_str(&item).unwrap();
            assert_eq!(CleaningAction::of(Some(&stands), &schema), expected, "{item}");
        }
        assert_eq!(CleaningAction::of(None, &schema), CleaningAction::Leave);
    }

    #[test]
    fn tombstones_outlive_every_invocation() {
        for (switched_at, function_seconds, now, left) in [
            (1_000, 60, 1_000, 65),
            (1_000, 60, 1_064, 1),
            (1_000, 60, 1_065, 0),
            (1_000, 900, 1_065, 840),
            // An older version wrote the state without the time of the switch.
            (0, 60, 1_000, 0),
            // The clock was set back by an hour.
            (5_000, 60, 1_400, 65),
        ] {
            assert_eq!(
                seconds_left(switched_at, function_seconds, now),
                left,
                "{switched_at} {now}"
            );
        }
    }
}
