//! The Python statements with which pandas and polars read a table's archive.
//!
//! Both readers take the columns of the first file unless a call states the columns, so the statements state
//! the columns of all files.

use serde_json::Value;

use super::super::cell::CellType;
use super::super::schema::UnionColumn;
use super::{Target, relation, table_location};

/// Returns the statement for pandas. Its columns keep exact values, because they have pyarrow's types.
/// Source: pandas API reference, "pandas.read_parquet".
pub(super) fn pandas(target: &Target<'_>, columns: &[&UnionColumn]) -> String {
    let fields =
        fields(columns, |name, cell_type| format!("({name}, {})", pyarrow_type(cell_type)));
    format!(
        "import pandas\nimport pyarrow\n\n{} = pandas.read_parquet(\n    {},\n    schema=pyarrow.schema([\n{fields}        (\"dt\", pyarrow.string()),\n    ]),\n    partitioning=\"hive\",\n    dtype_backend=\"pyarrow\",\n)",
        relation(target.table),
        literal(&table_location(target)),
    )
}

/// Returns the statement for polars. Source: polars API reference, "polars.scan_parquet".
pub(super) fn polars(target: &Target<'_>, columns: &[&UnionColumn]) -> String {
    let fields = fields(columns, |name, cell_type| format!("{name}: {}", polars_type(cell_type)));
    format!(
        "import polars\n\n{} = polars.scan_parquet(\n    {},\n    schema={{\n{fields}    }},\n    missing_columns=\"insert\",\n    extra_columns=\"ignore\",\n    glob=False,\n    hive_partitioning=True,\n    hive_schema={{\"dt\": polars.String}},\n)",
        relation(target.table),
        literal(&table_location(target)),
    )
}

/// Returns one line for each column.
fn fields(columns: &[&UnionColumn], field: impl Fn(String, CellType) -> String) -> String {
    let lines = columns.iter().filter_map(|column| {
        Some(format!("        {},\n", field(literal(&column.name), column.only_type()?)))
    });
    lines.collect()
}

/// Returns a string literal. JSON's escapes mean the same in Python.
fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

fn pyarrow_type(cell_type: CellType) -> String {
    match cell_type {
        CellType::Text => "pyarrow.string()".to_owned(),
        CellType::Int => "pyarrow.int32()".to_owned(),
        CellType::Bigint => "pyarrow.int64()".to_owned(),
        CellType::Decimal { precision, scale } => {
            format!("pyarrow.decimal128({precision}, {scale})")
        }
        CellType::Boolean => "pyarrow.bool_()".to_owned(),
        CellType::Binary => "pyarrow.binary()".to_owned(),
        CellType::Timestamp => "pyarrow.timestamp(\"ms\", \"UTC\")".to_owned(),
        CellType::Texts => "pyarrow.list_(pyarrow.string())".to_owned(),
    }
}

fn polars_type(cell_type: CellType) -> String {
    match cell_type {
        CellType::Text => "polars.String".to_owned(),
        CellType::Int => "polars.Int32".to_owned(),
        CellType::Bigint => "polars.Int64".to_owned(),
        CellType::Decimal { precision, scale } => format!("polars.Decimal({precision}, {scale})"),
        CellType::Boolean => "polars.Boolean".to_owned(),
        CellType::Binary => "polars.Binary".to_owned(),
        CellType::Timestamp => "polars.Datetime(\"ms\", \"UTC\")".to_owned(),
        CellType::Texts => "polars.List(polars.String)".to_owned(),
    }
}
