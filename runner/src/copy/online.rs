//! Copies tables while clients write to the source: reads all items, and follows the streams.
//!
//! It ends when the source was handed over and its streams are read to their end.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use futures::future::try_join_all;
use indicatif::ProgressBar;
use tokio::time::sleep;

use super::changes::{Follower, Lag, Round};
use super::handover::Handover;
use super::tables::{self, State, Table};
use super::transfer::{Copied, Lanes, Queue, TablePair};
use super::{Endpoints, SHOWN_EVERY};
use client::endpoint;
use client::failure::Result;
use client::output::{counted, say};

/// The copy is in step when no stream is further behind, in seconds. The time of a record is rounded to a
/// second, and a round takes a part of a second.
const IN_STEP_SECONDS: u64 = 3;
/// The copy is in step when no more keys wait in all queues.
const IN_STEP_WAITING: u64 = 1_000;
/// The interval of the checks whether the copy is in step, and whether the source was handed over.
const CHECKED_EVERY: Duration = Duration::from_secs(1);
/// The number of consecutive rounds without a record after which a stream is read to its end. The first
/// round may have begun before the handover. A stream of DynamoDB may return an empty page although records
/// follow; the comparison finds what it lacks.
const LAST_ROUNDS: u32 = 4;
const LAST_ROUNDS_PAUSE: Duration = Duration::from_millis(50);

/// A table that is copied.
struct Active<'c> {
    pair: TablePair<'c>,
    is_new: bool,
    queue: Queue,
    copied: Copied,
    lag: Lag,
}

/// What runs beside the reading of items.
struct Background {
    lanes: Lanes,
    follower: Follower,
    first: Round,
}

/// Copies tables until the source is handed over, and returns the names of the tables, which are in step.
///
/// # Errors
/// When an endpoint fails. A repetition begins again.
pub(super) async fn copy(
    endpoints: &Endpoints,
    tables: &[Table],
    hand_over: bool,
    bar: &ProgressBar,
) -> Result<BTreeSet<String>> {
    let (mut active, mut background) = (Vec::new(), Vec::new());
    for table in tables {
        let (one, other) = begin(endpoints, table).await?;
        active.push(one);
        background.push(other);
    }
    let run = active.iter().zip(background).map(|(table, background)| table.run(background));
    tokio::select! {
        failed = try_join_all(run), if !active.is_empty() => {
            failed.map(|ended: Vec<Infallible>| ended.into_iter().map(|never| match never {}).collect())
        }
        never = show(&active, bar) => match never {},
        done = work(endpoints, &active, hand_over, bar) => {
            done.map(|()| tables.iter().map(|table| table.name.clone()).collect())
        }
    }
}

/// Creates the table at the target, and opens the stream of the source, before any item is read.
async fn begin<'c>(endpoints: &'c Endpoints, table: &'c Table) -> Result<(Active<'c>, Background)> {
    let Endpoints { source, from, to, .. } = endpoints;
    tables::begin(from, to, table).await?;
    let arn = tables::stream_of(from, table).await?;
    let now = endpoint::store_seconds(source, from).await;
    let (follower, first) = Follower::begin(source, &arn, &table.schema, now).await?;
    let (queue, lanes) = Queue::new();
    let active = Active {
        pair: TablePair::new(from, to, table),
        is_new: table.state == State::Missing,
        queue,
        copied: Copied::default(),
        lag: Lag::default(),
    };
    Ok((active, Background { lanes, follower, first }))
}

impl Active<'_> {
    /// Copies the items of queued keys, and follows the stream.
    async fn run(&self, background: Background) -> Result<Infallible> {
        let Background { lanes, follower, first } = background;
        let follow = async {
            for key in first.keys {
                self.queue.add(key).await?;
            }
            follower.run(&self.queue, &self.lag).await
        };
        let (_, never) = tokio::try_join!(lanes.run(&self.pair, &self.copied), follow)?;
        Ok(never)
    }

    /// Adds all keys of the source. Adds also the keys of an earlier run's copy, whose items the source may
    /// have deleted since.
    async fn queue_all(&self) -> Result<()> {
        self.pair.queue_all(self.pair.from, &self.queue).await?;
        if !self.is_new {
            self.pair.queue_all(self.pair.to, &self.queue).await?;
        }
        Ok(())
    }
}

/// Reads all items, waits until the copy is in step, lets the source hand over, and waits until the streams
/// are read to their end.
async fn work(
    endpoints: &Endpoints,
    active: &[Active<'_>],
    hand_over: bool,
    bar: &ProgressBar,
) -> Result<()> {
    let Endpoints { source, target, .. } = endpoints;
    for table in active {
        table.queue_all().await?;
    }
    let mut is_reported = false;
    // The operator ends this wait: by a handover, or by Ctrl-C.
    loop {
        let state = Handover::read(source).await?;
        if state == Handover::To(target.clone()) {
            break;
        }
        if is_in_step(endpoints, active).await {
            if !is_reported {
                bar.suspend(|| report_step(active, target, hand_over));
                is_reported = true;
            }
            if hand_over {
                state.carry_out(source, target).await?;
                break;
            }
        }
        sleep(CHECKED_EVERY).await;
    }
    let text = "no client writes to the source any more; reading its streams to their end";
    bar.suspend(|| say(text));
    active.iter().for_each(|table| table.lag.restart());
    // No client adds records, so this wait ends with the last one.
    while !active.iter().all(is_at_end) {
        sleep(LAST_ROUNDS_PAUSE).await;
    }
    Ok(())
}

fn report_step(active: &[Active<'_>], target: &str, hand_over: bool) {
    let copied: u64 = active.iter().map(|table| table.copied.get()).sum();
    let tables = counted(active.len(), "table", "tables");
    say(&format!(
        "in step with the source: {tables}, {copied} items and changes copied to `{target}`"
    ));
    if !hand_over {
        say(
            "following the changes until Ctrl-C; to complete the copy, run the command again with --hand-over",
        );
    }
}

async fn is_in_step(endpoints: &Endpoints, active: &[Active<'_>]) -> bool {
    let now = endpoint::store_seconds(&endpoints.source, &endpoints.from).await;
    let waiting: u64 = active.iter().map(|table| table.queue.waiting(&table.copied)).sum();
    let lag = active.iter().map(|table| table.lag.seconds(now)).max().unwrap_or(0);
    waiting <= IN_STEP_WAITING && lag <= IN_STEP_SECONDS
}

fn is_at_end(table: &Active<'_>) -> bool {
    table.lag.quiet_rounds() >= LAST_ROUNDS && table.queue.waiting(&table.copied) == 0
}

/// Shows the progress until the future is dropped.
async fn show(active: &[Active<'_>], bar: &ProgressBar) -> Infallible {
    loop {
        let copied: u64 = active.iter().map(|table| table.copied.get()).sum();
        let waiting: u64 = active.iter().map(|table| table.queue.waiting(&table.copied)).sum();
        bar.set_message(format!("{copied} items and changes copied, {waiting} wait"));
        sleep(SHOWN_EVERY).await;
    }
}
