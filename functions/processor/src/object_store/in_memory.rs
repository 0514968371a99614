//! An object store in memory whose requests fail, are delayed and interleave, depending on a seed.
//!
//! For tests. A writer sees only behaviour that S3 may show too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use bytes::Bytes;

use super::{
    ChangeOutcome, ObjectEntry, ObjectMaintenance, ObjectStore, Page, PutOutcome, RemovedVersions,
};
use crate::failure::Failure;

/// Default number of objects in a page of a listing: few, so that a listing has several pages.
const PAGE_OBJECTS: usize = 7;

/// Percentages of requests that fail in each way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Requests that fail without effect.
    pub(crate) lost: u64,
    /// Puts that take effect, but fail.
    pub(crate) unanswered: u64,
    /// Puts, replacements and removals that are answered with 409, without effect.
    pub(crate) contended: u64,
    /// True if an empty page precedes each page of a listing. Applies to all requests.
    pub(crate) empty_pages: bool,
    /// Objects in a page of a listing; 0 means the default. Applies to all requests.
    pub(crate) page_objects: usize,
}

impl Faults {
    /// Returns whether a request with this random number, which was not lost, is answered with 409.
    fn is_contended(self, fate: u64) -> bool {
        (self.unanswered..self.unanswered + self.contended).contains(&fate)
    }
}

#[derive(Debug)]
struct Object {
    content: Bytes,
    tag: u64,
    written_seconds: u64,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Object>,
    /// Noncurrent versions of objects, as a versioned bucket keeps them.
    earlier: Vec<(String, Bytes)>,
    now_seconds: u64,
    random: u64,
    missing_bucket: bool,
    /// The names and content sizes of all puts and replacements, including those without effect.
    sent: Vec<(String, usize)>,
    /// Number of gets.
    gets: usize,
    /// Number of gets in flight. The next field is the maximum so far.
    gets_under_way: usize,
    gets_at_once: usize,
    /// Objects whose next change has no effect and returns [`ChangeOutcome::Stale`].
    refused: BTreeSet<String>,
    /// Listings of names with this prefix fail.
    unlisted: Option<String>,
    /// Prefixes and positions of pages that were returned empty. The next request for one of these
    /// pages returns its objects.
    returned_empty: BTreeSet<(String, String)>,
}

/// An object store in memory.
#[derive(Debug, Default)]
pub(crate) struct InMemoryObjectStore {
    state: Mutex<State>,
    faults: Faults,
}

impl InMemoryObjectStore {
    pub(crate) fn with_faults(seed: u64, faults: Faults) -> Self {
        let state = State { random: seed, ..State::default() };
        Self { state: Mutex::new(state), faults }
    }

    pub(crate) fn objects(&self) -> BTreeMap<String, Bytes> {
        let state = self.state.lock().unwrap();
        let objects = state.objects.iter();
        objects.map(|(name, object)| (name.clone(), object.content.clone())).collect()
    }

    /// Returns the noncurrent versions in the bucket.
    pub(crate) fn earlier(&self) -> Vec<(String, Bytes)> {
        self.state.lock().unwrap().earlier.clone()
    }

    /// Returns the names and content sizes of all puts and replacements of objects with this
    /// prefix, including those without effect.
    pub(crate) fn sent(&self, prefix: &str) -> Vec<(String, usize)> {
        let mut sent = self.state.lock().unwrap().sent.clone();
        sent.retain(|(name, _)| name.starts_with(prefix));
        sent
    }

    /// Returns the time of the store's clock, in seconds since 1970.
    pub(crate) fn now_seconds(&self) -> u64 {
        self.state.lock().unwrap().now_seconds
    }

    pub(crate) fn pass_seconds(&self, seconds: u64) {
        self.state.lock().unwrap().now_seconds += seconds;
    }

    /// Returns the number of gets so far.
    pub(crate) fn gets(&self) -> usize {
        self.state.lock().unwrap().gets
    }

