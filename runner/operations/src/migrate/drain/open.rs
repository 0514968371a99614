//! Creates the drain proof of a migration's streams in one direction, and decides how long the
//! proof waits for late records.

use std::time::Duration;

use rules::migration::plan::{Direction, Plan};

use crate::migrate::context::Context;
use crate::migrate::drain::proof::{Drain, RecordSelection};
use crate::migrate::failure::Result;
use crate::migrate::plan::compile::compile;
use crate::migrate::start::record_time;
use client::endpoint;

/// States whether items of the targets must be convertible back into source items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InverseUse {
    /// The items must be convertible: the plan has an `inverse` that may be used later.
    Required,
    /// The items need not be convertible: the reverse direction is in use now, or no revert is
    /// possible.
    Unused,
}

/// Returns a drain proof for the streams that a migration reads in a direction.
pub(crate) async fn drain(
    context: &Context,
    plan: &Plan,
    direction: Direction,
    counted: RecordSelection,
    way_back: InverseUse,
) -> Result<Drain> {
    let migration = compile(context, plan, direction).await?;
    let inverse = match way_back {
        InverseUse::Required if !plan.inverse.is_empty() => {
            Some(compile(context, plan, Direction::Reverse).await?)
        }
        InverseUse::Required | InverseUse::Unused => None,
    };
    let (both, tables) = ((migration, inverse), plan.source_tables(direction));
    let behind = record_time::behind(context).await?;
    let drain = Drain::new(&context.endpoint, &context.control.client, both, &tables, counted);
    Ok(drain.with_times_behind(behind))
}

/// Returns how long after the last write a stream may still deliver new records. In a local store,
/// a record exists when its write is acknowledged; in DynamoDB, the record appears later.
pub(crate) async fn settle_time(context: &Context, plan: &Plan) -> Duration {
    match endpoint::ask_clock(&context.endpoint).await {
        Some(_) => Duration::ZERO,
        None => Duration::from_secs(plan.settle_seconds.into()),
    }
}
