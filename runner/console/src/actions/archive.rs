//! The archive's buttons, which restore or erase the previewed rows.
//!
//! Both actions run as tasks of the console, because they may take longer than a browser waits.
//! Both are idempotent: a restore skips restored items, and an erasure of the same rows has the
//! same name and resumes. For more than [`BUTTON_ROWS_MAX`] rows, the page shows a `weir archive`
//! command instead of a button. The command reports its progress, and Ctrl-C ends it.

use client::failure::refused;
use operations::archive::contents::{self, Archive, ArchivePlace};

use super::Done;
use crate::context::Context;
use crate::error::PageError;
use crate::pages::archive::{self, BUTTON_ROWS_MAX, EraseForm, RestoreForm};
use crate::query::Query;

/// Starts a restore.
///
/// # Errors
/// The form is wrong, there is no archive, or too many tasks run.
pub(crate) fn restore(context: &Context, fields: &Query) -> Result<Done, PageError> {
    let form = RestoreForm::of(fields)?;
    let place = of(context, fields)?;
    let (request, endpoint) = (form.request(), context.endpoint().to_owned());
    let what = format!("restore into `{}`", form.table);
    let task = context.tasks().start(what, move || async move {
        let archive = Archive::find(&place).await??;
        // The rows are counted again, because the archive may have changed since the preview.
        let preview = archive.restore(&request, &endpoint, true).await?;
        let rows = archive::number(&preview.json, "rows");
        if rows > BUTTON_ROWS_MAX {
            return Err(refused!(
                "{rows} rows are selected, but the button restores at most {BUTTON_ROWS_MAX}; for more, \
                 run `weir archive restore`"
            ));
        }
        let done = archive.restore(&request, &endpoint, false).await?;
        Ok(done.json)
    })?;
    Ok(Done { said: format!("task {task} has started: restore into `{}`", form.table) })
}

/// Starts an erasure, if the form repeats the name of the table.
///
/// # Errors
/// The form is wrong or not confirmed, no `weir up` runs, there is no archive, or too many tasks run.
pub(crate) fn erase(context: &Context, fields: &Query) -> Result<Done, PageError> {
    let form = EraseForm::of(fields)?;
    if fields.get("confirm") != Some(form.table.as_str()) {
        let what = "the confirmation is not the table's name; nothing was erased";
        return Err(PageError::bad_input("confirm", what, form.table));
    }
    let Some(running) = context.running() else {
        return Err(PageError::Refused(
            "no `weir up` is running: to change the archive, start `weir up`; on AWS, invoke the function `archive-maintenance`"
                .to_owned(),
        ));
    };
    let place = of(context, fields)?;
    let request = form.request();
    let what = format!("erase rows of `{}`", form.table);
    let task = context.tasks().start(what, move || async move {
        let archive = Archive::find(&place).await??;
        let preview = archive.preview_erasure(&request).await?;
        if preview.rows as u64 > BUTTON_ROWS_MAX {
            return Err(refused!(
                "{} rows are selected, but the button erases at most {BUTTON_ROWS_MAX}; for more, \
                 run `weir archive erase`",
                preview.rows
            ));
        }
        contents::erase(&running, &request).await
    })?;
    Ok(Done { said: format!("task {task} has started: erase rows of `{}`", form.table) })
}

/// Returns the location of the archive.
fn of(context: &Context, fields: &Query) -> Result<ArchivePlace, PageError> {
    let place = archive::place(context, fields.get("bucket").map(str::to_owned));
    place.ok_or_else(|| {
        PageError::Refused(
            "this console has no S3 endpoint: start it with --s3-endpoint".to_owned(),
        )
    })
}
