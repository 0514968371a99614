//! The interface of a table whose items are found by one string key.
//!
//! Every write is conditional. The module does not interpret items.

pub(crate) mod attribute_value;
pub(crate) mod batch_get;
pub(crate) mod direct;
pub mod dynamodb;
#[cfg(test)]
pub(crate) mod in_memory;
#[cfg(test)]
pub(crate) mod scripted;
pub(crate) mod statements;

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, TryStreamExt, stream};
use model::limits::BATCH_GET_KEYS_MAX;
use model::{AttributeValue, Item};

use crate::back_off::RetryPolicy;
use crate::failure::Failure;

/// Maximum number of concurrent `BatchGetItem` requests of one invocation: enough to hide their
/// latency, and few enough to leave capacity of the table to other clients.
const LOADS_AT_ONCE: usize = 4;

/// The condition of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// No item has the key.
    Absent,
    /// The item has this attribute with exactly this value.
    Equals {
        /// The attribute.
        attribute: &'static str,
        /// The value.
        value: AttributeValue,
    },
}

/// The outcome of a conditional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The item was written.
    Written,
    /// The condition was false; nothing was written.
    GuardFailed,
}

/// The response to one `BatchGetItem`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The items that exist, by key. A key without an item is neither in `items` nor in
    /// `unprocessed`.
    pub items: BTreeMap<String, Item>,
    /// Keys that were not processed and must be requested again.
    pub unprocessed: BTreeSet<String>,
}

/// A page of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPage {
    /// The keys.
    pub keys: Vec<String>,
    /// The key after which the next page begins; `None` on the last page.
    pub next: Option<String>,
}

/// A table with a string partition key and no sort key.
pub trait Table: Send + Sync {
    /// Reads up to 100 items with strong consistency, in one request.
    fn load_some(
        &self,
        keys: &BTreeSet<String>,
    ) -> impl Future<Output = Result<Loaded, Failure>> + Send;

    /// Replaces a complete item if the condition of the guard is true.
    fn put(
        &self,
        item: &Item,
        guard: &Guard,
    ) -> impl Future<Output = Result<WriteOutcome, Failure>> + Send;

    /// Reads a page of keys in no particular order, beginning after the key `after`.
    fn scan_keys(
        &self,
        after: Option<&str>,
    ) -> impl Future<Output = Result<KeyPage, Failure>> + Send;
}

impl<T: Table> Table for std::sync::Arc<T> {
    fn load_some(
        &self,
        keys: &BTreeSet<String>,
    ) -> impl Future<Output = Result<Loaded, Failure>> + Send {
        self.as_ref().load_some(keys)
    }

    fn put(
        &self,
        item: &Item,
        guard: &Guard,
    ) -> impl Future<Output = Result<WriteOutcome, Failure>> + Send {
        self.as_ref().put(item, guard)
    }

    fn scan_keys(
        &self,
        after: Option<&str>,
    ) -> impl Future<Output = Result<KeyPage, Failure>> + Send {
        self.as_ref().scan_keys(after)
    }
}

/// Reads any number of items with strong consistency. Requests unprocessed keys again.
///
/// # Errors
/// When requests fail, or keys stay unprocessed, in all attempts of `retry`.
pub async fn load_all<T: Table>(
    table: &T,
    keys: impl IntoIterator<Item = String>,
    retry: RetryPolicy,
) -> Result<BTreeMap<String, Item>, Failure> {
    load_by(keys, retry, |keys| async move { table.load_some(&keys).await }).await
}

/// Reads any number of items as [`load_all`] does. `request` reads the items of up to 100 keys.
///
/// # Errors
/// The same as [`load_all`].
pub(crate) async fn load_by<R>(
    keys: impl IntoIterator<Item = String>,
    retry: RetryPolicy,
    request: impl Fn(BTreeSet<String>) -> R,
) -> Result<BTreeMap<String, Item>, Failure>
where
    R: Future<Output = Result<Loaded, Failure>>,
{
    let keys: Vec<String> = keys.into_iter().collect();
    let chunks: Vec<BTreeSet<String>> =
        keys.chunks(BATCH_GET_KEYS_MAX).map(|chunk| chunk.iter().cloned().collect()).collect();
    stream::iter(chunks.into_iter().map(|chunk| load_chunk(chunk, retry, &request)))
        .buffer_unordered(LOADS_AT_ONCE)
        .try_fold(BTreeMap::new(), async |mut all, some| {
            all.extend(some);
            Ok(all)
        })
        .await
}

async fn load_chunk<R>(
    mut missing: BTreeSet<String>,
    retry: RetryPolicy,
    request: &impl Fn(BTreeSet<String>) -> R,
) -> Result<BTreeMap<String, Item>, Failure>
where
    R: Future<Output = Result<Loaded, Failure>>,
{
    let mut items = BTreeMap::new();
    let mut attempts = retry.attempts();
    let mut failure = "keys remain unprocessed; the table is throttled".to_owned();
    while attempts.next().await {
        match request(missing.clone()).await {
            Ok(loaded) => {
                items.extend(loaded.items);
                if loaded.unprocessed.is_empty() {
                    return Ok(items);
                }
                // The restarts are bounded: each restart leaves fewer of the at most 100 keys.
                if loaded.unprocessed.len() < missing.len() {
                    attempts.restart();
                }
                missing = loaded.unprocessed;
            }
            Err(Failure::Retry(reason)) => failure = reason,
            Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
        }
    }
    Err(Failure::Retry(failure))
}

#[cfg(test)]
mod tests {
    use super::in_memory::{Faults, InMemoryTable};
    use super::*;

    #[tokio::test]
    async fn unprocessed_keys_are_asked_for_until_none_is_left() {
        let faults = Faults { lost: 20, unprocessed: 60, ..Faults::default() };
        for seed in 0..32 {
            let table = InMemoryTable::with_faults("id", seed, faults);
            let keys: Vec<String> = (0..250).map(|number| format!("k{number}")).collect();
            for key in keys.iter().step_by(2) {
                table.insert([("id", AttributeValue::from(key.as_str()))]);
            }
            let found = load_all(&table, keys, in_memory::AT_ONCE).await.unwrap();
            assert_eq!(found.len(), 125);
        }
        let table = InMemoryTable::with_faults("id", 1, Faults { lost: 100, ..faults });
        let failed = load_all(&table, ["k".to_owned()], in_memory::AT_ONCE).await;
        assert_eq!(failed, Err(Failure::Retry("throttled".to_owned())));
    }
}
