//! `weir fan-out`: the rules and their tables checked, jobs shown, copies repaired.
//!
//! What rules mean is `rules::fan_out`'s business. Copies are repaired by the function itself; this
//! asks it page by page, so a repair can be stopped and begun again anywhere.

mod jobs;
mod repair;
mod rules_check;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use rules::fan_out::{CopyRule, parse_and_check};

use crate::endpoint;
use crate::exit::Exit;
use crate::output::Output;
use crate::template::Stack;

/// What to do with rules, jobs and copies.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir fan-out check\n  weir fan-out check --rules rules.yaml --offline\n  weir fan-out jobs --open\n  weir fan-out status\n  weir fan-out repair --rule products\n\nExit codes: 0 done, 1 failed, 3 something is wrong with the rules, jobs are open (`status`), copies could not be looked at or written (`repair`)"
)]
pub struct FanOutArguments {
    #[command(subcommand)]
    verb: FanOutVerb,
    /// A file with rules [default: FAN_OUT_RULES of the template]
    #[arg(long, global = true, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// The table of jobs [default: JOBS_TABLE of the template]
    #[arg(long, global = true, value_name = "TABLE")]
    jobs_table: Option<String>,
    /// The DynamoDB endpoint [default: AWS_ENDPOINT_URL_DYNAMODB, or the `weir up` of this folder]
    #[arg(long, global = true, value_name = "URL")]
    endpoint: Option<String>,
}

#[derive(Clone, Debug, Subcommand)]
enum FanOutVerb {
    /// Check the rules, and whether tables, keys, indexes and streams are as they say
    Check {
        /// Only the rules: ask no endpoint
        #[arg(long)]
        offline: bool,
    },
    /// Show the jobs: one for each origin that ever changed
    Jobs {
        /// Only those that are not done
        #[arg(long)]
        open: bool,
        /// Only of this rule
        #[arg(long, value_name = "NAME")]
        rule: Option<String>,
    },
    /// Count the jobs of each rule; exit code 3 while some are open
    Status,
    /// Look at every copy and write what it must hold, through the function of the running `weir up`
    Repair {
        /// Only of this rule [default: all]
        #[arg(long, value_name = "NAME")]
        rule: Option<String>,
        /// The key behind which to begin, in DynamoDB JSON, as a stopped repair said
        #[arg(long, value_name = "KEY", requires = "rule")]
        after: Option<String>,
        /// The function
        #[arg(long, value_name = "FUNCTION", default_value = "fan-out")]
        function: String,
    },
}

/// Does what the flags ask for. The template is asked only for what no flag says.
///
/// # Errors
/// What could not be read or done, and what to do about it.
pub async fn run(
    arguments: FanOutArguments,
    output: Output,
    stack: impl Fn() -> Result<Stack, String>,
) -> Result<Exit, String> {
    let setting = |variable: &str| setting(&stack()?, variable);
    let jobs_table = || match &arguments.jobs_table {
        Some(table) => Ok(table.clone()),
        None => setting("JOBS_TABLE"),
    };
    let rules = || -> Result<Vec<CopyRule>, String> {
        let (text, place) = match &arguments.rules {
            Some(path) => {
                let place = path.display().to_string();
                (
                    std::fs::read_to_string(path)
                        .map_err(|e| format!("cannot read `{place}`: {e}"))?,
                    place,
                )
            }
            None => (setting("FAN_OUT_RULES")?, "FAN_OUT_RULES".to_owned()),
        };
        parse_and_check(&text).map_err(|error| format!("{place}: {error}"))
    };
    let client = || endpoint::find(arguments.endpoint.as_deref()).map(|url| endpoint::client(&url));
    match &arguments.verb {
        FanOutVerb::Check { offline } => {
            let client = if *offline { None } else { Some(client()?) };
            rules_check::run(rules(), client.as_ref(), output).await
        }
        FanOutVerb::Jobs { open, rule } => {
            jobs::list(&client()?, &jobs_table()?, *open, rule.as_deref(), output).await
        }
        FanOutVerb::Status => jobs::status(&client()?, &jobs_table()?, output).await,
        FanOutVerb::Repair { rule, after, function } => {
            let names = match rule {
                Some(name) => vec![name.clone()],
                None => rules()?.into_iter().map(|rule| rule.name).collect(),
            };
            repair::run(function, &names, after.as_deref(), output).await
        }
    }
}

/// An environment variable of the template's function that has one of that name.
fn setting(stack: &Stack, variable: &str) -> Result<String, String> {
    let mut found =
        stack.functions.iter().filter_map(|function| function.environment.get(variable));
    found.next().cloned().ok_or_else(|| {
        format!("no function of the template has {variable}; name it by a flag instead")
    })
}
