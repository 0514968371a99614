//! Tests with a store that notifies the poller of new records: an idle shard is read immediately.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, Put, PutRequest, TransactWriteItem, WriteRequest};
use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use super::*;
use client::endpoint;
use mapping::{Pace, Settings, Status};
use testing::store::TestStore;

/// A function that counts its records.
struct Counter(Mutex<watch::Sender<usize>>);

#[async_trait]
impl Invoke for Counter {
    async fn invoke(&self, _: &str, payload: Bytes) -> InvokeOutcome {
        let event: serde_json::Value = serde_json::from_slice(&payload).unwrap();
        let records = event["Records"].as_array().unwrap().len();
        self.0.lock().unwrap().send_modify(|count| *count += records);
        InvokeOutcome::Ok(Bytes::new())
    }
}

/// Writes one item. `way` selects the operation.
async fn write_one(client: &Client, table: &str, way: usize) {
    let key = AttributeValue::S(format!("item {way}"));
    match way {
        1 => drop(client.put_item().table_name(table).item("p", key).send().await.unwrap()),
        2 => {
            let put = PutRequest::builder().item("p", key).build().unwrap();
            let write = WriteRequest::builder().put_request(put).build();
            let request = client.batch_write_item().request_items(table, vec![write]);
            drop(request.send().await.unwrap());
        }
        _ => {
            let put = Put::builder().table_name(table).item("p", key).build().unwrap();
            let write = TransactWriteItem::builder().put(put).build();
            let request = client.transact_write_items().transact_items(write);
            drop(request.send().await.unwrap());
        }
    }
}

/// Goal: records are read without waiting for the next poll of an idle mapping, whether a write, a batch or a
/// transaction writes them. This holds for the first record and for later records.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mapping_that_rests_reads_what_has_come() {
    let store = TestStore::with_replicas(3).await;
    store.table("others").await;
    store.table("orders").await;
    let described = store.client.describe_table().table_name("orders").send().await.unwrap();
    let arn = described.table.unwrap().latest_stream_arn.unwrap();
    let mut settings = Settings::new("Mapping", "arn:function", &arn);
    assert_eq!(settings.table(), "orders");
    // The idle interval is longer than the test may take.
    settings.pace = Pace { idle_poll_ms: 3_600_000, ..Pace::of_told_store() };
    let folder = tempfile::tempdir().unwrap();
    let (count, mut counted) = watch::channel(0);
    let (status, mut statuses) = watch::channel(Status::default());
    let (shutdown, stopped) = watch::channel(false);
    let (_accept, accepted_gaps) = mpsc::channel(1);
    let running = tokio::spawn(run_mapping(Poller {
        settings,
        streams: endpoint::streams_client(&store.url),
        invoker: Arc::new(Counter(Mutex::new(count))),
        checkpoints: CheckpointStore::new(folder.path()),
        failures: Arc::new(NoDestination),
        clock: || 1_573_690_400_000,
        observer: Observer { status, events: None, pages: None },
        arrivals: store.store.arrivals("orders"),
        chaos: None,
        accepted_gaps,
        shutdown: stopped,
    }));
    let limit = Duration::from_secs(90);
    for expected in 1..=3 {
        // The mapping is idle, because it has found nothing after the last record.
        let rests = statuses.wait_for(|status| status.is_drained_after(0));
        drop(tokio::time::timeout(limit, rests).await.unwrap().unwrap());
        write_one(&store.client, "others", expected).await;
        write_one(&store.client, "orders", expected).await;
        let came = counted.wait_for(|count| *count == expected);
        drop(tokio::time::timeout(limit, came).await.expect("it is read").unwrap());
    }
    shutdown.send(true).unwrap();
    assert_eq!(running.await.unwrap().unwrap(), RunEnd::Stopped);
    assert!(store.store.arrivals("none").is_none());
}
