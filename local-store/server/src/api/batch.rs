//! What `BatchGetItem` and `BatchWriteItem` have in common: checks of the map of tables.
//!
//! What is done with each table stands in their own files.

use std::collections::BTreeSet;

use model::limits::{TABLE_NAME_LENGTH_MAX, TABLE_NAME_LENGTH_MIN};

use super::constraints::Constraints;
use super::error::ApiError;
use super::parameters::Parameters;

/// Two requests for one item, in the service's words.
pub(crate) const DUPLICATES: &str = "Provided list of item keys contains duplicates";

/// An empty map of tables.
pub(crate) fn nothing_requested(operation: &str) -> ApiError {
    ApiError::validation(format!("The requestItems parameter is required for {operation}"))
}

/// A table that is named twice would be answered once.
pub(crate) fn check_distinct(tables: Parameters<'_>) -> Result<(), ApiError> {
    let mut names = BTreeSet::new();
    for (name, _) in tables.map() {
        if !names.insert(name) {
            return Err(ApiError::serialization(format!("Duplicate table name: {name}")));
        }
    }
    Ok(())
}

/// A table's name as a key of the map.
pub(crate) fn constrain_name(constraints: &mut Constraints, name: &str) {
    let mut of_name = Constraints::new();
    of_name.table_name(Some(name));
    if of_name.finish().is_err() {
        let constraint = format!(
            "Map keys must satisfy constraint: [Member must have length less than or equal to {TABLE_NAME_LENGTH_MAX}, Member must have length greater than or equal to {TABLE_NAME_LENGTH_MIN}, Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+]"
        );
        constraints.other("requestItems", &format_args!("{{{name}}}"), &constraint);
    }
}
