//! Checks that functions or workers (followers) read the streams of the targets. A later revert
//! requires followers, because a stream keeps records for only a day.
//!
//! When a follower is invoked for a table, it writes a heartbeat (an entry with the time) into the
//! control table. A stream without records invokes no function. If a heartbeat is old, this module
//! therefore updates an item that the migration wrote, as a probe, and waits for a new heartbeat.

use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue as Sdk;
use control::{FollowedTable, SHARED, State};
use model::{AttributeValue, Item};
use rules::migration::plan::{Direction, NOTED_EVERY_SECONDS, Plan};
use rules::migration::{MARK, MARK_FROM, SourceItem, TOUCH, TOUCH_OF_CUTOVER, key_of};

use crate::migrate::context::{Context, LOOK_EVERY};
use crate::migrate::failure::{Result, fatal};
use crate::migrate::plan::tables;
use crate::migrate::switch::inverse_check;
use client::attribute::{from_sdk_item, to_sdk_item};
use client::contention::{Attempts, NotApplied};
use client::output::say;
use client::sdk_error::{error_text, is_condition_failed};
use client::server_date;

/// Seconds for which a heartbeat counts as current: the interval between heartbeats, plus 5 for
/// rounding and clock skew.
const FRESH_SECONDS: i64 = NOTED_EVERY_SECONDS.cast_signed() + 5;
/// Maximum number of pages of a target table that are read to find an item for the probe. Ten pages
/// suffice, because nearly every item is suitable.
const PAGES_MAX: usize = 10;
/// Number of items in each page that is read to find an item for the probe.
const PAGE_ITEMS: i32 = 100;
/// Minimum wait for a heartbeat, because an idle function takes seconds to start. Writers are not
/// blocked during the wait.
const WAIT_LEAST: Duration = Duration::from_secs(10);
/// Time after which the wait is reported. A running follower normally writes its heartbeat earlier.
const SAID_AFTER: Duration = Duration::from_secs(3);

/// Returns true if a follower of a table's stream has written a heartbeat since `second` (seconds
/// since 1970), with a tolerance for clock skew.
async fn is_noted(context: &Context, table: &str, second: i64) -> Result<bool> {
    let noted = noted_at(context, table).await?;
    Ok(noted.is_some_and(|at| at.saturating_add(FRESH_SECONDS) >= second))
}

/// Returns true if a follower of a table's stream has a current heartbeat; false also if the
/// heartbeat cannot be read.
pub(crate) async fn is_noted_now(context: &Context, table: &str) -> bool {
    match server_date::seconds(&context.control.client).await {
        Some(now) => is_fresh(context, table, now).await.unwrap_or(false),
        None => false,
    }
}

/// Returns true if the heartbeat of a table is current. A heartbeat from the future does not count,
/// because it was written before the clock was set back.
async fn is_fresh(context: &Context, table: &str, now: i64) -> Result<bool> {
    let noted = noted_at(context, table).await?;
    Ok(noted.is_some_and(|at| at.abs_diff(now) <= FRESH_SECONDS.unsigned_abs()))
}

/// Returns the time of the last heartbeat of a table, in seconds since 1970; `None` without one.
async fn noted_at(context: &Context, table: &str) -> Result<Option<i64>> {
    let name = FollowedTable::name_of(table);
    let note: Option<FollowedTable> = context.control.get(SHARED, &name).await?;
    Ok(note.map(|note| i64::try_from(note.at).unwrap_or(i64::MAX)))
}

/// Checks before a cut-over that functions read the streams of the targets, if the plan allows a
/// revert. Returns false and reports the streams if some have no follower. If that cannot be
/// determined, reports this and returns true.
///
/// # Errors
/// When the control table cannot be read.
pub(crate) async fn are_seen(
    context: &Context,
    plan: &Plan,
    state: &State,
    limit: Duration,
) -> Result<bool> {
    are_seen_within(context, plan, state, limit.max(WAIT_LEAST)).await
}

async fn are_seen_within(
    context: &Context,
    plan: &Plan,
    state: &State,
    limit: Duration,
) -> Result<bool> {
    if !inverse_check::has_one(plan) {
        return Ok(true);
    }
    let mut unseen = Vec::new();
    let now = server_date::seconds(&context.control.client).await;
    for table in plan.source_tables(Direction::Reverse) {
        let is_seen = match now {
            Some(now) => is_fresh(context, table, now).await?,
            None => false,
        };
        if !is_seen {
            unseen.push(table);
        }
    }
    if unseen.is_empty() {
        return Ok(true);
    }
    // Functions of older versions write no heartbeats, even if they read the stream. A heartbeat
    // of the control table shows that the running function writes heartbeats.
    let tells = is_noted(context, &context.control.table, state.since).await?;
    let (Some(now), true) = (now, tells) else {
        say(&format!(
            "cannot check that a function reads {} (required for a revert): the running functions do not report which streams they read",
            streams(&unseen)
        ));
        return Ok(true);
    };
    let asked = ask(context, plan, &unseen).await;
    answered(context, plan, asked, now, limit).await
}

