//! Tests of real processes with damaged disks, or without free file descriptors.
//!
//! Goal: the store continues with the data of the two undamaged nodes, and logs the damage. Clients get no
//! error, but need a retry if the process restarts.
//! Method: the tests write large items, so that every node has tables. Then they flip one bit of a file, and
//! read all items with each operation that reads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The number of items. [`ITEM_BYTES`] is their size in bytes. A state keeps at most 16 MB in
/// memory, and each item counts twice because of its stream record. Therefore each state has a
/// table and a file of stream records on disk.
const ITEMS: usize = 48;
const ITEM_BYTES: usize = 300_000;
/// The time-out of every wait in these tests. It is long, because the computer may be busy with
/// other tests.
const LIMIT: Duration = Duration::from_secs(240);
/// The maximum number of retries of one request. Each pause is four times as long as the previous pause.
const RETRIES: usize = 5;
/// The expected retries if no request needed a retry.
const NO_RETRY: [usize; 0] = [];

/// A running store. Dropping this value kills it.
struct Process {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Process {
    /// Starts the binary and waits until it listens. `open_files` limits the number of its open files.
    fn start(data: &Path, arguments: &[String], open_files: Option<u32>) -> Self {
        let log = data.with_extension("log");
        let output = File::create(&log).unwrap();
        let limit = open_files.map_or(String::new(), |files| format!("ulimit -n {files}; "));
        let child = Command::new("sh")
            .args(["-c", &format!("{limit}exec \"$@\""), "sh"])
            .arg(env!("CARGO_BIN_EXE_local-store"))
            .args(["--port", "0", "--data"])
            .arg(data)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        let mut process = Self { child, address: ([127, 0, 0, 1], 0).into(), log };
        let listening = wait_for("it listens", || {
            assert!(process.child.try_wait().unwrap().is_none(), "{}", process.log_text());
            process.address()
        });
        process.address = listening;
        process
    }

    /// Returns the current address. A process has a new port after it has restarted itself.
    fn address(&self) -> Option<SocketAddr> {
        let text = self.log_text();
        let (_, last) = text.rsplit_once("listening on http://")?;
        last.split_whitespace().next()?.parse().ok()
    }

    fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends one request. Returns `None` if there was no response.
    fn ask(&self, method: &str, path: &str, target: &str, body: &str) -> Option<(u16, Value)> {
        let address = self.address()?;
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
        exchange(&mut BufReader::new(stream), address, [method, path, target, body])
    }

    fn call(&self, operation: &str, request: &Value) -> Option<(u16, Value)> {
        let of_streams = ["DescribeStream", "GetShardIterator", "GetRecords"];
        let api = if of_streams.contains(&operation) { "DynamoDBStreams" } else { "DynamoDB" };
        let target = format!("{api}_20120810.{operation}");
        self.ask("POST", "/", &target, &request.to_string())
    }

    /// Sends a request with retries. Returns the response, and the number of retries.
    fn retry(&self, operation: &str, request: &Value) -> (Value, usize) {
        for retries in 0..=RETRIES {
            match self.call(operation, request) {
                Some((200, answer)) => return (answer, retries),
                Some((status, answer)) => assert!(status >= 500, "{status}: {answer}"),
                None => {}
            }
            thread::sleep(Duration::from_millis(200 << (2 * retries)));
        }
        panic!("{operation} had no response within {RETRIES} retries: {}", self.log_text());
    }

