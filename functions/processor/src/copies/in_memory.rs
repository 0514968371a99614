//! Origins, copies and jobs in memory, for tests. The index is eventually consistent, requests fail
//! or respond too late, and every change appears in a stream.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use model::limits::PARTITION_KEY_BYTES_MAX;
use model::stream_record::LambdaRecord;
use model::{AttributeValue, EventName, Item, StreamRecord, StreamViewType, json};
use rules::fan_out::{CopyRule, JOB_KEY, JOB_REVISION, Mark, Origin, Update, mark_attribute};

use super::{CopyGuard, CopyOutcome, CopyOutline, CopyPage, CopyTables, SamplePart};
use crate::failure::Failure;
use crate::tables::WriteOutcome;
use crate::tables::in_memory::{Faults, Unreliable};

/// Number of copies in a page: few, so that a test needs several pages.
const PAGE: usize = 3;
/// Number of copies in a page of a sample. The tables of some tests have more copies.
pub(crate) const SAMPLE_PAGE: usize = 100;
pub(crate) const ORIGINS: &str = "products";
pub(crate) const COPIES: &str = "order-lines";
pub(crate) const JOBS: &str = "jobs";

type Table = BTreeMap<String, Item>;

#[derive(Debug, Default)]
struct State {
    /// The largest limit in a request for a page of the index.
    page_asked: usize,
    /// Copies that may still be read; `None` for no limit.
    reads_left: Option<usize>,
    tables: BTreeMap<&'static str, Table>,
    records: Vec<LambdaRecord>,
    sequence: u64,
    /// The copies as the index shows them.
    indexed: Table,
    /// Keys of copies whose writes are refused.
    refused: BTreeSet<String>,
    /// The number of origins read since copies were last read, and the maximum of this number so
    /// far.
    origins_at_once: (usize, usize),
    /// The maximum size in bytes of the complete copies that were in memory at the same time.
    copy_bytes_at_once: usize,
    /// Pages of samples that may still be read; `None` for no limit.
    pages_left: Option<usize>,
}

/// The tables.
#[derive(Debug, Default)]
pub(crate) struct InMemoryCopies {
    state: Mutex<State>,
    requests: Unreliable,
    /// Percentage of index pages that show the index as it was when the previous page was read.
    stale_pages: u64,
    /// The time that each write takes.
    write_time: Duration,
    /// Copies in a page of the index; `None` for the default.
    page_copies: Option<usize>,
}

fn key_name(table: &str) -> &'static str {
    match table {
        ORIGINS => "productID",
        COPIES => "line",
        _ => JOB_KEY,
    }
}

impl State {
    fn set(&mut self, table: &'static str, key: &str, new: Option<Item>) {
        let items = self.tables.entry(table).or_default();
        let old = match &new {
            Some(item) => items.insert(key.to_owned(), item.clone()),
            None => items.remove(key),
        };
        if old == new {
            return;
        }
        self.sequence += 1;
        let event_name = match (&old, &new) {
            (None, _) => EventName::Insert,
            (_, None) => EventName::Remove,
            _ => EventName::Modify,
        };
        let name = key_name(table);
        let image = new.as_ref().or(old.as_ref()).unwrap();
        let keys = Item::new().with(name, image[name].clone());
        self.records.push(LambdaRecord {
            record: StreamRecord {
                event_id: format!("{}", self.sequence),
                event_name,
                user_identity: None,
                approximate_creation_seconds: Some(1_795_228_140),
                keys,
                old_image: old,
                new_image: new,
                sequence_number: self.sequence.to_string().parse().unwrap(),
                size_bytes: 1,
                view_type: StreamViewType::NewAndOldImages,
            },
            event_source_arn: format!("arn:aws:dynamodb:r:a:table/{table}/stream/2026"),
        });
    }
}

impl InMemoryCopies {
    pub(crate) fn with_faults(seed: u64, faults: Faults, stale_pages: u64) -> Self {
        Self { requests: Unreliable::new(seed, faults), stale_pages, ..Self::default() }
    }

    /// Returns tables in which each write takes `write_time`.
    pub(crate) fn with_write_time(write_time: Duration) -> Self {
        Self { write_time, ..Self::default() }
    }

    /// Returns tables whose index returns `copies` copies per page.
    pub(crate) fn with_pages_of(copies: usize) -> Self {
        Self { page_copies: Some(copies), ..Self::default() }
    }

