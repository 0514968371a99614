//! Work at one job: its copies are read from the index page by page, and written.
//!
//! A page that takes longer than there is time is left behind the copies that are done, so however
//! slowly a table takes writes, each invocation comes further.

use std::collections::BTreeMap;
use std::time::Instant;

use futures::{StreamExt, stream};
use model::{AttributeValue, Item, json};
use rules::fan_out::{CopyRule, Job, Mark, Origin, Update, mark_attribute, update_of};
use tracing::warn;

use super::{Copies, CopyGuard, CopyOutcome, CopyPage, CopyTables, WRITES_AT_ONCE, nonce, parsed};
use crate::back_off::Deadline;
use crate::failure::Failure;
use crate::tables::WriteOutcome;
use crate::tables::statements::STATEMENTS_MAX;

/// Until when a job is worked on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// No further page or copy is begun.
    stop: Deadline,
    /// What was begun is waited for no longer. Then there still is time to write down how far the
    /// job came.
    finish: Deadline,
}

impl Times {
    /// Half of the time until `deadline` for the work; a half of the rest to end it.
    pub(super) fn until(deadline: Deadline) -> Self {
        Self { stop: deadline.half_way(), finish: deadline.part_way(75) }
    }
}

/// A job that is worked on.
struct Visit {
    job: Job,
    /// Whether it came further than its item says.
    is_unsaved: bool,
    /// When that was written last.
    saved: Instant,
}

impl Visit {
    fn move_to(&mut self, cursor: Option<Item>) {
        self.job.cursor = cursor;
        self.is_unsaved = true;
    }

    /// Nothing of the job is left to do.
    fn end(&mut self) {
        self.move_to(None);
        self.job.done = true;
    }

