//! A history table in memory, for tests. Depending on a seed, requests fail, respond too late, or
//! are overtaken by other requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::Item;
use model::limits::PARTITION_KEY_BYTES_MAX;
use rules::versions::{Head, Plan, Version, Write};

use super::{HistoryTable, PlanOutcome};
use crate::failure::Failure;
use crate::tables::Loaded;
use crate::tables::in_memory::{Faults, Unreliable};

/// Number of versions in a page: few, so that a history has several pages.
const PAGE: usize = 3;

type Versions = BTreeMap<u64, Version>;

/// A history table in memory.
#[derive(Debug, Default)]
pub(crate) struct InMemoryHistories {
    items: Mutex<BTreeMap<String, (Option<Head>, Versions)>>,
    requests: Unreliable,
    /// Upper bound of writes in one transaction, if the table has little capacity.
    writes_max: Option<usize>,
    /// The table refuses images with this attribute as too large.
    large_attribute: Option<&'static str>,
    /// Number of pages of versions that were read.
    pages: AtomicUsize,
}

impl InMemoryHistories {
    pub(crate) fn with_faults(seed: u64, faults: Faults) -> Self {
        Self { requests: Unreliable::new(seed, faults), ..Self::default() }
    }

    /// Returns the number of pages of versions read so far.
    pub(crate) fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    pub(crate) fn with_capacity(writes_max: usize) -> Self {
        Self { writes_max: Some(writes_max), ..Self::default() }
    }

    /// Returns a table that refuses versions whose image has this attribute.
    pub(crate) fn without_versions_of(large_attribute: &'static str) -> Self {
        Self { large_attribute: Some(large_attribute), ..Self::default() }
    }

    fn takes(&self, write: &Write) -> bool {
        let (Write::Put(version), Some(large)) = (write, self.large_attribute) else { return true };
        version.image.as_ref().is_none_or(|image| !image.contains_key(large))
    }

    pub(crate) fn histories(&self) -> BTreeMap<String, (Option<Head>, Versions)> {
        self.items.lock().unwrap().clone()
    }
}

impl HistoryTable for InMemoryHistories {
    async fn load_heads(&self, items: &BTreeSet<String>) -> Result<Loaded, Failure> {
        assert!(items.len() <= 100);
        self.requests.request().await?;
        if items.iter().any(|item| item.len() > PARTITION_KEY_BYTES_MAX) {
            return Err(Failure::Fatal("a key is too long".to_owned()));
        }
        let mut loaded = Loaded::default();
        for item in items {
            if self.requests.random() % 100 < self.requests.faults.unprocessed {
                loaded.unprocessed.insert(item.clone());
            } else if let Some((Some(head), _)) = self.items.lock().unwrap().get(item) {
                loaded.items.insert(item.clone(), head.to_item(item));
            }
        }
        Ok(loaded)
    }

    async fn versions_below(&self, item: &str, below: u64) -> Result<Vec<Item>, Failure> {
        self.requests.request().await?;
        self.pages.fetch_add(1, Ordering::Relaxed);
        let items = self.items.lock().unwrap();
        let Some((_, versions)) = items.get(item) else { return Ok(Vec::new()) };
        let page = versions.range(..below).rev().take(PAGE);
        Ok(page.map(|(_, version)| version.to_item(item)).collect())
    }

    async fn write(&self, item: &str, plan: &Plan, found: u64) -> Result<PlanOutcome, Failure> {
        assert!(plan.writes.len() < 100);
        let fate = self.requests.request().await?;
        if self.writes_max.is_some_and(|most| plan.writes.len() > most) {
            return Err(Failure::Retry("a transaction was cancelled: ThrottlingError".to_owned()));
        }
        if !plan.writes.iter().all(|write| self.takes(write)) {
            return Ok(PlanOutcome::TooLarge("Item size has exceeded the maximum".to_owned()));
        }
        let outcome = {
            let mut items = self.items.lock().unwrap();
            let (head, versions) = items.entry(item.to_owned()).or_default();
            if head.as_ref().map_or(0, |head| head.revision) == found {
                *head = Some(plan.head.clone());
                for write in plan.writes.clone() {
                    match write {
                        Write::Put(version) => drop(versions.insert(version.number, version)),
                        Write::Delete(number) => drop(versions.remove(&number)),
                        Write::Expire { number, at_seconds } => {
                            versions.get_mut(&number).unwrap().expires_at = Some(at_seconds);
                        }
                    }
                }
                PlanOutcome::Written
            } else {
                PlanOutcome::GuardFailed
            }
        };
        if fate < self.requests.faults.unanswered {
            return Err(Failure::Retry("timed out".to_owned()));
        }
        Ok(outcome)
    }
}
