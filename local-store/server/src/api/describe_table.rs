//! `DescribeTable`: returns the settings, the size and the status of a table.

use super::constraints::Constraints;
use super::error::ApiError;
use super::parameters::Parameters;
use super::table_description::{Sizes, Status, WarmThroughput, description_member};
use super::tables;
use crate::store::Store;

pub(super) async fn describe_table(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let name = tables::required(parameters.string("TableName")?)?;
    let mut constraints = Constraints::new();
    constraints.name_of_settings(name);
    constraints.finish()?;
    let table = tables::find_for_settings(store, name)?;
    let sizes = Sizes::read(store, &table).await?;
    let mut out = String::from("{");
    let status = Status::new(table.status_text(), WarmThroughput::All);
    description_member(&mut out, "Table", store, &table, &sizes, status);
    out.push('}');
    Ok(out)
}