    /// Copies of a page were written; gives why not all of them.
    fn note(&mut self, page: &mut CopyPage, written: Written) -> Option<Failure> {
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

/// What became of some copies.
#[derive(Debug, Default)]
struct Written {
    /// Copies whose guard held.
    written: u64,
    /// The places, among all of them, of the copies whose guard did not.
    passed_over: Vec<usize>,
    /// Copies that are refused.
    refused: u64,
    /// One of them, and why.
    refusal: Option<(String, String)>,
    /// So many, from the first one on, need no other visit.
    visited: usize,
    /// Copies were to be deleted, and their origin is there: they stay.
    is_origin_there: bool,
    /// Why others need one.
    failure: Option<Failure>,
}

impl Written {
    fn failed(failure: Failure) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }

    /// Adds what became of other copies, but for how many were visited.
    fn add(&mut self, other: Self) {
        self.written += other.written;
        self.passed_over.extend(other.passed_over);
        self.refused += other.refused;
        self.refusal = self.refusal.take().or(other.refusal);
        // What is wrong with the deployment counts more than what may work later.
        self.failure = match (self.failure.take(), other.failure) {
            (Some(fatal @ Failure::Fatal(_)), _) | (Some(fatal), None) => Some(fatal),
            (_, other) => other,
        };
    }

    fn is_fatal(&self) -> bool {
        matches!(self.failure, Some(Failure::Fatal(_)))
    }
}

fn out_of_time() -> Failure {
    Failure::Retry("out of time in this invocation".to_owned())
}

impl<T: CopyTables> Copies<T> {
    /// Visits copies page by page until all are, or the pages or the time are used up, or the job is
    /// somebody else's.
    pub(super) async fn work(
        &self,
        rule: &CopyRule,
        origin: &Origin,
        job: Job,
        pages_max: usize,
        times: Times,
    ) -> Result<(), Failure> {
        let key = parsed(json::attribute_value_from_str(&origin.key), &origin.key)?;
        let mut visit = Visit { job, is_unsaved: false, saved: Instant::now() };
        let (mut pages, mut ahead) = (0, None);
        while pages < pages_max && !visit.job.done {
            let page = match ahead.take() {
                Some(page) => page,
                None => self.read_page(rule, &key, visit.job.cursor.as_ref()).await,
            };
            pages += 1;
            let is_last = pages >= pages_max || times.stop.is_over();
            let failure = match page {
                Ok(mut page) => {
                    let update = update_of(rule, origin, &visit.job.state, nonce());
                    // The next page is read while this one is written.
                    let next = page.next.as_ref().filter(|_| !is_last);
                    let read = async {
                        match next {
                            Some(after) => Some(self.read_page(rule, &key, Some(after)).await),
                            None => None,
                        }
                    };
                    let write = self.write_page(rule, origin, &key, &page.keys, &update, times);
                    let (written, read) = tokio::join!(write, read);
                    ahead = read;
                    visit.note(&mut page, written)
                }
                Err(failure) => Some(failure),
            };
            if let Some(failure) = failure {
                let kept = visit.is_unsaved && self.save(origin, &mut visit).await?;
                // What was kept has a record of its own, which goes on from there.
                return if kept && matches!(failure, Failure::Retry(_)) {
                    Ok(())
                } else {
                    Err(failure)
                };
            }
            let is_due = visit.saved.elapsed() >= self.saved_every;
            if (is_last || visit.job.done || is_due) && !self.save(origin, &mut visit).await? {
                // A newer change of the origin, or another executor at the same job.
                break;
            }
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Writes down how far a job came; whether it still is the executor's own.
    async fn save(&self, origin: &Origin, visit: &mut Visit) -> Result<bool, Failure> {
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
    ) -> Result<CopyPage, Failure> {
        let mut trying = self.trying("index");
        while trying.next().await {
            if let Some(page) =
                trying.note(self.tables.page(rule, origin, after).await.map(Some))?
            {
                return Ok(page);
            }
        }
        Err(trying.give_up())
    }

    /// Writes the copies of a page. Those to delete are marked; then the origin is read; what still
    /// is as it was marked is deleted if the origin is not there.
    async fn write_page(
        &self,
        rule: &CopyRule,
        origin: &Origin,
        key: &AttributeValue,
        copies: &[Item],
        update: &Update,
        times: Times,
    ) -> Written {
        let written = match self.mark_all(rule, origin, copies, update, times).await {
            Ok(None) => self.write_all(rule, copies, update, times).await,
            Err(failure) => Written::failed(failure),
            Ok(Some((mut marked, update))) => {
                match times.finish.limit(self.is_there(rule, origin, key)).await {
                    Err(failure) => Written::failed(failure),
                    Ok(true) => Written { is_origin_there: true, ..Written::default() },
                    Ok(false) => {
                        let copies = copies.get(..marked.visited).unwrap_or_default();
                        // What was marked in time is deleted although that is over.
                        let times = Times { stop: times.finish, ..times };
                        let deleted = self.write_all(rule, copies, &update, times).await;
                        (marked.written, marked.visited) = (0, deleted.visited);
                        marked.add(deleted);
                        marked
                    }
                }
            }
        };
        if let Some((copy, reason)) = &written.refusal {
            let (rule, origin, refused) = (&rule.name, &origin.key, written.refused);
            warn!(rule, origin, copy, reason, refused, "copies cannot be written, this is one");
        }
        written
    }

    /// Marks copies that are to be deleted; gives what became of it, and the deletion of what is marked
    /// so. None if nothing is to be deleted.
    ///
    /// A worker whose clock is ahead may have marked copies and died. Its marks are greater than this
    /// one's, so these copies would neither be marked nor deleted, by anybody: they are marked once
    /// more, over the greatest of those marks. Who raises it after that is at work, and deletes them.
    async fn mark_all(
        &self,
        rule: &CopyRule,
        origin: &Origin,
        copies: &[Item],
        update: &Update,
        times: Times,
    ) -> Result<Option<(Written, Update)>, Failure> {
        let (Some(marking), Update::Delete { mark }) = (update.marking(), update) else {
            return Ok(None);
        };
        let mut marked = self.write_all(rule, copies, &marking, times).await;
        if marked.is_fatal() {
            return Ok(Some((marked, update.clone())));
        }
        let higher = self.highest_of(rule, origin, copies, mark, &mut marked, times).await;
        let copies = copies.get(..marked.visited).unwrap_or_default();
        let Some(higher) = higher else { return Ok(Some((marked, update.clone()))) };
        let stamp = mark.stamp.reconciled(higher.saturating_add(1));
        let update = Update::Delete { mark: Mark { stamp, ..mark.clone() } };
        let Some(marking) = update.marking() else { return Ok(None) };
        // The first time may have taken all that there was for it; some is left for deleting.
        let again = Times { stop: times.finish.half_way(), finish: times.finish.part_way(75) };
        let mut marked_again = self.write_all(rule, copies, &marking, again).await;
        marked_again.failure = marked_again.failure.or(marked.failure);
        Ok(Some((marked_again, update)))
    }

    /// The greatest nonce of the marks of copies that were passed over, if any is greater than this
    /// mark's. They are read a few at a time, as they may be large. Behind one that there was no time to
    /// read, nothing counts as marked.
    async fn highest_of(
        &self,
        rule: &CopyRule,
        origin: &Origin,
        copies: &[Item],
        mark: &Mark,
        marked: &mut Written,
        times: Times,
    ) -> Option<u64> {
        let mut places = std::mem::take(&mut marked.passed_over);
        places.retain(|place| *place < marked.visited);
        places.sort_unstable();
        let mut highest = None;
        for some in places.chunks(STATEMENTS_MAX) {
            let keys: Vec<&Item> = some.iter().filter_map(|place| copies.get(*place)).collect();
            match times.finish.limit(self.higher_nonce(rule, origin, &keys, mark)).await {
                Ok(higher) => highest = highest.max(higher),
                Err(failure) => {
                    marked.visited = some.first().copied().unwrap_or(0);
                    marked.failure = Some(failure);
                    break;
                }
            }
        }
        highest
    }

    /// The greatest nonce of marks of the same deletion that is greater than this mark's, if any is.
    async fn higher_nonce(
        &self,
        rule: &CopyRule,
        origin: &Origin,
        copies: &[&Item],
        mark: &Mark,
    ) -> Result<Option<u64>, Failure> {
        let keys = copies.iter().map(|key| (json::item_to_string(key), (*key).clone())).collect();
        let mut trying = self.trying("copy");
        let found = loop {
            if !trying.next().await {
                return Err(trying.give_up());
            }
            if let Some(found) = trying.note(self.tables.copies(rule, &keys).await.map(Some))? {
                break found;
            }
        };
        let attribute = mark_attribute(&rule.name);
        let marks = found.values().filter_map(|copy| Mark::parse(copy.get(&attribute)?.as_str()?));
        let of_it = marks
            .filter(|other| other.origin == origin.key && other.stamp.base() == mark.stamp.base());
        let nonce = of_it.map(|other| other.stamp.revision()).max();
        Ok(nonce.filter(|nonce| *nonce > mark.stamp.revision()))
    }

    /// Whether an origin is there.
    async fn is_there(
        &self,
        rule: &CopyRule,
        origin: &Origin,
        key: &AttributeValue,
    ) -> Result<bool, Failure> {
        let keys = BTreeMap::from([(origin.key.clone(), key.clone())]);
        let mut trying = self.trying("origin");
        while trying.next().await {
            if let Some(found) = trying.note(self.tables.origins(rule, &keys).await.map(Some))? {
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
            if let Some(outcome) = trying.note(written.map(Some))? {
                return Ok(outcome);
            }
        }
        Err(trying.give_up())
    }

    /// Writes some copies in one request, and what that left open by itself. All of them are tried:
    /// what is written needs not be written again.
    async fn write_some(
        &self,
        rule: &CopyRule,
        keys: &[Item],
        update: &Update,
        times: Times,
    ) -> Written {
        if times.stop.is_over() {
            return Written::failed(out_of_time());
        }
        let together = async { Ok(self.tables.write_some(rule, keys, update).await) };
        let mut outcomes = times.finish.limit(together).await.unwrap_or_default().into_iter();
        let mut all = Written::default();
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
                Err(failure) => all.add(Written::failed(failure)),
            }
            if all.is_fatal() {
                break;
            }
            all.visited += usize::from(all.failure.is_none());
        }
        all
    }

    /// Writes copies, many requests at once, until all are written or the time is over.
    async fn write_all(
        &self,
        rule: &CopyRule,
        keys: &[Item],
        update: &Update,
        times: Times,
    ) -> Written {
        let chunks = keys.chunks(STATEMENTS_MAX).enumerate();
        let writes: Vec<_> = chunks
            .map(async |(number, keys)| (number, self.write_some(rule, keys, update, times).await))
            .collect();
        let mut writes = stream::iter(writes).buffer_unordered(WRITES_AT_ONCE);
        let (mut all, mut visited) = (Written::default(), BTreeMap::new());
        while let Some((number, mut some)) = writes.next().await {
            visited.insert(number, some.visited);
            some.passed_over.iter_mut().for_each(|place| *place += number * STATEMENTS_MAX);
            all.add(some);
            if all.is_fatal() {
                break;
            }
        }
        // Behind a chunk that is not done, nothing counts.
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
