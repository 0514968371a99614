//! Flags that name the tables of slots, totals and ballots. Each subcommand includes the flags that
//! it needs.

use clap::Args;
use rules::counters::SLOT_COUNT_MAX;

/// The flags that name the table of the slots.
#[derive(Clone, Debug, Args)]
pub(super) struct SlotFlags {
    /// The table of the slots
    #[arg(long, value_name = "TABLE", default_value = "votes")]
    pub(super) slots_table: String,
    /// Partition key attribute of the slots table
    #[arg(long, value_name = "ATTRIBUTE", default_value = "slot")]
    pub(super) slot_key: String,
    /// The attribute with a slot's value
    #[arg(long, value_name = "ATTRIBUTE", default_value = "votes")]
    pub(super) slot_value: String,
}

/// The flag for the number of slots of a counter.
#[derive(Clone, Debug, Args)]
pub(super) struct SlotCount {
    /// Number of slots of each counter [default: SLOT_COUNT of the template, or 20 without a
    /// template]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(SLOT_COUNT_MAX)))]
    pub(super) slots: Option<u32>,
}

/// The flags that name the table of the totals.
#[derive(Clone, Debug, Args)]
pub(super) struct TotalFlags {
    /// The table of the totals
    #[arg(long, value_name = "TABLE", default_value = "totals")]
    pub(super) totals_table: String,
    /// Partition key attribute of the totals table
    #[arg(long, value_name = "ATTRIBUTE", default_value = "counter")]
    pub(super) total_key: String,
}

/// The flags that name the table of the ballots.
#[derive(Clone, Debug, Args)]
pub(super) struct BallotFlags {
    /// The table of the ballots
    #[arg(long, value_name = "TABLE", default_value = "ballots")]
    pub(super) ballots: String,
    /// Partition key attribute of the ballots table
    #[arg(long, value_name = "ATTRIBUTE", default_value = "ballot")]
    pub(super) ballot_key: String,
}
