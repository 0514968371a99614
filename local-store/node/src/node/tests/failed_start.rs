//! A node that cannot start the replica of one arc.

use super::*;
use crate::state_location::{StagedStorage, StateLocation};
use storage::Error;

/// A state that cannot be read.
struct Unreadable;

impl Unreadable {
    fn error() -> Error {
        Error::Corrupt { path: "state".to_owned(), reason: "it is unreadable".to_owned() }
    }
}

impl StateLocation for Unreadable {
    fn open(&self) -> Result<Arc<dyn Storage>, Error> {
        Err(Self::error())
    }

    fn begin(&self) -> Result<StagedStorage, Error> {
        Err(Self::error())
    }

    fn adopt(&self, _: &StagedStorage) -> Result<(), Error> {
        Err(Self::error())
    }
}

/// A transport that counts messages.
struct Counted {
    inner: Wires,
    messages: Arc<AtomicU64>,
}

impl Transport for Counted {
    fn call(&self, message: Envelope, timeout: Duration) -> BoxFuture<Result<Response, CallError>> {
        self.messages.fetch_add(1, Ordering::SeqCst);
        self.inner.call(message, timeout)
    }

    fn nodes(&self) -> Vec<NodeId> {
        self.inner.nodes()
    }

    fn ballot_of(&self, node: NodeId, arc: ArcId) -> Option<Ballot> {
        self.inner.ballot_of(node, arc)
    }
}

/// Goal: no replica of a node that could not start continues to vote or to lead. Method: the
/// replica of the first arc cannot reach a leader, so that it requests votes if it runs.
#[tokio::test(start_paused = true)]
async fn no_replica_goes_on_after_a_failed_start() {
    let mut cluster = Cluster::start(Settings::default()).await;
    let node = cluster.follower();
    cluster.crash(node, 1).await;
    let messages = Arc::<AtomicU64>::default();
    let first = || Parts {
        transport: Arc::new(Counted {
            inner: cluster.wires.clone(),
            messages: Arc::clone(&messages),
        }),
        ..cluster.parts(node)
    };
    let wait = || tokio::time::sleep(Duration::from_secs(20));

    let second = Parts { arc: ArcId(1), state_location: Arc::new(Unreadable), ..first() };
    let refused = Node::start_all(vec![first(), second]).await.err().unwrap().to_string();
    assert!(refused.contains("it is unreadable"), "{refused}");
    let sent = messages.load(Ordering::SeqCst);
    wait().await;
    assert_eq!(messages.load(Ordering::SeqCst), sent);

    // The same replica requests votes when it is the only replica to start.
    let _started = Node::start_all(vec![first()]).await.unwrap();
    wait().await;
    assert!(messages.load(Ordering::SeqCst) > sent);
}
