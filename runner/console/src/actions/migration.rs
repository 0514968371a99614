//! The buttons of a migration: pause, resume, throttle.
//!
//! Each of these subcommands changes one entry of the control table, so it ends within a request.
//! For every other subcommand, the page shows the command:
//!
//! - `cutover` and `revert` block writers. After a failure, a rollback must follow even if the
//!   browser is closed, and the operator must see it. So a process in a terminal runs them.
//! - `verify` and `complete` wait for workers, on a large table for hours, and report the result as
//!   an exit code.
//! - `abort` is final, and runs hooks from a folder that only its command line names.

use operations::migrate::api;

use super::Done;
use crate::context::Context;
use crate::error::PageError;
use crate::query::Query;

/// Executes a subcommand.
///
/// # Errors
/// The verb has no button, the phase does not allow it, or the store does not answer.
pub(crate) async fn act(
    context: &Context,
    name: &str,
    verb: &str,
    fields: &Query,
) -> Result<Done, PageError> {
    let migrate = context.migrate();
    if !api::is_known(&migrate, name).await? {
        return Err(PageError::NotFound { what: format!("the migration `{name}`") });
    }
    let done = match verb {
        "pause" => api::pause_backfill(&migrate, name).await,
        "resume" => api::resume_backfill(&migrate, name).await,
        "throttle" => api::limit_backfill(&migrate, name, rate(fields)?).await,
        _ => return Err(PageError::NotFound { what: format!("the action `{verb}`") }),
    };
    Ok(Done { said: done?.text })
}

/// Returns the rate in a form, in items per second.
fn rate(fields: &Query) -> Result<u64, PageError> {
    let text = fields.get("rate").unwrap_or_default();
    text.parse().map_err(|_| {
        let what = format!("`{text}` is not a number of items per second");
        PageError::bad_input("rate", what, "a whole number, 0 for no limit")
    })
}
