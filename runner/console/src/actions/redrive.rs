//! Invokes a function again with the records of a failure object.

use client::output::counted;
use local::redrive::redrive as redrive_object;

use super::Done;
use crate::context::Context;
use crate::error::PageError;
use crate::query::Query;

/// Redrives the failure object whose key is in the field `object`. The object is not deleted.
///
/// # Errors
/// No `weir up` is running, the stream has trimmed the records, or the function cannot be invoked.
pub(crate) async fn redrive(context: &Context, fields: &Query) -> Result<Done, PageError> {
    let Some(object) = fields.get("object") else {
        return Err(PageError::bad_input(
            "object",
            "the field is missing",
            "the key of a failure object",
        ));
    };
    let running = context.running().ok_or_else(|| {
        PageError::Refused(
            "no `weir up` is running: to invoke the function, start `weir up`".to_owned(),
        )
    })?;
    let redriven = redrive_object(&running, object, false)
        .await
        .map_err(|error| PageError::Store(error.to_string()))?;
    let records = counted(redriven.records, "record", "records");
    let function = &redriven.function;
    let said = match redriven.is_complete() {
        true => format!("`{function}` processed {records} again"),
        false => format!(
            "`{function}` was invoked again with {records}: {}; `weir logs {function} --request {}` shows its log",
            redriven.outcome(),
            redriven.request_id
        ),
    };
    Ok(Done { said })
}
