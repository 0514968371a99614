//! `weir counters`: reads counters, folds their slots, casts and recounts changeable votes, and
//! generates votes.
//!
//! The subcommand works on any DynamoDB endpoint. `rules::counters` defines slots and totals.

mod absent;
mod ballots;
mod doubts;
mod flags;
mod fold;
mod generate;
mod reading;
#[cfg(test)]
pub(crate) mod testing;
pub mod totals;
mod voting;

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use clap::{Args, Subcommand, ValueEnum};
use model::Number;
use rules::counters::{Counters, SLOT_COUNT_MAX};
use serde_json::json;

use self::ballots::{Ballots, Drift, Recount};
use self::flags::{BallotFlags, SlotCount, SlotFlags, TotalFlags};
use self::generate::{CounterTally, GenerateArguments, Generated};
use client::endpoint;
use client::exit::Exit;
use client::failure::{Result, fatal};
use client::output::{self, Output, counted, say};
use template::{Function, Stack};

/// The function's environment variable with the number of slots of each counter.
const COUNT: &str = "SLOT_COUNT";
/// Value of SLOT_COUNT in the project's template.
pub const SLOT_COUNT_DEFAULT: u32 = 20;
/// Name prefix of the attributes in which `weir load --count-into` records the lines that a slot
/// has counted.
pub const LOAD_MARK_PREFIX: &str = "_weir_load_";

/// Arguments of `weir counters`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  weir counters read poll-1\n  weir counters read poll-1 --how exact --output json\n  weir counters fold --to 5\n  weir counters generate --votes 100000 --seed 7 --verify 20\n  weir counters vote --poll 2026 --voter ada --counter 2026-blue\n  weir counters recount --repair\n\nExit codes: 0 done, 1 failed, 3 `fold` left slots, `recount` left drift or found unreadable slots, `generate` found wrong totals, `read` found a total item that differs from its slots"
)]
pub struct CountersArguments {
    #[command(subcommand)]
    verb: CountersVerb,
    /// The DynamoDB endpoint [default: AWS_ENDPOINT_URL_DYNAMODB, or the `weir up` of this folder]
    #[arg(long, global = true, value_name = "URL")]
    pub endpoint: Option<String>,
}

#[derive(Clone, Debug, Subcommand)]
enum CountersVerb {
    /// Read a counter
    Read {
        /// The counter
        counter: String,
        /// How the counter is read
        #[arg(long, value_enum, default_value_t = ReadMode::RolledUp)]
        how: ReadMode,
        #[command(flatten)]
        slots: SlotFlags,
        #[command(flatten)]
        count: SlotCount,
        #[command(flatten)]
        totals: TotalFlags,
    },
    /// Move the values of higher slots into lower slots, while votes arrive
    Fold {
        /// Number of slots that each counter keeps
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(SLOT_COUNT_MAX)))]
        to: u32,
        /// Also move slots that record the counted lines of a file, and drop that record; another
        /// load of the file counts these lines again
        #[arg(long)]
        forget_loads: bool,
        #[command(flatten)]
        slots: SlotFlags,
    },
    /// Cast, change or withdraw a voter's vote; idempotent
    Vote {
        /// The poll, a name without `#`; each voter has one vote per poll
        #[arg(long)]
        poll: String,
        /// The voter
        #[arg(long)]
        voter: String,
        /// The counter that the vote is for
        #[arg(long, required_unless_present = "withdraw")]
        counter: Option<String>,
        /// Points of the vote
        #[arg(long, default_value = "1", allow_hyphen_values = true)]
        points: String,
        /// Withdraw the vote
        #[arg(long, conflicts_with_all = ["counter", "points"])]
        withdraw: bool,
        #[command(flatten)]
        slots: SlotFlags,
        #[command(flatten)]
        count: SlotCount,
        #[command(flatten)]
        ballots: BallotFlags,
    },
    /// Compare the slots with the ballots, which are the source of truth
    Recount {
        /// Compare only counters with this name prefix, including counters without ballots, which
        /// must be 0 [default: all counters that have ballots]
        #[arg(long, value_name = "TEXT")]
        prefix: Option<String>,
        /// Set the slots to the sums of the ballots
        #[arg(long)]
        repair: bool,
        /// Seconds after which differences are compared again
        #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
        grace: u64,
        #[command(flatten)]
        slots: SlotFlags,
        #[command(flatten)]
        ballots: BallotFlags,
    },
    /// Cast seeded votes and show the expected totals
    Generate {
        #[command(flatten)]
        votes: GenerateArguments,
        #[command(flatten)]
        slots: SlotFlags,
        #[command(flatten)]
        count: SlotCount,
        #[command(flatten)]
        totals: TotalFlags,
    },
}

