//! Writes rows in parallel and keeps the order of lines with the same key: a key always uses the
//! same lane, and a lane has one request at a time.
//!
//! Failed requests are retried, even if the store may have applied them: a put is idempotent, and
//! the store rejects a line that is already counted (see `mark`). A line that the store rejects for
//! another reason is put aside. A count ends if the store is unavailable for 20 seconds, because
//! the slot's mark must not move past an uncounted line.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::Builder;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{PutRequest, ReturnValuesOnConditionCheckFailure, WriteRequest};
use indicatif::ProgressBar;
use model::limits::BATCH_WRITE_ITEMS_MAX;
use model::{AttributeValue, KeyAttributeType, KeyValue, Number, Token};
use tokio::sync::mpsc;

use super::counting::{Counting, SlotUpdate};
use super::mark;
use super::put_aside::PutAside;
use super::row::{BadLine, Row, value_text};
use super::source::Source;
use client::addition::{self, Addition};
use client::attribute::{to_sdk_item, to_sdk_value};
use client::failure::{Failure, Result};
use client::interruption;
use client::sdk_error::error_text;

/// Number of concurrent lanes: enough that their writes share the store's syncs, and few enough for
/// a laptop.
const LANES: usize = 16;
/// Maximum number of rows that wait in a lane.
const WAITING_MAX: usize = 64;
/// Maximum attempts to write the unprocessed items of a batch. The pauses grow and add up to about
/// 10 seconds.
const ATTEMPTS_MAX: u32 = 10;
/// Maximum attempts of an addition while the store is unavailable; they take about 20 seconds.
const ADDITIONS_MAX: u32 = 12;
/// Maximum number of slots for which a lane remembers the last row that earlier runs have counted.
const SLOTS_KNOWN_MAX: usize = 10_000;
/// The pause before the first retry.
const PAUSE: Duration = Duration::from_millis(10);

/// A lane's report about one or more of its rows.
enum LaneReport {
    /// The number of rows that were written to the table.
    Loaded(u64),
    /// An earlier run has already counted the row.
    CountedBefore,
    Bad(BadLine),
    /// The store is unavailable, for this reason. The lane has ended.
    Stopped(String),
}

/// The counts of the rows that were not put aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Loaded {
    pub(crate) loaded: u64,
    pub(crate) counted_before: u64,
}

/// Puts every row into the table as an item.
pub(crate) async fn put(
    client: &Client,
    table: &str,
    source: Source,
    keys: &[(String, KeyAttributeType)],
    expires: Option<(String, i64)>,
    progress: &ProgressBar,
    aside: &mut PutAside,
) -> Result<Loaded> {
    let names: Vec<_> = keys.iter().map(|(name, _)| name.clone()).collect();
    let prepare = |_, mut row: Row| {
        if let Some((attribute, time)) = &expires {
            row.item.insert(attribute.clone(), AttributeValue::N(Number::from(*time)));
        }
        let key: String = names.iter().filter_map(|n| row.item.get(n)).map(value_text).collect();
        Ok((key.clone(), (key, row)))
    };
    let lane = |receiver, done| put_lane(client.clone(), table.to_owned(), receiver, done);
    spread(source, prepare, lane, progress, aside).await
}

/// Adds every row to its slot, except rows that the slot has already counted.
pub(crate) async fn count(
    slots: Slots,
    source: Source,
    counting: &Counting,
    progress: &ProgressBar,
    aside: &mut PutAside,
) -> Result<Loaded> {
    let prepare = |place, row: Row| match counting.update(&row) {
        Ok(update) => Ok((update.slot.clone(), Addend { place, row, update })),
        Err(failure) => {
            Err(BadLine { line: row.line, reason: failure.to_string(), text: row.text })
        }
    };
    let lane = |receiver, done| count_lane(slots.clone(), receiver, done);
    spread(source, prepare, lane, progress, aside).await
}

