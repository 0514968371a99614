//! The columns of archive objects that become one object.
//!
//! A column that an object does not have is NULL in its rows. Which objects become one is not
//! decided here.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use arrow_schema::{FieldRef, Schema, SchemaRef};
use parquet::errors::ParquetError;
use rules::archive::SYSTEM_COLUMNS;
use serde::{Deserialize, Serialize};

use super::part_content::read_json;
use super::part_rows::PART_COLUMNS_MAX;
use super::rewrite::{COLUMNS, ObjectReader};

/// What an object's metadata says of a typed column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ToldColumn {
    pub(super) path: String,
    #[serde(rename = "type")]
    pub(super) column_type: String,
}

/// Columns of several objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UnitedColumns {
    fields: Vec<FieldRef>,
    told: BTreeMap<String, ToldColumn>,
}

impl UnitedColumns {
    /// Adds the columns of an object. `false`, and nothing is added, if one of them is another
    /// column of the same name, or if there would be too many.
    ///
    /// # Errors
    /// When the object's metadata cannot be read.
    pub(super) fn add(&mut self, object: &ObjectReader) -> Result<bool, ParquetError> {
        let told: BTreeMap<String, ToldColumn> =
            read_json(&object.metadata, COLUMNS)?.unwrap_or_default();
        let is_same = |field: &FieldRef| {
            let name = field.name();
            self.field(name)
                .is_none_or(|known| known == field && self.told.get(name) == told.get(name))
        };
        let fields = object.schema.fields();
        let new: Vec<&FieldRef> =
            fields.iter().filter(|f| self.field(f.name()).is_none()).collect();
        let is_first = self.fields.is_empty();
        let all_fit = is_first
            || new.len() + self.told.len() <= PART_COLUMNS_MAX
                && new.iter().all(|field| field.is_nullable());
        if !all_fit || !fields.iter().all(is_same) {
            return Ok(false);
        }
        let is_system = |field: &FieldRef| SYSTEM_COLUMNS.iter().any(|(n, _)| n == field.name());
        let typed = self.fields.iter().position(is_system).unwrap_or(self.fields.len());
        self.fields.splice(typed..typed, new.into_iter().cloned());
        self.told.extend(told);
        Ok(true)
    }

    fn field(&self, name: &str) -> Option<&FieldRef> {
        self.fields.iter().find(|field| field.name() == name)
    }

    /// The columns.
    pub(super) fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.fields.clone()))
    }

    /// What the object's metadata shall say of them.
    ///
    /// # Errors
    /// When that cannot be written.
    pub(super) fn told(&self) -> Result<String, ParquetError> {
        serde_json::to_string(&self.told).map_err(|error| ParquetError::General(error.to_string()))
    }
}

/// The rows with the columns of `schema`; what they do not have is NULL.
///
/// # Errors
/// When a column that they do not have must not be NULL.
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
