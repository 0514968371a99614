//! The executor of versions: adds the changes in a batch to the histories of their items. Each plan
//! is written in one transaction that is conditional on the head's revision.
//!
//! The rule decides which versions a history must have. This module does not interpret the changes.

mod dynamodb;
#[cfg(test)]
pub(crate) mod in_memory;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};
use model::Item;
use rules::versions::{
    CHANGES_MAX, Changes, Head, IMAGE_BYTES_MAX, Plan, RENUMBERED_MAX, Retention, TooLate, Version,
    VersionEvent, Versions, Write, missing, plan, unbroken,
};
use rules::{Folded, Found, Needs};

use crate::back_off::{Deadline, RetryPolicy};
use crate::failure::Failure;
use crate::frame::{Executor, SetAside, TargetOutcome, in_order};
use crate::tables::{Loaded, load_by};

pub use dynamodb::DynamoDbHistories;

/// Maximum number of histories that are written concurrently: enough to hide the latency of one
/// transaction.
const WRITES_AT_ONCE: usize = 16;
/// Number of versions in one page of a history.
pub(crate) const PAGE_VERSIONS: usize = 100;

/// A history table.
pub trait HistoryTable: Send + Sync {
    /// Reads up to 100 heads with strong consistency. The keys of the items are given as text.
    fn load_heads(
        &self,
        items: &BTreeSet<String>,
    ) -> impl Future<Output = Result<Loaded, Failure>> + Send;

    /// Reads a page of an item's versions with strong consistency, latest first, whose numbers are
    /// less than `below`. The page is empty if no version is left.
    fn versions_below(
        &self,
        item: &str,
        below: u64,
    ) -> impl Future<Output = Result<Vec<Item>, Failure>> + Send;

    /// Applies a plan atomically if the head still has the revision `found`; 0 means that there is
    /// no head.
    fn write(
        &self,
        item: &str,
        plan: &Plan,
        found: u64,
    ) -> impl Future<Output = Result<PlanOutcome, Failure>> + Send;
}

/// The outcome of writing a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanOutcome {
    /// The plan was applied.
    Written,
    /// Another writer changed the history in between; nothing was written.
    GuardFailed,
    /// A version in the plan is permanently too large for the table; nothing was written.
    TooLarge(String),
}

/// Maximum number of latest versions whose images are in memory: the versions that may be
/// renumbered, and the version before them. Of earlier versions only the numbers are loaded,
/// because a history may have any length.
const IMAGES_MAX: usize = RENUMBERED_MAX + 1;

/// Upper bounds of one transaction.
#[derive(Clone, Copy, Debug)]
struct TransactionBounds {
    changes: usize,
    image_bytes: usize,
}

impl TransactionBounds {
    const USUAL: Self = Self { changes: CHANGES_MAX, image_bytes: IMAGE_BYTES_MAX };

    /// Returns the bounds of the next attempt after a failure. A partition that lacks capacity for
    /// many versions in one write may have enough for fewer. One change is always allowed, even if
    /// its image is larger than the bound.
    fn halved(self) -> Self {
        Self { changes: (self.changes / 2).max(1), image_bytes: self.image_bytes / 2 }
    }

    /// Returns the bounds of the next attempt after a refused change. Half of the changes may
    /// succeed, because the refused change may not be among them.
    fn half_of(self, changes: &Changes) -> Self {
        Self { changes: (changes.len() / 2).max(1), ..self }
    }
}

/// The executor of versions.
#[derive(Clone, Debug)]
pub struct Histories<T> {
    /// The history table.
    pub table: T,
    /// The retention: how many versions are kept, and for how long.
    pub retention: Retention,
    /// Retry policy for conflicts with other writers.
    pub retry: RetryPolicy,
}

