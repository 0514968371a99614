//! Versions: the history of an item, and the difference between two versions.

mod html;
mod view;

use std::time::Duration;

use model::json::{item_to_string, write_attribute_value};
use operations::versions::history::{self, History};
use serde_json::Value;

pub(crate) use self::html::html;
use self::view::{Attribute, Difference, Version, View};
use crate::context::Context;
use crate::error::PageError;
use crate::query::Query;

/// The number of versions on a page.
const VERSIONS: usize = 30;
/// The number of items with a history that the page offers if the query has no key.
const ITEMS: usize = 10;
/// The timeout of the search for items to offer. The search reads the table of histories.
const ITEMS_LIMIT: Duration = Duration::from_millis(500);

/// Collects the data of the page Versions.
///
/// # Errors
/// The query is invalid, or the store does not answer.
pub(crate) async fn view(context: &Context, query: &Query) -> Result<View, PageError> {
    let tables = history::versioned_tables(context.dynamodb()).await?;
    let only = (tables.len() == 1).then(|| tables.first().cloned()).flatten();
    let table = query.get("table").map(str::to_owned).or(only);
    let key = query.get("key").map(str::to_owned);
    let view = View { schema: "weir.console.versions/v1", tables, key, ..View::default() };
    let Some(name) = table else { return Ok(view) };
    let place = history::place(context.dynamodb(), context.endpoint(), &name);
    let view = View { table: Some(name), ..view };
    let Some(key) = &view.key else {
        let items = tokio::time::timeout(ITEMS_LIMIT, history::some_items(&place, ITEMS)).await;
        return Ok(match items {
            Ok(Ok(items)) => View { items, ..view },
            Ok(Err(problem)) => View { problem: Some(problem.to_string()), ..view },
            // The search timed out, because the table is large or has few histories. With the form,
            // the user can still find every item by its key.
            Err(_) => view,
        });
    };
    let found = match history::history(&place, key).await {
        Ok(found) => found,
        Err(problem) => return Ok(View { problem: Some(problem.to_string()), ..view }),
    };
    let skipped = query.number("skip", 0, 10_000_000)?;
    let (difference, problem) = difference(&found, query)?;
    let newest_first = found.versions.iter().rev();
    let versions: Vec<Version> = newest_first.skip(skipped).take(VERSIONS).map(shown).collect();
    let left_out = found.versions.len().saturating_sub(skipped + versions.len());
    Ok(View { versions, skipped, left_out, missing: found.missing, difference, problem, ..view })
}

fn shown(version: &history::Version) -> Version {
    let image = version.image.as_ref();
    Version {
        number: version.number,
        event: version.event.as_str(),
        at: version.at_seconds.and_then(|at| i64::try_from(at).ok()),
        by_ttl: version.by_ttl,
        bytes: image.map_or(0, model::Item::size),
        item: image.map(|item| serde_json::from_str(&item_to_string(item)).unwrap_or_default()),
    }
}

/// Returns the difference that the query requests, or the reason why there is none.
fn difference(
    history: &History,
    query: &Query,
) -> Result<(Option<Difference>, Option<String>), PageError> {
    let number = |name: &str| match query.get(name) {
        None => Ok(None),
        Some(text) => text.parse::<u64>().map(Some).map_err(|_| {
            let what = format!("`{text}` is not the number of a version");
            PageError::bad_input(name, what, "a version number from the list")
        }),
    };
    let (Some(from), to) = (number("from")?, number("to")?) else { return Ok((None, None)) };
    let last = history.versions.last().map_or(0, |version| version.number);
    let attributes = match history::difference(history, from, to) {
        Ok(differences) => differences,
        Err(problem) => return Ok((None, Some(problem.to_string()))),
    };
    let json = |value: &Option<model::AttributeValue>| {
        value.as_ref().map(|value| {
            let mut text = String::new();
            write_attribute_value(&mut text, value);
            serde_json::from_str::<Value>(&text).unwrap_or_default()
        })
    };
    let attributes = attributes.iter().map(|difference| Attribute {
        path: difference.path.clone(),
        change: difference.change(),
        from: json(&difference.from),
        to: json(&difference.to),
    });
    let attributes = attributes.collect();
    Ok((Some(Difference { from, to: to.unwrap_or(last), attributes }), None))
}
