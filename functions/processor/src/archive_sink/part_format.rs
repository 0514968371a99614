//! An archive part as Parquet: encodes rows as the bytes of a file.
//!
//! The encoding is deterministic. `rules::archive` defines the columns, and any Parquet reader can
//! read them. The module does not store parts.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Decimal128Builder, Int32Builder, Int64Builder, ListBuilder,
    StringBuilder, TimestampMillisecondBuilder,
};
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema as ArrowSchema, TimeUnit};
use bytes::Bytes;
use model::json::write_string;
use parquet::arrow::ArrowWriter;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use rules::archive::{ColumnType, ColumnValue, Row, SCHEMA_VERSION, Schema};

use super::encoding::{TypedColumn, writer_properties};
use super::part_content::EVENT_ID;
use super::part_rows::PartRows;

const UTC: &str = "UTC";
/// Rows per batch. A part is written in batches, because the columns of a batch are in memory in
/// addition to the rows.
const ROWS_AT_ONCE: usize = 512;
/// Maximum number of rows that are sampled to find out whether a column's values repeat.
const SAMPLE_ROWS: usize = 1_024;

/// Encodes a part. In rows whose schema lacks a column, the column is NULL.
///
/// # Errors
/// When there is no row.
pub(super) fn write_part(part: &PartRows<'_>) -> Result<Bytes, ParquetError> {
    let schema = part.schema.as_ref();
    let sample = part.rows.get(..SAMPLE_ROWS).unwrap_or(&part.rows);
    let mut writer = None;
    for rows in part.rows.chunks(ROWS_AT_ONCE) {
        let batch = record_batch(schema, rows)?;
        let writer = match &mut writer {
            Some(writer) => writer,
            none => {
                let places = places_by_schema(schema, sample);
                let typed = schema.columns().enumerate().map(|(position, column)| TypedColumn {
                    name: &column.name,
                    column_type: column.column_type,
                    repeats: repeats(column.column_type, places.values(sample, position)),
                });
                let properties = writer_properties(typed, metadata(schema, &part.rows))?;
                none.insert(ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties))?)
            }
        };
        writer.write(&batch)?;
    }
    let writer = writer.ok_or_else(|| ParquetError::General("the part has no rows".to_owned()))?;
    Ok(writer.into_inner()?.into())
}

/// Returns rows of a part as a record batch that has all columns of the part.
fn record_batch(schema: &Schema, rows: &[&Row]) -> Result<RecordBatch, ParquetError> {
    let mut fields = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    let places = places_by_schema(schema, rows);
    for (position, column) in schema.columns().enumerate() {
        let array = typed_array(column.column_type, places.values(rows, position))?;
        fields.push(Field::new(&column.name, array.data_type().clone(), true));
        columns.push(array);
    }
    for (name, array, nullable) in system_arrays(rows) {
        fields.push(Field::new(name, array.data_type().clone(), nullable));
        columns.push(array);
    }
    Ok(RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), columns)?)
}

/// The positions of the part's columns in the schemas of its rows.
struct Places {
    /// For each distinct schema: the position of each of the part's columns in it.
    known: Vec<Vec<Option<usize>>>,
    /// For each row, the index of its schema.
    of_row: Vec<usize>,
}

impl Places {
    /// Returns the values of the column at `position` of the part's schema.
    fn values<'v>(
        &self,
        rows: &[&'v Row],
        position: usize,
    ) -> impl Iterator<Item = Option<ColumnValue<'v>>> + Clone {
        rows.iter().zip(&self.of_row).map(move |(row, known)| {
            let place = self.known.get(*known)?.get(position).copied().flatten()?;
            Some(row.value(place))
        })
    }
}

fn places_by_schema(schema: &Schema, rows: &[&Row]) -> Places {
    let mut schemas: Vec<&Arc<Schema>> = Vec::new();
    let mut places = Places { known: Vec::new(), of_row: Vec::with_capacity(rows.len()) };
    for row in rows {
        let known = schemas.iter().position(|known| Arc::ptr_eq(known, &row.schema));
        places.of_row.push(known.unwrap_or(schemas.len()));
        if known.is_none() {
            schemas.push(&row.schema);
            places.known.push(schema.places_in(&row.schema));
        }
    }
    places
}

