//! Runs the poller with a small Streams API over HTTP on the loopback interface, with pages, iterators,
//! expiry and trimming. The tests of the crate `mapping` test the mapping itself.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodbstreams::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodbstreams::{Client, Config};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::*;
use client::failure::Failure;
use mapping::{FilterCriteria, Phase, Settings, ShardId, Status};

const ARN: &str = "arn:aws:dynamodb:eu-west-1:000000000000:table/t/stream/2019-11-14T00:04:06.388";

/// A fake error code that makes the response something other than a page.
const NO_PAGE: &str = "no page";
/// A fake error code that makes the call get no response.
const NO_ANSWER: &str = "no answer";

/// One shard: its parent, whether it is closed, and the sequence numbers of its records.
pub(super) struct FakeShard {
    parent: Option<&'static str>,
    closed: bool,
    records: Vec<u64>,
}

#[derive(Default)]
struct FakeStream {
    shards: BTreeMap<&'static str, FakeShard>,
    disabled: bool,
    gone: bool,
    page: usize,
    /// The errors of the next calls, by the operation's name.
    errors: BTreeMap<&'static str, Vec<&'static str>>,
    calls: Vec<String>,
}

impl FakeStream {
    fn answer(&mut self, operation: &str, request: &Value) -> Result<Value, String> {
        let shard_id = request["ShardId"].as_str().unwrap_or_default();
        let iterator_type = request["ShardIteratorType"].as_str().unwrap_or_default();
        self.calls.push(format!("{operation} {shard_id} {iterator_type}"));
        if let Some(error) = self.errors.get_mut(operation).and_then(Vec::pop) {
            return Err(error.to_owned());
        }
        match operation {
            "DescribeStream" => self.describe(request),
            "GetShardIterator" => {
                let shard = &self.shards[shard_id];
                let place = match iterator_type {
                    "TRIM_HORIZON" => 0,
                    "LATEST" => shard.records.len(),
                    _ => {
                        let last: u64 =
                            request["SequenceNumber"].as_str().unwrap().parse().unwrap();
                        shard.records.iter().filter(|record| **record <= last).count()
                    }
                };
                Ok(json!({ "ShardIterator": format!("{shard_id}/{place}") }))
            }
            "GetRecords" => self.records(request),
            other => panic!("unexpected operation {other}"),
        }
    }

    /// Returns two shards per page, so that several pages are needed.
    fn describe(&self, request: &Value) -> Result<Value, String> {
        if self.gone {
            return Err("ResourceNotFoundException".to_owned());
        }
        let start = request["ExclusiveStartShardId"].as_str().unwrap_or_default();
        let rest: Vec<_> = self.shards.iter().filter(|(id, _)| **id > start).collect();
        let page: Vec<_> = rest.iter().take(2).collect();
        let shards: Vec<Value> = page
            .iter()
            .map(|(id, shard)| {
                let mut range = json!({ "StartingSequenceNumber": "1" });
                if shard.closed {
                    range["EndingSequenceNumber"] = json!("9");
                }
                let mut description = json!({ "ShardId": id, "SequenceNumberRange": range });
                if let Some(parent) = shard.parent {
                    description["ParentShardId"] = json!(parent);
                }
                description
            })
            .collect();
        let mut description = json!({
            "StreamArn": ARN,
            "StreamStatus": if self.disabled { "DISABLED" } else { "ENABLED" },
            "Shards": shards,
        });
        if rest.len() > page.len() {
            description["LastEvaluatedShardId"] = shards.last().unwrap()["ShardId"].clone();
        }
        Ok(json!({ "StreamDescription": description }))
    }