    fn status(&self) -> Option<Value> {
        Some(self.ask("GET", "/_weir/status", "", "")?.1)
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn exchange(
    connection: &mut BufReader<TcpStream>,
    address: SocketAddr,
    [method, path, target, body]: [&str; 4],
) -> Option<(u16, Value)> {
    let length = body.len();
    write!(
        connection.get_mut(),
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nx-amz-target: {target}\r\n\
         content-type: application/x-amz-json-1.0\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .ok()?;
    let mut line = String::new();
    connection.read_line(&mut line).ok()?;
    let status = line.split_whitespace().nth(1)?.parse().ok()?;
    let mut length = 0;
    loop {
        line.clear();
        connection.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).ok()?;
    Some((status, serde_json::from_slice(&body).ok()?))
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "{what} within {LIMIT:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn value(item: usize) -> String {
    // The value must be incompressible, so that it needs its full size on disk.
    let mut state = item as u64 + 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + u8::try_from((state >> 33) % 26).unwrap())
    };
    (0..ITEM_BYTES).map(|_| next()).collect()
}

fn create(process: &Process) {
    let create = json!({
        "TableName": "table", "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
        "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "NEW_IMAGE"},
    });
    process.retry("CreateTable", &create);
}

fn fill(process: &Process) {
    create(process);
    (0..ITEMS).for_each(|item| put(process, item));
}

fn request_to_put(item: usize) -> Value {
    let item = json!({"p": {"S": format!("k{item}")}, "v": {"S": value(item)}});
    json!({"TableName": "table", "Item": item})
}

fn put(process: &Process, item: usize) {
    process.retry("PutItem", &request_to_put(item));
}

/// The operation with which a test reads every item.
#[derive(Clone, Copy, Debug)]
enum Reads {
    GetItem,
    Query,
    Scan,
    ExecuteStatement,
    BatchExecuteStatement,
    ExecuteTransaction,
    GetRecords,
}

/// The results of the reads of a client.
#[derive(Debug, Default)]
struct Seen {
    /// The items in the responses, in JSON.
    items: Vec<Value>,
    /// The number of retries of each request that was retried.
    retries: Vec<usize>,
}

impl Seen {
    fn send(&mut self, process: &Process, operation: &str, request: &Value) -> Value {
        let (answer, retries) = process.retry(operation, request);
        self.retries.extend((retries > 0).then_some(retries));
        answer
    }

    /// Reads all pages. `next` has the names of the token for the next page in responses and in
    /// requests.
    fn pages(&mut self, process: &Process, operation: &str, request: Value, next: [&str; 2]) {
        let [answered, sent] = next;
        let mut request = request;
        loop {
            let mut answer = self.send(process, operation, &request);
            if let Value::Array(items) = answer["Items"].take() {
                self.items.extend(items);
            }
            match answer[answered].take() {
                Value::Null => return,
                place => request[sent] = place,
            }
        }
    }

    /// Reads with up to ten statements in each request, so that a transaction does not exceed its size
    /// limit.
    fn statements(&mut self, process: &Process, operation: &str, list: &str) {
        for from in (0..ITEMS).step_by(10) {
            let select = |item: usize| {
                let text = format!("-- read one\nselect * FROM \"table\" WHERE p = 'k{item}'");
                json!({"Statement": text})
            };
            let all: Vec<Value> = (from..(from + 10).min(ITEMS)).map(select).collect();
            let mut answer = self.send(process, operation, &json!({list: all}));
            let answers = answer["Responses"].as_array_mut().unwrap();
            self.items.extend(answers.iter_mut().map(|answer| answer["Item"].take()));
        }
    }