    /// Refuses writes of a copy from now on.
    pub(crate) fn refuse(&self, copy: &str) {
        self.state.lock().unwrap().refused.insert(copy.to_owned());
    }

    /// Allows at most `copies` more copies to be read; with 0, no page can be read.
    pub(crate) fn limit_reads(&self, copies: Option<usize>) {
        self.state.lock().unwrap().reads_left = copies;
    }

    /// Allows at most this many more pages of samples.
    pub(crate) fn limit_sample_pages(&self, pages: usize) {
        self.state.lock().unwrap().pages_left = Some(pages);
    }

    /// Subtracts this many copies from the number of copies that may still be read.
    fn take_reads(&self, copies: usize) -> Result<(), Failure> {
        let mut state = self.state.lock().unwrap();
        let Some(left) = state.reads_left else { return Ok(()) };
        if left < copies.max(1) {
            return Err(Failure::Retry("throttled".to_owned()));
        }
        state.reads_left = Some(left - copies);
        Ok(())
    }

    /// Returns the largest limit that a request for an index page had so far.
    pub(crate) fn page_asked(&self) -> usize {
        self.state.lock().unwrap().page_asked
    }

    /// Returns the maximum number of origins that were read between two reads of copies.
    pub(crate) fn origins_at_once(&self) -> usize {
        self.state.lock().unwrap().origins_at_once.1
    }

    /// Returns the maximum size in bytes of the complete copies that were in memory at the same
    /// time.
    pub(crate) fn copy_bytes_at_once(&self) -> usize {
        self.state.lock().unwrap().copy_bytes_at_once
    }

    /// Puts or deletes an item as a user of the table does.
    pub(crate) fn set(&self, table: &'static str, key: &str, new: Option<Item>) {
        self.state.lock().unwrap().set(table, key, new);
    }

    pub(crate) fn items(&self, table: &str) -> Table {
        self.state.lock().unwrap().tables.get(table).cloned().unwrap_or_default()
    }

    /// Returns the stream records written since the last call, and removes them.
    pub(crate) fn take_records(&self) -> Vec<LambdaRecord> {
        std::mem::take(&mut self.state.lock().unwrap().records)
    }

    /// Reads an item of a table; `None` if it does not exist.
    fn item(&self, table: &str, key: &str) -> Option<Item> {
        self.state.lock().unwrap().tables.get(table)?.get(key).cloned()
    }

    /// Returns the keys of at most `most` copies after the key `after`, and the key after which the
    /// next page begins.
    fn page_of<'s>(
        copies: impl Iterator<Item = &'s String>,
        after: Option<&Item>,
        most: usize,
    ) -> CopyPage {
        let after = after.map_or("", |after| after["line"].as_str().unwrap());
        let keys = copies.filter(|key| key.as_str() > after);
        let mut keys = keys.map(|key| Item::new().with("line", key.as_str()));
        let page: Vec<Item> = keys.by_ref().take(most).collect();
        let next = keys.next().and_then(|_| page.last().cloned());
        CopyPage { keys: page, next, ..CopyPage::default() }
    }

    /// Returns at most `most` copies after the index position `after`, in the order of the index,
    /// and the position after which the next page begins. Copies without the sort key are not in
    /// the index.
    fn index_page<'s>(
        &self,
        rule: &CopyRule,
        copies: impl Iterator<Item = &'s Item>,
        after: Option<&Item>,
        most: usize,
    ) -> CopyPage {
        let place = |copy: &Item| -> Option<Item> {
            let names = rule.index_sort.iter().map(String::as_str).chain(["line"]);
            names.map(|name| Some((name.to_owned(), copy.get(name)?.clone()))).collect()
        };
        let order = |place: &Item| -> Vec<String> {
            let names = rule.index_sort.iter().map(String::as_str).chain(["line"]);
            names.map(|name| text(&place[name])).collect()
        };
        let after = after.map(order);
        let mut places: Vec<Item> = copies.filter_map(place).collect();
        places.retain(|place| after.as_ref().is_none_or(|after| order(place) > *after));
        places.sort_by_key(order);
        let page = self.page_copies.unwrap_or(PAGE).min(most);
        let next = places.get(page).and(places.get(page - 1)).cloned();
        let split = places.into_iter().take(page).map(|mut place| {
            let line = place.remove("line").unwrap();
            (Item::new().with("line", line), place)
        });
        let (keys, beside) = split.unzip();
        CopyPage { keys, beside, next }
    }

    fn answer<O>(&self, fate: u64, outcome: O) -> Result<O, Failure> {
        if fate < self.requests.faults.unanswered {
            return Err(Failure::Retry("timed out".to_owned()));
        }
        Ok(outcome)
    }
}

