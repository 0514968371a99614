//! The control table: which migrations are active, their plans, and the tasks of their workers.
//!
//! Every item has the keys `migration` and `entry`. What an entry is for is in
//! `docs/formats/control.md`. Nothing is decided here.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use model::{AttributeValue, Item, Number};
use rules::migration::plan::{LAG_FRESH_SECONDS, LAG_SECONDS_MAX};
use rules::migration::{Direction, note_of};

use super::server_date::ServerDate;
use super::throttling::Throttling;
use crate::failure::Failure;
use crate::settings::CONTROL_TABLE;
use crate::tables::attribute_value::{from_sdk_item, to_sdk, to_sdk_item};
use crate::tables::dynamodb::request_failure;

/// The partition key of what belongs to no single migration.
const ALL: &str = "*";
/// What the entries of tasks begin with.
pub(crate) const TASK_PREFIX: &str = "TASK#";
/// Those of the backfill, which is the first run of a migration.
pub(crate) const BACKFILL_PREFIX: &str = "TASK#0#";
/// Items per second that the worker of a task may read.
pub(crate) const SHARE: &str = "share";

/// The control table.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    pub(crate) client: Client,
    table: String,
    date: ServerDate,
    pub(super) throttling: Throttling,
}

/// How far a stream is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lag {
    pub(crate) seconds: u64,
    /// The second, since 1970, in which that was so.
    pub(crate) at: u64,
}

impl Lag {
    /// Whether a backfill has to wait for it.
    pub(crate) fn is_too_long(self, now: u64) -> bool {
        self.seconds > LAG_SECONDS_MAX && self.at + LAG_FRESH_SECONDS >= now
    }
}

/// A migration that is to be carried out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Active {
    pub(crate) migration: String,
    pub(crate) direction: Direction,
    pub(crate) fingerprint: String,
    /// The second, since 1970, up to which stream records say nothing.
    pub(crate) since: Option<u64>,
}

pub(super) fn direction_of(text: &str) -> Option<Direction> {
    match text {
        "forward" => Some(Direction::Forward),
        "reverse" => Some(Direction::Reverse),
        _ => None,
    }
}

impl Control {
    /// The control table; `throttling` is what `client` tells of its attempts.
    pub(crate) fn new(client: Client, table: String, throttling: Throttling) -> Self {
        Self { client, table, date: ServerDate::default(), throttling }
    }

    /// DynamoDB's time in seconds since 1970; none before the first entry was read.
    pub(crate) fn now(&self) -> Option<u64> {
        self.date.seconds()
    }

    /// The table's name.
    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    /// Reads an entry, strongly consistent.
    pub(crate) async fn get(&self, migration: &str, entry: &str) -> Result<Option<Item>, Failure> {
        let request = self
            .client
            .get_item()
            .table_name(&self.table)
            .set_key(Some(key(migration, entry)))
            .consistent_read(true);
        // In a box: futures that lie in one another become too deep for the compiler.
        let sending = Box::pin(request.customize().interceptor(self.date.clone()).send());
        let answer = sending
            .await
            .map_err(|error| request_failure("GetItem", &self.table, CONTROL_TABLE, &error))?;
        answer.item.map(from_sdk_item).transpose()
    }

    /// Reads all tasks of a migration, strongly consistent.
    ///
    /// # Errors
    /// When the control table cannot be read.
    pub(crate) async fn tasks(&self, migration: &str) -> Result<Vec<Task>, Failure> {
        let mut pages = self
            .client
            .query()
            .table_name(&self.table)
            .consistent_read(true)
            .key_condition_expression("#m = :m AND begins_with(#e, :e)")
            .expression_attribute_names("#m", "migration")
            .expression_attribute_names("#e", "entry")
            .expression_attribute_values(":m", SdkValue::S(migration.to_owned()))
            .expression_attribute_values(":e", SdkValue::S(TASK_PREFIX.to_owned()))
            .into_paginator()
            .items()
            .send();
        let mut tasks = Vec::new();
        while let Some(item) = Box::pin(pages.next()).await {
            let item =
                item.map_err(|error| request_failure("Query", &self.table, CONTROL_TABLE, &error))?;
            tasks.extend(Task::from_item(&from_sdk_item(item)?));
        }
        Ok(tasks)
    }

