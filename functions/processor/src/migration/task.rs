//! Workers: process a task, which is one segment of one table, page by page for a slice of time.
//!
//! A worker leases the task, processes it, and saves its progress. The save creates a record in the
//! control table's stream, which invokes the next worker. If a worker crashes, its record is
//! redelivered, and the slice is repeated from the last saved progress; effects are idempotent. Two
//! workers on one task are safe too: the revision lets only one of them save, and a worker that
//! cannot renew its lease ends the slice without saving.

use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::scan::ScanOutput;
use control::{Entry as _, Task, Work};
use model::Item;
use model::json::{item_from_str, item_to_string};
use rules::migration::{Effect, Migration};
use tracing::{info, warn};

use super::PLAN_TABLE;
use super::control_table::Control;
use super::lease::{held_by_another, now_ms, while_held};
use super::pace::Pace;
use super::retry::NoProgress;
use super::tally::Tally;
use super::targets::{Targets, WRITES_AT_ONCE};
use super::{check, first_writes, in_place, touch, window};
use crate::back_off::{Deadline, RetryPolicy};
use crate::failure::Failure;
use crate::tables::attribute_value::to_sdk_item;
use crate::tables::direct::{UnreadPage, answered, unreadable};
use crate::tables::dynamodb::request_failure;

/// Time between two saves of a worker's progress. If a worker is killed, the work of at most this
/// time is repeated. Operators see the progress at this interval.
pub(super) const SLICE: Duration = Duration::from_secs(2);
/// Minimum wait before a task that cannot be processed is checked again. Without a wait, the record
/// would be redelivered thousands of times per hour.
const WAIT_MIN: Duration = Duration::from_secs(1);
/// Maximum wait before a task is checked again. A worker notices within this time that a migration
/// may continue, or was paused or stopped.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Maximum number of items of a scan page: some hundred writes between two checks of the time.
pub(super) const PAGE_ITEMS: u32 = 500;
/// The number of concurrent writes for which a page has [`PAGE_ITEMS`] items. With fewer concurrent
/// writes, a page has proportionally fewer items.
const PAGE_WIDTH: u32 = 64;
/// The retry policy for reading one page.
const PAGE_RETRY: RetryPolicy = RetryPolicy::CONTENDED;

/// The context of a worker.
pub(crate) struct Worker<'w> {
    pub(crate) control: &'w Control,
    pub(crate) migration: Arc<Migration>,
    /// The direction opposite to the task's, if the plan has a reverse direction.
    pub(crate) inverse: Option<Arc<Migration>>,
    /// True if the migration was aborted. A touch then only removes marks.
    pub(crate) clears: bool,
    pub(crate) targets: Targets,
}

/// The reason why a task must be checked again later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecheckReason {
    pub(crate) reason: String,
    /// The longest time for which the task is blocked, if it is known.
    pub(super) at_most: Option<Duration>,
}

impl From<&str> for RecheckReason {
    fn from(reason: &str) -> Self {
        Self { reason: reason.to_owned(), at_most: None }
    }
}

impl RecheckReason {
    /// Returns whether the task waits only for another worker's lease.
    pub(crate) fn is_of_a_lease(&self) -> bool {
        self.at_most.is_some()
    }

    /// Returns how long to wait within this invocation before the task is checked again, after
    /// `again` earlier waits. The waits become longer, up to a maximum. Returns `None` if the
    /// remaining time is too short for a wait and a slice; the record must then be redelivered. A
    /// wait and a slice together fit into the shortest timeout that a plan may have.
    pub(crate) fn wait(&self, again: u32, remaining: Duration) -> Option<Duration> {
        let spare = remaining.saturating_sub(SLICE);
        (spare >= WAIT_MIN).then(|| self.usual(again).min(spare).min(remaining / 2))
    }

    /// Returns how long to wait before the task is written to create a new record, if this
    /// invocation cannot process the task. Without a wait, each record would cause the next record
    /// immediately. The wait is short if little time remains, because the attempt itself has then
    /// taken long enough.
    pub(crate) fn wait_for_record(&self, again: u32, remaining: Duration) -> Duration {
        self.usual(again).min(remaining / 2)
    }

    fn usual(&self, again: u32) -> Duration {
        let usual = WAIT_MIN.saturating_mul(1 << again.min(8)).min(WAIT_MAX);
        self.at_most.map_or(usual, |most| usual.min(most)).max(WAIT_MIN)
    }
}

