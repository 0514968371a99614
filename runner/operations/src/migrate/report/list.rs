//! `list` and `journal`: show all migrations, and the phase changes of one migration.

use control::JournalLine;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::migrate::context::Context;
use crate::migrate::failure::Result;
use client::exit::Exit;
use client::output::{self, Output, say};

/// Lists migrations.
pub(crate) async fn list(context: &Context) -> Result<Exit> {
    let states = context.control.states().await?;
    let rows: Vec<Vec<Value>> = states
        .iter()
        .map(|state| {
            vec![
                json!(state.migration),
                json!(state.phase.as_str()),
                json!(state.is_paused()),
                time(context.output, state.since),
            ]
        })
        .collect();
    output::rows(context.output, &["migration", "phase", "paused", "begun"], &rows);
    if rows.is_empty() {
        say(&format!("the control table `{}` has no migrations", context.control.table));
    }
    Ok(Exit::Done)
}

/// Shows each phase change of a migration.
pub(crate) async fn journal(context: &Context, name: &str) -> Result<Exit> {
    let entries = journal_lines(context, name).await?;
    let rows: Vec<Vec<Value>> = entries
        .iter()
        .map(|entry| {
            vec![
                time(context.output, entry.at),
                json!(entry.from.as_str()),
                json!(entry.to.as_str()),
                json!(entry.why),
                json!(entry.by),
            ]
        })
        .collect();
    output::rows(context.output, &["at", "from", "to", "why", "by"], &rows);
    Ok(Exit::Done)
}

/// Returns the phase changes of a migration, oldest first.
///
/// # Errors
/// When there is no such migration, or the control table cannot be read.
pub(crate) async fn journal_lines(context: &Context, name: &str) -> Result<Vec<JournalLine>> {
    context.state(name).await?;
    context.control.list(name, JournalLine::PREFIX).await
}

/// Formats seconds since 1970: as a number for programs, as a time for people. For people, an unset
/// time (0) is null.
fn time(output: Output, seconds: i64) -> Value {
    if output != Output::Table {
        return json!(seconds);
    }
    let time = Some(seconds).filter(|seconds| *seconds > 0);
    let time = time.and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map_or(Value::Null, |time| json!(time.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_times_and_programs_seconds() {
        assert_eq!(time(Output::Json, 1_000), json!(1_000));
        assert_eq!(time(Output::Ndjson, 0), json!(0));
        assert_eq!(time(Output::Table, 1_000), json!("1970-01-01T00:16:40Z"));
        assert_eq!(time(Output::Table, 0), Value::Null);
    }
}