impl<T: HistoryTable> Histories<T> {
    /// Adds `changes` to the history of `item`. Returns how many of them the history did not
    /// contain yet. A change is quarantined if it arrived too late, or if the table refuses it even
    /// in a separate write. The history continues without a quarantined change.
    async fn join(
        &self,
        item: &str,
        changes: &Changes,
        found: Option<&Item>,
        set_aside: &mut Vec<SetAside>,
    ) -> Result<usize, Failure> {
        let mut found = found.cloned();
        let (mut changes, mut written) = (changes.clone(), 0);
        let mut failure = "other writers keep changing this history".to_owned();
        let mut attempts = self.retry.attempts();
        let (mut is_known, mut most) = (true, TransactionBounds::USUAL);
        while attempts.next().await {
            if !is_known {
                found = match self.load([item.to_owned()].into()).await {
                    Ok(mut heads) => heads.remove(item),
                    Err(Failure::Retry(reason)) => {
                        failure = reason;
                        continue;
                    }
                    Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
                };
                is_known = true;
            }
            // A head that is damaged at this point was damaged after the load for the batch. The
            // next delivery refuses the records of this item.
            let head = found.as_ref().map(Head::from_item).transpose();
            let head = head.map_err(|error| Failure::Retry(error.to_string()))?;
            match self.add_some(item, head.as_ref(), &changes, most).await {
                Ok(AddOutcome::Nothing) => return Ok(written),
                Ok(AddOutcome::Some { these, head }) => {
                    written += these.len();
                    changes = changes.without(&these);
                    if changes.is_empty() {
                        return Ok(written);
                    }
                    found = Some(head.to_item(item));
                    // The restarts are bounded by the number of changes, because each restart
                    // leaves fewer changes.
                    attempts.restart();
                }
                Ok(AddOutcome::ConcurrentChange) => is_known = false,
                Ok(AddOutcome::Refused(refused)) => {
                    (changes, most) = refused.rest_of(changes, most, set_aside);
                    if changes.is_empty() {
                        return Ok(written);
                    }
                    // The restarts are bounded: each restart halves the number of changes, leaves
                    // fewer changes, or drops the base.
                    attempts.restart();
                }
                Ok(AddOutcome::TooLate { these, reasons }) => {
                    set_aside.extend(reasons);
                    changes = changes.without(&these);
                    if changes.is_empty() {
                        return Ok(written);
                    }
                    // The restarts are bounded, because each restart leaves fewer changes.
                    attempts.restart();
                }
                Err(Failure::Retry(reason)) => {
                    is_known = false;
                    failure = reason;
                    most = most.halved();
                }
                Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
            }
        }
        Err(Failure::Retry(failure))
    }

    /// Adds the first changes that are new to the history, as many as one transaction allows.
    async fn add_some(
        &self,
        item: &str,
        head: Option<&Head>,
        changes: &Changes,
        most: TransactionBounds,
    ) -> Result<AddOutcome, Failure> {
        let tail = match head {
            Some(head) if head.needs_tail(changes) => self.load_tail(item, head, changes).await?,
            _ => Vec::new(),
        };
        let these = missing(head, &tail, changes);
        let changes = these.first(most.changes, most.image_bytes);
        if changes.is_empty() {
            return Ok(AddOutcome::Nothing);
        }
        let planned = |changes: &Changes| plan(head, &tail, changes, self.retention);
        let plan = match planned(&changes) {
            Ok(plan) => plan,
            // Uses the loaded tail to find all changes that are too late, because loading the tail
            // again for each change could use up the invocation's time.
            Err(_) => return Ok(too_late(&changes, planned)),
        };
        let revision = head.map_or(0, |head| head.revision);
        Ok(match self.table.write(item, &plan, revision).await? {
            PlanOutcome::Written => AddOutcome::Some { these: changes, head: plan.head },
            PlanOutcome::GuardFailed => AddOutcome::ConcurrentChange,
            PlanOutcome::TooLarge(reason) => {
                let is_base = |write: &Write| matches!(write, Write::Put(version) if version.event == VersionEvent::Base);
                let has_before = changes.iter().any(|(_, change)| change.before.is_some());
                let has_base = has_before && plan.writes.iter().any(is_base);
                let reason = format!("the history table refuses its version: {reason}");
                AddOutcome::Refused(RefusedChanges { changes, has_base, reason })
            }
        })
    }

