//! Processes one job: reads the origin's copies from the index page by page, and writes them.
//!
//! If a page takes longer than the remaining time, the progress is saved up to the last finished
//! copy. So each invocation makes progress, even if the table is slow.

use std::collections::BTreeMap;
use std::time::Instant;

use futures::{StreamExt, stream};
use model::{AttributeValue, Item, json};
use rules::fan_out::{CopyRule, Job, Mark, Origin, Update, update_of};
use tracing::warn;

use super::{
    COPIES_AT_ONCE, Copies, CopyGuard, CopyOutcome, CopyPage, CopyTables, PAGE_COPIES,
    WRITES_AT_ONCE, nonce, parsed,
};
use crate::back_off::Deadline;
use crate::failure::Failure;
use crate::tables::WriteOutcome;
use crate::tables::statements::STATEMENTS_MAX;

/// The deadlines of work on a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    /// After this time the worker begins no further page or copy.
    stop: Deadline,
    /// Until this time, requests in progress may finish. Enough time is left after it to save the
    /// job's progress.
    finish: Deadline,
}

impl Deadlines {
    /// Returns deadlines for the time until `deadline`: half of it for new work, and half of the
    /// rest to finish the work.
    pub(super) fn until(deadline: Deadline) -> Self {
        Self { stop: deadline.half_way(), finish: deadline.part_way(75) }
    }
}

/// The number of pages of a job to process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobExtent {
    /// One page, if the origin has few copies.
    OnePage,
    /// All pages, until the deadline.
    AllPages,
}

impl JobExtent {
    /// Returns how many copies to read in a page. For `OnePage`, this is one more than the maximum
    /// number of copies that a batch writes immediately, to detect that there are more copies.
    fn page_copies(self) -> usize {
        match self {
            Self::OnePage => COPIES_AT_ONCE + 1,
            Self::AllPages => PAGE_COPIES,
        }
    }
}

/// A job in progress.
struct JobInProgress {
    job: Job,
    /// True if the job has progress that is not saved in the table.
    is_unsaved: bool,
    /// The time when the progress was last saved.
    saved: Instant,
}

impl JobInProgress {
    fn move_to(&mut self, cursor: Option<Item>) {
        self.job.cursor = cursor;
        self.is_unsaved = true;
    }

    /// Marks the job as complete.
    fn end(&mut self) {
        self.move_to(None);
        self.job.done = true;
    }

    /// Records the outcome of a page in the job. Returns the reason if some copies were not
    /// written.
    fn record_page(&mut self, page: &mut CopyPage, written: PageOutcome) -> Option<Failure> {
        self.job.copies += written.written;
        self.job.refused += written.refused;
        if written.is_origin_there {
            self.end();
        } else if written.visited < page.keys.len() {
            if let Some(place) = page.place_behind(written.visited) {
                self.move_to(Some(place));
            }
        } else if let Some(next) = page.next.take() {
            self.move_to(Some(next));
        } else {
            self.end();
        }
        written.failure
    }
}

/// The outcome of writing some copies.
#[derive(Debug, Default)]
struct PageOutcome {
    /// Number of copies whose write condition was true, so that they were written.
    written: u64,
    /// Positions of the copies whose write condition was false.
    passed_over: Vec<usize>,
    /// Number of refused copies.
    refused: u64,
    /// The key of a copy that DynamoDB refused, and the reason; `None` if DynamoDB refused no copy.
    refusal: Option<(String, String)>,
    /// Number of finished copies before the first unfinished copy.
    visited: usize,
    /// True if the origin exists, so its copies must not be deleted.
    is_origin_there: bool,
    /// The reason why some copies are unfinished and must be written again.
    failure: Option<Failure>,
}

