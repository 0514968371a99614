//! Tests of slow clients.
//!
//! Goal: a client that sends too slowly is disconnected after the times in
//! docs/differences-from-dynamodb.md, and blocks no other client. Method: the tests use a connection in
//! memory, and tokio's paused clock, so that no real time passes.

use std::sync::Arc;

use tokio::io::{DuplexStream, duplex};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::*;
use crate::gate::{AllowList, Connections, Guard, Guarded, serve_connection};
use crate::http::{HEAD_TIMEOUT, Routes};

/// Returns the store behind its gate, and a budget of one connection.
fn guarded(server: &Server) -> (Guarded<Routes>, Arc<Connections>) {
    let service = Routes::new(server.store.clone(), Access::default());
    let guard = Guard::new(AllowList::default());
    (Guarded { guard, service, head_timeout: Some(HEAD_TIMEOUT) }, Connections::new(1))
}

/// The head of a request with a body of 100 bytes.
const HEAD: &str = "POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: DynamoDB_20120810.ListTables\r\nContent-Length: 100\r\n\r\n";

/// Sends the pieces, each after a pause of its number of seconds. Returns the first line of the response
/// and the seconds until it arrived. The line is empty if the connection closes without a response.
async fn converse(mut client: DuplexStream, pieces: &[(u64, &str)]) -> (String, u64) {
    let begun = Instant::now();
    let (mut reader, mut writer) = tokio::io::split(&mut client);
    let send = async {
        for (seconds, piece) in pieces {
            sleep(Duration::from_secs(*seconds)).await;
            if writer.write_all(piece.as_bytes()).await.is_err() {
                return;
            }
        }
        std::future::pending::<()>().await;
    };
    let receive = async {
        let mut answer = [0; 1024];
        let count = reader.read(&mut answer).await.unwrap_or(0);
        let text = String::from_utf8_lossy(&answer[..count]).into_owned();
        (text.lines().next().unwrap_or("").to_owned(), begun.elapsed().as_secs())
    };
    tokio::select! {
        answer = receive => answer,
        () = send => panic!("the server ended without a response"),
    }
}

/// Goal: a connection is closed after a minute without a request, but stays open while requests arrive.
#[tokio::test]
async fn a_silent_connection_is_closed() {
    let server = Server::start().await;
    let (guarded, connections) = guarded(&server);
    let place = connections.place().await.unwrap();
    let (_stop, stopped) = watch::channel(false);
    tokio::time::pause();
    let (mut client, stream) = duplex(64 * 1024);
    let begun = Instant::now();
    let talk = async {
        for pause in [0, 50, 59, 40] {
            sleep(Duration::from_secs(pause)).await;
            client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
            assert!(client.read(&mut [0; 1024]).await.unwrap() > 0);
        }
        // An incomplete head does not count as a request.
        sleep(Duration::from_secs(30)).await;
        client.write_all(b"GET / HT").await.unwrap();
        client.read(&mut [0; 1024]).await.unwrap()
    };
    let (rest, ()) =
        tokio::join!(talk, serve_connection(stream, None, &guarded, place.progress(), stopped));
    let silent = begun.elapsed().as_secs() - (50 + 59 + 40);
    assert_eq!(rest, 0);
    assert!((60..=75).contains(&silent), "{silent} s");
}

/// The head of a request with a large body.
const LARGE_HEAD: &str = "POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: DynamoDB_20120810.ListTables\r\nContent-Length: 1000000\r\n\r\n";

#[tokio::test]
async fn clients_that_read_no_response_are_disconnected() {
    let server = Server::start().await;
    let (guarded, connections) = guarded(&server);
    let place = connections.place().await.unwrap();
    let (_stop, stopped) = watch::channel(false);
    tokio::time::pause();
    // The buffer is too small for the response.
    let (mut client, stream) = duplex(64);
    let begun = Instant::now();
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let sent = client.write_all(request.as_bytes());
    let served = serve_connection(stream, None, &guarded, place.progress(), stopped);
    let (sent, ()) = tokio::join!(sent, served);
    sent.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 30);
}

/// Goal: if another client needs the permit, a client with an incomplete request is disconnected
/// soon. A client with a complete request is not disconnected before the write time-out.
#[tokio::test]
async fn a_needed_place_is_taken_from_an_incomplete_request() {
    let server = Server::start().await;
    let (guarded, connections) = guarded(&server);
    let (_stop, stopped) = watch::channel(false);
    tokio::time::pause();
    let whole = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}";
    for (what, sent, expected) in [
        ("half a head", "GET / HTTP/1.1\r\nHos", 2),
        ("no body", HEAD, 3),
        ("a large body that does not come", LARGE_HEAD, 3),
        ("a whole request", whole, 30),
    ] {
        let place = connections.place().await.unwrap();
        // The buffer is too small for the response, which the client does not read.
        let (mut client, stream) = duplex(64);
        let begun = Instant::now();
        let want = async {
            sleep(Duration::from_secs(2)).await;
            // The only permit is in use, so its connection is asked to close.
            connections.make_room();
        };
        let (_, (), ()) = tokio::join!(
            client.write_all(sent.as_bytes()),
            want,
            serve_connection(stream, None, &guarded, place.progress(), stopped.clone()),
        );
        assert_eq!(begun.elapsed().as_secs(), expected, "{what}");
    }
}

#[tokio::test]
async fn slow_clients_are_disconnected() {
    let server = Server::start().await;
    let (guarded, connections) = guarded(&server);
    let place = connections.place().await.unwrap();
    let (_stop, stopped) = watch::channel(false);
    tokio::time::pause();
    let trickle = [(0, HEAD), (20, "{"), (20, " "), (20, " "), (20, " ")];
    let late = "HTTP/1.1 408 Request Timeout";
    for (what, pieces, expected) in [
        ("silence", &[][..], ("", 60)),
        ("half a head", &[(0, "GET / HTTP/1.1\r\nHos")], ("", 60)),
        (
            "a head in pieces",
            &[(20, "GET / HT"), (20, "TP/1.1\r\n"), (25, "Host: localhost")],
            ("", 60),
        ),
        ("no body", &[(10, HEAD)], (late, 40)),
        ("half a body", &[(0, HEAD), (25, "{}")], (late, 55)),
        ("a body in pieces", &trickle, (late, 60)),
        ("a large body in pieces", &[(0, LARGE_HEAD), (4, "{"), (4, " "), (20, " ")], (late, 5)),
        (
            "a request in time",
            &[(50, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")],
            ("HTTP/1.1 200 OK", 50),
        ),
    ] {
        let (client, stream) = duplex(64 * 1024);
        let (answer, ()) = tokio::join!(
            converse(client, pieces),
            serve_connection(stream, None, &guarded, place.progress(), stopped.clone()),
        );
        assert_eq!((answer.0.as_str(), answer.1), expected, "{what}");
    }
}