fn text(value: &AttributeValue) -> String {
    rules::fan_out::value_text(value)
}

fn holds(rule: &CopyRule, copy: &Item, mark: &Mark, guard: &CopyGuard) -> bool {
    let found = copy.get(&mark_attribute(&rule.name));
    let is_its_copy = copy.get(&rule.index_key).map(text).as_deref() == Some(&mark.origin);
    let found_text = found.and_then(AttributeValue::as_str);
    is_its_copy
        && match guard {
            CopyGuard::Older => found_text.is_none_or(|found| {
                !found.starts_with(&Mark::prefix(&mark.origin)) || found < mark.text().as_str()
            }),
            CopyGuard::MarkUnchanged(seen) => found == seen.as_ref(),
        }
}

impl CopyTables for std::sync::Arc<InMemoryCopies> {
    async fn job(&self, origin: &Origin) -> Result<Option<Item>, Failure> {
        self.requests.request().await?;
        Ok(self.item(JOBS, &origin.job_key()))
    }

    async fn put_job(&self, job: &Item, found: u64) -> Result<WriteOutcome, Failure> {
        let fate = self.requests.request().await?;
        let key = job[JOB_KEY].as_str().unwrap();
        let outcome = {
            let mut state = self.state.lock().unwrap();
            let there = state.tables.get(JOBS).and_then(|jobs| jobs.get(key));
            let revision =
                there.map_or(0, |j| j[JOB_REVISION].as_number().unwrap().to_u64().unwrap());
            if revision == found {
                state.set(JOBS, key, Some(job.clone()));
                WriteOutcome::Written
            } else {
                WriteOutcome::GuardFailed
            }
        };
        self.answer(fate, outcome)
    }

    async fn page(
        &self,
        rule: &CopyRule,
        origin: &AttributeValue,
        after: Option<&Item>,
        most: usize,
    ) -> Result<CopyPage, Failure> {
        self.requests.request().await?;
        let is_stale = self.requests.random() % 100 < self.stale_pages;
        let mut state = self.state.lock().unwrap();
        state.page_asked = state.page_asked.max(most);
        if !is_stale {
            state.indexed = state.tables.get(COPIES).cloned().unwrap_or_default();
        }
        let copies = state.indexed.values();
        let copies = copies.filter(|copy| copy.get(&rule.index_key) == Some(origin));
        Ok(self.index_page(rule, copies, after, most))
    }

    async fn jobs(&self, origins: &BTreeSet<Origin>) -> Result<BTreeMap<Origin, Item>, Failure> {
        self.requests.request().await?;
        if origins.iter().any(|origin| origin.job_key().len() > PARTITION_KEY_BYTES_MAX) {
            return Err(Failure::Fatal("a key is too long".to_owned()));
        }
        let found =
            origins.iter().filter_map(|o| Some((o.clone(), self.item(JOBS, &o.job_key())?)));
        Ok(found.collect())
    }

    async fn origins(
        &self,
        _: &CopyRule,
        keys: &BTreeMap<String, AttributeValue>,
    ) -> Result<BTreeMap<String, Item>, Failure> {
        self.requests.request().await?;
        {
            let (since, most) = &mut self.state.lock().unwrap().origins_at_once;
            *since += keys.len();
            *most = (*most).max(*since);
        }
        let found = keys.keys().filter_map(|key| Some((key.clone(), self.item(ORIGINS, key)?)));
        Ok(found.collect())
    }

    async fn copies(
        &self,
        _: &CopyRule,
        keys: &BTreeMap<String, Item>,
    ) -> Result<BTreeMap<String, Item>, Failure> {
        self.requests.request().await?;
        self.take_reads(keys.len())?;
        self.state.lock().unwrap().origins_at_once.0 = 0;
        let found = keys.iter().filter_map(|(text, key)| {
            Some((text.clone(), self.item(COPIES, key["line"].as_str()?)?))
        });
        let found: BTreeMap<String, Item> = found.collect();
        let bytes: usize = found.values().map(Item::size).sum();
        let most = &mut self.state.lock().unwrap().copy_bytes_at_once;
        *most = bytes.max(*most);
        Ok(found)
    }

