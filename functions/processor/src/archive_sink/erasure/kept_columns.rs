//! The columns that stay in an object when rows are erased from it.
//!
//! A discovered column has the name of an attribute. If only erased items had this attribute, its
//! name can reveal as much about a person as its value. Such a column is therefore removed with the
//! rows, from the data and from the object's metadata. Declared columns belong to the table and
//! stay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use model::Item;
use parquet::errors::ParquetError;
use rules::archive::{ColumnType, discovered_column, is_discovered};

use super::super::part_content::read_json;
use super::super::rewrite::{COLUMNS, ObjectReader};
use super::super::united_columns::ColumnMetadata;

/// The attributes of the items that are not erased, by the name of their discovered column.
#[derive(Debug, Default)]
pub(super) struct KeptAttributes(BTreeMap<String, BTreeSet<String>>);

impl KeptAttributes {
    /// Adds the attributes of an item.
    pub(super) fn add(&mut self, item: &Item) {
        for (attribute, value) in item {
            let Some(column) = discovered_column(attribute, value.attribute_type()) else {
                continue;
            };
            let attributes = self.0.entry(column).or_default();
            if !attributes.contains(attribute.as_str()) {
                attributes.insert(attribute.as_str().to_owned());
            }
        }
    }

    /// Returns the columns that stay in an object, and the object's metadata about the typed ones.
    ///
    /// # Errors
    /// When the object's metadata cannot be read.
    pub(super) fn columns_of(
        &self,
        object: &ObjectReader,
    ) -> Result<(SchemaRef, String), ParquetError> {
        let mut told: BTreeMap<String, ColumnMetadata> =
            read_json(&object.metadata, COLUMNS)?.unwrap_or_default();
        let mut gone = BTreeSet::new();
        told.retain(|name, column| {
            let was_discovered = ColumnType::from_text(&column.column_type)
                .is_some_and(|column_type| is_discovered(name, &column.path, column_type));
            if !was_discovered {
                return true;
            }
            let Some(attributes) = self.0.get(name) else {
                gone.insert(name.clone());
                return false;
            };
            // Attributes whose names differ only in case share a column. If the metadata names an
            // erased attribute, that name is replaced by the name of a remaining attribute.
            if let (false, Some(first)) = (attributes.contains(&column.path), attributes.first()) {
                column.path.clone_from(first);
            }
            true
        });
        let fields = object.schema.fields().iter().filter(|field| !gone.contains(field.name()));
        // The schema's own metadata describes the old object, so it is dropped.
        let schema = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
        let told = serde_json::to_string(&told);
        Ok((schema, told.map_err(|error| ParquetError::General(error.to_string()))?))
    }
}