/// Marks the task of a record as superseded.
///
/// # Errors
/// When the control table cannot be read or written.
pub(super) async fn supersede(control: &Control, offered: &Task) -> Result<(), Failure> {
    if let Some(mut task) = control.reread(offered).await?.filter(|task| !task.done) {
        info!(
            function = "migration",
            migration = task.migration,
            entry = task.name(),
            "task superseded"
        );
        task.supersede();
        // If another writer changes the task meanwhile, that write creates a new record.
        control.replace(task).await?;
    }
    Ok(())
}

/// Marks a task as superseded unless another worker leases it. That worker may be repairing, and a
/// switch waits for its repair. If another worker leases the task, returns the reason to check the
/// task again.
///
/// # Errors
/// When the control table cannot be read or written.
pub(super) async fn supersede_when_free(
    control: &Control,
    offered: &Task,
    name: &str,
) -> Result<Option<RecheckReason>, Failure> {
    let found = control.reread(offered).await?;
    let later = found.and_then(|task| held_by_another(&task, name, now_ms()));
    if later.is_none() {
        supersede(control, offered).await?;
    }
    Ok(later)
}

/// The result of a slice of work.
struct Slice {
    /// The key after which the next slice continues.
    cursor: Option<Item>,
    done: bool,
    /// Upper bound of the items of the next page.
    most: u32,
    tally: Tally,
    read: u64,
}

/// Returns the task for the next worker: with the progress of a slice, and without a lease.
fn given_back(mut task: Task, Slice { cursor, done, most, tally, .. }: &Slice) -> Task {
    task.succeed((*most < PAGE_ITEMS).then_some(*most));
    task.cursor = cursor.as_ref().map(item_to_string);
    task.done = *done;
    tally.add_to(&mut task);
    task
}

/// Returns the key after which a task's scan continues.
fn cursor_of(task: &Task) -> Result<Option<Item>, Failure> {
    task.cursor.as_deref().map(item_from_str).transpose().map_err(|error| {
        Failure::Fatal(format!("the cursor of `{}` is damaged: {error}", task.name()))
    })
}

/// Returns the upper bound of the next page, after a page with the bound `most`. After a failure,
/// the bound is half of the page's items. After a page that fits into a slice, the bound doubles.
/// After a page that takes longer, the bound is unchanged, because a larger page might take longer
/// than an invocation may.
fn page_after(most: u32, items: usize, took: Option<Duration>) -> u32 {
    match took {
        None => u32::try_from(items / 2).unwrap_or(most).clamp(1, most.max(1)),
        Some(took) if took < SLICE => most.saturating_mul(2).min(PAGE_ITEMS),
        Some(_) => most,
    }
}

fn log_slice(task: &Task, read: u64, (done, written): (bool, bool), took: Duration) {
    info!(
        function = "migration",
        migration = task.migration,
        work = ?task.work,
        table = task.table,
        segment = task.segment,
        read,
        done,
        written,
        duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "task"
    );
}

