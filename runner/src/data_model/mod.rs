//! `weir model`: checks a data model on a temporary store, computes its cost, writes a template for
//! it, and exports a model of existing tables.
//!
//! The crate `design` determines the requests and the findings. This module reads files, runs the
//! requests and shows the result.

mod check;
mod export;
mod scratch_store;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use design::{DataModel, Prices, prices};
use serde_json::json;
use template::Diagnostics;

use crate::check::object;
use client::exit::Exit;
use client::failure::{Context, Failure, Result, fatal};
use client::output::{Output, show};

/// Arguments of `weir model`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir model check model.json\n  weir model check model.yaml --output json\n  weir model check model.json --keep           # then use the tables at http://127.0.0.1:8000\n  weir model template model.json > tables.yaml\n  weir model export > exported.json"
)]
pub struct ModelArguments {
    #[command(subcommand)]
    action: ModelAction,
}

#[derive(Clone, Debug, Subcommand)]
enum ModelAction {
    /// Create the tables of a model in a temporary store, run its access patterns, and report findings and cost
    Check(CheckArguments),
    /// Write a SAM template with the tables of a model
    Template {
        /// The model file
        file: PathBuf,
    },
    /// Write a model of existing tables, with sampled items and sizes
    Export(export::ExportArguments),
}

/// Arguments of `weir model check`.
#[derive(Clone, Debug, Args)]
struct CheckArguments {
    /// The model file: JSON or YAML
    file: PathBuf,
    #[arg(long, value_name = "FILE", help = prices::option_help())]
    prices: Option<PathBuf>,
    /// Keep the store with the tables and items running until Ctrl-C
    #[arg(long)]
    keep: bool,
    /// The port of the store with --keep; 0 picks a free port
    #[arg(long, default_value_t = 8000, requires = "keep")]
    port: u16,
}

/// A model and its file.
struct ModelFile {
    name: String,
    text: String,
    model: DataModel,
}

/// Runs `weir model`.
///
/// # Errors
/// A file cannot be read, the temporary store cannot be opened, or the endpoint does not respond.
pub async fn run(arguments: &ModelArguments, output: Output) -> Result<Exit> {
    match &arguments.action {
        ModelAction::Check(check) => {
            let prices = read_prices(check.prices.as_deref())?;
            match read(&check.file)? {
                Ok(file) => check::run(check, &file, &prices, output).await,
                Err(diagnostics) => Ok(refuse(&diagnostics, output)),
            }
        }
        ModelAction::Template { file } => match read(file)? {
            Ok(file) => {
                show(&design::sam::template(&file.model, &file.name));
                Ok(Exit::Done)
            }
            Err(diagnostics) => Ok(refuse(&diagnostics, output)),
        },
        ModelAction::Export(export) => export::run(export).await,
    }
}

/// Reads a model file. The outer error means that the file cannot be read.
fn read(file: &Path) -> Result<Result<ModelFile, Diagnostics>> {
    let name = file.display().to_string();
    let text = read_text(file)?;
    let model = design::read(&name, &text);
    Ok(model.map(|model| ModelFile { name, text, model }))
}

fn read_text(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).context(|| format!("cannot read `{}`", file.display()))
}

/// Reads the prices from a file; without a file, returns the prices that are part of Weir.
fn read_prices(file: Option<&Path>) -> Result<Prices> {
    let Some(file) = file else { return Prices::own().map_err(Failure::fatal) };
    Prices::parse(&read_text(file)?).map_err(|error| fatal!("`{}`: {error}", file.display()))
}

/// Shows the errors of a file that is not a valid model.
fn refuse(diagnostics: &Diagnostics, output: Output) -> Exit {
    let findings = diagnostics.shown.iter().map(object);
    match output {
        Output::Table => show(&format!("{diagnostics}\n")),
        Output::Json => {
            let count = diagnostics.shown.len() + diagnostics.more;
            let findings: Vec<_> = findings.collect();
            show(&format!(
                "{}\n",
                json!({"schema": "weir.model/v1", "errors": count, "findings": findings})
            ));
        }
        Output::Ndjson => findings.for_each(|finding| show(&format!("{finding}\n"))),
    }
    Exit::Failed
}
