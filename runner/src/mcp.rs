//! `weir mcp`: serves the console's pages to an assistant over standard input and output.
//!
//! Standard output contains only the protocol; messages go to standard error.

use std::path::{Path, PathBuf};

use ::console::context::{Context, Place};
use clap::Args;

use crate::console::StoreArguments;
use client::exit::Exit;
use client::failure::{Failure, Result, fatal};
use client::running::{Running, RunningState};

/// Arguments of `weir mcp`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir mcp\n  weir mcp --directory /srv/shop/.weir/up\n  weir mcp --directory /srv/shop/.weir/up --allow-writes\n  weir mcp --region eu-west-1\n\nAn assistant starts this command; it ends with its standard input. docs/mcp.md has the entry for its configuration"
)]
pub struct McpArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// The data folder of the `weir up` to show [default: of the `weir up` in this folder]
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["endpoint", "region"])]
    pub directory: Option<PathBuf>,
    /// Offer actions too: redrive, clock, pause, resume and throttle of migrations
    #[arg(long)]
    pub allow_writes: bool,
}

/// Serves the protocol until standard input ends.
///
/// # Errors
/// No store was found, or the client does not implement the protocol.
pub async fn run(arguments: &McpArguments) -> Result<Exit> {
    let context = Context::new(place(arguments)?).map_err(Failure::fatal)?;
    ::console::mcp::serve(context).await.map_err(Failure::fatal)?;
    Ok(Exit::Done)
}

fn place(arguments: &McpArguments) -> Result<Place> {
    let (endpoint, directory, running) = match &arguments.directory {
        Some(directory) => {
            let (directory, running) = running_in(directory)?;
            let endpoint = running.store().map(str::to_owned).ok_or(
                "--directory: the endpoint of this `weir up` is unknown: use --region instead",
            )?;
            (endpoint, Some(directory), Some(running))
        }
        None => {
            let found = arguments.store.endpoint();
            let endpoint = found.map_err(|error| match arguments.store.is_named() {
                true => error,
                false => error.with(|text| without_store(&text)),
            })?;
            let running = RunningState::here().running().filter(|running| running.is_at(&endpoint));
            (endpoint, None, running)
        }
    };
    Ok(Place {
        s3: arguments.store.s3(&endpoint, running.as_ref())?,
        own: None,
        directory,
        chaos: None,
        allow_writes: arguments.allow_writes,
        endpoint,
    })
}

/// Returns the `weir up` that uses a data folder, and the absolute path of the folder.
fn running_in(directory: &Path) -> Result<(PathBuf, Running)> {
    let name = directory.display();
    let instead = "write the data folder of a running `weir up`, such as /srv/shop/.weir/up";
    let directory = std::fs::canonicalize(directory)
        .map_err(|error| fatal!("--directory: `{name}`: {error}; {instead}"))?;
    match RunningState::of_data(&directory) {
        RunningState::Running(running) => Ok((directory, running)),
        RunningState::Ended(ended) => Err(fatal!("--directory: {}", ended.has_ended())),
        RunningState::NotStarted => {
            Err(fatal!("--directory: no `weir up` runs with the data folder `{name}`; {instead}"))
        }
    }
}

/// Adds the current folder to the error that no store was found, because the assistant chooses this
/// folder.
fn without_store(error: &str) -> String {
    let folder = std::env::current_dir().unwrap_or_default();
    format!(
        "{error}; this folder is `{}`: for a `weir up` elsewhere, name its data folder with --directory",
        folder.display()
    )
}