impl Worker<'_> {
    /// Processes a leased task for a slice of time, and saves the progress. Renews the lease
    /// meanwhile, because a page may take as long as the invocation.
    ///
    /// # Errors
    /// When a page could not be read or processed, or the lease could not be renewed.
    pub(crate) async fn work(
        &self,
        task: &Task,
        pace: &Pace,
        deadline: Deadline,
    ) -> Result<(), NoProgress> {
        let started = Instant::now();
        let slice = Box::pin(self.slice(task, pace, deadline));
        let Some((slice, task)) = while_held(self.control, task, slice).await? else {
            let (migration, entry) = (&task.migration, task.name());
            info!(function = "migration", migration, entry, "another worker has leased the task");
            return Ok(());
        };
        let slice = slice?;
        let written = self.control.replace(given_back(task.clone(), &slice)).await?.is_some();
        log_slice(&task, slice.read, (slice.done, written), started.elapsed());
        Ok(())
    }

    /// Processes a task for a slice of time.
    async fn slice(
        &self,
        task: &Task,
        pace: &Pace,
        deadline: Deadline,
    ) -> Result<Slice, NoProgress> {
        let started = Instant::now();
        let mut tally = Tally::default();
        let begin = cursor_of(task)?;
        let mut cursor = begin.clone();
        let (mut read, mut most) = (0u64, task.page.unwrap_or(PAGE_ITEMS));
        let mut ahead = None;
        let done = loop {
            let throttled = self.control.throttling.attempts();
            let page = match ahead.take() {
                Some(page) => Ok(page),
                None => deadline.limit(self.page(task, cursor.as_ref(), pace, most)).await,
            };
            let page = match page {
                Ok(page) => page,
                Err(failure) if cursor == begin => return Err(failure.into()),
                Err(failure) => {
                    // The slice ends, and the progress up to the previous page is saved.
                    info!(function = "migration", reason = %failure, "page postponed");
                    break false;
                }
            };
            read += page.len() as u64;
            let begun = Instant::now();
            // If the page fails, it is repeated, so its counts are dropped.
            let mut of_page = Tally::default();
            let work = deadline.limit(self.do_page(task, &page, &mut of_page, deadline));
            let after = page.next.as_ref().filter(|_| started.elapsed() < SLICE);
            let ahead_of_it = self.ahead(task, after, (pace, most), deadline);
            let (done, following) = tokio::join!(work, ahead_of_it);
            ahead = following;
            self.control.throttling.adapt(throttled);
            most = page_after(most, page.len(), done.is_ok().then(|| begun.elapsed()));
            if let Err(failure) = done {
                if cursor == begin {
                    return Err(NoProgress { failure, page: Some(most) });
                }
                // The slice ends, and the progress up to the previous page is saved.
                info!(function = "migration", reason = %failure, "page postponed");
                read -= page.len() as u64;
                break false;
            }
            tally.join(of_page);
            tally.count("read", page.len());
            cursor = page.next;
            // The wait is necessary after the last page too, because the worker may begin the next
            // segment immediately.
            let wait = pace.wait(read, started.elapsed()).min(deadline.remaining());
            tokio::time::sleep(wait).await;
            if cursor.is_none() {
                break true;
            }
            // If the next page has been read ahead, it is processed too, because its read has
            // already been paid for.
            if (started.elapsed() >= SLICE && ahead.is_none()) || deadline.is_over() {
                break false;
            }
        };
        Ok(Slice { cursor, done, most, tally, read })
    }

    async fn do_page(
        &self,
        task: &Task,
        page: &UnreadPage,
        tally: &mut Tally,
        deadline: Deadline,
    ) -> Result<(), Failure> {
        let all = || {
            let items = page.items().collect::<Option<Vec<Item>>>();
            items.ok_or_else(|| unreadable("Scan", &task.table))
        };
        match task.work {
            Work::Backfill => self.backfill(task, page, tally, deadline).await,
            Work::Touch => touch::touch(self, task, &all()?, tally).await,
            Work::CheckSource if self.migration.kind().is_in_place() => {
                in_place::check(self, task, &all()?, tally, deadline).await
            }
            Work::CheckSource => check::sources(self, task, &all()?, tally, deadline).await,
            Work::CheckTarget => check::targets(self, task, &all()?, tally, deadline).await,
            Work::Unmark => check::unmark(self, task, &all()?, tally).await,
        }
    }

    async fn backfill(
        &self,
        task: &Task,
        page: &UnreadPage,
        tally: &mut Tally,
        deadline: Deadline,
    ) -> Result<(), Failure> {
        let at_once = self.control.throttling.concurrency();
        let (mut stated, mut is_unreadable) = (0, false);
        let items = page.items().map_while(|item| {
            is_unreadable |= item.is_none();
            item
        });
        let said = items.enumerate().flat_map(|(position, item)| {
            let said = self.state(task, &item, tally);
            stated += said.len();
            said.into_iter().map(move |effect| (position, effect))
        });
        let (first, left) = first_writes::write(&self.targets, said, at_once, deadline).await;
        if is_unreadable {
            return Err(unreadable("Scan", &task.table));
        }
        tally.count("stated", stated);
        tally.count("written", first);
        for outcome in self.targets.join_all(left, window::WorkKind::Page, deadline).await {
            if outcome.result? > 0 {
                tally.count("written", 1);
            }
        }
        Ok(())
    }

    /// Returns the effects of an item; an empty list if the item cannot be transformed.
    fn state(&self, task: &Task, item: &Item, tally: &mut Tally) -> Vec<Effect> {
        self.migration.backfill(&task.table, item).unwrap_or_else(|refusal| {
            let key = self.migration.source_item(&task.table, item);
            let key = key.map_or_else(|error| error.to_string(), |key| key.to_string());
            warn!(item = key, reason = %refusal, "item cannot be transformed");
            tally.sample("refused", &format!("{key}: {refusal}"));
            Vec::new()
        })
    }

    /// Reads a page of the task's segment with strong consistency, so every write that was
    /// acknowledged before the read is visible.
    async fn page(
        &self,
        task: &Task,
        after: Option<&Item>,
        pace: &Pace,
        most: u32,
    ) -> Result<UnreadPage, Failure> {
        // With fewer concurrent writes, a slice writes fewer items. A page is always processed as a
        // whole, so the page must be smaller.
        let width = self.control.throttling.concurrency().min(WRITES_AT_ONCE);
        let items = PAGE_ITEMS * u32::try_from(width).unwrap_or(1) / PAGE_WIDTH;
        let items = pace.page_items(items.min(most));
        let mut attempts = PAGE_RETRY.attempts();
        let mut failure = String::new();
        while attempts.next().await {
            match page(&self.control.client, task, after, items).await {
                Err(Failure::Retry(reason)) => failure = reason,
                other => return other,
            }
        }
        Err(Failure::Retry(failure))
    }

    /// Reads the next page of a backfill while the current page is written. If an item of that page
    /// changes meanwhile, the stream delivers the change. A check does not read ahead, because it
    /// must compare what it has just read. A failure of this read is ignored; the regular read of
    /// the page reports it.
    async fn ahead(
        &self,
        task: &Task,
        next: Option<&Item>,
        (pace, most): (&Pace, u32),
        deadline: Deadline,
    ) -> Option<UnreadPage> {
        // A task with a pace waits between pages, so reading ahead would save no time.
        let after = next.filter(|_| task.work == Work::Backfill && pace.0.is_none())?;
        deadline.limit(self.page(task, Some(after), pace, most)).await.ok()
    }

    /// Returns the direction opposite to the task's, for checks of the reverse direction.
    pub(crate) fn inverse(&self) -> Option<&Migration> {
        self.inverse.as_deref()
    }
}

