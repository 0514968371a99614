//! `/partitions/TABLE`: the load of the key space over time, the partitions and the hot keys of a table.
//!
//! The admin endpoint of Weir's own store reports these; DynamoDB on AWS does not.

mod darkest;
mod heat;
mod html;
mod sampling;
mod view;

use client::sdk_error::{error_text, is_not_found};
use jiff::Timestamp;
use serde::Deserialize;

pub(crate) use self::html::{choice_html, html};
pub(crate) use self::sampling::sample;
pub(crate) use self::view::{Choice, View};

use self::view::HotKeys;
use super::tables;
use crate::context::{Context, Writes};
use crate::error::PageError;
use crate::load_history::{Partition, Sample};
use crate::query::Query;
use crate::table_shape::check_name;

/// The reason why the page is empty for DynamoDB on AWS.
const NOT_ON_AWS: &str = "DynamoDB on AWS does not show its partitions. CloudWatch Contributor Insights for DynamoDB lists the most accessed keys.";

/// Collects the data of the page on which the user selects a table.
///
/// # Errors
/// The store does not answer.
pub(crate) async fn choice(context: &Context, query: &Query) -> Result<Choice, PageError> {
    let after = query.get("after").map(str::to_owned);
    let (tables, next) = tables::list(context, after).await?;
    Ok(Choice { schema: "weir.console.partitions/v1", tables, next })
}

/// The store's description of a table's partitions.
#[derive(Deserialize)]
struct Described {
    partitions: Vec<Partition>,
    hot_keys: HotKeys,
}

/// Collects the data of the page of a table's partitions.
///
/// # Errors
/// The table does not exist, or the store does not answer.
pub(crate) async fn view(context: &Context, table: &str, query: &Query) -> Result<View, PageError> {
    check_name(table)?;
    let exists = context.dynamodb().describe_table().table_name(table).send().await;
    exists.map_err(|error| match is_not_found(&error) {
        true => PageError::NotFound { what: format!("table `{table}`") },
        false => PageError::Store(error_text(&error)),
    })?;
    let mut view = View {
        schema: "weir.console.partitions.table/v1",
        table: table.to_owned(),
        unavailable: None,
        partitions: Vec::new(),
        hot_keys: HotKeys::default(),
        samples: Vec::new(),
        first: query.get("first").and_then(|first| first.parse().ok()).unwrap_or_default(),
        allow_writes: matches!(context.writes(), Writes::Allowed(_)),
    };
    if context.is_on_aws() {
        return Ok(View { unavailable: Some(NOT_ON_AWS.to_owned()), ..view });
    }
    let described = match client::partitions::describe(context.endpoint(), table).await {
        Ok(described) => serde_json::from_value::<Described>(described),
        // The table exists, so the store is not Weir's own store, or has just stopped.
        Err(reason) => return Ok(View { unavailable: Some(reason.to_string()), ..view }),
    };
    let described = described.map_err(|error| {
        PageError::Store(format!("the store describes partitions in an unknown format: {error}"))
    })?;
    let sample = Sample::of(Timestamp::now().as_second(), &described.partitions);
    view.samples = context.loads().show(table, sample);
    (view.partitions, view.hot_keys) = (described.partitions, described.hot_keys);
    Ok(view)
}
