//! The state of the nodes on the admin endpoint: their replicas with roles and progress.
//!
//! Nodes in other processes report their state over the network. If a node does not respond, it is listed
//! as unreachable, with the reason.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::ring;
use crate::store::Store;
use node::status::Status;
use node::{incarnation_of, slot_of};

/// Returns one object for each replica, with its node, arc, role and progress, and one object for each
/// node. The lag is the number of entries that the replica has not applied, although a node reports them as
/// committed.
pub(super) async fn describe(store: &Store) -> String {
    let nodes = store.nodes().await;
    let statuses = || nodes.iter().flat_map(|node| &node.replicas);
    let committed = |arc| statuses().filter(|s| s.arc == arc).filter_map(|s| s.committed).max();
    let replicas: Vec<Value> = statuses().map(|s| replica(s, committed(s.arc))).collect();
    let ring = store.ring().map(|ring| ring::describe(&ring, &nodes));
    let nodes: Vec<Value> = nodes
        .iter()
        .map(|node| {
            json!({
                "node": node.slot,
                "set_aside": node.set_aside,
                "unreachable": node.unreachable,
            })
        })
        .collect();
    json!({
        "nodes": nodes,
        "replicas": replicas,
        "ring": ring,
        "sent_to_peers_bytes": store.sent_to_peers_bytes(),
        "sent_state_bytes": store.sent_state_bytes(),
    })
    .to_string()
}

fn replica(status: &Status, committed: Option<u64>) -> Value {
    let lag = committed.map(|at| at.saturating_sub(status.applied.unwrap_or(0)));
    let slots = |nodes: &[u64]| nodes.iter().copied().map(slot_of).collect::<Vec<_>>();
    let acknowledged: BTreeMap<String, u64> =
        status.acknowledged.iter().map(|(node, at)| (slot_of(*node).to_string(), *at)).collect();
    json!({
        "node": slot_of(status.node),
        "incarnation": incarnation_of(status.node),
        "arc": status.arc.0,
        "role": status.role.as_str(),
        "term": status.term,
        "leader": status.leader.map(slot_of),
        "voters": slots(&status.voters),
        "learners": slots(&status.learners),
        "last_log": status.last_log,
        "committed": status.committed,
        "applied": status.applied,
        "lag": lag,
        "durable_state": status.snapshot,
        "acknowledged": acknowledged,
        "silent_ms": status.silent_ms,
        "log_bytes": status.log_bytes,
        "log_syncs": status.log_syncs,
        "log_synced_bytes": status.log_synced_bytes,
        "damaged": status.is_damaged,
        "state_bytes": status.state_bytes,
        "scrub": {
            "passes": status.scrub.passes,
            "completed_ms": status.scrub.completed_ms,
            "begun_ms": status.scrub.begun_ms,
            "verified_bytes": status.scrub.verified_bytes,
            "all_bytes": status.scrub.all_bytes,
        },
    })
}
