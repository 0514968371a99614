//! Builds archive objects from other archive objects: copies rows unchanged, and leaves out the
//! rows that callers exclude.
//!
//! Compaction and erasure decide which rows are left out. The module fetches and puts no object.

use std::sync::Arc;

use arrow_array::{Array, BooleanArray, RecordBatch, StringArray};
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use rules::archive::ColumnType;

use super::column_metadata::{self, COLUMNS};
use super::encoding::{TypedColumn, writer_properties};
use super::part_content::{ERASED, EVENT_ID, REPLACED, Replaced, read_json, text_of};

const SEQUENCE_FIRST: &str = "weir.sequence_first";
const SEQUENCE_LAST: &str = "weir.sequence_last";
/// Number of rows that are decoded at a time. An item has at most 400 KB, so the rows take at most
/// about 50 MB.
const BATCH_ROWS: usize = 128;
/// Size at which the writer closes a row group. The writer keeps at most one row group in memory.
const ROW_GROUP_BYTES: usize = 16 << 20;

/// A reader of an archive object.
pub(super) struct ObjectReader {
    /// The columns of the object.
    pub(super) schema: SchemaRef,
    /// The metadata of the object.
    pub(super) metadata: Vec<KeyValue>,
    batches: ParquetRecordBatchReader,
}

impl ObjectReader {
    /// Opens an object.
    ///
    /// # Errors
    /// When the object is not Parquet.
    pub(super) fn open(object: Bytes) -> Result<Self, ParquetError> {
        Self::build(ParquetRecordBatchReaderBuilder::try_new(object)?)
    }

    /// Opens an object, and reads only these columns.
    ///
    /// # Errors
    /// When the object is not Parquet.
    pub(super) fn open_columns(object: Bytes, names: &[&str]) -> Result<Self, ParquetError> {
        let builder = ParquetRecordBatchReaderBuilder::try_new(object)?;
        let columns = ProjectionMask::columns(builder.parquet_schema(), names.iter().copied());
        Self::build(builder.with_projection(columns))
    }

    fn build(builder: ParquetRecordBatchReaderBuilder<Bytes>) -> Result<Self, ParquetError> {
        let metadata = builder.metadata().file_metadata().key_value_metadata().cloned();
        let schema = Arc::clone(builder.schema());
        let batches = builder.with_batch_size(BATCH_ROWS).build()?;
        Ok(Self { schema, metadata: metadata.unwrap_or_default(), batches })
    }

    /// Returns the rows in batches.
    pub(super) fn batches(&mut self) -> impl Iterator<Item = Result<RecordBatch, ParquetError>> {
        self.batches.by_ref().map(|batch| batch.map_err(ParquetError::from))
    }
}

/// Returns the text column `name` of a batch.
///
/// # Errors
/// When the batch has no such text column.
pub(super) fn texts<'b>(
    batch: &'b RecordBatch,
    name: &str,
) -> Result<&'b StringArray, ParquetError> {
    batch
        .column_by_name(name)
        .and_then(|column| column.as_any().downcast_ref())
        .ok_or_else(|| ParquetError::General(format!("no string column `{name}`")))
}

/// Returns the rows of a batch for which `keep`, called with the position of the row, returns true.
///
/// # Errors
/// When the batch cannot be filtered.
pub(super) fn keep(
    batch: &RecordBatch,
    mut keep: impl FnMut(usize) -> bool,
) -> Result<RecordBatch, ParquetError> {
    let mask: BooleanArray = (0..batch.num_rows()).map(|row| Some(keep(row))).collect();
    if mask.true_count() == batch.num_rows() {
        return Ok(batch.clone());
    }
    Ok(filter_record_batch(batch, &mask)?)
}

/// Returns the event ids of a batch.
///
/// # Errors
/// When the batch has no event ids.
pub(super) fn event_ids(batch: &RecordBatch) -> Result<&StringArray, ParquetError> {
    texts(batch, EVENT_ID)
}

/// A writer of an archive object.
pub(super) struct ObjectWriter {
    writer: ArrowWriter<Vec<u8>>,
    /// Rows written so far.
    pub(super) rows: usize,
}

