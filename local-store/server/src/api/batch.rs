//! Checks of the parameter `RequestItems`, the map of tables in `BatchGetItem` and `BatchWriteItem`.
//!
//! The file of each operation handles the requests for each table.

use std::collections::BTreeSet;

use model::limits::{TABLE_NAME_LENGTH_MAX, TABLE_NAME_LENGTH_MIN};

use super::constraints::Constraints;
use super::error::ApiError;
use super::parameters::Parameters;

/// The error for two requests for the same item.
pub(crate) const DUPLICATES: &str = "Provided list of item keys contains duplicates";

/// Checks that no table occurs twice, because the response has only one member for each table.
pub(crate) fn check_distinct(tables: Parameters<'_>) -> Result<(), ApiError> {
    let mut names = BTreeSet::new();
    for (name, _) in tables.map() {
        if !names.insert(name) {
            return Err(ApiError::serialization(format!("Duplicate table name: {name}")));
        }
    }
    Ok(())
}

/// Adds a failure if a key of the map is not a valid table name. `shown` is the map in the form in
/// which DynamoDB's errors quote it.
pub(crate) fn constrain_names<'n>(
    constraints: &mut Constraints,
    mut names: impl Iterator<Item = &'n str>,
    shown: impl FnOnce() -> String,
) {
    let is_wrong = |name: &str| {
        let mut of_name = Constraints::new();
        of_name.table_name(Some(name));
        !of_name.is_empty()
    };
    if names.any(is_wrong) {
        let constraint = format!(
            "Map keys must satisfy constraint: [Member must have length less than or equal to {TABLE_NAME_LENGTH_MAX}, Member must have length greater than or equal to {TABLE_NAME_LENGTH_MIN}, Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+]"
        );
        constraints.other("requestItems", &shown(), &constraint);
    }
}