    /// The migrations that are active now. A batch whose invocation reads this after a migration
    /// was made active is part of that migration; what an earlier invocation passed over was
    /// written before, and the backfill reads it.
    pub(crate) async fn active(&self) -> Result<Vec<Active>, Failure> {
        let item = self.get(ALL, "ACTIVE").await?.unwrap_or_default();
        let active = item.get("active").and_then(AttributeValue::as_map);
        let active = active.into_iter().flatten().map(|(migration, members)| {
            let members = members.as_map()?;
            let direction = direction_of(members.get("direction")?.as_str()?)?;
            let since = members.get("since").and_then(AttributeValue::as_number);
            let since = since.and_then(|since| since.to_u64());
            let fingerprint = members.get("fingerprint")?.as_str()?.to_owned();
            Some(Active { migration: migration.clone(), direction, fingerprint, since })
        });
        active.collect::<Option<_>>().ok_or_else(|| {
            Failure::Fatal(format!("table=`{}` has a damaged entry `ACTIVE`", self.table))
        })
    }

    /// Replaces an entry if its revision is still `revision`; 0 stands for an entry that is not
    /// there. Answers whether it was.
    pub(crate) async fn replace(&self, item: &Item, revision: u64) -> Result<bool, Failure> {
        let request =
            self.client.put_item().table_name(&self.table).set_item(Some(to_sdk_item(item)));
        let request = if revision == 0 {
            request.condition_expression("attribute_not_exists(#guard)")
        } else {
            request
                .condition_expression("#guard = :guard")
                .expression_attribute_values(":guard", SdkValue::N(revision.to_string()))
        };
        match request.expression_attribute_names("#guard", "revision").send().await {
            Ok(_) => Ok(true),
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(|error| error.is_conditional_check_failed_exception()) =>
            {
                Ok(false)
            }
            Err(error) => Err(request_failure("PutItem", &self.table, CONTROL_TABLE, &error)),
        }
    }

    /// Notes a tombstone before it is written, so that it is found again when it is no longer
    /// needed. A note without a tombstone does no harm.
    pub(crate) async fn note_tombstone(
        &self,
        migration: &str,
        table: &str,
        key_text: &str,
        stamp: &str,
    ) -> Result<(), Failure> {
        let (partition, entry) = note_of(migration, table, key_text);
        let members = [("table", table), ("key", key_text), ("at", stamp)];
        self.note(&partition, &entry, &members).await
    }

    /// Notes something that a person must look at: two source items for one target, or an item
    /// that stood there before.
    pub(crate) async fn note_problem(
        &self,
        migration: &str,
        kind: &str,
        table: &str,
        key_text: &str,
        reason: &str,
    ) -> Result<(), Failure> {
        let hash = xxhash_rust::xxh3::xxh3_128(key_text.as_bytes());
        let members = [("table", table), ("key", key_text), ("reason", reason)];
        let entry = format!("PROBLEM#{kind}#{table}#{hash:032x}");
        let mut item = noted(migration, &entry, &members);
        // A comparison that finds nothing removes the notes from before it.
        if let Some(now) = self.now() {
            item.insert("at".to_owned(), SdkValue::N(now.to_string()));
        }
        self.put(item).await
    }

    /// Notes how many seconds the stream of a table is behind, as of a second since 1970.
    pub(crate) async fn note_lag(&self, table: &str, lag: Lag) -> Result<(), Failure> {
        let mut item = key(ALL, &format!("LAG#{table}"));
        item.insert("seconds".to_owned(), SdkValue::N(lag.seconds.to_string()));
        item.insert("at".to_owned(), SdkValue::N(lag.at.to_string()));
        self.put(item).await
    }

    /// Notes why requests on a table are throttled, as of a second since 1970.
    pub(crate) async fn note_throttling(
        &self,
        entry: &str,
        why: &str,
        at: u64,
    ) -> Result<(), Failure> {
        let mut item = key(ALL, entry);
        item.insert("reason".to_owned(), SdkValue::S(why.to_owned()));
        item.insert("at".to_owned(), SdkValue::N(at.to_string()));
        self.put(item).await
    }