/// The metadata of an object that is built from other objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Lineage {
    metadata: Vec<KeyValue>,
    sequence_first: Option<String>,
    sequence_last: Option<String>,
    /// Event ids of rows that were erased from the source objects.
    pub(super) erased: Vec<String>,
    /// The parts that the new object replaces.
    pub(super) replaced: Replaced,
}

impl Lineage {
    /// Adds the metadata of one source object.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub(super) fn add(&mut self, object: &ObjectReader) -> Result<(), ParquetError> {
        let metadata = &object.metadata;
        if self.metadata.is_empty() {
            self.metadata.clone_from(metadata);
        }
        let text = |key| text_of(metadata, key).filter(|text| !text.is_empty()).map(str::to_owned);
        let first = text(SEQUENCE_FIRST);
        self.sequence_first = [self.sequence_first.take(), first].into_iter().flatten().min();
        self.sequence_last = self.sequence_last.take().max(text(SEQUENCE_LAST));
        self.erased.extend(read_json::<Vec<String>>(metadata, ERASED)?.unwrap_or_default());
        self.replaced.extend(read_json::<Replaced>(metadata, REPLACED)?.unwrap_or_default());
        Ok(())
    }

    /// Sets the metadata about typed columns. Without this call, the object gets the metadata of
    /// the first added object.
    pub(super) fn tell_columns(&mut self, columns: String) {
        self.metadata.retain(|entry| entry.key != COLUMNS);
        self.metadata.push(KeyValue::new(COLUMNS.to_owned(), columns));
    }

    fn into_metadata(self) -> Result<Vec<KeyValue>, ParquetError> {
        let json = |error: serde_json::Error| ParquetError::General(error.to_string());
        let mut own = vec![
            (SEQUENCE_FIRST, self.sequence_first.unwrap_or_default()),
            (SEQUENCE_LAST, self.sequence_last.unwrap_or_default()),
        ];
        if !self.erased.is_empty() {
            own.push((ERASED, serde_json::to_string(&self.erased).map_err(json)?));
        }
        if !self.replaced.is_empty() {
            own.push((REPLACED, serde_json::to_string(&self.replaced).map_err(json)?));
        }
        // The Parquet writer adds the Arrow schema itself, so the copied schema is dropped.
        let mut metadata = self.metadata;
        metadata.retain(|entry| {
            entry.key != "ARROW:schema"
                && ![SEQUENCE_FIRST, SEQUENCE_LAST, ERASED, REPLACED].contains(&entry.key.as_str())
        });
        let own = own.into_iter().map(|(key, value)| KeyValue::new(key.to_owned(), value));
        metadata.extend(own);
        Ok(metadata)
    }
}

impl ObjectWriter {
    /// Begins an object with the columns of `schema` and the metadata of `lineage`.
    ///
    /// # Errors
    /// When the metadata about typed columns cannot be read.
    pub(super) fn begin(schema: &SchemaRef, lineage: &Lineage) -> Result<Self, ParquetError> {
        let told = column_metadata::read(&lineage.metadata)?;
        let columns = told.iter().filter_map(|(name, column)| {
            let column_type = ColumnType::from_text(&column.column_type)?;
            // Every typed column except JSON gets a dictionary. The writer drops a dictionary that
            // grows too large.
            Some(TypedColumn { name, column_type, repeats: column_type != ColumnType::Json })
        });
        let properties = writer_properties(columns, lineage.clone().into_metadata()?)?;
        let writer = ArrowWriter::try_new(Vec::new(), Arc::clone(schema), Some(properties))?;
        Ok(Self { writer, rows: 0 })
    }

    /// Adds the rows of a batch.
    ///
    /// # Errors
    /// When the columns of the batch differ from the object's columns.
    pub(super) fn add(&mut self, batch: &RecordBatch) -> Result<(), ParquetError> {
        self.rows += batch.num_rows();
        self.writer.write(batch)?;
        if self.writer.in_progress_size() >= ROW_GROUP_BYTES {
            self.writer.flush()?;
        }
        Ok(())
    }

    /// Returns the object's bytes.
    ///
    /// # Errors
    /// When the file cannot be closed.
    pub(super) fn finish(self) -> Result<Bytes, ParquetError> {
        Ok(self.writer.into_inner()?.into())
    }
}
