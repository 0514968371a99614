//! `weir streams explain`: explains why a function ran, or did not run, for a record.
//!
//! The module `local::explain` determines the answer.

use std::path::PathBuf;

use clap::Args;

use super::EndpointFlag;
use crate::logs::data_folder;
use client::endpoint;
use client::exit::Exit;
use client::failure::{Failure, Result};
use client::item_key;
use client::output::{self, Output};
use client::running::{Running, RunningState};
use local::explain::{Question, REDRIVEN, Verdict, Wanted, explain};

/// Arguments of `weir streams explain`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir streams explain --last\n  weir streams explain --last --table movies\n  weir streams explain --table movies --key '{\"year\":2013,\"title\":\"Rush\"}'\n  weir streams explain 1000000000000002400005 --output json\n\nExit codes: 0 explained, 1 the record is neither in a stream nor in the journal"
)]
pub struct ExplainArguments {
    /// The record, by its sequence number or event id
    #[arg(required_unless_present_any = ["last", "key"], conflicts_with_all = ["last", "key"])]
    pub record: Option<String>,
    /// Explain the newest record
    #[arg(long)]
    pub last: bool,
    /// The newest record of the item with this key (plain or DynamoDB JSON)
    #[arg(long, value_name = "KEY", requires = "table", conflicts_with = "last")]
    pub key: Option<String>,
    /// Search only records of this table
    #[arg(long)]
    pub table: Option<String>,
    /// The data folder of `weir up` [default: the folder of the running `weir up`, or .weir/up]
    #[arg(long, value_name = "DIRECTORY")]
    pub directory: Option<PathBuf>,
    #[command(flatten)]
    endpoint: EndpointFlag,
}

impl ExplainArguments {
    /// Returns the endpoint of the store to which the journal belongs: the value of the flag, or the
    /// endpoint of the `weir up` that writes the journal. Ignores the environment. Returns `None` if
    /// this `weir up` is not running.
    ///
    /// # Errors
    /// The value of the flag is not a valid URL.
    fn store(&self, running: Option<&Running>) -> Result<Option<String>> {
        if let Some(url) = &self.endpoint.endpoint {
            return endpoint::checked(url, "--endpoint").map(Some);
        }
        let Some(running) = running else { return Ok(None) };
        let own = running.store().map(str::to_owned);
        // A `weir up` of an earlier version does not publish DynamoDB's endpoint, so the endpoint
        // is taken from the environment.
        Ok(own.or_else(|| endpoint::find(None).ok()))
    }
}

pub(super) async fn run(arguments: &ExplainArguments, output: Output) -> Result<Exit> {
    let directory = data_folder(arguments.directory.as_deref());
    let running = RunningState::of_data(&directory).running();
    let endpoint = arguments.store(running.as_ref())?;
    let key = arguments.key.as_deref().map(item_key::parse).transpose()?;
    let wanted = match (&arguments.record, &key) {
        (Some(record), _) => Wanted::Record(record),
        (None, Some(key)) => Wanted::Item(key),
        (None, None) => Wanted::Newest,
    };
    let explanation = explain(&Question {
        wanted,
        table: arguments.table.as_deref(),
        shard: None,
        directory: &directory,
        endpoint: endpoint.as_deref(),
        streams: None,
        is_running: running.is_some(),
    })
    .await
    .map_err(Failure::fatal)?;
    if let Some(why) = &explanation.hindered {
        output::say(&format!("NOTE: {why}"));
    }
    if output == Output::Table {
        output::show(&explanation.text());
        suggest(&explanation.verdicts);
    } else {
        output::show(&format!("{}\n", explanation.document()));
    }
    Ok(Exit::Done)
}

fn suggest(verdicts: &[Verdict]) {
    for verdict in verdicts {
        if let Some(key) = verdict.failure_object.as_ref().filter(|_| verdict.outcome != REDRIVEN) {
            output::next(&[(
                &format!("weir streams redrive {}", output::shell_word(key)),
                "invoke the function again with the discarded records",
            )]);
        } else if !verdict.attempts.is_empty() {
            output::next(&[(&format!("weir logs {}", verdict.function), "the function's log")]);
        }
    }
}