/// Reads the source, sends each row to the lane of its key, and collects the results.
async fn spread<T: Send + 'static, F: Future<Output = ()> + Send + 'static>(
    source: Source,
    prepare: impl Fn(u64, Row) -> Result<(String, T), BadLine>,
    lane: impl Fn(mpsc::Receiver<T>, mpsc::Sender<LaneReport>) -> F,
    progress: &ProgressBar,
    aside: &mut PutAside,
) -> Result<Loaded> {
    // The channel's capacity is the number of rows in all lanes. Lanes therefore never block on the
    // channel while this task waits to send rows.
    let (done, mut finished) = mpsc::channel((WAITING_MAX + BATCH_WRITE_ITEMS_MAX) * LANES);
    let mut lanes = Vec::new();
    for _ in 0..LANES {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        tokio::spawn(lane(receiver, done.clone()));
        lanes.push(sender);
    }
    drop(done);
    let mut tally = LoadCounts { progress, aside, loaded: Loaded::default(), stopped: None };
    // `place` is the row's number in the source. A line number would be ambiguous, because a line
    // may have several rows.
    for (place, row) in (1..).zip(source) {
        let bytes = u64::try_from(row.as_ref().map_or(0, |row| row.text.len() + 1)).unwrap_or(0);
        match row.and_then(|row| prepare(place, row)) {
            Ok((key, work)) => {
                let token = Token::of(&KeyValue::S(key)).0;
                let index = usize::try_from(token % LANES as u64).unwrap_or(0);
                // A lane that has ended has already reported the reason, so a failed send is
                // ignored.
                if let Some(lane) = lanes.get(index)
                    && lane.send(work).await.is_err()
                {
                    break;
                }
            }
            Err(bad) => tally.settle(LaneReport::Bad(bad)),
        }
        progress.inc(bytes);
        while let Ok(done) = finished.try_recv() {
            tally.settle(done);
        }
        tally.show();
        if tally.stopped.is_some() {
            break;
        }
    }
    drop(lanes);
    while let Some(done) = finished.recv().await {
        tally.settle(done);
        tally.show();
    }
    tally.end()
}

/// The current counts of a load.
struct LoadCounts<'l> {
    progress: &'l ProgressBar,
    aside: &'l mut PutAside,
    loaded: Loaded,
    stopped: Option<String>,
}

impl LoadCounts<'_> {
    fn settle(&mut self, done: LaneReport) {
        match done {
            LaneReport::Loaded(rows) => self.loaded.loaded += rows,
            LaneReport::CountedBefore => self.loaded.counted_before += 1,
            LaneReport::Bad(bad) => self.aside.add(&bad, self.progress),
            LaneReport::Stopped(reason) => {
                self.stopped.get_or_insert(reason);
            }
        }
    }

    fn show(&self) {
        let reached = self.text();
        self.progress.set_message(reached.clone());
        interruption::reached(reached);
    }

    fn text(&self) -> String {
        let Loaded { loaded, counted_before } = self.loaded;
        let before = match counted_before {
            0 => String::new(),
            lines => format!(", {lines} counted by an earlier load"),
        };
        format!("{loaded} loaded{before}{}", self.aside.reached())
    }

    fn end(self) -> Result<Loaded> {
        match &self.stopped {
            None => Ok(self.loaded),
            Some(reason) => Err(Failure::Retry(format!(
                "{reason}; {}; run the same command again when the store is available: it counts no line twice",
                self.text()
            ))),
        }
    }
}

async fn put_lane(
    client: Client,
    table: String,
    mut rows: mpsc::Receiver<(String, Row)>,
    done: mpsc::Sender<LaneReport>,
) {
    let mut next = rows.recv().await;
    while let Some(first) = next.take() {
        let mut batch = vec![first];
        // A batch takes the rows that are ready. Rows with the same key go into different batches,
        // because the store rejects a batch with duplicate keys.
        while batch.len() < BATCH_WRITE_ITEMS_MAX
            && let Ok(row) = rows.try_recv()
        {
            batch.push(row);
        }
        for group in split_by_key(batch) {
            write_group(&client, &table, group, &done).await;
        }
        next = rows.recv().await;
    }
}

/// Splits rows into groups without duplicate keys.
fn split_by_key(rows: Vec<(String, Row)>) -> Vec<Vec<Row>> {
    let mut groups: Vec<Vec<Row>> = Vec::new();
    let mut seen = BTreeSet::new();
    for (key, row) in rows {
        if groups.is_empty() || seen.contains(&key) {
            groups.push(Vec::new());
            seen.clear();
        }
        seen.insert(key);
        if let Some(group) = groups.last_mut() {
            group.push(row);
        }
    }
    groups
}

async fn write_group(
    client: &Client,
    table: &str,
    group: Vec<Row>,
    done: &mpsc::Sender<LaneReport>,
) {
    let count = u64::try_from(group.len()).unwrap_or(0);
    let requests: Result<Vec<_>, _> = group
        .iter()
        .map(|row| {
            let put = PutRequest::builder().set_item(Some(to_sdk_item(&row.item))).build();
            put.map(|put| WriteRequest::builder().put_request(put).build())
        })
        .collect();
    let whole = match requests {
        Ok(requests) => write_batch(client, table, requests, ATTEMPTS_MAX).await,
        Err(error) => Err(error.into()),
    };
    if whole.is_ok() {
        let _ = done.send(LaneReport::Loaded(count)).await;
        return;
    }
    // The store has rejected the batch, so its rows are sent one by one to find the invalid row.
    for row in group {
        let put = client.put_item().table_name(table).set_item(Some(to_sdk_item(&row.item)));
        let outcome = match put.send().await {
            Ok(_) => LaneReport::Loaded(1),
            Err(error) => LaneReport::Bad(BadLine {
                line: row.line,
                reason: error_text(&error),
                text: row.text,
            }),
        };
        let _ = done.send(outcome).await;
    }
}

