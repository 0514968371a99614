//! A gateway in front of a store. It rejects the operations that only this project's store has, and
//! counts writes.
//!
//! The gateway reads one request per connection, and forwards all other requests unchanged.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The operations that write.
const WRITES: [&str; 9] = [
    "putitem",
    "updateitem",
    "deleteitem",
    "batchwriteitem",
    "transactwriteitems",
    "createtable",
    "updatetable",
    "deletetable",
    "updatetimetolive",
];

/// A gateway that listens until the test ends.
pub(crate) struct Gateway {
    pub(crate) url: String,
    writes: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
}

impl Gateway {
    /// Starts a gateway in front of the store at `address`.
    pub(crate) fn before(address: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (writes, refused) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let (counted, denied) = (Arc::clone(&writes), Arc::clone(&refused));
        let store = address.to_owned();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (store, counted, denied) =
                    (store.clone(), Arc::clone(&counted), Arc::clone(&denied));
                // A client that disconnects ends only its own connection.
                std::thread::spawn(move || pass(client, &store, &counted, &denied));
            }
        });
        Self { url, writes, refused }
    }

    /// Returns the number of writes since the start.
    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    /// Returns the number of rejected requests, which only this project's store could have
    /// answered.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::SeqCst)
    }
}

fn pass(
    mut client: TcpStream,
    store: &str,
    writes: &AtomicU64,
    refused: &AtomicU64,
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let mut some = [0; 16 * 1024];
    let head = loop {
        let read = client.read(&mut some)?;
        if read == 0 {
            return Ok(());
        }
        bytes.extend_from_slice(&some[..read]);
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
    let header = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    };
    let length: usize = header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
    while bytes.len() < head + length {
        let read = client.read(&mut some)?;
        if read == 0 {
            return Ok(());
        }
        bytes.extend_from_slice(&some[..read]);
    }
    if text.split(' ').nth(1).is_some_and(|path| path.starts_with("/_weir")) {
        refused.fetch_add(1, Ordering::SeqCst);
        let none = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        return client.write_all(none.as_bytes());
    }
    let operation = header("x-amz-target").and_then(|target| target.rsplit('.').next());
    if operation.is_some_and(|operation| WRITES.contains(&operation)) {
        writes.fetch_add(1, Ordering::SeqCst);
    }
    let line = bytes.windows(2).position(|two| two == b"\r\n").unwrap_or(0);
    let mut upstream = TcpStream::connect(store)?;
    upstream.write_all(&bytes[..line])?;
    upstream.write_all(b"\r\nconnection: close")?;
    upstream.write_all(&bytes[line..])?;
    let mut answer = Vec::new();
    upstream.read_to_end(&mut answer)?;
    client.write_all(&answer)
}
