//! `ListTables`: returns the names of the tables in pages, ordered by name.

use model::json;
use model::limits::LIST_TABLES_MAX;

use super::answer::{begin_member, text_member};
use super::constraints::Constraints;
use super::error::ApiError;
use super::parameters::Parameters;
use crate::store::Store;

pub(super) fn list_tables(store: &Store, parameters: Parameters<'_>) -> Result<String, ApiError> {
    let limit = parameters.integer("Limit")?;
    let start = parameters.string("ExclusiveStartTableName")?;
    let mut constraints = Constraints::new();
    constraints.range("limit", limit, 1, i64::try_from(LIST_TABLES_MAX).unwrap_or(i64::MAX));
    if let Some(start) = start {
        constraints.name_before("exclusiveStartTableName", start);
    }
    constraints.finish()?;

    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(LIST_TABLES_MAX);
    let catalogue = store.catalogue();
    let mut names = catalogue
        .by_name()
        .filter(|table| store.owns(table))
        .map(|table| table.name.as_str())
        .filter(|name| start.is_none_or(|start| *name > start))
        .peekable();
    let mut out = String::from("{");
    begin_member(&mut out, "TableNames");
    out.push('[');
    let mut last = None;
    for name in names.by_ref().take(limit) {
        if last.is_some() {
            out.push(',');
        }
        json::write_string(&mut out, name);
        last = Some(name);
    }
    out.push(']');
    if let Some(last) = last.filter(|_| names.peek().is_some()) {
        text_member(&mut out, "LastEvaluatedTableName", last);
    }
    out.push('}');
    Ok(out)
}
