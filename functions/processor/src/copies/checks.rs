//! Checks many copies together: reads the data that determines their expected values in batches,
//! and writes the copies that differ from the expected values.
//!
//! A batch of new copies has few origins, so jobs, origins and copies are read 100 per request
//! instead of one by one. A check is correct because of the order of its reads: job, then origin,
//! then copy. A round reads all of its copies in this order. A copy is checked again in the next
//! round if it changed meanwhile or if memory was short. Each copy is read twice. The first read
//! keeps only its origin and size; the second read keeps the complete copy.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};
use model::limits::BATCH_GET_KEYS_MAX;
use model::{AttributeValue, Item, json};
use rules::Joined;
use rules::fan_out::{
    CheckResult, Copy, CopyReads, CopyRule, DeploymentHops, Job, Origin, Update, look,
    mark_attribute,
};
use tracing::warn;

use super::{
    Copies, CopyGuard, CopyOutcome, CopyOutline, CopyTables, WRITES_AT_ONCE, nonce, unknown_rule,
};
use crate::back_off::Deadline;
use crate::failure::Failure;
use crate::frame::{TargetOutcome, in_order};

/// Maximum number of copies that are checked in one round. Twenty requests read the copies and
/// their origins.
pub(super) const ROUND_COPIES: usize = 500;
/// Maximum size in bytes of the complete copies that a round keeps in memory. A round also keeps
/// jobs and origins. It stops reading these after 4 MB, but the last request may return
/// [`LARGE_AT_ONCE`] items of 400 KB. Together with the text of a response, this is 36 MB of the
/// function's 256 MB.
const ROUND_BYTES: usize = 8 * 1024 * 1024;
/// Maximum number of items per request while items may have the maximum size of 400 KB: 8 MB.
const LARGE_AT_ONCE: usize = 20;
/// Average size in bytes up to which items count as small. A request reads the maximum number of
/// small items.
const SMALL_BYTES: usize = 8 * 1024;
/// Minimum number of copies in a round, even if the tables are throttled. Smaller rounds would need
/// more requests for each copy.
const ROUND_COPIES_MIN: usize = 8;

/// The result of a check of one copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckOutcome {
    /// The copy is correct.
    UpToDate,
    /// The copy was written.
    Written,
    /// The copy cannot be written: DynamoDB refuses the new item, its origin cannot have a job, or
    /// several deployments copy its value in a cycle.
    Refused,
}

/// Results of checks, by the copy's key in DynamoDB JSON.
pub(super) type CheckOutcomes = BTreeMap<String, Result<CheckOutcome, Failure>>;

/// The [`CopyReads::arrival`] of each copy, by the copy's key in DynamoDB JSON. Only a check that a
/// stream record requests has an entry.
pub(super) type HopsByCopy = BTreeMap<String, u32>;

/// The data that a round read.
struct RoundReads<'a> {
    /// Jobs by the origin's key in DynamoDB JSON. A job that cannot be decoded affects only its
    /// origin's copies.
    jobs: BTreeMap<String, Result<Job, Failure>>,
    origins: BTreeMap<String, Item>,
    /// The attributes of each copy that the first read kept, by the copy's key in DynamoDB JSON.
    before: BTreeMap<String, CopyOutline>,
    after: BTreeMap<String, Item>,
    /// The value of [`CopyReads::nonce`] for this round.
    nonce: u64,
    arrivals: &'a HopsByCopy,
    /// Copies that were not read, or whose origins were not read, because the items before them
    /// used up the round's memory.
    unread: BTreeSet<String>,
}

/// The items that a round still has to read. It reads them in sequential requests, until the total
/// size of the read items reaches the maximum.
struct BoundedReads<V> {
    rest: BTreeMap<String, V>,
    /// Maximum number of items per request, if items are small.
    most: usize,
    count: usize,
    bytes: usize,
}

