//! Tests of two processes over a real socket: answers, refusals, and the outcome when a connection breaks.

use std::collections::BTreeMap;

use locks::Mutex;

use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::*;

fn local(slot: u64, cluster: Option<&str>) -> Local {
    let identity = cluster.map(|cluster| PeerIdentity { cluster: cluster.to_owned(), node: slot });
    Local {
        slot,
        slots: BTreeSet::from([1, 2, 3]),
        joins: false,
        ring: watch::Sender::new(None),
        settings: "Region x and account y".to_owned(),
        secret: None,
        sent_bytes: Arc::default(),
        identity: watch::Sender::new(identity),
    }
}

fn secret(text: &str) -> ClusterSecret {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    std::fs::write(&path, text).unwrap();
    ClusterSecret::read(&path).unwrap()
}

/// A handler that counts the messages. It never answers `Status`.
#[derive(Default)]
struct Counting {
    asked: Mutex<Vec<u64>>,
    stuck: Notify,
}

impl Handler for Counting {
    fn answer(self: Arc<Self>, slot: u64, question: Question) -> BoxFuture<Answer> {
        Box::pin(async move {
            self.asked.lock().push(slot);
            match question {
                Question::Status => {
                    self.stuck.notify_one();
                    std::future::pending().await
                }
                Question::Rejoin { slot } => Answer::Refused(slot.to_string()),
                _ => Answer::ClockSet,
            }
        })
    }
}

struct Pair {
    peers: Peers,
    handler: Arc<Counting>,
    serving: tokio::task::JoinHandle<()>,
    address: SocketAddr,
}

async fn connect(client: Local, server: Local) -> Pair {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let handler = Arc::new(Counting::default());
    let slot = if client.slot == 1 { 2 } else { 1 };
    let serving = tokio::spawn(serve(listener, Arc::new(server), handler.clone()));
    let peers = Peers::connect(&Arc::new(client), &BTreeMap::from([(slot, address)]));
    Pair { peers, handler, serving, address }
}

impl Pair {
    async fn ask(&self, question: Question) -> Result<Answer, CallError> {
        self.peers.ask(2, &question, SILENCE - Duration::from_secs(1)).await
    }

