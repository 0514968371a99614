//! The replicas of a process with one node: requests use a replica from the time it is a voter until another
//! node replaces it.
//!
//! A replica that is being filled lacks data, and a replica that was replaced gets no more entries. Requests
//! for their arcs go to other nodes.

use std::sync::Arc;
use std::time::Duration;

use partition::mutation::{self, Mutation};

use super::{Store, WeakStore};
use node::{Node, Replicas};

/// The interval at which the replicas are checked if none was added or removed. It is short, because requests
/// for an arc that this process has just begun to lead take a detour until then.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The time for which a new replica may take to show all acknowledged writes in one check.
const FILLED_WAIT: Duration = Duration::from_millis(50);

/// Returns the replicas that requests may use.
pub(super) fn usable(replicas: &Replicas) -> Vec<Node> {
    replicas.running().iter().filter(|node| is_usable(node)).cloned().collect()
}

/// A replica without a leader may have been replaced without notice. If it was not, the other nodes have no
/// leader either, and answer eventually consistent reads like this node.
fn is_usable(node: &Node) -> bool {
    node.leader().is_some() && node.status().voters.contains(&node.id())
}

/// Keeps the store's set of replicas up to date while the store exists. Calls `begin` with each new replica.
pub(super) async fn follow(
    store: WeakStore,
    replicas: Arc<Replicas>,
    begin: impl Fn(&Store, &Node) + Send,
) {
    let mut changes = replicas.subscribe();
    let mut begun: Vec<Node> = Vec::new();
    // The replicas that have their data. A replica that was added later is filled first, although its log may already
    // name it as a voter.
    let mut filled = replicas.running().to_vec();
    loop {
        let Some(upgraded) = store.upgrade() else { return };
        let running = Arc::clone(&changes.borrow_and_update());
        begun.retain(|node| running.iter().any(|other| other.is_same(node)));
        for node in running.iter() {
            if !begun.iter().any(|other| other.is_same(node)) {
                let is_first = filled.iter().any(|other| other.is_same(node));
                if is_first || !mutation::is_active(Mutation::SkipRelayOfMoved) {
                    begin(&upgraded, node);
                }
                begun.push(node.clone());
            }
        }
        filled.retain(|node| running.iter().any(|other| other.is_same(node)));
        for node in running.iter().filter(|node| is_usable(node)) {
            if !filled.iter().any(|other| other.is_same(node))
                && let Ok(Ok(())) = tokio::time::timeout(FILLED_WAIT, node.read_index()).await
            {
                filled.push(node.clone());
            }
        }
        let is_filled = |node: &Node| filled.iter().any(|other| other.is_same(node));
        let mut usable = usable(&replicas);
        usable.retain(is_filled);
        upgraded.use_replicas(usable);
        drop((upgraded, running));
        // The sender exists as long as `replicas`.
        let _ = tokio::time::timeout(CHECK_INTERVAL, changes.changed()).await;
    }
}

impl Store {
    fn use_replicas(&self, replicas: Vec<Node>) {
        self.shared.nodes.send_if_modified(|nodes| {
            let known = nodes.first().map(Vec::as_slice).unwrap_or_default();
            if mutation::is_active(Mutation::KeepUsingReplica) && replicas.len() < known.len() {
                return false;
            }
            let is_same = known.len() == replicas.len()
                && known.iter().zip(&replicas).all(|(one, other)| one.is_same(other));
            if !is_same {
                *nodes = Arc::new(vec![replicas]);
            }
            !is_same
        });
    }
}
