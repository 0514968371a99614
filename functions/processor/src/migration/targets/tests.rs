//! Batches of a stream over a target table that accepts fewer writes than a batch needs.

use std::cell::RefCell;
use std::time::Duration;

use control::State;
use model::{KeyAttribute, KeyAttributeType};
use rules::migration::{Direction, Phase};
use serde_json::{Value, json};

use super::super::Throttling;
use super::super::control_table::tests::json_of;
use super::*;
use crate::event::{Event, decode};
use crate::frame::{Frame, Report};
use crate::object_store::in_memory::InMemoryObjectStore;
use crate::quarantine::Quarantine;
use crate::tables::scripted::{endpoint, serve_as};

/// Number of records: more than are written concurrently.
const RECORDS: usize = 200;
/// Number of writes that the table accepts in one delivery.
const WRITES: usize = 80;

fn migration() -> Arc<Migration> {
    let made = json!({"to": "tgt", "transform": "{id: .id}", "key": {"pk": "T#{id}"}});
    let plan = json!({
        "migration": "m", "kind": "restructure", "from": [{"table": "src", "items": [made]}],
        "inverse": [], "backfill": "scan", "segments": 1, "gate_seconds": 1,
    });
    let plan = serde_json::from_value(plan).unwrap();
    let schema = |name: &str| KeySchema {
        partition: KeyAttribute { name: name.to_owned(), attribute_type: KeyAttributeType::S },
        sort: None,
    };
    let schemas = [("src".to_owned(), schema("id")), ("tgt".to_owned(), schema("pk"))].into();
    Arc::new(Migration::compile(&plan, Direction::Forward, &schemas).unwrap())
}