/// The method of reading a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReadMode {
    /// The total item: one read, some seconds old
    RolledUp,
    /// All slots in one transaction, consistent; at most 100 slots
    Exact,
    /// The total and all slots: includes every vote that was acknowledged before the read
    Fresh,
}

/// The slots of all counters, and the endpoint that stores them.
pub(crate) struct Place {
    pub(crate) client: Client,
    pub endpoint: String,
    pub(crate) rule: Counters,
    pub(crate) slots_table: String,
}

impl Place {
    fn new(endpoint: &str, slots: SlotFlags, slot_count: u32) -> Self {
        let SlotFlags { slots_table, slot_key, slot_value } = slots;
        Self {
            client: endpoint::client(endpoint),
            endpoint: endpoint.to_owned(),
            rule: Counters { slot_count, slot_key, slot_value },
            slots_table,
        }
    }
}

/// Runs the subcommand. If there is a template, the template provides the values that no flag sets.
///
/// # Errors
/// When a table cannot be read or written; the message states what to do.
pub async fn run(
    arguments: CountersArguments,
    output: Output,
    stack: impl Fn() -> Result<Option<Stack>>,
) -> Result<Exit> {
    let endpoint = endpoint::find(arguments.endpoint.as_deref())?;
    let counted = |slots: SlotFlags, count: &SlotCount| -> Result<Place> {
        let count = match count.slots {
            Some(count) => count,
            None => slot_count(stack()?.as_ref(), &slots.slots_table)?,
        };
        Ok(Place::new(&endpoint, slots, count))
    };
    // Fold and recount must cover every existing slot, regardless of the configured number.
    let all = |slots: SlotFlags| Place::new(&endpoint, slots, SLOT_COUNT_MAX);
    match arguments.verb {
        CountersVerb::Read { counter, how, slots, count, totals } => {
            let place = counted(slots, &count)?;
            let reading = reading::read(&place, &totals, &counter, how).await?;
            let row = vec![
                json!(counter),
                json!(reading.total.to_string()),
                json!(reading.slots),
                json!(reading.as_of),
            ];
            output::rows(output, &["counter", "total", "slots", "as of"], &[row]);
            if reading.slots == 0 {
                say(&why_no_slots(&counter, how, &reading, place.rule.slot_count));
            }
            Ok(say_otherwise(&counter, &reading))
        }
        CountersVerb::Fold { to, forget_loads, slots } => {
            slots_to_count_in(&stack, &slots.slots_table, Some(to))?;
            let report = fold::run(&all(slots), to, forget_loads).await?;
            Ok(show_folded(&report, output))
        }
        CountersVerb::Vote { poll, voter, counter, points, withdraw, slots, count, ballots } => {
            let place = counted(slots, &count)?;
            let BallotFlags { ballots: table, ballot_key: key } = ballots;
            let ballots = Ballots { place: &place, table, key };
            let points: Number =
                points.parse().map_err(|error| fatal!("--points `{points}`: {error}"))?;
            let vote = counter.as_deref().filter(|_| !withdraw).map(|counter| (counter, points));
            let changed = ballots.vote(&poll, &voter, vote).await?;
            output::rows(output, &["changed"], &[vec![json!(changed)]]);
            Ok(Exit::Done)
        }
        CountersVerb::Recount { prefix, repair, grace, slots, ballots } => {
            let place = all(slots);
            let BallotFlags { ballots: table, ballot_key: key } = ballots;
            let ballots = Ballots { place: &place, table, key };
            let grace = Duration::from_secs(grace);
            let recount = ballots.recount(prefix.as_deref(), grace, repair).await?;
            Ok(show_recount(&recount, output))
        }
        CountersVerb::Generate { votes, slots, count, totals } => {
            let place = counted(slots, &count)?;
            let generated = generate::run(&place, &totals, &votes).await?;
            Ok(show_generated(&generated, output))
        }
    }
}