    /// Retries a message until the connection is established or refused.
    async fn ask_connected(&self, question: Question) -> Result<Answer, String> {
        loop {
            match self.ask(question.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(CallError::Unreachable(_)) => {
                    if let Some(reason) = self.peers.refusals().pop() {
                        return Err(reason);
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(CallError::Lost(reason)) => panic!("{reason}"),
            }
        }
    }
}

#[tokio::test]
async fn answers_find_their_questions_with_and_without_a_secret() {
    for with_secret in [false, true] {
        let give = |mut local: Local| {
            local.secret = with_secret.then(|| secret("0123456789abcdef"));
            local
        };
        let pair = connect(give(local(1, None)), give(local(2, Some("c")))).await;
        pair.ask_connected(Question::Who).await.unwrap();
        let asked = (0..200).map(|slot| pair.ask(Question::Rejoin { slot }));
        for (slot, answer) in futures::future::join_all(asked).await.into_iter().enumerate() {
            assert!(matches!(answer, Ok(Answer::Refused(text)) if text == slot.to_string()));
        }
        assert_eq!(*pair.handler.asked.lock(), vec![1; 201]);
    }
}

#[tokio::test]
async fn wrong_peers_are_refused_with_a_reason() {
    type Change = fn(&mut Local);
    let without_node_1 = |local: &mut Local| {
        let ring = BTreeMap::from([(2, "127.0.0.1:1".parse().unwrap())]);
        local.ring.send_replace(Some(ring));
    };
    let cases: [(Change, &str); 7] = [
        (|local| local.slots = BTreeSet::from([1, 2, 4]), "the same --peer flags"),
        (|local| local.settings = "Region z and account y".to_owned(), "the same --region"),
        (|local| local.identity = local_identity("other"), "cluster other"),
        (|local| local.slot = 3, "a connection to node 2 reached node 3"),
        (|local| local.secret = Some(secret("0123456789abcdef")), "--cluster-secret"),
        (|local| local.slot = 1, "a connection to node 2 reached node 1"),
        (without_node_1, "node 1 does not belong to the store"),
    ];
    for (change, expected) in cases {
        // Only nodes that create a cluster must have the same flags.
        let cluster = (expected != "the same --peer flags").then_some("c");
        let mut server = local(2, cluster);
        change(&mut server);
        let pair = connect(local(1, cluster), server).await;
        let refused = pair.ask_connected(Question::Who).await.unwrap_err();
        assert!(refused.contains(expected), "{refused}");
        assert!(pair.handler.asked.lock().is_empty());
    }
    let with = |text: &str| Local { secret: Some(secret(text)), ..local(1, None) };
    let server = Local { secret: Some(secret("0123456789abcdef")), ..local(2, None) };
    let pair = connect(with("0123456789abcdeX"), server).await;
    let refused = pair.ask_connected(Question::Who).await.unwrap_err();
    assert!(refused.contains("--cluster-secret"), "{refused}");
}

fn local_identity(cluster: &str) -> watch::Sender<Option<PeerIdentity>> {
    watch::Sender::new(Some(PeerIdentity { cluster: cluster.to_owned(), node: 2 }))
}

#[tokio::test]
async fn a_question_on_a_broken_connection_has_an_unknown_outcome_and_is_not_repeated() {
    let pair = connect(local(1, None), local(2, None)).await;
    pair.ask_connected(Question::Who).await.unwrap();
    let (asked, ()) = tokio::join!(pair.ask(Question::Status), async {
        pair.handler.stuck.notified().await;
        pair.serving.abort();
    });
    assert!(matches!(asked, Err(CallError::Lost(_))), "{asked:?}");
    let later = pair.ask(Question::Status).await;
    assert!(matches!(later, Err(CallError::Unreachable(_))), "{later:?}");
    assert_eq!(pair.handler.asked.lock().len(), 2, "one Who and one Status");
}

/// Goal: a message whose answer may take longer than [`SILENCE`] uses the connection for large transfers.
#[tokio::test]
async fn long_questions_use_the_connection_for_transfers() {
    let pair = connect(local(1, None), local(2, None)).await;
    pair.ask_connected(Question::Who).await.unwrap();
    // Disables the connection for other messages, so that only the connection for transfers works.
    let Pair { peers, handler, serving, address } = pair;
    let other = Arc::new(Peer::connect(Arc::clone(&peers.local), 9, address, SILENCE));
    peers.peers.write().get_mut(&2).unwrap().usual = other;
    let ask = async |timeout| peers.ask(2, &Question::Rejoin { slot: 1 }, timeout).await;
    let connected = async {
        loop {
            match ask(SILENCE).await {
                Ok(answer) => break answer,
                Err(CallError::Unreachable(_)) => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(CallError::Lost(reason)) => panic!("{reason}"),
            }
        }
    };
    // The time-out is much longer than the normal duration of the call. Without a connection, the
    // call would never return.
    let answer = tokio::time::timeout(Duration::from_secs(60), connected).await.unwrap();
    assert!(matches!(answer, Answer::Refused(_)), "{answer:?}");
    let short = ask(SILENCE - Duration::from_millis(1)).await;
    assert!(matches!(short, Err(CallError::Unreachable(_))), "{short:?}");
    assert_eq!(handler.asked.lock().len(), 2);
    serving.abort();
}

#[tokio::test]
async fn messages_with_the_identity_of_another_node_end_the_connection() {
    let pair = connect(local(1, Some("c")), local(2, Some("c"))).await;
    pair.ask_connected(Question::Who).await.unwrap();
    let arc = node::ring::ArcId::FIRST;
    let message = Envelope { from: 3, to: 2, arc, request: Request::Status };
    let asked = pair.ask(Question::Node(Box::new(message))).await;
    assert!(matches!(asked, Err(CallError::Lost(_))), "{asked:?}");
}

#[tokio::test]
async fn a_port_that_speaks_http_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 64]).await;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    });
    let failure = handshake::connect(&local(1, None), 2, address).await.err().unwrap();
    assert!(
        matches!(failure, handshake::Failure::Refused(text) if text.contains("port for clients"))
    );
}

