//! `weir fan-out`: checks the rules and their tables, shows jobs, repairs copies.
//!
//! `rules::fan_out` interprets rules. The function `fan-out` repairs the copies. This module
//! invokes the function page by page, so a repair can be stopped and resumed at any page.

pub mod jobs;
mod prune;
mod repair;
mod rules_check;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use rules::fan_out::{CopyRule, parse_and_check};

use client::endpoint;
use client::exit::Exit;
use client::failure::{Context, Result, fatal};
use client::output::Output;
use template::Stack;

use rules_check::CheckScope;

/// Arguments of `weir fan-out`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir fan-out check\n  weir fan-out check --rules rules.yaml --offline\n  weir fan-out jobs --open\n  weir fan-out status\n  weir fan-out repair --rule products\n  weir fan-out prune --dry-run\n\nExit codes: 0 done, 1 failed, 3 a rule has a problem (`check`), jobs are open (`status`), some copies could not be read or written (`repair`)"
)]
pub struct FanOutArguments {
    #[command(subcommand)]
    verb: FanOutVerb,
}

/// The endpoint flag of a subcommand.
#[derive(Clone, Debug, Args)]
struct EndpointFlag {
    /// The DynamoDB endpoint [default: AWS_ENDPOINT_URL_DYNAMODB, or the `weir up` of this folder]
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
}

/// The flag for the rules.
#[derive(Clone, Debug, Args)]
struct RulesFlag {
    /// A file with rules [default: FAN_OUT_RULES of the template]
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
}

/// The flag for the jobs.
#[derive(Clone, Debug, Args)]
struct JobsFlag {
    /// The table of jobs [default: JOBS_TABLE of the template]
    #[arg(long, value_name = "TABLE")]
    jobs_table: Option<String>,
}

#[derive(Clone, Debug, Subcommand)]
enum FanOutVerb {
    /// Check the rules, and that tables, keys, indexes and streams match them
    Check {
        /// Check only the rules, without an endpoint
        #[arg(long, conflicts_with_all = ["endpoint", "jobs_table"])]
        offline: bool,
        #[command(flatten)]
        rules: RulesFlag,
        #[command(flatten)]
        table: JobsFlag,
        #[command(flatten)]
        endpoint: EndpointFlag,
    },
    /// Show the jobs, one for each origin that ever changed
    Jobs {
        /// Only jobs that are not done
        #[arg(long)]
        open: bool,
        /// Only jobs of this rule
        #[arg(long, value_name = "NAME")]
        rule: Option<String>,
        #[command(flatten)]
        table: JobsFlag,
        #[command(flatten)]
        endpoint: EndpointFlag,
    },
    /// Count the jobs of each rule; exit code 3 while some are open
    Status {
        #[command(flatten)]
        table: JobsFlag,
        #[command(flatten)]
        endpoint: EndpointFlag,
    },
    /// Remove the jobs of deleted origins, with the values in them; TTL does so after a week.
    /// Copies that are added later for these origins are not corrected
    Prune {
        /// Only jobs of this rule [default: all]
        #[arg(long, value_name = "NAME")]
        rule: Option<String>,
        /// Count the jobs without removing them
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        table: JobsFlag,
        #[command(flatten)]
        endpoint: EndpointFlag,
    },
    /// Read every copy and correct it, through the function of the running `weir up`
    Repair {
        /// Only copies of this rule [default: all]
        #[arg(long, value_name = "NAME", conflicts_with = "rules")]
        rule: Option<String>,
        /// The key after which to start, in DynamoDB JSON, as a stopped repair shows it
        #[arg(long, value_name = "KEY", requires = "rule")]
        after: Option<String>,
        /// The function
        #[arg(long, value_name = "FUNCTION", default_value = "fan-out")]
        function: String,
        #[command(flatten)]
        rules: RulesFlag,
    },
}

impl FanOutArguments {
    /// Returns the endpoint that a flag names.
    #[must_use]
    pub fn endpoint(&self) -> Option<&str> {
        match &self.verb {
            FanOutVerb::Check { endpoint, .. }
            | FanOutVerb::Jobs { endpoint, .. }
            | FanOutVerb::Prune { endpoint, .. }
            | FanOutVerb::Status { endpoint, .. } => endpoint.endpoint.as_deref(),
            FanOutVerb::Repair { .. } => None,
        }
    }
}

