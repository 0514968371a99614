//! The metadata of an archive object about its typed columns.
//!
//! `united_columns` merges the columns of several objects.

use std::collections::BTreeMap;

use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use rules::archive::{ColumnType, is_discovered};
use serde::{Deserialize, Serialize};

use super::part_content::read_json;

/// The metadata key of the typed columns. The value is JSON.
pub(super) const COLUMNS: &str = "weir.columns";

/// A typed column as an object's metadata describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ColumnMetadata {
    pub(super) path: String,
    #[serde(rename = "type")]
    pub(super) column_type: String,
}

impl ColumnMetadata {
    /// Returns whether the column with this name was discovered, and not declared.
    pub(super) fn was_discovered(&self, name: &str) -> bool {
        let column_type = ColumnType::from_text(&self.column_type);
        column_type.is_some_and(|known| is_discovered(name, &self.path, known))
    }

    /// Returns whether two columns with this name are the same: they have the same type, and both
    /// are declared from the same attribute or both are discovered.
    pub(super) fn is_same(&self, name: &str, other: &Self) -> bool {
        self == other
            || (self.column_type == other.column_type
                && self.was_discovered(name)
                && other.was_discovered(name))
    }
}

/// Returns the typed columns of an object, by name.
///
/// # Errors
/// When the metadata cannot be parsed.
pub(super) fn read(
    metadata: &[KeyValue],
) -> Result<BTreeMap<String, ColumnMetadata>, ParquetError> {
    Ok(read_json(metadata, COLUMNS)?.unwrap_or_default())
}

/// Returns the typed columns of an object as JSON, for the object's metadata.
///
/// # Errors
/// When the columns cannot be encoded.
pub(super) fn text(columns: &BTreeMap<String, ColumnMetadata>) -> Result<String, ParquetError> {
    serde_json::to_string(columns).map_err(|error| ParquetError::General(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_the_same_if_they_were_discovered_with_one_type() {
        const NUMBER: &str = "decimal(38,10)";
        for (name, one, other, expected) in [
            ("price_n", ("price", NUMBER), ("price", NUMBER), true),
            ("price_n", ("price", NUMBER), ("Price", NUMBER), true),
            // The first column is discovered; the second is declared from the attribute `price_n`.
            ("price_n", ("price", NUMBER), ("price_n", NUMBER), false),
            ("price_n", ("price", NUMBER), ("Price", "bigint"), false),
            ("price", ("price", "bigint"), ("Price", "bigint"), false),
        ] {
            let told = |(path, column_type): (&str, &str)| ColumnMetadata {
                path: path.to_owned(),
                column_type: column_type.to_owned(),
            };
            let (one, other) = (told(one), told(other));
            assert_eq!(one.is_same(name, &other), expected, "{name} {one:?} {other:?}");
            assert_eq!(other.is_same(name, &one), expected, "{name} {other:?} {one:?}");
        }
    }
}