    /// Writes a note that says nothing but when it was written, as a second since 1970.
    pub(crate) async fn note_time(&self, entry: &str, at: u64) -> Result<(), Failure> {
        let mut item = key(ALL, entry);
        item.insert("at".to_owned(), SdkValue::N(at.to_string()));
        self.put(item).await
    }

    /// What was noted last of how far the stream of a table is behind.
    pub(crate) async fn lag(&self, table: &str) -> Result<Option<Lag>, Failure> {
        let Some(item) = self.get(ALL, &format!("LAG#{table}")).await? else { return Ok(None) };
        let number = |name: &str| item.get(name)?.as_number()?.to_u64();
        Ok(number("seconds").zip(number("at")).map(|(seconds, at)| Lag { seconds, at }))
    }

    async fn note(
        &self,
        migration: &str,
        entry: &str,
        members: &[(&str, &str)],
    ) -> Result<(), Failure> {
        self.put(noted(migration, entry, members)).await
    }

    async fn put(&self, item: HashMap<String, SdkValue>) -> Result<(), Failure> {
        let request = self.client.put_item().table_name(&self.table).set_item(Some(item));
        let sent = request.send().await;
        sent.map(drop)
            .map_err(|error| request_failure("PutItem", &self.table, CONTROL_TABLE, &error))
    }
}

/// An entry with texts.
fn noted(migration: &str, entry: &str, members: &[(&str, &str)]) -> HashMap<String, SdkValue> {
    let mut item = key(migration, entry);
    let members = members.iter();
    item.extend(members.map(|(name, text)| ((*name).to_owned(), SdkValue::S((*text).to_owned()))));
    item
}

fn key(migration: &str, entry: &str) -> HashMap<String, SdkValue> {
    HashMap::from([
        ("migration".to_owned(), SdkValue::S(migration.to_owned())),
        ("entry".to_owned(), SdkValue::S(entry.to_owned())),
    ])
}

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Reads a segment of a source table and states what its items become.
    Backfill,
    /// Reads a segment of a source table and has each of its items come through the stream.
    Touch,
    /// Compares what a segment of a source table becomes with the targets.
    CheckSource,
    /// Looks in a segment of a target table for items that no source has.
    CheckTarget,
    /// Takes the marks off the items of a segment of a target table, or of a source table whose items were
    /// touched.
    Unmark,
}

impl Work {
    fn from_text(text: &str) -> Option<Self> {
        Some(match text {
            "backfill" => Self::Backfill,
            "touch" => Self::Touch,
            "check-source" => Self::CheckSource,
            "check-target" => Self::CheckTarget,
            "unmark" => Self::Unmark,
            _ => return None,
        })
    }
}

/// A task: one segment of one table, worked on in slices of time. Its entry is
/// `TASK#<run>#<work>#<table>#<segment>`.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) item: Item,
    pub(crate) migration: String,
    pub(crate) work: Work,
    pub(crate) table: String,
    /// Which way its migration runs; forward unless the entry says otherwise.
    pub(crate) direction: Direction,
    pub(crate) segment: i32,
    pub(crate) segments: i32,
    pub(crate) fingerprint: String,
    /// The key after which the scan goes on.
    pub(crate) cursor: Option<Item>,
    pub(crate) done: bool,
    /// Whether differences are to be repaired.
    pub(crate) repairs: bool,
    /// The number of the check, part of the stamps of its repairs.
    pub(crate) run: u64,
    pub(crate) revision: u64,
    pub(crate) owner: Option<String>,
    /// Milliseconds since 1970 until when the owner has it for itself.
    pub(crate) leased_until: u64,
    /// Items of a page at most, if a page was too much for an invocation.
    pub(crate) page: Option<i32>,
    /// Attempts in a row that came to nothing.
    pub(crate) failed: u64,
    /// Items per second that its worker may read, if the migration has a rate.
    pub(crate) share: Option<u64>,
}

