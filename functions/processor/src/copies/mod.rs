//! The executor of fan-out: keeps one job per origin, processes it page by page, and checks single
//! copies.
//!
//! A change of an origin is first written to the origin's job. If the origin has few copies, the
//! batch writes them immediately. Large fan-outs, and deletions, are left to the stream of the jobs
//! table: starting a job and saving its progress change the job, and the record of that change
//! invokes the function again. So the stream of origins does not wait for a large fan-out, a job
//! resumes after a crash, and no two workers write the same large page. The rules determine the
//! expected values of copies.

mod checks;
mod dynamodb;
#[cfg(test)]
mod in_memory;
mod self_check;
mod statements;
#[cfg(test)]
mod tests;
mod visit;

pub use dynamodb::DynamoDbCopies;
pub use self_check::{RepairRequest, Repaired, SelfCheckReport};

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime};

use futures::{StreamExt, stream};
use model::{AttributeValue, Item};
use rules::fan_out::{
    CopyRule, FanOut, Folded, Job, LatestOriginState, OnDelete, Origin, OriginState, Update,
    mark_attribute,
};
use rules::{Found, Needs};

use crate::back_off::{Attempts, Deadline, RetryPolicy};
use crate::failure::Failure;
use crate::frame::{Executor, TargetOutcome, in_order};
use crate::tables::WriteOutcome;
use crate::tables::statements::STATEMENTS_MAX;

use visit::{Deadlines, JobExtent};

/// Maximum number of concurrent requests that write copies of one origin: enough to hide the
/// latency of a request.
const WRITES_AT_ONCE: usize = 8;
/// Maximum number of origins or jobs of a batch that are processed concurrently. Each write may
/// need its own connection, and every shard has an instance of the function. Ten instances with a
/// thousand connections each would be too many for an endpoint.
const TARGETS_AT_ONCE: usize = 4;
/// Default of [`Copies::saved_every`]. After a crash, the work since the last save is repeated. A
/// worker notices a later change of its origin only at the next save. Each save costs a write, a
/// stream record, and an invocation that has nothing to do.
pub const SAVED_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of copies that the batch writes immediately when an origin changed: one round of
/// requests. The record of the job arrives meanwhile and may cause the same writes again, which are
/// idempotent. A larger fan-out is left to the record of the job.
const COPIES_AT_ONCE: usize = WRITES_AT_ONCE * STATEMENTS_MAX;
/// Number of copies in one page of a job or a repair; a page has at most 1 MB. Writing a page takes
/// well below a second without throttling, and some seconds at the 1,000 writes per second of one
/// partition. Each job has two pages in memory.
const PAGE_COPIES: usize = 4000;
/// Percentage of the remaining time that the batch may spend on the page that it writes
/// immediately. The rest is for the response.
const FIRST_PAGE_PERCENT: u32 = 90;

/// A page of an origin's copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyPage {
    /// The primary keys of the copies.
    pub keys: Vec<Item>,
    /// For each key in `keys`, the index key attributes that the primary key lacks; empty if the
    /// primary key has all of them.
    pub beside: Vec<Item>,
    /// The key after which the next page begins; `None` on the last page.
    pub next: Option<Item>,
}

impl CopyPage {
    /// Returns whether the page has more copies than a batch writes immediately.
    fn is_large(&self) -> bool {
        self.keys.len() > COPIES_AT_ONCE
    }

    /// Returns the exclusive start key of the page that begins after the first `count` copies of
    /// this page; `None` if `count` is 0.
    fn place_behind(&self, count: usize) -> Option<Item> {
        let position = count.checked_sub(1)?;
        let mut place = self.keys.get(position)?.clone();
        let beside = self.beside.get(position).into_iter().flat_map(|beside| beside.iter());
        beside.for_each(|(name, value)| drop(place.insert(name.clone(), value.clone())));
        Some(place)
    }
}

/// The data that a round keeps about a copy that it read only to find the copy's origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOutline {
    /// The index key and the mark of the copy.
    pub copy: Item,
    /// The size of the copy in bytes.
    pub bytes: usize,
}

