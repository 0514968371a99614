//! The executor of fan-out: keeps one job for each origin, works through it page by page, and looks
//! at single copies.
//!
//! What is said of an origin goes into its job first; a few copies follow at once, so small fans are
//! done with the batch. More of them, and those that are to be deleted, are left to the stream of the
//! jobs' table: that a job was begun, and how far it came, is written into the job, which is a change,
//! whose record invokes the function again. So a stream of origins does not wait for a large fan, a
//! job goes on after a crash, and no two workers write the same large page. What copies must hold is
//! the rule's business.

mod dynamodb;
#[cfg(test)]
mod in_memory;
mod looks;
mod self_check;
mod statements;
#[cfg(test)]
mod tests;
mod visit;

pub use dynamodb::DynamoDbCopies;
pub use self_check::{RepairRequest, Repaired, SelfCheckReport};

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, SystemTime};

use futures::{StreamExt, stream};
use model::{AttributeValue, Item};
use rules::fan_out::{
    CopyRule, FanOut, Job, Latest, OnDelete, Origin, OriginState, Update, mark_attribute,
};
use rules::{Folded, Found, Needs};

use crate::back_off::{Attempts, Deadline, RetryPolicy};
use crate::failure::Failure;
use crate::frame::{Executor, TargetOutcome, in_order};
use crate::tables::WriteOutcome;
use crate::tables::statements::STATEMENTS_MAX;

use visit::{Extent, Times};

/// Requests that write copies of one origin at the same time: enough to hide the latency of one.
const WRITES_AT_ONCE: usize = 8;
/// Origins or jobs of a batch that are worked on at the same time. Each of their writes may need a
/// connection of its own, and all shards have an instance: ten instances with a thousand each are
/// more than an endpoint serves.
const TARGETS_AT_ONCE: usize = 4;
/// For [`Copies::saved_every`]: what an executor that died has done since is done again, and a newer
/// change is noticed so late, or when the page that is written then is done. Each time is a write and a
/// record, whose invocation finds nothing to do.
pub const SAVED_EVERY: Duration = Duration::from_secs(1);
/// Copies that are written at once when an origin changed: what one round of requests takes. The job's
/// record, which comes meanwhile, may write them once more, which changes nothing; so a fan that has
/// more of them is left to it.
const COPIES_AT_ONCE: usize = WRITES_AT_ONCE * STATEMENTS_MAX;
/// Copies in one page of a job, or of a repair, if they have no more than 1 MB: its writes take well below
/// a second where nothing is throttled, and some seconds at the 1,000 writes per second that one partition
/// takes. Two pages are held at once, of each job.
const PAGE_COPIES: usize = 4000;
/// Of the time that is left, how much may be taken for them: the rest is for the answer.
const FIRST_PAGE_PERCENT: u32 = 90;

/// Some copies of an origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyPage {
    /// Their primary keys.
    pub keys: Vec<Item>,
    /// What names their places in the index beside their primary keys, by the same positions; a
    /// place that its primary key names has nothing here.
    pub beside: Vec<Item>,
    /// After which one the next page begins; `None` on the last page.
    pub next: Option<Item>,
}

impl CopyPage {
    /// Whether it has more copies than are written at once when an origin changed.
    fn is_large(&self) -> bool {
        self.keys.len() > COPIES_AT_ONCE
    }

    /// The place behind which the page begins that leaves out the first `count` copies of this one.
    fn place_behind(&self, count: usize) -> Option<Item> {
        let position = count.checked_sub(1)?;
        let mut place = self.keys.get(position)?.clone();
        let beside = self.beside.get(position).into_iter().flat_map(|beside| beside.iter());
        beside.for_each(|(name, value)| drop(place.insert(name.clone(), value.clone())));
        Some(place)
    }
}

/// What is kept of a copy that was read only to see where it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glimpse {
    /// Its index key and its mark.
    pub copy: Item,
    /// How many bytes it has.
    pub bytes: usize,
}

impl Glimpse {
    /// What is kept of a copy of this rule.
    #[must_use]
    pub fn of(rule: &CopyRule, mut copy: Item) -> Self {
        let bytes = copy.size();
        let mark = mark_attribute(&rule.name);
        let kept = [rule.index_key.as_str(), mark.as_str()];
        let kept = kept.iter().filter_map(|name| Some(((*name).to_owned(), copy.remove(*name)?)));
        Self { copy: kept.collect(), bytes }
    }
}

/// A part of the table of copies, and how many parts there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplePart {
    /// Its number, from 0.
    pub part: u64,
    /// How many there are.
    pub parts: u64,
}