    async fn glimpses(
        &self,
        rule: &CopyRule,
        keys: &BTreeMap<String, Item>,
    ) -> Result<BTreeMap<String, CopyOutline>, Failure> {
        self.requests.request().await?;
        self.take_reads(keys.len())?;
        self.state.lock().unwrap().origins_at_once.0 = 0;
        let found = keys.iter().filter_map(|(text, key)| {
            let copy = self.item(COPIES, key["line"].as_str()?)?;
            Some((text.clone(), CopyOutline::of(rule, copy)))
        });
        Ok(found.collect())
    }

    async fn write(
        &self,
        rule: &CopyRule,
        key: &Item,
        update: &Update,
        guard: &CopyGuard,
    ) -> Result<CopyOutcome, Failure> {
        let fate = self.requests.request().await?;
        if !self.write_time.is_zero() {
            tokio::time::sleep(self.write_time).await;
        }
        let key = key["line"].as_str().unwrap();
        let outcome = {
            let mut state = self.state.lock().unwrap();
            let copy = state.tables.get(COPIES).and_then(|copies| copies.get(key)).cloned();
            let (Update::Set { mark, .. } | Update::Delete { mark }) = update;
            match copy.filter(|copy| holds(rule, copy, mark, guard)) {
                None => CopyOutcome::GuardFailed,
                Some(_) if state.refused.contains(key) => {
                    CopyOutcome::Refused("it would be too large".to_owned())
                }
                Some(mut copy) => {
                    let new = match update {
                        Update::Delete { .. } => None,
                        Update::Set { values, mark } => {
                            for (name, value) in values {
                                match value {
                                    Some(value) => copy.insert(name.clone(), value.clone()),
                                    None => copy.remove(name),
                                };
                            }
                            Some(copy.with(&mark_attribute(&rule.name), mark.text()))
                        }
                    };
                    state.set(COPIES, key, new);
                    CopyOutcome::Written
                }
            }
        };
        self.answer(fate, outcome)
    }

    async fn write_some(
        &self,
        rule: &CopyRule,
        keys: &[Item],
        update: &Update,
    ) -> Vec<Option<CopyOutcome>> {
        if !self.write_time.is_zero() {
            // A table with slow writes answers each copy separately, so that tests need not wait
            // for a whole batch.
            return Vec::new();
        }
        let mut outcomes = Vec::new();
        for key in keys {
            outcomes.push(self.write(rule, key, update, &CopyGuard::of_job(update)).await.ok());
        }
        outcomes
    }

    async fn all(&self, _: &CopyRule, after: Option<&Item>) -> Result<CopyPage, Failure> {
        self.requests.request().await?;
        self.take_reads(0)?;
        let state = self.state.lock().unwrap();
        Ok(InMemoryCopies::page_of(
            state.tables.get(COPIES).into_iter().flat_map(Table::keys),
            after,
            PAGE,
        ))
    }

    async fn part(&self, _: &CopyRule, _: u64) -> Result<SamplePart, Failure> {
        self.requests.request().await?;
        Ok(SamplePart { part: 0, parts: 1 })
    }

    async fn sample(
        &self,
        _: &CopyRule,
        _: SamplePart,
        after: Option<&Item>,
        most: usize,
    ) -> Result<CopyPage, Failure> {
        self.requests.request().await?;
        let mut state = self.state.lock().unwrap();
        match &mut state.pages_left {
            Some(0) => return Err(Failure::Retry("throttled".to_owned())),
            Some(left) => *left -= 1,
            None => {}
        }
        let copies = state.tables.get(COPIES).into_iter().flat_map(Table::keys);
        Ok(InMemoryCopies::page_of(copies, after, most.min(SAMPLE_PAGE)))
    }
}

/// Returns the DynamoDB JSON of an origin's key in these tables.
pub(crate) fn origin_key(number: u64) -> String {
    text(&AttributeValue::N(model::Number::from(number)))
}

/// Returns an origin with this name.
pub(crate) fn product(number: u64, name: &str) -> Item {
    json::item_from_str(&format!(
        r#"{{"productID":{{"N":"{number}"}},"productName":{{"S":"{name}"}}}}"#
    ))
    .unwrap()
}

/// Returns a new copy, as a user creates it.
pub(crate) fn line(key: &str, product: u64) -> Item {
    json::item_from_str(&format!(r#"{{"line":{{"S":"{key}"}},"productID":{{"N":"{product}"}}}}"#))
        .unwrap()
}