    fn records(&self, request: &Value) -> Result<Value, String> {
        if self.gone {
            return Err("ResourceNotFoundException".to_owned());
        }
        let (shard_id, place) = request["ShardIterator"].as_str().unwrap().split_once('/').unwrap();
        let place: usize = place.parse().unwrap();
        let shard = &self.shards[shard_id];
        let end = (place + self.page).min(shard.records.len());
        let records: Vec<Value> = shard.records[place..end]
            .iter()
            .map(|sequence| {
                json!({
                    "eventID": format!("{sequence:032x}"),
                    "eventName": if sequence % 5 == 0 { "REMOVE" } else { "INSERT" },
                    "eventVersion": "1.1",
                    "eventSource": "aws:dynamodb",
                    "awsRegion": "eu-west-1",
                    "dynamodb": {
                        "ApproximateCreationDateTime": 1_573_690_399,
                        "Keys": { "pk": { "S": format!("item {sequence}") } },
                        "SequenceNumber": sequence.to_string(),
                        "SizeBytes": 10,
                        "StreamViewType": "KEYS_ONLY",
                    },
                })
            })
            .collect();
        let mut answer = json!({ "Records": records });
        if !(shard.closed && end == shard.records.len()) {
            answer["NextShardIterator"] = json!(format!("{shard_id}/{end}"));
        }
        Ok(answer)
    }
}

/// Serves a stream; the task ends with the test's runtime.
async fn serve(stream: Arc<Mutex<FakeStream>>) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let stream = Arc::clone(&stream);
            let service = service_fn(move |request| answer(Arc::clone(&stream), request));
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(http.serve_connection(TokioIo::new(socket), service));
        }
    });
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(client::https::client())
        .region(Region::new("eu-west-1"))
        .credentials_provider(Credentials::new("local", "local", None, None, "test"))
        .endpoint_url(endpoint);
    Client::from_conf(config.build())
}

async fn answer(
    stream: Arc<Mutex<FakeStream>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let target = request.headers()["x-amz-target"].to_str().unwrap().to_owned();
    let operation = target.strip_prefix("DynamoDBStreams_20120810.").unwrap().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let answered = stream.lock().unwrap().answer(&operation, &body);
    let (status, body) = match answered {
        Ok(body) => (200, body),
        Err(code) if code == NO_ANSWER => std::future::pending().await,
        // The response is not from the stream but from an intermediary, such as a proxy.
        Err(code) if code == NO_PAGE => (200, json!({ "Records": "none" })),
        Err(code) => {
            let name = format!("com.amazonaws.dynamodb.v20120810#{code}");
            (400, json!({ "__type": name, "message": "an error from the test" }))
        }
    };
    let response = Response::builder().status(status);
    let response = response.header("content-type", "application/x-amz-json-1.0");
    Ok(response.body(Full::new(Bytes::from(body.to_string()))).unwrap())
}

/// A function that records its batches and returns the responses that the test sets.
#[derive(Default)]
pub(super) struct FakeFunction {
    pub(super) batches: Mutex<Vec<Vec<u64>>>,
    /// The records that the function always reports as failed.
    pub(super) poison: Vec<u64>,
    /// Whether the function never responds.
    pub(super) hangs: bool,
}

#[async_trait]
impl Invoke for FakeFunction {
    async fn invoke(&self, _: &str, payload: Bytes) -> InvokeOutcome {
        let event: Value = serde_json::from_slice(&payload).unwrap();
        let batch: Vec<u64> = event["Records"]
            .as_array()
            .unwrap()
            .iter()
            .map(|record| record["dynamodb"]["SequenceNumber"].as_str().unwrap().parse().unwrap())
            .collect();
        self.batches.lock().unwrap().push(batch.clone());
        if self.hangs {
            std::future::pending::<()>().await;
        }
        let failed = batch.iter().find(|sequence| self.poison.contains(sequence));
        let answer = failed.map_or(
            json!({}),
            |sequence| json!({ "batchItemFailures": [{ "itemIdentifier": sequence.to_string() }] }),
        );
        InvokeOutcome::Ok(Bytes::from(answer.to_string()))
    }
}

impl FakeFunction {
    pub(super) fn delivered(&self) -> Vec<u64> {
        self.batches.lock().unwrap().iter().flatten().copied().collect()
    }
}

#[derive(Default)]
struct FakeDestination(Mutex<Vec<(String, Value)>>);

#[async_trait]
impl FailureDestination for FakeDestination {
    async fn store(&self, key: &str, body: Bytes) -> Result<(), Failure> {
        let mut objects = self.0.lock().unwrap();
        objects.push((key.to_owned(), serde_json::from_slice(&body).unwrap()));
        if objects.len() == 1 { Err("not yet".into()) } else { Ok(()) }
    }
}

