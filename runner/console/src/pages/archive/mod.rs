//! The archive: its days, the first rows of a day, and a restore or an erasure with its preview.
//!
//! A query with `do=restore` or `do=erase` previews the action, and `actions::archive` executes it.

mod html;
mod requests;
mod view;

use std::time::Duration;

use client::aws_host;
use client::failure::{Failure, fatal};
use operations::archive::contents::{Archive, ArchivePlace};
use serde_json::value::RawValue;

pub(crate) use self::html::html;
use self::view::{Day, Erasure, Restore, Row, Rows, View};
pub(crate) use self::view::{EraseForm, RestoreForm};
use crate::apart::apart;
use crate::context::Context;
use crate::error::PageError;
use crate::query::Query;

/// The number of days on a page.
const DAYS: usize = 30;
/// The maximum number of days that a page skips, enough for centuries of several tables.
const SKIP_MAX: usize = 1_000_000;
/// The number of rows of a day that the page shows.
const ROWS: usize = 20;
/// The timeout of a preview, which reads every object that may contain a selected row.
const PREVIEW_LIMIT: Duration = Duration::from_secs(10);
/// The maximum number of rows that a button restores or erases. For more rows, the page shows the
/// command, which reports its progress and can be interrupted.
pub(crate) const BUTTON_ROWS_MAX: u64 = 10_000;

/// The request of a query.
struct Asked {
    place: ArchivePlace,
    /// The store into which a restore would write.
    endpoint: String,
    table: Option<String>,
    day: Option<String>,
    skipped: usize,
    preview: Option<Preview>,
}

/// The preview that a query requests.
enum Preview {
    Restore(RestoreForm),
    Erasure(EraseForm),
}

/// Collects the data of the page Archive.
///
/// # Errors
/// The query is invalid, or the object store does not answer.
pub(crate) async fn view(context: &Context, query: &Query) -> Result<View, PageError> {
    let bucket = query.get("bucket").map(str::to_owned);
    let tasks = context.tasks().list();
    let view = View { schema: "weir.console.archive/v1", bucket, tasks, ..View::default() };
    let preview = match query.get("do") {
        Some("restore") => Some(Preview::Restore(RestoreForm::of(query)?)),
        Some("erase") => Some(Preview::Erasure(EraseForm::of(query)?)),
        None => None,
        Some(other) => {
            let what = format!("unknown action `{other}`");
            return Err(PageError::bad_input("do", what, "restore or erase"));
        }
    };
    let Some(place) = place(context, view.bucket.clone()) else {
        let nothing =
            Some("this console has no S3 endpoint: start it with --s3-endpoint".to_owned());
        return Ok(View { nothing, ..view });
    };
    if place.bucket.is_none() && place.running.is_none() && aws_host::is_on_aws(&place.s3) {
        let nothing = "on AWS, the console does not search buckets: enter the archive's bucket";
        return Ok(View { nothing: Some(nothing.to_owned()), ..view });
    }
    let asked = Asked {
        place,
        endpoint: context.endpoint().to_owned(),
        table: query.get("table").map(str::to_owned),
        day: query.get("day").map(str::to_owned),
        skipped: query.number("skip", 0, SKIP_MAX)?,
        preview,
    };
    apart(move || read(asked, view)).await?
}

/// Reads the archive.
async fn read(asked: Asked, view: View) -> Result<View, PageError> {
    let Asked { place, endpoint, table, day: wanted, skipped, preview } = asked;
    let archive = match Archive::find(&place).await? {
        Ok(archive) => archive,
        Err(why) => return Ok(View { nothing: Some(why.to_string()), ..view }),
    };
    let days = archive.days(table.as_deref(), skipped, DAYS).await?;
    let rows = match (&table, &wanted) {
        (Some(table), Some(day)) => Some(rows(&archive, table, day).await?),
        _ => None,
    };
    let (mut restore, mut erasure) = (None, None);
    match preview {
        Some(Preview::Restore(form)) => {
            restore = Some(preview_restore(&archive, &endpoint, form).await);
        }
        Some(Preview::Erasure(form)) => {
            // Only a function of a running `weir up` changes the archive.
            let is_changeable = place.running.is_some();
            erasure = Some(preview_erasure(&archive, form, is_changeable).await);
        }
        None => {}
    }
    Ok(View {
        location: Some(archive.location()),
        tables: days.tables,
        table,
        days: days.days.into_iter().map(day).collect(),
        skipped,
        left_out: days.left_out,
        damaged: days.damaged,
        rows,
        restore,
        erasure,
        ..view
    })
}