async fn page(
    client: &Client,
    task: &Task,
    after: Option<&Item>,
    items: u32,
) -> Result<UnreadPage, Failure> {
    // The SDK uses signed numbers.
    let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    let (direct, answer) = answered(|| ScanOutput::builder().build());
    client
        .scan()
        .table_name(&task.table)
        .consistent_read(true)
        .limit(number(items.max(1)))
        .segment(number(task.segment))
        .total_segments(number(task.segments))
        .set_exclusive_start_key(after.map(to_sdk_item))
        .customize()
        .interceptor(direct)
        .send()
        .await
        .map_err(|error| request_failure("Scan", &task.table, PLAN_TABLE, &error))?;
    answer.page().ok_or_else(|| unreadable("Scan", &task.table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_task_is_checked_again_within_bounds() {
        let lagging = RecheckReason::from("the stream is behind");
        let at_most = Some(Duration::from_millis(1_500));
        let leased = RecheckReason { reason: String::new(), at_most };
        for (later, waits) in [(&lagging, [1_000, 2_000, 4_000]), (&leased, [1_000, 1_500, 1_500])]
        {
            let (mut left, mut all) = (Duration::from_secs(59), Vec::new());
            while let Some(wait) = later.wait(u32::try_from(all.len()).unwrap(), left) {
                assert!((WAIT_MIN..=WAIT_MAX).contains(&wait));
                left -= wait;
                assert!(left >= SLICE && left >= wait);
                all.push(wait);
            }
            assert!(all.len() < 50 && left < 2 * SLICE, "{all:?}");
            assert_eq!(all[..3], waits.map(Duration::from_millis));
        }
        // The remaining time in the shortest time-out that a plan may have.
        for (left, wait) in [(4_000, Some(1_000)), (3_000, Some(1_000)), (2_999, None)] {
            let wait = wait.map(Duration::from_millis);
            assert_eq!(lagging.wait(0, Duration::from_millis(left)), wait);
        }
        for (again, left, wait) in [(0, 59_000, 1_000), (2, 59_000, 4_000), (9, 3_000, 1_500)] {
            let found = lagging.wait_for_record(again, Duration::from_millis(left));
            assert_eq!(found, Duration::from_millis(wait));
        }
    }

    #[test]
    fn a_page_that_is_too_much_gets_smaller_and_grows_again_where_there_is_time() {
        let mut most = PAGE_ITEMS;
        for expected in [250, 125, 62, 31, 15, 7, 3, 1, 1] {
            most = page_after(most, usize::try_from(most).unwrap(), None);
            assert_eq!(most, expected);
        }
        // A failed page may have had fewer items than its bound.
        assert_eq!(page_after(PAGE_ITEMS, 10, None), 5);
        assert_eq!(page_after(62, 62, Some(3 * SLICE)), 62);
        assert_eq!(page_after(62, 62, Some(SLICE / 2)), 124);
        assert_eq!(page_after(300, 300, Some(SLICE / 2)), PAGE_ITEMS);
    }
}