impl<V> BoundedReads<V> {
    fn new(all: BTreeMap<String, V>, most: usize) -> Self {
        Self { rest: all, most, count: 0, bytes: 0 }
    }

    /// Returns the keys to read next. There is always a first request, so each round makes
    /// progress.
    fn next(&mut self) -> Option<BTreeMap<String, V>> {
        if self.rest.is_empty() || self.bytes > ROUND_BYTES / 2 {
            return None;
        }
        let are_small = self.count > 0 && self.bytes <= self.count * SMALL_BYTES;
        let count = if are_small { self.most } else { LARGE_AT_ONCE };
        self.count += count.min(self.rest.len());
        let behind = match self.rest.keys().nth(count).cloned() {
            Some(behind) => self.rest.split_off(&behind),
            None => BTreeMap::new(),
        };
        Some(std::mem::replace(&mut self.rest, behind))
    }
}

/// Keeps the first copies in `wanted`: as many as a round may keep in memory, and at least one
/// copy. Returns the remaining copies.
fn take_held(
    wanted: &mut BTreeMap<String, Item>,
    before: &BTreeMap<String, CopyOutline>,
) -> Vec<String> {
    let mut held = 0;
    let behind = wanted.keys().enumerate().find(|(position, key)| {
        held += before.get(*key).map_or(0, |glimpse| glimpse.bytes);
        *position > 0 && held > ROUND_BYTES
    });
    match behind.map(|(_, key)| key.clone()) {
        Some(behind) => wanted.split_off(&behind).into_keys().collect(),
        None => Vec::new(),
    }
}

/// The next action for one copy.
enum NextAction {
    Nothing,
    CheckAgain,
    Write(Update, CopyGuard),
    /// Write the mark, and check the copy again.
    Mark(Update, CopyGuard),
    /// The copy must not be written, for this reason.
    Refuse(String),
    /// The job is damaged.
    Fail(Failure),
}

/// The result of a round for one copy.
enum RoundOutcome {
    Done(CheckOutcome),
    /// The copy must be checked again, for this reason.
    Again(Failure),
    Failed(Failure),
}

fn written_by_others() -> Failure {
    Failure::Retry("other writers keep changing this copy".to_owned())
}

/// Returns a copy's origin and the origin's key, if that origin can have a job. DynamoDB refuses a
/// whole request with an invalid key, which would block the other copies of the round.
fn origin_of(rule: &CopyRule, copy: &Item) -> Option<(Origin, AttributeValue)> {
    let origin = rule.origin_of(copy).filter(Origin::fits)?;
    Some((origin, copy.get(&rule.index_key)?.clone()))
}

impl RoundReads<'_> {
    fn todo(&self, rule: &CopyRule, key: &str) -> NextAction {
        let Some(CopyOutline { copy: before, .. }) = self.before.get(key) else {
            return NextAction::Nothing;
        };
        let Some(origin) = rule.origin_of(before) else { return NextAction::Nothing };
        if !origin.fits() {
            // A key that is too long cannot be the key of a job. Without a job the copy's expected
            // values are unknown.
            let reason = "the key of the copy's origin is too long to be the key of a job";
            return NextAction::Refuse(reason.to_owned());
        }
        let Some(copy) = self.after.get(key) else { return NextAction::Nothing };
        if rule.origin_of(copy).as_ref() != Some(&origin) {
            return NextAction::CheckAgain;
        }
        let job = match self.jobs.get(&origin.key) {
            Some(Err(failure)) => return NextAction::Fail(failure.clone()),
            Some(Ok(job)) => Some(&job.state),
            None => None,
        };
        let origin = self.origins.get(&origin.key);
        let guard = || CopyGuard::MarkUnchanged(copy.get(&mark_attribute(&rule.name)).cloned());
        let (nonce, arrival) = (self.nonce, self.arrivals.get(key).copied());
        match look(rule, &CopyReads { before, job, origin, copy, nonce, arrival }) {
            CheckResult::UpToDate => NextAction::Nothing,
            CheckResult::CheckAgain => NextAction::CheckAgain,
            CheckResult::Write(update) => NextAction::Write(update, guard()),
            CheckResult::Mark(update) => NextAction::Mark(update, guard()),
            CheckResult::Refuse(reason) => NextAction::Refuse(reason),
        }
    }
}

