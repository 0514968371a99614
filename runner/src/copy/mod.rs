//! `weir copy`: copies all tables of an endpoint to another endpoint, while clients write to the source.
//!
//! The command keeps no state: every run begins with all items, and every copy of an item is the newest
//! state of the item, so a repetition is harmless. While clients write, `online` follows the streams of the
//! source from before the first item is read. After the handover of the source (`handover`), no client
//! writes, and this module compares all items, and completes the tables of the target.
//!
//! Positions in streams, their records, and the tokens of transactions are not copied.

mod changes;
mod comparison;
mod definition;
mod handover;
mod online;
mod tables;
mod transfer;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use clap::Args;
use indicatif::ProgressBar;
use serde_json::Value;

use client::endpoint;
use client::exit::Exit;
use client::failure::{Result, fatal, refused};
use client::interruption;
use client::output::{self, Output, counted, say};

use comparison::{copy_keys_of, verify};
use handover::Handover;
use tables::{State, Table};
use transfer::TablePair;

/// The interval at which the progress is shown.
const SHOWN_EVERY: Duration = Duration::from_millis(500);

/// Arguments of `weir copy`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir copy --from http://127.0.0.1:8000 --to http://127.0.0.1:8001\n  weir copy --from http://127.0.0.1:8000 --to http://127.0.0.1:8001 --hand-over\n\nWithout --hand-over the command follows the changes until Ctrl-C. It writes only into tables that it creates.\nExit codes: 0 the copy is complete, 1 failed or the items differ, 4 the target has other tables"
)]
pub struct CopyArguments {
    /// The endpoint to copy from
    #[arg(long, value_name = "URL")]
    from: String,
    /// The endpoint to copy to
    #[arg(long, value_name = "URL")]
    to: String,
    /// Let the source refuse writes permanently once the copy is in step, compare all items, and end
    #[arg(long)]
    hand_over: bool,
}

/// The two endpoints.
struct Endpoints {
    source: String,
    target: String,
    from: Client,
    to: Client,
}

/// Copies the tables.
///
/// # Errors
/// When an endpoint fails, the target has other tables, or the items differ at the end. A repetition of
/// the command resumes.
pub async fn run(arguments: &CopyArguments, output: Output) -> Result<Exit> {
    let url = |url: &str, flag| endpoint::checked(url.trim_end_matches('/'), flag);
    let (source, target) = (url(&arguments.from, "--from")?, url(&arguments.to, "--to")?);
    if source == target {
        return Err(fatal!("--from and --to are the same endpoint"));
    }
    let (from, to) = (endpoint::client(&source), endpoint::client(&target));
    let endpoints = Endpoints { source, target, from, to };
    let bar = interruption::progress_bar(None, "{spinner} {msg}", "");
    let copied = copy(&endpoints, arguments.hand_over, &bar).await;
    bar.finish_and_clear();
    report(&endpoints, &copied?, output)
}

/// A table that was copied.
struct CopiedTable {
    name: String,
    items: u64,
    differences: u64,
}

async fn copy(
    endpoints: &Endpoints,
    hand_over: bool,
    bar: &ProgressBar,
) -> Result<Vec<CopiedTable>> {
    let Endpoints { source, target, from, to } = endpoints;
    let mut in_step = BTreeSet::new();
    match Handover::read(source).await? {
        Handover::To(before) if before != *target => {
            return Err(refused!(
                "`{source}` was handed over to `{before}`: copy to this endpoint"
            ));
        }
        Handover::To(_) => say(&format!("`{source}` refuses writes; the copy is completed now")),
        Handover::Impossible | Handover::Open => {
            let tables = tables::find(from, to, false).await?;
            in_step = online::copy(endpoints, &tables, hand_over, bar).await?;
        }
    }
    // A table that was created meanwhile is copied now.
    let is_handed_over = Handover::read(source).await? != Handover::Impossible;
    let tables = tables::find(from, to, is_handed_over).await?;
    let mut copied = Vec::new();
    for table in tables.iter().filter(|table| table.state != State::Complete) {
        copied.push(settle(endpoints, table, in_step.contains(&table.name), bar).await?);
    }
    if copied.iter().all(|table| table.differences == 0) {
        for table in &tables {
            tables::complete(from, to, table).await?;
        }
    }
    Ok(copied)
}

/// Copies a table whose source is not written any more, unless it is in step, and compares all items.
async fn settle(
    endpoints: &Endpoints,
    table: &Table,
    is_in_step: bool,
    bar: &ProgressBar,
) -> Result<CopiedTable> {
    let Endpoints { from, to, .. } = endpoints;
    let pair = TablePair::new(from, to, table);
    let name = &table.name;
    if !is_in_step {
        tables::begin(from, to, table).await?;
        bar.set_message(format!("copying table `{name}`"));
        copy_keys_of(&pair, &[from, to]).await?;
    }
    let compared = AtomicU64::new(0);
    let show = async {
        loop {
            let count = compared.load(Ordering::SeqCst);
            bar.set_message(format!("table `{name}`: {count} items compared"));
            tokio::time::sleep(SHOWN_EVERY).await;
        }
    };
    let verified = tokio::select! {
        verified = verify(&pair, &compared) => verified?,
        never = show => never,
    };
    let differences = verified.differences();
    Ok(CopiedTable { name: name.clone(), items: verified.items, differences })
}

/// Shows the copied tables.
///
/// # Errors
/// When items differ.
fn report(endpoints: &Endpoints, copied: &[CopiedTable], output: Output) -> Result<Exit> {
    let cells = |table: &CopiedTable| {
        vec![Value::from(table.name.clone()), table.items.into(), table.differences.into()]
    };
    let rows: Vec<_> = copied.iter().map(cells).collect();
    output::rows(output, &["table", "items", "differences"], &rows);
    let target = &endpoints.target;
    let different = copied.iter().filter(|table| table.differences > 0).count();
    if different > 0 {
        return Err(fatal!(
            "differences in {} of `{target}`: stop the programs that write to either endpoint, and run the command again",
            counted(different, "table", "tables")
        ));
    }
    say(&format!("the copy is complete: clients can use `{target}`"));
    Ok(Exit::Done)
}
