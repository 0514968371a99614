//! Splits partitions while the mappings run, at times that the seed of the faults determines.
//!
//! Only the local store has partitions that can be split. A split must not lose records.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::poller::Chaos;
use client::partitions::split_somewhere;
use mapping::mix;
use template::Stack;

/// The minimum and maximum time between two splits, in milliseconds.
const PAUSE_MS: (u64, u64) = (500, 3_000);
/// The maximum number of splits in one run. The limit keeps the number of shards that the pollers
/// read small, and is high enough for splits during every phase of a run.
const SPLITS_MAX: u64 = 24;

/// Starts the task that splits a partition of a table with a stream after each pause of
/// [`PAUSE_MS`].
pub(super) fn start(stack: &Stack, dynamodb_url: &str, chaos: &Arc<Chaos>) -> JoinHandle<()> {
    let tables: Vec<String> = stack
        .tables
        .iter()
        .filter(|table| table.stream.is_some())
        .map(|table| table.name.clone())
        .collect();
    let (url, chaos) = (dynamodb_url.to_owned(), Arc::clone(chaos));
    tokio::spawn(async move {
        for number in 0..SPLITS_MAX {
            let draw = mix(chaos.seed().wrapping_add(number));
            let (least, most) = PAUSE_MS;
            tokio::time::sleep(Duration::from_millis(least + draw % (most - least))).await;
            if !chaos.is_on() {
                continue;
            }
            let count = u64::try_from(tables.len()).unwrap_or(u64::MAX).max(1);
            let Some(table) = usize::try_from(draw % count).ok().and_then(|n| tables.get(n)) else {
                return;
            };
            match split_somewhere(&url, table, draw / count).await {
                Ok(true) => chaos.count("partition split"),
                Ok(false) => {}
                Err(error) => tracing::debug!("cannot split a partition of table {table}: {error}"),
            }
        }
    })
}