    /// Reads the first record of each item from the beginning of each shard.
    fn records(&mut self, process: &Process) {
        let table = json!({"TableName": "table"});
        let arn = self.send(process, "DescribeTable", &table)["Table"]["LatestStreamArn"].take();
        let stream =
            self.send(process, "DescribeStream", &json!({"StreamArn": arn}))["StreamDescription"]
                .take();
        let mut records = Vec::new();
        for shard in list(&stream, "Shards") {
            let place = json!({
                "StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON",
            });
            let mut iterator =
                self.send(process, "GetShardIterator", &place)["ShardIterator"].take();
            while !iterator.is_null() {
                let next = json!({"ShardIterator": iterator});
                let mut answer = self.send(process, "GetRecords", &next);
                let Value::Array(page) = answer["Records"].take() else { break };
                if page.is_empty() {
                    break;
                }
                records.extend(page.into_iter().map(|mut record| record["dynamodb"].take()));
                iterator = answer["NextShardIterator"].take();
            }
        }
        let numbers: BTreeSet<String> =
            records.iter().map(|record| record["SequenceNumber"].to_string()).collect();
        assert_eq!(numbers.len(), records.len(), "no record is answered twice");
        // A retry of a write whose response was lost creates no record, because the item does not change.
        self.items.extend(records.iter_mut().map(|record| record["NewImage"].take()));
    }
}

/// Reads and checks every item with one operation. Returns the number of retries of each request that was
/// retried.
fn read_by(process: &Process, reads: Reads) -> Vec<usize> {
    let mut seen = Seen::default();
    let by_key = |item: usize, name: &str, key: Value| {
        let mut request = json!({"TableName": "table", "ConsistentRead": true});
        request[name] = key;
        request["ExpressionAttributeValues"] = match name {
            "Key" => Value::Null,
            _ => json!({":p": {"S": format!("k{item}")}}),
        };
        request
    };
    let strong = json!({"TableName": "table", "ConsistentRead": true});
    match reads {
        Reads::GetItem => (0..ITEMS).for_each(|item| {
            let request = by_key(item, "Key", json!({"p": {"S": format!("k{item}")}}));
            let found = seen.send(process, "GetItem", &request)["Item"].take();
            seen.items.push(found);
        }),
        Reads::Query => (0..ITEMS).for_each(|item| {
            let request = by_key(item, "KeyConditionExpression", json!("p = :p"));
            seen.pages(process, "Query", request, ["LastEvaluatedKey", "ExclusiveStartKey"]);
        }),
        Reads::Scan => {
            seen.pages(process, "Scan", strong, ["LastEvaluatedKey", "ExclusiveStartKey"]);
        }
        Reads::ExecuteStatement => {
            let all = json!({"Statement": "/* all */ Select * FROM \"table\""});
            seen.pages(process, "ExecuteStatement", all, ["NextToken"; 2]);
        }
        Reads::BatchExecuteStatement => {
            seen.statements(process, "BatchExecuteStatement", "Statements");
        }
        Reads::ExecuteTransaction => {
            seen.statements(process, "ExecuteTransaction", "TransactStatements");
        }
        Reads::GetRecords => seen.records(process),
    }
    let found: BTreeMap<String, &Value> =
        seen.items.iter().map(|item| (item["p"]["S"].to_string(), &item["v"]["S"])).collect();
    for item in 0..ITEMS {
        let key = format!("\"k{item}\"");
        let read = found.get(&key).and_then(|value| value.as_str());
        assert_eq!(read, Some(&*value(item)), "{key} by {reads:?}");
    }
    assert_eq!(found.len(), seen.items.len(), "each item is answered once by {reads:?}");
    seen.retries
}

/// Reads every item and every stream record. Returns the number of retries of each request that was retried.
fn read_all(process: &Process) -> Vec<usize> {
    let ways = [Reads::GetItem, Reads::Scan, Reads::GetRecords];
    ways.into_iter().flat_map(|reads| read_by(process, reads)).collect()
}

fn list<'a>(status: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    status[name].as_array().into_iter().flatten()
}

/// Waits until all nodes are voters and have applied the same log entry. Returns the slots with set-aside
/// directories.
fn wait_until_whole(process: &Process) -> BTreeSet<u64> {
    wait_for("the store is complete", || {
        let status = process.status()?;
        let replicas: Vec<&Value> = list(&status, "replicas").collect();
        let is_good = |replica: &&Value| {
            replica["voters"].as_array().is_some_and(|voters| voters.len() == 3)
                && replica["learners"].as_array().is_some_and(Vec::is_empty)
                && replica["damaged"] == json!(false)
                && replica["applied"] == replicas[0]["applied"]
        };
        let is_whole = replicas.len() == 3 && replicas.iter().all(is_good);
        let aside = list(&status, "nodes").filter(|node| node["set_aside"] != json!([]));
        is_whole.then(|| aside.filter_map(|node| node["node"].as_u64()).collect())
    })
}

/// Waits until the largest file of a folder contains an item, and flips a bit in the middle of the file. A
/// running store may be writing the file or may remove it. The function then tries again.
fn flip_a_bit(folder: &Path) {
    let size = |path: &PathBuf| fs::metadata(path).map_or(0, |metadata| metadata.len());
    let mut seen = None;
    wait_for("a file with an item stays", || {
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let largest = files.max_by_key(size)?;
        let mut file = match OpenOptions::new().read(true).write(true).open(&largest) {
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            opened => opened.unwrap(),
        };
        let length = file.metadata().unwrap().len();
        let is_written = seen.replace((largest.clone(), length)) == Some((largest.clone(), length));
        if !is_written || length <= ITEM_BYTES as u64 {
            return None;
        }
        let mut byte = [0];
        file.seek(SeekFrom::Start(length / 2)).unwrap();
        file.read_exact(&mut byte).unwrap();
        file.seek(SeekFrom::Start(length / 2)).unwrap();
        file.write_all(&[byte[0] ^ 1]).unwrap();
        largest.exists().then_some(())
    });
}

/// Makes the background verification begin at the next start, as if the previous pass were a day old.
fn make_verification_due(arc: &Path) {
    // A process that ran only for a short time has stored no progress yet.
    if let Err(error) = fs::remove_file(arc.join("scrub")) {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
}

/// Goal: responses are correct and the damage is detected, whether or not the damaged node leads. A read
/// detects damage in a table of the leader; the background verification detects all other damage.
#[test]
fn a_flipped_bit_costs_a_node_but_no_response() {
    for files in ["tables", "queues"] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let mut process = Process::start(&data, &[], None);
        fill(&process);
        wait_until_whole(&process);
        process.kill();
        let arc = data.join("node-3/arc-0");
        flip_a_bit(&arc.join("state-1").join(files));
        make_verification_due(&arc);
        let process = Process::start(&data, &[], None);
        assert_eq!(read_all(&process), NO_RETRY);
        let aside = wait_for("the damage is found", || {
            let aside = wait_until_whole(&process);
            (!aside.is_empty()).then_some(aside)
        });
        assert_eq!(aside, BTreeSet::from([3]), "{}", process.log_text());
        let reason = fs::read_to_string(data.join("node-3.set-aside-1/reason")).unwrap();
        assert!(reason.contains("corrupt"), "{reason}");
        put(&process, ITEMS);
        // After a restart, the rebuilt node still equals the other nodes.
        drop(process);
        let process = Process::start(&data, &[], None);
        assert_eq!(read_all(&process), NO_RETRY);
        assert_eq!(wait_until_whole(&process), aside);
    }
}

/// Goal: the client of the operation that detects the damage gets the correct response. Method: for each
/// operation, the test flips a bit in a block of the leader, and this operation reads the block first.
#[test]
fn every_read_goes_to_another_node_when_it_meets_damage() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let process = Process::start(&data, &[], None);
    fill(&process);
    wait_until_whole(&process);
    drop(process);
    for (reads, files) in [
        (Reads::GetItem, "tables"),
        (Reads::Query, "tables"),
        (Reads::Scan, "tables"),
        (Reads::ExecuteStatement, "tables"),
        (Reads::BatchExecuteStatement, "tables"),
        (Reads::ExecuteTransaction, "tables"),
        (Reads::GetRecords, "queues"),
    ] {
        // The cache of a process that has just started is empty.
        let process = Process::start(&data, &[], None);
        assert_eq!(wait_until_whole(&process), BTreeSet::new());
        let leader = leader(&process);
        flip_a_bit(&newest_state(&data.join(format!("node-{leader}/arc-0"))).join(files));
        assert_eq!(read_by(&process, reads), NO_RETRY, "{reads:?}");
        let aside = wait_for("the damage is found", || {
            let aside = wait_until_whole(&process);
            (!aside.is_empty()).then_some(aside)
        });
        assert_eq!(aside, BTreeSet::from([leader]), "{reads:?}: {}", process.log_text());
        drop(process);
        // A node with three set-aside directories would not be rebuilt.
        fs::remove_dir_all(data.join(format!("node-{leader}.set-aside-1"))).unwrap();
    }
}

