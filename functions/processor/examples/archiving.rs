//! Measures the archived records per second and core, from the JSON of Lambda's events to Parquet
//! files.
//!
//! Batches of TTL deletes are processed by the code of the function `archive`. The object store is
//! a folder, so the measurement excludes the network. `--declared` declares a column for every
//! attribute, `--discover` discovers the columns. `--write FILE` writes the batches, one per line,
//! to measure other programs with the same input: see `docs/development/benchmarks.md`.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measurement may panic and print"
)]

mod measurement;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use processor::Failure;
use processor::archive_sink::ArchiveSink;
use processor::back_off::{Deadline, RetryPolicy};
use processor::frame::Frame;
use processor::object_store::{ObjectEntry, ObjectStore, Page, PutOutcome};
use processor::quarantine::Quarantine;
use rules::archive::{Archive, parse_columns};

/// Default number of records per batch: the maximum that an event source mapping delivers.
const BATCH: u64 = 10_000;
/// Upper bound of a record's JSON in bytes, used to reserve memory for a batch.
const RECORD_BYTES: u64 = 1_100;
/// Columns that `--declared` gives types: every attribute except the keys.
const COLUMNS: &str = "customer:string,status:string,quantity:bigint,price:decimal(38,10),paid:boolean,note:string,tags:json,address:json,address.city:string,expires_at:bigint";

/// An object store in a folder.
struct Folder {
    root: PathBuf,
    objects: Mutex<BTreeMap<String, ObjectEntry>>,
}

impl ObjectStore for &Folder {
    async fn page(&self, prefix: &str, after: &str) -> Result<Page, Failure> {
        let objects = self.objects.lock().unwrap();
        let behind = objects.range(prefix.max(after).to_owned()..);
        let found = behind.take_while(|(name, _)| name.starts_with(prefix));
        let found = found.filter(|(name, _)| name.as_str() > after);
        Ok(Page { entries: found.map(|(_, entry)| entry.clone()).collect(), after: None })
    }

    async fn folders(&self, _prefix: &str) -> Result<Vec<String>, Failure> {
        Err(Failure::Fatal("the archiver lists no folders".to_owned()))
    }

    async fn get(&self, name: &str) -> Result<Option<Bytes>, Failure> {
        Ok(fs::read(self.root.join(name)).ok().map(Bytes::from))
    }

    async fn put_if_absent(
        &self,
        name: &str,
        content: Bytes,
        _content_type: &str,
    ) -> Result<PutOutcome, Failure> {
        let mut objects = self.objects.lock().unwrap();
        if objects.contains_key(name) {
            return Ok(PutOutcome::Exists);
        }
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &content).unwrap();
        let entry = ObjectEntry {
            name: name.to_owned(),
            entity_tag: objects.len().to_string(),
            bytes: content.len() as u64,
            written_seconds: 0,
        };
        let entity_tag = Some(entry.entity_tag.clone());
        objects.insert(name.to_owned(), entry);
        Ok(PutOutcome::Created { entity_tag })
    }
}

/// Returns a pseudo-random number that is the same for this input in each run.
fn mixed(number: u64) -> u64 {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
}

