//! Checks that a plan fits its tables: keys, transforms, streams.

use rules::migration::plan::{Direction, Plan};
use rules::migration::{Migration, PlanError};

use crate::migrate::context::Context;
use crate::migrate::failure::Failure;
use crate::migrate::plan::tables;

/// The errors that a check of a plan found.
pub(crate) enum PlanErrors {
    /// Errors in the plan, each with its position in the plan.
    Plan(Vec<PlanError>),
    /// An error outside of the plan.
    Other(Failure),
}

/// Checks a plan against its tables: keys, transforms, streams.
pub(crate) async fn check(context: &Context, plan: &Plan) -> Result<Migration, PlanErrors> {
    let found = tables::describe(&context.control.client, plan).await.map_err(PlanErrors::Other)?;
    let schemas = tables::schemas(&found);
    let compiled = Migration::compile(plan, Direction::Forward, &schemas).and_then(|migration| {
        if !plan.inverse.is_empty() {
            Migration::compile(plan, Direction::Reverse, &schemas)?;
        }
        Ok(migration)
    });
    let migration = match compiled {
        Ok(migration) => migration,
        Err(errors) => return Err(PlanErrors::Plan(with_tables(context, errors).await)),
    };
    let unwritten = plan.unwritten_inverse_tables();
    if !unwritten.is_empty() {
        return Err(PlanErrors::Plan(unwritten));
    }
    for table in followed(plan) {
        let view = found.get(&table).and_then(|facts| facts.stream.as_deref());
        if view != Some("NEW_AND_OLD_IMAGES") {
            return Err(PlanErrors::Other(without_stream(&context.endpoint, &table, view).into()));
        }
    }
    Ok(migration)
}

/// Returns the error that a table lacks the required stream, with the commands that enable the
/// stream. A stream with a different view type must be disabled first.
fn without_stream(endpoint: &str, table: &str, view: Option<&str>) -> String {
    let command = |specification: &str| {
        format!(
            "`aws dynamodb update-table --endpoint-url {endpoint} --table-name {table} --stream-specification {specification}`"
        )
    };
    let first =
        view.map(|_| format!("disable that stream with {}, then ", command("StreamEnabled=false")));
    format!(
        "table `{table}` must have a stream with NEW_AND_OLD_IMAGES, but it has {}; {}enable the stream with {}",
        view.unwrap_or("none"),
        first.unwrap_or_default(),
        command("StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES")
    )
}

/// Adds the names of existing tables to errors about missing tables.
async fn with_tables(context: &Context, mut errors: Vec<PlanError>) -> Vec<PlanError> {
    let is_missing = |error: &PlanError| error.reason.starts_with("there is no table");
    if errors.iter().any(is_missing) {
        // If the tables cannot be listed, the errors are shown without the names of existing
        // tables.
        let names = tables::names(&context.control.client).await.unwrap_or_default();
        for error in errors.iter_mut().filter(|error| is_missing(error) && !names.is_empty()) {
            error.reason.push_str(&format!("; existing tables are {}", names.join(", ")));
        }
    }
    errors
}

/// Returns the tables whose streams a migration reads: the sources, and the targets if the plan has
/// an `inverse`.
pub(crate) fn followed(plan: &Plan) -> Vec<String> {
    let mut tables = plan.source_tables(Direction::Forward);
    tables.extend(plan.source_tables(Direction::Reverse));
    tables.sort_unstable();
    tables.dedup();
    tables.into_iter().map(str::to_owned).collect()
}
