//! `weir archive ddl`: the table and the views for a query engine, from the schemas that the parts
//! really have.
//!
//! Columns whose type differs from part to part are left out, with a note that says where; `_item`
//! has their values. Nothing is created here.

use std::fmt::Write as _;

use clap::ValueEnum;
use serde_json::json;

use super::cell::CellType;
use super::schema::{Union, UnionColumn};

/// A query engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Engine {
    /// SQL for Amazon Athena
    Athena,
    /// SQL for DuckDB
    Duckdb,
    /// JSON for `aws glue create-table --table-input`
    Glue,
}

/// What to write DDL for.
#[derive(Debug)]
pub(super) struct Target<'a> {
    /// The table.
    pub(super) table: &'a str,
    /// The archive's address: `s3://…` or a folder, without a slash at its end.
    pub(super) location: &'a str,
    /// The first day that has a part.
    pub(super) first_date: &'a str,
    /// The columns of the key; without them there is no view of the latest versions.
    pub(super) key_columns: &'a [String],
}

/// Writes the DDL.
///
/// # Errors
/// A key column that no part has.
pub(super) fn text(engine: Engine, target: &Target<'_>, union: &Union) -> Result<String, String> {
    for key in target.key_columns {
        if union.column(key).is_none() {
            return Err(format!("there is no column `{key}`; columns are {}", union.names()));
        }
    }
    let (agreed, conflicts): (Vec<&UnionColumn>, Vec<&UnionColumn>) =
        union.columns.iter().partition(|column| column.only_type().is_some());
    if engine == Engine::Glue {
        return Ok(glue(target, &agreed));
    }
    let mut out = String::new();
    for note in conflicts.iter().filter_map(|column| column.conflict()) {
        let _ = writeln!(out, "-- left out, read it from _item: {note}");
    }
    match engine {
        Engine::Athena => athena(&mut out, target, &agreed),
        _ => duckdb(&mut out, target, &agreed),
    }
    Ok(out)
}

/// The name of the table in the engine: lower case, with `_` for what must be quoted.
fn relation(target: &Target<'_>) -> String {
    let name = target.table.to_lowercase();
    format!("{}_archive", name.replace(|c: char| !c.is_ascii_alphanumeric(), "_"))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn columns_sql(columns: &[&UnionColumn]) -> String {
    let names: Vec<String> = columns.iter().map(|column| quoted(&column.name)).collect();
    names.join(", ")
}

/// The properties that make partitions known without a crawler. Source: Athena user guide,
/// "Partition projection".
fn projection(target: &Target<'_>) -> [(&'static str, String); 7] {
    [
        ("projection.enabled", "true".to_owned()),
        ("projection.dt.type", "date".to_owned()),
        ("projection.dt.format", "yyyy-MM-dd".to_owned()),
        ("projection.dt.range", format!("{},NOW", target.first_date)),
        ("projection.dt.interval", "1".to_owned()),
        ("projection.dt.interval.unit", "DAYS".to_owned()),
        ("storage.location.template", format!("{}dt=${{dt}}/", table_location(target))),
    ]
}

fn table_location(target: &Target<'_>) -> String {
    format!("{}/table={}/", target.location, target.table)
}

fn athena(out: &mut String, target: &Target<'_>, columns: &[&UnionColumn]) {
    let name = relation(target);
    let types = columns.iter().filter_map(|column| {
        let cell_type = column.only_type()?;
        Some(format!("  `{}` {cell_type}", column.name.replace('`', "``")))
    });
    let types: Vec<String> = types.collect();
    let escaped = |text: &str| text.replace('\'', "''");
    let properties =
        projection(target).map(|(key, value)| format!("  '{key}' = '{}'", escaped(&value)));
    let _ = writeln!(
        out,
        "CREATE EXTERNAL TABLE IF NOT EXISTS {name} (\n{}\n)\nPARTITIONED BY (`dt` string)\nSTORED AS PARQUET\nLOCATION '{}'\nTBLPROPERTIES (\n{}\n);\n",
        types.join(",\n"),
        escaped(&table_location(target)),
        properties.join(",\n")
    );
    views(out, target, columns, &|key| {
        let path = serde_json::Value::from(key).to_string().replace('\'', "''");
        format!("json_format(json_extract(_item, '$[{path}]'))")
    });
}

