//! Reads the archive's Parquet files to verify them, as any Parquet reader would.
//!
//! It shares only the names of two columns with the function that writes them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use arrow_array::{Array, RecordBatch, StringArray};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use client::failure::{Context, Failure, Result, fatal};

/// One row of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArchivedItem {
    /// The id of the row's stream record.
    pub(crate) event_id: String,
    /// The item in DynamoDB JSON.
    pub(crate) item: String,
}

/// Returns all rows of the Parquet files below a folder, and the number of files. A missing folder
/// counts as empty.
///
/// # Errors
/// The file that cannot be read, and the reason.
pub(crate) fn read(folder: &Path) -> Result<(Vec<ArchivedItem>, usize)> {
    let mut files = Vec::new();
    find_files(folder, &mut files)?;
    let mut rows = Vec::new();
    for path in &files {
        read_file(path, &mut rows).context(|| format!("`{}`", path.display()))?;
    }
    Ok((rows, files.len()))
}

fn find_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    let entries = fs::read_dir(folder).context(|| format!("`{}`", folder.display()))?;
    for entry in entries {
        let path = entry.context(|| format!("`{}`", folder.display()))?.path();
        if path.is_dir() {
            find_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "parquet") {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

fn read_file(path: &Path, rows: &mut Vec<ArchivedItem>) -> Result<()> {
    let file = File::open(path)?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .and_then(ParquetRecordBatchReaderBuilder::build)
        .map_err(Failure::fatal)?;
    for batch in reader {
        let batch = batch.map_err(Failure::fatal)?;
        let (ids, items) = (texts(&batch, "_event_id")?, texts(&batch, "_item")?);
        rows.extend(ids.iter().zip(items).map(|(id, item)| ArchivedItem {
            event_id: id.unwrap_or_default().to_owned(),
            item: item.unwrap_or_default().to_owned(),
        }));
    }
    Ok(())
}

fn texts<'a>(batch: &'a RecordBatch, column: &str) -> Result<&'a StringArray> {
    batch
        .column_by_name(column)
        .and_then(|array| array.as_any().downcast_ref())
        .ok_or_else(|| fatal!("the archive has no string column `{column}`"))
}
