//! Partitions that split while the mappings run, decided by the seed of the chaos.
//!
//! Only the local store has partitions to split; what splits when is no promise, that nothing is
//! lost by it is.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::poller::Chaos;
use client::partitions::split_somewhere;
use mapping::mix;
use template::Stack;

/// Time between two splits, at least and at most.
const PAUSE_MS: (u64, u64) = (500, 3_000);
/// Splits of one run: enough for any interleaving, few enough that shards do not swamp the pollers.
const SPLITS_MAX: u64 = 24;

/// Splits partitions of the tables with a stream from time to time.
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
            let count = u64::try_from(tables.len()).unwrap_or(u64::MAX).max(1);
            let Some(table) = usize::try_from(draw % count).ok().and_then(|n| tables.get(n)) else {
                return;
            };
            match split_somewhere(&url, table, draw / count).await {
                Ok(true) => chaos.count("partition split"),
                Ok(false) => {}
                Err(error) => tracing::debug!("no split of {table}: {error}"),
            }
        }
    })
}
