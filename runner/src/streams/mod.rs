//! `weir streams`: what is in the streams, and what became of each record.

mod explain;
mod listing;
mod redrive;
pub(crate) mod shards;
mod tail;

use clap::{Args, Subcommand};

use crate::endpoint;
use crate::exit::Exit;
use crate::output::Output;

pub use self::explain::ExplainArguments;
pub use self::redrive::RedriveArguments;
pub use self::tail::TailArguments;

/// What to do with streams.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir streams ls\n  weir streams tail movies --from trim-horizon --no-follow\n  weir streams explain --last\n  weir streams redrive aws/lambda/ArchiveFunctionExpired/…"
)]
pub struct StreamsArguments {
    /// The action
    #[command(subcommand)]
    pub action: StreamsAction,
    /// The endpoint of the store [default: AWS_ENDPOINT_URL_DYNAMODB, or the running `weir up`]
    #[arg(long, global = true, value_name = "URL")]
    pub endpoint: Option<String>,
}

/// What to do with streams.
#[derive(Clone, Debug, Subcommand)]
pub enum StreamsAction {
    /// List the streams
    Ls,
    /// List the shards of a table's stream, with their lineage
    Shards {
        /// The table
        table: String,
    },
    /// Show records as they are written
    Tail(TailArguments),
    /// Say what became of a record: filters, batches, attempts, outcome
    Explain(ExplainArguments),
    /// Invoke the function again with the records of a failure object
    Redrive(RedriveArguments),
}

/// Carries it out.
///
/// # Errors
/// What cannot be reached, or is not there.
pub async fn run(arguments: &StreamsArguments, output: Output) -> Result<Exit, String> {
    let endpoint = || endpoint::find(arguments.endpoint.as_deref());
    match &arguments.action {
        StreamsAction::Ls => listing::list(&endpoint()?, output).await,
        StreamsAction::Shards { table } => listing::shards(&endpoint()?, table, output).await,
        StreamsAction::Tail(tail) => tail::run(tail, &endpoint()?, output).await,
        StreamsAction::Explain(explain) => {
            let endpoint = match &arguments.endpoint {
                Some(_) => Some(endpoint()?),
                None => explain.store(),
            };
            explain::run(explain, endpoint.as_deref(), output).await
        }
        StreamsAction::Redrive(redrive) => redrive::run(redrive, output).await,
    }
}