/// Writes a probe record to each table, and returns the tables for which that succeeded.
async fn ask<'t>(context: &Context, plan: &Plan, tables: &[&'t str]) -> Vec<&'t str> {
    let sources = plan.source_tables(Direction::Forward);
    let mut asked = Vec::new();
    for table in tables {
        let why = match touch(&context.control.client, table, &sources).await {
            Ok(true) => {
                asked.push(*table);
                continue;
            }
            Ok(false) => {
                "the table has no item of this migration that can serve as a probe".to_owned()
            }
            Err(failure) => failure.to_string(),
        };
        say(&format!(
            "cannot check that a function reads {} (required for a revert): {why}",
            streams(&[table])
        ));
    }
    asked
}

/// Waits for a heartbeat of each table, written since `second`; reports a timeout.
async fn answered(
    context: &Context,
    plan: &Plan,
    mut asked: Vec<&str>,
    second: i64,
    limit: Duration,
) -> Result<bool> {
    let (begun, mut is_told, name) = (Instant::now(), false, &plan.migration);
    loop {
        let mut unseen = Vec::new();
        for table in asked {
            // A failed read is repeated. The time limit of this function also bounds these retries.
            if !is_noted(context, table, second).await.unwrap_or(false) {
                unseen.push(table);
            }
        }
        if unseen.is_empty() {
            return Ok(true);
        }
        if begun.elapsed() >= limit {
            say(&format!(
                "no function read {} within {} s, so writes to the targets would not be copied back, and `weir migrate revert {name}` would fail. Run `weir migrate work {name}`, or add an event of each stream to the function `migration`. If the version of the function does not report the streams that it reads, use `weir migrate cutover {name} --without-followers`. Nothing was changed: readers and writers use the sources",
                streams(&unseen),
                limit.as_secs()
            ));
            return Ok(false);
        }
        if !is_told && begun.elapsed() > SAID_AFTER {
            say(&format!(
                "waiting for a function to read {} (required for a revert)",
                streams(&unseen)
            ));
            is_told = true;
        }
        asked = unseen;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Formats the names of the tables' streams for a message.
fn streams(tables: &[&str]) -> String {
    let names: Vec<String> = tables.iter().map(|table| format!("`{table}`")).collect();
    let what = if names.len() == 1 { "the stream of" } else { "the streams of" };
    format!("{what} {}", names.join(", "))
}

/// Probes a target table with two updates of an item that the migration wrote from one of the
/// sources. The first update adds an attribute that transforms and comparisons ignore; the second
/// update removes the attribute. Returns false if there is no suitable item.
///
/// # Errors
/// When the table cannot be read or written.
async fn touch(client: &Client, table: &str, sources: &[&str]) -> Result<bool> {
    let Some(key) = written(client, table, sources).await? else { return Ok(false) };
    let update = || client.update_item().table_name(table).set_key(Some(to_sdk_item(&key)));
    let name = |update: UpdateItemFluentBuilder| update.expression_attribute_names("#touch", TOUCH);
    let set = name(update()).update_expression("SET #touch = :touch");
    let set = set.condition_expression("attribute_exists(#mark)");
    let set = set.expression_attribute_names("#mark", MARK);
    // The attribute is removed even if the first update fails, because this update may have
    // succeeded although its response was lost.
    let set = sent(table, set).await;
    let mut attempts = Attempts::first();
    loop {
        let remove = name(update()).update_expression("REMOVE #touch");
        match sent(table, remove.condition_expression("#touch = :touch")).await {
            Ok(()) => return set.map(|()| true),
            Err(why) if !attempts.after(NotApplied::Throttled).await => {
                return Err(fatal!(
                    "{why}; if an item of `{table}` still has the attribute `{TOUCH}`, remove that attribute"
                ));
            }
            Err(_) => {}
        }
    }
}

/// Sends one of the two updates of a probe. If a client has changed the item since it was read, the
/// update fails its condition. This is no error, because the client's change adds a stream record
/// too.
async fn sent(table: &str, update: UpdateItemFluentBuilder) -> Result<()> {
    let update = update.expression_attribute_values(":touch", Sdk::S(TOUCH_OF_CUTOVER.to_owned()));
    match update.send().await {
        Ok(_) => Ok(()),
        Err(error) if is_condition_failed(&error) => Ok(()),
        Err(error) => Err(fatal!("cannot update an item of `{table}`: {}", error_text(&error))),
    }
}

/// Returns true if the mark of a target item names one of the source tables. Other migrations may
/// write into the same target.
fn is_made_of(item: &Item, sources: &[&str]) -> bool {
    let mark = item.get(MARK).and_then(AttributeValue::as_map);
    let from = mark.and_then(|mark| mark.get(MARK_FROM)).and_then(AttributeValue::as_str);
    let from = from.and_then(|from| from.parse::<SourceItem>().ok());
    from.is_some_and(|from| sources.contains(&from.table.as_str()))
}

/// Returns the key of an item that the migration wrote from one of the sources; `None` if the first
/// `PAGES_MAX` pages have no such item.
async fn written(client: &Client, table: &str, sources: &[&str]) -> Result<Option<Item>> {
    let schema = tables::schema(client, table).await?;
    let mut start = None;
    for _ in 0..PAGES_MAX {
        let request = client.scan().table_name(table).limit(PAGE_ITEMS);
        let answer = request
            .filter_expression("attribute_exists(#mark)")
            .expression_attribute_names("#mark", MARK)
            .set_exclusive_start_key(start)
            .send()
            .await
            .map_err(|error| format!("cannot read table `{table}`: {}", error_text(&error)))?;
        for item in answer.items.unwrap_or_default() {
            let item = from_sdk_item(item)?;
            if is_made_of(&item, sources) {
                return Ok(Some(key_of(&item, &schema)));
            }
        }
        start = answer.last_evaluated_key;
        if start.is_none() {
            return Ok(None);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt as _;

    use super::*;
    use crate::migrate::switch::switching_tests::{Served, plan, plan_with_way_back, serve};
    use client::output::Output;
    use testing::proxy;

    /// Writes a current heartbeat of a table, with the time of the store's responses.
    async fn note(served: &Served, table: &str) {
        let control = &served.context.control;
        let now = server_date::seconds(&control.client).await.unwrap();
        let at = u64::try_from(now).unwrap();
        control.put(&FollowedTable { table: table.to_owned(), at }).await.unwrap();
    }

    /// Writes a target item with the mark that a migration adds.
    async fn written_target(served: &Served) {
        let put = served
            .context
            .control
            .client
            .put_item()
            .table_name("pets")
            .item("p", Sdk::S("k".to_owned()));
        put.item(MARK, made_of("cats")).send().await.unwrap();
    }

    /// Returns the mark of a target item whose source item is in `table`.
    fn made_of(table: &str) -> Sdk {
        Sdk::M([("from".to_owned(), Sdk::S(format!(r#"{table}|{{"p":{{"S":"k"}}}}"#)))].into())
    }

    async fn is_seen(context: &Context, limit: Duration) -> bool {
        let state = State { since: 1, ..State::new("move") };
        are_seen_within(context, &plan_with_way_back(), &state, limit).await.unwrap()
    }

    #[tokio::test]
    async fn missing_followers_are_detected_and_unknown_ones_are_no_obstacle() {
        let served = serve().await;
        let context = &served.context;
        written_target(&served).await;
        assert!(is_seen(context, Duration::ZERO).await, "older functions write no notes");
        note(&served, "weir-migrations").await;
        assert!(!is_seen(context, Duration::ZERO).await);
        let state = State { since: 1, ..State::new("move") };
        let for_good = plan();
        let seen = are_seen_within(context, &for_good, &state, Duration::ZERO);
        assert_eq!(seen.await, Ok(true), "the plan has no `inverse`");
        // After the probe, the item is the same as before.
        let key = served
            .context
            .control
            .client
            .get_item()
            .table_name("pets")
            .key("p", Sdk::S("k".to_owned()));
        let item = key.send().await.unwrap().item.unwrap();
        assert!(item.len() == 2 && item.contains_key(MARK), "{item:?}");
        // The probe does not update items without a mark or with the mark of another migration, so
        // it is unknown whether a function reads the stream.
        for mark in [None, Some(made_of("dogs"))] {
            let put = served.context.control.client.put_item().table_name("pets");
            let put = mark
                .into_iter()
                .fold(put.item("p", Sdk::S("k".to_owned())), |put, it| put.item(MARK, it));
            put.send().await.unwrap();
            assert!(is_seen(context, Duration::ZERO).await);
        }
    }

    #[tokio::test]
    async fn a_touch_invokes_followers_and_is_omitted_if_they_are_known() {
        let served = Arc::new(serve().await);
        written_target(&served).await;
        note(&served, "weir-migrations").await;
        // This task acts as a function that is invoked with the records of both updates.
        let (touches, of_script) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&served));
        let counted = Arc::clone(&touches);
        let script = move |operation: &str, _: &str| {
            let (is_touch, served) = (operation == "UpdateItem", Arc::clone(&of_script));
            counted.fetch_add(usize::from(is_touch), Ordering::SeqCst);
            async move {
                if is_touch {
                    note(&served, "pets").await;
                }
                None
            }
            .boxed()
        };
        let url = proxy::before(&served.context.endpoint, script).await;
        let context = Context::new(&url, "weir-migrations", Output::Table);
        assert!(is_seen(&context, Duration::from_secs(600)).await);
        assert_eq!(touches.load(Ordering::SeqCst), 2);
        note(&served, "pets").await;
        assert!(is_seen(&context, Duration::ZERO).await);
        assert_eq!(touches.load(Ordering::SeqCst), 2);
    }
}
