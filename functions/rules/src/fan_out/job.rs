//! Jobs: the latest known state of an origin, and the progress of its copies.
//!
//! This module converts a job from and to its item. The processor executes the jobs.

use std::collections::BTreeMap;

use model::limits::{ITEM_BYTES_MAX, NESTING_LEVELS_MAX};
use model::{AttributeValue, Item, Number};
use thiserror::Error;

use super::{JOB_DONE, JOB_KEY, JOB_REVISION, Origin, OriginState};
use crate::rule::Refusal;

const STAMP: &str = "stamp";
const HOPS: &str = "hops";
const VALUES: &str = "values";
const ABSENT: &str = "absent";
const DELETED: &str = "deleted";
const GONE_AT: &str = "gone_at";
const EXPIRES_AT: &str = "expires_at";
const CURSOR: &str = "cursor";
const COPIES: &str = "copies";
const REFUSED: &str = "refused";

/// The time in seconds for which the job of a deleted origin is kept after its last copy was visited. It
/// is longer than the delay of any record of the origin or of a copy: a stream keeps records for a day,
/// and discarded batches are redriven within days. A total without slots is kept for the same time.
const KEPT_SECONDS: u64 = 7 * 24 * 3600;

/// The number of bytes by which a job may grow while it is in progress. The cursor has a primary key and
/// an index key. Each has up to 2 KB and 1 KB for its values, and 255 bytes for each name. Numbers may
/// get more digits.
const GROWTH_BYTES_MAX: usize = 8 * 1024;

/// An item of the jobs table that cannot be parsed, because another program wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "damaged job `{key}`: {what}; delete the job, then update the origin so that its copies are written again"
)]
pub struct DamagedJob {
    key: String,
    what: String,
}

/// The progress of one fan-out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The state that the copies must have.
    pub state: OriginState,
    /// The copy after which the next page of the index begins; `None` for the first page.
    pub cursor: Option<Item>,
    /// Whether every copy was visited.
    pub done: bool,
    /// The number of copies that were written.
    pub copies: u64,
    /// The number of copies that were not written because DynamoDB rejects the resulting item.
    pub refused: u64,
    /// The number of writes of the job. The next write is conditional on it.
    pub revision: u64,
}

impl Job {
    /// Returns a new job for a new state of an origin. It replaces the previous job.
    #[must_use]
    pub fn begin(state: OriginState, before: Option<&Self>) -> Self {
        let revision = before.map_or(0, |job| job.revision) + 1;
        Self { state, cursor: None, done: false, copies: 0, refused: 0, revision }
    }

    /// Checks that the jobs table can store the state of an origin until the job ends. In the job's
    /// item, the values are members of a map: one level deeper than in the origin, and together with
    /// the job's own attributes.
    ///
    /// # Errors
    /// The reason why the job cannot be stored.
    pub(super) fn check(state: &OriginState, origin: &Origin) -> Result<(), Refusal> {
        if !origin.fits() {
            return Err(origin.unfit());
        }
        let Origin { rule, key } = origin;
        let size = Self::begin(state.clone(), None).to_item(origin).size() + GROWTH_BYTES_MAX;
        if size > ITEM_BYTES_MAX {
            return Err(Refusal(format!(
                "rule `{rule}`: the copied attributes of the origin {key} are too large: its job would take {size} bytes, more than {ITEM_BYTES_MAX}; copy fewer or smaller attributes"
            )));
        }
        let mut values = state.values.iter().filter_map(|(to, value)| Some((to, value.as_ref()?)));
        match values.find(|(_, value)| value.nesting_levels() >= NESTING_LEVELS_MAX) {
            None => Ok(()),
            Some((to, value)) => Err(Refusal(format!(
                "rule `{rule}`: the value for `{to}` of the origin {key} is nested {} levels deep; its job would be deeper than {NESTING_LEVELS_MAX}; copy a value with at most {} levels",
                value.nesting_levels(),
                NESTING_LEVELS_MAX - 1
            ))),
        }
    }

    /// Returns the time at which TTL deletes the job and its values, in seconds since 1970. Returns
    /// `None` for a job in progress. Also returns `None` for the job of an existing origin, because
    /// that job has no data that the origin lacks.
    #[must_use]
    pub fn expires_at(&self) -> Option<u64> {
        let gone_at = self.state.gone_at.filter(|_| self.done && self.state.deleted)?;
        Some(gone_at.saturating_add(KEPT_SECONDS))
    }

    /// Returns the item of the job.
    #[must_use]
    pub fn to_item(&self, origin: &Origin) -> Item {
        let mut item = Item::new()
            .with(JOB_KEY, origin.job_key())
            .with(JOB_REVISION, Number::from(self.revision))
            .with(STAMP, self.state.stamp.as_str())
            .with(HOPS, Number::from(u64::from(self.state.hops)))
            .with(COPIES, Number::from(self.copies))
            .with(REFUSED, Number::from(self.refused));
        item.insert(JOB_DONE.to_owned(), AttributeValue::Bool(self.done));
        item.insert(DELETED.to_owned(), AttributeValue::Bool(self.state.deleted));
        let (mut values, mut absent) = (BTreeMap::new(), Vec::new());
        for (name, value) in &self.state.values {
            match value {
                Some(value) => drop(values.insert(name.clone(), value.clone())),
                None => absent.push(AttributeValue::from(name.as_str())),
            }
        }
        item.insert(VALUES.to_owned(), AttributeValue::M(values));
        item.insert(ABSENT.to_owned(), AttributeValue::L(absent));
        for (name, seconds) in [(GONE_AT, self.state.gone_at), (EXPIRES_AT, self.expires_at())] {
            item.extend(
                seconds.map(|seconds| (name.to_owned(), AttributeValue::N(Number::from(seconds)))),
            );
        }
        if let Some(cursor) = &self.cursor {
            item.insert(CURSOR.to_owned(), AttributeValue::M(cursor.0.clone()));
        }
        item
    }

