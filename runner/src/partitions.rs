//! `weir partitions`: shows the partitions and hot keys of a table, and splits a partition.
//!
//! It uses the local store's admin endpoint, so it does not work on DynamoDB.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use client::endpoint;
use client::exit::Exit;
use client::failure::Result;
use client::output::{self, Output};
use client::partitions::{describe, members, split};

/// Arguments of `weir partitions`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir partitions show votes\n  weir partitions hot votes\n  weir partitions split votes --partition 2 --at 10000000000000000000\n  weir partitions split votes"
)]
pub struct PartitionsArguments {
    /// The action
    #[command(subcommand)]
    pub action: PartitionsAction,
    /// The endpoint of the store [default: AWS_ENDPOINT_URL_DYNAMODB, or the running `weir up`]
    #[arg(long, global = true, value_name = "URL")]
    pub endpoint: Option<String>,
}

/// Actions of `weir partitions`.
#[derive(Clone, Debug, Subcommand)]
pub enum PartitionsAction {
    /// Show the size and traffic of each partition of a table
    Show {
        /// The table
        table: String,
    },
    /// Show the hottest partition keys of a table
    Hot {
        /// The table
        table: String,
    },
    /// Split a partition [default: the largest, into halves of equal size]
    Split {
        /// The table
        table: String,
        /// The partition's number
        #[arg(long, value_name = "NUMBER")]
        partition: Option<u32>,
        /// The token at which the upper part begins
        #[arg(long, value_name = "TOKEN", requires = "partition")]
        at: Option<u64>,
    },
}

/// Shows or splits partitions.
///
/// # Errors
/// The store does not respond, or rejects the request.
pub async fn run(arguments: &PartitionsArguments, output: Output) -> Result<Exit> {
    let endpoint = endpoint::find(arguments.endpoint.as_deref())?;
    match &arguments.action {
        PartitionsAction::Show { table } => show(&describe(&endpoint, table).await?, output),
        PartitionsAction::Hot { table } => show_hot(&describe(&endpoint, table).await?, output),
        PartitionsAction::Split { table, partition, at } => {
            let mut request = json!({});
            if let Some(partition) = partition {
                request = json!({ "partition": partition });
            }
            if let Some(at) = at {
                request = json!({ "partition": partition, "at": at.to_string() });
            }
            show(&split(&endpoint, table, &request).await?, output);
        }
    }
    Ok(Exit::Done)
}

fn show(described: &Value, output: Output) {
    let headings = [
        "number",
        "first token",
        "last token",
        "items",
        "bytes",
        "read units per second",
        "write units per second",
        "shard",
        "splitting",
    ];
    write_rows(output, &headings, members(described, "/partitions"));
}

fn show_hot(described: &Value, output: Output) {
    let headings = ["kind", "key", "partition", "units per second", "error per second"];
    let mut rows = Vec::new();
    for (kind, pointer) in [("write", "/hot_keys/writes"), ("read", "/hot_keys/reads")] {
        for hot in members(described, pointer) {
            let cell = |name: &str| hot.get(name).cloned().unwrap_or_default();
            let key = match (output, cell("key")) {
                (Output::Table, key) => Value::from(key.to_string()),
                (_, key) => key,
            };
            let figures = ["partition", "units_per_second", "error_per_second"].map(cell);
            rows.push([Value::from(kind), key].into_iter().chain(figures).collect());
        }
    }
    output::rows(output, &headings, &rows);
}

/// Writes a row for each object. The headings are the names of the object's members.
fn write_rows(output: Output, headings: &[&str], objects: &[Value]) {
    let row = |object: &Value| {
        let cell = |heading: &&str| object.get(heading.replace(' ', "_")).cloned();
        headings.iter().map(|heading| cell(heading).unwrap_or_default()).collect()
    };
    output::rows(output, headings, &objects.iter().map(row).collect::<Vec<_>>());
}