/// Explains why a counter has no slots. Only a total can show that slots have existed, so the
/// explanation depends on whether a total was read.
fn why_no_slots(
    counter: &str,
    how: ReadMode,
    reading: &reading::Reading,
    slot_count: u32,
) -> String {
    match (how, reading.has_total) {
        (_, true) => {
            format!("all slots of `{counter}` are gone: they were deleted, or have expired")
        }
        (ReadMode::RolledUp, false) => format!(
            "`{counter}` has no total: no vote has reached the function yet, or the name is wrong; --how fresh also reads its slots"
        ),
        (ReadMode::Exact | ReadMode::Fresh, false) => format!(
            "none of the {} read exists for `{counter}`: the counter has no vote yet, its slots are gone or have higher numbers (--slots), or the name is wrong",
            counted(slot_count, "slot", "slots")
        ),
    }
}

/// Reports a total item that differs from its slots.
fn say_otherwise(counter: &str, reading: &reading::Reading) -> Exit {
    let Some(otherwise) = &reading.otherwise else { return Exit::Done };
    say(&format!(
        "the total item of `{counter}` has {otherwise} in `total`, but its `slots` sum to the number shown: another program wrote the item; the next reconciliation corrects it"
    ));
    Exit::Differences
}

/// Returns the number of slots for votes: the requested number, or by default all slots that the
/// function totals.
///
/// # Errors
/// When more slots are requested than the function totals.
pub fn slots_to_count_in(
    stack: &impl Fn() -> Result<Option<Stack>>,
    slots_table: &str,
    asked: Option<u32>,
) -> Result<u32> {
    let Some(asked) = asked else { return slot_count(stack()?.as_ref(), slots_table) };
    // If the template cannot be read, the requested number is used.
    let Some(stack) = stack().ok().flatten() else { return Ok(asked) };
    let is_own = |function: &Function| {
        function.environment.get("SLOTS_TABLE").is_some_and(|table| table == slots_table)
    };
    let totalled = match stack.functions.iter().any(is_own) {
        true => slot_count(Some(&stack), slots_table)?,
        false => asked,
    };
    if asked > totalled {
        return Err(fatal!(
            "{asked} slots are too many: the function of `{slots_table}` totals only {totalled} slots of each counter ({COUNT} in the template), so votes in higher slots would be in no total; deploy a larger {COUNT} first, or use {totalled}"
        ));
    }
    Ok(asked)
}

/// Returns the SLOT_COUNT of the function that totals this slots table. If there is no such
/// function, returns the SLOT_COUNT of any function that has the variable.
fn slot_count(stack: Option<&Stack>, slots_table: &str) -> Result<u32> {
    let functions = stack.map_or(&[][..], |stack| &stack.functions);
    let counting = || functions.iter().filter(|function| function.environment.contains_key(COUNT));
    let is_own = |function: &&Function| {
        function.environment.get("SLOTS_TABLE").is_some_and(|table| table == slots_table)
    };
    let function = counting().find(is_own).or_else(|| counting().next());
    let Some(text) = function.and_then(|function| function.environment.get(COUNT)) else {
        return Ok(SLOT_COUNT_DEFAULT);
    };
    let count = text.parse().ok().filter(|count| (1..=SLOT_COUNT_MAX).contains(count));
    count.ok_or_else(|| {
        fatal!(
            "{COUNT}=`{text}` of the template is not a number from 1 to {SLOT_COUNT_MAX}; correct it, or use --slots"
        )
    })
}

fn show_folded(report: &fold::Report, output: Output) -> Exit {
    let row = vec![json!(report.folded), json!(report.left)];
    output::rows(output, &["folded", "left"], &[row]);
    for why in &report.left_named {
        say(&format!("not moved: {why}"));
    }
    if report.left == 0 {
        return Exit::Done;
    }
    let slots = counted(report.left, "slot was", "slots were");
    say(&format!(
        "{slots} not moved: correct each slot that is listed with a reason; the other slots received votes too fast, so let clients vote into the lower slots only; then run `weir counters fold` again"
    ));
    Exit::Differences
}

fn show_recount(recount: &Recount, output: Output) -> Exit {
    let ballots = counted(recount.ballots, "ballot", "ballots");
    say(&format!("{ballots} in {}", counted(recount.counters, "counter", "counters")));
    if recount.without_ballots > 0 {
        say(&format!(
            "{} not compared, because the counters have no ballot; --prefix TEXT compares these slots too",
            counted(recount.without_ballots, "slot was", "slots were")
        ));
    }
    let row = |drift: &Drift| {
        vec![
            json!(drift.counter),
            json!(drift.ballots.to_string()),
            json!(drift.slots.to_string()),
            json!(drift.repaired),
        ]
    };
    let rows: Vec<_> = recount.drifted.iter().map(row).collect();
    output::rows(output, &["counter", "ballots", "slots", "repaired"], &rows);
    for what in &recount.unreadable {
        say(&format!("not compared: {what}"));
    }
    if recount.is_unrepairable {
        say(
            "cannot repair: at least one ballot has no counter, so its vote could belong to any counter; correct or delete it first (listed above as not compared)",
        );
    }
    let is_right =
        recount.drifted.iter().all(|drift| drift.repaired) && recount.unreadable.is_empty();
    if is_right { Exit::Done } else { Exit::Differences }
}

