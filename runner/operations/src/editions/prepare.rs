//! `weir editions prepare`: writes the next edition, item by item, from a table, a file or the
//! current edition, optionally through a command.
//!
//! First a conditional write of the head reserves the number, so concurrent preparations get
//! different numbers. An interrupted preparation leaves an edition in the state `preparing`, which
//! is never published. An edition may be pruned while its items are still being written. In that
//! case the writer removes its late items, because no other process can find them without the
//! edition's record.

use std::collections::HashSet;
use std::process::Stdio;

use aws_sdk_dynamodb::types::{
    AttributeValue as SdkValue, Put, PutRequest, TransactWriteItem, WriteRequest,
};
use futures::{StreamExt, TryStreamExt, stream};
use model::{Item, json};
use rules::versions::edition::{
    Digest, EDITION_ITEM, EDITION_PARTITION, EDITION_STATE, Edition, EditionState,
    fits_into_an_edition, hash_of, item_of_edition, key_of, records_key,
};
use rules::versions::version_text;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, Command};
use tokio::sync::mpsc::{self, error::SendError};

use super::head_change::put_head;
use super::{Place, PrepareArguments, prune, reading};
use crate::batches::write_batch;
use client::attribute::{from_sdk_item, to_sdk_item};
use client::contention::{Attempts, NotApplied, why_not_applied};
use client::failure::{Context, Failure, Result, fatal};
use client::interruption;
use client::item_key;
use client::sdk_error::is_condition_failed;
use client::table_description::key_attributes;

/// Maximum number of items in a request, set by DynamoDB.
const BATCH_ITEMS: usize = 25;
/// Number of concurrent requests.
pub(super) const BATCHES_AT_ONCE: usize = 8;
/// Capacity of the queues between reader, command and writer, in items.
const QUEUE_ITEMS: usize = 1_000;
/// Maximum number of items of an edition. A hash of each key is kept in memory to find duplicates.
const ITEMS_MAX: u64 = 50_000_000;

/// Writes the next edition.
///
/// # Errors
/// When the items are invalid, or the edition cannot be written. The incomplete edition is never
/// published; `weir editions prune` removes it.
pub(super) async fn run(place: &Place, arguments: &PrepareArguments) -> Result<Edition> {
    let head = reading::head(place).await?;
    let keys = keys(place, arguments, head.current).await?;
    // The number of the current edition is read before any item. If another edition becomes
    // current later, the new edition does not contain that edition's items.
    let edition = begin(place, keys, head.current).await?;
    match fill(place, arguments, &edition, head.current).await {
        Ok(digest) => finish(place, edition, digest).await,
        Err(reason) => {
            // As long as the edition has a record, `prune` can remove it.
            match left_behind(place, &edition).await {
                Ok(_) => Err(reason),
                Err(left) => Err(reason.with(|reason| format!("{reason}; {left}"))),
            }
        }
    }
}

/// Writes the items of the edition.
async fn fill(
    place: &Place,
    arguments: &PrepareArguments,
    edition: &Edition,
    current: u64,
) -> Result<Digest> {
    let (to_read, items) = mpsc::channel::<Item>(QUEUE_ITEMS);
    let read = read(place, arguments, current, to_read);
    Ok(match &arguments.through {
        None => tokio::try_join!(read, write(place, edition, items))?.1,
        Some(command) => {
            let (to_write, changed) = mpsc::channel::<Item>(QUEUE_ITEMS);
            let through = through(command, items, to_write);
            tokio::try_join!(read, through, write(place, edition, changed))?.2
        }
    })
}

/// Cleans up after an edition that could not be finished. If the edition was pruned in the
/// meantime, removes the items that were written after the prune.
async fn left_behind(place: &Place, edition: &Edition) -> Result<Option<Edition>> {
    let number = edition.number;
    let found = reading::edition(place, number).await?;
    let found = found.filter(|found| found.state != EditionState::Pruned);
    if found.is_none() {
        prune::remove(place, number).await.context(|| {
            format!("edition {number} was pruned, and some of its items could not be removed")
        })?;
    }
    Ok(found)
}