/// When a copy still may be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyGuard {
    /// It is a copy of the mark's origin, and its mark is older or of another origin.
    Older,
    /// It is a copy of the mark's origin, and its mark is this one.
    Seen(Option<AttributeValue>),
}

impl CopyGuard {
    /// The guard of a write that a job asks for.
    #[must_use]
    pub fn of_job(update: &Update) -> Self {
        match update {
            Update::Set { .. } => Self::Older,
            Update::Delete { mark } => Self::Seen(Some(AttributeValue::from(mark.text().as_str()))),
        }
    }
}

/// What became of a guarded write of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyOutcome {
    /// It happened.
    Written,
    /// The guard did not hold; nothing was written.
    GuardFailed,
    /// DynamoDB refuses this copy as it would become, now and later, for this reason.
    Refused(String),
}

/// The tables of origins, copies and jobs. Single reads are strongly consistent, the index's are not.
pub trait CopyTables: Send + Sync {
    /// Reads a job.
    fn job(&self, origin: &Origin) -> impl Future<Output = Result<Option<Item>, Failure>> + Send;

    /// Writes a job if it still has the revision `found`; 0: there is none.
    fn put_job(
        &self,
        job: &Item,
        found: u64,
    ) -> impl Future<Output = Result<WriteOutcome, Failure>> + Send;

    /// Reads a page of the copies of an origin from the rule's index: at most so many.
    fn page(
        &self,
        rule: &CopyRule,
        origin: &AttributeValue,
        after: Option<&Item>,
        most: usize,
    ) -> impl Future<Output = Result<CopyPage, Failure>> + Send;

    /// Reads the jobs of some origins. Those that are not there are left out, here and below.
    fn jobs(
        &self,
        origins: &BTreeSet<Origin>,
    ) -> impl Future<Output = Result<BTreeMap<Origin, Item>, Failure>> + Send;

    /// Reads origins, given and answered by their key values in DynamoDB JSON.
    fn origins(
        &self,
        rule: &CopyRule,
        keys: &BTreeMap<String, AttributeValue>,
    ) -> impl Future<Output = Result<BTreeMap<String, Item>, Failure>> + Send;

    /// Reads copies, given and answered by their keys in DynamoDB JSON.
    fn copies(
        &self,
        rule: &CopyRule,
        keys: &BTreeMap<String, Item>,
    ) -> impl Future<Output = Result<BTreeMap<String, Item>, Failure>> + Send;

    /// The same, and keeps no more of them than where they are from.
    fn glimpses(
        &self,
        rule: &CopyRule,
        keys: &BTreeMap<String, Item>,
    ) -> impl Future<Output = Result<BTreeMap<String, Glimpse>, Failure>> + Send;

    /// Writes a copy if the guard holds.
    fn write(
        &self,
        rule: &CopyRule,
        key: &Item,
        update: &Update,
        guard: &CopyGuard,
    ) -> impl Future<Output = Result<CopyOutcome, Failure>> + Send;

    /// Writes up to 25 copies, each if [`CopyGuard::of_job`] holds. What became of each, in their
    /// order; `None` for one that must be written by itself to be sure.
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

    /// The part of the rule's target table that a sample looks at, another one with each `draw`.
    fn part(
        &self,
        rule: &CopyRule,
        draw: u64,
    ) -> impl Future<Output = Result<SamplePart, Failure>> + Send;

    /// Reads a page of the keys of the copies in a part: at most so many.
    fn sample(
        &self,
        rule: &CopyRule,
        part: SamplePart,
        after: Option<&Item>,
        most: usize,
    ) -> impl Future<Output = Result<CopyPage, Failure>> + Send;
}

/// The copies of some rules.
#[derive(Clone, Debug)]
pub struct Copies<T> {
    /// The tables.
    pub tables: T,
    /// What is copied where.
    pub rule: FanOut,
    /// For what others hold up.
    pub retry: RetryPolicy,
    /// How long a job is worked on before it is written down how far it came.
    pub saved_every: Duration,
}

/// Attempts at one piece of work, and why the last one failed.
struct Trying {
    attempts: Attempts,
    failure: String,
}

impl Trying {
    async fn next(&mut self) -> bool {
        self.attempts.next().await
    }