impl PageOutcome {
    fn failed(failure: Failure) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }

    /// Adds the outcome of other copies, except `visited` and `is_origin_there`.
    fn add(&mut self, other: Self) {
        self.written += other.written;
        self.passed_over.extend(other.passed_over);
        self.refused += other.refused;
        self.refusal = self.refusal.take().or(other.refusal);
        // A misconfigured deployment takes precedence over a temporary failure.
        self.failure = match (self.failure.take(), other.failure) {
            (Some(fatal @ Failure::Fatal(_)), _) | (Some(fatal), None) => Some(fatal),
            (_, other) => other,
        };
    }

    fn is_fatal(&self) -> bool {
        matches!(self.failure, Some(Failure::Fatal(_)))
    }
}

/// Number of copies in a request that reads marks: at most 4 MB, for each of four concurrent
/// origins.
const MARKS_AT_ONCE: usize = 10;
/// Size in bytes of the copies that are read for their marks before these copies are deleted. One
/// partition returns this much in a second or two. A function may be stopped at any time, and only
/// deleted copies count as progress.
const MARKED_BYTES: usize = 8 * 1024 * 1024;

/// The marks that other workers wrote to copies for the same deletion, by the copy's position in
/// the page.
type MarksOfOthers = BTreeMap<usize, Mark>;

fn out_of_time() -> Failure {
    Failure::Retry("the time limit of this invocation was reached".to_owned())
}

