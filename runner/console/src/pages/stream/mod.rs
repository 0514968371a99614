//! Stream: the newest records, each with the verdict of every mapping, and a search by key.

mod arrivals;
mod html;
mod view;

use client::item_key;
use futures::future::try_join_all;
use local::explain::{Found, Verdict, verdicts_of_newest};
use model::Item;

pub(crate) use self::arrivals::{Arrivals, Arrived};
pub(crate) use self::html::{class, html, key, redrive};
pub(crate) use self::view::state;
use self::view::{Mapping, Row, View};
use crate::context::Context;
use crate::error::PageError;
use crate::newest::{Newest, newest, sort};
use crate::query::{Query, href};

/// The default number of records that a page shows.
const RECORDS: usize = 25;

/// The maximum number of records that a page shows.
const RECORDS_MAX: usize = 100;

/// The maximum number of tables whose streams are read if the query names no table.
const TABLES_MAX: usize = 12;

/// Collects the data of the page Stream. The query may have the fields `table`, `key` and `limit`.
///
/// # Errors
/// A value of the query is invalid, or the store does not answer.
pub(crate) async fn view(context: &Context, query: &Query) -> Result<View, PageError> {
    let limit = query.number("limit", RECORDS, RECORDS_MAX)?;
    let key = query.get("key").map(key_of).transpose()?;
    let table = query.get("table").map(str::to_owned);
    if key.is_some() && table.is_none() {
        let instead = "the table of the item";
        return Err(PageError::bad_input("table", "a key requires a table", instead));
    }
    let (tables, all) = match &table {
        // The list of tables is needed only for the form, so both requests are sent concurrently.
        Some(table) => {
            let own = newest(context, table, limit, key.as_ref());
            let (tables, own) = tokio::join!(tables(context), own);
            let tables = tables?;
            check_table(&tables, Some(table))?;
            (tables, own?)
        }
        None => {
            let tables = tables(context).await?;
            let all = newest_of_all(context, &tables, limit).await?;
            (tables, all)
        }
    };
    let (records, verdicts) = with_verdicts(context, all.records).await?;
    let fields: Vec<(&str, &str)> = query.fields().filter(|(name, _)| *name != "notice").collect();
    let rows = records.iter().zip(&verdicts).map(|(found, verdicts)| row(found, verdicts));
    Ok(View {
        schema: "weir.console.stream/v1",
        address: href(&["stream"], &fields),
        tables,
        table,
        key: query.get("key").map(str::to_owned),
        limit,
        knows_verdicts: context.running().is_some(),
        records: rows.collect(),
        records_read: all.read,
        since_s: all.since_s,
        is_cut: all.is_cut,
    })
}

/// Reads the newest records of the first [`TABLES_MAX`] tables.
async fn newest_of_all(
    context: &Context,
    tables: &[String],
    limit: usize,
) -> Result<Newest, PageError> {
    let tables = tables.iter().take(TABLES_MAX);
    let reads: Vec<_> = tables.map(|table| newest(context, table, limit, None)).collect();
    let mut all = Newest::default();
    for own in try_join_all(reads).await? {
        all.records.extend(own.records);
        all.read += own.read;
        all.is_cut |= own.is_cut;
        all.since_s = all.since_s.max(own.since_s);
    }
    sort(&mut all.records);
    all.records.truncate(limit);
    Ok(all)
}

/// Checks that the chosen table, if any, has a stream.
///
/// # Errors
/// The table has no stream, or does not exist.
pub(crate) fn check_table(tables: &[String], chosen: Option<&str>) -> Result<(), PageError> {
    match chosen {
        Some(table) if !tables.iter().any(|known| known == table) => {
            Err(PageError::NotFound { what: format!("a table `{table}` with a stream") })
        }
        _ => Ok(()),
    }
}

/// Returns the names of the tables with a stream.
pub(crate) async fn tables(context: &Context) -> Result<Vec<String>, PageError> {
    let arns = client::shards::arns(context.streams(), None).await?;
    let name = |arn: &String| arn.split_once(":table/")?.1.split('/').next().map(str::to_owned);
    let mut names: Vec<String> = arns.iter().filter_map(name).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// Parses the key of an item.
fn key_of(text: &str) -> Result<Item, PageError> {
    item_key::parse(text).map_err(|error| PageError::bad_input("key", error, r#"{"id":"a"}"#))
}

/// Adds the verdicts of the mappings to records. Without a running `weir up`, there are no
/// verdicts.
async fn with_verdicts(
    context: &Context,
    records: Vec<Found>,
) -> Result<(Vec<Found>, Vec<Vec<Verdict>>), PageError> {
    let Some(directory) = context.directory() else {
        let verdicts = records.iter().map(|_| Vec::new()).collect();
        return Ok((records, verdicts));
    };
    let read = tokio::task::spawn_blocking(move || {
        let verdicts = verdicts_of_newest(&records, &directory, true);
        (records, verdicts)
    });
    read.await.map_err(|error| PageError::Store(error.to_string()))
}

fn row(found: &Found, verdicts: &[Verdict]) -> Row {
    let event = found.record.event();
    let text = |name: &str| event.get(name).and_then(serde_json::Value::as_str).map(str::to_owned);
    Row {
        sequence: found.record.sequence.as_str().to_owned(),
        table: found.table.clone(),
        shard: found.shard.clone(),
        at_s: found.record.creation_s,
        event_name: text("eventName").unwrap_or_default(),
        by_ttl: event.get("userIdentity").is_some(),
        keys: event.pointer("/dynamodb/Keys").cloned().unwrap_or_default(),
        mappings: verdicts.iter().map(Mapping::of).collect(),
    }
}
