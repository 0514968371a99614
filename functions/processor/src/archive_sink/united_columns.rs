//! The merged columns of archive objects that become one object.
//!
//! A column is NULL in the rows of an object that does not have the column. Attributes whose names
//! differ only in case share a discovered column, as in a part. Other modules decide which objects
//! are merged.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use arrow_schema::{FieldRef, Schema, SchemaRef};
use parquet::errors::ParquetError;
use rules::archive::SYSTEM_COLUMNS;

use super::column_metadata::{self, ColumnMetadata};
use super::part_rows::PART_COLUMNS_MAX;
use super::rewrite::ObjectReader;

/// The columns of several objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UnitedColumns {
    fields: Vec<FieldRef>,
    column_metadata: BTreeMap<String, ColumnMetadata>,
}

impl UnitedColumns {
    /// Adds the columns of an object. Returns `false` and adds nothing if a column conflicts with a
    /// known column of the same name, or if there would be too many columns.
    ///
    /// # Errors
    /// When the object's metadata cannot be read.
    pub(super) fn add(&mut self, object: &ObjectReader) -> Result<bool, ParquetError> {
        let told = column_metadata::read(&object.metadata)?;
        let is_same = |field: &FieldRef| {
            let name = field.name();
            let is_told_alike = match (self.column_metadata.get(name), told.get(name)) {
                (Some(known), Some(told)) => known.is_same(name, told),
                (known, told) => known.is_none() && told.is_none(),
            };
            self.field(name).is_none_or(|known| known == field && is_told_alike)
        };
        let fields = object.schema.fields();
        let new: Vec<&FieldRef> =
            fields.iter().filter(|f| self.field(f.name()).is_none()).collect();
        let is_first = self.fields.is_empty();
        let all_fit = is_first
            || new.len() + self.column_metadata.len() <= PART_COLUMNS_MAX
                && new.iter().all(|field| field.is_nullable());
        if !all_fit || !fields.iter().all(is_same) {
            return Ok(false);
        }
        let is_system = |field: &FieldRef| SYSTEM_COLUMNS.iter().any(|(n, _)| n == field.name());
        let typed = self.fields.iter().position(is_system).unwrap_or(self.fields.len());
        self.fields.splice(typed..typed, new.into_iter().cloned());
        for (name, column) in told {
            let known = self.column_metadata.entry(name).or_insert_with(|| column.clone());
            // A part with both attributes also chooses the attribute whose name sorts first.
            if column.path < known.path {
                *known = column;
            }
        }
        Ok(true)
    }

    fn field(&self, name: &str) -> Option<&FieldRef> {
        self.fields.iter().find(|field| field.name() == name)
    }

    /// Returns the merged columns as a schema.
    pub(super) fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.fields.clone()))
    }

    /// Returns the object's metadata about typed columns, as JSON.
    ///
    /// # Errors
    /// When the columns cannot be encoded.
    pub(super) fn metadata_text(&self) -> Result<String, ParquetError> {
        column_metadata::text(&self.column_metadata)
    }
}

/// Returns the rows with the columns of `schema`; missing columns are NULL.
///
/// # Errors
/// When `schema` does not allow NULL in a missing column.
pub(super) fn with_columns(
    batch: &RecordBatch,
    schema: &SchemaRef,
) -> Result<RecordBatch, ParquetError> {
    let column = |field: &FieldRef| -> ArrayRef {
        let found = batch.column_by_name(field.name()).cloned();
        found.unwrap_or_else(|| new_null_array(field.data_type(), batch.num_rows()))
    };
    let columns = schema.fields().iter().map(column).collect();
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}