/// Returns the location of the archive; `None` if the console has no endpoint of S3.
pub(crate) fn place(context: &Context, bucket: Option<String>) -> Option<ArchivePlace> {
    let s3 = context.s3_endpoint()?.to_owned();
    let running = context.running().filter(|running| running.s3 == s3);
    Some(ArchivePlace { s3, bucket, running })
}

fn day(day: operations::archive::contents::ArchiveDay) -> Day {
    let contents = day.contents.clone().unwrap_or_default();
    Day {
        table: day.table,
        day: day.day,
        parts: day.parts,
        bytes: day.bytes,
        rows: day.contents.map(|contents| contents.rows),
        damaged_parts: contents.damaged_parts,
        first_deleted_at: contents.first_deleted_at,
        last_deleted_at: contents.last_deleted_at,
    }
}

async fn rows(archive: &Archive, table: &str, day: &str) -> Result<Rows, PageError> {
    let found = archive.rows(table, day, ROWS).await?;
    if found.rows.is_empty() {
        let what = format!("the day `{day}` of `{table}` in the archive");
        return Err(PageError::NotFound { what });
    }
    let row = |row: operations::archive::contents::ArchiveRow| Row {
        deleted_at: row.deleted_at,
        deleted_by: row.deleted_by,
        columns: row.json,
    };
    let day = day.to_owned();
    Ok(Rows { day, rows: found.rows.into_iter().map(row).collect(), has_more: found.has_more })
}

/// Previews a restore: reads the archive and the table, and writes nothing.
async fn preview_restore(archive: &Archive, endpoint: &str, form: RestoreForm) -> Restore {
    let (request, command) = (form.request(), form.command());
    let preview = in_time(archive.restore(&request, endpoint, true)).await;
    match preview {
        Ok(answer) => {
            let rows = number(&answer.json, "rows");
            let would = number(&answer.json, "would_restore");
            Restore {
                counts: RawValue::from_string(answer.json).ok(),
                notes: answer.notes,
                problem: None,
                button: would > 0 && rows <= BUTTON_ROWS_MAX,
                form,
                command,
            }
        }
        Err(problem) => Restore {
            counts: None,
            notes: Vec::new(),
            problem: Some(problem.to_string()),
            button: false,
            form,
            command,
        },
    }
}

/// Runs a preview with a timeout.
async fn in_time<T>(preview: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(PREVIEW_LIMIT, preview).await.unwrap_or_else(|_| {
        Err(fatal!(
            "the preview takes longer than {} s; run `weir archive restore` or `weir archive erase` with --dry-run",
            PREVIEW_LIMIT.as_secs()
        ))
    })
}

/// Returns the number in the member `name` of a JSON object.
pub(crate) fn number(json: &str, name: &str) -> u64 {
    let answer: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
    answer.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0)
}

/// Counts the rows that an erasure would remove.
async fn preview_erasure(archive: &Archive, form: EraseForm, is_changeable: bool) -> Erasure {
    let (request, command) = (form.request(), form.command());
    match in_time(archive.preview_erasure(&request)).await {
        Ok(preview) => Erasure {
            rows: Some(preview.rows),
            objects: Some(preview.objects),
            button: (1..=BUTTON_ROWS_MAX).contains(&(preview.rows as u64)) && is_changeable,
            text: preview.text,
            form,
            command,
        },
        Err(problem) => {
            let text = problem.to_string();
            Erasure { rows: None, objects: None, text, button: false, form, command }
        }
    }
}