impl Task {
    /// Reads an entry; none if it is no task.
    pub(crate) fn from_item(item: &Item) -> Option<Self> {
        let text = |name: &str| item.get(name).and_then(AttributeValue::as_str);
        let number = |name: &str| item.get(name)?.as_number()?.to_u64();
        let flag = |name: &str| item.get(name) == Some(&AttributeValue::Bool(true));
        Some(Self {
            item: item.clone(),
            migration: text("migration")?.to_owned(),
            work: Work::from_text(text("work")?)?,
            table: text("table")?.to_owned(),
            direction: text("direction").map_or(Some(Direction::Forward), direction_of)?,
            segment: i32::try_from(number("segment")?).ok()?,
            segments: i32::try_from(number("segments")?).ok()?,
            fingerprint: text("fingerprint")?.to_owned(),
            cursor: item.get("cursor").and_then(AttributeValue::as_map).cloned().map(Item),
            done: flag("done"),
            repairs: flag("repairs"),
            run: number("run").unwrap_or(0),
            revision: number("revision")?,
            owner: text("owner").map(str::to_owned),
            leased_until: number("leased_until").unwrap_or(0),
            page: number("page").and_then(|items| i32::try_from(items).ok()),
            failed: number("failed").unwrap_or(0),
            share: number(SHARE),
        })
    }

    /// The name of its entry.
    pub(crate) fn entry(&self) -> &str {
        self.item.get("entry").and_then(AttributeValue::as_str).unwrap_or_default()
    }

    /// The task as it is to be written next, one revision later.
    pub(crate) fn next(&self, change: impl FnOnce(&mut Item)) -> Item {
        let mut item = self.item.clone();
        change(&mut item);
        item.insert("revision".to_owned(), AttributeValue::N(Number::from(self.revision + 1)));
        item
    }
}

/// Counts by name, and a few samples, as tasks report them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) counts: BTreeMap<&'static str, u64>,
    pub(crate) samples: Vec<String>,
}

/// Samples that a task keeps: enough to see what is wrong.
const SAMPLES_MAX: usize = 5;
/// Characters of a sample at most.
const SAMPLE_CHARACTERS_MAX: usize = 500;

impl Tally {
    pub(crate) fn count(&mut self, name: &'static str, more: usize) {
        *self.counts.entry(name).or_default() += more as u64;
    }

    /// Counts a thing that a person may want to look at.
    pub(crate) fn sample(&mut self, name: &'static str, text: &str) {
        self.count(name, 1);
        if self.samples.len() < SAMPLES_MAX {
            self.samples
                .push(format!("{name}: {text}").chars().take(SAMPLE_CHARACTERS_MAX).collect());
        }
    }

    /// Adds what another tally counted.
    pub(crate) fn join(&mut self, more: Self) {
        for (name, count) in more.counts {
            *self.counts.entry(name).or_default() += count;
        }
        self.samples.extend(more.samples);
        self.samples.truncate(SAMPLES_MAX);
    }

    /// Adds these counts to those of a task's entry.
    pub(crate) fn add_to(&self, item: &mut Item) {
        let counts = item.remove("counts");
        let mut counts =
            counts.as_ref().and_then(AttributeValue::as_map).cloned().unwrap_or_default();
        for (name, more) in &self.counts {
            let known = counts.get(*name).and_then(AttributeValue::as_number);
            let sum = known.and_then(|number| number.to_u64()).unwrap_or(0) + more;
            counts.insert((*name).to_owned(), AttributeValue::N(Number::from(sum)));
        }
        item.insert("counts".to_owned(), AttributeValue::M(counts));
        let mut samples = match item.remove("samples") {
            Some(AttributeValue::L(samples)) => samples,
            _ => Vec::new(),
        };
        samples.extend(self.samples.iter().map(|text| AttributeValue::from(text.as_str())));
        samples.truncate(SAMPLES_MAX);
        item.insert("samples".to_owned(), AttributeValue::L(samples));
    }
}

/// A value for the SDK.
pub(crate) fn sdk(value: &AttributeValue) -> SdkValue {
    to_sdk(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backfill_waits_for_a_stream_that_is_behind_now() {
        for (seconds, at, waits) in
            [(60, 1_000, false), (61, 1_000, true), (61, 970, true), (3_600, 969, false)]
        {
            assert_eq!(Lag { seconds, at }.is_too_long(1_000), waits, "{seconds} {at}");
        }
    }
}
