//! Invokes the function `archive-maintenance`; `weir archive compact`.
//!
//! Only that function changes the archive. On AWS, operators invoke it with the same events. The
//! module `erasure` invokes it for `weir archive erase`.

use bytes::Bytes;
use clap::Args;
use serde_json::{Map, Value, json};

use super::answer::{as_written, with_store_time};
use super::output::Output;
use super::table_argument::OneOfAll;
use client::endpoint;
use client::exit::Exit;
use client::failure::{Failure, Result, fatal};
use client::interruption;
use client::invocation::invoke;
use client::output::{counted, no_effect, say};
use client::running::Running;

/// The function's logical id in the template.
pub const FUNCTION: &str = "ArchiveMaintenanceFunction";

/// The minimum age of the parts to compact while a function may write to the archive. The function
/// checks the age too.
const AGE_SECONDS_MIN: u64 = 900;

/// Arguments of `weir archive compact`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir archive compact\n  weir archive compact --table movies --age 900\n\nExit codes: 0 done, 3 incomplete: some hours could not be compacted, or the time limit was reached; run it again\n\nOn AWS (version 2 of the AWS CLI rejects the payload without --cli-binary-format, which version 1 does not have; without --cli-read-timeout 0, the CLI sends the event again after a minute):\n  aws lambda invoke --function-name NAME --cli-binary-format raw-in-base64-out --cli-read-timeout 0 --payload '{\"compact\":{}}' answer.json"
)]
pub(super) struct CompactArguments {
    #[command(flatten)]
    table: OneOfAll,
    /// Minimum age of parts in seconds, by the time of their files; at least 900 [default: 26
    /// hours]
    #[arg(long, value_name = "SECONDS")]
    age: Option<u64>,
    /// Allow --age below 900, and make 0 its default; use it only while no function writes to the
    /// archive
    #[arg(long)]
    nothing_is_archiving: bool,
}

impl CompactArguments {
    /// Rejects an age that the function would reject, with an error that names the flag.
    ///
    /// # Errors
    /// When a part of this age may still be written to.
    fn check(&self) -> Result<()> {
        match self.age {
            Some(age) if age < AGE_SECONDS_MIN && !self.nothing_is_archiving => Err(fatal!(
                "--age {age}: parts younger than {AGE_SECONDS_MIN} seconds may still be written to; use --age {AGE_SECONDS_MIN} or more, or add --nothing-is-archiving if no function is writing to the archive"
            )),
            _ => Ok(()),
        }
    }

    /// Returns true if `--nothing-is-archiving` has no effect, because `--age` is not below the
    /// minimum.
    fn is_young_in_vain(&self) -> bool {
        self.nothing_is_archiving && self.age.is_some_and(|age| age >= AGE_SECONDS_MIN)
    }

    /// Returns the function's event.
    pub(super) fn request(&self) -> Value {
        let mut compact = Map::new();
        compact.insert("nothingIsArchiving".to_owned(), json!(self.nothing_is_archiving));
        if let Some(table) = self.table.name() {
            compact.insert("table".to_owned(), json!(table));
        }
        if let Some(age) = self.age.or(self.nothing_is_archiving.then_some(0)) {
            compact.insert("ageSeconds".to_owned(), json!(age));
        }
        json!({ "compact": compact })
    }
}

/// Invokes a compaction in the running system. Returns exit code 3 if the compaction is incomplete.
///
/// # Errors
/// When no `weir up` is running, or the function fails.
pub(super) async fn compact(arguments: &CompactArguments, output: &mut Output<'_>) -> Result<Exit> {
    arguments.check()?;
    if arguments.is_young_in_vain() {
        no_effect("--nothing-is-archiving", "--age excludes the parts that this flag adds");
    }
    let answer = ask(arguments.request()).await?;
    output.line(&as_written(&answer))?;
    let Some(left) = left_by(&answer) else { return Ok(Exit::Done) };
    say(&left);
    Ok(Exit::Differences)
}

/// Describes the remaining work of a compaction; `None` if the compaction is complete.
fn left_by(answer: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(answer).unwrap_or_default();
    let report = answer.get("compacted")?;
    let hours = report.get("postponedHours").and_then(Value::as_u64).unwrap_or(0);
    let is_complete = report.get("complete").and_then(Value::as_bool).unwrap_or(true);
    let postponed = (hours > 0).then(|| {
        let hours = counted(hours, "hour is", "hours are");
        format!("{hours} not fully compacted, because another writer changed the objects or the object store did not respond (see `weir logs archive-maintenance`)")
    });
    let cut = (!is_complete).then(|| "the time limit was reached".to_owned());
    let left: Vec<String> = postponed.into_iter().chain(cut).collect();
    (!left.is_empty()).then(|| format!("{}; run `weir archive compact` again", left.join(", and ")))
}

