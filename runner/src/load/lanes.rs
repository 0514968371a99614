//! Writing rows in parallel without changing the order of two lines with one key: a key always
//! goes through the same lane, and a lane works one step at a time.
//!
//! Puts are repeated when the store asks for it. An addition is repeated only where the store says that
//! it did nothing: one whose outcome is not known is put aside, because repeating it could count twice.

use std::collections::BTreeSet;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::Builder;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{PutRequest, WriteRequest};
use indicatif::ProgressBar;
use model::limits::BATCH_WRITE_ITEMS_MAX;
use model::{AttributeValue, KeyAttributeType, KeyValue, Number, Token};
use tokio::sync::mpsc;

use super::attribute::{to_sdk_item, to_sdk_value};
use super::counting::{Counting, SlotUpdate};
use super::put_aside::PutAside;
use super::source::{Row, Source, value_text};
use super::{BadLine, error_text};
use crate::addition::{self, Addition};

/// Lanes that work at the same time: enough to share the store's syncs, few enough for a laptop.
const LANES: usize = 16;
/// Rows that wait for a lane at most.
const WAITING_MAX: usize = 64;
/// How often unprocessed items of a batch are written again, with growing pauses: about 10 s.
const ATTEMPTS_MAX: u32 = 10;
/// How often an addition is tried while the store throttles: about 20 s.
const ADDITIONS_MAX: u32 = 12;
/// The first pause.
const PAUSE: Duration = Duration::from_millis(10);

/// What a lane reports of one row.
type Done = Result<u64, BadLine>;

/// Puts every row as an item. Gives the number of rows that are in the table.
pub(crate) async fn put(
    client: &Client,
    table: &str,
    source: Source,
    keys: &[(String, KeyAttributeType)],
    expires: Option<(String, i64)>,
    progress: &ProgressBar,
    aside: &mut PutAside,
) -> Result<u64, String> {
    let names: Vec<_> = keys.iter().map(|(name, _)| name.clone()).collect();
    let prepare = |mut row: Row| {
        if let Some((attribute, time)) = &expires {
            row.item.insert(attribute.clone(), AttributeValue::N(Number::from(*time)));
        }
        let key: String = names.iter().filter_map(|n| row.item.get(n)).map(value_text).collect();
        Ok((key.clone(), (key, row)))
    };
    let lane = |receiver, done| put_lane(client.clone(), table.to_owned(), receiver, done);
    spread(source, prepare, lane, progress, aside).await
}

/// Adds every row to a slot. Gives the number of rows that are counted.
pub(crate) async fn count(
    client: &Client,
    table: &str,
    source: Source,
    counting: &Counting,
    progress: &ProgressBar,
    aside: &mut PutAside,
) -> Result<u64, String> {
    let prepare = |row: Row| match counting.update(&row) {
        Ok(update) => Ok((update.slot.clone(), (row, update))),
        Err(reason) => Err(BadLine { line: row.line, reason, text: row.text }),
    };
    let names = (counting.key.clone(), counting.count_attribute.clone());
    let lane = |receiver, done| {
        count_lane(client.clone(), table.to_owned(), names.clone(), receiver, done)
    };
    spread(source, prepare, lane, progress, aside).await
}

/// Reads the source, sends each row to the lane of its key, and collects what became of them.
async fn spread<T: Send + 'static, F: Future<Output = ()> + Send + 'static>(
    source: Source,
    prepare: impl Fn(Row) -> Result<(String, T), BadLine>,
    lane: impl Fn(mpsc::Receiver<T>, mpsc::Sender<Done>) -> F,
    progress: &ProgressBar,
    aside: &mut PutAside,
) -> Result<u64, String> {
    let (done, mut finished) = mpsc::channel(WAITING_MAX * LANES);
    let mut lanes = Vec::new();
    for _ in 0..LANES {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        tokio::spawn(lane(receiver, done.clone()));
        lanes.push(sender);
    }
    drop(done);
    let mut loaded = 0;
    for row in source {
        let position = u64::try_from(row.as_ref().map_or(0, |row| row.text.len() + 1)).unwrap_or(0);
        match row.and_then(&prepare) {
            Ok((key, work)) => {
                let token = Token::of(&KeyValue::S(key)).0;
                let index = usize::try_from(token % LANES as u64).unwrap_or(0);
                if let Some(lane) = lanes.get(index) {
                    lane.send(work).await.map_err(|_| "a lane ended too early".to_owned())?;
                }
            }
            Err(bad) => aside.add(&bad, progress),
        }
        progress.inc(position);
        while let Ok(done) = finished.try_recv() {
            settle(done, &mut loaded, progress, aside);
        }
        progress.set_message(format!("{loaded} loaded"));
    }
    drop(lanes);
    while let Some(done) = finished.recv().await {
        settle(done, &mut loaded, progress, aside);
    }
    Ok(loaded)
}

fn settle(done: Done, loaded: &mut u64, progress: &ProgressBar, aside: &mut PutAside) {
    match done {
        Ok(rows) => *loaded += rows,
        Err(bad) => aside.add(&bad, progress),
    }
}