impl<T: CopyTables> Copies<T> {
    /// Checks the copies whose keys are in the records of a batch. Adds one outcome per copy to
    /// `outcomes`.
    pub(super) async fn look_at_named(
        &self,
        looks: BTreeMap<Copy, Joined<DeploymentHops>>,
        deadline: Deadline,
        outcomes: &mut Vec<TargetOutcome>,
    ) {
        let mut rules: BTreeMap<String, Vec<(String, Joined<DeploymentHops>)>> = BTreeMap::new();
        for (copy, joined) in in_order(looks) {
            rules.entry(copy.rule).or_default().push((copy.key, joined));
        }
        for (name, named) in rules {
            let arrivals =
                named.iter().map(|(key, joined)| (key.clone(), joined.value.0)).collect();
            let records = named.into_iter().map(|(key, joined)| (key, joined.records));
            let records: Vec<(String, Vec<usize>)> = records.collect();
            let keys: Vec<String> = records.iter().map(|(key, _)| key.clone()).collect();
            let looked = match self.rule.rule(&name) {
                Some(rule) => self.look_at_all(rule, &keys, &arrivals, deadline).await,
                None => keys.into_iter().map(|key| (key, Err(unknown_rule(&name)))).collect(),
            };
            let mut records: BTreeMap<_, _> = records.into_iter().collect();
            outcomes.extend(looked.into_iter().map(|(target, result)| {
                let records = records.remove(&target).unwrap_or_default();
                let result = result.map(|looked| usize::from(looked == CheckOutcome::Written));
                TargetOutcome::new(target, records, result)
            }));
        }
    }

    /// Checks copies, given by their keys in DynamoDB JSON, and writes the correct values to copies
    /// that differ.
    pub(super) async fn look_at_all(
        &self,
        rule: &CopyRule,
        keys: &[String],
        arrivals: &HopsByCopy,
        deadline: Deadline,
    ) -> CheckOutcomes {
        let mut looked = CheckOutcomes::new();
        for some in keys.chunks(ROUND_COPIES) {
            self.look_at_some(rule, some, arrivals, deadline, &mut looked).await;
        }
        looked
    }

    async fn look_at_some(
        &self,
        rule: &CopyRule,
        keys: &[String],
        arrivals: &HopsByCopy,
        deadline: Deadline,
        looked: &mut CheckOutcomes,
    ) {
        let mut pending: BTreeMap<String, Failure> =
            keys.iter().map(|key| (key.clone(), written_by_others())).collect();
        let nonce = nonce();
        let mut attempts = self.retry.attempts();
        let mut round = pending.len();
        while !pending.is_empty() {
            let next = deadline.limit(async { Ok(attempts.next().await) }).await;
            if !matches!(next, Ok(true)) {
                break;
            }
            let mut rest = match pending.keys().nth(round).cloned() {
                Some(behind) => pending.split_off(&behind),
                None => BTreeMap::new(),
            };
            match deadline.limit(self.see(rule, pending.keys(), arrivals, nonce)).await {
                Ok(seen) => {
                    let before = looked.len();
                    let is_unread = |key: &String, _: &mut Failure| seen.unread.contains(key);
                    rest.extend(pending.extract_if(.., is_unread));
                    pending = self.settle_all(rule, pending, &seen, deadline, looked).await;
                    // The restarts are bounded by the number of copies, because each iteration
                    // completes the check of at least one copy.
                    if looked.len() > before && !rest.is_empty() {
                        attempts.restart();
                    }
                    pending.append(&mut rest);
                }
                Err(failure) => {
                    pending.append(&mut rest);
                    pending.values_mut().for_each(|last| *last = failure.clone());
                    if matches!(failure, Failure::Fatal(_)) || deadline.is_over() {
                        break;
                    }
                    // A throttled table may accept smaller requests, so the next round has half as
                    // many copies.
                    round = (round.min(pending.len()) / 2).max(ROUND_COPIES_MIN);
                }
            }
        }
        looked.extend(pending.into_iter().map(|(key, failure)| (key, Err(failure))));
    }

