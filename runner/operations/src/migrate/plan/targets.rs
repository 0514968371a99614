//! What stands in the targets before a migration begins: it overwrites nothing that it did not write.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::Client;
use model::json::item_to_string;
use rules::migration::plan::{Direction, Plan};
use rules::migration::{MARK, key_of, visible};

use crate::migrate::failure::Result;
use crate::migrate::plan::tables;
use crate::migrate::plan::tables::TableFacts;
use client::output::counted;

/// Items of each target that are looked at.
const LOOKED_AT: u64 = 100;

/// A line for each target that is not empty. What is changed in place has no target of its own.
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
            true => "which a migration wrote that is not completed",
            false => "which has no mark of a migration",
        };
        lines.push(format!(
            "`{table}` has about {} already, such as {key}, {mark}; none is overwritten, and `verify` names those in the way: empty the table first",
            counted(count, "item", "items")
        ));
    }
    Ok(lines)
}