    /// Parses the item of [`Job::to_item`].
    ///
    /// # Errors
    /// Another program wrote the item; the operator must examine it.
    pub fn from_item(item: &Item) -> Result<Self, DamagedJob> {
        let damaged = |what: &str| {
            let key = item.get(JOB_KEY).and_then(AttributeValue::as_str).unwrap_or_default();
            DamagedJob { key: key.to_owned(), what: what.to_owned() }
        };
        let number = |name: &str| item.get(name)?.as_number()?.to_u64();
        let flag = |name: &str| match item.get(name) {
            Some(AttributeValue::Bool(flag)) => Ok(*flag),
            _ => Err(damaged(name)),
        };
        let stamp = item.get(STAMP).and_then(AttributeValue::as_str);
        let stamp = stamp.and_then(|text| text.parse().ok()).ok_or_else(|| damaged(STAMP))?;
        let hops = number(HOPS).and_then(|hops| u32::try_from(hops).ok());
        let values = item.get(VALUES).and_then(AttributeValue::as_map);
        let values = values.ok_or_else(|| damaged(VALUES))?;
        let mut values: BTreeMap<String, Option<AttributeValue>> =
            values.iter().map(|(name, value)| (name.clone(), Some(value.clone()))).collect();
        match item.get(ABSENT) {
            Some(AttributeValue::L(names)) => values
                .extend(names.iter().filter_map(|name| Some((name.as_str()?.to_owned(), None)))),
            _ => return Err(damaged(ABSENT)),
        }
        let cursor = item.get(CURSOR).map(|cursor| cursor.as_map().ok_or_else(|| damaged(CURSOR)));
        Ok(Self {
            state: OriginState {
                stamp,
                hops: hops.ok_or_else(|| damaged(HOPS))?,
                values,
                deleted: flag(DELETED)?,
                // Jobs of earlier releases lack this attribute. They expire only after they are
                // written again.
                gone_at: number(GONE_AT),
            },
            cursor: cursor.transpose()?.map(|cursor| Item(cursor.clone())),
            done: flag(JOB_DONE)?,
            copies: number(COPIES).ok_or_else(|| damaged(COPIES))?,
            // Jobs of earlier releases lack this attribute.
            refused: number(REFUSED).unwrap_or(0),
            revision: number(JOB_REVISION).ok_or_else(|| damaged(JOB_REVISION))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::Stamp;

    /// Goal: the largest accepted job fits into an item together with the largest cursor and the
    /// largest numbers.
    #[test]
    fn a_job_has_room_for_its_cursor() {
        let origin = Origin { rule: "r".to_owned(), key: r#"{"S":"a"}"#.to_owned() };
        let state = |bytes: usize| {
            let values = [("a".to_owned(), Some("x".repeat(bytes).into()))].into();
            OriginState { stamp: Stamp::lowest(), hops: 2, values, deleted: false, gone_at: None }
        };
        let largest = (401_000..ITEM_BYTES_MAX).rev();
        let largest = largest.map(state).find(|state| Job::check(state, &origin).is_ok()).unwrap();
        let name = |first: char| format!("{first}{}", "n".repeat(254));
        let cursor = [('p', 2048), ('s', 1024), ('i', 2048)].into_iter();
        let sort = ['a', 'b', 'c', 'd'].map(|first| (first, 256)).into_iter();
        let cursor = cursor.chain(sort);
        let cursor: Item =
            cursor.map(|(first, bytes)| (name(first), "x".repeat(bytes).into())).collect();
        let mut job = Job::begin(largest, None);
        job.cursor = Some(cursor);
        (job.copies, job.refused, job.revision) = (u64::MAX, u64::MAX, u64::MAX);
        assert!(job.to_item(&origin).size() <= ITEM_BYTES_MAX);
    }

    #[test]
    fn items_round_trip() {
        let origin = Origin { rule: "r".to_owned(), key: r#"{"S":"a#b"}"#.to_owned() };
        let values =
            BTreeMap::from([("a".to_owned(), Some(AttributeValue::Null)), ("b".to_owned(), None)]);
        let stamp = Stamp::lowest();
        let state = OriginState { stamp, hops: 2, values, deleted: false, gone_at: None };
        let mut job = Job::begin(state.clone(), None);
        (job.cursor, job.refused) = (Some(Item::new().with("k", "v")), 3);
        assert_eq!(Job::from_item(&job.to_item(&origin)), Ok(job.clone()));
        let gone = OriginState { deleted: true, gone_at: Some(1_000), ..state };
        let mut gone = Job::begin(gone, Some(&job));
        assert_eq!(gone.revision, 2);
        for (done, expires_at) in [(false, None), (true, Some(1_000 + KEPT_SECONDS))] {
            gone.done = done;
            let item = gone.to_item(&origin);
            let seconds = item.get(EXPIRES_AT).and_then(AttributeValue::as_number);
            assert_eq!(seconds.and_then(|seconds| seconds.to_u64()), expires_at);
            assert_eq!(Job::from_item(&item), Ok(gone.clone()));
        }
        assert!(Job::from_item(&Item::new().with(JOB_KEY, "x")).is_err());
        assert_eq!(Origin::from_job_key(&origin.job_key()), Some(origin));
    }
}
