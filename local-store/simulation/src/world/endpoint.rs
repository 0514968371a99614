//! The clients' connection to the cluster. Each request goes over the simulated network to a random
//! node, and has a time-out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use super::cluster::Cluster;
use super::environment::Dice;
use super::network::CLIENTS;
use super::translation;
use crate::request::{Answer, Endpoint, Failure, Request};

/// The time-out of an answer.
pub const TIMEOUT: Duration = Duration::from_millis(1_500);

/// The endpoint of one client of a simulated cluster. Each request goes to a random node.
#[derive(Clone)]
pub struct SimulatedEndpoint {
    cluster: Cluster,
    dice: Arc<Dice>,
    in_flight: Arc<AtomicUsize>,
}

impl SimulatedEndpoint {
    /// Creates the endpoint of a client with this name. `in_flight` counts the requests in
    /// progress.
    #[must_use]
    pub fn new(cluster: &Cluster, name: &str, in_flight: &Arc<AtomicUsize>) -> Self {
        Self {
            cluster: cluster.clone(),
            dice: Arc::new(Dice::new(cluster.environment.seed, name)),
            in_flight: Arc::clone(in_flight),
        }
    }
}

/// A guard that counts a request as in progress until it is dropped.
struct InFlightGuard(Arc<AtomicUsize>);

impl InFlightGuard {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Delivers a request to a node, and the answer to the client.
async fn deliver(
    cluster: Cluster,
    node: usize,
    request: Request,
    answer: oneshot::Sender<Result<Answer, Failure>>,
    in_flight: InFlightGuard,
) {
    if !cluster.network.hop(CLIENTS, node).await {
        drop(in_flight);
        // The client notices the lost request only at its time-out.
        tokio::time::sleep(TIMEOUT).await;
        return;
    }
    let Some(replica) = cluster.replica(node) else {
        let _ = answer.send(Err(Failure::Refused("connection refused".to_owned())));
        return;
    };
    // If the process ends, its work is aborted, and the client sees a broken connection.
    let work = tokio::spawn(async move { translation::serve(&*replica, request).await });
    cluster.attach(node, work.abort_handle());
    let Ok(result) = work.await else { return };
    drop(in_flight);
    if cluster.network.hop(node, CLIENTS).await {
        // Sending fails if the client has timed out and dropped the receiver.
        let _ = answer.send(result);
    } else {
        tokio::time::sleep(TIMEOUT).await;
    }
}

impl Endpoint for SimulatedEndpoint {
    async fn call(&self, request: Request) -> Result<Answer, Failure> {
        let nodes = self.cluster.nodes().count();
        let node = 1 + self.dice.roll(|random| random.up_to(nodes - 1));
        let (sender, receiver) = oneshot::channel();
        let in_flight = InFlightGuard::new(&self.in_flight);
        tokio::spawn(deliver(self.cluster.clone(), node, request, sender, in_flight));
        let result = match tokio::time::timeout(TIMEOUT, receiver).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Failure::Unknown("the connection broke".to_owned())),
            Err(_) => Err(Failure::Unknown("no answer in time".to_owned())),
        };
        if let Ok(Answer::Each(made)) = &result
            && made.iter().filter(|made| **made == Ok(true)).count() > 1
        {
            self.cluster.environment.coverage.hit("writes alike");
        }
        self.cluster.environment.note(match &result {
            Ok(Answer::ConditionFailed(_) | Answer::Cancelled) => "condition failed",
            Ok(_) => "answer",
            Err(Failure::Refused(_)) => "refused",
            Err(Failure::Unknown(_)) => "unknown",
            Err(Failure::Defect(_)) => "defect",
        });
        result
    }

    fn now_seconds(&self) -> u64 {
        self.cluster.environment.now().seconds()
    }
}