/// Returns the slot of the leader.
fn leader(process: &Process) -> u64 {
    wait_for("a node leads", || {
        let status = process.status()?;
        let mut leading = list(&status, "replicas").filter(|one| one["role"] == json!("leader"));
        leading.next()?["node"].as_u64()
    })
}

/// Returns the directory of the state that a node uses. A rebuilt node has a new directory.
fn newest_state(arc: &Path) -> PathBuf {
    let entries = fs::read_dir(arc).unwrap().map(|entry| entry.unwrap().path());
    let number = |path: &PathBuf| -> Option<u64> {
        path.file_name()?.to_str()?.strip_prefix("state-")?.parse().ok()
    };
    entries.filter(|path| number(path).is_some()).max_by_key(number).unwrap()
}

/// Goal: responses are also correct if each node has its own process. The process of the damaged node restarts
/// itself.
#[test]
fn a_flipped_bit_costs_a_restart_of_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let held: Vec<TcpListener> =
        (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let peers: Vec<String> = held
        .iter()
        .enumerate()
        .flat_map(|(place, listener)| {
            let address = listener.local_addr().unwrap();
            ["--peer".to_owned(), format!("{}={address}", place + 1)]
        })
        .collect();
    drop(held);
    let data = |node: usize| folder.path().join(format!("data-{node}"));
    let start_all = || -> Vec<Process> {
        let start = |node: usize| {
            let (data, peers) = (data(node), peers.clone());
            thread::spawn(move || {
                let own = ["--node".to_owned(), node.to_string()];
                Process::start(&data, &[own.to_vec(), peers].concat(), None)
            })
        };
        let starting: Vec<_> = (1..=3).map(start).collect();
        starting.into_iter().map(|started| started.join().unwrap()).collect()
    };
    let processes = start_all();
    fill(&processes[0]);
    wait_until_whole(&processes[0]);
    drop(processes);
    let arc = data(2).join("node-2/arc-0");
    flip_a_bit(&arc.join("state-1/tables"));
    make_verification_due(&arc);
    let mut processes = start_all();
    // The process of the damaged node closes its connections when it restarts, and then accepts new
    // connections.
    for process in &processes {
        let retries = read_all(process);
        assert!(retries.len() <= 2, "{retries:?}: {}", process.log_text());
    }
    let aside = wait_for("the damage is found", || {
        let aside = wait_until_whole(&processes[0]);
        (!aside.is_empty()).then_some(aside)
    });
    assert_eq!(aside, BTreeSet::from([2]));
    assert!(processes[1].child.try_wait().unwrap().is_none(), "it is the same process");
    for process in &processes {
        assert_eq!(read_all(process), NO_RETRY);
    }
}

