//! Simulates updates of single attributes on sampled items, to find updates that an in-place change
//! would lose.

use model::Item;
use rules::migration::Migration;
use rules::migration::plan::{Direction, Kind, Plan};

use crate::migrate::context::Context;
use crate::migrate::failure::Result;
use crate::migrate::plan::compile::compile;
use crate::migrate::plan::tables;

/// Describes the updates of sampled items that a plan loses.
///
/// # Errors
/// When a table cannot be read.
pub(crate) async fn of_plan(
    context: &Context,
    plan: &Plan,
    migration: &Migration,
) -> Result<Vec<String>> {
    if plan.kind != Kind::InPlace {
        return Ok(Vec::new());
    }
    let inverse = match plan.inverse.is_empty() {
        true => None,
        false => Some(compile(context, plan, Direction::Reverse).await?),
    };
    let mut lost = Vec::new();
    for table in plan.source_tables(Direction::Forward) {
        let sample = tables::sample(&context.control.client, table, tables::TRIED_AT_START).await?;
        lost.extend(tried(migration, inverse.as_ref(), table, &sample));
    }
    Ok(lost)
}

/// Describes the updates of the given items that an in-place change loses.
pub(crate) fn tried(
    migration: &Migration,
    inverse: Option<&Migration>,
    table: &str,
    sample: &[Item],
) -> Vec<String> {
    migration.lost_writes(inverse, table, sample).iter().map(ToString::to_string).collect()
}
