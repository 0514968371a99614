//! A table in memory whose requests fail, are delayed and interleave, depending on a seed.
//!
//! For tests. A writer sees only behaviour that DynamoDB may show too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use model::{AttributeValue, Item};

use super::{Guard, KeyPage, Loaded, Table, WriteOutcome};
use crate::back_off::RetryPolicy;
use crate::failure::Failure;

/// A retry policy with many attempts and no waits.
pub(crate) const AT_ONCE: RetryPolicy =
    RetryPolicy { attempts_max: 100, delay_base: Duration::ZERO, delay_max: Duration::ZERO };

/// Percentages of requests that fail in each way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Requests that fail without effect.
    pub(crate) lost: u64,
    /// Writes that take effect, but fail.
    pub(crate) unanswered: u64,
    /// Percentage of the keys of a read that are left unprocessed.
    pub(crate) unprocessed: u64,
}

/// Delays and fails requests, depending on a seed.
#[derive(Debug, Default)]
pub(crate) struct Unreliable {
    random: Mutex<u64>,
    pub(crate) faults: Faults,
}

impl Unreliable {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        Self { random: Mutex::new(seed), faults }
    }

    pub(crate) fn random(&self) -> u64 {
        let mut random = self.random.lock().unwrap();
        *random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *random >> 33
    }

    /// Simulates the start of a request: lets concurrent requests run first, then injects a
    /// failure, or returns a random number below 100 with which the caller injects other faults.
    pub(crate) async fn request(&self) -> Result<u64, Failure> {
        for _ in 0..self.random() % 4 {
            tokio::task::yield_now().await;
        }
        let fate = self.random() % 100;
        if fate < self.faults.lost {
            return Err(Failure::Retry("throttled".to_owned()));
        }
        Ok(fate - self.faults.lost)
    }
}

/// A table in memory.
#[derive(Debug)]
pub(crate) struct InMemoryTable {
    key_attribute: &'static str,
    items: Mutex<BTreeMap<String, Item>>,
    requests: Unreliable,
    /// Number of reads that still succeed.
    reads: Mutex<usize>,
    /// Upper bound of keys in one read that succeeds.
    keys_max: Mutex<usize>,
}

impl InMemoryTable {
    pub(crate) fn with_faults(key_attribute: &'static str, seed: u64, faults: Faults) -> Self {
        let (items, requests) = (Mutex::default(), Unreliable::new(seed, faults));
        let (reads, keys_max) = (Mutex::new(usize::MAX), Mutex::new(usize::MAX));
        Self { key_attribute, items, requests, reads, keys_max }
    }

    /// Lets this many more reads succeed; later reads fail.
    pub(crate) fn answer_reads(&self, reads: usize) {
        *self.reads.lock().unwrap() = reads;
    }

    pub(crate) fn new(key_attribute: &'static str) -> Self {
        Self::with_faults(key_attribute, 0, Faults::default())
    }

    /// Makes reads of more keys than this fail.
    pub(crate) fn answer_keys(&self, keys_max: usize) {
        *self.keys_max.lock().unwrap() = keys_max;
    }

    pub(crate) fn insert<const N: usize>(&self, attributes: [(&str, AttributeValue); N]) {
        let attributes = attributes.into_iter().map(|(name, value)| (name.to_owned(), value));
        self.insert_item(Item(attributes.collect()));
    }

    pub(crate) fn insert_item(&self, item: Item) {
        self.items.lock().unwrap().insert(self.key_of(&item), item);
    }

    pub(crate) fn remove(&self, key: &str) {
        self.items.lock().unwrap().remove(key);
    }

    pub(crate) fn items(&self) -> BTreeMap<String, Item> {
        self.items.lock().unwrap().clone()
    }

    fn key_of(&self, item: &Item) -> String {
        item.get(self.key_attribute).and_then(AttributeValue::as_str).unwrap().to_owned()
    }
}

impl Table for InMemoryTable {
    async fn load_some(&self, keys: &BTreeSet<String>) -> Result<Loaded, Failure> {
        assert!(keys.len() <= 100);
        self.requests.request().await?;
        if keys.len() > *self.keys_max.lock().unwrap() {
            return Err(Failure::Retry("throttled".to_owned()));
        }
        {
            let mut reads = self.reads.lock().unwrap();
            *reads = reads.checked_sub(1).ok_or_else(|| Failure::Retry("throttled".to_owned()))?;
        }
        let mut loaded = Loaded::default();
        for key in keys {
            if self.requests.random() % 100 < self.requests.faults.unprocessed {
                loaded.unprocessed.insert(key.clone());
            } else if let Some(item) = self.items.lock().unwrap().get(key) {
                loaded.items.insert(key.clone(), item.clone());
            }
        }
        Ok(loaded)
    }

    async fn put(&self, item: &Item, guard: &Guard) -> Result<WriteOutcome, Failure> {
        let fate = self.requests.request().await?;
        let outcome = {
            let mut items = self.items.lock().unwrap();
            let key = self.key_of(item);
            let holds = match (items.get(&key), guard) {
                (found, Guard::Absent) => found.is_none(),
                (found, Guard::Equals { attribute, value }) => {
                    found.and_then(|found| found.get(*attribute)) == Some(value)
                }
            };
            if holds {
                items.insert(key, item.clone());
                WriteOutcome::Written
            } else {
                WriteOutcome::GuardFailed
            }
        };
        if fate < self.requests.faults.unanswered {
            return Err(Failure::Retry("timed out".to_owned()));
        }
        Ok(outcome)
    }

    async fn scan_keys(&self, after: Option<&str>) -> Result<KeyPage, Failure> {
        self.requests.request().await?;
        let items = self.items.lock().unwrap();
        let mut keys = items.keys().filter(|key| after.is_none_or(|after| key.as_str() > after));
        let page: Vec<String> = keys.by_ref().take(3).cloned().collect();
        let next = keys.next().and_then(|_| page.last().cloned());
        Ok(KeyPage { keys: page, next })
    }
}