/// Returns the record of an inserted item. The order of the keys differs from the order of the
/// records.
fn record(number: usize) -> String {
    let key = json!({"id": {"S": format!("{:03}", number * 7919 % 1000)}});
    json!({
        "eventID": format!("e{number}"), "eventName": "INSERT",
        "dynamodb": {
            "ApproximateCreationDateTime": 1_795_228_199, "Keys": key, "NewImage": key,
            "SequenceNumber": format!("{}", 1000 + number), "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
        "eventSourceARN": "arn:aws:dynamodb:r:a:table/src/stream/2026",
    })
    .to_string()
}

/// A target table with limited capacity.
#[derive(Default)]
struct TargetTable {
    items: BTreeMap<String, Value>,
    /// Number of writes that the table still accepts.
    writes: usize,
    /// Number of writes that the table still throttles.
    throttled: usize,
    /// The key of the target whose writes fail.
    broken: Option<String>,
    /// The phase of the migration.
    phase: Phase,
    /// Entries that were written for operators.
    told: Vec<String>,
}

impl TargetTable {
    fn answer(&mut self, operation: &str, body: &Value) -> (&'static str, Value) {
        let failed = |name: &str, item: Option<&Value>| {
            let error = format!("com.amazonaws.dynamodb.v20120810#{name}");
            ("400 Bad Request", json!({"__type": error, "message": "m", "Item": item}))
        };
        if body["TableName"] == "control" {
            if operation == "getitem" {
                let state = State { phase: self.phase, ..State::new("m") };
                return ("200 OK", json!({"Item": json_of(&state)}));
            }
            self.told.push(body["Item"]["entry"]["S"].as_str().unwrap().to_owned());
            return ("200 OK", json!({}));
        }
        let key = |item: &Value| item["pk"]["S"].as_str().unwrap().to_owned();
        if operation == "getitem" {
            let item = self.items.get(&key(&body["Key"]));
            return ("200 OK", item.map_or_else(|| json!({}), |item| json!({"Item": item})));
        }
        assert_eq!(operation, "putitem");
        let key = key(&body["Item"]);
        if self.throttled > 0 {
            self.throttled -= 1;
            return failed("ProvisionedThroughputExceededException", None);
        }
        if self.writes == 0 || self.broken.as_ref() == Some(&key) {
            return failed("InternalServerError", None);
        }
        // A failed condition costs as much as a write.
        self.writes -= 1;
        if let Some(stands) = self.items.get(&key) {
            return failed("ConditionalCheckFailedException", Some(stands));
        }
        self.items.insert(key, body["Item"].clone());
        ("200 OK", json!({}))
    }
}

/// Delivers records to a function with this throttling. A failed write is not retried.
async fn deliver(table: &RefCell<TargetTable>, throttling: Throttling, batch: &[String]) -> Report {
    let (listener, client) = endpoint().await;
    let watched = client.config().to_builder().interceptor(throttling.clone()).build();
    let control = Control::new(Client::from_conf(watched), "control".to_owned(), throttling);
    let retry = RetryPolicy { attempts_max: 1, ..RetryPolicy::CONTENDED };
    let rule = vec![migration()];
    let store = Arc::new(InMemoryObjectStore::default());
    let frame = Frame {
        executor: Targets::new(control, &rule, retry),
        rule,
        quarantine: Quarantine::new(store, "q/".to_owned(), "migration", retry),
    };
    let payload = format!(r#"{{"Records":[{}]}}"#, batch.join(","));
    let Ok(Event::Batch(batch)) = decode(&payload) else { panic!("{payload}") };
    let serving = serve_as(listener, |operation, body| table.borrow_mut().answer(operation, &body));
    tokio::select! {
        report = frame.process(&batch, Deadline::after(Duration::from_secs(600))) => report.unwrap(),
        () = serving => panic!("nothing was answered"),
    }
}

/// Returns the records that a report returns for redelivery.
fn left<'r>(batch: &'r [String], report: &Report) -> &'r [String] {
    let Some(failure) = report.response.batch_item_failures.first() else { return &[] };
    let named = format!(r#""SequenceNumber":"{}""#, failure.item_identifier);
    &batch[batch.iter().position(|record| record.contains(&named)).unwrap()..]
}

#[tokio::test]
async fn every_delivery_of_a_batch_that_a_table_cannot_take_gets_further() {
    let records: Vec<String> = (0..RECORDS).map(record).collect();
    let (table, mut batch) = (RefCell::<TargetTable>::default(), records.as_slice());
    for expected in [RECORDS - WRITES, RECORDS - 2 * WRITES, 0] {
        table.borrow_mut().writes = WRITES;
        batch = left(batch, &deliver(&table, Throttling::default(), batch).await);
        // Concurrent writes end in any order, so the number of done records is not exact.
        assert!(batch.len().abs_diff(expected) < WRITES_AT_ONCE, "{} {expected}", batch.len());
    }
    assert_eq!(batch.len(), 0);
    assert_eq!(table.borrow().items.len(), RECORDS);
}

#[tokio::test]
async fn effects_of_an_earlier_delivery_cost_no_writes() {
    let records: Vec<String> = (0..RECORDS).map(record).collect();
    let table = RefCell::new(TargetTable { broken: Some("T#000".to_owned()), ..<_>::default() });
    for expected in [WRITES, 2 * WRITES, RECORDS - 1] {
        table.borrow_mut().writes = WRITES;
        let report = deliver(&table, Throttling::narrowed_to(WRITES_AT_ONCE / 2), &records).await;
        assert_eq!(left(&records, &report).len(), RECORDS);
        assert_eq!(table.borrow().items.len(), expected);
    }
}

#[tokio::test]
async fn a_batch_waits_for_the_capacity_of_its_first_target() {
    let table = RefCell::new(TargetTable { writes: 1, throttled: 20, ..TargetTable::default() });
    let report = deliver(&table, Throttling::default(), &[record(1)]).await;
    assert_eq!((report.summary.applied, report.summary.retried), (1, 0));
}

#[tokio::test]
async fn an_applied_record_does_not_overwrite_a_later_write() {
    let record = record(1);
    let table = RefCell::new(TargetTable { writes: 1, ..TargetTable::default() });
    deliver(&table, Throttling::default(), std::slice::from_ref(&record)).await;
    let mut table = table.into_inner();
    let item = table.items.values_mut().next().unwrap();
    // The first value sorts before the record's value, the second value after it.
    for value in ["0", "~"] {
        item["id"] = json!({"S": value});
        let stands = item.clone();
        let again = [(stands["pk"]["S"].as_str().unwrap().to_owned(), stands)].into();
        let table = RefCell::new(TargetTable { items: again, writes: 9, ..TargetTable::default() });
        let report =
            deliver(&table, Throttling::default(), std::slice::from_ref(&record)).await.summary;
        assert_eq!((report.applied, report.already_applied, report.retried), (0, 1, 0), "{value}");
        // The first request returns the current item, and no other request is made.
        assert_eq!(table.borrow().writes, 8, "{value}");
    }
}

#[tokio::test]
async fn an_item_written_after_the_switch_is_no_problem() {
    let records = [record(1)];
    for (phase, told) in [
        (Phase::Tailing, 1),
        (Phase::CuttingOver, 1),
        (Phase::Turning, 0),
        (Phase::CutOver, 0),
        (Phase::Completed, 0),
    ] {
        let key = "T#919".to_owned();
        let stands = json!({"pk": {"S": key}, "id": {"S": "mine"}});
        let items = [(key, stands)].into();
        let table = RefCell::new(TargetTable { items, writes: 9, phase, ..TargetTable::default() });
        let report = deliver(&table, Throttling::default(), &records).await.summary;
        assert_eq!((report.applied, report.retried), (0, 0), "{phase:?}");
        let table = table.into_inner();
        assert_eq!((table.told.len(), table.writes), (told, 8), "{phase:?} {:?}", table.told);
        assert!(table.told.iter().all(|entry| entry.starts_with("PROBLEM#foreign#tgt#")));
    }
}