/// Goal: in a process with few file descriptors, idle connections do not use the descriptors that its files
/// need.
#[test]
fn idle_connections_cost_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(&folder.path().join("data"), &[], Some(128));
    let idle: Vec<TcpStream> =
        (0..200).filter_map(|_| TcpStream::connect(process.address).ok()).collect();
    assert!(idle.len() > 128, "the system takes the connections that the process does not");
    fill(&process);
    read_by(&process, Reads::GetItem);
    assert!(process.child.try_wait().unwrap().is_none(), "{}", process.log_text());
    assert!(!process.log_text().contains("file descriptors are in use"), "{}", process.log_text());
}

/// Goal: a process without free file descriptors waits, logs the reason, and continues when descriptors are
/// free. Method: the test lowers the limit of the running process below the number of its open descriptors, so
/// that no file can be opened. An existing connection then sends more data than fits in memory.
#[cfg(target_os = "linux")]
#[test]
fn puts_continue_when_descriptors_are_available_again() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};

    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(&folder.path().join("data"), &[], None);
    create(&process);
    let stream = TcpStream::connect(process.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut connection = BufReader::new(stream);
    let mut send = |item: usize| {
        let request = request_to_put(item % ITEMS).to_string();
        let head = ["POST", "/", "DynamoDB_20120810.PutItem", &request];
        exchange(&mut connection, process.address, head).is_some_and(|(status, _)| status == 200)
    };
    assert!(send(0), "the process has the connection before its limit is lowered");
    let pid = i32::try_from(process.child.id()).ok().and_then(Pid::from_raw);
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    let limit = |current| prlimit(pid, Resource::Nofile, Rlimit { current, maximum }).unwrap();
    limit(Some(8));
    let answered = (1..10 * ITEMS).take_while(|item| send(*item)).count();
    assert!(answered + 1 < 10 * ITEMS, "no file was needed");
    wait_for("the process reports what it waits for", || {
        process.log_text().contains("file descriptors are in use").then_some(())
    });
    assert!(process.child.try_wait().unwrap().is_none(), "{}", process.log_text());
    limit(maximum);
    (0..ITEMS).for_each(|item| put(&process, item));
    assert_eq!(read_by(&process, Reads::GetItem), NO_RETRY);
    assert!(process.child.try_wait().unwrap().is_none(), "{}", process.log_text());
}