    /// What was done, or `None` when another attempt may help.
    fn note<R>(&mut self, outcome: Result<Option<R>, Failure>) -> Result<Option<R>, Failure> {
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

/// A number that nobody else has, and whoever asks later gets a greater one: the microseconds since
/// 1970 and 11 random bits. Its highest bit is set, so it is greater than what looks count up to.
fn nonce() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let micros = u64::try_from(since.as_micros()).unwrap_or(0);
    1 << 63 | micros << 11 | RandomState::new().hash_one(0_u8) >> 53
}

fn read_job(item: &Item) -> Result<Job, Failure> {
    // Somebody must look at it; a retry leaves it to be found in the failures bucket.
    Job::from_item(item).map_err(|damaged| Failure::Retry(damaged.to_string()))
}

fn unknown_rule(name: &str) -> Failure {
    // A rule that was removed since, or one that is deployed just now: a version that knows it may be next.
    Failure::Retry(format!("there is no rule `{name}`; was it removed while it had work to do?"))
}

fn parsed<T, E: std::fmt::Display>(parsed: Result<T, E>, text: &str) -> Result<T, Failure> {
    parsed.map_err(|error| Failure::Retry(format!("`{text}` is not a key: {error}")))
}

impl<T: CopyTables> Copies<T> {
    fn copy_rule(&self, name: &str) -> Result<&CopyRule, Failure> {
        self.rule.rule(name).ok_or_else(|| unknown_rule(name))
    }

    fn trying(&self, what: &str) -> Trying {
        Trying {
            attempts: self.retry.attempts(),
            failure: format!("others write this {what} all the time"),
        }
    }

    /// Makes the origin's job know what is said of it, and visits the first copies. Answers whether
    /// the job did not know it.
    async fn begin(
        &self,
        origin: &Origin,
        latest: &Latest,
        deadline: Deadline,
    ) -> Result<usize, Failure> {
        let Some(state) = &latest.0 else { return Ok(0) };
        let rule = self.copy_rule(&origin.rule)?;
        let mut trying = self.trying("job");
        let (applied, job) = loop {
            if !trying.next().await {
                return Err(trying.give_up());
            }
            if let Some(begun) = trying.note(self.try_to_begin(origin, state).await)? {
                break begun;
            }
        };
        // What is deleted is marked first, each worker with a mark of its own: two would undo each other's.
        let is_deleting = rule.on_delete == OnDelete::Cascade && state.deleted;
        if let Some(job) = job.filter(|_| !is_deleting) {
            let work = self.work(rule, origin, job, Extent::Few, Times::until(deadline));
            match deadline.part_way(FIRST_PAGE_PERCENT).limit(work).await {
                // The job's own record goes on with it; the stream of the origins does not wait.
                Ok(()) | Err(Failure::Retry(_)) => {}
                Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
            }
        }
        Ok(applied)
    }

    /// The job that knows the state, if there is something to do, and whether it did not know it.
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
            // The same again goes on where it stopped; what is newer has its own way.
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

    /// Goes on with a job, if it is still at a revision, for half of the time that is left.
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
            if let Some(found) = trying.note(self.tables.job(origin).await.map(Some))? {
                break found;
            }
        };
        let Some(job) = found.as_ref().map(read_job).transpose()? else { return Ok(0) };
        if job.revision != revision || job.done {
            // Every write of the job has a record of its own, so somebody else goes on.
            return Ok(0);
        }
        self.work(rule, origin, job, Extent::All, Times::until(deadline)).await?;
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
    async fn load(&self, _needs: Needs) -> Result<Found, Failure> {
        Ok(Found::default())
    }

    async fn apply(
        &self,
        mut folded: Folded,
        _found: &Found,
        deadline: Deadline,
    ) -> Vec<TargetOutcome> {
        let origins = std::mem::take(&mut folded.origins);
        let looks = std::mem::take(&mut folded.looks);
        let jobs = std::mem::take(&mut folded.jobs);
        let mut outcomes = TargetOutcome::unknown(folded);
        let origins = in_order(origins).into_iter().map(async |(origin, joined)| {
            let result = deadline.limit(self.begin(&origin, &joined.value, deadline)).await;
            TargetOutcome::new(origin.job_key(), joined.records, result)
        });
        all(origins.collect(), &mut outcomes).await;
        self.look_at_named(looks, deadline, &mut outcomes).await;
        // Jobs last: they take what time is left.
        let jobs = in_order(jobs).into_iter().map(async |(origin, joined)| {
            let result = deadline.limit(self.go_on(&origin, joined.value.0, deadline)).await;
            TargetOutcome::new(origin.job_key(), joined.records, result)
        });
        all(jobs.collect(), &mut outcomes).await;
        outcomes
    }
}