/// Goal: nodes of two versions refuse each other in both directions, before they exchange a message
/// ([decision 15](../../../../docs/decisions/0015-upgrades-stop-all-nodes.md)).
#[tokio::test]
async fn another_version_is_refused_with_the_reason() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let later = |mut greeting: Vec<u8>| {
        greeting[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        greeting
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let of_other = later(record_greeting(local(2, None)).await);
    let sent = of_other.clone();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(&sent).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let failure = handshake::connect(&local(1, None), 2, address).await.err().unwrap();
    assert!(
        matches!(&failure, handshake::Failure::Refused(text) if text.contains("the same version")),
        "{failure:?}"
    );
    let pair = connect(local(1, None), local(2, None)).await;
    let mut stream = tokio::net::TcpStream::connect(pair.address).await.unwrap();
    stream.write_all(&of_other).await.unwrap();
    let mut answered = Vec::new();
    let _ = stream.read_to_end(&mut answered).await;
    // Magic bytes and version of this node, and no Welcome.
    assert_eq!(answered.len(), 12, "{answered:?}");
}

/// Goal: clients that send nothing, and broken connections that are still open, do not prevent a peer from
/// connecting.
#[tokio::test]
async fn silent_connections_keep_no_peer_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let handler = Arc::new(Counting::default());
    let serving = tokio::spawn(serve(listener, Arc::new(local(2, None)), handler.clone()));
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(tokio::net::TcpStream::connect(address).await.unwrap());
    }
    // All connections below belong to the same peer, which does not close the first connections.
    let mut ways = Vec::new();
    for _ in 0..40 {
        let Ok(opened) = handshake::connect(&local(1, None), 2, address).await else {
            panic!("the handshake failed");
        };
        ways.push(opened);
    }
    let peers = Peers::connect(&Arc::new(local(1, None)), &BTreeMap::from([(2, address)]));
    let pair = Pair { peers, handler, serving, address };
    pair.ask_connected(Question::Who).await.unwrap();
}

/// Returns the first message of a connecting node, as an eavesdropper could record it.
async fn record_greeting(client: Local) -> Vec<u8> {
    use tokio::io::AsyncReadExt;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connecting =
        tokio::spawn(async move { handshake::connect(&client, 2, address).await.is_ok() });
    let (mut stream, _) = listener.accept().await.unwrap();
    // The preamble has 12 bytes; a frame begins with its length, an id and a checksum.
    let mut recorded = vec![0; 12 + 16];
    stream.read_exact(&mut recorded).await.unwrap();
    let length = u32::from_le_bytes(recorded[12..16].try_into().unwrap());
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut payload).await.unwrap();
    connecting.abort();
    [recorded, payload].concat()
}

/// Goal: a client with a recorded handshake, but without the secret, cannot close a peer's connection.
#[tokio::test]
async fn a_recorded_greeting_ends_no_connection() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let give = |local| Local { secret: Some(secret("0123456789abcdef")), ..local };
    let recorded = record_greeting(give(local(1, None))).await;
    let pair = connect(give(local(1, None)), give(local(2, None))).await;
    pair.ask_connected(Question::Who).await.unwrap();
    let address = pair.address;
    let replay = async {
        pair.handler.stuck.notified().await;
        for _ in 0..20 {
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            stream.write_all(&recorded).await.unwrap();
            stream.write_all(&[0; 64]).await.unwrap();
            // The connection ends normally, or with a reset because the peer left data unread.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    };
    tokio::select! {
        asked = pair.ask(Question::Status) => panic!("the connection was ended: {asked:?}"),
        () = replay => {}
    }
}
