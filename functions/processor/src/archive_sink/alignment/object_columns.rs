//! The columns of an object and of all objects of a table: own and added ones.
//!
//! It reads footers only, and fetches nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_schema::{FieldRef, Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, ParquetMetaDataReader};
use rules::archive::SYSTEM_COLUMNS;

use super::super::column_metadata::added_columns;
use super::super::part_rows::PART_COLUMNS_MAX;

/// Columns by name.
pub(super) type Columns = BTreeMap<String, FieldRef>;

/// The columns of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ObjectColumns {
    /// The columns that its rows were written with, in their order, and the archive's own ones.
    own: Vec<FieldRef>,
    /// The columns of other objects. No row has a value.
    pub(super) added: Columns,
}

impl ObjectColumns {
    /// Reads the columns from the last bytes of an object.
    ///
    /// # Errors
    /// [`ParquetError::NeedMoreData`] if the footer is longer; any other error if the object is not
    /// an archive object.
    pub(super) fn of_tail(tail: &Bytes, object_bytes: u64) -> Result<Self, ParquetError> {
        let mut reader = ParquetMetaDataReader::new();
        reader.try_parse_sized(tail, object_bytes)?;
        let metadata = Arc::new(reader.finish()?);
        let footer = ArrowReaderMetadata::try_new(metadata, ArrowReaderOptions::new())?;
        let pairs = footer.metadata().file_metadata().key_value_metadata();
        Self::of(footer.schema(), pairs.map_or(&[], Vec::as_slice))
    }

    /// Returns the columns of an object with this schema and metadata.
    ///
    /// # Errors
    /// When the metadata cannot be parsed.
    pub(super) fn of(schema: &SchemaRef, metadata: &[KeyValue]) -> Result<Self, ParquetError> {
        let names = added_columns(metadata)?;
        let mut columns = Self::default();
        for field in schema.fields() {
            if names.contains(field.name()) {
                columns.added.insert(field.name().clone(), Arc::clone(field));
            } else {
                columns.own.push(Arc::clone(field));
            }
        }
        Ok(columns)
    }

    /// Returns the own columns with these added ones before the archive's own columns.
    pub(super) fn schema_with(&self, added: &Columns) -> SchemaRef {
        let typed = self.own.iter().position(is_system).unwrap_or(self.own.len());
        let mut fields = self.own.clone();
        fields.splice(typed..typed, added.values().cloned());
        Arc::new(Schema::new(fields))
    }

    /// Returns the own columns that other objects can have too.
    fn shared(&self) -> impl Iterator<Item = &FieldRef> {
        self.own.iter().filter(|field| field.is_nullable() && !is_system(field))
    }
}

fn is_system(field: &FieldRef) -> bool {
    SYSTEM_COLUMNS.iter().any(|(name, _)| name == field.name())
}

/// The columns of a table. If objects disagree about a column's type, the last owner in the order
/// of the names decides: it has the newest rows.
#[derive(Debug)]
pub(super) struct TableColumns {
    columns: Columns,
    owned: BTreeSet<String>,
    /// Whether objects get columns. They then keep the added columns that they have, because the
    /// owner may be a part that is too young. Otherwise objects lose added columns without an owner.
    adds: bool,
    /// The names and types of the first object, with added ones.
    first: Option<Columns>,
    differ: bool,
}

impl TableColumns {
    /// Returns the columns of a table without objects.
    pub(super) fn new(adds: bool) -> Self {
        let (columns, owned) = (Columns::new(), BTreeSet::new());
        Self { columns, owned, adds, first: None, differ: false }
    }

    /// Adds the columns of the next object.
    pub(super) fn add(&mut self, object: ObjectColumns) {
        let shared = object.shared().map(|field| (field.name().clone(), Arc::clone(field)));
        let shared: Columns = shared.collect();
        self.owned.extend(shared.keys().cloned());
        self.columns.extend(shared.clone());
        let mut all = object.added;
        if self.adds {
            let more = all.iter().filter(|(name, _)| !self.owned.contains(*name));
            let more = more.map(|(name, field)| (name.clone(), Arc::clone(field)));
            self.columns.extend(more);
        }
        all.extend(shared);
        match &self.first {
            None => self.first = Some(all),
            Some(first) => self.differ |= *first != all,
        }
    }

    /// Returns whether all objects have exactly the same columns, those of the table.
    pub(super) fn are_equal(&self) -> bool {
        !self.differ && self.first.as_ref().is_none_or(|first| *first == self.columns)
    }

    /// Returns the added columns that an object should have. A table with more columns than an
    /// object may have gets no further ones.
    pub(super) fn added_to(&self, object: &ObjectColumns) -> Columns {
        let own: BTreeSet<&str> = object.own.iter().map(|field| field.name().as_str()).collect();
        let adds = self.adds && self.columns.len() <= PART_COLUMNS_MAX;
        let is_added = |name: &String, field: &FieldRef| {
            !own.contains(name.as_str()) && (adds || object.added.get(name) == Some(field))
        };
        let added = self.columns.iter().filter(|(name, field)| is_added(name, field));
        added.map(|(name, field)| (name.clone(), Arc::clone(field))).collect()
    }
}