async fn keys(place: &Place, arguments: &PrepareArguments, current: u64) -> Result<Vec<String>> {
    let has_source = arguments.from_table.is_some() || arguments.from_file.is_some();
    if current == 0 && !has_source {
        return Err(fatal!(
            "there is no edition to take items from: use --from-table, or --from-file with --keys"
        ));
    }
    if !arguments.keys.is_empty() {
        return Ok(arguments.keys.clone());
    }
    if let Some(table) = &arguments.from_table {
        let keys = key_attributes(&place.client, table).await?;
        return Ok(keys.into_iter().map(|(name, _)| name).collect());
    }
    match current {
        0 => Err(fatal!("there is no edition yet: name the key attributes with --keys")),
        current => Ok(reading::known_edition(place, current).await?.keys),
    }
}

/// Reserves the next number. Retries if another process changes the head at the same time, or the
/// table is throttled.
async fn begin(place: &Place, keys: Vec<String>, base: u64) -> Result<Edition> {
    let mut attempts = Attempts::first();
    loop {
        let head = reading::head(place).await?;
        let next = head.with_next();
        let edition = Edition {
            number: next.latest,
            state: EditionState::Preparing,
            items: 0,
            digest: 0,
            at_seconds: place.now,
            keys: keys.clone(),
            base: Some(base),
            left_at: None,
        };
        let record = Put::builder()
            .table_name(&place.table)
            .set_item(Some(to_sdk_item(&edition.to_item(&place.set))))
            .condition_expression("attribute_not_exists(#state)")
            .expression_attribute_names("#state", EDITION_STATE)
            .build()?;
        let request = place
            .client
            .transact_write_items()
            .transact_items(put_head(place, head, next)?)
            .transact_items(TransactWriteItem::builder().put(record).build());
        let Err(error) = request.send().await else { return Ok(edition) };
        let why = why_not_applied(&error);
        if attempts.after(why).await {
            continue;
        }
        return Err(match why {
            NotApplied::Changed => Failure::Retry(
                "concurrent preparations or publications changed the head: run the command again"
                    .to_owned(),
            ),
            _ => Failure::from(&error).about("cannot begin an edition"),
        });
    }
}

/// Reads the source items.
async fn read(
    place: &Place,
    arguments: &PrepareArguments,
    current: u64,
    to: mpsc::Sender<Item>,
) -> Result<()> {
    if let Some(table) = &arguments.from_table {
        let scan = place.client.scan().table_name(table).consistent_read(true);
        let mut items = scan.into_paginator().items().send();
        while let Some(item) = items.next().await {
            let item = item.map_err(Failure::from).and_then(from_sdk_item);
            let item = item.context(|| format!("cannot read table `{table}`"))?;
            to.send(item).await.map_err(gone)?;
        }
        return Ok(());
    }
    if let Some(path) = &arguments.from_file {
        let place = path.display().to_string();
        let file = tokio::fs::File::open(path).await;
        let file = file.context(|| format!("cannot read `{place}`"))?;
        return send_lines(BufReader::new(file), &place, item_of_line, &to).await;
    }
    for part in 0..rules::versions::edition::EDITION_PARTS {
        let mut items = Vec::new();
        reading::each_of_part(place, current, part, &mut |_, image| {
            items.push(image);
            Ok(())
        })
        .await?;
        for item in items {
            to.send(item).await.map_err(gone)?;
        }
    }
    reading::was_there(place, current).await
}

fn gone(_: SendError<Item>) -> Failure {
    fatal!("no more items can be sent, because their receiver has stopped")
}

/// Parses a line of a file: an item in DynamoDB JSON or in plain JSON.
fn item_of_line(line: &str) -> Result<Item> {
    json::item_from_str(line).or_else(|_| item_key::attributes(line))
}

/// Parses a line that a command wrote: an item in DynamoDB JSON.
fn item_of_command(line: &str) -> Result<Item> {
    json::item_from_str(line).map_err(|error| {
        fatal!("{error}; the command must write one item per line in DynamoDB JSON, the format of its input")
    })
}

