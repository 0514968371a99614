//! Compares all items of a table at both endpoints, and copies again what differs.
//!
//! It runs when no client writes. A first difference is copied again, because the stream of a source that
//! is not a local store may be late. A second one is reported.

use std::sync::atomic::{AtomicU64, Ordering};

use aws_sdk_dynamodb::Client;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use model::limits::BATCH_GET_KEYS_MAX;
use model::{Item, PrimaryKey};

use super::transfer::{Copied, Queue, TablePair, scan};
use client::failure::Result;
use client::output::{counted, say};
use operations::batches::get_all;

/// Number of concurrent reads of the target.
const READS_AT_ONCE: usize = 8;
/// Maximum number of keys that are copied again. With more, the copy is wrong as a whole.
const COPIED_AGAIN_MAX: usize = 10_000;

/// The result of a comparison.
pub(super) struct Compared {
    /// The number of items at the source.
    pub(super) items: u64,
    /// The number of items at the target.
    target_items: u64,
    /// The keys of items that the target lacks, or that differ; at most [`COPIED_AGAIN_MAX`].
    different: Vec<PrimaryKey>,
}

impl Compared {
    /// Returns the number of items that differ, or that only one endpoint has.
    pub(super) fn differences(&self) -> u64 {
        let different = u64::try_from(self.different.len()).unwrap_or(u64::MAX);
        different.max(self.items.abs_diff(self.target_items))
    }
}

/// Compares a table, and copies again what differs, once. `compared` counts the items of all tables.
pub(super) async fn verify(pair: &TablePair<'_>, compared: &AtomicU64) -> Result<Compared> {
    let first = compare(pair, compared).await?;
    if first.differences() == 0 {
        return Ok(first);
    }
    let count = usize::try_from(first.differences()).unwrap_or(usize::MAX);
    let items = counted(count, "item", "items");
    say(&format!("table `{}` differs in {items}; copying again", pair.name));
    pair.copy_all(&first.different).await?;
    // Items that only the target has are deleted, also where their number equals that of missing items.
    copy_keys_of(pair, &[pair.to]).await?;
    compare(pair, compared).await
}

/// Copies the items of all keys that these clients have.
pub(super) async fn copy_keys_of(pair: &TablePair<'_>, clients: &[&Client]) -> Result<()> {
    let ((queue, lanes), copied) = (Queue::new(), Copied::default());
    let read = async {
        for client in clients {
            pair.queue_all(client, &queue).await?;
        }
        drop(queue);
        Ok(())
    };
    tokio::try_join!(lanes.run(pair, &copied), read).map(drop)
}

async fn compare(pair: &TablePair<'_>, compared: &AtomicU64) -> Result<Compared> {
    let (mut items, mut different) = (0, Vec::new());
    let source = scan(pair.from, pair.name, &[], async |page: Vec<Item>| {
        let count = u64::try_from(page.len()).unwrap_or(u64::MAX);
        let chunks = page.chunks(BATCH_GET_KEYS_MAX).map(|some| different_keys(pair, some));
        let chunks: Vec<_> = chunks.collect();
        let found = stream::iter(chunks).buffer_unordered(READS_AT_ONCE).try_concat().await?;
        let room = COPIED_AGAIN_MAX.saturating_sub(different.len());
        different.extend(found.into_iter().take(room));
        items += count;
        compared.fetch_add(count, Ordering::SeqCst);
        Ok(())
    });
    let mut target_items = 0;
    let names = pair.schema.attributes().map(|attribute| attribute.name.as_str());
    let names: Vec<&str> = names.collect();
    let target = scan(pair.to, pair.name, &names, async |page: Vec<Item>| {
        target_items += u64::try_from(page.len()).unwrap_or(u64::MAX);
        Ok(())
    });
    tokio::try_join!(source, target)?;
    Ok(Compared { items, target_items, different })
}

/// Returns the keys of the items that the target lacks, or has with other attributes.
async fn different_keys(pair: &TablePair<'_>, items: &[Item]) -> Result<Vec<PrimaryKey>> {
    let keys = items.iter().map(|item| pair.key_of(item)).collect::<Result<Vec<_>>>()?;
    let mut found = get_all(pair.to, pair.name, pair.schema, &keys).await?;
    let pairs = keys.into_iter().zip(items);
    let different = pairs.filter_map(|(key, item)| {
        let is_equal = found.remove(&key).is_some_and(|other| other == *item);
        (!is_equal).then_some(key)
    });
    Ok(different.collect())
}
