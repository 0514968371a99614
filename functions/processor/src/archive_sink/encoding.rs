//! Encodings of an archive object's columns: the subset of Parquet that every reader supports.
//!
//! The table in `docs/archive.md` lists the readers. The oldest readers, Spark 3.3 and 3.5
//! and fastparquet, lack the `DELTA_…` encodings or decode them wrongly. Therefore a column is
//! `PLAIN` or has a dictionary, in data pages of version 1. The function `archive`, compaction and
//! erasure all use these writer properties.

use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;
use rules::archive::ColumnType;

use super::part_content::EVENT_ID;

/// zstd's fastest regular level. On archive rows, higher levels cost time and save no space.
const ZSTD_LEVEL: i32 = 1;
/// Bytes per page before compression: a page of this size stays in a core's cache.
const PAGE_BYTES: usize = 256 << 10;
/// Number of rows after which the writer checks a page's size.
const WRITE_BATCH_ROWS: usize = 256;

/// A typed column to write.
pub(super) struct TypedColumn<'c> {
    /// The name of the column.
    pub(super) name: &'c str,
    /// The type of the values.
    pub(super) column_type: ColumnType,
    /// True if values occur repeatedly, so that a dictionary saves space.
    pub(super) repeats: bool,
}

/// Returns the writer properties for these typed columns. A column whose values repeat has a
/// dictionary; the writer falls back to `PLAIN` when the dictionary grows too large. `_item` and
/// plain JSON have no statistics, because no query filters by them. A column that needs only a few
/// bytes for all rows together is not compressed, because each compressor takes half a megabyte of
/// memory.
///
/// # Errors
/// When zstd rejects the level.
pub(super) fn writer_properties<'c>(
    columns: impl Iterator<Item = TypedColumn<'c>>,
    metadata: Vec<KeyValue>,
) -> Result<WriterProperties, ParquetError> {
    let zstd = Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?);
    let mut properties = WriterProperties::builder()
        // Version 1 of data pages writes values that do not fit into a dictionary as `PLAIN`.
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_compression(zstd)
        .set_write_batch_size(WRITE_BATCH_ROWS)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_column_statistics_enabled(ColumnPath::from("_item"), EnabledStatistics::None)
        .set_key_value_metadata(Some(metadata));
    // `_coercions` stays compressed: its dictionary is empty if all its lists are empty.
    // fastparquet fails on an empty uncompressed dictionary, and reads a list without a dictionary
    // as NULL.
    for small in ["_event_name", "_deleted_by", "_table", "_stream_arn", "_schema_version"] {
        let path = ColumnPath::from(small);
        properties = properties.set_column_compression(path, Compression::UNCOMPRESSED);
    }
    for unique in ["_item", EVENT_ID, "_sequence_number"] {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(unique), false);
    }
    for column in columns {
        // `ColumnPath::from` is not used, because it splits a name at its dots.
        let path = ColumnPath::new(vec![column.name.to_owned()]);
        properties = match column.column_type {
            ColumnType::Json => {
                properties.set_column_statistics_enabled(path.clone(), EnabledStatistics::None)
            }
            ColumnType::Boolean => {
                properties.set_column_compression(path.clone(), Compression::UNCOMPRESSED)
            }
            _ => properties,
        };
        properties = properties.set_column_dictionary_enabled(path, column.repeats);
    }
    Ok(properties.build())
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use arrow_array::RecordBatch;
    use bytes::Bytes;
    use parquet::arrow::ArrowWriter;
    use parquet::basic::{Encoding, LogicalType, TimeUnit, Type};
    use parquet::column::page::Page;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use rules::Found;

    use super::super::part_content::PartContent;
    use super::super::rewrite::{Lineage, ObjectReader, ObjectWriter};
    use super::super::tests::{block_on, folded, hour, sink};
    use super::*;
    use crate::frame::Executor;
    use crate::object_store::in_memory::InMemoryObjectStore;

    /// The encodings that every reader in the table of `docs/archive.md` supports.
    const ENCODINGS: [Encoding; 3] = [Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY];

    /// Checks each page of an object. Returns `<column> <physical type> <pages>` for each chunk.
    pub(in crate::archive_sink) fn check_is_plain(object: &Bytes) -> Vec<String> {
        let file = SerializedFileReader::new(object.clone()).unwrap();
        let mut chunks = Vec::new();
        for group in 0..file.num_row_groups() {
            let group = file.get_row_group(group).unwrap();
            for (at, chunk) in group.metadata().columns().iter().enumerate() {
                let path = chunk.column_path().string();
                let known = |encoding| ENCODINGS.contains(&encoding);
                assert!(chunk.encodings().all(known), "{path}: {:?}", chunk.encodings_mask());
                let codec = chunk.compression().to_string();
                assert!(codec.starts_with("ZSTD") || codec == "UNCOMPRESSED", "{path}: {codec}");
                if path.starts_with("_coercions.") {
                    assert!(chunk.dictionary_page_offset().is_some() && codec.starts_with("ZSTD"));
                }
                let column = chunk.column_descr();
                let logical = column.logical_type_ref();
                let is_known = match (column.physical_type(), logical) {
                    (Type::BYTE_ARRAY, None | Some(LogicalType::String))
                    | (Type::BOOLEAN | Type::INT32 | Type::INT64, None) => true,
                    (
                        Type::INT32 | Type::INT64 | Type::FIXED_LEN_BYTE_ARRAY,
                        Some(LogicalType::Decimal(_)),
                    ) => true,
                    (Type::INT64, Some(LogicalType::Timestamp(time))) => {
                        time.is_adjusted_to_u_t_c && matches!(time.unit, TimeUnit::MILLIS)
                    }
                    _ => false,
                };
                assert!(is_known, "{path}: {:?} {logical:?}", column.physical_type());
                let mut data_pages = 0;
                for page in group.get_column_page_reader(at).unwrap() {
                    match page.unwrap() {
                        Page::DataPage { encoding, .. } => {
                            assert!(known(encoding), "{path}: {encoding:?}");
                            data_pages += 1;
                        }
                        Page::DictionaryPage { encoding, .. } => {
                            assert_eq!(encoding, Encoding::PLAIN, "{path}");
                        }
                        Page::DataPageV2 { .. } => panic!("{path} has a data page of version 2"),
                    }
                }
                chunks.push(format!("{path} {:?} {data_pages}", column.physical_type()));
            }
        }
        chunks
    }

    /// Returns the physical types of the chunks that [`check_is_plain`] lists.
    pub(in crate::archive_sink) fn physical_types(chunks: &[String]) -> BTreeSet<&str> {
        chunks.iter().filter_map(|chunk| chunk.split(' ').nth(1)).collect()
    }

    /// Objects of earlier versions have `DELTA_…` encodings, some of them in data pages of version
    /// 2.
    #[test]
    fn objects_of_earlier_versions_are_read_and_rewritten() {
        let store = Arc::new(InMemoryObjectStore::default());
        block_on(sink(&store, 5).apply(folded(0..30), &Found::default(), hour()));
        let parts = store.objects();
        assert!(parts.len() > 1);
        for part in parts.into_values() {
            let batches = |object: &Bytes| -> Vec<RecordBatch> {
                let mut reader = ObjectReader::open(object.clone()).unwrap();
                reader.batches().map(Result::unwrap).collect()
            };
            let rows = batches(&part);
            let reader = ObjectReader::open(part.clone()).unwrap();
            let metadata = reader.metadata.iter().filter(|pair| pair.key != "ARROW:schema");
            let properties = WriterProperties::builder()
                .set_writer_version(WriterVersion::PARQUET_2_0)
                .set_dictionary_enabled(false)
                .set_key_value_metadata(Some(metadata.cloned().collect()))
                .build();
            let schema = Arc::clone(&reader.schema);
            let mut writer = ArrowWriter::try_new(Vec::new(), schema, Some(properties)).unwrap();
            rows.iter().for_each(|batch| writer.write(batch).unwrap());
            let old = Bytes::from(writer.into_inner().unwrap());
            let file = SerializedFileReader::new(old.clone()).unwrap();
            let item = file.metadata().row_group(0).columns().iter();
            let mut encodings = item.flat_map(|chunk| chunk.encodings());
            assert!(encodings.any(|encoding| encoding == Encoding::DELTA_BYTE_ARRAY));

            assert_eq!(PartContent::read(old.clone()).unwrap(), PartContent::read(part).unwrap());
            assert_eq!(batches(&old), rows);
            let reader = ObjectReader::open(old).unwrap();
            let mut lineage = Lineage::default();
            lineage.add(&reader).unwrap();
            let mut writer = ObjectWriter::begin(&reader.schema, &lineage).unwrap();
            rows.iter().for_each(|batch| writer.add(batch).unwrap());
            let object = writer.finish().unwrap();
            check_is_plain(&object);
            assert_eq!(batches(&object), rows);
        }
    }
}