pub(super) struct Bench {
    folder: tempfile::TempDir,
    stream: Arc<Mutex<FakeStream>>,
    client: Client,
    pub(super) settings: Settings,
    failures: Arc<FakeDestination>,
    pub(super) chaos: Option<Arc<Chaos>>,
}

pub(super) struct Running {
    task: JoinHandle<Result<RunEnd, RunError>>,
    status: watch::Receiver<Status>,
    shutdown: watch::Sender<bool>,
    pub(super) events: mpsc::Receiver<Observed>,
    accept_gap: mpsc::Sender<ShardId>,
}

impl Bench {
    pub(super) async fn new(shards: Vec<(&'static str, FakeShard)>) -> Self {
        let shards = shards.into_iter().collect();
        let stream = FakeStream { shards, page: 3, ..FakeStream::default() };
        let stream = Arc::new(Mutex::new(stream));
        let client = serve(Arc::clone(&stream)).await;
        let mut settings = Settings::new("Mapping", "arn:function", ARN);
        settings.batch_size = 4;
        settings.report_batch_item_failures = true;
        settings.retry_attempts = Some(1);
        settings.has_failure_destination = true;
        settings.pace.idle_poll_ms = 5;
        settings.pace.describe_ms = 50;
        // The mapping ends at the first error about a missing stream.
        settings.pace.missing_ms = 0;
        settings.pace.retry.base_ms = 5;
        settings.pace.unreachable.base_ms = 5;
        settings.filter = FilterCriteria::compile(&[r#"{"eventName":["INSERT"]}"#]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        Self { folder, stream, client, settings, failures: Arc::default(), chaos: None }
    }

    pub(super) fn run(&self, function: &Arc<FakeFunction>) -> Running {
        let (status_sender, status) = watch::channel(Status::default());
        let (event_sender, events) = mpsc::channel(1_000);
        let (shutdown, stop) = watch::channel(false);
        let (accept_gap, accepted_gaps) = mpsc::channel(1);
        let poller = Poller {
            settings: self.settings.clone(),
            streams: self.client.clone(),
            invoker: Arc::clone(function),
            checkpoints: CheckpointStore::new(self.folder.path()),
            failures: Arc::clone(&self.failures),
            clock: || 1_573_690_400_000,
            observer: Observer { status: status_sender, events: Some(event_sender), pages: None },
            arrivals: None,
            chaos: self.chaos.as_ref().map(|chaos| chaos.of_mapping("Mapping")),
            accepted_gaps,
            shutdown: stop,
        };
        let task = tokio::spawn(run_mapping(poller));
        Running { task, status, shutdown, events, accept_gap }
    }
}

impl Running {
    async fn wait_for(&mut self, what: impl FnMut(&Status) -> bool) -> Status {
        let waiting = self.status.wait_for(what);
        let status = tokio::time::timeout(Duration::from_secs(90), waiting).await;
        status.expect("in good time").expect("the mapping runs").clone()
    }

    pub(super) async fn drain(&mut self) -> Status {
        let tick = tick_ms();
        self.wait_for(|status| status.is_drained_after(tick)).await
    }

    pub(super) async fn stop(self) -> RunEnd {
        self.shutdown.send(true).unwrap();
        self.task.await.unwrap().unwrap()
    }
}

pub(super) fn open(records: impl IntoIterator<Item = u64>) -> FakeShard {
    FakeShard { parent: None, closed: false, records: records.into_iter().collect() }
}

#[tokio::test]
async fn follows_a_stream_through_its_shards() {
    let parent = FakeShard { closed: true, ..open(1..=11) };
    let child =
        |records: std::ops::RangeInclusive<u64>| FakeShard { parent: Some("s1"), ..open(records) };
    let shards = vec![("s1", parent), ("s2", child(21..=29)), ("s3", child(31..=39))];
    let bench = Bench::new(shards).await;
    let function = Arc::new(FakeFunction::default());
    let mut running = bench.run(&function);
    let status = running.drain().await;
    let delivered = function.delivered();
    let passes = |sequence: &u64| !sequence.is_multiple_of(5);
    let in_order = |range: std::ops::RangeInclusive<u64>| {
        let found: Vec<_> = delivered.iter().copied().filter(|one| range.contains(one)).collect();
        let expected: Vec<_> = range.filter(passes).collect();
        assert_eq!(found, expected);
    };
    in_order(1..=11);
    in_order(21..=29);
    in_order(31..=39);
    assert!(delivered[..9].iter().all(|sequence| *sequence <= 11), "parent first: {delivered:?}");
    assert_eq!(status.totals.read, 29);
    assert_eq!(status.totals.filtered + status.totals.done, 29);
    assert!(matches!(status.shards[0].phase, Phase::Done { .. }));
    assert_eq!(status.shards[1].checkpoint.as_ref().unwrap().as_str(), "29");

    // Records that are written later are delivered, too, and none is delivered twice.
    let known = delivered.len();
    bench.stream.lock().unwrap().shards.get_mut("s2").unwrap().records.extend([51, 52]);
    running.drain().await;
    assert_eq!(function.delivered()[known..], [51, 52]);

    // The stopped run has processed all records, so the next run has none to deliver.
    assert_eq!(running.stop().await, RunEnd::Stopped);
    let next = Arc::new(FakeFunction::default());
    let mut running = bench.run(&next);
    running.drain().await;
    assert_eq!(next.delivered(), [0; 0]);
    let calls = bench.stream.lock().unwrap().calls.clone();
    let resumed = calls.iter().filter(|call| *call == "GetShardIterator s2 AFTER_SEQUENCE_NUMBER");
    assert_eq!(resumed.count(), 1, "{calls:?}");
}

#[tokio::test]
async fn a_killed_run_delivers_again_what_was_not_done() {
    let bench = Bench::new(vec![("s1", open([1, 2, 3, 4, 6, 7]))]).await;
    let hanging = Arc::new(FakeFunction { hangs: true, ..FakeFunction::default() });
    let mut running = bench.run(&hanging);
    running.wait_for(|status| status.shards.iter().any(|shard| shard.in_flight > 0)).await;
    while hanging.delivered().is_empty() {
        tokio::task::yield_now().await;
    }
    running.task.abort();
    assert!(running.task.await.unwrap_err().is_cancelled());
    let function = Arc::new(FakeFunction::default());
    let mut running = bench.run(&function);
    running.drain().await;
    assert_eq!(function.delivered(), [1, 2, 3, 4, 6, 7]);
    assert_eq!(running.stop().await, RunEnd::Stopped);
}

#[tokio::test]
async fn what_is_given_up_is_stored_before_the_shard_goes_on() {
    let bench = Bench::new(vec![("s1", open([1, 2, 3, 4, 6]))]).await;
    let function = Arc::new(FakeFunction { poison: vec![2], ..FakeFunction::default() });
    let mut running = bench.run(&function);
    let status = running.drain().await;
    assert_eq!(status.totals.done + status.totals.discarded, 5);
    assert_eq!(status.totals.failures, 3, "one failure of the batch, two of its rest");
    let objects = bench.failures.0.lock().unwrap();
    assert_eq!(objects.len(), 2, "the first attempt to store was refused");
    assert_eq!(objects[0], objects[1]);
    let (key, document) = &objects[0];
    assert!(key.starts_with("aws/lambda/Mapping/s1/2019/11/14/2019-11-14T00.13.20-"), "{key}");
    assert_eq!(document["DDBStreamBatchInfo"]["startSequenceNumber"], "2");
    let payload: Value = serde_json::from_str(document["payload"].as_str().unwrap()).unwrap();
    assert_eq!(payload["Records"][0]["dynamodb"]["Keys"]["pk"]["S"], "item 2");
    assert_eq!(payload["Records"][0]["eventSourceARN"], ARN);
    drop(objects);
    let mut texts = Vec::new();
    while let Ok(observed) = running.events.try_recv() {
        assert_eq!(observed.missed, 0);
        texts.push(observed.command.to_string());
    }
    for part in ["invoke b1 s1 attempt 1: 1 2 3", "report discarded s1"] {
        assert!(texts.iter().any(|text| text.contains(part)), "{part} in {texts:?}");
    }
}

#[tokio::test]
async fn passing_errors_pass() {
    let bench = Bench::new(vec![("s1", open([1, 2, 3, 4, 6, 7, 8, 9]))]).await;
    bench.stream.lock().unwrap().errors = BTreeMap::from([
        ("DescribeStream", vec!["LimitExceededException"]),
        ("GetShardIterator", vec!["InternalServerError"; 4]),
        ("GetRecords", vec!["ExpiredIteratorException", NO_PAGE, "LimitExceededException"]),
    ]);
    let function = Arc::new(FakeFunction::default());
    let mut running = bench.run(&function);
    running.drain().await;
    assert_eq!(function.delivered(), [1, 2, 3, 4, 6, 7, 8, 9]);
}

/// Goal: a connection that hangs without an error blocks neither a shard nor the listing.
#[tokio::test]
async fn a_call_that_is_never_answered_is_made_again() {
    let mut bench = Bench::new(vec![("s1", open([1, 2, 3, 4]))]).await;
    // The timeout is long enough for most responses. A call that times out is retried anyway.
    bench.settings.pace.call_ms = 300;
    bench.stream.lock().unwrap().errors = BTreeMap::from([
        ("DescribeStream", vec![NO_ANSWER]),
        ("GetShardIterator", vec![NO_ANSWER]),
        ("GetRecords", vec![NO_ANSWER]),
    ]);
    let function = Arc::new(FakeFunction::default());
    let mut running = bench.run(&function);
    let status = running.wait_for(|status| status.unavailable.is_some()).await;
    assert!(status.unavailable.unwrap().contains("no response within"));
    running.drain().await;
    assert_eq!(function.delivered(), [1, 2, 3, 4]);
}

/// Goal: a mapping delivers records only after a position that is on disk. Otherwise, after a crash, a new
/// mapping would begin at the newest record of that time.
#[tokio::test]
async fn latest_reads_nothing_before_its_position_is_on_disk() {
    let mut bench = Bench::new(vec![("s1", open([1, 2]))]).await;
    bench.settings.starting_position = mapping::StartingPosition::Latest;
    let busy = BTreeMap::from([("DescribeStream", vec!["LimitExceededException"; 100_000])]);
    bench.stream.lock().unwrap().errors = busy;
    let path = CheckpointStore::new(bench.folder.path()).path(&bench.settings);
    let (folder, away) = (path.parent().unwrap(), bench.folder.path().join("away"));
    let function = Arc::new(FakeFunction::default());
    let mut running = bench.run(&function);
    running.wait_for(|status| status.unavailable.is_some()).await;
    std::fs::rename(folder, &away).unwrap();
    std::fs::write(folder, "in the way").unwrap();
    bench.stream.lock().unwrap().errors.clear();
    running.wait_for(|status| status.unsaved).await;
    bench.stream.lock().unwrap().shards.get_mut("s1").unwrap().records.push(3);
    // Waits until the mapping has listed the shards again.
    let before = bench.stream.lock().unwrap().calls.len();
    while bench.stream.lock().unwrap().calls.len() < before + 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let calls = bench.stream.lock().unwrap().calls.clone();
    assert!(!calls.iter().any(|call| call.starts_with("Get")), "{calls:?}");
    std::fs::remove_file(folder).unwrap();
    std::fs::rename(away, folder).unwrap();
    running.drain().await;
    assert!(path.exists() && !running.status.borrow().unsaved);
    bench.stream.lock().unwrap().shards.get_mut("s1").unwrap().records.push(4);
    running.drain().await;
    assert_eq!(function.delivered(), [4]);
}

/// Goal: a stream that is missing for a short time, as with keys of another account, does not end
/// the mapping.
#[tokio::test]
async fn a_stream_that_is_missing_may_come_back() {
    let mut bench = Bench::new(vec![("s1", open([1, 2]))]).await;
    bench.settings.pace.missing_ms = 600_000;
    let function = Arc::new(FakeFunction::default());
    let mut running = bench.run(&function);
    running.drain().await;
    bench.stream.lock().unwrap().gone = true;
    let is_missed = |it: &Status| it.unavailable.is_some() && it.shards[0].unreachable;
    let status = running.wait_for(is_missed).await;
    assert!(status.unavailable.unwrap().contains("ResourceNotFoundException"));
    bench.stream.lock().unwrap().shards.get_mut("s1").unwrap().records.push(3);
    bench.stream.lock().unwrap().gone = false;
    let status = running.drain().await;
    assert_eq!((function.delivered(), status.totals.gaps), (vec![1, 2, 3], 0));
}

#[tokio::test]
async fn a_gap_stands_until_it_is_accepted() {
    let bench = Bench::new(vec![("s1", open([1, 2]))]).await;
    bench.stream.lock().unwrap().errors =
        BTreeMap::from([("GetShardIterator", vec!["TrimmedDataAccessException"])]);
    let function = Arc::new(FakeFunction::default());
    let mut running = bench.run(&function);
    let status = running.wait_for(|status| status.gaps().next().is_some()).await;
    assert!(!status.is_drained_after(0));
    assert_eq!(function.delivered(), [0; 0]);
    running.accept_gap.send(ShardId::new("s1")).await.unwrap();
    running.drain().await;
    assert_eq!(function.delivered(), [1, 2]);
}

#[tokio::test]
async fn a_disabled_stream_is_worked_off_to_its_end() {
    let bench = Bench::new(vec![("s1", FakeShard { closed: true, ..open([1, 2]) })]).await;
    bench.stream.lock().unwrap().disabled = true;
    let function = Arc::new(FakeFunction::default());
    let running = bench.run(&function);
    assert_eq!(running.task.await.unwrap().unwrap(), RunEnd::StreamEnded);
    assert_eq!(function.delivered(), [1, 2]);
}

/// Goal: if the disk fails for a short time, the mapping continues and loses no record.
#[tokio::test]
async fn checkpoints_that_cannot_be_saved_are_saved_later() {
    let bench = Bench::new(vec![("s1", open([1, 2]))]).await;
    let path = CheckpointStore::new(bench.folder.path()).path(&bench.settings);
    let (folder, away) = (path.parent().unwrap(), bench.folder.path().join("away"));
    let function = Arc::new(FakeFunction::default());
    let mut running = bench.run(&function);
    running.drain().await;
    std::fs::rename(folder, &away).unwrap();
    std::fs::write(folder, "in the way").unwrap();
    bench.stream.lock().unwrap().shards.get_mut("s1").unwrap().records.push(3);
    running.wait_for(|status| status.totals.done == 3).await;
    assert_eq!(function.delivered(), [1, 2, 3]);
    assert!(!running.task.is_finished());
    std::fs::remove_file(folder).unwrap();
    std::fs::rename(away, folder).unwrap();
    assert_eq!(running.stop().await, RunEnd::Stopped);
    let function = Arc::new(FakeFunction::default());
    let mut running = bench.run(&function);
    running.drain().await;
    assert_eq!(function.delivered(), [0; 0], "the last checkpoint was saved");
}

#[tokio::test]
async fn a_stream_that_is_gone_is_no_gap() {
    let mut bench = Bench::new(vec![("s1", open([1, 2]))]).await;
    // With this long interval, the stream is not described again during the test.
    bench.settings.pace.describe_ms = 600_000;
    let mut running = bench.run(&Arc::new(FakeFunction::default()));
    running.drain().await;
    bench.stream.lock().unwrap().gone = true;
    let error = running.task.await.unwrap().unwrap_err();
    assert!(matches!(error, RunError::StreamGone { .. }), "{error}");
    assert_eq!(running.status.borrow().totals.gaps, 0);
}

#[tokio::test]
async fn a_run_that_cannot_go_on_says_why() {
    let mut bench = Bench::new(vec![("s1", open([1]))]).await;
    let function = Arc::new(FakeFunction::default());
    bench.stream.lock().unwrap().gone = true;
    let error = bench.run(&function).task.await.unwrap().unwrap_err();
    assert!(matches!(error, RunError::StreamGone { .. }), "{error}");
    assert!(error.to_string().contains("ResourceNotFoundException"), "{error}");

    let path = CheckpointStore::new(bench.folder.path()).path(&bench.settings);
    std::fs::write(&path, "{").unwrap();
    let error = bench.run(&function).task.await.unwrap().unwrap_err();
    assert!(matches!(error, RunError::Checkpoint(CheckpointError::Damaged { .. })), "{error}");
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");

    bench.settings.batch_size = 0;
    let error = bench.run(&function).task.await.unwrap().unwrap_err();
    assert!(matches!(error, RunError::Setting(_)), "{error}");
    assert!(error.to_string().contains("1 to 10000"), "{error}");
}
