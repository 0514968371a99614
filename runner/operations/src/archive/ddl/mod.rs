//! `weir archive ddl`: writes the table and views for a query engine, or the statement for a Python
//! library, from the schemas of the parts.
//!
//! A column whose type differs between parts is left out. A comment in the DDL lists the types and
//! the parts; the values are still in `_item`. This module only writes text.

mod python;

use std::fmt::Write as _;

use clap::ValueEnum;
use serde_json::json;

use super::schema::{Union, UnionColumn};
use super::source::Part;
use client::failure::{Result, fatal};

/// Suffix of the name of a table's archive.
const SUFFIX: &str = "_archive";

/// A query engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Engine {
    /// SQL for Amazon Athena
    Athena,
    /// SQL for DuckDB
    Duckdb,
    /// JSON for `aws glue create-table --table-input`
    Glue,
    /// Python for pandas
    Pandas,
    /// Python for polars
    Polars,
}

/// The table for which DDL is written.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub(super) table: &'a str,
    /// The archive's address: `s3://…` or a folder, without a trailing slash.
    pub(super) location: &'a str,
    /// The first day with a part.
    pub(super) first_date: &'a str,
    /// The columns of the key; if empty, the DDL has no view of the latest versions.
    pub(super) key_columns: &'a [String],
}

/// Returns the DDL.
///
/// # Errors
/// When no part has a key column.
pub(super) fn text(engine: Engine, target: &Target<'_>, union: &Union) -> Result<String> {
    for key in target.key_columns {
        if union.column(key).is_none() {
            return Err(fatal!("unknown column `{key}`; {}", union.names_like(key)));
        }
    }
    let (agreed, conflicts): (Vec<&UnionColumn>, Vec<&UnionColumn>) =
        union.columns.iter().partition(|column| column.only_type().is_some());
    let mut out = String::new();
    let comment = if matches!(engine, Engine::Pandas | Engine::Polars) { "#" } else { "--" };
    for note in conflicts.iter().filter_map(|column| column.conflict()) {
        let _ = writeln!(out, "{comment} column left out (`_item` has its values): {note}");
    }
    match engine {
        Engine::Athena => athena(&mut out, target, &agreed, union),
        Engine::Duckdb => duckdb(&mut out, target, &agreed, union),
        Engine::Glue => return Ok(glue(target, &agreed)),
        Engine::Pandas => out += &python::pandas(target, &agreed),
        Engine::Polars => out += &python::polars(target, &agreed),
    }
    Ok(out)
}

/// Checks that no other table of the archive gets the same name in the engine. A table whose name
/// is valid in the engine without a change keeps its name; only the table with the changed name is
/// an error.
///
/// # Errors
/// When another table has the same name in the engine.
pub(super) fn check_name(table: &str, parts: &[Part]) -> Result<()> {
    let name = relation(table);
    if name.strip_suffix(SUFFIX) == Some(table) {
        return Ok(());
    }
    let other = parts.iter().find(|part| part.table != table && relation(&part.table) == name);
    let Some(Part { table: other, .. }) = other else { return Ok(()) };
    Err(fatal!(
        "the tables `{table}` and `{other}` would both be named `{name}` in the engine, because its names ignore case and have `_` instead of `-`: copy `table={table}` into a separate folder, pass this folder with --folder and its address with --location, and run the DDL in another database"
    ))
}