impl CopyOutline {
    /// Returns the data to keep of a copy of this rule.
    #[must_use]
    pub fn of(rule: &CopyRule, mut copy: Item) -> Self {
        let bytes = copy.size();
        let mark = mark_attribute(&rule.name);
        let kept = [rule.index_key.as_str(), mark.as_str()];
        let kept = kept.iter().filter_map(|name| Some(((*name).to_owned(), copy.remove(*name)?)));
        Self { copy: kept.collect(), bytes }
    }
}

/// The part of a rule's target table that a sample reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplePart {
    /// The number of this part, from 0.
    pub part: u64,
    /// The number of parts.
    pub parts: u64,
}

/// The condition of a write of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyGuard {
    /// The item is a copy of the mark's origin, and the item's current mark has an earlier stamp or
    /// belongs to another origin.
    Older,
    /// The item is a copy of the mark's origin, and the item's current mark is unchanged since it
    /// was read.
    MarkUnchanged(Option<AttributeValue>),
}

impl CopyGuard {
    /// Returns the condition for a write that belongs to a job.
    #[must_use]
    pub fn of_job(update: &Update) -> Self {
        match update {
            Update::Set { .. } => Self::Older,
            Update::Delete { mark } => {
                Self::MarkUnchanged(Some(AttributeValue::from(mark.text().as_str())))
            }
        }
    }
}

/// The outcome of a conditional write of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyOutcome {
    /// The copy was written.
    Written,
    /// The condition was false; nothing was written.
    GuardFailed,
    /// DynamoDB permanently refuses the new item, for this reason.
    Refused(String),
}

/// The tables of origins, copies and jobs. Reads of items by their keys are strongly consistent;
/// reads of the index are not.
pub trait CopyTables: Send + Sync {
    /// Reads a job.
    fn job(&self, origin: &Origin) -> impl Future<Output = Result<Option<Item>, Failure>> + Send;

    /// Writes a job if it still has the revision `found`; 0 means that the job does not exist.
    fn put_job(
        &self,
        job: &Item,
        found: u64,
    ) -> impl Future<Output = Result<WriteOutcome, Failure>> + Send;

    /// Reads a page of at most `most` copies of an origin from the rule's index.
    fn page(
        &self,
        rule: &CopyRule,
        origin: &AttributeValue,
        after: Option<&Item>,
        most: usize,
    ) -> impl Future<Output = Result<CopyPage, Failure>> + Send;

    /// Reads the jobs of several origins. The result has no entry for a missing job. Likewise, the
    /// results of `origins`, `copies` and `glimpses` have no entry for a missing item.
    fn jobs(
        &self,
        origins: &BTreeSet<Origin>,
    ) -> impl Future<Output = Result<BTreeMap<Origin, Item>, Failure>> + Send;

    /// Reads origins. Arguments and results are identified by the origin's key value in DynamoDB
    /// JSON.
    fn origins(
        &self,
        rule: &CopyRule,
        keys: &BTreeMap<String, AttributeValue>,
    ) -> impl Future<Output = Result<BTreeMap<String, Item>, Failure>> + Send;

    /// Reads copies. Arguments and results are identified by the copy's key in DynamoDB JSON.
    fn copies(
        &self,
        rule: &CopyRule,
        keys: &BTreeMap<String, Item>,
    ) -> impl Future<Output = Result<BTreeMap<String, Item>, Failure>> + Send;

    /// Reads copies as `copies` does, but keeps only their origins and sizes.
    fn glimpses(
        &self,
        rule: &CopyRule,
        keys: &BTreeMap<String, Item>,
    ) -> impl Future<Output = Result<BTreeMap<String, CopyOutline>, Failure>> + Send;

    /// Writes a copy if the condition of the guard is true.
    fn write(
        &self,
        rule: &CopyRule,
        key: &Item,
        update: &Update,
        guard: &CopyGuard,
    ) -> impl Future<Output = Result<CopyOutcome, Failure>> + Send;

    /// Writes up to 25 copies, each with the condition [`CopyGuard::of_job`]. Returns the outcomes
    /// in the order of the copies; `None` for a copy that needs a separate write.
    fn write_some(
        &self,
        rule: &CopyRule,
        keys: &[Item],
        update: &Update,
    ) -> impl Future<Output = Vec<Option<CopyOutcome>>> + Send;

