//! The rows of an archive, from its Parquet files, as JSON without NULLs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::{Map, Value, json};

use crate::process::Up;

/// Returns all rows of a table; an empty list while there is no archive yet.
pub(crate) fn of_table(up: &Up, table: &str) -> Vec<Value> {
    let archive = up.folder.path().join(".weir/up/s3/archive-bucket/archive");
    let mut found = Vec::new();
    for path in files(&archive.join(format!("table={table}"))) {
        // Compaction may have removed the file in the meantime.
        let Ok(file) = File::open(&path) else { continue };
        let reader = SerializedFileReader::new(file).expect("a part is Parquet");
        let rows = reader.get_row_iter(None).expect("its schema is readable");
        found.extend(rows.map(|row| object(&row.expect("its rows are readable"))));
    }
    found
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let days = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = days
        .flat_map(|day| fs::read_dir(day.path()).into_iter().flatten().flatten())
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "parquet"))
        .collect();
    files.sort();
    files
}

fn object(row: &Row) -> Value {
    let cells = row.get_column_iter().filter(|(_, field)| !matches!(field, Field::Null));
    let members = cells.map(|(name, field)| {
        let value = match field {
            Field::Str(item) if name == "_item" => serde_json::from_str(item).expect("JSON"),
            field => value(field),
        };
        (name.clone(), value)
    });
    Value::Object(members.collect::<Map<String, Value>>())
}

fn value(field: &Field) -> Value {
    match field {
        Field::Str(text) => json!(text),
        Field::Bool(flag) => json!(flag),
        Field::ListInternal(list) => list.elements().iter().map(value).collect(),
        number => {
            number.to_string().parse().map_or_else(|_| json!(number.to_string()), Value::Number)
        }
    }
}