async fn put_lane(
    client: Client,
    table: String,
    mut rows: mpsc::Receiver<(String, Row)>,
    done: mpsc::Sender<Done>,
) {
    let mut next = rows.recv().await;
    while let Some(first) = next.take() {
        let mut batch = vec![first];
        // A batch takes what is ready; the store refuses one key twice in a batch.
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

/// Cuts rows into groups in which no key occurs twice: the store refuses that in one batch.
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

async fn write_group(client: &Client, table: &str, group: Vec<Row>, done: &mpsc::Sender<Done>) {
    let count = u64::try_from(group.len()).unwrap_or(0);
    let requests: Result<Vec<_>, _> = group
        .iter()
        .map(|row| {
            let put = PutRequest::builder().set_item(Some(to_sdk_item(&row.item))).build();
            put.map(|put| WriteRequest::builder().put_request(put).build())
        })
        .collect();
    let whole = match requests {
        Ok(requests) => write_batch(client, table, requests).await,
        Err(error) => Err(error.to_string()),
    };
    if whole.is_ok() {
        let _ = done.send(Ok(count)).await;
        return;
    }
    // Something in the batch is wrong: one by one, the others go in and that one is named.
    for row in group {
        let put = client.put_item().table_name(table).set_item(Some(to_sdk_item(&row.item)));
        let outcome = match put.send().await {
            Ok(_) => Ok(1),
            Err(error) => {
                Err(BadLine { line: row.line, reason: error_text(&error), text: row.text })
            }
        };
        let _ = done.send(outcome).await;
    }
}

async fn write_batch(
    client: &Client,
    table: &str,
    requests: Vec<WriteRequest>,
) -> Result<(), String> {
    let mut requests = requests;
    for attempt in 0..ATTEMPTS_MAX {
        let answer = client
            .batch_write_item()
            .request_items(table, requests)
            .send()
            .await
            .map_err(|error| error_text(&error))?;
        let mut unprocessed = answer.unprocessed_items.unwrap_or_default();
        match unprocessed.remove(table) {
            Some(left) if !left.is_empty() => requests = left,
            _ => return Ok(()),
        }
        tokio::time::sleep(PAUSE * 2u32.pow(attempt)).await;
    }
    Err(format!("still unprocessed after {ATTEMPTS_MAX} attempts"))
}

async fn count_lane(
    client: Client,
    table: String,
    (key, attribute): (String, String),
    mut rows: mpsc::Receiver<(Row, SlotUpdate)>,
    done: mpsc::Sender<Done>,
) {
    // One attempt: the SDK would otherwise repeat an addition whose answer was lost.
    let once = addition::once();
    while let Some((row, update)) = rows.recv().await {
        let request = client
            .update_item()
            .table_name(&table)
            .key(&key, to_sdk_value(&AttributeValue::S(update.slot)))
            .update_expression("ADD #count :amount")
            .expression_attribute_names("#count", &attribute)
            .expression_attribute_values(
                ":amount",
                to_sdk_value(&AttributeValue::N(update.amount)),
            );
        let outcome = match add(request, &once).await {
            Ok(()) => Ok(1),
            Err(reason) => Err(BadLine { line: row.line, reason, text: row.text }),
        };
        let _ = done.send(outcome).await;
    }
}

/// Makes an addition, again where the store says that it did nothing because too much is asked for.
/// Gives why it is not counted, or not known to be.
async fn add(request: UpdateItemFluentBuilder, once: &Builder) -> Result<(), String> {
    for attempt in 1..=ADDITIONS_MAX {
        let sent = request.clone().customize().config_override(once.clone()).send().await;
        let Err(error) = sent else { return Ok(()) };
        match Addition::after(&error) {
            Addition::Contended | Addition::Throttled if attempt < ADDITIONS_MAX => {
                tokio::time::sleep(PAUSE * 2u32.pow(attempt - 1)).await;
            }
            Addition::Perhaps => {
                return Err(format!("may or may not be counted: {}", error_text(&error)));
            }
            _ => return Err(format!("not counted: {}", error_text(&error))),
        }
    }
    Err("not counted: it was not tried".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use clap::{Args as _, FromArgMatches as _};
    use futures::FutureExt as _;

    use super::super::{LoadArguments, load};
    use crate::endpoint;
    use crate::test_proxy::{self, Fails, refusal};
    use crate::test_store::TestStore;

    #[tokio::test]
    async fn an_addition_is_repeated_where_it_was_certainly_not_made() {
        let store = TestStore::open().await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("votes.csv");
        std::fs::write(&file, "c,v\na,1\na,2\na,3\n").unwrap();
        let cases: [(u32, Fails, u64, &str); 4] = [
            (3, || refusal(400, "ProvisionedThroughputExceededException"), 3, ""),
            (3, || refusal(400, "TransactionConflictException"), 3, ""),
            (1, || refusal(400, "ValidationException"), 2, "\"not counted: ValidationException"),
            (1, || refusal(500, "InternalServerError"), 2, "\"may or may not be counted: "),
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
            let url = test_proxy::before(&store.url, script).await;
            let command = LoadArguments::augment_args(clap::Command::new("load"));
            let (file, aside) = (file.to_str().unwrap(), aside.to_str().unwrap());
            let flags = ["load", file, "--format", "csv", "--count-into", "{c}", "--voter", "v"];
            let more = ["--table", &table, "--put-aside", aside];
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
