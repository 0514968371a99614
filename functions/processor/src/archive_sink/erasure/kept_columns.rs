//! The columns that remain in an object when rows are erased from it.
//!
//! A discovered column has the name of an attribute. If only erased items had this attribute, its
//! name can reveal as much about a person as its value. Such a column is therefore removed with the
//! rows, from the data and from the object's metadata. Declared columns belong to the table and
//! are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use model::Item;
use parquet::errors::ParquetError;
use rules::archive::discovered_column;

use super::super::column_metadata;
use super::super::rewrite::ObjectReader;

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

    /// Returns the columns that remain in an object, and the new metadata about its typed columns.
    ///
    /// # Errors
    /// When the object's metadata cannot be read.
    pub(super) fn columns_of(
        &self,
        object: &ObjectReader,
    ) -> Result<(SchemaRef, String), ParquetError> {
        let mut told = column_metadata::read(&object.metadata)?;
        let mut gone = BTreeSet::new();
        told.retain(|name, column| {
            if !column.was_discovered(name) {
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
        Ok((schema, column_metadata::text(&told)?))
    }
}