fn typed_array<'v>(
    column_type: ColumnType,
    values: impl Iterator<Item = Option<ColumnValue<'v>>> + Clone,
) -> Result<ArrayRef, ArrowError> {
    Ok(match column_type {
        ColumnType::String | ColumnType::Json => {
            Arc::new(texts_of(values.map(|value| match value {
                Some(ColumnValue::Text(text)) => Some(text),
                _ => None,
            })))
        }
        ColumnType::Bigint => {
            let mut builder = Int64Builder::new();
            values.for_each(|value| match value {
                Some(ColumnValue::Integer(integer)) => builder.append_value(integer),
                _ => builder.append_null(),
            });
            Arc::new(builder.finish())
        }
        ColumnType::Decimal { precision, scale } => {
            let scale = i8::try_from(scale)
                .map_err(|_| ArrowError::SchemaError(format!("decimal scale {scale}")))?;
            let mut builder =
                Decimal128Builder::new().with_precision_and_scale(precision, scale)?;
            values.for_each(|value| match value {
                Some(ColumnValue::Decimal(unscaled)) => builder.append_value(unscaled),
                _ => builder.append_null(),
            });
            Arc::new(builder.finish())
        }
        ColumnType::Boolean => {
            let mut builder = BooleanBuilder::new();
            values.for_each(|value| match value {
                Some(ColumnValue::Boolean(flag)) => builder.append_value(flag),
                _ => builder.append_null(),
            });
            Arc::new(builder.finish())
        }
        ColumnType::Binary => {
            let mut builder = BinaryBuilder::new();
            values.for_each(|value| match value {
                Some(ColumnValue::Binary(bytes)) => builder.append_value(bytes),
                _ => builder.append_null(),
            });
            Arc::new(builder.finish())
        }
    })
}

/// Returns the strings as an array with one allocation of exactly the needed size.
fn texts_of<'v>(texts: impl Iterator<Item = Option<&'v str>>) -> StringArray {
    let texts: Vec<_> = texts.collect();
    let bytes = texts.iter().flatten().map(|text| text.len()).sum();
    let mut builder = StringBuilder::with_capacity(texts.len(), bytes);
    texts.into_iter().for_each(|text| builder.append_option(text));
    builder.finish()
}

/// Returns the columns of `rules::archive::SYSTEM_COLUMNS`, in that order. Each has its name, its
/// values, and true if it may be NULL.
fn system_arrays(rows: &[&Row]) -> [(&'static str, ArrayRef, bool); 12] {
    let text = |of: fn(&Row) -> &str| -> ArrayRef {
        Arc::new(texts_of(rows.iter().map(|row| Some(of(row)))))
    };
    let timestamp = |of: fn(&Row) -> Option<i64>| -> ArrayRef {
        let utc = DataType::Timestamp(TimeUnit::Millisecond, Some(UTC.into()));
        let mut builder = TimestampMillisecondBuilder::new().with_data_type(utc);
        rows.iter().for_each(|row| builder.append_option(of(row)));
        Arc::new(builder.finish())
    };
    let mut ttl_raw = Int64Builder::new();
    rows.iter().for_each(|row| ttl_raw.append_option(row.ttl_raw));
    let mut version = Int32Builder::new();
    rows.iter().for_each(|_| version.append_value(SCHEMA_VERSION));
    let element = Field::new("element", DataType::Utf8, false);
    let mut coercions = ListBuilder::new(StringBuilder::new()).with_field(element);
    for row in rows {
        row.coercions.iter().for_each(|coercion| coercions.values().append_value(coercion));
        coercions.append(true);
    }
    [
        ("_item", text(Row::item), false),
        (EVENT_ID, text(Row::event_id), false),
        ("_sequence_number", text(Row::sequence_number), false),
        ("_event_name", text(|row| row.event_name), false),
        ("_deleted_by", text(|row| row.deleted_by.as_str()), false),
        ("_deleted_at", timestamp(|row| Some(row.deleted_at_ms)), false),
        ("_expires_at", timestamp(|row| row.expires_at_ms), true),
        ("_ttl_raw", Arc::new(ttl_raw.finish()), true),
        ("_table", text(|row| &row.table), false),
        ("_stream_arn", text(|row| &row.stream_arn), false),
        ("_schema_version", Arc::new(version.finish()), false),
        ("_coercions", Arc::new(coercions.finish()), false),
    ]
}

/// Returns whether at most half of a column's values are distinct.
fn repeats<'v>(
    column_type: ColumnType,
    values: impl Iterator<Item = Option<ColumnValue<'v>>>,
) -> bool {
    if matches!(column_type, ColumnType::Boolean | ColumnType::Binary) {
        return true;
    }
    let mut count = 0;
    let values = values.flatten().filter(|value| *value != ColumnValue::Null);
    let different = values.inspect(|_| count += 1).collect::<HashSet<_>>().len();
    different <= count / 2
}

