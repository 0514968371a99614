//! Decides when the hooks of a subcommand run, and formats the JSON for their standard input.

use serde_json::{Value, json};

use crate::migrate::context::Context;
use crate::migrate::drain::stream_lag;
use crate::migrate::drain::stream_lag::Watcher;
use crate::migrate::failure::{Failure, Result, refused};
use crate::migrate::report::status;
use client::exit::Exit;
use client::output::say;

/// Runs the hook that comes before a subcommand, if there is one.
///
/// # Errors
/// When the hook failed. The subcommand must then not continue.
pub(crate) async fn before(context: &Context, verb: &str, migration: &str) -> Result<()> {
    let hook = format!("before-{verb}");
    let ran = run(context, &hook, migration, None).await;
    ran.map_err(|reason| refused!("{reason}; nothing was changed"))
}

/// Runs the hook for the result of a subcommand. Returns the combined result of the subcommand and
/// the hook.
pub(crate) async fn after(
    context: &Context,
    verb: &str,
    migration: &str,
    ended: Result<Exit>,
) -> Result<Exit> {
    let reason = match &ended {
        Ok(Exit::Done) => {
            let hook = format!("after-{verb}");
            return match run(context, &hook, migration, None).await {
                Ok(()) => ended,
                Err(reason) => {
                    say(&format!(
                        "{reason}; `{verb}` succeeded, but its hook failed: run `{verb}` again to retry the hook"
                    ));
                    Ok(Exit::Differences)
                }
            };
        }
        Ok(Exit::Refused) => format!("`{verb}` was refused"),
        Ok(Exit::TimedOut) => format!("`{verb}` timed out"),
        Ok(Exit::Interrupted(_)) => format!("`{verb}` was interrupted"),
        Ok(Exit::Failed | Exit::Differences) => format!("`{verb}` failed"),
        Err(Failure::Refused(why)) => format!("`{verb}` was refused: {why}"),
        Err(failure) => failure.to_string(),
    };
    if let Err(failed) = run(context, "on-failure", migration, Some(&reason)).await {
        say(&failed.to_string());
    }
    ended
}

async fn run(context: &Context, hook: &str, migration: &str, reason: Option<&str>) -> Result<()> {
    let Some(program) = context.hooks.program(hook) else { return Ok(()) };
    // Facts that cannot be read are omitted. After a failed subcommand, possibly no fact can be
    // read.
    let limit = stream_lag::look_limit(&context.endpoint, None);
    let mut watcher = Watcher::with_limit(limit);
    let status = status::describe(context, migration, Some(&mut watcher)).await;
    let told = json!({
        "schema": "weir.migration.hook/v1",
        "hook": hook,
        "migration": migration,
        "endpoint": context.endpoint,
        "control_table": context.control.table,
        "reason": reason,
        "status": status.unwrap_or(Value::Null),
    });
    context.hooks.run(&program, hook, &format!("{told}\n")).await
}