    pub(crate) fn forget_gets_at_once(&self) {
        self.state.lock().unwrap().gets_at_once = 0;
    }

    /// Returns the maximum of concurrent gets.
    pub(crate) fn gets_at_once(&self) -> usize {
        self.state.lock().unwrap().gets_at_once
    }

    pub(crate) fn lose_bucket(&self) {
        self.state.lock().unwrap().missing_bucket = true;
    }

    /// Makes listings of names with this prefix fail; with `None`, listings succeed again.
    pub(crate) fn refuse_listings(&self, prefix: Option<&str>) {
        self.state.lock().unwrap().unlisted = prefix.map(str::to_owned);
    }

    /// Answers the next change of this object as if another request had changed the object.
    pub(crate) fn refuse_once(&self, name: &str) {
        self.state.lock().unwrap().refused.insert(name.to_owned());
    }

    /// Fails if the random number `fate` selects a conflict with another request.
    fn conflict(&self, fate: u64) -> Result<(), Failure> {
        if self.faults.is_contended(fate) {
            return Err(Failure::Retry("409 ConditionalRequestConflict".to_owned()));
        }
        Ok(())
    }

    /// Lets other tasks run for a while. Then fails, or returns a random number that determines the
    /// outcome of the request.
    async fn request(&self) -> Result<u64, Failure> {
        for _ in 0..self.random() % 4 {
            tokio::task::yield_now().await;
        }
        if self.state.lock().unwrap().missing_bucket {
            return Err(Failure::Fatal("bucket=`b` does not exist".to_owned()));
        }
        let fate = self.random() % 100;
        if fate < self.faults.lost {
            return Err(Failure::Retry("503 SlowDown".to_owned()));
        }
        Ok(fate - self.faults.lost)
    }

    fn random(&self) -> u64 {
        let mut state = self.state.lock().unwrap();
        state.random = state
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state.random >> 33
    }
}

/// Counts a get that is in flight, until it ends or is cancelled.
struct Get<'s>(&'s Mutex<State>);

impl<'s> Get<'s> {
    fn begin(store: &'s Mutex<State>) -> Self {
        let mut state = store.lock().unwrap();
        state.gets_under_way += 1;
        state.gets_at_once = state.gets_at_once.max(state.gets_under_way);
        Self(store)
    }
}

impl Drop for Get<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap().gets_under_way -= 1;
    }
}

impl State {
    fn put(&mut self, name: &str, content: Bytes) -> u64 {
        let tag = self.random;
        let object = Object { content, tag, written_seconds: self.now_seconds };
        let before = self.objects.insert(name.to_owned(), object);
        self.keep(name, before);
        tag
    }

    fn keep(&mut self, name: &str, before: Option<Object>) {
        self.earlier.extend(before.map(|object| (name.to_owned(), object.content)));
    }

    fn may_change(&mut self, name: &str, entity_tag: &str) -> bool {
        !self.refused.remove(name)
            && self.objects.get(name).is_some_and(|object| object.tag.to_string() == entity_tag)
    }
}

impl ObjectMaintenance for InMemoryObjectStore {
    async fn replace(
        &self,
        name: &str,
        entity_tag: &str,
        content: Bytes,
        _content_type: &str,
    ) -> Result<ChangeOutcome, Failure> {
        self.state.lock().unwrap().sent.push((name.to_owned(), content.len()));
        let fate = self.request().await?;
        self.conflict(fate)?;
        {
            let mut state = self.state.lock().unwrap();
            if !state.may_change(name, entity_tag) {
                return Ok(ChangeOutcome::Stale);
            }
            state.put(name, content);
        }
        if fate < self.faults.unanswered {
            return Err(Failure::Retry("timed out".to_owned()));
        }
        Ok(ChangeOutcome::Changed)
    }