    /// Reads a page of the keys of all items of the rule's target table.
    fn all(
        &self,
        rule: &CopyRule,
        after: Option<&Item>,
    ) -> impl Future<Output = Result<CopyPage, Failure>> + Send;

    /// Returns the part of the rule's target table that a sample reads. `draw` selects the part.
    fn part(
        &self,
        rule: &CopyRule,
        draw: u64,
    ) -> impl Future<Output = Result<SamplePart, Failure>> + Send;

    /// Reads a page of at most `most` keys of the copies in a part.
    fn sample(
        &self,
        rule: &CopyRule,
        part: SamplePart,
        after: Option<&Item>,
        most: usize,
    ) -> impl Future<Output = Result<CopyPage, Failure>> + Send;
}

/// The executor of fan-out, for all rules of a deployment.
#[derive(Clone, Debug)]
pub struct Copies<T> {
    /// The tables.
    pub tables: T,
    /// The rules: which attributes are copied to which table.
    pub rule: FanOut,
    /// Retry policy for conflicts with other writers.
    pub retry: RetryPolicy,
    /// Time between two saves of a job's progress.
    pub saved_every: Duration,
}

/// Attempts at one operation, and the reason why the last attempt failed.
struct OperationAttempts {
    attempts: Attempts,
    failure: String,
}

impl OperationAttempts {
    async fn next(&mut self) -> bool {
        self.attempts.next().await
    }

    /// Counts an attempt. Returns the result of the attempt, or `None` if the operation should be
    /// retried.
    fn record_attempt<R>(
        &mut self,
        outcome: Result<Option<R>, Failure>,
    ) -> Result<Option<R>, Failure> {
        match outcome {
            Err(Failure::Retry(reason)) => {
                self.failure = reason;
                Ok(None)
            }
            other => other,
        }
    }

    fn give_up(self) -> Failure {
        Failure::Retry(self.failure)
    }
}

/// Returns a unique number, greater than every earlier nonce: the microseconds since 1970 and 11
/// random bits. The highest bit is set, so the number is also greater than any revision that checks
/// increment.
fn nonce() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let micros = u64::try_from(since.as_micros()).unwrap_or(0);
    1 << 63 | micros << 11 | RandomState::new().hash_one(0_u8) >> 53
}

fn read_job(item: &Item) -> Result<Job, Failure> {
    // An operator must repair the job. The retries end in the failures bucket, where the operator
    // finds the records.
    Job::from_item(item).map_err(|damaged| Failure::Retry(damaged.to_string()))
}

fn unknown_rule(name: &str) -> Failure {
    // The rule was removed, or is being deployed. The next attempt may run in a version that has
    // the rule.
    Failure::Retry(format!(
        "there is no rule `{name}`, but a record or a request needs it; deploy the rule again if it was removed before its jobs were complete"
    ))
}

fn parsed<T, E: std::fmt::Display>(parsed: Result<T, E>, text: &str) -> Result<T, Failure> {
    parsed.map_err(|error| Failure::Retry(format!("`{text}` is not a key: {error}")))
}

impl<T: CopyTables> Copies<T> {
    fn copy_rule(&self, name: &str) -> Result<&CopyRule, Failure> {
        self.rule.rule(name).ok_or_else(|| unknown_rule(name))
    }

    fn trying(&self, what: &str) -> OperationAttempts {
        OperationAttempts {
            attempts: self.retry.attempts(),
            failure: format!("other writers keep changing this {what}"),
        }
    }

