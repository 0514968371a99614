//! `DeleteTable`: deletes a table. When the response is sent, the table no longer exists.
//!
//! The periodic work of the module `ticks` deletes the items later.

use partition::{Command, Reply, SecondaryIndex};

use super::constraints::Constraints;
use super::error::ApiError;
use super::parameters::Parameters;
use super::table_description::{DELETING, Sizes, Status, WarmThroughput, description_member};
use super::tables;
use crate::store::Store;

pub(super) async fn delete_table(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let name = tables::required(parameters.string("TableName")?)?;
    let mut constraints = Constraints::new();
    constraints.name_of_settings(name);
    constraints.finish()?;
    let table = tables::find_for_settings(store, name)?;
    // As in DynamoDB, a table with an index that is being built is `UPDATING` and cannot be deleted.
    if table.indexes.iter().any(SecondaryIndex::is_being_built) {
        return Err(ApiError::resource_in_use(
            "Attempt to change a resource which is still in use: Cannot delete table while indexes are being created, updated, or deleted.",
        ));
    }
    let sizes = Sizes::read(store, &table).await?;
    let replies = store.submit(vec![Command::DeleteTable { table: table.id }]).await?;
    match replies.into_iter().next() {
        Some(Reply::Table(table)) => {
            let mut out = String::from("{");
            let status = Status::new(DELETING, WarmThroughput::Requested { table: false });
            description_member(&mut out, "TableDescription", store, &table, &sizes, status);
            out.push('}');
            Ok(out)
        }
        Some(Reply::TableNotFound) => Err(ApiError::table_not_found(&table.name)),
        Some(Reply::Invalid(text)) => Err(ApiError::validation(text)),
        _ => Err(ApiError::defect("DeleteTable returned an unexpected reply")),
    }
}