    async fn remove(&self, name: &str, entity_tag: &str) -> Result<ChangeOutcome, Failure> {
        let fate = self.request().await?;
        self.conflict(fate)?;
        {
            let mut state = self.state.lock().unwrap();
            if !state.may_change(name, entity_tag) {
                return Ok(ChangeOutcome::Stale);
            }
            let before = state.objects.remove(name);
            state.keep(name, before);
        }
        if fate < self.faults.unanswered {
            return Err(Failure::Retry("timed out".to_owned()));
        }
        Ok(ChangeOutcome::Changed)
    }

    async fn forget_earlier(&self, prefix: &str, after: &str) -> Result<RemovedVersions, Failure> {
        self.request().await?;
        let mut state = self.state.lock().unwrap();
        let is_meant = |name: &String| name.starts_with(prefix) && name.as_str() > after;
        let names = state.earlier.iter().map(|(name, _)| name).filter(|name| is_meant(name));
        let Some(first) = names.min().cloned() else { return Ok(RemovedVersions::default()) };
        let before = state.earlier.len();
        state.earlier.retain(|(name, _)| *name != first);
        Ok(RemovedVersions { contents: before - state.earlier.len(), after: Some(first) })
    }
}

impl ObjectStore for InMemoryObjectStore {
    async fn page(&self, prefix: &str, after: &str) -> Result<Page, Failure> {
        self.request().await?;
        let mut state = self.state.lock().unwrap();
        if state.unlisted.as_ref().is_some_and(|unlisted| prefix.starts_with(unlisted)) {
            return Err(Failure::Retry("503 SlowDown".to_owned()));
        }
        let place = (prefix.to_owned(), after.to_owned());
        if self.faults.empty_pages && !state.returned_empty.remove(&place) {
            state.returned_empty.insert(place);
            return Ok(Page { entries: Vec::new(), after: Some(after.to_owned()) });
        }
        let page_objects = match self.faults.page_objects {
            0 => PAGE_OBJECTS,
            page_objects => page_objects,
        };
        let named = state.objects.iter().filter(|(name, _)| name.starts_with(prefix));
        let mut entries: Vec<ObjectEntry> = named
            .filter(|(name, _)| name.as_str() > after)
            .take(page_objects + 1)
            .map(|(name, object)| ObjectEntry {
                name: name.clone(),
                entity_tag: object.tag.to_string(),
                bytes: object.content.len() as u64,
                written_seconds: object.written_seconds,
            })
            .collect();
        let is_last = entries.len() <= page_objects;
        entries.truncate(page_objects);
        let last = entries.last().filter(|_| !is_last).map(|entry| entry.name.clone());
        Ok(Page { entries, after: last })
    }

    async fn folders(&self, prefix: &str) -> Result<Vec<String>, Failure> {
        self.request().await?;
        let state = self.state.lock().unwrap();
        let folders = state.objects.keys().filter_map(|name| {
            let (folder, _) = name.strip_prefix(prefix)?.split_once('/')?;
            Some(format!("{folder}/"))
        });
        Ok(folders.collect::<BTreeSet<String>>().into_iter().collect())
    }

    async fn get(&self, name: &str) -> Result<Option<Bytes>, Failure> {
        let under_way = Get::begin(&self.state);
        self.request().await?;
        drop(under_way);
        let mut state = self.state.lock().unwrap();
        state.gets += 1;
        Ok(state.objects.get(name).map(|object| object.content.clone()))
    }

    async fn put_if_absent(
        &self,
        name: &str,
        content: Bytes,
        _content_type: &str,
    ) -> Result<PutOutcome, Failure> {
        self.state.lock().unwrap().sent.push((name.to_owned(), content.len()));
        let fate = self.request().await?;
        let outcome = {
            let mut state = self.state.lock().unwrap();
            if state.objects.contains_key(name) {
                PutOutcome::Exists
            } else if self.faults.is_contended(fate) {
                PutOutcome::Contended
            } else {
                let tag = state.put(name, content);
                PutOutcome::Created { entity_tag: Some(tag.to_string()) }
            }
        };
        if fate < self.faults.unanswered {
            return Err(Failure::Retry("timed out".to_owned()));
        }
        Ok(outcome)
    }
}