/// Returns a batch of TTL deletes as one line of JSON. Each item has about 450 bytes of JSON and
/// twelve attributes. 100,000 records share a minute.
fn batch(first: u64, size: u64) -> String {
    let mut text = String::with_capacity(usize::try_from(size * RECORD_BYTES).unwrap());
    text.push_str(r#"{"Records":["#);
    for number in first..first + size {
        let random = mixed(number);
        let comma = if number == first { "" } else { "," };
        let key =
            format!(r#""pk":{{"S":"CUSTOMER#{:06}"}},"sk":{{"N":"{number}"}}"#, random % 200_000);
        let city =
            ["Graz", "Lyon", "Porto", "Turku", "Gdańsk"][usize::try_from(random % 5).unwrap()];
        let status = ["open", "paid", "sent", "returned"][usize::try_from(random % 4).unwrap()];
        let second = 1_795_228_140 + number / 100_000 * 60;
        let _ = write!(
            text,
            r#"{comma}{{"eventID":"{random:016x}{number:016x}","eventName":"REMOVE","eventVersion":"1.1","eventSource":"aws:dynamodb","awsRegion":"us-east-1","dynamodb":{{"ApproximateCreationDateTime":{second},"Keys":{{{key}}},"OldImage":{{{key},"customer":{{"S":"Customer {}"}},"status":{{"S":"{status}"}},"quantity":{{"N":"{}"}},"price":{{"N":"{}.{:02}"}},"paid":{{"BOOL":{}}},"note":{{"S":"left at the door of number {}"}},"tags":{{"L":[{{"S":"t{}"}},{{"S":"t{}"}}]}},"address":{{"M":{{"city":{{"S":"{city}"}},"zip":{{"S":"{:05}"}},"floor":{{"N":"{}"}}}}}},"expires_at":{{"N":"{}"}}}},"SequenceNumber":"{:021}","SizeBytes":259,"StreamViewType":"NEW_AND_OLD_IMAGES"}},"userIdentity":{{"principalId":"dynamodb.amazonaws.com","type":"Service"}},"eventSourceARN":"arn:aws:dynamodb:us-east-1:000000000000:table/orders/stream/2026-11-21T02:30:00.000"}}"#,
            random % 200_000,
            random % 90 + 1,
            random % 5_000,
            random % 100,
            random.is_multiple_of(2),
            random % 900,
            random % 40,
            random % 37,
            random % 99_999,
            random % 12,
            second - 60 - random % 600,
            number + 7,
        );
    }
    text.push_str("]}");
    text
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(measure());
}

async fn measure() {
    let records = measurement::records();
    let is_given = |name: &str| std::env::args().any(|argument| argument == name);
    let columns = if is_given("--declared") { parse_columns(COLUMNS).unwrap() } else { Vec::new() };
    let columns = columns.into();
    let root = measurement::argument("--folder")
        .map_or_else(std::env::temp_dir, PathBuf::from)
        .join("archiving");
    let folder = &Folder { root: root.clone(), objects: Mutex::default() };
    let function = Frame {
        rule: Archive {
            columns,
            discover: is_given("--discover"),
            ttl_attribute: Some("expires_at".to_owned()),
            ..Archive::default()
        },
        executor: ArchiveSink::new(folder, "archive/".to_owned(), RetryPolicy::CONTENDED),
        quarantine: Quarantine::new(folder, "q/".to_owned(), "archive", RetryPolicy::CONTENDED),
    };
    let mut file = measurement::argument("--write").map(|path| fs::File::create(path).unwrap());
    let (mut busy, mut applied) = (0.0, 0);
    let size = measurement::argument("--batch").map_or(BATCH, |size| size.parse().unwrap());
    assert!((1..=BATCH).contains(&size), "--batch {size}: at most {BATCH} records");
    for first in (0..records).step_by(usize::try_from(size).unwrap()) {
        let size = size.min(records - first);
        let text = batch(first, size);
        if let Some(file) = &mut file {
            writeln!(file, "{text}").unwrap();
        }
        let started = measurement::busy_seconds();
        let deadline = Deadline::after(Duration::from_secs(600));
        let processed = function.process_event(&text, deadline).await.unwrap().unwrap();
        let report = processed.result.unwrap();
        drop(processed.batch);
        busy += measurement::busy_seconds() - started;
        assert!(report.response.batch_item_failures.is_empty(), "{report:?}");
        applied += report.summary.applied;
    }
    assert_eq!(applied as u64, records, "every record yields a row");
    let bytes: u64 = folder.objects.lock().unwrap().values().map(|entry| entry.bytes).sum();
    #[expect(clippy::cast_precision_loss, reason = "rates for people")]
    let (rate, size) = (applied as f64 / busy, bytes as f64 / applied as f64);
    println!(
        "{applied} records in {busy:.2} s: {rate:.0} records/s on one core, {size:.1} bytes per record, {} objects, peak memory {}",
        folder.objects.lock().unwrap().len(),
        measurement::peak_memory()
    );
    if !is_given("--keep") {
        fs::remove_dir_all(root).unwrap();
    }
}
