//! Finds declared columns that are probably misspelt: no archived item has the path, but items have
//! a similar path. A misspelt column is NULL in every row.
//!
//! A path without a similar path may belong to a rare attribute, and is not reported.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::cell::rows_of;
use super::reading::Reading;
use super::schema::declared_paths;
use super::source::Source;
use client::failure::Result;
use template::diagnostic::similar;

/// Maximum number of items of a table that are searched, newest first.
const ITEMS_MAX: usize = 1_000;
/// Maximum number of parts that are read, newest first. A part may have few rows.
const PARTS_MAX: usize = 16;

/// Returns a line for each declared column of a table that is probably misspelt.
///
/// # Errors
/// When the archive cannot be read.
pub(super) async fn misspelt(source: &Source, table: &str) -> Result<Vec<String>> {
    let parts = source.parts(Some(table), None).await?;
    let mut reading = Reading::newest_first(source, parts);
    let (mut paths, mut items, mut read) = (None, Vec::new(), 0);
    while items.len() < ITEMS_MAX
        && read < PARTS_MAX
        && let Some((part, content)) = reading.next_content().await?
    {
        read += 1;
        if paths.is_none() {
            // The newest part has the currently declared columns.
            paths = Some(declared_paths(&content.footer().map_err(|error| part.failed(error))?));
        }
        let rows = content.rows(Some(&["_item"])).map_err(|error| part.failed(error))?;
        for batch in rows {
            let batch = batch.map_err(|error| part.failed(error))?;
            let rows = rows_of(&batch).map_err(|error| part.failed(error))?;
            let texts = rows.iter().map(|row| serde_json::from_str(row.text("_item")));
            items.extend(texts.filter_map(Result::ok).take(ITEMS_MAX.saturating_sub(items.len())));
        }
    }
    Ok(lines(table, &paths.unwrap_or_default(), &items))
}

fn lines(table: &str, paths: &BTreeSet<String>, items: &[Map<String, Value>]) -> Vec<String> {
    let tried = client::output::counted(items.len(), "item", "items");
    let line = |path: &String| {
        let meant = meant(path, items)?;
        Some(format!(
            "column `{path}` of ARCHIVE_COLUMNS is in none of the newest {tried} of `{table}`; did you mean `{meant}`?"
        ))
    };
    paths.iter().filter_map(line).collect()
}

/// Returns an existing path that is similar to `path`; `None` if an item has `path`, or no path
/// is similar.
fn meant(path: &str, items: &[Map<String, Value>]) -> Option<String> {
    let mut maps: Vec<&Map<String, Value>> = items.iter().collect();
    let mut before = String::new();
    for name in path.split('.') {
        let values: Vec<&Value> = maps.iter().filter_map(|map| map.get(name)).collect();
        if values.is_empty() {
            let known: BTreeSet<&str> =
                maps.iter().flat_map(|map| map.keys().map(String::as_str)).collect();
            return similar(name, known).map(|meant| format!("{before}{meant}"));
        }
        maps = values.iter().filter_map(|value| value.get("M")?.as_object()).collect();
        before.push_str(&format!("{name}."));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::sync::Arc;

    use arrow_array::{ArrayRef, RecordBatch, StringArray};
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::KeyValue;
    use parquet::file::properties::WriterProperties;

    use super::*;

    /// Returns the lines about an archive with these declared paths and two items.
    async fn said(paths: &[&str]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("archive/table=films/dt=2026-11-29");
        fs::create_dir_all(&directory).unwrap();
        let items = [
            r#"{"title":{"S":"a"},"info":{"M":{"rating":{"N":"1"}}}}"#,
            r#"{"title":{"S":"b"},"price":{"N":"2"}}"#,
        ];
        let items: ArrayRef = Arc::new(StringArray::from(items.to_vec()));
        let batch = RecordBatch::try_from_iter([("_item", items)]).unwrap();
        let columns = paths.iter().enumerate().map(|(number, path)| {
            (format!("c{number}"), serde_json::json!({"path": path, "type": "string"}))
        });
        let columns = Value::Object(columns.collect()).to_string();
        let columns = KeyValue::new("weir.columns".to_owned(), columns);
        let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![columns]));
        let file = File::create(directory.join("part-1.parquet")).unwrap();
        let mut writer =
            ArrowWriter::try_new(file, batch.schema(), Some(properties.build())).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        misspelt(&Source::Folder(folder.path().to_owned()), "films").await.unwrap()
    }

    #[tokio::test]
    async fn a_column_that_no_item_has_is_reported_with_the_similar_name() {
        assert_eq!(said(&["title", "info.rating", "price", "wholly_different"]).await, [""; 0]);
        let lines = said(&["titel", "info.ratng", "prise.x", "title"]).await;
        let meant: Vec<&str> =
            lines.iter().filter_map(|line| line.rsplit("did you mean ").next()).collect();
        assert_eq!(meant, ["`info.rating`?", "`price`?", "`title`?"], "{lines:?}");
        assert!(
            lines[0].starts_with(
                "column `info.ratng` of ARCHIVE_COLUMNS is in none of the newest 2 items of `films`"
            ),
            "{lines:?}"
        );
    }
}
