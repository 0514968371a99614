//! `weir counters`: reads a counter in three ways, and folds slots into fewer.
//!
//! Works against any DynamoDB endpoint. What slots and totals are, `rules::counters` decides.

mod fold;
mod reading;

use aws_sdk_dynamodb::Client;
use clap::{Args, Subcommand, ValueEnum};
use rules::counters::{Counters, SLOT_COUNT_MAX};
use serde_json::json;

use crate::endpoint;
use crate::exit::Exit;
use crate::output::{self, Output, say};

/// What to do with counters, and which tables hold them.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir counters read poll-1\n  weir counters read poll-1 --how exact --output json\n  weir counters fold --to 5\n\nExit codes: 0 done, 1 failed, 3 `fold` left slots as they are"
)]
pub struct CountersArguments {
    #[command(subcommand)]
    verb: CountersVerb,
    /// The table of the slots
    #[arg(long, global = true, value_name = "TABLE", default_value = "votes")]
    slots_table: String,
    /// Its partition key attribute
    #[arg(long, global = true, value_name = "ATTRIBUTE", default_value = "slot")]
    slot_key: String,
    /// The attribute that holds a slot's value
    #[arg(long, global = true, value_name = "ATTRIBUTE", default_value = "votes")]
    slot_value: String,
    /// The table of the totals
    #[arg(long, global = true, value_name = "TABLE", default_value = "totals")]
    totals_table: String,
    /// Its partition key attribute
    #[arg(long, global = true, value_name = "ATTRIBUTE", default_value = "counter")]
    total_key: String,
    /// Slots of each counter
    #[arg(long, global = true, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(SLOT_COUNT_MAX)))]
    slots: u32,
    /// The DynamoDB endpoint [default: AWS_ENDPOINT_URL_DYNAMODB, or the `weir up` of this folder]
    #[arg(long, global = true, value_name = "URL")]
    endpoint: Option<String>,
}

#[derive(Clone, Debug, Subcommand)]
enum CountersVerb {
    /// Read a counter
    Read {
        /// The counter
        counter: String,
        /// What is read
        #[arg(long, value_enum, default_value_t = How::RolledUp)]
        how: How,
    },
    /// Move what is in higher slots into the lower ones, while votes arrive
    Fold {
        /// Slots that are left of each counter
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(SLOT_COUNT_MAX)))]
        to: u32,
    },
}

/// How a counter is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum How {
    /// The total item: one read, seconds behind
    RolledUp,
    /// All slots at one moment, in a transaction: for up to 100 slots
    Exact,
    /// The total and all slots: every vote that was accepted before the read
    Fresh,
}

/// The tables and how to reach them.
pub(crate) struct Place {
    pub(crate) client: Client,
    pub(crate) rule: Counters,
    pub(crate) slots_table: String,
    pub(crate) totals_table: String,
    pub(crate) total_key: String,
}

/// Does what the flags ask for.
///
/// # Errors
/// What could not be read or written, and what to do about it.
pub async fn run(arguments: CountersArguments, output: Output) -> Result<Exit, String> {
    let endpoint = endpoint::find(arguments.endpoint.as_deref())?;
    let place = Place {
        client: endpoint::client(&endpoint),
        rule: Counters {
            slot_count: arguments.slots,
            slot_key: arguments.slot_key,
            slot_value: arguments.slot_value,
        },
        slots_table: arguments.slots_table,
        totals_table: arguments.totals_table,
        total_key: arguments.total_key,
    };
    match arguments.verb {
        CountersVerb::Read { counter, how } => {
            let reading = reading::read(&place, &counter, how).await?;
            let row = vec![
                json!(counter),
                json!(reading.total.to_string()),
                json!(reading.slots),
                json!(reading.as_of),
            ];
            output::rows(output, &["counter", "total", "slots", "as of"], &[row]);
            Ok(Exit::Done)
        }
        CountersVerb::Fold { to } => {
            let report = fold::run(&place, to).await?;
            let row = vec![json!(report.folded), json!(report.left)];
            output::rows(output, &["folded", "left"], &[row]);
            if report.left > 0 {
                say(
                    "some slots were left: they have no readable value, or votes arrive faster than they can be moved; let voters use the lower slots only, and fold again",
                );
                return Ok(Exit::Differences);
            }
            Ok(Exit::Done)
        }
    }
}