/// Returns the number of erased rows in a receipt. Receipts of earlier versions of Weir list the
/// event ids instead of a number. A purge may read such a receipt long after the erasure.
pub(crate) fn rows_erased(receipt: &Value) -> u64 {
    let named = || receipt.get("eventIds").and_then(Value::as_array).map_or(0, Vec::len);
    receipt.get("rows").and_then(Value::as_u64).unwrap_or_else(|| named() as u64)
}

/// Invokes the function of the running system and returns its answer. If the store's clock was
/// advanced, the answer to an erasure gets the store's time as `storeSeconds`.
///
/// # Errors
/// When no `weir up` is running, or the function fails.
pub(crate) async fn ask(request: Value) -> Result<String> {
    ask_of(&Running::read()?, request).await
}

/// Invokes the function of this system, as [`ask`] does.
pub(super) async fn ask_of(running: &Running, request: Value) -> Result<String> {
    let function = running.function(FUNCTION)?;
    interruption::reached(format!("`{function}` was invoked and has not responded yet"));
    let invoked = invoke(running, function, Bytes::from(request.to_string())).await?;
    let body = String::from_utf8_lossy(&invoked.body).into_owned();
    if !invoked.failed {
        // The function cannot read the store's clock, so its times are by the machine's clock.
        let advanced = endpoint::advanced(&running.dynamodb).await;
        return Ok(advanced.map_or(body.clone(), |advanced| with_store_time(&body, advanced.now)));
    }
    let error: Value = serde_json::from_str(&body).unwrap_or_default();
    let reason = error.get("errorMessage").and_then(Value::as_str).map_or(body, str::to_owned);
    Err(Failure::Fatal(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remainder_of_a_compaction_is_reported() {
        for (answer, expected) in [
            (r#"{"compacted":{"postponedHours":0,"complete":true}}"#, None),
            (
                r#"{"compacted":{"postponedHours":1,"complete":true}}"#,
                Some("1 hour is not fully compacted"),
            ),
            (r#"{"compacted":{"postponedHours":0,"complete":false}}"#, Some("time limit")),
        ] {
            let left = left_by(answer);
            assert_eq!(left.is_some(), expected.is_some(), "{answer}");
            assert!(left.unwrap_or_default().contains(expected.unwrap_or_default()), "{answer}");
        }
    }

    /// Without `--cli-binary-format`, version 2 of the AWS CLI decodes the payload as base64.
    /// Without `--cli-read-timeout 0`, it sends the event again after a minute.
    #[test]
    fn the_command_for_aws_sends_the_event_as_it_is_and_once() {
        let command = CompactArguments::augment_args(clap::Command::new("compact"));
        let help = command.get_after_help().unwrap().to_string();
        for flag in ["--cli-binary-format raw-in-base64-out", "--cli-read-timeout 0"] {
            assert!(help.contains(flag), "{help}");
        }
    }

    #[test]
    fn flags_of_a_compaction_become_an_event() {
        let compact = |table: Option<&str>, age, nothing_is_archiving| {
            let table = OneOfAll::of(table);
            CompactArguments { table, age, nothing_is_archiving }.request().to_string()
        };
        assert_eq!(compact(None, None, false), r#"{"compact":{"nothingIsArchiving":false}}"#);
        for (age, nothing_is_archiving, is_in_vain) in [
            (None, true, false),
            (Some(10), true, false),
            (Some(AGE_SECONDS_MIN), true, true),
            (Some(AGE_SECONDS_MIN), false, false),
        ] {
            let compact =
                CompactArguments { table: OneOfAll::default(), age, nothing_is_archiving };
            assert_eq!(compact.is_young_in_vain(), is_in_vain, "{age:?}");
        }
        for (age, nothing_is_archiving, is_right) in [
            (None, false, true),
            (Some(900), false, true),
            (Some(10), true, true),
            (Some(10), false, false),
        ] {
            let checked =
                CompactArguments { table: OneOfAll::default(), age, nothing_is_archiving }.check();
            assert_eq!(checked.is_ok(), is_right, "{age:?}");
            let said = checked.map_or_else(
                |failure| failure.to_string(),
                |()| "--nothing-is-archiving".to_owned(),
            );
            assert!(said.contains("--nothing-is-archiving") && !said.contains('{'), "{said}");
        }
        assert_eq!(
            compact(Some("movies"), None, true),
            r#"{"compact":{"ageSeconds":0,"nothingIsArchiving":true,"table":"movies"}}"#
        );
    }
}
