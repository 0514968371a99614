//! `DeleteTable`: the table is gone when the answer is sent; its items are removed behind it.
//!
//! Removing them is the work of the ticks.

use partition::{Command, Reply, read_statistics};

use super::constraints::Constraints;
use super::error::ApiError;
use super::parameters::Parameters;
use super::table_description::description_member;
use super::tables;
use crate::store::Store;

pub(super) async fn delete_table(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let name = tables::required(parameters.string("TableName")?)?;
    let mut constraints = Constraints::new();
    constraints.table_name(Some(name));
    constraints.finish()?;
    let table = tables::find_for_settings(store, name)?;
    let statistics = read_statistics(&*store.view(), &table)?;
    let replies = store.submit(vec![Command::DeleteTable { table: table.id }]).await?;
    match replies.into_iter().next() {
        Some(Reply::Table(table)) => {
            let mut out = String::from("{");
            description_member(
                &mut out,
                "TableDescription",
                store,
                &table,
                statistics,
                "DELETING",
            )?;
            out.push('}');
            Ok(out)
        }
        Some(Reply::TableNotFound) => Err(ApiError::table_not_found(name)),
        Some(Reply::Invalid(text)) => Err(ApiError::validation(text)),
        _ => Err(ApiError::defect("DeleteTable was not answered with a table")),
    }
}