/// Parses lines, each with one item, and sends the items to the writer.
async fn send_lines(
    text: impl tokio::io::AsyncBufRead + Unpin,
    place: &str,
    parse: fn(&str) -> Result<Item>,
    to: &mpsc::Sender<Item>,
) -> Result<()> {
    let (mut lines, mut number) = (text.lines(), 0u64);
    while let Some(line) = lines.next_line().await.context(|| place)? {
        number += 1;
        if line.trim().is_empty() {
            continue;
        }
        let item = parse(&line);
        let item = item.context(|| format!("{place}, line {number}"))?;
        to.send(item).await.map_err(gone)?;
    }
    Ok(())
}

/// Pipes the items through a command.
async fn through(
    command: &str,
    mut from: mpsc::Receiver<Item>,
    to: mpsc::Sender<Item>,
) -> Result<()> {
    let doing = || format!("--through `{command}`");
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = platform::private_files::start_of_user(|| shell.spawn()).context(doing)?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
        return Err("cannot open the command's input and output").context(doing);
    };
    let feeding = async { feed(stdin, &mut from).await.context(doing) };
    let reading = send_lines(BufReader::new(stdout), "its output", item_of_command, &to);
    let reading = async { reading.await.context(doing) };
    tokio::try_join!(feeding, reading)?;
    let status = child.wait().await.context(doing)?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("the command ended with {status}")).context(doing)
    }
}