    /// Writes the copies that were read and differ from their expected values. Returns the copies
    /// that must be checked again.
    async fn settle_all(
        &self,
        rule: &CopyRule,
        copies: BTreeMap<String, Failure>,
        seen: &RoundReads<'_>,
        deadline: Deadline,
        looked: &mut CheckOutcomes,
    ) -> BTreeMap<String, Failure> {
        let todo: Vec<_> =
            copies.into_keys().map(|key| self.check_and_write(rule, key, seen, deadline)).collect();
        let mut again = BTreeMap::new();
        let mut todo = stream::iter(todo).buffer_unordered(WRITES_AT_ONCE);
        while let Some((key, settled)) = todo.next().await {
            match settled {
                RoundOutcome::Done(outcome) => drop(looked.insert(key, Ok(outcome))),
                RoundOutcome::Again(failure) => drop(again.insert(key, failure)),
                RoundOutcome::Failed(failure) => drop(looked.insert(key, Err(failure))),
            }
        }
        again
    }

    /// Reads copies, jobs, origins, and the copies again, in this order.
    async fn see<'a>(
        &self,
        rule: &CopyRule,
        keys: impl Iterator<Item = &String>,
        arrivals: &'a HopsByCopy,
        nonce: u64,
    ) -> Result<RoundReads<'a>, Failure> {
        let mut wanted = BTreeMap::new();
        for text in keys {
            wanted.insert(text.clone(), super::parsed(json::item_from_str(text), text)?);
        }
        // Copies are read twice: the first read finds their origins, and a check must read the copy
        // after its origin.
        let mut before = BTreeMap::new();
        let mut portions = BoundedReads::new(wanted.clone(), BATCH_GET_KEYS_MAX);
        while let Some(some) = portions.next() {
            let found = self.tables.glimpses(rule, &some).await?;
            portions.bytes += found.values().map(|glimpse| glimpse.bytes).sum::<usize>();
            before.extend(found);
        }
        let mut unread: BTreeSet<String> = portions.rest.into_keys().collect();
        let known: BTreeMap<String, (Origin, AttributeValue)> = before
            .values()
            .filter_map(|glimpse| origin_of(rule, &glimpse.copy))
            .map(|known| (known.0.key.clone(), known))
            .collect();
        let (mut jobs, mut origins) = (BTreeMap::new(), BTreeMap::new());
        // Jobs and origins are kept completely in memory, so a request reads at most
        // `LARGE_AT_ONCE` of them, even if the previous items were small.
        let mut portions = BoundedReads::new(known, LARGE_AT_ONCE);
        while let Some(some) = portions.next() {
            let (named, values) = some
                .into_iter()
                .map(|(key, (origin, value))| (origin, (key, value)))
                .unzip::<_, _, BTreeSet<_>, BTreeMap<_, _>>();
            // Each job is read before its origin.
            for (origin, item) in self.tables.jobs(&named).await? {
                portions.bytes += item.size();
                jobs.insert(origin.key, super::read_job(&item));
            }
            let found = self.tables.origins(rule, &values).await?;
            portions.bytes += found.values().map(Item::size).sum::<usize>();
            origins.extend(found);
        }
        wanted.retain(|key, _| {
            let origin = before.get(key).and_then(|seen| origin_of(rule, &seen.copy));
            let is_unread =
                origin.as_ref().is_some_and(|(o, _)| portions.rest.contains_key(&o.key));
            if is_unread {
                unread.insert(key.clone());
            }
            origin.is_some() && !is_unread
        });
        unread.extend(take_held(&mut wanted, &before));
        let after = self.tables.copies(rule, &wanted).await?;
        Ok(RoundReads { jobs, origins, before, after, nonce, arrivals, unread })
    }

    /// Checks one copy with the data of the round, and writes the copy if it differs from its
    /// expected value.
    async fn check_and_write(
        &self,
        rule: &CopyRule,
        text: String,
        seen: &RoundReads<'_>,
        deadline: Deadline,
    ) -> (String, RoundOutcome) {
        let (update, guard, is_marking) = match seen.todo(rule, &text) {
            NextAction::Nothing => return (text, RoundOutcome::Done(CheckOutcome::UpToDate)),
            NextAction::CheckAgain => return (text, RoundOutcome::Again(written_by_others())),
            NextAction::Fail(failure) => return (text, RoundOutcome::Failed(failure)),
            NextAction::Refuse(reason) => {
                warn!(rule = rule.name, copy = text, reason, "copy not written");
                return (text, RoundOutcome::Done(CheckOutcome::Refused));
            }
            NextAction::Write(update, guard) => (update, guard, false),
            NextAction::Mark(update, guard) => (update, guard, true),
        };
        let written = async {
            let key = super::parsed(json::item_from_str(&text), &text)?;
            self.tables.write(rule, &key, &update, &guard).await
        };
        let settled = match deadline.limit(written).await {
            Ok(CopyOutcome::Written) if !is_marking => RoundOutcome::Done(CheckOutcome::Written),
            Ok(CopyOutcome::Written | CopyOutcome::GuardFailed) => {
                RoundOutcome::Again(written_by_others())
            }
            Ok(CopyOutcome::Refused(reason)) => {
                warn!(rule = rule.name, copy = text, reason, "copy cannot be written");
                RoundOutcome::Done(CheckOutcome::Refused)
            }
            Err(failure @ Failure::Retry(_)) => RoundOutcome::Again(failure),
            Err(failure @ Failure::Fatal(_)) => RoundOutcome::Failed(failure),
        };
        (text, settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of 250 keys each request reads if each request returns this many bytes.
    fn portions_of(most: usize, bytes: usize) -> Vec<usize> {
        let all = (0..250).map(|number| (format!("{number:03}"), ())).collect();
        let (mut portions, mut sizes) = (BoundedReads::new(all, most), Vec::new());
        while let Some(some) = portions.next() {
            sizes.push(some.len());
            portions.bytes += some.len() * bytes;
        }
        assert_eq!(sizes.iter().sum::<usize>() + portions.rest.len(), 250);
        sizes
    }

    #[test]
    fn a_round_reads_no_more_after_large_items() {
        for (most, bytes, expected) in [
            (100, 1_000, vec![20, 100, 100, 30]),
            (100, 50_000, vec![20; 5]),
            (100, 390_000, vec![20]),
            (20, 1_000, [vec![20; 12], vec![10]].concat()),
            (20, 800_000, vec![20]),
        ] {
            assert_eq!(portions_of(most, bytes), expected, "{bytes}");
        }
    }

    #[test]
    fn a_round_holds_few_bytes_of_copies_and_one_copy_at_least() {
        for (bytes, expected) in [(1_000, 250), (390_000, 21), (9_000_000, 1)] {
            let keys = (0..250).map(|number| format!("{number:03}"));
            let glimpse = || CopyOutline { copy: Item::new(), bytes };
            let before = keys.clone().map(|key| (key, glimpse())).collect();
            let mut wanted = keys.map(|key| (key, Item::new())).collect();
            let left_out = take_held(&mut wanted, &before);
            assert_eq!((wanted.len(), left_out.len()), (expected, 250 - expected), "{bytes}");
        }
    }
}
