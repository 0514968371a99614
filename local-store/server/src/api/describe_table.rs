//! `DescribeTable`: returns the settings, the size and the status of a table.

use partition::read_statistics;

use super::constraints::Constraints;
use super::error::ApiError;
use super::parameters::Parameters;
use super::table_description::{Status, WarmThroughput, description_member};
use super::tables;
use crate::store::Store;

pub(super) fn describe_table(
    store: &Store,
    parameters: Parameters<'_>,
) -> Result<String, ApiError> {
    let name = tables::required(parameters.string("TableName")?)?;
    let mut constraints = Constraints::new();
    constraints.name_of_settings(name);
    constraints.finish()?;
    let table = tables::find_for_settings(store, name)?;
    let statistics = read_statistics(&*store.view(), &table)?;
    let mut out = String::from("{");
    let status = Status::new(table.status_text(), WarmThroughput::All);
    description_member(&mut out, "Table", store, &table, statistics, status)?;
    out.push('}');
    Ok(out)
}
