//! How the replicas do, on the admin endpoint: the node of each, its role, how far it is, its log.
//!
//! Nothing is asked of other processes: these are the nodes of this one.

use serde_json::{Value, json};

use crate::node::{incarnation_of, slot_of};
use crate::store::Store;

/// One object for each replica: its node and arc, what it is, and how far it has got. The lag is the
/// number of entries that are committed, as far as any node knows, and not applied there.
pub(super) fn describe(store: &Store) -> String {
    let statuses = store.statuses();
    let committed = statuses.iter().filter_map(|status| status.committed).max();
    let replicas: Vec<Value> = statuses
        .iter()
        .map(|status| {
            let lag = committed.map(|at| at.saturating_sub(status.applied.unwrap_or(0)));
            json!({
                "node": slot_of(status.node),
                "incarnation": incarnation_of(status.node),
                "arc": status.arc.0,
                "role": status.role.as_str(),
                "term": status.term,
                "leader": status.leader.map(slot_of),
                "voters": status.voters.iter().copied().map(slot_of).collect::<Vec<_>>(),
                "last_log": status.last_log,
                "committed": status.committed,
                "applied": status.applied,
                "lag": lag,
                "durable_state": status.snapshot,
                "log_bytes": status.log_bytes,
                "log_syncs": status.log_syncs,
            })
        })
        .collect();
    json!({ "replicas": replicas }).to_string()
}
