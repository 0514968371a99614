//! A gateway in front of a store. It adds a request for the consumed capacity to every request, and
//! sums the capacity.
//!
//! The gateway reads one request per connection, and forwards answers unchanged.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// The operations on items, and whether they write.
const OPERATIONS: [(&str, bool); 8] = [
    ("GetItem", false),
    ("BatchGetItem", false),
    ("Query", false),
    ("Scan", false),
    ("PutItem", true),
    ("UpdateItem", true),
    ("DeleteItem", true),
    ("BatchExecuteStatement", true),
];

/// The units that a table consumed: for writes to the table and to each index, and for reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Consumed {
    pub(crate) writes: f64,
    pub(crate) reads: f64,
    pub(crate) indexes: BTreeMap<String, f64>,
}

type Sums = Arc<Mutex<BTreeMap<String, Consumed>>>;

/// A gateway that listens until the test ends.
pub(crate) struct Meter {
    pub(crate) address: String,
    sums: Sums,
}

impl Meter {
    /// Starts a meter in front of the store at `address`.
    pub(crate) fn before(address: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().to_string();
        let (sums, store) = (Sums::default(), address.to_owned());
        let counted = Arc::clone(&sums);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (store, counted) = (store.clone(), Arc::clone(&counted));
                // A client that disconnects ends only its own connection.
                std::thread::spawn(move || pass(client, &store, &counted));
            }
        });
        Self { address: own, sums }
    }

    /// Returns the consumption of some tables since the last call.
    pub(crate) fn take(&self, tables: &[&str]) -> Consumed {
        let sums = std::mem::take(&mut *self.sums.lock().unwrap());
        let mut all = Consumed::default();
        for (_, of_table) in sums.iter().filter(|(table, _)| tables.contains(&table.as_str())) {
            all.writes += of_table.writes;
            all.reads += of_table.reads;
            for (index, units) in &of_table.indexes {
                *all.indexes.entry(index.clone()).or_default() += units;
            }
        }
        all
    }
}

fn pass(mut client: TcpStream, store: &str, sums: &Sums) -> std::io::Result<()> {
    let Some((head, body)) = read_request(&mut client)? else { return Ok(()) };
    let operation = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_target = name.eq_ignore_ascii_case("x-amz-target");
        is_target.then(|| value.trim().strip_prefix("DynamoDB_20120810.")).flatten()
    });
    let of_items = operation.and_then(|name| OPERATIONS.iter().find(|(known, _)| *known == name));
    let body = match of_items {
        None => body,
        Some(_) => {
            let mut request: Value = serde_json::from_slice(&body)?;
            request["ReturnConsumedCapacity"] = json!("INDEXES");
            request.to_string().into_bytes()
        }
    };
    let is_own = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default().to_lowercase();
        !line.is_empty() && !["content-length", "connection"].contains(&name.as_str())
    };
    let lines: Vec<&str> = head.split("\r\n").filter(is_own).collect();
    let mut upstream = TcpStream::connect(store)?;
    let head = format!(
        "{}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        lines.join("\r\n"),
        body.len()
    );
    upstream.write_all(&[head.as_bytes(), &body].concat())?;
    let mut answer = Vec::new();
    upstream.read_to_end(&mut answer)?;
    if let Some((_, writes)) = of_items {
        let text = String::from_utf8_lossy(&answer);
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        add(&mut sums.lock().unwrap(), &body["ConsumedCapacity"], *writes);
    }
    client.write_all(&answer)
}

/// Reads the head of a request and its body; `None` at the end of the connection.
fn read_request(client: &mut TcpStream) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let mut bytes = Vec::new();
    let mut some = [0; 16 * 1024];
    loop {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|end| end + 4);
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
            });
            let length: usize = length.unwrap_or(0);
            if bytes.len() >= end + length {
                return Ok(Some((head, bytes[end..].to_vec())));
            }
        }
        let read = client.read(&mut some)?;
        if read == 0 {
            return Ok(None);
        }
        bytes.extend_from_slice(&some[..read]);
    }
}

/// Adds the capacity in an answer, which is one object or a list of objects.
fn add(sums: &mut BTreeMap<String, Consumed>, capacity: &Value, writes: bool) {
    let list = capacity.as_array().cloned().unwrap_or_else(|| vec![capacity.clone()]);
    for of_table in list {
        let Some(table) = of_table["TableName"].as_str() else { continue };
        let sum = sums.entry(table.to_owned()).or_default();
        let units = of_table["CapacityUnits"].as_f64().unwrap();
        if !writes {
            sum.reads += units;
            continue;
        }
        sum.writes += units;
        for kind in ["GlobalSecondaryIndexes", "LocalSecondaryIndexes"] {
            for (index, of_index) in of_table[kind].as_object().into_iter().flatten() {
                let units = of_index["CapacityUnits"].as_f64().unwrap();
                *sum.indexes.entry(index.clone()).or_default() += units;
            }
        }
    }
}