async fn write_batch(
    client: &Client,
    table: &str,
    mut requests: Vec<WriteRequest>,
    attempts_max: u32,
) -> Result<()> {
    for attempt in 0..attempts_max {
        let answer = client.batch_write_item().request_items(table, requests).send().await?;
        let mut unprocessed = answer.unprocessed_items.unwrap_or_default();
        match unprocessed.remove(table) {
            Some(left) if !left.is_empty() => requests = left,
            _ => return Ok(()),
        }
        tokio::time::sleep(PAUSE * 2u32.pow(attempt)).await;
    }
    Err(Failure::Retry(format!("items are still unprocessed after {attempts_max} attempts")))
}

/// The table of slots to which rows are added.
#[derive(Clone)]
pub(crate) struct Slots {
    client: Client,
    table: String,
    key: String,
    /// The attribute with a slot's count.
    count: String,
    /// The attribute with the position of the last counted row in its file.
    mark: String,
    /// A configuration without the SDK's retries, because this module decides about retries.
    once: Builder,
}

/// A row to be added to a slot.
struct Addend {
    /// The row's number in its file, from 1.
    place: u64,
    row: Row,
    update: SlotUpdate,
}

/// The result of adding a row to a slot.
enum SlotAddition {
    Now,
    /// The slot has already counted the row. The value is the position in the file of the last row
    /// that the slot has counted.
    Before(u64),
    /// The store rejects the addition permanently.
    Refused(String),
    /// The store was unavailable at every attempt, for this reason.
    NotTaken(String),
}

impl Slots {
    pub(crate) fn new(client: &Client, table: &str, counting: &Counting, mark: &str) -> Self {
        Self {
            client: client.clone(),
            table: table.to_owned(),
            key: counting.key.clone(),
            count: counting.count_attribute.clone(),
            mark: mark.to_owned(),
            once: addition::once(),
        }
    }

    fn request(&self, place: u64, update: &SlotUpdate) -> UpdateItemFluentBuilder {
        let number = |number| to_sdk_value(&AttributeValue::N(number));
        self.client
            .update_item()
            .table_name(&self.table)
            .key(&self.key, to_sdk_value(&AttributeValue::S(update.slot.clone())))
            .update_expression("ADD #count :amount SET #mark = :place")
            .condition_expression(mark::GUARD)
            .expression_attribute_names("#count", &self.count)
            .expression_attribute_names("#mark", &self.mark)
            .expression_attribute_values(":amount", number(update.amount))
            .expression_attribute_values(":place", number(Number::from(place)))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }

    /// Adds a row to its slot, unless the slot has already counted it.
    async fn add(&self, place: u64, update: &SlotUpdate) -> SlotAddition {
        let request = self.request(place, update);
        let mut reason = "it was not tried".to_owned();
        // Whether an attempt without a response may have counted the row.
        let mut is_perhaps_counted = false;
        for attempt in 1..=ADDITIONS_MAX {
            let send = request.clone().customize().config_override(self.once.clone()).send();
            let Err(error) = send.await else { return SlotAddition::Now };
            match mark::counted_place(&error, &self.mark, place) {
                Some(counted) if is_perhaps_counted && counted == place => {
                    return SlotAddition::Now;
                }
                Some(counted) => return SlotAddition::Before(counted),
                None => {}
            }
            reason = error_text(&error);
            match Addition::after(&error) {
                Addition::Refused => {
                    return SlotAddition::Refused(format!("not counted: {reason}"));
                }
                Addition::Perhaps => is_perhaps_counted = true,
                Addition::Contended | Addition::Throttled | Addition::Unsent => {}
            }
            if attempt < ADDITIONS_MAX {
                tokio::time::sleep(PAUSE * 2u32.pow(attempt - 1)).await;
            }
        }
        SlotAddition::NotTaken(reason)
    }
}

