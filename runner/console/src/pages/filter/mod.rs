//! Filter: runs a filter over the last records of a table, and shows for each record which clause
//! failed.

mod criteria;
mod html;
mod view;

use local::journal::{Reader, history_of};
use mapping::{FilterCriteria, RecordShape};

pub(crate) use self::html::html;
use self::view::{Row, View};
use crate::context::Context;
use crate::error::PageError;
use crate::newest::newest;
use crate::pages::stream;
use crate::query::Query;

/// The number of records over which a filter runs.
const RECORDS: usize = 100;

/// The pattern that an empty form shows.
const EXAMPLE: &str = r#"{"eventName": ["INSERT"]}"#;

/// Collects the data of the page Filter. The query may have the fields `table`, `pattern`, and
/// `mapping`, whose filter is used without a pattern.
///
/// # Errors
/// The pattern is invalid, or the store does not answer.
pub(crate) async fn view(context: &Context, query: &Query) -> Result<View, PageError> {
    let mut view = View {
        schema: "weir.console.filter/v1",
        tables: stream::tables(context).await?,
        table: query.get("table").map(str::to_owned),
        pattern: query.get("pattern").map(str::to_owned),
        ..View::default()
    };
    stream::check_table(&view.tables, view.table.as_deref())?;
    if let (None, Some(mapping)) = (&view.pattern, query.get("mapping")) {
        view.pattern = Some(filter_of(context, mapping).await?);
    }
    let (Some(table), Some(pattern)) = (&view.table, &view.pattern) else {
        view.pattern.get_or_insert_with(|| EXAMPLE.to_owned());
        return Ok(view);
    };
    let patterns = criteria::patterns(pattern)?;
    let filter = FilterCriteria::compile(&patterns).map_err(|error| {
        PageError::bad_input("pattern", error.problem.clone(), error.to_string())
    })?;
    let newest = newest(context, table, RECORDS, None).await?;
    let any = RecordShape {
        keys: None,
        index_keys: Default::default(),
        new_image: true,
        old_image: true,
    };
    let remarks = filter.remarks(&any).into_iter();
    view.remarks =
        remarks.map(|it| format!("{}; write instead: {}", it.problem, it.remedy)).collect();
    view.is_run = true;
    view.records = newest.records.iter().map(|found| Row::of(found, &filter)).collect();
    Ok(view)
}

/// Returns the filter of a mapping as a `FilterCriteria` object.
async fn filter_of(context: &Context, mapping: &str) -> Result<String, PageError> {
    let unknown = || PageError::NotFound { what: format!("the mapping `{mapping}`") };
    let directory = context.directory().ok_or_else(unknown)?;
    let read = tokio::task::spawn_blocking(move || {
        // Each journal segment begins with all mappings, so the newest segment is enough.
        Reader::open_newest(&directory.join("journal"), 1).map(|lines| history_of(lines, ""))
    });
    let history = read.await.map_err(|error| PageError::Store(error.to_string()))?;
    let history = history.map_err(|error| PageError::Store(error.to_string()))?;
    let found = history.mappings.get(mapping).ok_or_else(unknown)?;
    Ok(criteria::text(&found.facts.filters))
}
