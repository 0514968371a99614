//! `/tables`: all tables with their keys, indexes, size, stream and TTL.
//!
//! Counts come from DescribeTable, so no table is scanned.

mod html;
mod view;

use client::sdk_error::error_text;
use futures::{StreamExt, TryStreamExt, stream};

pub(crate) use self::html::html;
pub(crate) use self::view::View;

use crate::context::Context;
use crate::error::PageError;
use crate::query::Query;
use crate::table_shape::TableShape;

/// The maximum number of tables on a page. Each table takes two requests, and about 1 KB of the
/// page.
const TABLES_MAX: i32 = 30;
/// The number of tables that are described concurrently. AWS allows ten of these requests per
/// second.
const DESCRIBED_AT_ONCE: usize = 5;

/// Collects the data of a page of tables.
///
/// # Errors
/// The store does not answer.
pub(crate) async fn view(context: &Context, query: &Query) -> Result<View, PageError> {
    let client = context.dynamodb();
    let after = query.get("after").map(str::to_owned);
    let (names, next) = list(context, after.clone()).await?;
    let described = stream::iter(names).map(|name| async move {
        match TableShape::read(client, &name).await {
            Ok(table) => Ok(Some(table)),
            // The table was deleted after the list was read.
            Err(PageError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    });
    let tables: Vec<Option<TableShape>> =
        described.buffered(DESCRIBED_AT_ONCE).try_collect().await?;
    let tables = tables.into_iter().flatten().collect();
    Ok(View { schema: "weir.console.tables/v1", tables, after, next })
}

/// Returns the names of a page of tables, and the name after which the next page begins.
///
/// # Errors
/// The store does not answer.
pub(crate) async fn list(
    context: &Context,
    after: Option<String>,
) -> Result<(Vec<String>, Option<String>), PageError> {
    let request = context.dynamodb().list_tables().limit(TABLES_MAX);
    let answer = request.set_exclusive_start_table_name(after).send().await;
    let answer = answer.map_err(|error| PageError::Store(error_text(&error)))?;
    Ok((answer.table_names.unwrap_or_default(), answer.last_evaluated_table_name))
}