fn duckdb(out: &mut String, target: &Target<'_>, columns: &[&UnionColumn]) {
    let files = format!("{}**/*.parquet", table_location(target)).replace('\'', "''");
    let _ = writeln!(
        out,
        "CREATE OR REPLACE VIEW {} AS\nSELECT {}, dt\nFROM read_parquet('{files}', hive_partitioning = true, hive_types = {{'dt': VARCHAR}}, union_by_name = true);\n",
        relation(target),
        columns_sql(columns)
    );
    views(out, target, columns, &|key| {
        let path = serde_json::Value::from(key).to_string().replace('\'', "''");
        format!("json_extract(_item, '$.{path}')::VARCHAR")
    });
}

/// The view in which each event stands once, and the one with the last version of each key. A key
/// that did not fit its column is NULL there, so its value in `_item` tells such keys apart.
fn views(
    out: &mut String,
    target: &Target<'_>,
    columns: &[&UnionColumn],
    item_value: &dyn Fn(&str) -> String,
) {
    let (name, all) = (relation(target), columns_sql(columns));
    let _ = writeln!(
        out,
        "CREATE OR REPLACE VIEW {name}_events AS\nSELECT {all}, dt FROM (\n  SELECT *, row_number() OVER (PARTITION BY _event_id ORDER BY _sequence_number) AS _copy\n  FROM {name}\n) AS copies\nWHERE _copy = 1;\n"
    );
    if target.key_columns.is_empty() {
        let _ = writeln!(
            out,
            "-- {name}_latest needs the key: name its columns with --key-columns, or run where `weir up` runs"
        );
        return;
    }
    let parts = target.key_columns.iter().map(|key| {
        let column = columns.iter().find(|column| column.name == *key);
        let path = column.and_then(|column| column.path.as_deref()).unwrap_or(key);
        let in_item = item_value(path);
        match column {
            Some(column) if column.only_type() == Some(CellType::Text) => quoted(key),
            Some(_) => {
                let key = quoted(key);
                format!("{key}, CASE WHEN {key} IS NULL THEN {in_item} END")
            }
            // Left out of the table because its type differs.
            None => in_item,
        }
    });
    let parts: Vec<String> = parts.collect();
    let _ = writeln!(
        out,
        "CREATE OR REPLACE VIEW {name}_latest AS\nSELECT {all}, dt FROM (\n  SELECT *, row_number() OVER (\n    PARTITION BY {}\n    ORDER BY _deleted_at DESC, _sequence_number DESC\n  ) AS _version\n  FROM {name}_events\n) AS versions\nWHERE _version = 1;",
        parts.join(", ")
    );
}

/// Glue's `TableInput`. Source: AWS Glue Web API reference, "TableInput".
fn glue(target: &Target<'_>, columns: &[&UnionColumn]) -> String {
    let types = columns.iter().filter_map(|column| {
        Some(json!({"Name": column.name, "Type": column.only_type()?.to_string()}))
    });
    let types: Vec<serde_json::Value> = types.collect();
    let mut parameters = serde_json::Map::new();
    parameters.insert("classification".to_owned(), json!("parquet"));
    parameters.insert("EXTERNAL".to_owned(), json!("TRUE"));
    for (key, value) in projection(target) {
        parameters.insert(key.to_owned(), json!(value));
    }
    let input = json!({
        "Name": relation(target),
        "TableType": "EXTERNAL_TABLE",
        "Parameters": parameters,
        "PartitionKeys": [{"Name": "dt", "Type": "string"}],
        "StorageDescriptor": {
            "Columns": types,
            "Location": table_location(target),
            "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
            "OutputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
            "SerdeInfo": {
                "SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
            },
        },
    });
    format!("{input:#}")
}