/// Returns the file's metadata.
fn metadata(schema: &Schema, rows: &[&Row]) -> Vec<KeyValue> {
    let sequence =
        |row: Option<&&Row>| row.map_or(String::new(), |row| row.sequence_number().to_owned());
    let mut columns = String::from("{");
    for (position, column) in schema.columns().enumerate() {
        if position > 0 {
            columns.push(',');
        }
        write_string(&mut columns, &column.name);
        columns.push_str(":{\"path\":");
        write_string(&mut columns, &column.path.to_string());
        columns.push_str(",\"type\":");
        write_string(&mut columns, &column.column_type.to_string());
        columns.push('}');
    }
    columns.push('}');
    let stream_arn = rows.first().map_or(String::new(), |row| row.stream_arn.to_string());
    [
        ("weir.schema_version", SCHEMA_VERSION.to_string()),
        ("weir.stream_arn", stream_arn),
        ("weir.sequence_first", sequence(rows.first())),
        ("weir.sequence_last", sequence(rows.last())),
        ("weir.columns", columns),
    ]
    .map(|(key, value)| KeyValue::new(key.to_owned(), value))
    .into()
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Decimal128Type, Int64Type, TimestampMillisecondType};
    use model::json::item_from_str;
    use model::stream_record::LambdaRecord;
    use model::{EventName, StreamRecord, StreamViewType, UserIdentity};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use rules::archive::{Archive, Declaration, Rows, SYSTEM_COLUMNS};
    use rules::{Found, Join, Rule};

    use super::*;
    use crate::archive_sink::encoding::tests::{check_is_plain, physical_types};
    use crate::archive_sink::part_content::PartContent;
    use crate::archive_sink::part_rows::{PART_COLUMNS_MAX, rows_of_parts};
    use crate::archive_sink::rewrite::{Lineage, ObjectReader, ObjectWriter};

    const NINES: &str = "99999999999999999999999999999999999999";

    fn rows(items: &[String], columns: &str) -> Vec<Row> {
        let Declaration { columns, discover } = Declaration::parse(columns).unwrap();
        let rule = Archive {
            columns,
            discover,
            ttl_attribute: Some("expires".to_owned()),
            ..Archive::default()
        };
        let decided = items.iter().enumerate().flat_map(|(position, text)| {
            let item = item_from_str(text).unwrap();
            let mut keys = item.clone();
            keys.retain(|name, _| name == "id" || name == "raw");
            let record = LambdaRecord {
                record: StreamRecord {
                    event_id: format!("{position:032x}"),
                    event_name: EventName::Remove,
                    user_identity: Some(UserIdentity::time_to_live()),
                    approximate_creation_seconds: Some(1_795_228_199),
                    keys,
                    old_image: Some(item),
                    new_image: None,
                    sequence_number: position.to_string().parse().unwrap(),
                    size_bytes: 1,
                    view_type: StreamViewType::OldImage,
                },
                event_source_arn: "arn:aws:dynamodb:r:a:table/tab/stream/2026-11-21".to_owned(),
            };
            rule.decide(&record, &Found::default()).unwrap()
        });
        decided.flat_map(|effect| effect.statement.iter().cloned().collect::<Vec<_>>()).collect()
    }

    fn write(rows: &[Row]) -> Bytes {
        let mut set = Rows::default();
        rows.iter().for_each(|row| set.join(Rows::from([row.clone()])));
        let [part] = rows_of_parts(&set).try_into().ok().expect("one part");
        write_part(&part).unwrap()
    }

    fn read(part: Bytes) -> RecordBatch {
        let mut reader = ParquetRecordBatchReaderBuilder::try_new(part).unwrap().build().unwrap();
        let batch = reader.next().unwrap().unwrap();
        assert!(reader.next().is_none());
        batch
    }

    #[test]
    fn everything_is_read_back_as_it_was_written() {
        let items = [
            format!(r#"{{"big":{{"N":"{NINES}"}},"expires":{{"N":"1795228100"}},"flag":{{"BOOL":true}},"id":{{"N":"-7"}},"m":{{"M":{{"x":{{"S":"é"}}}}}},"raw":{{"B":"AAH/"}}}}"#),
            format!(r#"{{"big":{{"N":"-{NINES}"}},"flag":{{"NULL":true}},"id":{{"N":"9223372036854775807"}},"raw":{{"B":""}},"sets":{{"M":{{"bs":{{"BS":["AA=="]}},"ns":{{"NS":["-1.5","{NINES}"]}},"ss":{{"SS":["a","b"]}}}}}}}}"#),
            r#"{"big":{"N":"0.5"},"flag":{"S":"no"},"id":{"N":"1.5"},"m":{"L":[]},"raw":{"B":"AA=="}}"#.to_owned(),
        ];
        let rows = rows(&items, "big:decimal(38,0),flag:boolean,m.x:string,m:json");
        let batch = read(write(&rows));

        let text = |name: &str| -> Vec<Option<String>> {
            let column = batch.column_by_name(name).unwrap().as_string::<i32>();
            column.iter().map(|value| value.map(str::to_owned)).collect()
        };
        let some = |values: &[&str]| -> Vec<Option<String>> {
            values.iter().map(|value| Some((*value).to_owned())).collect()
        };
        assert_eq!(text("_item"), items.iter().cloned().map(Some).collect::<Vec<_>>());
        assert_eq!(text("m_x"), [Some("é".to_owned()), None, None]);
        assert_eq!(text("m"), [Some(r#"{"x":"é"}"#.to_owned()), None, Some("[]".to_owned())]);
        assert_eq!(text("_deleted_by"), some(&["ttl", "ttl", "ttl"]));
        let ids = batch.column_by_name("id").unwrap().as_primitive::<Int64Type>();
        assert_eq!(ids.iter().collect::<Vec<_>>(), [Some(-7), Some(i64::MAX), None]);
        let raw = batch.column_by_name("raw").unwrap().as_binary::<i32>();
        assert_eq!(raw.iter().flatten().collect::<Vec<_>>(), [&[0, 1, 255][..], &[], &[0]]);
        let big = batch.column_by_name("big").unwrap().as_primitive::<Decimal128Type>();
        let nines: i128 = NINES.parse().unwrap();
        assert_eq!(big.data_type(), &DataType::Decimal128(38, 0));
        assert_eq!(big.iter().collect::<Vec<_>>(), [Some(nines), Some(-nines), None]);
        let flag = batch.column_by_name("flag").unwrap().as_boolean();
        assert_eq!(flag.iter().collect::<Vec<_>>(), [Some(true), None, None]);
        let expires = batch.column_by_name("_expires_at").unwrap();
        let expires = expires.as_primitive::<TimestampMillisecondType>();
        assert_eq!(expires.iter().collect::<Vec<_>>(), [Some(1_795_228_100_000), None, None]);
        let coercions = batch.column_by_name("_coercions").unwrap().as_list::<i32>();
        assert_eq!([coercions.value(0).len(), coercions.value(1).len()], [0, 0]);
        assert_eq!(
            coercions.value(2).as_string::<i32>().iter().flatten().collect::<Vec<_>>(),
            [
                "id: N does not fit bigint",
                "big: N does not fit decimal(38,0)",
                "flag: S does not fit boolean",
            ]
        );
    }

    #[test]
    fn a_file_states_its_schema_and_its_range() {
        let items = [
            r#"{"Some.Name":{"S":"a"},"id":{"S":"1"}}"#.to_owned(),
            r#"{"id":{"S":"2"}}"#.to_owned(),
        ];
        let rows = rows(&items, "a.b:json");
        let part = write(&rows);
        assert_eq!(part, write(&rows));
        assert_eq!(
            PartContent::read(part.clone()).unwrap(),
            PartContent::of_event_ids(rows.iter().map(Row::event_id))
        );
        let builder = ParquetRecordBatchReaderBuilder::try_new(part).unwrap();
        let names: Vec<&str> =
            builder.schema().fields().iter().map(|field| field.name().as_str()).collect();
        let system = SYSTEM_COLUMNS.iter().map(|(name, _)| *name);
        assert_eq!(names, ["id", "a_b"].into_iter().chain(system).collect::<Vec<_>>());
        let metadata = builder.metadata().file_metadata().key_value_metadata().unwrap();
        let value = |key: &str| {
            let found = metadata.iter().find(|pair| pair.key == key).unwrap();
            found.value.clone().unwrap()
        };
        assert_eq!(value("weir.sequence_last"), format!("{:040}", 1));
        assert_eq!(
            value("weir.columns"),
            r#"{"id":{"path":"id","type":"string"},"a_b":{"path":"a.b","type":"json"}}"#
        );
        let chunk = builder.metadata().row_group(0).column(2);
        assert_eq!(chunk.column_path().string(), "_item");
        assert!(chunk.compression().to_string().starts_with("ZSTD"));
        assert_eq!(chunk.dictionary_page_offset(), None);
    }

    #[test]
    fn columns_are_found_in_the_rows_of_the_part() {
        let items = [
            r#"{"id":{"S":"1"},"price":{"N":"7.5"},"sets":{"SS":["a","b"]}}"#.to_owned(),
            r#"{"Price":{"N":"2"},"id":{"S":"2"},"price":{"S":"free"}}"#.to_owned(),
            r#"{"Price":{"N":"3"},"id":{"S":"3"},"price":{"N":"1"}}"#.to_owned(),
            r#"{"id":{"S":"4"},"price":{"N":"0.00000000001"}}"#.to_owned(),
        ];
        let rows = rows(&items, "*");
        let part = write(&rows);
        let reversed: Vec<Row> = rows.iter().rev().cloned().collect();
        assert_eq!(part, write(&reversed));
        let batch = read(part);
        let schema = batch.schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names[..4], ["id", "price_n", "price_s", "sets_ss"]);
        let numbers = batch.column(1).as_primitive::<Decimal128Type>();
        let unscaled = 10_i128.pow(10);
        assert_eq!(
            numbers.iter().collect::<Vec<_>>(),
            [Some(unscaled * 15 / 2), Some(unscaled * 2), Some(unscaled * 3), None]
        );
        let text = |at: usize| batch.column(at).as_string::<i32>().iter().collect::<Vec<_>>();
        assert_eq!(text(2), [None, Some("free"), None, None]);
        assert_eq!(text(3), [Some(r#"["a","b"]"#), None, None, None]);
        let coercions = batch.column_by_name("_coercions").unwrap().as_list::<i32>();
        let said = |row: usize| {
            let texts = coercions.value(row);
            texts.as_string::<i32>().iter().flatten().collect::<Vec<_>>().join("; ")
        };
        assert_eq!(said(0) + &said(1), "");
        assert_eq!(said(2), "price_n: price has no column: the column name is taken");
        assert_eq!(said(3), "price_n: N does not fit decimal(38,10)");
    }

    /// Columns of every type that can be declared, and of every width that Parquet has for a type.
    const EVERY_TYPE: &str = "s:string,j:json,i:bigint,flag:boolean,bin:binary,d9:decimal(9,2),d18:decimal(18,2),d38:decimal(38,0),*";

    /// Returns rows for a part with many pages. Their values repeat or are distinct.
    fn rows_of_every_type(repeating: bool) -> Vec<Row> {
        let items: Vec<String> = (0..1_500_u64)
            .map(|row| {
                let n = if repeating { 7 } else { row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 38 };
                let null = if row % 5 == 0 { r#""NULL":true"#.to_owned() } else { format!(r#""S":"text {n} {}""#, "x".repeat(300)) };
                format!(
                    r#"{{"bin":{{"B":"{n:08}"}},"d18":{{"N":"{n}"}},"d38":{{"N":"{n}{}"}},"d9":{{"N":"{}"}},"expires":{{"N":"{}"}},"flag":{{"BOOL":{}}},"free":{{"N":"{n}"}},"i":{{"N":"{n}"}},"id":{{"S":"{row}"}},"j":{{"L":[{{"N":"{n}"}}]}},"s":{{{null}}}}}"#,
                    "9".repeat(28),
                    n % 1_000_000,
                    1_795_228_100 + n,
                    n % 2 == 0,
                )
            })
            .collect();
        rows(&items, EVERY_TYPE)
    }

    /// Readers without `DELTA_…` encodings or data pages of version 2 can read every object,
    /// whether the function `archive` or compaction wrote it.
    #[test]
    fn every_column_type_is_encoded_for_the_oldest_reader() {
        let declared = Declaration::parse(EVERY_TYPE).unwrap().columns;
        // This match does not compile when a type is added. `EVERY_TYPE` then needs a new column.
        let name = |column_type: ColumnType| match column_type {
            ColumnType::String => "string",
            ColumnType::Json => "json",
            ColumnType::Bigint => "bigint",
            ColumnType::Boolean => "boolean",
            ColumnType::Binary => "binary",
            ColumnType::Decimal { .. } => "decimal",
        };
        let names: HashSet<&str> = declared.iter().map(|column| name(column.column_type)).collect();
        assert_eq!(names.len(), 6);
        for repeating in [false, true] {
            let part = write(&rows_of_every_type(repeating));
            let mut reader = ObjectReader::open(part.clone()).unwrap();
            let mut lineage = Lineage::default();
            lineage.add(&reader).unwrap();
            let mut writer = ObjectWriter::begin(&reader.schema.clone(), &lineage).unwrap();
            for batch in reader.batches() {
                writer.add(&batch.unwrap()).unwrap();
            }
            for object in [part, writer.finish().unwrap()] {
                let chunks = check_is_plain(&object);
                let types = physical_types(&chunks);
                let expected = ["BOOLEAN", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY", "INT32", "INT64"];
                assert_eq!(types.into_iter().collect::<Vec<_>>(), expected);
                let pages = chunks.iter().find_map(|chunk| chunk.strip_prefix("_item BYTE_ARRAY "));
                assert!(pages.unwrap().parse::<u32>().unwrap() > 1, "{chunks:?}");
            }
        }
    }

    #[test]
    fn a_part_has_a_bounded_number_of_columns() {
        let items: Vec<String> = (0..40)
            .map(|item| {
                let names = (0..30).map(|name| format!(r#""a{item}x{name}":{{"BOOL":true}}"#));
                format!(r#"{{{},"id":{{"S":"{item}"}}}}"#, names.collect::<Vec<_>>().join(","))
            })
            .collect();
        let mut set = Rows::default();
        rows(&items, "*").into_iter().for_each(|row| set.join(Rows::from([row])));
        let parts = rows_of_parts(&set);
        assert_eq!(parts.iter().map(|part| part.rows.len()).sum::<usize>(), 40);
        assert!(parts.iter().all(|part| part.schema.len() <= PART_COLUMNS_MAX));
        assert_eq!(parts.len(), 3);
    }

    #[test]
    fn other_bytes_are_not_a_part() {
        assert!(PartContent::read(Bytes::from_static(b"PAR1")).is_err());
        assert!(PartContent::read(Bytes::new()).is_err());
    }
}
