//! Real processes whose disks are damaged, or that have no file descriptors left.
//!
//! Goal: the store goes on with what two good nodes have, and says what it did; clients see at most
//! a retry. Method: some hundred large items, so that every node has written tables; `kill -9`; one
//! bit of a file flipped; start; read everything.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Items, and the bytes of each: together more than what a state keeps in memory alone.
const ITEMS: usize = 180;
const ITEM_BYTES: usize = 300_000;
/// Time for anything that is waited for, on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(240);
/// Retries of one request, each after four times as long as the one before.
const RETRIES: usize = 5;

/// A running store; it is killed when this is dropped.
struct Process {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Process {
    /// Starts the binary, below a limit of open files if there is one, and waits until it listens.
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
            assert!(process.child.try_wait().unwrap().is_none(), "{}", process.said());
            process.address()
        });
        process.address = listening;
        process
    }

    /// Where it listens now: a process that was started again by itself has another port.
    fn address(&self) -> Option<SocketAddr> {
        let said = self.said();
        let (_, last) = said.rsplit_once("listening on http://")?;
        last.split_whitespace().next()?.parse().ok()
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// One request. `None` when no answer came.
    fn ask(&self, method: &str, path: &str, target: &str, body: &str) -> Option<(u16, Value)> {
        let address = self.address()?;
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
        exchange(stream, address, [method, path, target, body])
    }

    fn call(&self, operation: &str, request: &Value) -> Option<(u16, Value)> {
        let target = format!("DynamoDB_20120810.{operation}");
        self.ask("POST", "/", &target, &request.to_string())
    }

    /// As a client with retries: gives the answer, and how many retries it took.
    fn retry(&self, operation: &str, request: &Value) -> (Value, usize) {
        for retries in 0..=RETRIES {
            match self.call(operation, request) {
                Some((200, answer)) => return (answer, retries),
                Some((status, answer)) => assert!(status >= 500, "{status}: {answer}"),
                None => {}
            }
            thread::sleep(Duration::from_millis(200 << (2 * retries)));
        }
        panic!("{operation} is not answered within {RETRIES} retries: {}", self.said());
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
    mut stream: TcpStream,
    address: SocketAddr,
    [method, path, target, body]: [&str; 4],
) -> Option<(u16, Value)> {
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nx-amz-target: {target}\r\n\
         content-type: application/x-amz-json-1.0\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .ok()?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let status = line.split_whitespace().nth(1)?.parse().ok()?;
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
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
    // Not one that packs well.
    let mut state = item as u64 + 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + u8::try_from((state >> 33) % 26).unwrap())
    };
    (0..ITEM_BYTES).map(|_| next()).collect()
}

fn fill(process: &Process) {
    let create = json!({
        "TableName": "table", "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
        "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "NEW_IMAGE"},
    });
    process.retry("CreateTable", &create);
    (0..ITEMS).for_each(|item| put(process, item));
}

fn put(process: &Process, item: usize) {
    let item = json!({"p": {"S": format!("k{item}")}, "v": {"S": value(item)}});
    process.retry("PutItem", &json!({"TableName": "table", "Item": item}));
}

/// Reads every item, and gives how many retries that took.
fn read_all(process: &Process) -> usize {
    let read = |item: usize| {
        let key = json!({"p": {"S": format!("k{item}")}});
        let request = json!({"TableName": "table", "Key": key, "ConsistentRead": true});
        let (answer, retries) = process.retry("GetItem", &request);
        assert_eq!(answer["Item"]["v"]["S"].as_str(), Some(&*value(item)), "k{item}");
        retries
    };
    (0..ITEMS).map(read).sum()
}

fn list<'a>(status: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    status[name].as_array().into_iter().flatten()
}

/// Waits until all nodes vote and have applied the same entry. Gives the nodes that were set aside.
fn wait_until_whole(process: &Process) -> BTreeSet<u64> {
    wait_for("the store is whole", || {
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

/// Flips a bit in the middle of the largest file of a folder.
fn flip_a_bit(folder: &Path) {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let size = |path: &PathBuf| fs::metadata(path).unwrap().len();
    let largest = files.max_by_key(size).unwrap_or_else(|| panic!("{}", folder.display()));
    let mut bytes = fs::read(&largest).unwrap();
    assert!(bytes.len() > ITEM_BYTES, "{} has no block with an item", largest.display());
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(largest, bytes).unwrap();
}

/// A table of the node that leads, or a file of its stream records: whichever node leads after the
/// start, reads are right, and the damage is found, by a read or by the verifying in the background.
#[test]
fn a_bit_that_flips_costs_a_node_and_no_answer() {
    for files in ["tables", "queues"] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let mut process = Process::start(&data, &[], None);
        fill(&process);
        wait_until_whole(&process);
        process.kill();
        flip_a_bit(&data.join("node-3/arc-0/state-1").join(files));
        let process = Process::start(&data, &[], None);
        let retries = read_all(&process);
        assert!(retries <= 3, "{retries} retries");
        let aside = wait_for("the damage is found", || {
            let aside = wait_until_whole(&process);
            (!aside.is_empty()).then_some(aside)
        });
        assert_eq!(aside, BTreeSet::from([3]), "{}", process.said());
        let reason = fs::read_to_string(data.join("node-3.set-aside-1/reason")).unwrap();
        assert!(reason.contains("corrupt"), "{reason}");
        put(&process, ITEMS);
        // The rebuilt node is one as the others, also for the next start.
        drop(process);
        let process = Process::start(&data, &[], None);
        assert_eq!(read_all(&process), 0);
        assert_eq!(wait_until_whole(&process), aside);
    }
}

/// The same where each node has a process: that of the damaged one starts again by itself.
#[test]
fn a_bit_that_flips_costs_a_process_a_restart() {
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
    flip_a_bit(&data(2).join("node-2/arc-0/state-1/tables"));
    let mut processes = start_all();
    for process in &processes {
        assert!(read_all(process) <= 2 * RETRIES, "{}", process.said());
    }
    let aside = wait_for("the damage is found", || {
        let aside = wait_until_whole(&processes[0]);
        (!aside.is_empty()).then_some(aside)
    });
    assert_eq!(aside, BTreeSet::from([2]));
    assert!(processes[1].child.try_wait().unwrap().is_none(), "it is the same process");
    for process in &processes {
        assert_eq!(read_all(process), 0);
    }
}

/// Goal: a process whose descriptors others have taken goes on as soon as it has some again, and says
/// what it waited for.
#[test]
fn puts_go_on_when_descriptors_are_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut process = Process::start(&data, &[], Some(96));
    process.retry(
        "CreateTable",
        &json!({
            "TableName": "table", "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
        }),
    );
    let idle: Vec<TcpStream> =
        (0..120).filter_map(|_| TcpStream::connect(process.address).ok()).collect();
    assert!(idle.len() > 96, "the system takes the connections that the process does not");
    for item in 0..ITEMS {
        let item = json!({"p": {"S": format!("k{item}")}, "v": {"S": value(item)}});
        // Whether it is answered is not what matters here.
        let request = json!({"TableName": "table", "Item": item}).to_string();
        let stream = TcpStream::connect(process.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        exchange(stream, process.address, ["POST", "/", "DynamoDB_20120810.PutItem", &request]);
    }
    assert!(process.child.try_wait().unwrap().is_none(), "{}", process.said());
    drop(idle);
    (0..ITEMS).for_each(|item| put(&process, item));
    assert_eq!(read_all(&process), 0);
    assert!(process.child.try_wait().unwrap().is_none(), "{}", process.said());
}