    /// Writes a change to the origin's job, and writes the copies if there are at most
    /// [`COPIES_AT_ONCE`]. Returns the number of changes that the job did not contain yet.
    async fn begin(
        &self,
        origin: &Origin,
        latest: &LatestOriginState,
        deadline: Deadline,
    ) -> Result<usize, Failure> {
        let Some(state) = &latest.0 else { return Ok(0) };
        let rule = self.copy_rule(&origin.rule)?;
        let mut trying = self.trying("job");
        let (applied, job) = loop {
            if !trying.next().await {
                return Err(trying.give_up());
            }
            if let Some(begun) = trying.record_attempt(self.try_to_begin(origin, state).await)? {
                break begun;
            }
        };
        // Copies to delete are left to the job's record. Before a worker deletes copies, it writes
        // its own mark to them, so two workers would overwrite each other's marks.
        let is_deleting = rule.on_delete == OnDelete::Cascade && state.deleted;
        if let Some(job) = job.filter(|_| !is_deleting) {
            let work = self.work(rule, origin, job, JobExtent::OnePage, Deadlines::until(deadline));
            match deadline.part_way(FIRST_PAGE_PERCENT).limit(work).await {
                // The record of the job continues the work, so the stream of the origins does not
                // wait.
                Ok(()) | Err(Failure::Retry(_)) => {}
                Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
            }
        }
        Ok(applied)
    }

    /// Writes the state of an origin to its job. Returns whether the job did not contain the state
    /// yet, and the job if copies must be written.
    async fn try_to_begin(
        &self,
        origin: &Origin,
        state: &OriginState,
    ) -> Result<Option<(usize, Option<Job>)>, Failure> {
        let found = self.tables.job(origin).await?;
        let found = found.as_ref().map(read_job).transpose()?;
        if let Some(job) = &found
            && job.state.stamp >= state.stamp
        {
            // If the job already has this state, the job is resumed. If the job has a newer state,
            // this state is obsolete, and there is nothing to do.
            let is_same = job.state.stamp == state.stamp;
            return Ok(Some((0, is_same.then(|| job.clone()))));
        }
        let job = Job::begin(state.clone(), found.as_ref());
        let revision = found.map_or(0, |job| job.revision);
        Ok(match self.tables.put_job(&job.to_item(origin), revision).await? {
            WriteOutcome::Written => Some((1, Some(job))),
            WriteOutcome::GuardFailed => None,
        })
    }

    /// Continues a job for half of the remaining time, if the job still has this revision.
    async fn go_on(
        &self,
        origin: &Origin,
        revision: u64,
        deadline: Deadline,
    ) -> Result<usize, Failure> {
        let rule = self.copy_rule(&origin.rule)?;
        let mut trying = self.trying("job");
        let found = loop {
            if !trying.next().await {
                return Err(trying.give_up());
            }
            if let Some(found) = trying.record_attempt(self.tables.job(origin).await.map(Some))? {
                break found;
            }
        };
        let Some(job) = found.as_ref().map(read_job).transpose()? else { return Ok(0) };
        if job.revision != revision || job.done {
            // Every write of the job has its own record, so another worker continues the job.
            return Ok(0);
        }
        self.work(rule, origin, job, JobExtent::AllPages, Deadlines::until(deadline)).await?;
        Ok(1)
    }
}

async fn all<F: Future<Output = TargetOutcome>>(work: Vec<F>, outcomes: &mut Vec<TargetOutcome>) {
    let mut work = stream::iter(work).buffer_unordered(TARGETS_AT_ONCE);
    while let Some(outcome) = work.next().await {
        outcomes.push(outcome);
    }
}

impl<T: CopyTables> Executor for Copies<T> {
    type Rule = FanOut;

    async fn load(&self, _needs: Needs) -> Result<Found<Infallible>, Failure> {
        Ok(Found::default())
    }

    async fn apply(
        &self,
        Folded { origins, jobs, copy_checks }: Folded,
        _found: &Found<Infallible>,
        deadline: Deadline,
    ) -> Vec<TargetOutcome> {
        let mut outcomes = Vec::new();
        let origins = in_order(origins).into_iter().map(async |(origin, joined)| {
            let result = deadline.limit(self.begin(&origin, &joined.value, deadline)).await;
            TargetOutcome::new(origin.job_key(), joined.records, result)
        });
        all(origins.collect(), &mut outcomes).await;
        self.look_at_named(copy_checks, deadline, &mut outcomes).await;
        // Jobs come last, because they use all of the remaining time.
        let jobs = in_order(jobs).into_iter().map(async |(origin, joined)| {
            let result = deadline.limit(self.go_on(&origin, joined.value.0, deadline)).await;
            TargetOutcome::new(origin.job_key(), joined.records, result)
        });
        all(jobs.collect(), &mut outcomes).await;
        outcomes
    }
}
