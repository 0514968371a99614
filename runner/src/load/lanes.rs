//! Writing rows in parallel without changing the order of two lines with one key: a key always
//! goes through the same lane, and a lane works one step at a time.
//!
//! Puts are repeated when the store asks for it. Counting is not: an addition whose outcome is not
//! known is put aside, because repeating it could count twice.

use std::collections::BTreeSet;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{PutRequest, WriteRequest};
use indicatif::ProgressBar;
use model::limits::BATCH_WRITE_ITEMS_MAX;
use model::{AttributeValue, KeyAttributeType, KeyValue, Number, Token};
use tokio::sync::mpsc;

use super::attribute::{to_sdk_item, to_sdk_value};
use super::counting::{Counting, SlotUpdate};
use super::source::{Row, Source, value_text};
use super::{BadLine, PutAside, error_text};

/// Lanes that work at the same time: enough to share the store's syncs, few enough for a laptop.
const LANES: usize = 16;
/// Rows that wait for a lane at most.
const WAITING_MAX: usize = 64;
/// How often unprocessed items of a batch are written again, with growing pauses: about 10 s.
const ATTEMPTS_MAX: u32 = 10;
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
    aside: &mut PutAside<'_>,
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
    aside: &mut PutAside<'_>,
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
    aside: &mut PutAside<'_>,
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

fn settle(done: Done, loaded: &mut u64, progress: &ProgressBar, aside: &mut PutAside<'_>) {
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
    let once = aws_sdk_dynamodb::config::Builder::new()
        .retry_config(aws_sdk_dynamodb::config::retry::RetryConfig::disabled());
    while let Some((row, update)) = rows.recv().await {
        let sent = client
            .update_item()
            .table_name(&table)
            .key(&key, to_sdk_value(&AttributeValue::S(update.slot)))
            .update_expression("ADD #count :amount")
            .expression_attribute_names("#count", &attribute)
            .expression_attribute_values(":amount", to_sdk_value(&AttributeValue::N(update.amount)))
            .customize()
            .config_override(once.clone())
            .send()
            .await;
        let outcome = match sent {
            Ok(_) => Ok(1),
            Err(error) => Err(BadLine {
                line: row.line,
                reason: format!("may or may not be counted: {}", error_text(&error)),
                text: row.text,
            }),
        };
        let _ = done.send(outcome).await;
    }
}