async fn feed(mut stdin: ChildStdin, from: &mut mpsc::Receiver<Item>) -> std::io::Result<()> {
    while let Some(item) = from.recv().await {
        let line = json::item_to_string(&item) + "\n";
        match stdin.write_all(line.as_bytes()).await {
            Ok(()) => {}
            // The command may close its input early, as `head` does. Its exit code shows whether it
            // failed.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                while from.recv().await.is_some() {}
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    stdin.shutdown().await
}

/// Writes the items of the edition. Two items with the same key are an error.
async fn write(place: &Place, edition: &Edition, items: mpsc::Receiver<Item>) -> Result<Digest> {
    let template = "{spinner} {pos} items, {per_sec}";
    let progress = interruption::progress_bar(None, template, "items");
    let (mut digest, mut seen) = (Digest::default(), HashSet::new());
    let items = stream::unfold(items, async |mut items| Some((items.recv().await?, items)));
    let requests = items.map(|item| {
        let key = key_of(&item, &edition.keys);
        let key = key.ok_or_else(|| {
            let (text, keys) = (json::item_to_string(&item), edition.keys.join(", "));
            fatal!("an item lacks a key attribute ({keys}): {text}")
        })?;
        fits_into_an_edition(&place.set, &key, Some(&item))
            .map_err(Failure::fatal)
            .context(|| format!("the item {key} does not fit into an edition"))?;
        if !seen.insert(hash_of(&key)) {
            return Err(fatal!("two items have the key {key}"));
        }
        digest.add(&item);
        if digest.items > ITEMS_MAX {
            return Err(fatal!("the edition would have more than {ITEMS_MAX} items"));
        }
        progress.inc(1);
        let item = item_of_edition(&place.set, edition.number, &key, &item);
        let put = PutRequest::builder().set_item(Some(to_sdk_item(&item))).build();
        let put = put?;
        Ok(WriteRequest::builder().put_request(put).build())
    });
    let written = requests
        .try_chunks(BATCH_ITEMS)
        .map_err(|error| error.1)
        .map_ok(|batch| write_batch(&place.client, &place.table, batch))
        .try_buffer_unordered(BATCHES_AT_ONCE)
        .try_collect::<()>()
        .await;
    progress.finish_and_clear();
    written.map(|()| digest)
}

/// Marks the edition as ready.
async fn finish(place: &Place, edition: Edition, digest: Digest) -> Result<Edition> {
    let ready =
        Edition { state: EditionState::Ready, items: digest.items, digest: digest.sum, ..edition };
    let request = place
        .client
        .put_item()
        .table_name(&place.table)
        .set_item(Some(to_sdk_item(&ready.to_item(&place.set))))
        .condition_expression("#state = :preparing")
        .expression_attribute_names("#state", EDITION_STATE)
        .expression_attribute_values(
            ":preparing",
            SdkValue::S(EditionState::Preparing.as_str().to_owned()),
        );
    match request.send().await {
        Ok(_) => Ok(ready),
        Err(error) if is_condition_failed(&error) => {
            // If the response to the first attempt was lost, the retry fails because the edition is
            // already ready.
            match left_behind(place, &ready).await? {
                Some(found) if (found.state, found.digest) == (ready.state, ready.digest) => {
                    Ok(ready)
                }
                _ => Err(fatal!(
                    "edition {} was pruned while it was prepared ({EDITION_PARTITION} `{}`, {EDITION_ITEM} `{}`): prepare it again, and prune with a larger --days",
                    ready.number,
                    records_key(&place.set),
                    version_text(ready.number)
                )),
            }
        }
        Err(error) => {
            Err(error).context(|| format!("cannot mark edition {} as ready", ready.number))
        }
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::DeleteRequest;

    use super::super::store_tests::{items, listening, of_file, place};
    use super::*;
    use crate::batches::{ATTEMPTS_MAX, write_batch_within};
    use crate::counters::testing::serve;
    use testing::store::TestStore;

    /// Returns the number of entries in the table.
    async fn entries(place: &Place) -> i32 {
        place.client.scan().table_name(&place.table).send().await.unwrap().count()
    }

    /// The edition is pruned while its last items are being written.
    #[tokio::test]
    async fn items_written_after_a_prune_do_not_stay() {
        let store = TestStore::open().await;
        let (place, items) = (place(&store).await, items(30));
        // A preparation that was killed has left a record, so a prune finds its edition.
        let dead = begin(&place, vec!["id".to_owned()], 0).await.unwrap();
        fill(&place, &of_file(&items), &dead, 0).await.unwrap();
        assert_eq!(prune::run(&place, 0, 0).await, Ok(vec![(1, 30)]));
        let living = begin(&place, vec!["id".to_owned()], 0).await.unwrap();
        assert_eq!(prune::run(&place, 0, 0).await, Ok(vec![(2, 0)]));
        let digest = fill(&place, &of_file(&items), &living, 0).await.unwrap();
        assert_eq!(entries(&place).await, 31, "the head and the items");
        let said = finish(&place, living, digest).await.unwrap_err().to_string();
        assert!(said.starts_with("edition 2 was pruned while it was prepared"), "{said}");
        assert_eq!(entries(&place).await, 1);
    }

    /// After the edition was pruned and further items were written, an item turns out to be
    /// invalid.
    #[tokio::test]
    async fn a_failed_preparation_that_was_pruned_leaves_no_items() {
        let store = TestStore::open().await;
        let (place, mut items) = (place(&store).await, items(30));
        let living = begin(&place, vec!["id".to_owned()], 0).await.unwrap();
        prune::run(&place, 0, 0).await.unwrap();
        std::io::Write::write_all(&mut items, b"no item\n").unwrap();
        let failed = fill(&place, &of_file(&items), &living, 0).await.unwrap_err();
        assert!(failed.to_string().contains("line 31"), "{failed}");
        assert_eq!(left_behind(&place, &living).await, Ok(None));
        assert_eq!(entries(&place).await, 1);
        // An edition that was not pruned keeps its items until a prune.
        assert!(run(&place, &of_file(&items)).await.is_err());
        let left = reading::known_edition(&place, 2).await.unwrap();
        assert_eq!(left.state, EditionState::Preparing);
    }

    #[test]
    fn a_line_of_a_file_is_plain_or_dynamodb_json() {
        for (line, expected) in [
            (r#"{"id":7,"tags":{"a":"b"}}"#, r#"{"id":{"N":"7"},"tags":{"M":{"a":{"S":"b"}}}}"#),
            (r#"{"id":{"N":"7"}}"#, r#"{"id":{"N":"7"}}"#),
        ] {
            assert_eq!(json::item_to_string(&item_of_line(line).unwrap()), expected);
        }
        assert!(item_of_line("7").unwrap_err().to_string().contains("not a JSON object"));
        assert!(
            item_of_command(r#"{"id":7}"#).unwrap_err().to_string().contains("in DynamoDB JSON")
        );
    }

    fn deletes(count: usize) -> Vec<WriteRequest> {
        let delete = |number: usize| {
            let delete = DeleteRequest::builder().key("edition", SdkValue::S(number.to_string()));
            WriteRequest::builder().delete_request(delete.build().unwrap()).build()
        };
        (0..count).map(delete).collect()
    }

    /// The table accepts only one item of each request, so the batch needs more attempts than the
    /// maximum number of consecutive failures.
    #[tokio::test]
    async fn a_batch_is_sent_again_as_long_as_some_of_it_is_written() {
        let count = ATTEMPTS_MAX as usize + 3;
        let left = |count: usize| {
            let request = r#"{"DeleteRequest":{"Key":{"edition":{"S":"x"}}}}"#;
            let requests = vec![request; count].join(",");
            format!(r#"{{"UnprocessedItems":{{"editions":[{requests}]}}}}"#)
        };
        let mut answers: Vec<String> = (1..count).rev().map(left).collect();
        answers.push("{}".to_owned());
        let answers: Vec<_> = answers.iter().map(|text| (200, text.as_str(), false)).collect();
        let (listener, place) = listening().await;
        let writing = write_batch(&place.client, &place.table, deletes(count));
        assert_eq!(tokio::join!(serve(listener, &answers), writing).1, Ok(()));
    }

    fn error(name: &str) -> String {
        format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{name}","message":"x"}}"#)
    }

    #[tokio::test]
    async fn a_batch_that_is_throttled_whole_is_sent_again() {
        let (throttled, denied) = (error("ThrottlingException"), error("AccessDeniedException"));
        let (listener, place) = listening().await;
        let answers = [(400, throttled.as_str(), false), (200, "{}", false)];
        let writing = write_batch(&place.client, &place.table, deletes(2));
        let (requests, written) = tokio::join!(serve(listener, &answers), writing);
        assert_eq!((requests.len(), written), (2, Ok(())));
        let (listener, place) = listening().await;
        let answers = [(400, throttled.as_str(), false); 2];
        let writing = write_batch_within(&place.client, &place.table, deletes(2), 2);
        let written = tokio::join!(serve(listener, &answers), writing).1;
        assert!(matches!(written, Err(Failure::Retry(_))), "{written:?}");
        let (listener, place) = listening().await;
        let answers = [(400, denied.as_str(), false)];
        let writing = write_batch(&place.client, &place.table, deletes(2));
        let written = tokio::join!(serve(listener, &answers), writing).1;
        assert!(
            written
                .unwrap_err()
                .to_string()
                .starts_with("cannot write table `editions`: AccessDenied")
        );
    }

    #[tokio::test]
    async fn a_number_is_reserved_despite_temporary_throttling() {
        let throttled = error("ProvisionedThroughputExceededException");
        let mut answers = Vec::new();
        for _ in 0..4 {
            answers.extend([(200, "{}", false), (400, throttled.as_str(), false)]);
        }
        let denied = error("AccessDeniedException");
        for (last, expected) in [((200, "{}", false), Ok(1)), ((400, &*denied, false), Err(()))] {
            let (listener, place) = listening().await;
            let mut answers = answers.clone();
            answers.extend([(200, "{}", false), last]);
            let beginning = begin(&place, vec!["id".to_owned()], 0);
            let begun = tokio::join!(serve(listener, &answers), beginning).1;
            assert_eq!(begun.map(|edition| edition.number).map_err(|_| ()), expected);
        }
    }

    /// The response to the write that marks the edition as ready was lost, so the write is retried.
    #[tokio::test]
    async fn a_ready_edition_stays_ready() {
        let store = TestStore::open().await;
        let (place, items) = (place(&store).await, items(3));
        let edition = begin(&place, vec!["id".to_owned()], 0).await.unwrap();
        let digest = fill(&place, &of_file(&items), &edition, 0).await.unwrap();
        let ready = finish(&place, edition.clone(), digest).await.unwrap();
        assert_eq!(finish(&place, edition, digest).await, Ok(ready));
        assert_eq!(entries(&place).await, 5, "the head, the record and the items");
    }
}
