//! The ring on the admin endpoint: its nodes and arcs, the moves under way, and the request that a node leaves.

use std::collections::BTreeSet;

use http::StatusCode;
use partition::{Command, Reply, Ring, RingChange, Slot};
use serde::Deserialize;
use serde_json::{Value, json};

use super::admin_answer::{Answer, refusal, success};
use crate::store::{NodeReport, Store};
use node::slot_of;
use node::status::{Role, Status, Transfer};

const PLACE: &str = "POST /_weir/ring/leave";
const LEAVE: &str = "{\"node\":N}, with the number of a node of the ring";

/// The body of a request that a node leaves.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Leave {
    node: u8,
}

/// Lets a node leave the ring. The answer is the ring; the arcs move afterwards.
pub(super) async fn leave(store: &Store, body: &[u8]) -> Answer {
    let slot = match serde_json::from_slice(body) {
        Ok(Leave { node }) => Slot::new(node),
        Err(error) => return refusal(StatusCode::BAD_REQUEST, &error.to_string(), PLACE, LEAVE),
    };
    let Some(slot) = slot else {
        return refusal(StatusCode::BAD_REQUEST, "there is no node 0", PLACE, LEAVE);
    };
    if store.ring().is_none() {
        let what = "this store has no ring: all its nodes are in one process";
        let instead = "a request to a store with a process for each node";
        return refusal(StatusCode::CONFLICT, what, PLACE, instead);
    }
    let leave = Command::ChangeRing(Box::new(RingChange::Leave { slot }));
    match store.submit(vec![leave]).await.map(|replies| replies.into_iter().next()) {
        Ok(Some(Reply::Ring(ring))) => success(describe(&ring, &store.nodes().await).to_string()),
        Ok(Some(Reply::Invalid(reason))) => refusal(StatusCode::CONFLICT, &reason, PLACE, LEAVE),
        Ok(_) => unavailable("unexpected reply"),
        Err(error) => unavailable(&error.to_string()),
    }
}

fn unavailable(what: &str) -> Answer {
    refusal(StatusCode::SERVICE_UNAVAILABLE, what, PLACE, "the same request in a few seconds")
}

/// Returns the nodes of the ring, the nodes that shall have each arc, and the arcs that other nodes still have.
pub(super) fn describe(ring: &Ring, reports: &[NodeReport]) -> Value {
    let arcs: Vec<Value> = ring
        .replicas
        .iter()
        .zip(0_u32..)
        .map(|(slots, arc)| {
            let target: BTreeSet<u64> = slots.iter().map(|slot| u64::from(slot.number())).collect();
            let leader = leader_of(arc, reports);
            let voters: Option<BTreeSet<u64>> =
                leader.map(|leader| leader.voters.iter().copied().map(slot_of).collect());
            let moves = voters.as_ref().is_some_and(|voters| *voters != target);
            let target: Vec<u8> = slots.iter().map(|slot| slot.number()).collect();
            let transfers: Vec<Value> = leader
                .map(|leader| progress_of(&leader.transfers, leader.state_bytes))
                .unwrap_or_default();
            json!({ "arc": arc, "nodes": target, "voters": voters, "moves": moves, "transfers": transfers })
        })
        .collect();
    let nodes: Vec<Value> = ring
        .nodes
        .iter()
        .map(|(slot, node)| {
            let arcs = ring.replicas.iter().filter(|slots| slots.contains(slot)).count();
            json!({
                "node": slot.number(),
                "incarnation": node.incarnation,
                "address": node.address,
                "leaving": node.is_leaving,
                "arcs": arcs,
            })
        })
        .collect();
    json!({ "version": ring.version, "nodes": nodes, "arcs": arcs })
}

/// Returns the status of an arc's leader; `None` if no reachable node leads it.
fn leader_of(arc: u32, reports: &[NodeReport]) -> Option<&Status> {
    let statuses = reports.iter().flat_map(|report| &report.replicas);
    let leads = |status: &&Status| status.arc.0 == arc && status.role == Role::Leader;
    statuses.filter(leads).max_by_key(|status| status.term)
}

/// Returns the progress of the transfers of a state, with an estimate of the time that is left, at the rate so far.
fn progress_of(transfers: &[Transfer], state_bytes: u64) -> Vec<Value> {
    let progress = |transfer: &Transfer| {
        let sent = transfer.sent_bytes;
        // Files are compressed or contain replaced values, so the size is an estimate.
        let all = state_bytes.max(sent);
        let left = u128::from(all - sent) * u128::from(transfer.elapsed_ms);
        let left_ms = left.checked_div(u128::from(sent)).and_then(|ms| u64::try_from(ms).ok());
        json!({
            "to": slot_of(transfer.to),
            "sent_bytes": sent,
            "estimated_bytes": all,
            "elapsed_ms": transfer.elapsed_ms,
            "estimated_ms_left": left_ms,
        })
    };
    transfers.iter().map(progress).collect()
}

#[cfg(test)]
mod tests {
    use node::node_id;

    use super::*;

    #[test]
    fn the_rest_of_a_transfer_is_estimated_at_its_rate() {
        for (state_bytes, sent_bytes, elapsed_ms, all, left_ms) in [
            (40_000_000, 10_000_000, 1_000, 40_000_000, Some(3_000)),
            (40_000_000, 0, 5, 40_000_000, None),
            // The state was larger than its files.
            (0, 10_000_000, 1_000, 10_000_000, Some(0)),
        ] {
            let transfers = vec![Transfer { to: node_id(4, 0), sent_bytes, elapsed_ms }];
            let expected = json!([{
                "to": 4, "sent_bytes": sent_bytes, "estimated_bytes": all, "elapsed_ms": elapsed_ms,
                "estimated_ms_left": left_ms,
            }]);
            assert_eq!(Value::from(progress_of(&transfers, state_bytes)), expected);
        }
    }
}
