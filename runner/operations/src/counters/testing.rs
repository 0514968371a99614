//! Test support: a place, and a server that gives prepared answers.

use rules::counters::Counters;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::Place;
use super::flags::TotalFlags;
use client::endpoint;

/// Returns the tables at an endpoint, with four slots per counter.
pub(super) fn place(endpoint: &str) -> Place {
    Place {
        client: endpoint::client(endpoint),
        endpoint: endpoint.to_owned(),
        rule: Counters {
            slot_count: 4,
            slot_key: "sl\"ot".to_owned(),
            slot_value: "votes".to_owned(),
        },
        slots_table: "votes".to_owned(),
    }
}

/// Returns the table of totals.
pub(super) fn totals() -> TotalFlags {
    TotalFlags { totals_table: "totals".to_owned(), total_key: "counter".to_owned() }
}

/// Serves prepared answers and returns the requests. An answer is a status, a body, and whether the
/// connection is closed after it. An answer is sent on the open connection, or on a new connection
/// if there is none.
pub(crate) async fn serve(listener: TcpListener, answers: &[(u16, &str, bool)]) -> Vec<String> {
    let (mut requests, mut open) = (Vec::new(), None);
    for (status, body, closes) in answers {
        let mut socket = match open.take() {
            Some(socket) => socket,
            None => listener.accept().await.unwrap().0,
        };
        let (mut request, mut buffer) = (String::new(), [0; 4096]);
        while !is_whole(&request) {
            let read = socket.read(&mut buffer).await.unwrap();
            assert!(read > 0, "{request}");
            request.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        }
        let close = if *closes { "connection: close\r\n" } else { "" };
        let answer =
            format!("HTTP/1.1 {status} X\r\n{close}content-length: {}\r\n\r\n{body}", body.len());
        socket.write_all(answer.as_bytes()).await.unwrap();
        open = Some(socket).filter(|_| !*closes);
        requests.push(request);
    }
    requests
}

/// Returns true if a request has as many body bytes as its head declares.
fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    length == Some(body.len())
}
