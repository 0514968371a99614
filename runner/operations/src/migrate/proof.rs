//! The drain of a migration's streams, made for a direction, and how long it waits for late records.

use std::time::Duration;

use rules::migration::plan::{Direction, Plan};

use super::drain::{Counted, Drain};
use super::failure::Result;
use super::{Context, record_time};
use client::endpoint;

/// Whether what is made of an item has to come back as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WayBack {
    /// The plan's `inverse`, if it has one, may be used afterwards.
    Kept,
    /// It is used now, or closed.
    Unused,
}

/// A drain of a migration's source tables in a direction.
pub(super) async fn drain(
    context: &Context,
    plan: &Plan,
    direction: Direction,
    counted: Counted,
    way_back: WayBack,
) -> Result<Drain> {
    let migration = context.compile(plan, direction).await?;
    let inverse = match way_back {
        WayBack::Kept if !plan.inverse.is_empty() => {
            Some(context.compile(plan, Direction::Reverse).await?)
        }
        WayBack::Kept | WayBack::Unused => None,
    };
    let (both, tables) = ((migration, inverse), plan.source_tables(direction));
    let behind = record_time::behind(context).await?;
    let drain = Drain::new(&context.endpoint, &context.control.client, both, &tables, counted);
    Ok(drain.with_times_behind(behind))
}

/// How long streams must bring nothing more before they count as drained. A local store's record is
/// there when its write is acknowledged; DynamoDB's comes later.
pub(super) async fn settle_time(context: &Context, plan: &Plan) -> Duration {
    match endpoint::ask_clock(&context.endpoint).await {
        Some(_) => Duration::ZERO,
        None => Duration::from_secs(plan.settle_seconds.into()),
    }
}