/// Returns the table's name in the engine: in lower case, with `_` for characters that need quotes.
/// A name that would begin with a digit or `_` begins with a letter instead.
fn relation(table: &str) -> String {
    let name = table.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let letter = match name.chars().next() {
        Some('_') => "t",
        Some(first) if first.is_ascii_digit() => "t_",
        _ => "",
    };
    format!("{letter}{name}{SUFFIX}")
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Escapes a path for DuckDB: puts the special characters of glob patterns in brackets.
pub(super) fn as_glob(path: &str) -> String {
    let mut glob = String::new();
    for character in path.chars() {
        match character {
            '[' | '*' | '?' => glob.extend(['[', character, ']']),
            _ => glob.push(character),
        }
    }
    glob
}

/// Returns the name of a column that a view adds: `wanted`, with a number appended if the table has
/// a column with this name. Engines compare names without regard to case.
fn own_column(wanted: &str, union: &Union) -> String {
    let is_free =
        |name: &String| !union.columns.iter().any(|column| column.name.eq_ignore_ascii_case(name));
    let numbered = (2..=union.columns.len() + 2).map(|number| format!("{wanted}_{number}"));
    std::iter::once(wanted.to_owned()).chain(numbered).find(is_free).unwrap_or_default()
}

fn columns_sql(columns: &[&UnionColumn]) -> String {
    let names: Vec<String> = columns.iter().map(|column| quoted(&column.name)).collect();
    names.join(", ")
}

/// Returns the table properties for partition projection, which makes a crawler unnecessary.
/// Source: Athena user guide, "Partition projection".
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

fn athena(out: &mut String, target: &Target<'_>, columns: &[&UnionColumn], union: &Union) {
    let name = relation(target.table);
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
    views(out, target, (columns, union), &|key| {
        let path = serde_json::Value::from(key).to_string().replace('\'', "''");
        format!("json_format(json_extract(_item, '$[{path}]'))")
    });
}

fn duckdb(out: &mut String, target: &Target<'_>, columns: &[&UnionColumn], union: &Union) {
    let files = format!("{}**/*.parquet", as_glob(&table_location(target))).replace('\'', "''");
    let _ = writeln!(
        out,
        "CREATE OR REPLACE VIEW {} AS\nSELECT {}, dt\nFROM read_parquet('{files}', hive_partitioning = true, hive_types = {{'dt': VARCHAR}}, union_by_name = true);\n",
        relation(target.table),
        columns_sql(columns)
    );
    views(out, target, (columns, union), &|key| {
        let path = serde_json::Value::from(key).to_string().replace('\'', "''");
        format!("json_extract(_item, '$.{path}')::VARCHAR")
    });
}

/// Returns two views. The first view has each event once. It compares events per day, so an engine
/// reads only the days of a query. The second view has the last version of each key.
///
/// Keys are also compared by their value in `_item`. The key's column is not enough: it is NULL if
/// the value does not fit, and it is absent from `columns` if its type differs between parts.
fn views(
    out: &mut String,
    target: &Target<'_>,
    (columns, union): (&[&UnionColumn], &Union),
    item_value: &dyn Fn(&str) -> String,
) {
    let (name, all) = (relation(target.table), columns_sql(columns));
    let (copy, version) = (own_column("_copy", union), own_column("_version", union));
    let _ = writeln!(
        out,
        "CREATE OR REPLACE VIEW {name}_events AS\nSELECT {all}, dt FROM (\n  SELECT *, row_number() OVER (PARTITION BY dt, _event_id ORDER BY _sequence_number) AS {copy}\n  FROM {name}\n) AS copies\nWHERE {copy} = 1;\n"
    );
    if target.key_columns.is_empty() {
        let _ = writeln!(
            out,
            "-- no view {name}_latest, because the table's key is unknown: name the key columns with --key-columns, or run the command in the folder of a running `weir up`"
        );
        return;
    }
    let parts = target.key_columns.iter().map(|key| {
        let path = union.column(key).and_then(|column| column.path.as_deref()).unwrap_or(key);
        let in_item = item_value(path);
        if columns.iter().any(|column| column.name == *key) {
            let key = quoted(key);
            format!("{key}, CASE WHEN {key} IS NULL THEN {in_item} END")
        } else {
            in_item
        }
    });
    let parts: Vec<String> = parts.collect();
    let _ = writeln!(
        out,
        "CREATE OR REPLACE VIEW {name}_latest AS\nSELECT {all}, dt FROM (\n  SELECT *, row_number() OVER (\n    PARTITION BY {}\n    ORDER BY _deleted_at DESC, _sequence_number DESC\n  ) AS {version}\n  FROM {name}_events\n) AS versions\nWHERE {version} = 1;",
        parts.join(", ")
    );
}

/// Returns Glue's `TableInput`. Source: AWS Glue Web API reference, "TableInput".
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
        "Name": relation(target.table),
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

#[cfg(test)]
mod tests {
    use super::super::cell::CellType;
    use super::*;

    fn column(name: &str, path: &str, types: &[CellType]) -> UnionColumn {
        let types = types.iter().map(|cell_type| (*cell_type, (1, "part".to_owned())));
        UnionColumn { name: name.to_owned(), path: Some(path.to_owned()), types: types.collect() }
    }

    /// If a key attribute's value is not in its column, the view reads it from `_item`.
    #[test]
    fn versions_are_distinguished_by_the_key_attributes() {
        let union = Union {
            columns: vec![
                column("movie_year", "movieYear", &[CellType::Text, CellType::Bigint]),
                column("raw_id", "rawId", &[CellType::Text]),
            ],
        };
        let key_columns = ["movie_year".to_owned(), "raw_id".to_owned()];
        let target = Target {
            table: "movies",
            location: "s3://b/archive",
            first_date: "2026-11-21",
            key_columns: &key_columns,
        };
        for (engine, expected) in [
            (
                Engine::Athena,
                r#"PARTITION BY json_format(json_extract(_item, '$["movieYear"]')), "raw_id", CASE WHEN "raw_id" IS NULL THEN json_format(json_extract(_item, '$["rawId"]')) END"#,
            ),
            (
                Engine::Duckdb,
                r#"PARTITION BY json_extract(_item, '$."movieYear"')::VARCHAR, "raw_id", CASE WHEN "raw_id" IS NULL THEN json_extract(_item, '$."rawId"')::VARCHAR END"#,
            ),
        ] {
            let text = text(engine, &target, &union).unwrap();
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn python_statements_state_the_columns_on_which_parts_agree() {
        let decimal = CellType::Decimal { precision: 38, scale: 10 };
        let columns = vec![
            column("t\"é", "t", &[CellType::Text]),
            column("differs", "differs", &[CellType::Text, CellType::Bigint]),
            column("price_n", "price", &[decimal]),
            column("_deleted_at", "", &[CellType::Timestamp]),
        ];
        let target =
            Target { table: "my-t", location: "/a[1]", first_date: "2026-11-21", key_columns: &[] };
        let union = Union { columns };
        for (engine, expected) in [
            (
                Engine::Pandas,
                r#"import pandas
import pyarrow

my_t_archive = pandas.read_parquet(
    "/a[1]/table=my-t/",
    schema=pyarrow.schema([
        ("t\"é", pyarrow.string()),
        ("price_n", pyarrow.decimal128(38, 10)),
        ("_deleted_at", pyarrow.timestamp("ms", "UTC")),
        ("dt", pyarrow.string()),
    ]),
    partitioning="hive",
    dtype_backend="pyarrow",
)"#,
            ),
            (
                Engine::Polars,
                r#"import polars

my_t_archive = polars.scan_parquet(
    "/a[1]/table=my-t/",
    schema={
        "t\"é": polars.String,
        "price_n": polars.Decimal(38, 10),
        "_deleted_at": polars.Datetime("ms", "UTC"),
    },
    missing_columns="insert",
    extra_columns="ignore",
    glob=False,
    hive_partitioning=True,
    hive_schema={"dt": polars.String},
)"#,
            ),
        ] {
            let text = text(engine, &target, &union).unwrap();
            let (note, statement) = text.split_once('\n').unwrap();
            assert!(
                note.starts_with("# column left out (`_item` has its values): column `differs`"),
                "{note}"
            );
            assert_eq!(statement, expected);
        }
    }

    /// If the table had a column with the name of the view's row number, the view would compare the
    /// table's column with 1.
    #[test]
    fn the_views_own_columns_have_names_that_the_table_has_not() {
        let of = |names: &[&str]| Union {
            columns: names.iter().map(|name| column(name, name, &[CellType::Bigint])).collect(),
        };
        for (names, copy, version) in [
            (&["a"][..], "_copy", "_version"),
            (&["a", "_version"], "_copy", "_version_2"),
            (&["a", "_Copy", "_copy_2"], "_copy_3", "_version"),
        ] {
            let key_columns = ["a".to_owned()];
            let target = Target {
                table: "t",
                location: "/data",
                first_date: "2026-11-21",
                key_columns: &key_columns,
            };
            for engine in [Engine::Athena, Engine::Duckdb] {
                let text = text(engine, &target, &of(names)).unwrap();
                for own in [copy, version] {
                    assert!(text.contains(&format!(") AS {own}\n  FROM")), "{text}");
                    assert!(text.contains(&format!("WHERE {own} = 1;")), "{text}");
                }
            }
        }
    }

    #[test]
    fn a_folder_with_signs_of_patterns_is_found() {
        assert_eq!(as_glob("/data/a[1]/b*c?/d"), "/data/a[[]1]/b[*]c[?]/d");
        let target = Target {
            table: "t",
            location: "/data/a[1]",
            first_date: "2026-11-21",
            key_columns: &[],
        };
        let union = Union { columns: vec![column("a", "a", &[CellType::Bigint])] };
        let text = text(Engine::Duckdb, &target, &union).unwrap();
        assert!(text.contains("read_parquet('/data/a[[]1]/table=t/**/*.parquet'"), "{text}");
    }

    #[test]
    fn a_name_needs_no_quotes_and_is_that_of_one_table() {
        for (table, expected) in [
            ("movies", "movies_archive"),
            ("Orders", "orders_archive"),
            ("my-orders.v2", "my_orders_v2_archive"),
            ("2024-orders", "t_2024_orders_archive"),
            ("t_2024_orders", "t_2024_orders_archive"),
            ("_raw", "t_raw_archive"),
            ("-raw", "t_raw_archive"),
        ] {
            assert_eq!(relation(table), expected, "{table}");
        }
        let parts = |tables: &[&str]| -> Vec<Part> {
            let part = |table: &&str| Part {
                table: (*table).to_owned(),
                date: "2026-11-21".to_owned(),
                name: format!("table={table}/dt=2026-11-21/a.parquet"),
                bytes: 1,
            };
            tables.iter().map(part).collect()
        };
        for (table, tables, other) in [
            ("Orders", &["Orders", "movies"][..], None),
            ("my-orders", &["my-orders"], None),
            ("orders", &["Orders", "orders"], None),
            (
                "Orders",
                &["Orders", "orders"],
                Some("`Orders` and `orders` would both be named `orders_"),
            ),
            ("my-orders", &["my-orders", "My_orders"], Some("and `My_orders` would both be")),
            ("2024-a", &["2024-a", "t_2024_a"], Some("and `t_2024_a` would both be")),
            ("2024a", &["2024a", "t_2024a"], Some("and `t_2024a` would both be")),
            ("t_2024a", &["2024a", "t_2024a"], None),
        ] {
            match (check_name(table, &parts(tables)), other) {
                (Ok(()), None) => {}
                (Err(said), Some(part)) => {
                    assert!(said.to_string().contains(part), "{table}: {said}");
                }
                (found, _) => panic!("{table}: {found:?}"),
            }
        }
    }
}