fn show_generated(generated: &Generated, output: Output) -> Exit {
    let seconds = generated.took.as_secs_f64();
    let votes = counted(generated.votes, "vote", "votes");
    say(&format!("{votes} in {seconds:.1} s"));
    let row = |(counter, tally): (&String, &CounterTally)| {
        let CounterTally { voted, expected, found } = tally;
        let found = found.map(|found| found.to_string());
        vec![
            json!(counter),
            json!(voted),
            json!(expected.lowest),
            json!(expected.highest),
            json!(found),
        ]
    };
    let rows: Vec<_> = generated.totals.iter().map(row).collect();
    output::rows(output, &["counter", "voted", "lowest", "highest", "total"], &rows);
    let doubts = &generated.doubts;
    if doubts.votes > 0 {
        say(&format!(
            "{} may or may not have been counted, because no response arrived and a retry could count a vote twice; each total must be between `lowest` and `highest`:",
            counted(doubts.votes, "vote", "votes")
        ));
        for vote in &doubts.named {
            say(&format!("  {vote}"));
        }
        if let Some(more) = doubts.unnamed() {
            say(&format!("  and {more} more"));
        }
    }
    if let Some(lag) = generated.lag {
        let right = if doubts.votes > 0 { "between its lowest and highest" } else { "right" };
        say(&format!("every total is {right}, {:.1} s after the last vote", lag.as_secs_f64()));
    }
    if !generated.differs {
        return Exit::Done;
    }
    say(
        "some totals differ from the votes of this run: the counters had votes before this run (use another --seed or --prefix), or the function is behind (see `weir status`)",
    );
    Exit::Differences
}

#[cfg(test)]
mod tests {
    use super::*;
    use template::{self, Context};

    #[test]
    fn the_template_declares_the_number_of_slots() {
        let function = |name: &str, table: &str, slots: &str| {
            format!(
                "  {name}:\n    Type: AWS::Serverless::Function\n    Properties:\n      CodeUri: .\n      Handler: bootstrap\n      Runtime: provided.al2023\n      Environment:\n        Variables:\n          SLOTS_TABLE: {table}\n          SLOT_COUNT: \"{slots}\"\n"
            )
        };
        let stack = |functions: &[String]| {
            let text = format!(
                "AWSTemplateFormatVersion: \"2010-09-09\"\nTransform: AWS::Serverless-2016-10-31\nResources:\n{}",
                functions.concat()
            );
            template::read("template.yaml", &text, &Context::default()).unwrap()
        };
        let (clicks, votes) = (function("Clicks", "clicks", "3"), function("Votes", "votes", "5"));
        let two = stack(&[clicks.clone(), votes]);
        assert_eq!(slot_count(Some(&two), "votes"), Ok(5));
        assert_eq!(slot_count(Some(&two), "clicks"), Ok(3));
        // The table has a different name than in the template, for example with a prefix.
        assert_eq!(slot_count(Some(&stack(&[clicks])), "prod-clicks"), Ok(3));
        assert_eq!(slot_count(None, "votes"), Ok(SLOT_COUNT_DEFAULT));
        let read = || Ok(Some(two.clone()));
        let counted_in = |asked| slots_to_count_in(&read, "votes", asked);
        assert_eq!((counted_in(None), counted_in(Some(5))), (Ok(5), Ok(5)));
        assert!(
            counted_in(Some(6)).unwrap_err().to_string().contains("totals only 5 slots of each")
        );
        assert_eq!(slots_to_count_in(&read, "others", Some(50)), Ok(50));
        assert_eq!(slots_to_count_in(&|| Err(fatal!("x")), "votes", Some(50)), Ok(50));
        let wrong = stack(&[function("Votes", "votes", "0")]);
        assert!(slot_count(Some(&wrong), "votes").unwrap_err().to_string().contains("--slots"));
    }
}
