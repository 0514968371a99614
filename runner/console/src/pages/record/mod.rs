//! One record: the result of `weir streams explain`, the record itself, and the log of each
//! attempt.

mod html;
mod log;
mod view;

use local::explain::{ExplainError, Question, Wanted, explain};

pub(crate) use self::html::html;
use self::view::View;
use crate::context::Context;
use crate::error::PageError;
use crate::query::Query;

/// Collects the data of the page of a record. `record` is a sequence number or an event id; the
/// query may have the fields `table` and `shard`.
///
/// # Errors
/// No `weir up` is running, or neither a stream nor the journal contains the record.
pub(crate) async fn view(
    context: &Context,
    record: &str,
    query: &Query,
) -> Result<View, PageError> {
    let running = context.running().ok_or_else(|| {
        PageError::Store(
            "no `weir up` on this machine reads these streams, so this page cannot show what happened to a record: start `weir up`, or run `weir streams explain` in the folder of the project".to_owned(),
        )
    })?;
    let question = Question {
        wanted: Wanted::Record(record),
        table: query.get("table"),
        shard: query.get("shard"),
        directory: &running.directory,
        endpoint: Some(context.endpoint()),
        streams: Some(context.streams()),
        is_running: true,
    };
    let explanation = explain(&question).await.map_err(|error| match error {
        ExplainError::NoRecord(_) => PageError::NotFound { what: format!("the record `{record}`") },
        ExplainError::Unreadable(failure) => failure.into(),
    })?;
    let mut view = View::of(&explanation);
    let folder = running.directory.join("logs");
    let read = tokio::task::spawn_blocking(move || {
        view.mappings.iter_mut().for_each(|mapping| mapping.add_logs(&folder));
        view
    });
    read.await.map_err(|error| PageError::Store(error.to_string()))
}
