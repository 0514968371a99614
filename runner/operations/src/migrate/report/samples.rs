//! Samples of a migration: source items, the target items of each source item, and whether the
//! target tables have these items now.
//!
//! This module reads the first items of at most `TABLES_MAX` source tables and writes nothing.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use model::{Item, PrimaryKey};
use rules::migration::plan::{Direction, Plan};
use rules::migration::{Migration, Rewrite};

use crate::migrate::context::Context;
use crate::migrate::failure::{Failure, Result, refused};
use crate::migrate::plan::compile::compile;
use crate::migrate::plan::tables;

/// Maximum number of source tables that are sampled. Most plans have one or two source tables.
const TABLES_MAX: usize = 4;

/// A source item and its target items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The source table.
    pub table: String,
    /// The source item.
    pub before: Item,
    /// The target items, or the error if the source item cannot be transformed.
    pub after: Result<Vec<Made>>,
}

/// A target item: the result of transforming a source item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The table of the target item.
    pub table: String,
    /// The target item; `None` if the plan removes the source item.
    pub item: Option<Item>,
    /// The comparison of the target item with the current item in its table.
    pub stands: Stands,
}

/// The comparison of a target item with the current item in its table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stands {
    /// The table has an equal item.
    Equal,
    /// The table has no item with the target item's key.
    Missing,
    /// The table has a different item with the target item's key. The value is that item.
    Different(Item),
}

/// Reads the first items of each source table, and transforms them.
///
/// # Errors
/// When the plan no longer fits its tables, or a table cannot be read.
pub(crate) async fn samples(context: &Context, plan: &Plan, of_table: u64) -> Result<Vec<Sample>> {
    let migration = compile(context, plan, Direction::Forward).await?;
    let tables = plan.source_tables(Direction::Forward).into_iter().take(TABLES_MAX);
    let of_tables = tables.map(|table| first_of(context, &migration, table, of_table));
    Ok(try_join_all(of_tables).await?.concat())
}

/// Reads the first items of a source table, and transforms them.
async fn first_of(
    context: &Context,
    migration: &Migration,
    table: &str,
    count: u64,
) -> Result<Vec<Sample>> {
    let found = tables::sample(&context.control.client, table, count).await?;
    let samples =
        found.iter().filter_map(|item| migration.visible(table, item)).map(|before| async move {
            let after = match migration.kind().is_in_place() {
                true => rewritten(migration, table, &before),
                false => made(context, migration, table, &before).await,
            };
            match after {
                Ok(_) | Err(Failure::Refused(_)) => {
                    Ok(Sample { table: table.to_owned(), before, after })
                }
                Err(failure) => Err(failure),
            }
        });
    try_join_all(samples).await
}

/// Applies an in-place change to an item. If the item is already changed, the result is equal to
/// the item.
fn rewritten(migration: &Migration, table: &str, item: &Item) -> Result<Vec<Made>> {
    let rewrite = migration.rewrite(table, item).map_err(|error| refused!("{error}"))?;
    let (made, stands) = match rewrite {
        Rewrite::Keep => (Some(item.clone()), Stands::Equal),
        Rewrite::Change(made) => (Some(made), Stands::Different(item.clone())),
        Rewrite::Delete => (None, Stands::Different(item.clone())),
    };
    Ok(vec![Made { table: table.to_owned(), item: made, stands }])
}

/// Returns the target items of a source item, each compared with the current item in its table.
async fn made(
    context: &Context,
    migration: &Migration,
    table: &str,
    item: &Item,
) -> Result<Vec<Made>> {
    let outputs = migration.outputs(table, item).map_err(|error| refused!("{error}"))?;
    let mut keys: BTreeMap<&str, Vec<&PrimaryKey>> = BTreeMap::new();
    for target in outputs.keys() {
        keys.entry(&target.table).or_default().push(&target.key);
    }
    let mut found = BTreeMap::new();
    for (table, keys) in keys {
        let Some(schema) = migration.schema(table) else { continue };
        let items = tables::get_all(&context.control.client, table, schema, keys).await?;
        found.insert(table.to_owned(), items);
    }
    let made = outputs.iter().map(|(target, item)| {
        let stands = found.get(&target.table).and_then(|items| items.get(&target.key));
        let stands = stands.and_then(|stands| migration.visible(&target.table, stands));
        let stands = match stands {
            None => Stands::Missing,
            Some(stands) if stands == *item => Stands::Equal,
            Some(stands) => Stands::Different(stands),
        };
        Made { table: target.table.clone(), item: Some(item.clone()), stands }
    });
    Ok(made.collect())
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::AttributeValue as Sdk;

    use super::*;
    use crate::migrate::switch::switching_tests::{plan, serve};

    #[tokio::test]
    async fn samples_show_what_the_targets_have() {
        let served = serve().await;
        let client = &served.context.control.client;
        let put = |table: &str, key: &str, value: &str| {
            let put = client.put_item().table_name(table).item("p", Sdk::S(key.to_owned()));
            put.item("v", Sdk::S(value.to_owned())).send()
        };
        for (table, key, value) in [
            ("cats", "a", "1"),
            ("cats", "b", "1"),
            ("cats", "c", "1"),
            ("pets", "a", "1"),
            ("pets", "b", "2"),
        ] {
            put(table, key, value).await.unwrap();
        }
        let plan = plan();
        let mut found: Vec<(String, &str)> = Vec::new();
        let samples = samples(&served.context, &plan, 9).await.unwrap();
        for sample in &samples {
            let key = sample.before.get("p").and_then(model::AttributeValue::as_str).unwrap();
            let made = sample.after.as_ref().unwrap();
            assert_eq!((made.len(), made[0].table.as_str()), (1, "pets"));
            found.push((
                key.to_owned(),
                match &made[0].stands {
                    Stands::Equal => "equal",
                    Stands::Missing => "missing",
                    Stands::Different(_) => "different",
                },
            ));
        }
        found.sort_unstable();
        let expected = [("a", "equal"), ("b", "different"), ("c", "missing")];
        assert_eq!(found, expected.map(|(key, is)| (key.to_owned(), is)));
        assert_eq!(super::samples(&served.context, &plan, 1).await.unwrap().len(), 1);
    }
}