async fn count_lane(
    slots: Slots,
    mut rows: mpsc::Receiver<Addend>,
    done: mpsc::Sender<LaneReport>,
) {
    // The position of the last row that earlier runs have counted, by slot, so that each slot is
    // read only once.
    let mut known: BTreeMap<String, u64> = BTreeMap::new();
    while let Some(Addend { place, row, update }) = rows.recv().await {
        let outcome = if known.get(&update.slot).is_some_and(|counted| place <= *counted) {
            LaneReport::CountedBefore
        } else {
            match slots.add(place, &update).await {
                SlotAddition::Now => LaneReport::Loaded(1),
                SlotAddition::Before(counted) => {
                    if known.len() >= SLOTS_KNOWN_MAX {
                        known.clear();
                    }
                    known.insert(update.slot, counted);
                    LaneReport::CountedBefore
                }
                SlotAddition::Refused(reason) => {
                    LaneReport::Bad(BadLine { line: row.line, reason, text: row.text })
                }
                SlotAddition::NotTaken(reason) => {
                    let line = row.line;
                    let _ = done.send(LaneReport::Stopped(format!("line {line}: {reason}"))).await;
                    return;
                }
            }
        };
        let _ = done.send(outcome).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use clap::{Args as _, FromArgMatches as _};
    use futures::FutureExt as _;

    use super::super::{LoadArguments, load};
    use super::write_batch;
    use client::endpoint;
    use client::failure::Failure;
    use testing::proxy::{self, Fails, refusal};
    use testing::store::TestStore;

    #[tokio::test]
    async fn a_batch_that_stays_unprocessed_may_be_written_later() {
        let request = r#"{"PutRequest":{"Item":{"pk":{"S":"a"}}}}"#;
        let script = move |_: &str, _: &str| {
            let body =
                serde_json::from_str(&format!(r#"{{"UnprocessedItems":{{"t":[{request}]}}}}"#));
            let answer = proxy::answered(200, &body.unwrap());
            async move { answer }.boxed()
        };
        let url = proxy::before("http://127.0.0.1:1", script).await;
        let written = write_batch(&endpoint::client(&url), "t", Vec::new(), 2).await;
        let expected = "items are still unprocessed after 2 attempts".to_owned();
        assert_eq!(written, Err(Failure::Retry(expected)));
    }

    #[tokio::test]
    async fn an_addition_is_repeated_and_made_once() {
        let store = TestStore::open().await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("votes.csv");
        std::fs::write(&file, "c,v\na,1\na,2\na,3\n").unwrap();
        let cases: [(u32, Fails, u64, &str); 4] = [
            (3, || refusal(400, "ProvisionedThroughputExceededException"), 3, ""),
            (3, || refusal(400, "TransactionConflictException"), 3, ""),
            (1, || refusal(400, "ValidationException"), 2, "\"not counted: ValidationException"),
            (1, || refusal(500, "InternalServerError"), 3, ""),
        ];
        for (number, (fails, answer, loaded, reason)) in cases.into_iter().enumerate() {
            let (table, aside) = (format!("slots{number}"), folder.path().join(number.to_string()));
            store.table(&table).await;
            let left = AtomicU32::new(fails);
            let asked = Arc::new(AtomicU32::new(0));
            let of_script = Arc::clone(&asked);
            let script = move |operation: &str, _: &str| {
                let is_addition = operation == "UpdateItem";
                of_script.fetch_add(u32::from(is_addition), Ordering::SeqCst);
                let take = |left: u32| left.checked_sub(1);
                let order = Ordering::SeqCst;
                let fails = is_addition && left.fetch_update(order, order, take).is_ok();
                futures::future::ready(fails.then(answer).flatten()).boxed()
            };
            let url = proxy::before(&store.url, script).await;
            let command = LoadArguments::augment_args(clap::Command::new("load"));
            let (file, aside) = (file.to_str().unwrap(), aside.to_str().unwrap());
            let flags = ["load", file, "--format", "csv", "--count-into", "{c}", "--voter", "v"];
            let records = folder.path().join("loads");
            let records = records.to_str().unwrap();
            let more = ["--table", &table, "--put-aside", aside, "--records", records];
            let matches = command.try_get_matches_from(flags.into_iter().chain(more)).unwrap();
            let arguments = LoadArguments::from_arg_matches(&matches).unwrap();
            let report = load(arguments, endpoint::client(&url), 0).await.unwrap();
            assert_eq!((report.loaded, report.put_aside), (loaded, 3 - loaded), "{reason}");
            let told = std::fs::read_to_string(aside).unwrap_or_default();
            assert!(told.contains(reason), "{told}");
            let expected = if loaded == 3 { 3 + fails } else { 3 };
            assert_eq!(asked.load(Ordering::SeqCst), expected, "{reason}");
        }
    }
}
