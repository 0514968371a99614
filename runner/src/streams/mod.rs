//! `weir streams`: shows streams and explains what happened to each record.

mod explain;
mod listing;
mod redrive;
mod since;
mod tail;

use clap::{Args, Subcommand};

use client::endpoint;
use client::exit::Exit;
use client::failure::Result;
use client::output::Output;

pub use self::explain::ExplainArguments;
pub use self::redrive::RedriveArguments;
pub use self::tail::TailArguments;

/// Arguments of `weir streams`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir streams ls\n  weir streams tail movies --from trim-horizon --no-follow\n  weir streams explain --last\n  weir streams redrive aws/lambda/ArchiveFunctionExpired/…"
)]
pub struct StreamsArguments {
    /// The action
    #[command(subcommand)]
    pub action: StreamsAction,
}

impl StreamsArguments {
    /// Validates combinations of flags.
    ///
    /// # Errors
    /// A flag or argument is missing. The error names it.
    pub(crate) fn check_together(&self) -> Result<()> {
        match &self.action {
            StreamsAction::Redrive(redrive) => redrive.check_selection(),
            _ => Ok(()),
        }
    }
}

/// The endpoint flag of an action.
#[derive(Clone, Debug, Args)]
pub struct EndpointFlag {
    /// The endpoint of the store [default: AWS_ENDPOINT_URL_DYNAMODB, or the running `weir up`]
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
}

impl EndpointFlag {
    fn find(&self) -> Result<String> {
        endpoint::find_to_read(self.endpoint.as_deref())
    }
}

/// Actions of `weir streams`.
#[derive(Clone, Debug, Subcommand)]
pub enum StreamsAction {
    /// List the streams
    Ls(EndpointFlag),
    /// List the shards of a table's stream, with their lineage
    Shards(ShardsArguments),
    /// Show records as they are written
    Tail(TailArguments),
    /// Explain what happened to a record: filters, batches, attempts, outcome
    Explain(ExplainArguments),
    /// Invoke the function again with the records of a failure object
    Redrive(RedriveArguments),
}

/// Arguments of `weir streams shards`.
#[derive(Clone, Debug, Args)]
pub struct ShardsArguments {
    /// The table
    table: String,
    #[command(flatten)]
    endpoint: EndpointFlag,
}

/// Runs the action.
///
/// # Errors
/// The store, a stream or another resource cannot be reached or does not exist.
pub async fn run(arguments: &StreamsArguments, output: Output) -> Result<Exit> {
    match &arguments.action {
        StreamsAction::Ls(endpoint) => listing::list(&endpoint.find()?, output).await,
        StreamsAction::Shards(ShardsArguments { table, endpoint }) => {
            listing::shards(&endpoint.find()?, table, output).await
        }
        StreamsAction::Tail(tail) => tail::run(tail, &tail.endpoint.find()?, output).await,
        StreamsAction::Explain(explain) => explain::run(explain, output).await,
        StreamsAction::Redrive(redrive) => redrive::run(redrive, output).await,
    }
}
