//! Tests of the places for connections.

use super::*;
use crate::http::{Routes, serve_up_to};

/// Goal: idle connections keep nobody out. Method: two places, two clients that keep their
/// connections, a third one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oldest_connection_leaves_when_its_place_is_wanted() {
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = std::sync::Arc::new(Routes::new(server.store.clone(), Access::default()));
    let (shutdown, asked) = oneshot::channel();
    let task = tokio::spawn(serve_up_to(2, listener, routes, async {
        let _ = asked.await;
    }));
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        assert_eq!(Answer::read(&mut client).await.status, 200);
        clients.push(client);
    }
    assert_eq!(clients[0].read(&mut [0; 1]).await.unwrap(), 0, "the oldest is closed");
    for client in &mut clients[1..] {
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        assert_eq!(Answer::read(client).await.status, 200);
    }
    shutdown.send(()).unwrap();
    task.await.unwrap();
}
