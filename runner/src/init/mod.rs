//! `weir init`: writes a project for one pipeline of Weir, or for the user's own stream function.
//!
//! The contents of the files are below `runner/init/`. The command starts no program and overwrites no
//! file.

mod failure;
mod flags;
mod kinds;
mod markers;
mod names;
mod project;
mod table;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;

use client::exit::Exit;
use client::failure::{Failure, Result, refused};
use client::output::{self, Output, say, shell_word};
use failure::InitError;
use flags::{CountersFlags, FanOutFlags, FunctionFlags, MigrationFlags, TtlTableFlags};
use project::Project;

/// Arguments of `weir init`: the kind of project and its flags.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir init archive my-archive --table sessions --key id:S --ttl expires_at\n  weir init counters my-counters --table votes --slots 20\n  weir init versions my-versions --table documents --key owner:S --sort id:S\n  weir init fan-out my-copies --table products --copies order-lines --attribute name\n  weir init migration my-migration --table orders --target orders-v2\n  weir init function hello --table people --key name:S --language rust\n  weir init archive from-live --from-table movies        # keys and TTL attribute of an existing table\n\nNo file is overwritten: if a file already exists, the exit code is 4 and nothing is written"
)]
pub struct InitArguments {
    #[command(subcommand)]
    kind: Kind,
}

/// The kinds of project.
#[derive(Clone, Debug, Subcommand)]
enum Kind {
    /// Archive items that TTL deletes from a table, as Parquet
    Archive(TtlTableFlags),
    /// Count votes in sharded counters and total them
    Counters(CountersFlags),
    /// Keep every version of the items of a table
    Versions(TtlTableFlags),
    /// Keep copies of an item's attributes in other items up to date
    FanOut(FanOutFlags),
    /// Restructure a table while clients write to it
    Migration(MigrationFlags),
    /// Write your own function for the stream of a table
    Function(FunctionFlags),
}

/// Writes the project, and lists its files on standard output.
///
/// # Errors
/// The table cannot be described, a function's program is not in the folder of `weir`, or a file cannot
/// be written.
pub async fn run(arguments: InitArguments, output: Output) -> Result<Exit> {
    let made = Box::pin(make(arguments.kind)).await;
    let (folder, project) = made.map_err(Failure::fatal)?;
    let weir = std::env::current_exe().unwrap_or_default();
    match project.write(&folder, &weir) {
        Ok(()) => {}
        Err(error @ InitError::InTheWay(_)) => {
            return Err(refused!("error: {error}"));
        }
        Err(error) => return Err(Failure::fatal(error)),
    }
    let rows: Vec<_> = project
        .files()
        .iter()
        .map(|file| vec![json!(folder.join(file.path)), json!(file.purpose)])
        .collect();
    output::rows(output, &["file", "purpose"], &rows);
    say_what_comes_next(&folder);
    Ok(Exit::Done)
}

/// Creates the project of a kind in memory. Returns its folder and the project.
async fn make(kind: Kind) -> Result<(PathBuf, Project), InitError> {
    Ok(match kind {
        Kind::Archive(flags) => {
            let project = kinds::archive(&flags.table_that_expires().await?);
            (flags.place.folder, project)
        }
        Kind::Counters(flags) => {
            let project = kinds::counters(&flags.table().await?, &flags.totals, flags.slots);
            (flags.place.folder, project)
        }
        Kind::Versions(flags) => {
            let project = kinds::versions(&flags.table().await?)?;
            (flags.place.folder, project)
        }
        Kind::FanOut(flags) => {
            let project = kinds::fan_out(&flags.table().await?, &flags.copies()?)?;
            (flags.place.folder, project)
        }
        Kind::Migration(flags) => {
            let table = flags.table().await?;
            (flags.folder(), kinds::migration(&table, &flags.target(&table)?))
        }
        Kind::Function(flags) => {
            (flags.folder(), kinds::function(&flags.table().await?, flags.language))
        }
    })
}

fn say_what_comes_next(folder: &Path) {
    let here = if folder == Path::new(".") {
        String::new()
    } else {
        format!("cd {} && ", shell_word(&folder.display().to_string()))
    };
    // `cargo run` works only in Weir's repository, so the message names the installed `weir`.
    say(&format!("Next  {here}sh test      test it on this machine"));
    say("      weir up      run it until Ctrl-C");
    say("      README.md    lists the other commands, and how to deploy it");
}