    /// Loads the tail of a history: its last versions by number, beginning before the earliest
    /// change. Versions that can no longer be renumbered are loaded without images.
    async fn load_tail(
        &self,
        item: &str,
        head: &Head,
        changes: &Changes,
    ) -> Result<Vec<Version>, Failure> {
        let mut tail: Vec<Version> = Vec::new();
        let mut below = head.latest + 1;
        // The loop is bounded by the number of versions, because each page begins below the
        // previous page.
        loop {
            let page = self.table.versions_below(item, below).await?;
            let versions = page.iter().map(Version::from_item).collect::<Result<Vec<_>, _>>();
            tail.extend(versions.map_err(|error| Failure::Retry(error.to_string()))?);
            tail.iter_mut().skip(IMAGES_MAX).for_each(|version| version.image = None);
            let Some(last) = tail.last().filter(|_| !page.is_empty()) else { break };
            below = last.number;
            if changes.earliest().is_none_or(|earliest| last.stamp < *earliest) && below > 2 {
                break;
            }
            if below == 1 {
                break;
            }
        }
        tail.reverse();
        Ok(unbroken(tail))
    }

    async fn load(&self, items: BTreeSet<String>) -> Result<BTreeMap<String, Item>, Failure> {
        let table = &self.table;
        load_by(items, self.retry, |items| async move { table.load_heads(&items).await }).await
    }
}

/// The outcome of an attempt to add changes.
enum AddOutcome {
    /// The history already contained all changes.
    Nothing,
    /// These changes were added, and this is the new head.
    Some { these: Changes, head: Head },
    /// Another writer changed the history between the read and the write.
    ConcurrentChange,
    /// One of the changes cannot become a version.
    Refused(RefusedChanges),
    /// These changes are too late for the history.
    TooLate { these: Changes, reasons: Vec<SetAside> },
}

/// Returns the changes that are too late, beginning with the first, and the reason for each.
fn too_late(changes: &Changes, plan: impl Fn(&Changes) -> Result<Plan, TooLate>) -> AddOutcome {
    let (mut rest, mut reasons) = (changes.clone(), Vec::new());
    // Each iteration leaves fewer changes.
    while let Err(late) = plan(&rest) {
        let first = rest.first(1, 0);
        reasons.extend(first.iter().map(|(_, change)| SetAside {
            event_id: Some(change.event_id.clone()),
            reason: late.to_string(),
        }));
        rest = rest.without(&first);
    }
    AddOutcome::TooLate { these: changes.without(&rest), reasons }
}

/// The changes of a refused transaction. One of these changes, or the base before the first change,
/// cannot become a version.
struct RefusedChanges {
    changes: Changes,
    has_base: bool,
    reason: String,
}

impl RefusedChanges {
    /// Returns the changes that are still to be added, and the bounds of the next attempt. Finds
    /// the refused change by bisection and quarantines it.
    fn rest_of(
        self,
        changes: Changes,
        most: TransactionBounds,
        set_aside: &mut Vec<SetAside>,
    ) -> (Changes, TransactionBounds) {
        let Self { changes: refused, has_base, reason } = self;
        if refused.len() > 1 {
            return (changes, most.half_of(&refused));
        }
        if has_base {
            // The base may be the cause. The next attempt has no base, so the history contains no
            // version from before its first change.
            return (changes.replaced(refused.baseless()), TransactionBounds::USUAL);
        }
        set_aside.extend(refused.iter().map(|(_, change)| SetAside {
            event_id: Some(change.event_id.clone()),
            reason: reason.clone(),
        }));
        (changes.without(&refused), TransactionBounds::USUAL)
    }
}

impl<T: HistoryTable> Executor for Histories<T> {
    type Rule = Versions;

    async fn load(&self, needs: Needs) -> Result<Found<Item>, Failure> {
        Ok(Found { inputs: self.load(needs).await?, ..Found::default() })
    }

    async fn apply(
        &self,
        folded: Folded<String, Changes>,
        found: &Found<Item>,
        deadline: Deadline,
    ) -> Vec<TargetOutcome> {
        let joins: Vec<_> = in_order(folded)
            .into_iter()
            .map(async |(item, joined)| {
                let mut set_aside = Vec::new();
                let head = found.inputs.get(&item);
                let work = self.join(&item, &joined.value, head, &mut set_aside);
                let result = deadline.limit(work).await;
                TargetOutcome { target: item, records: joined.records, result, set_aside }
            })
            .collect();
        stream::iter(joins).buffer_unordered(WRITES_AT_ONCE).collect().await
    }
}
