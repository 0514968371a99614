//! Finds existing items in the targets before a migration starts. The migration never overwrites
//! these items.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::Client;
use model::json::item_to_string;
use rules::migration::plan::{Direction, Plan};
use rules::migration::{MARK, key_of, visible};

use crate::migrate::failure::Result;
use crate::migrate::plan::tables;
use crate::migrate::plan::tables::TableFacts;
use client::output::counted;

/// Maximum number of items of each target that are read.
const LOOKED_AT: u64 = 100;

/// Returns a message for each target that is not empty. An in-place change has no target.
///
/// # Errors
/// When a table cannot be read.
pub(crate) async fn occupied(
    client: &Client,
    plan: &Plan,
    found: &BTreeMap<String, TableFacts>,
) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    if plan.kind.is_in_place() {
        return Ok(lines);
    }
    for table in plan.target_tables(Direction::Forward) {
        let Some(facts) = found.get(table) else { continue };
        let items = tables::sample(client, table, LOOKED_AT).await?;
        let mut seen = items.iter().filter(|item| visible(item, &facts.schema).is_some());
        let Some(first) = seen.next() else { continue };
        let count = facts.items.max(1 + seen.count() as u64);
        let key = item_to_string(&key_of(first, &facts.schema));
        let mark = match first.contains_key(MARK) {
            true => "written by a migration that is not completed",
            false => "without a migration mark",
        };
        lines.push(format!(
            "target `{table}` has about {}, for example {key}, {mark}; the migration does not overwrite existing items, and `verify` reports them as `occupied`: empty the table first",
            counted(count, "item", "items")
        ));
    }
    Ok(lines)
}
