//! Describes tables and reads their items, for plans and migrations.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::TableDescription;
use design::capacity::IndexShape;
use futures::{StreamExt, TryStreamExt, stream};
use model::{AttributeValue, Item, KeySchema};
use rules::migration::plan::{Direction, Plan};

pub(crate) use crate::batches::get_all;
use crate::migrate::failure::{Result, fatal};
use crate::migrate::plan::indexes;
use client::attribute::{from_sdk_item, to_sdk_item, to_sdk_value};
use client::sdk_error::{error_text, is_not_found};
use client::table_description::schema_of;

/// Number of tables that are described concurrently. AWS allows ten `DescribeTable` requests per
/// second.
const DESCRIBED_AT_ONCE: usize = 5;

/// Maximum number of tables in a message.
const NAMED_MAX: i32 = 20;

/// A table of a plan.
#[derive(Clone, Debug)]
pub(crate) struct TableFacts {
    pub(crate) schema: KeySchema,
    /// Number of items as `DescribeTable` returns it; on AWS, the number may be up to six hours
    /// old.
    pub(crate) items: u64,
    pub(crate) bytes: u64,
    /// The view type of the table's stream; `None` if the table has no stream.
    pub(crate) stream: Option<String>,
    pub(crate) provisioned_write_units: u64,
    /// The indexes of the table, global and local.
    pub(crate) indexes: Vec<IndexShape>,
}

/// Describes every table of a plan; omits missing tables.
pub(crate) async fn describe(client: &Client, plan: &Plan) -> Result<BTreeMap<String, TableFacts>> {
    let mut names = BTreeSet::new();
    for direction in [Direction::Forward, Direction::Reverse] {
        names.extend(plan.source_tables(direction));
        names.extend(plan.target_tables(direction));
    }
    let described: Vec<_> = names.into_iter().map(|name| facts_of(client, name)).collect();
    let described = stream::iter(described).buffered(DESCRIBED_AT_ONCE);
    let tables: Vec<_> = described.try_collect().await?;
    Ok(tables.into_iter().flatten().collect())
}

/// Describes a table; `None` if it is missing.
async fn facts_of(client: &Client, name: &str) -> Result<Option<(String, TableFacts)>> {
    match client.describe_table().table_name(name).send().await {
        Ok(answer) => {
            let facts = answer.table.as_ref().and_then(facts);
            let facts = facts.ok_or_else(|| {
                format!("DescribeTable returned an incomplete description of `{name}`")
            })?;
            Ok(Some((name.to_owned(), facts)))
        }
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(fatal!("cannot describe table `{name}`: {}", error_text(&error))),
    }
}

/// Returns the names of the first tables of a store, at most `NAMED_MAX`.
///
/// # Errors
/// When the tables cannot be listed.
pub(crate) async fn names(client: &Client) -> Result<Vec<String>> {
    let answer = client.list_tables().limit(NAMED_MAX).send().await;
    let answer = answer.map_err(|error| format!("cannot list tables: {}", error_text(&error)))?;
    let has_more = answer.last_evaluated_table_name.is_some();
    let mut names = answer.table_names.unwrap_or_default();
    names.extend(has_more.then(|| "others".to_owned()));
    Ok(names)
}

/// Returns the key schema of a table.
pub(crate) async fn schema(client: &Client, table: &str) -> Result<KeySchema> {
    let answer = client.describe_table().table_name(table).send().await;
    let answer = answer
        .map_err(|error| format!("cannot describe table `{table}`: {}", error_text(&error)))?;
    let facts = answer.table.as_ref().and_then(facts);
    Ok(facts
        .ok_or_else(|| format!("DescribeTable returned an incomplete description of `{table}`"))?
        .schema)
}

/// Returns the key schemas of described tables.
pub(crate) fn schemas(tables: &BTreeMap<String, TableFacts>) -> BTreeMap<String, KeySchema> {
    tables.iter().map(|(name, facts)| (name.clone(), facts.schema.clone())).collect()
}

fn facts(table: &TableDescription) -> Option<TableFacts> {
    let schema = schema_of(table)?;
    let stream = table.stream_specification().filter(|stream| stream.stream_enabled());
    let view = stream.and_then(|stream| stream.stream_view_type());
    let units = table.provisioned_throughput().and_then(|units| units.write_capacity_units());
    Some(TableFacts {
        schema,
        items: u64::try_from(table.item_count().unwrap_or(0)).unwrap_or(0),
        bytes: u64::try_from(table.table_size_bytes().unwrap_or(0)).unwrap_or(0),
        stream: view.map(|view| view.as_str().to_owned()),
        provisioned_write_units: units.and_then(|units| u64::try_from(units).ok()).unwrap_or(0),
        indexes: indexes::of_table(table),
    })
}

/// Number of items of each table that are sampled to check a plan before a start.
pub(crate) const TRIED_AT_START: u64 = 100;

/// Returns the first `limit` items of a table, in scan order.
pub(crate) async fn sample(client: &Client, table: &str, limit: u64) -> Result<Vec<Item>> {
    let (mut items, mut start) = (Vec::new(), None);
    while (items.len() as u64) < limit {
        let rest = i32::try_from(limit - items.len() as u64).unwrap_or(i32::MAX).min(1000);
        let answer = client.scan().table_name(table).limit(rest).set_exclusive_start_key(start);
        let answer = answer.send().await;
        let answer = answer
            .map_err(|error| format!("cannot scan table `{table}`: {}", error_text(&error)))?;
        for item in answer.items.unwrap_or_default() {
            items.push(from_sdk_item(item)?);
        }
        start = answer.last_evaluated_key;
        if start.is_none() {
            break;
        }
    }
    Ok(items)
}

/// Returns every item of a partition, ordered by sort key, with strongly consistent reads.
pub(crate) async fn partition(
    client: &Client,
    table: &str,
    attribute: &str,
    value: &AttributeValue,
) -> Result<Vec<Item>> {
    let (mut items, mut start) = (Vec::new(), None);
    loop {
        let answer = client
            .query()
            .table_name(table)
            .consistent_read(true)
            .key_condition_expression("#p = :p")
            .expression_attribute_names("#p", attribute)
            .expression_attribute_values(":p", to_sdk_value(value))
            .set_exclusive_start_key(start)
            .send()
            .await
            .map_err(|error| format!("cannot query table `{table}`: {}", error_text(&error)))?;
        for item in answer.items.unwrap_or_default() {
            items.push(from_sdk_item(item)?);
        }
        start = answer.last_evaluated_key;
        if start.is_none() {
            return Ok(items);
        }
    }
}

/// Reads one item with a strongly consistent read.
pub(crate) async fn get(client: &Client, table: &str, key: &Item) -> Result<Option<Item>> {
    let request = client.get_item().table_name(table).consistent_read(true);
    let request = request.set_key(Some(to_sdk_item(key)));
    let answer = request.send().await;
    let answer = answer.map_err(|error| {
        format!("cannot read an item of table `{table}`: {}", error_text(&error))
    })?;
    answer.item.map(from_sdk_item).transpose()
}