impl<T: CopyTables> Copies<T> {
    /// Writes copies page by page until all requested copies are done, the deadline has passed, or
    /// another worker owns the job.
    pub(super) async fn work(
        &self,
        rule: &CopyRule,
        origin: &Origin,
        job: Job,
        extent: JobExtent,
        times: Deadlines,
    ) -> Result<(), Failure> {
        let key = parsed(json::attribute_value_from_str(&origin.key), &origin.key)?;
        let mut visit = JobInProgress { job, is_unsaved: false, saved: Instant::now() };
        let mut ahead = None;
        while !visit.job.done {
            let page = match ahead.take() {
                Some(page) => page,
                None => {
                    let after = visit.job.cursor.as_ref();
                    self.read_page(rule, &key, after, extent.page_copies()).await
                }
            };
            if extent == JobExtent::OnePage && page.as_ref().is_ok_and(CopyPage::is_large) {
                return Ok(());
            }
            let is_last = extent == JobExtent::OnePage || times.stop.is_over();
            let failure = match page {
                Ok(mut page) => {
                    let update = update_of(rule, origin, &visit.job.state, nonce());
                    // The next page is read while the current page is written.
                    let next = page.next.as_ref().filter(|_| !is_last);
                    let read = async {
                        match next {
                            Some(after) => {
                                Some(self.read_page(rule, &key, Some(after), PAGE_COPIES).await)
                            }
                            None => None,
                        }
                    };
                    let write = self.write_page(rule, origin, &key, &page.keys, &update, times);
                    let (written, read) = tokio::join!(write, read);
                    ahead = read;
                    visit.record_page(&mut page, written)
                }
                Err(failure) => Some(failure),
            };
            if let Some(failure) = failure {
                let kept = visit.is_unsaved && self.save(origin, &mut visit).await?;
                // Saving the job created a stream record, which continues the job.
                return if kept && matches!(failure, Failure::Retry(_)) {
                    Ok(())
                } else {
                    Err(failure)
                };
            }
            let is_due = visit.saved.elapsed() >= self.saved_every;
            if (is_last || visit.job.done || is_due) && !self.save(origin, &mut visit).await? {
                // The origin has a newer change, or another worker processes the same job.
                break;
            }
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Saves a job's progress. Returns whether this worker still owns the job.
    async fn save(&self, origin: &Origin, visit: &mut JobInProgress) -> Result<bool, Failure> {
        let found = visit.job.revision;
        visit.job.revision += 1;
        let written = self.tables.put_job(&visit.job.to_item(origin), found).await?;
        (visit.is_unsaved, visit.saved) = (false, Instant::now());
        Ok(written == WriteOutcome::Written)
    }

    async fn read_page(
        &self,
        rule: &CopyRule,
        origin: &AttributeValue,
        after: Option<&Item>,
        most: usize,
    ) -> Result<CopyPage, Failure> {
        let mut trying = self.trying("index");
        while trying.next().await {
            if let Some(page) = trying
                .record_attempt(self.tables.page(rule, origin, after, most).await.map(Some))?
            {
                return Ok(page);
            }
        }
        Err(trying.give_up())
    }

    /// Writes the copies of a page. To delete copies, first marks them, then reads the origin. If
    /// the origin does not exist, deletes the copies whose mark is unchanged.
    async fn write_page(
        &self,
        rule: &CopyRule,
        origin: &Origin,
        key: &AttributeValue,
        copies: &[Item],
        update: &Update,
        times: Deadlines,
    ) -> PageOutcome {
        let written = match (update, update.marking()) {
            (Update::Delete { mark }, Some(marking)) => {
                let marked = self.write_all(rule, copies, &marking, times).await;
                // A copy that was marked before `stop` may be deleted until `finish`.
                let times = Deadlines { stop: times.finish, ..times };
                self.delete_page((rule, origin, key), copies, mark, marked, times).await
            }
            _ => self.write_all(rule, copies, update, times).await,
        };
        if let Some((copy, reason)) = &written.refusal {
            let (rule, origin, refused) = (&rule.name, &origin.key, written.refused);
            warn!(
                rule,
                origin,
                copy,
                reason,
                refused,
                "some copies cannot be written; this entry shows one of them"
            );
        }
        written
    }

    /// Deletes marked copies of a page. A copy is deleted only if it has a mark of this deletion.
    async fn delete_page(
        &self,
        (rule, origin, key): (&CopyRule, &Origin, &AttributeValue),
        copies: &[Item],
        mark: &Mark,
        mut marked: PageOutcome,
        times: Deadlines,
    ) -> PageOutcome {
        if marked.is_fatal() {
            return marked;
        }
        match times.finish.limit(self.is_there(rule, origin, key)).await {
            Err(failure) => return PageOutcome::failed(failure),
            Ok(true) => return PageOutcome { is_origin_there: true, ..PageOutcome::default() },
            Ok(false) => {}
        }
        let copies = copies.get(..marked.visited).unwrap_or_default();
        let update = Update::Delete { mark: mark.clone() };
        let mut deleted = self.write_all(rule, copies, &update, times).await;
        self.delete_marked_over((rule, origin, key), copies, mark, &mut deleted, times).await;
        (marked.written, marked.visited) = (0, deleted.visited);
        marked.is_origin_there = deleted.is_origin_there;
        marked.add(deleted);
        if marked.is_origin_there {
            // The origin exists, so no copy must be deleted, and a failed mark does not matter.
            marked.failure = None;
        }
        marked
    }

    /// Deletes the copies that other workers marked after this worker, for the same deletion:
    /// workers of the same job, or checks. Those workers may have crashed, and their records have
    /// no effect once the job has continued, so this worker must delete the copies. The worker
    /// replaces each mark that it read by its own mark and reads the origin again, because a client
    /// may have put the copy again meanwhile.
    ///
    /// If two workers do this concurrently, both finish. The worker that writes the last mark
    /// deletes the copy, unless the other worker replaces that mark before the delete; the attempts
    /// of each worker are bounded. After a copy that still has another worker's mark, no copy
    /// counts as done. The copies that were read are deleted before further copies are read.
    async fn delete_marked_over(
        &self,
        place: (&CopyRule, &Origin, &AttributeValue),
        copies: &[Item],
        mark: &Mark,
        deleted: &mut PageOutcome,
        times: Deadlines,
    ) {
        let mut open = std::mem::take(&mut deleted.passed_over);
        open.retain(|at| *at < deleted.visited);
        open.sort_unstable();
        let mut trying = self.trying("copy");
        while !open.is_empty() && !deleted.is_origin_there {
            let attempt = async {
                if trying.next().await {
                    trying.record_attempt(
                        self.read_marks_of_others(place.0, copies, mark, &open).await,
                    )
                } else {
                    Err(Failure::Retry(trying.failure.clone()))
                }
            };
            let (read, found) = match times.finish.limit(attempt).await {
                Ok(None) => continue,
                Ok(Some(read)) => read,
                Err(failure) => {
                    deleted.failure = Some(failure);
                    break;
                }
            };
            let mut rest = open.split_off(read.min(open.len()));
            open = self.delete_found(place, copies, (mark, found), deleted, times).await;
            if open.len() < read {
                // The restarts are bounded by the number of copies, because each restart leaves
                // fewer copies.
                trying.attempts.restart();
            }
            open.append(&mut rest);
            if deleted.failure.is_some() {
                break;
            }
        }
        if let Some(first) = open.first()
            && !deleted.is_origin_there
        {
            deleted.visited = deleted.visited.min(*first);
        }
    }

    /// Reads the copies at the first of these positions. Returns the number of copies read, and the
    /// marks of other workers for the same deletion. Reads as many copies as a batch writes
    /// immediately, or fewer if the copies are large or the table is throttled.
    async fn read_marks_of_others(
        &self,
        rule: &CopyRule,
        copies: &[Item],
        mark: &Mark,
        places: &[usize],
    ) -> Result<Option<(usize, MarksOfOthers)>, Failure> {
        let (mut found, mut count, mut bytes) = (MarksOfOthers::new(), 0, 0);
        for some in places.chunks(MARKS_AT_ONCE) {
            if count >= COPIES_AT_ONCE || bytes >= MARKED_BYTES {
                break;
            }
            let named = some.iter().filter_map(|at| Some((*at, copies.get(*at)?)));
            let named: Vec<_> =
                named.map(|(at, key)| (at, json::item_to_string(key), key)).collect();
            let keys = named.iter().map(|(_, text, key)| (text.clone(), (*key).clone())).collect();
            let read = match self.tables.glimpses(rule, &keys).await {
                Ok(read) => read,
                // The copies that were read before this failure are deleted first.
                Err(Failure::Retry(_)) if count > 0 => break,
                Err(failure) => return Err(failure),
            };
            for (at, text, _) in named {
                let copy = read.get(&text).map(|glimpse| &glimpse.copy);
                let seen = copy.and_then(|copy| rule.marked_for_deletion(copy, mark));
                found.extend(seen.map(|seen| (at, seen)));
            }
            count += some.len();
            bytes += read.values().map(|glimpse| glimpse.bytes).sum::<usize>();
        }
        Ok(Some((count, found)))
    }

    /// Replaces the marks that were read, and deletes the copies if their origin does not exist.
    /// Returns the positions, sorted, of the copies that were marked again meanwhile or were not
    /// reached before the deadline.
    async fn delete_found(
        &self,
        (rule, origin, key): (&CopyRule, &Origin, &AttributeValue),
        copies: &[Item],
        (mark, found): (&Mark, MarksOfOthers),
        deleted: &mut PageOutcome,
        times: Deadlines,
    ) -> Vec<usize> {
        let places: Vec<usize> = found.keys().copied().collect();
        let update = Update::Delete { mark: mark.above(found.values(), nonce()) };
        let Some(marking) = update.marking().filter(|_| !places.is_empty()) else {
            return places;
        };
        let keys: Vec<Item> = places.iter().filter_map(|at| copies.get(*at)).cloned().collect();
        let marked = self.write_all(rule, &keys, &marking, times).await;
        let is_there = match marked.failure {
            Some(failure) => Err(failure),
            None => times.finish.limit(self.is_there(rule, origin, key)).await,
        };
        match is_there {
            Ok(false) => {}
            Ok(true) => {
                deleted.is_origin_there = true;
                return places;
            }
            Err(failure) => {
                deleted.failure = Some(failure);
                return places;
            }
        }
        let mut written = self.write_all(rule, &keys, &update, times).await;
        let passed_over = std::mem::take(&mut written.passed_over);
        let again = passed_over.into_iter().filter(|at| *at < written.visited);
        let again = again.chain(written.visited..keys.len());
        let mut open: Vec<usize> = again.filter_map(|at| places.get(at)).copied().collect();
        open.sort_unstable();
        deleted.add(written);
        open
    }

    /// Returns whether an origin exists.
    async fn is_there(
        &self,
        rule: &CopyRule,
        origin: &Origin,
        key: &AttributeValue,
    ) -> Result<bool, Failure> {
        let keys = BTreeMap::from([(origin.key.clone(), key.clone())]);
        let mut trying = self.trying("origin");
        while trying.next().await {
            if let Some(found) =
                trying.record_attempt(self.tables.origins(rule, &keys).await.map(Some))?
            {
                return Ok(!found.is_empty());
            }
        }
        Err(trying.give_up())
    }

    async fn write_one(
        &self,
        rule: &CopyRule,
        key: &Item,
        update: &Update,
    ) -> Result<CopyOutcome, Failure> {
        let guard = CopyGuard::of_job(update);
        let mut trying = self.trying("copy");
        while trying.next().await {
            let written = self.tables.write(rule, key, update, &guard).await;
            if let Some(outcome) = trying.record_attempt(written.map(Some))? {
                return Ok(outcome);
            }
        }
        Err(trying.give_up())
    }

    /// Writes up to 25 copies in one request. Copies whose outcome is unknown are written again by
    /// separate requests. A failure does not stop the writes of the other copies, because each
    /// written copy is progress.
    async fn write_some(
        &self,
        rule: &CopyRule,
        keys: &[Item],
        update: &Update,
        times: Deadlines,
    ) -> PageOutcome {
        if times.stop.is_over() {
            return PageOutcome::failed(out_of_time());
        }
        let together = async { Ok(self.tables.write_some(rule, keys, update).await) };
        let mut outcomes = times.finish.limit(together).await.unwrap_or_default().into_iter();
        let mut all = PageOutcome::default();
        for (place, key) in keys.iter().enumerate() {
            let outcome = match outcomes.next().flatten() {
                Some(outcome) => Ok(outcome),
                None if times.stop.is_over() => Err(out_of_time()),
                None => times.finish.limit(self.write_one(rule, key, update)).await,
            };
            match outcome {
                Ok(CopyOutcome::Written) => all.written += 1,
                Ok(CopyOutcome::GuardFailed) => all.passed_over.push(place),
                Ok(CopyOutcome::Refused(reason)) => {
                    all.refused += 1;
                    all.refusal.get_or_insert_with(|| (json::item_to_string(key), reason));
                }
                Err(failure) => all.add(PageOutcome::failed(failure)),
            }
            if all.is_fatal() {
                break;
            }
            all.visited += usize::from(all.failure.is_none());
        }
        all
    }

    /// Writes copies with many concurrent requests until all are written or the deadline has
    /// passed.
    async fn write_all(
        &self,
        rule: &CopyRule,
        keys: &[Item],
        update: &Update,
        times: Deadlines,
    ) -> PageOutcome {
        let chunks = keys.chunks(STATEMENTS_MAX).enumerate();
        let writes: Vec<_> = chunks
            .map(async |(number, keys)| (number, self.write_some(rule, keys, update, times).await))
            .collect();
        let mut writes = stream::iter(writes).buffer_unordered(WRITES_AT_ONCE);
        let (mut all, mut visited) = (PageOutcome::default(), BTreeMap::new());
        while let Some((number, mut some)) = writes.next().await {
            visited.insert(number, some.visited);
            some.passed_over.iter_mut().for_each(|place| *place += number * STATEMENTS_MAX);
            all.add(some);
            if all.is_fatal() {
                break;
            }
        }
        // Copies after an incomplete chunk do not count as done.
        for (number, keys) in keys.chunks(STATEMENTS_MAX).enumerate() {
            let done = visited.get(&number).copied().unwrap_or(0);
            all.visited += done;
            if done < keys.len() {
                break;
            }
        }
        all
    }
}