/// Runs the subcommand. The template provides the values that no flag sets.
///
/// # Errors
/// When the rules or a table cannot be read, or the function fails; the message states what to do.
pub async fn run(
    arguments: FanOutArguments,
    output: Output,
    stack: impl Fn() -> Result<Stack>,
) -> Result<Exit> {
    let setting = |variable: &str, flag: &str| {
        let help = |reason: String| format!("{reason}\n  = help: or give the value with {flag}");
        stack().and_then(|stack| setting(&stack, variable)).map_err(|failure| failure.with(help))
    };
    let jobs_table = |flag: JobsFlag| {
        let name = || setting("JOBS_TABLE", "--jobs-table, for example --jobs-table fan-out-jobs");
        flag.jobs_table.map_or_else(name, Ok)
    };
    // The rules are read first and parsed later: an unreadable file is an error, but an invalid
    // rule is a finding.
    let rules_text = |flag: &RulesFlag| -> Result<(String, String)> {
        let Some(path) = &flag.rules else {
            let flag = "--rules, for example --rules rules.yaml";
            return Ok((setting("FAN_OUT_RULES", flag)?, "FAN_OUT_RULES".to_owned()));
        };
        let place = path.display().to_string();
        let text = std::fs::read_to_string(path);
        Ok((text.context(|| format!("cannot read `{place}`"))?, place))
    };
    let client = |flag: EndpointFlag| {
        endpoint::find(flag.endpoint.as_deref()).map(|url| endpoint::client(&url))
    };
    match arguments.verb {
        FanOutVerb::Check { offline, rules, table, endpoint } => {
            let (text, place) = rules_text(&rules)?;
            let asked = match offline {
                true => None,
                // Rules from a file can be checked without a template; the table of jobs may then
                // be unknown.
                false => Some(CheckScope {
                    client: client(endpoint)?,
                    jobs_table: jobs_table(table).ok(),
                }),
            };
            rules_check::run(parse(&text, &place), asked.as_ref(), output).await
        }
        FanOutVerb::Jobs { open, rule, table, endpoint } => {
            let client = client(endpoint)?;
            // Without a template, only rules that have jobs are known.
            let declared = rules_text(&RulesFlag { rules: None });
            let declared = declared.and_then(|(text, place)| parse(&text, &place));
            let names: Vec<String> =
                declared.unwrap_or_default().into_iter().map(|rule| rule.name).collect();
            let rules = (rule.as_deref(), names.as_slice());
            jobs::list(&client, &jobs_table(table)?, open, rules, output).await
        }
        FanOutVerb::Status { table, endpoint } => {
            jobs::status(&client(endpoint)?, &jobs_table(table)?, output).await
        }
        FanOutVerb::Prune { rule, dry_run, table, endpoint } => {
            let (client, table) = (client(endpoint)?, jobs_table(table)?);
            prune::run(&client, &table, rule.as_deref(), dry_run, output).await
        }
        FanOutVerb::Repair { rule, after, function, rules } => {
            let names = match rule {
                Some(name) => vec![name],
                None => {
                    let (text, place) = rules_text(&rules)?;
                    parse(&text, &place)?.into_iter().map(|rule| rule.name).collect()
                }
            };
            repair::run(&function, &names, after.as_deref(), output).await
        }
    }
}

fn parse(text: &str, place: &str) -> Result<Vec<CopyRule>> {
    parse_and_check(text).map_err(|error| fatal!("{place}: {error}"))
}

/// Returns the table of jobs that the functions of a template use.
///
/// # Errors
/// When no function names a table of jobs.
pub fn jobs_table(stack: &Stack) -> Result<String> {
    setting(stack, "JOBS_TABLE")
}

/// Returns an environment variable of the first function in the template that has it.
fn setting(stack: &Stack, variable: &str) -> Result<String> {
    let mut found =
        stack.functions.iter().filter_map(|function| function.environment.get(variable));
    found.next().cloned().ok_or_else(|| fatal!("no function of the template has {variable}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "- name: products\n  from: products\n  to: order-lines\n  index: by-product\n  key: {productID: id}\n  attributes: {productName: name}\n  on-delete: keep\n";

    #[tokio::test]
    async fn rules_that_cannot_be_read_are_a_failure_and_no_finding() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("right.yaml"), RULES).unwrap();
        std::fs::write(folder.path().join("wrong.yaml"), "- name: products\n").unwrap();
        let check = async |file: Option<&str>| {
            let arguments = FanOutArguments {
                verb: FanOutVerb::Check {
                    offline: true,
                    rules: RulesFlag { rules: file.map(|name| folder.path().join(name)) },
                    table: JobsFlag { jobs_table: None },
                    endpoint: EndpointFlag { endpoint: None },
                },
            };
            run(arguments, Output::Table, || Err(fatal!("there is no template"))).await
        };
        assert_eq!(check(Some("right.yaml")).await, Ok(Exit::Done));
        assert_eq!(check(Some("wrong.yaml")).await, Ok(Exit::Differences));
        let said = check(None).await.unwrap_err().to_string();
        assert_eq!(
            said,
            "there is no template\n  = help: or give the value with --rules, for example --rules rules.yaml"
        );
        let said = check(Some("nope.yaml")).await.unwrap_err().to_string();
        assert!(said.starts_with("cannot read `") && said.contains("nope.yaml`: "), "{said}");
    }
}
