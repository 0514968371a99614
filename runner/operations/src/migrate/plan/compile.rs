//! Compiles plans for the current key schemas of their tables.

use rules::migration::plan::{Direction, Plan};
use rules::migration::{Migration, PlanError};

use crate::migrate::context::Context;
use crate::migrate::failure::{Failure, Result};
use crate::migrate::plan::tables;

/// Joins errors, one per line.
pub(crate) fn lines(errors: &[PlanError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Compiles a plan against the current key schemas of its tables.
///
/// # Errors
/// When a table cannot be described, or the plan does not fit the tables.
pub(crate) async fn compile(
    context: &Context,
    plan: &Plan,
    direction: Direction,
) -> Result<Migration> {
    let found = tables::describe(&context.control.client, plan).await?;
    Migration::compile(plan, direction, &tables::schemas(&found))
        .map_err(|errors| Failure::Fatal(lines(&errors)))
}
